"""Files of raw samples of several machines -> the samples of one gate, and which of its tests were not measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mnistbench.core.errors import UsageError
from mnistbench.gate.verdict.decision import BROKEN, BUDGET, LEAST_LAUNCHES, MISSING, Reason
from mnistbench.gate.verdict.samples import BASE, HEAD, End, Recorded, Shard, load

#: Most tests in a sentence.
NAMED = 3


def gather(paths: Sequence[Path]) -> Recorded:
    """Return the samples of a gate: of one file, or of the files of its shards in any order.

    Raises:
        RecordError: a file cannot be read.
        UsageError: files are of different gates, or of the same shard.
    """
    first, *others = found = sorted(map(load, paths), key=lambda one: one.header.shard.number)
    for earlier, later in zip(found, others, strict=False):
        if difference := _difference(first, later):
            raise UsageError(
                f"{later.path}: is of another gate than {first.path}: {difference}; judge shards of one gate together"
            )
        if earlier.header.shard.number == later.header.shard.number:
            raise UsageError(f"{later.path}: is of shard {later.header.shard}, as {earlier.path} is; remove one of them")
    return _merged(found) if first.header.shard.of > 1 else first


def _difference(first: Recorded, other: Recorded) -> str:
    """Return what differs between the gates of two shards; empty if they are of one gate."""
    one, another = first.header, other.header
    compared = {
        "number of shards": (one.shard.of, another.shard.of),
        **{name: (getattr(one, name), getattr(another, name)) for name in ("base", "head", "arguments", "variables")},
        **{
            f"version of {name}": (one.shard.installed.get(name), another.shard.installed.get(name))
            for name in sorted({*one.shard.installed, *another.shard.installed}, key=str.lower)
        },
    }
    for what, (of_first, of_other) in compared.items():
        if of_first != of_other:
            return f"{what} is {_shown(of_other)} instead of {_shown(of_first)}"
    more, fewer = (sorted({*a.shard.tests} - {*b.shard.tests}) for a, b in ((another, one), (one, another)))
    return f"it has the test {more[0]}" if more else f"it lacks the test {fewer[0]}" if fewer else ""


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{side} {name}={text}" for side, variables in value.items() for name, text in variables.items()]
    return str(value) if isinstance(value, str | int) else " ".join(dict.fromkeys(value or ())) or "none"


def _merged(parts: Sequence[Recorded]) -> Recorded:
    """Return all shards as one gate."""

    def united(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        return {name: value for mapping in mappings for name, value in mapping.items()}

    headers = [part.header for part in parts]
    by_case = ("labels", "exact", "memory", "notes", "uncompared", "returned", "sources")
    names = ("only_base", "only_head", "changed", "generated", "remarks")
    members: dict[str, Any] = {
        **{name: united(getattr(one, name) for one in headers) for name in by_case},
        **{name: tuple(dict.fromkeys(item for one in headers for item in getattr(one, name))) for name in names},
        "left_out": {side: united(one.left_out.get(side, {}) for one in headers) for side in (BASE, HEAD)},
        "torch": next(filter(None, (one.torch for one in headers)), ""),
        "resident": {},  # of the tests of a shard
        "qualified": "",
    }
    end = End(
        elapsed_s=max(part.end.elapsed_s for part in parts),
        reproducers=tuple(one for part in parts for one in part.end.reproducers),
    )
    whole = replace(headers[0], **members)
    return Recorded(parts[0].path, whole, [launch for part in parts for launch in part.launches], end, tuple(parts))


def is_judged(part: Recorded) -> bool:
    """Whether a shard has enough launches for a verdict about its tests."""
    return sum(launch.stage == 1 for launch in part.launches) >= LEAST_LAUNCHES


def not_measured(parts: Sequence[Recorded]) -> Iterator[Reason]:
    """Yield why tests of the shards of a gate were not measured, or not to the end."""
    by_number = {part.header.shard.number: part for part in parts}
    for shard in [replace(parts[0].header.shard, number=number) for number in range(1, parts[0].header.shard.of + 1)]:
        part = by_number.get(shard.number)
        if part is None and shard.own():
            yield Reason(MISSING, f"shard {shard} is missing, so {_named(shard)} not judged; run it, or add its file")
        elif part and not is_judged(part) and part.header.labels:
            why = part.end.cut_short or "it has too few launches"
            kind = BROKEN if part.end.broken_off or not part.end.cut_short else BUDGET
            yield Reason(kind, f"shard {shard}: {why}, so {_named(shard)} not judged")
        elif part and part.end.cut_short and part.header.labels:
            yield Reason(BROKEN if part.end.broken_off else BUDGET, f"shard {shard}: {part.end.cut_short}")


def _named(shard: Shard) -> str:
    """Return the number of tests of a shard, and some of them, with a verb."""
    tests = shard.own()
    shown = ", ".join(tests[:NAMED]) + (", ..." if len(tests) > NAMED else "")
    return f"1 test is ({shown})" if len(tests) == 1 else f"{len(tests)} tests are ({shown})"
