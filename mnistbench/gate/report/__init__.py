"""The report of a gate.

``blocks`` has its parts in their order: ``head``, ``findings``, ``tables``, ``notes`` and
``sentence``; ``data`` is the same for JSON. ``ranking`` chooses what comes first, ``texts`` writes
changes and lists. ``delivery`` shows a report and returns the exit code.
"""
