"""Environments of the gate.

How they are made, listed and removed, and which releases of a package exist.

``interpreters`` returns the interpreter of each side; ``python`` checks an interpreter, and finds
that of the project if the gate has an environment of its own; ``packages`` lists what a new
environment gets; ``store`` makes, lists and removes environments; ``uv`` starts uv and asks it for
the releases of a package; ``command`` is ``mnistbench environments``.

Question: which interpreter runs each side, and how is its environment made?
Input: the installed packages, and requirements such as ``torch==2.13.0``.
Output: an interpreter for each side; that of a made environment is in the user's cache.

Nothing here imports torch.
"""
