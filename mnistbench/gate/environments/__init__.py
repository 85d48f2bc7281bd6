"""Environments of the gate.

How they are made, listed and removed, and which releases of a package exist.

``sides`` declares the options that name what differs between two sides; ``packages`` lists what a
new environment gets; ``store`` makes, lists and removes environments; ``uv`` starts uv and asks it
for the releases of a package.

Question: which two environments are compared, and how are they made?
Input: the installed packages, and requirements such as ``torch==2.13.0``.
Output: a folder with an interpreter, in the user's cache.

Nothing here imports torch.
"""
