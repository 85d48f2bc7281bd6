"""Saved runs: ``storage`` finds them, ``run`` reads a file.

Question: which runs are saved, and can they be compared? Input: a folder of files that
pytest-benchmark saved, and references to them (a number, a glob, a commit). Output: runs,
differences of environments (``compatibility``), and the files to remove (``prune``).

Nothing here imports torch.
"""
