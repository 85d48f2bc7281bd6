"""An HTML page that loads nothing.

``html_page`` has its frame, with the style sheets and scripts of ``web``; ``charts`` computes the
geometry of the charts in it.
"""
