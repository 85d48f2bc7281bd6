"""Saved runs: ``storage`` finds them, ``run`` reads a file.

Question: which runs are saved, and can they be compared? Input: a folder of files that
pytest-benchmark saved, and references to them (a number, a glob, a commit). Output: runs, and
differences of environments (``compatibility``).

``plain`` reads benchmarks without a record, and ``trace`` makes a run of a trace. ``references``
finds what the arguments of a command name, runs and traces. ``command`` has ``mnistbench list``,
``history`` and ``export``; ``report`` has their tables, ``case_tables`` those of operations and of
functions.

Nothing here imports torch.
"""
