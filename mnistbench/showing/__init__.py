"""How is any result shown: tables, reports, and the formats that draw them.

A ``report`` has running ``text``, a ``table``, a ``plot``. ``side_by_side`` is a table of
operations that commands share, ``environment`` the lines of a machine. ``terminal``, ``markdown``
and ``html`` draw a report, ``page`` the pages with charts. ``output`` delivers it; ``progress`` is
shown before.
"""
