"""Which cases are affected by the differences between the sides. What is not known affects.

``following`` sees in a survey which code each case runs, ``fetched`` which names it gets, and
``opened`` which files are opened. ``source`` divides a file into parts; ``side_code`` joins both
for a side; ``differences`` compares the sides: the rule. ``cases`` applies it, with
``configuration``; ``compared`` is what other packages ask. ``narrowing`` also surveys the cases
that are left out alone, and gives them a quick ``look``. ``dependencies`` differ beside the code.
"""
