"""Whether the times of two runs can be compared at all: a pure function of their environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mnistbench.core.params import Params

#: Field of ``record.Environment`` -> what to do where it differs. Fields that are not here are named and do not decide.
BLOCKING = {
    "cpu_model": "measure both sides on one machine",
    "cpu_count": "give both sides the same CPUs",
    "devices": "measure both sides on one accelerator and driver",
    "torch": "add --across-versions to compare them all the same",
    "blas": "add --across-versions to compare them all the same",
    "python": "use one Python for both sides",
    "threads": "give both sides the same --bench-threads",
    "allocator": "start both sides with the same allocator settings (tox -e bench sets them)",
}

#: What ``--across-versions`` lets pass.
VERSIONS = ("torch", "blas")


def differences(base: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what differs of what both sides say: field -> (base, now)."""
    return {name: (base[name], now[name]) for name in base if name in now and base[name] != now[name]}


def blocking_differences(
    base: Mapping[str, Any], now: Mapping[str, Any], params: Params | None, *, across_versions: bool
) -> dict[str, tuple[Any, Any]]:
    """Return the differences that forbid comparing a case; empty where it can be compared.

    An accelerator does not matter to a case on the CPU, nor a patch release of Python to any.
    """
    found = {}
    for name, (mine, others) in differences(base, now).items():
        if name not in BLOCKING or (across_versions and name in VERSIONS):
            continue
        if name == "devices" and params is not None and params.device == "cpu":
            continue
        if name == "python" and _minor(mine) == _minor(others):
            continue
        found[name] = (mine, others)
    return found


def _minor(version: str) -> list[str]:
    return str(version).split(".")[:2]
