"""An HTML page that loads nothing: its frame, style sheet and script, and the charts in it."""
