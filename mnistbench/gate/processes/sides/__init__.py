"""What runs inside the process of a side of the gate.

``worker`` is the program. ``side`` is the tree whose code runs in the process; ``stray`` finds code
that is not the side's own. ``session`` runs the tests of the side by pytest: ``requested`` are the
paths among pytest's arguments, and ``failures`` says why a session failed.

``survey`` describes the cases and gives each a quick look. ``steps`` measures a case, in ``turns``
with the process of the other side, and ``side_paths`` collects its call paths. ``case`` has the
cases, of which a provider has more; ``fingerprint`` is a hash of what they return.
"""
