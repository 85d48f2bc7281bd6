"""The environment of child processes that measure: the gate's launches and the lab's first iterations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mnistbench.core.allocator import PINNED


def child_environment(inherited: Mapping[str, str], bytecode: Path) -> dict[str, str]:
    """Return the inherited environment with pinned allocator thresholds, a bytecode cache and absolute paths.

    Args:
        inherited: environment of the parent process.
        bytecode: cache directory for a child that may not write beside its sources (``PYTHONDONTWRITEBYTECODE``);
            without one, each process would compile torch's sources again, which takes 10 s.
    """
    found = {**inherited, **PINNED, "KINETO_LOG_LEVEL": "99"}  # without it Kineto reports a missing GPU as an error
    if found.pop("PYTHONDONTWRITEBYTECODE", ""):
        found["PYTHONPYCACHEPREFIX"] = str(bytecode)
    if found.get("MNISTBENCH_DATA"):  # a child may run in another directory
        found["MNISTBENCH_DATA"] = str(Path(found["MNISTBENCH_DATA"]).absolute())
    if found.get("PYTHONPATH"):
        found["PYTHONPATH"] = os.pathsep.join(str(Path(part).absolute()) for part in found["PYTHONPATH"].split(os.pathsep))
    return found
