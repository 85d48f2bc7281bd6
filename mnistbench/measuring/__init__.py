"""Measurement of one case: ``case`` builds it, ``timing`` times it, ``profiling`` makes its operation tables.

Question: how is one case measured?
Input: a workload and ``Params`` (phase, batch size, device, dtype).
Output: times in nanoseconds, operation tables, TensorBoard scalars, and the environment they were measured in.

All modules but ``torch_import`` import torch.
"""
