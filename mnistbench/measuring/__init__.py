"""Measurement of one case: ``case`` builds it, ``passes`` times it, ``profiling`` makes its operation tables.

``events_to_table`` gathers the profiler's events into rows.

Question: how is one case measured?
Input: a workload and ``Params`` (phase, batch size, device, dtype).
Output: times in nanoseconds, operation tables, TensorBoard scalars, and the environment they were measured in.

``timing``, ``calls`` and ``command`` do not import torch when they are imported.
"""

import os


def import_torch() -> None:
    """Import torch after setting a variable that it reads then, and without searches for reference cycles.

    Kineto is silenced, which otherwise warns of missing GPUs.
    """
    from mnistbench.core.machine import gc_paused  # here: a pytest run without cases loads no more modules than it needs

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with gc_paused():
        import torch  # noqa: F401
