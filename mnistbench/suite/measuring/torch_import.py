"""Import of torch in a process that measures."""

from __future__ import annotations

import os


def import_torch(*, quiet: bool = False) -> None:
    """Import torch after everything that has to precede it.

    The allocator is pinned, and Kineto does not warn of missing GPUs. The import does not search
    for reference cycles.

    Args:
        quiet: also silence the warnings of torch's C++ code, such as that of memory which was
            allocated before a profile began.
    """
    # Here: a pytest run without cases loads no more modules than it needs.
    from mnistbench.core.machine import gc_paused, pin_allocator

    pin_allocator()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    if quiet:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    with gc_paused():
        import torch  # noqa: F401
