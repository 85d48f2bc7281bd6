"""The commands ``gate``, ``judge`` and ``bisect``.

``bisection`` is the search of ``bisect``; ``delivery`` shows the report of each.
"""
