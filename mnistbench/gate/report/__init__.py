"""The report of a gate.

``rows`` has what all forms of a report show of a verdict. ``outcome`` has the last line, what a
pass rules out, and why a gate is inconclusive; ``notes`` the head, the notes and the scripts.
``text`` is the report as lines and tables, ``comment`` what a comment on a pull request has above
them, ``data`` is the report as JSON, and ``gate.report.page`` as HTML.
"""
