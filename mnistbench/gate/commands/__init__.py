"""The commands ``gate``, ``judge`` and ``bisect``.

``bisection`` is the search of ``bisect``; ``result`` has the report and the exit code of each.
"""
