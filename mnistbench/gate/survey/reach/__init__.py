"""Which cases are affected by the differences between the sides. What is not known affects.

What each case ran and opened comes from ``gate.processes.following``. ``source`` divides a file
into parts; ``side_code`` joins them with what ran; ``differences`` has the rule that compares
sides. ``cases`` applies it, with ``configuration``; ``compared`` is what other packages ask.
``narrowing`` also surveys the cases that are left out alone, and gives them a quick ``look``.
``dependencies`` differ beside the code.
"""
