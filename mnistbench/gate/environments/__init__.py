"""The environment of each side.

``interpreters`` returns the interpreter of each side; ``python`` checks an interpreter, and finds
that of the project if the gate has an environment of its own. ``made`` makes an environment with
other versions of some packages, for which ``packages`` lists what the project has; ``uv`` finds and
runs uv, which chooses all versions and keeps the environment in its cache. ``releases`` lists the
releases of a package.

Question: which interpreter runs each side, and how is its environment made?
Input: the installed packages, and requirements such as ``torch==2.13.0``.
Output: an interpreter for each side.

Nothing here imports torch.
"""
