"""Files of raw samples of several machines -> one gate, and which of its tests are missing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from mnistbench.core import units
from mnistbench.core.errors import UsageError
from mnistbench.core.options import options_of
from mnistbench.gate.listing import OTHER_ID, Listing, Listings, Reach, without_counterpart
from mnistbench.gate.options import MIN_TRIALS, Thresholds
from mnistbench.gate.samples.raw_samples import (
    FIRST_STAGE,
    End,
    GateHeader,
    Recorded,
    load,
)
from mnistbench.judging.verdicts import BROKEN, BUDGET, MISSING, Reason


def gather(paths: Sequence[Path]) -> Recorded:
    """Return the samples of a gate: of one file, or of the files of its shards in any order.

    Raises:
        RecordError: a file cannot be read.
        UsageError: files are of different gates, or of the same shard.
    """
    parts = sorted(map(load, paths), key=lambda part: part.header.shard.number)
    first = parts[0]
    for earlier, later in itertools.pairwise(parts):
        if difference := _difference(first, later):
            raise UsageError(
                f"{later.path}: is of another gate than {first.path}: {difference}; judge the "
                "shards of one gate"
            )
        if earlier.header.shard.number == later.header.shard.number:
            raise UsageError(
                f"{later.path}: is of shard {later.header.shard}, as {earlier.path} is; remove "
                "one of them"
            )
    return _merged(parts) if first.header.shard.of > 1 else first


def _difference(first: Recorded, other: Recorded) -> str:
    """Return what differs between the gates of two shards; empty if they are of one gate."""
    ours = first.header
    theirs = other.header
    compared = {
        "number of shards": (ours.shard.of, theirs.shard.of),
        **{
            name: (getattr(ours, name), getattr(theirs, name))
            for name in ("base", "head", "arguments", "variables")
        },
        **{
            option.name: (ours.thresholds.get(name), theirs.thresholds.get(name))
            for name, option in options_of(Thresholds).items()
        },
        **{
            f"version of {name}": (ours.sides.versions.get(name), theirs.sides.versions.get(name))
            for name in sorted({*ours.sides.versions, *theirs.sides.versions}, key=str.lower)
        },
    }
    for name, (first_value, other_value) in compared.items():
        if first_value != other_value:
            return f"{name} is {_shown(other_value)} instead of {_shown(first_value)}"
    more, fewer = (
        sorted({*a.shard.tests} - {*b.shard.tests}) for a, b in ((theirs, ours), (ours, theirs))
    )
    if not more and not fewer:
        return ""
    text = f"it has the test {more[0]}" if more else f"it lacks the test {fewer[0]}"
    is_unstable = (more or fewer)[0] in without_counterpart(ours.shard.tests, theirs.shard.tests)
    return f"{text}: {OTHER_ID}, or set PYTHONHASHSEED=0 on all machines" if is_unstable else text


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{100 * value:g}%"
    if isinstance(value, Mapping):
        value = [
            f"{side} {name}={text}"
            for side, variables in value.items()
            for name, text in variables.items()
        ]
    return (
        str(value)
        if isinstance(value, str | int)
        else " ".join(dict.fromkeys(value or ())) or "none"
    )


def _merged(parts: Sequence[Recorded]) -> Recorded:
    """Return all shards as one gate."""
    members = {
        item.name: _united([getattr(part.header, item.name) for part in parts])
        for item in fields(GateHeader)
    }
    reproducers = tuple(reproducer for part in parts for reproducer in part.end.reproducers)
    profiles = {case: profile for part in parts for case, profile in part.end.profiles.items()}
    longest = max((part.end for part in parts), key=lambda end: end.elapsed_s)
    end = End(
        elapsed_s=longest.elapsed_s,
        parts_s=longest.parts_s,
        reproducers=reproducers,
        profiles=profiles,
    )
    trials = [trial for part in parts for trial in part.trials]
    header = GateHeader(**{**members, "reach": _united_reach(parts)})
    return Recorded(parts[0].path, header, trials, end, tuple(parts))


def _united_reach(parts: Sequence[Recorded]) -> Reach:
    """Return which cases are affected; what a case of any shard runs or uses is covered."""
    reach: Reach = _united([part.header.reach for part in parts])
    uncovered, unused = (
        tuple(sorted(set.intersection(*({*getattr(part.header.reach, name)} for part in parts))))
        for name in ("uncovered", "unused")
    )
    not_followed = {
        name: why
        for name, why in reach.not_followed.items()
        if name not in uncovered
        and all(
            name in part.header.reach.not_followed or name in part.header.reach.uncovered
            for part in parts
        )
    }
    return replace(reach, uncovered=uncovered, not_followed=not_followed, unused=unused)


def _united(values: Sequence[Any]) -> Any:
    """Return the union of mappings, listings or lists; else the first value that is known."""
    values = [value for value in values if value is not None] or [None]
    if isinstance(values[0], Listings | Listing | Reach):
        members = [item.name for item in fields(values[0])]
        return replace(
            values[0],
            **{name: _united([getattr(value, name) for value in values]) for name in members},
        )
    if isinstance(values[0], Mapping):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: _united([value[name] for value in values if name in value]) for name in names}
    if isinstance(values[0], tuple) and len(values) > 1:
        return tuple(dict.fromkeys(item for value in values for item in value))
    return values[0]


def is_judged(part: Recorded) -> bool:
    """Whether a shard has enough trials for a verdict about its tests."""
    return sum(trial.stage == FIRST_STAGE for trial in part.trials) >= MIN_TRIALS


def not_measured(parts: Sequence[Recorded]) -> Iterator[Reason]:
    """Yield why tests of the shards of a gate were not measured, or not to the end."""
    part_of_number = {part.header.shard.number: part for part in parts}
    for shard in [
        replace(parts[0].header.shard, number=number)
        for number in range(1, parts[0].header.shard.of + 1)
    ]:
        part = part_of_number.get(shard.number)
        tests = shard.own()
        lost = f"so its tests are not judged: {len(tests)} ({units.and_so_on(tests)})"
        if part is None and tests:
            yield Reason(MISSING, f"shard {shard} is missing, {lost}; run it, or add its file")
        elif part and part.header.labels and (part.end.cut_short or not is_judged(part)):
            why = part.end.cut_short or "it has too few trials"
            text = f"shard {shard}: {why}{'' if is_judged(part) else f', {lost}'}"
            yield Reason(BUDGET if part.end.cut_short and not part.end.broken_off else BROKEN, text)
