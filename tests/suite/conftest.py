"""Every test in this folder runs on one thread and restores the random state."""

from one_thread import alone

__all__ = ["alone"]
