"""The cores that this process may use."""

from __future__ import annotations

import os


def own_cores() -> list[int]:
    """Return the numbers of the cores; none where the system does not let a process choose."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def usable_cpus() -> int:
    """Return how many cores there are."""
    return len(own_cores()) or os.cpu_count() or 1
