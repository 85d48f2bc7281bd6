"""Decide from the environments of two runs whether their times can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mnistbench.core import units
from mnistbench.core.params import Params


class Remedy(NamedTuple):
    """What a user can do about a difference."""

    advice: str
    option: str = ""  # that ignores the difference; empty if none does


_ACROSS = "--across-machines"
_WITH_ONE_VERSION = Remedy("measure both sides with one version", "--across-versions")

#: Field of ``record.Environment`` -> remedy if it differs. Differences in other fields are
#: reported, but do not matter.
BLOCKING = {
    "cpu_model": Remedy("measure both sides on one machine", _ACROSS),
    "cpu_count": Remedy("give both sides the same CPUs", _ACROSS),
    "devices": Remedy("measure both sides on one accelerator and driver", _ACROSS),
    "torch": _WITH_ONE_VERSION,
    "blas": _WITH_ONE_VERSION,
    "python": Remedy("use one Python for both sides"),
    "threads": Remedy("give both sides the same --bench-threads"),
    "allocator": Remedy("start both sides with the same allocator settings"),
}

#: The clock of the times of a case. It differs by case, not by environment.
TIMER = "timer"

#: What to do about each difference.
REMEDIES = {**BLOCKING, TIMER: Remedy("measure both sides with the same --benchmark-timer")}

#: Fields that ``--across-versions`` ignores.
VERSIONS = ("torch", "blas")

#: Fields that ``--across-machines`` ignores.
MACHINES = ("cpu_model", "cpu_count", "devices")


def differences(base: Mapping[str, Any], head: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differences in fields that both sides have: field -> (base, head)."""
    return {
        name: (base[name], head[name]) for name in base if name in head and base[name] != head[name]
    }


def described(different_fields: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Return each difference as text: ``cpu count 2 -> 4``."""
    return [
        f"{name.replace('_', ' ')} {units.listed(base)} -> {units.listed(head)}"
        for name, (base, head) in different_fields.items()
    ]


def blocking_differences(
    base: Mapping[str, Any],
    head: Mapping[str, Any],
    params: Params | None,
    *,
    across_versions: bool = False,
    across_machines: bool = False,
) -> dict[str, tuple[Any, Any]]:
    """Return the differences that make a case incomparable; empty if it can be compared.

    Accelerators are ignored for a case on the CPU, and patch releases of Python for all cases.
    """
    blocking = {}
    for name, (base_value, head_value) in differences(base, head).items():
        if (
            name not in BLOCKING
            or (across_versions and name in VERSIONS)
            or (across_machines and name in MACHINES)
        ):
            continue
        if name == "devices" and params is not None and params.device == "cpu":
            continue
        if name == "python" and str(base_value).split(".")[:2] == str(head_value).split(".")[:2]:
            continue
        blocking[name] = (base_value, head_value)
    return blocking
