"""The memory that this machine has left."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path


def available_bytes() -> float:
    """Return the memory that processes can get without swapping; infinite where the system does not tell."""
    found = []
    with contextlib.suppress(OSError, KeyError, ValueError):
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(1024 * int(lines["MemAvailable"].split()[0]))
    with contextlib.suppress(OSError, ValueError):  # the limit of a container; "max" without one
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        found.append(limit - used)
    return min(found, default=math.inf)
