"""Measurement of one case.

``case`` builds it, ``timing`` and ``passes`` time it, ``profiling`` makes its operation tables.

Question: how is one case measured? Input: a workload and ``Params`` (phase, batch size, device,
dtype). Output: times in nanoseconds, operation tables, TensorBoard scalars, and the environment
they were measured in.

``timing``, ``calls``, ``env_command`` and ``torch_import`` do not import torch at their own import.
"""
