"""Measures one case of a workload.

``case`` builds it, ``device_timing`` and ``passes`` time it, ``profiling`` makes its operation
tables.

Question: how is one case measured? Input: a workload and ``Params`` (phase, batch size, device,
dtype). Output: times in nanoseconds, operation tables, TensorBoard scalars, and the environment
they were measured in.
"""
