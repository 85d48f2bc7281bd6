"""What launches leave: raw samples, one JSON line a launch, and the differences between the sides that they mean.

The file is gzipped lines (``.jsonl.gz``), each written as soon as its launch has ended: a crash loses nothing that was
measured, and what lists saved runs does not take it for one. The first line is the header.
"""

from __future__ import annotations

import functools
import gzip
import json
import math
import statistics
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mnistbench.errors import RecordError, UsageError
from mnistbench.reader import Reader
from mnistbench.record import OUTSIDE, median_ns

#: Version of the file. 1 (0.1.0): the first.
SCHEMA = 1

BASE, NEW = "base", "head"

WALL, CPU, DEVICE = "wall", "cpu", "device"
_CLOCK_TITLES = {WALL: "wall time", CPU: "CPU time", DEVICE: "device time"}

#: (operation, phase, module)
OpKey = tuple[str, str, str]

#: Operations that are a smaller share of their case than this, on both sides, are held together.
MIN_SHARE = 0.02

OTHER, OUTSIDE_NAME = "other", "outside operations"


class Operation(NamedTuple):
    """One operation of one side in one build."""

    self_ns: tuple[int, ...]  # of each profiled iteration
    calls: float
    memory_bytes: int
    kernels: tuple[str, ...]


class SideSample(NamedTuple):
    """One side of a case in one build."""

    times: Mapping[str, tuple[int, ...]]  # by clock: of each untraced call, ns; the nth calls of both sides are a pair
    outcome: tuple[str, float]  # hash of what was computed, and a number of it
    parameters: int
    operations: Mapping[OpKey, Operation]


@dataclass(frozen=True)
class Launch:
    """One twin launch, or one pair of split ones."""

    stage: int  # 1: all cases. 2: candidates measured again
    cases: Mapping[str, Sequence[Mapping[str, SideSample]]]  # node id -> builds -> side -> sample
    control: float  # log(head / base) of the control
    seconds: float


@dataclass(frozen=True)
class Effect:
    """A quantity that both sides have: a case by a clock, or operations of it."""

    case: str  # node id
    kind: str  # call, operation, replaced, outside or other
    name: str  # of a call its clock; else the operation
    clock: str
    members: tuple[OpKey, ...]  # what it sums; none for a call
    logs: tuple[float, ...]  # per launch: :func:`difference`, mean over builds; NaN where a time is not usable
    base_ns: float  # median over launches
    new_ns: float
    share: float  # of its case on the base's side; 1 for the call

    @property
    def title(self) -> str:
        """What people call it, without its case."""
        return _CLOCK_TITLES[self.clock] if self.kind == "call" else self.name

    @property
    def key(self) -> tuple[str, str, str]:
        """What the same quantity has in other launches."""
        return (self.case, self.kind, self.name)


# ---- Effects ---------------------------------------------------------------------------------------------------------


#: What is held of a case: (kind, name, the operations that it sums).
Group = tuple[str, str, Sequence[OpKey]]


def effects(launches: Sequence[Launch], held: Mapping[str, Sequence[Group]] | None = None) -> list[Effect]:
    """Return every quantity of the cases that all these launches have.

    Args:
        launches: of one stage, or of both.
        held: what each case's operations are grouped into, as :func:`groups` gives it; of these launches if not given.
    """
    if not launches:
        return []
    found: list[Effect] = []
    for case in launches[0].cases:
        if all(case in launch.cases for launch in launches):
            builds = [launch.cases[case] for launch in launches]
            found += _calls(case, builds)
            found += _operations(case, builds, held[case] if held and case in held else groups(builds))
    return found


def _calls(case: str, launches: Sequence[Sequence[Mapping[str, SideSample]]]) -> Iterable[Effect]:
    for clock in (WALL, CPU, DEVICE):
        if all(clock in side.times for builds in launches for build in builds for side in build.values()):
            yield _effect(case, "call", clock, clock, (), launches, functools.partial(_times_by, clock))


def _times_by(clock: str, side: SideSample) -> Sequence[int]:
    return side.times[clock]


def groups(launches: Sequence[Sequence[Mapping[str, SideSample]]]) -> list[Group]:
    """Say what is held: operations that matter one by one, places where operations came or went, and the rest.

    Which side is which does not enter: the choice must not favour one.
    """
    sides = [side for builds in launches for build in builds for side in build.values()]
    if not all(side.operations for side in sides):
        return []
    everywhere = set.intersection(*(set(side.operations) for side in sides))
    ever = set().union(*(side.operations for side in sides))
    found: list[Group] = []
    places: dict[tuple[str, str], list[OpKey]] = defaultdict(list)
    changed = {(key[1], key[2]) for key in ever - everywhere if key[0] != OUTSIDE}
    rest: list[OpKey] = []
    for key in sorted(ever):
        if (key[1], key[2]) in changed and key[0] != OUTSIDE:
            places[key[1], key[2]].append(key)
        if key[0] == OUTSIDE or key not in everywhere:
            continue
        if _share(key, sides) >= MIN_SHARE:
            found.append(("operation", operation_text(*key), (key,)))
        else:
            rest.append(key)
    for (phase, module), keys in sorted(places.items()):
        found.append(("replaced", f"all operations, {f'{phase} {module}'.strip() or 'no module'}", tuple(keys)))
    outside = tuple(sorted(key for key in ever if key[0] == OUTSIDE))
    if outside:
        found.append(("outside", OUTSIDE_NAME, outside))
    if rest:
        found.append(("other", OTHER, tuple(rest)))
    return found


def operation_text(name: str, phase: str, module: str) -> str:
    """Return how a person calls an operation: ``aten::mm, backward fc1``."""
    place = f"{phase} {module}".strip()
    return name.removeprefix("autograd::engine::") + (f", {place}" if place else "")


def _share(key: OpKey, sides: Sequence[SideSample]) -> float:
    """Return the largest share that the operation has on either side, by sums over all launches."""
    return max(_share_of(key, sides[0::2]), _share_of(key, sides[1::2]))


def _share_of(key: OpKey, sides: Sequence[SideSample]) -> float:
    whole = sum(sum(operation.self_ns) for side in sides for operation in side.operations.values())
    return sum(sum(side.operations[key].self_ns) for side in sides) / whole if whole else 0.0


def _operations(case: str, launches: Sequence[Sequence[Mapping[str, SideSample]]], held: Sequence[Group]) -> Iterable[Effect]:
    for kind, name, keys in held:
        yield _effect(case, kind, name, "", tuple(keys), launches, functools.partial(_times_of, keys))


def _times_of(keys: Sequence[OpKey], side: SideSample) -> Sequence[int]:
    """Sum operations iteration by iteration."""
    return list(map(sum, zip(*(side.operations[key].self_ns for key in keys if key in side.operations), strict=True)))


def _effect(
    case: str,
    kind: str,
    name: str,
    clock: str,
    members: tuple[OpKey, ...],
    launches: Sequence[Sequence[Mapping[str, SideSample]]],
    times: Callable[[SideSample], Sequence[int]],
) -> Effect:
    def typical(side: str) -> float:
        return statistics.median(median_ns(times(build[side])) for builds in launches for build in builds)

    whole = [
        sum(median_ns(operation.self_ns) for operation in build[BASE].operations.values())
        for builds in launches
        for build in builds
    ]
    base_ns = typical(BASE)
    return Effect(
        case=case,
        kind=kind,
        name=name,
        clock=clock,
        members=members,
        logs=tuple(
            statistics.fmean(difference(times(build[BASE]), times(build[NEW])) for build in builds) for builds in launches
        ),
        base_ns=base_ns,
        new_ns=typical(NEW),
        share=1.0 if kind == "call" else base_ns / (statistics.median(whole) or 1.0),
    )


def difference(base: Sequence[int], new: Sequence[int]) -> float:
    """Return the median over pairs of log(new / base); NaN where a time is 0 or there is no pair.

    The two calls of a pair are neighbours in time. A shared machine changes its speed by up to a factor of two for
    seconds at a time; both calls of most pairs see the same speed, and the median passes over the others.
    """
    pairs = list(zip(base, new, strict=False))
    if not pairs or any(time <= 0 for pair in pairs for time in pair):
        return math.nan
    return statistics.median(math.log(later / earlier) for earlier, later in pairs)


# ---- The file --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class End:
    """How a run ended; a file's last line."""

    cut_short: str = ""  # why not all was measured
    broken_off: bool = False  # by a fault or a user, not by a budget
    elapsed_s: float = 0.0  # wall time of the whole run; 0 in files that do not say

    def line(self) -> dict[str, Any]:
        """Return what the file holds."""
        return {"end": {"cut_short": self.cut_short, "broken_off": self.broken_off, "elapsed_s": self.elapsed_s}}


#: All was measured.
COMPLETE = End()
#: Of a file without a last line: whoever measured was killed.
NO_END = End("the run that was measured did not come to its end; measure again", broken_off=True)


@dataclass(frozen=True)
class Recorded:
    """What a file holds."""

    header: Mapping[str, Any]
    launches: list[Launch]
    end: End


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line; each is a gzip member of its own, so that a torn end costs only the last.

    Raises:
        UsageError: it cannot be written.
    """
    text = json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            stream.write(gzip.compress(text.encode(), mtime=0))
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); make room, or start where it can be") from None


def load(path: Path) -> Recorded:
    """Return what a file holds; what a crash tore off at its end is left out.

    Raises:
        RecordError: it is not such a file, or a line of it is spoiled.
    """
    lines = _lines(path)
    if not lines:
        raise RecordError(f"{path}: is empty; name a file that mnistbench gate has written")
    try:
        header = Reader(_parsed(lines[0]))
        _check_schema(header["schema"].whole())
        read = [Reader(_parsed(line)) for line in lines[1:]]
        end = _end(read.pop()) if read and isinstance(read[-1].value, dict) and "end" in read[-1].value else NO_END
        return Recorded(
            {name: item.value for name, item in header.mapping().items()}, [read_launch(line) for line in read], end
        )
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None


def _end(line: Reader) -> End:
    end = line["end"]
    elapsed_s = end["elapsed_s"].number() if "elapsed_s" in end.mapping() else 0.0
    return End(end["cut_short"].text(), end["broken_off"].flag(), elapsed_s)


def _check_schema(schema: int) -> None:
    if schema != SCHEMA:
        raise RecordError(f"schema: {schema} is not known to this version, which reads {SCHEMA}; update mnistbench")


_NO_FILE_OF_OURS = "is not gzip; name a file that mnistbench gate has written"


def _lines(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None
    text = b""
    while data:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            part = member.decompress(data)
        except zlib.error:
            whole = len(text.splitlines())
            what = f"is spoiled after {whole} lines; measure again" if whole else _NO_FILE_OF_OURS
            raise RecordError(f"{path}: {what}") from None
        if not member.eof:
            break  # a torn end
        text += part
        data = member.unused_data
    try:
        return text.decode().splitlines()
    except UnicodeDecodeError:
        raise RecordError(f"{path}: is not text") from None


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise RecordError("has a line that is not JSON") from None


def read_launch(line: Reader) -> Launch:
    """Check and digest what a launch said.

    Raises:
        RecordError: names the field.
    """
    return Launch(
        stage=_stage(line["stage"]),
        cases={name: [_build(build) for build in _some(builds)] for name, builds in line["cases"].mapping().items()},
        control=_control(line["control"].items()),
        seconds=line["seconds"].number(),
    )


def _stage(stage: Reader) -> int:
    if stage.whole() not in (1, 2):
        raise stage.wrong("1 or 2")
    return stage.whole()


def _some(builds: Reader) -> list[Reader]:
    if not builds.items():
        raise builds.wrong("a build or more")
    return builds.items()


def _control(builds: Sequence[Reader]) -> float:
    logs = [difference(build[BASE].all_nanoseconds(), build[NEW].all_nanoseconds()) for build in builds]
    return statistics.fmean(logs) if logs else math.nan


def _build(build: Reader) -> dict[str, SideSample]:
    return {side: _side(build["sides"][side]) for side in (BASE, NEW)}


def _side(side: Reader) -> SideSample:
    outcome = side["outcome"].items()
    if len(outcome) != 2:
        raise side["outcome"].wrong("a hash and a number")
    return SideSample(
        times={clock: side[f"{clock}_ns"].all_nanoseconds() for clock in (WALL, CPU, DEVICE) if side[f"{clock}_ns"].items()},
        outcome=(outcome[0].text(), outcome[1].number_or_none() or 0.0),
        parameters=side["parameters"].whole(),
        operations=dict(_rows(side)) if "keys" in side.mapping() else {},
    )


def _rows(side: Reader) -> Iterable[tuple[OpKey, Operation]]:
    columns = [side[name].items() for name in ("keys", "self_ns", "calls", "memory_bytes", "kernels")]
    if len(set(map(len, columns))) != 1:
        raise RecordError(f"{side.path}: has columns of different length")
    iterations = {len(times.items()) for times in columns[1]}
    for key, times, calls, memory, kernels in zip(*columns, strict=True):
        if len(iterations) > 1 and len(times.items()) != max(iterations):
            raise times.wrong(f"{max(iterations)} times")
        name, phase, module = _three(key)
        yield (name, phase, module), Operation(times.all_nanoseconds(), calls.number(), memory.whole(), kernels.texts())


def _three(key: Reader) -> tuple[str, str, str]:
    texts = key.texts()
    if len(texts) != 3:
        raise key.wrong("an operation, its phase and its module")
    return texts[0], texts[1], texts[2]
