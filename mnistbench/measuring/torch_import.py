"""Import of torch after setting a variable that it reads during import."""

from __future__ import annotations

import os


def import_torch() -> None:
    """Import torch; silence Kineto first, which otherwise warns of missing GPUs."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch  # noqa: F401
