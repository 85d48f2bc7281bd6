"""Measures one call of any benchmark, with the clocks and the profiler of Python alone.

Question: how is one call timed, and which functions does it run? Input: a function, or a test that
gives one to pytest-benchmark's fixture (``calls``). Output: times in nanoseconds (``timing``),
functions (``functions``) and call paths (``call_paths``).

``provider`` is what a framework adds. Nothing here imports torch, whose operations are measured in
``suite``.
"""
