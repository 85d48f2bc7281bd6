"""Import of torch after setting a variable that it reads during import.

Without searches for reference cycles.
"""

from __future__ import annotations

import os


def import_torch() -> None:
    """Import torch; silence Kineto first, which otherwise warns of missing GPUs."""
    # Here: a pytest run without cases loads no more modules than it needs.
    from mnistbench.core.machine import gc_paused

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with gc_paused():
        import torch  # noqa: F401
