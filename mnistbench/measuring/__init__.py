"""Measurement of one case: ``case`` builds it, ``timing`` times it, ``profiling`` makes its operation tables.

``marks`` puts ranges on a case while it is profiled, ``events_to_table`` gathers the profiler's events into rows.

Question: how is one case measured?
Input: a workload and ``Params`` (phase, batch size, device, dtype).
Output: times in nanoseconds, operation tables, TensorBoard scalars, and the environment they were measured in.

All modules but ``torch_import`` import torch.
"""
