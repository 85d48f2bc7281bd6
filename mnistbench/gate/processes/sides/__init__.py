"""What runs inside the process of a side of the gate.

``worker`` is the program. ``side`` is the tree whose code runs in the process, beside the gate's
own copy of mnistbench; ``stray`` finds code that is not the side's own. ``session`` runs the tests
of the side by pytest: ``requested`` are the paths among pytest's arguments, and ``failures`` says
why a session failed.

``survey`` does the jobs that time nothing. ``steps`` measures a case, in ``turns`` with the process
of the other side. ``case`` and ``workload_case`` are the cases; ``fingerprint`` is a hash of what
they return.
"""
