"""The report of a gate.

``blocks`` has its parts in their order: ``head``, ``findings``, ``tables``, ``notes`` and
``outcome``; ``data`` is the same for JSON. ``selection`` chooses what a report of many cases says
and what comes first, ``texts`` writes changes and times.
"""
