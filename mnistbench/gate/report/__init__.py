"""The report of a gate.

``report`` puts its forms together. ``rows`` has what all of them show of a verdict; ``outcome`` the
last line, what a pass rules out, and why a gate is inconclusive; ``notes`` the head, the notes and
the scripts. ``text`` is the report as lines and tables, ``comment`` what a comment on a pull
request has above them, ``data`` is the report as JSON, and ``gate.report.page`` as HTML.
``annotations`` are the lines of a job on GitHub, and ``listed`` is the report of a survey alone.
"""
