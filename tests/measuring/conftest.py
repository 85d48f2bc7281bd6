"""Every test in this folder runs on one thread and restores the random state."""

from torch_builders import alone

__all__ = ["alone"]
