"""Saved runs: ``storage`` finds and reads them, ``summary`` keeps what a comparison needs of each.

Question: which runs are saved, and can they be compared? Input: a folder of files that
pytest-benchmark saved, and references to them (a number, a glob, a commit). Output: summaries,
differences of environments (``compatibility``), and the files to remove (``prune``).

Nothing here imports torch.
"""
