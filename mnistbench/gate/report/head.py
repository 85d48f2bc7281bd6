"""The head of a report: what was measured, and on which machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from mnistbench.core import units
from mnistbench.gate.verdict.verdict import Verdict
from mnistbench.gate.words import BASE, HEAD


def head_lines(verdict: Verdict) -> Iterable[str]:
    """Yield what was measured, on which machine, and what differs beside the code."""
    header = verdict.header
    decision = verdict.shown
    launches = units.counted(decision.launches, "launch", "launches")
    fresh = f" and {units.counted(decision.fresh, 'fresh one')}" if decision.fresh else ""
    yield f"base {header.base} -> head {header.head}"
    count = units.counted(len(header.labels), "case")
    same = len(header.reach.same)
    count = f"{len(header.labels)} of {len(header.labels) + same} cases" if same else count
    time = units.duration(verdict.recorded.seconds * 1e9)
    if verdict.end.elapsed_s:
        time = f"{units.duration(verdict.end.elapsed_s * 1e9)} from start to finish"
    frameworks = "".join(f", {name} {version}" for name, version in header.sides.frameworks.items())
    yield f"measured: {count}, {launches}{fresh}, {time}{frameworks}"
    if parts := ", ".join(
        f"{name} {units.duration(part_s * 1e9)}"
        for name, part_s in verdict.end.parts_s.items()
        if part_s
    ):
        yield f"time: {parts}"
    yield from _surroundings(verdict)
    for side, variables in header.variables.items():
        if variables:
            yield (
                f"{side} with "
                f"{' '.join(f'{name}={shlex.quote(value)}' for name, value in variables.items())}"
            )
    both = [
        f"{name} {base} -> {head}"
        for name, (base, head) in header.sides.packages.items()
        if base and head
    ]
    only_base, only_head = (
        [name for name, versions in header.sides.packages.items() if not versions[missing]]
        for missing in (1, 0)
    )
    for what, names in (
        ("packages of other versions", both),
        ("packages only in the base", only_base),
        ("packages only in the head", only_head),
    ):
        if names:
            yield f"{what}: {units.counted_names(names, verdict.options.top)}"
    machines: dict[str, list[str]] = {}
    for part in verdict.recorded.shards:
        machines.setdefault(part.header.machine, []).append(str(part.header.shard.number))
    for machine, numbers in machines.items():
        yield (
            f"shard{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} of {header.shard.of}: "
            f"{machine}"
        )


def _surroundings(verdict: Verdict) -> Iterable[str]:
    """Yield which interpreter and which code for the processor run the sides, as far as known."""
    if verdict.header.interpreter:
        yield f"interpreter: {verdict.header.interpreter}"
    cpus = (_cpu(part.header.sides.cpu) for part in verdict.recorded.shards or (verdict.recorded,))
    yield from (f"cpu: {cpu}" for cpu in dict.fromkeys(cpus) if cpu)


def _cpu(cpu: Mapping[str, Mapping[str, str]]) -> str:
    """Return what decides which code runs on the CPU, of both sides where they differ."""
    base, head = (cpu.get(side, {}) for side in (BASE, HEAD))
    values = {
        name: dict.fromkeys(side.get(name, "none") for side in (base, head))
        for name in {**base, **head}
    }
    return "; ".join(f"{name} {' -> '.join(side_values)}" for name, side_values in values.items())
