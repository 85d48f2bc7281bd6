"""Measures one call of any benchmark, with the clocks and the profiler of Python alone.

Question: how is one call timed, and which functions does it run? Input: a function, or a test that
gives one to pytest-benchmark's fixture. Output: times in nanoseconds, functions and call paths.

Nothing here imports torch. Operations of torch are measured in ``suite``.
"""
