"""Reproducers: a script for each operation that the gate finds slower.

Question: does the operation show the change by itself?
Input: a case on each side and the rows of the operation table that got slower.
Output: a script that needs torch alone, and the change that it shows when it runs on both sides.

``capture``, in a process of a side, describes the calls that a row of the operation table consists of, as JSON, with ``values``
for tensors, and ``memory_use`` for what caches have lost of them; ``script`` writes a script from such descriptions; ``run``
runs it on both sides. Only ``script`` and ``run`` do not import torch.
"""
