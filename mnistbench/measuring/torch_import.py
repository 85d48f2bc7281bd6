"""Import of torch, with a setting that has to be made before it."""

from __future__ import annotations

import os


def import_torch() -> None:
    """Import torch with Kineto silenced: it complains of missing GPUs unless told not to before torch is imported."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch  # noqa: F401
