"""Raw samples of trials, and the file that they are saved in, one JSON line per trial.

The file consists of gzipped lines, each written at the end of its trial, so a crash loses no
earlier trial. Its name keeps it out of the list of saved runs. The first line is
the header.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from mnistbench import __version__
from mnistbench.core import units
from mnistbench.core.compiled.compilation import Compilation
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import CutOffError, DamagedError, Limit, compressed_parts
from mnistbench.core.operation import OpKey
from mnistbench.core.reading import (
    FieldError,
    Nanoseconds,
    Positive,
    check_memory,
    member,
    read,
    read_text,
    wrong,
)
from mnistbench.gate.listing import Listings, Reach
from mnistbench.gate.samples.case_names import CaseNames
from mnistbench.gate.samples.case_profile import CaseProfile
from mnistbench.gate.words import BASE, BUSY, CPU, DEVICE, HEAD, WALL

#: Version of the file. 2: the header has the listings of both sides. 1 was never released.
SCHEMA = 2
#: How the names of files end.
ENDING = ".jsonl.gz"
_Times = tuple[Nanoseconds, ...]
_Outcome = tuple[str, float | None]  # hash, and a number; None: not finite

#: Stage of the trials of all cases.
FIRST_STAGE = 1
#: Stage of the trials that measure flagged cases again.
FRESH_STAGE = 2


class Operation(NamedTuple):
    """One operation of one side in one build."""

    self_ns: _Times  # one sample per profiled iteration
    calls: float
    memory_bytes: int
    kernels: tuple[str, ...]
    varying: tuple[str, ...] = ()  # which counts are averages: operation.CALLS, operation.BYTES


@dataclass(frozen=True)
class SideSample:
    """One side of a case in one build: the columns that its process sends and the file has.

    The nth times of both sides are a pair.
    """

    wall_ns: _Times  # of each untraced iteration; each clock may be missing
    cpu_ns: _Times
    device_ns: _Times  # between two events on an accelerator
    outcome: _Outcome
    parameters: int
    queued_ns: _Times = ()  # of wall_ns: another process had the core; empty if it is not known
    # CPU time of an iteration in each block, which both sides run at once on one core; empty if
    # they cannot.
    block_ns: _Times = ()
    busy_ns: _Times = ()  # of one call in each profiled iteration
    loops: int = 1  # calls in an iteration
    by_share: bool = True  # operations are compared by their share of the iteration as well
    iterations: int = 0  # untraced ones, with those of blocks
    # The table of operations, a row for each key; empty if nothing was profiled.
    keys: tuple[OpKey, ...] = ()
    self_ns: tuple[_Times, ...] = ()
    calls: tuple[float, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    kernels: tuple[tuple[str, ...], ...] = ()
    varying: tuple[tuple[str, ...], ...] = ()  # may be missing
    compilation: Compilation | None = None  # what torch.compile made of it; None: nothing

    def __post_init__(self) -> None:
        """Check that columns have equal lengths.

        Raises:
            FieldError: names the column.
        """
        if not self.varying:
            object.__setattr__(self, "varying", ((),) * len(self.keys))
        for name in ("queued_ns", *(("cpu_ns",) if self.block_ns else ())):
            column = getattr(self, name)
            if column and len(column) != len(self.wall_ns):
                raise wrong(list(column), f"{len(self.wall_ns)} times", name)
        columns = (self.self_ns, self.calls, self.memory_bytes, self.kernels, self.varying)
        if {len(self.keys)} != set(map(len, columns)):
            raise FieldError("has columns of different length")
        iterations = max(map(len, self.self_ns), default=0)
        for position, times in enumerate(self.self_ns):
            if len(times) != iterations:
                raise wrong(list(times), f"{iterations} times", f"self_ns[{position}]")

    @functools.cached_property
    def times(self) -> dict[str, tuple[float, ...]]:
        """Clock -> times of one call, ns: the mean of an iteration.

        Wall times are without the time in which another process had the core.
        """
        columns = {WALL: self.wall_ns, CPU: self.cpu_ns, DEVICE: self.device_ns}
        if self.queued_ns:
            columns[WALL] = _without_queue(self.wall_ns, self.queued_ns, self.cpu_ns)
        times = {clock: self._of_one_call(column) for clock, column in columns.items() if column}
        return times | ({BUSY: self.busy_ns} if self.busy_ns else {})

    @functools.cached_property
    def block_times(self) -> tuple[float, ...]:
        """CPU times of one call in blocks, ns; empty if they do not count."""
        return self._of_one_call(self.block_ns) if self.cpu_ns else ()

    @functools.cached_property
    def operations(self) -> dict[OpKey, Operation]:
        """The rows of the table of operations."""
        columns = (self.self_ns, self.calls, self.memory_bytes, self.kernels, self.varying)
        return dict(zip(self.keys, map(Operation, *columns), strict=True))

    @property
    def queued(self) -> float:
        """Share of the wall time in which another process had the core."""
        return sum(self.queued_ns) / max(1, sum(self.wall_ns))

    @property
    def untraced_calls(self) -> int:
        """Number of calls in all untraced iterations."""
        return self.iterations * self.loops

    def _of_one_call(self, column: _Times) -> tuple[float, ...]:
        return tuple(ns / self.loops for ns in column) if self.loops > 1 else column


@dataclass(frozen=True)
class _SavedBuild:
    """A build of a case as a file has it."""

    base: SideSample
    head: SideSample


_SavedBuilds = Annotated[tuple[_SavedBuild, ...], Meta(min_length=1)]


def _without_queue(wall_ns: _Times, queued_ns: _Times, cpu_ns: _Times) -> _Times:
    """Return wall times without the time in which another process had the core.

    That time is longer than wall time minus CPU time if the process lost its core between the
    readings of the queue and of the clock.
    """
    computed_ns = cpu_ns if len(cpu_ns) == len(wall_ns) else (0,) * len(wall_ns)
    return tuple(
        wall - min(queued, max(0, wall - computed))
        for wall, queued, computed in zip(wall_ns, queued_ns, computed_ns, strict=True)
    )


#: One build of a case: side -> sample.
Build = Mapping[str, SideSample]


@dataclass(frozen=True)
class Trial:
    """One trial: a process for each side, which take turns."""

    stage: Literal[1, 2]  # FIRST_STAGE or FRESH_STAGE
    cases: Mapping[str, Sequence[Build]]  # node id -> builds -> side -> sample
    seconds: float
    # Side -> name of a cost -> node id or ALL_CASES -> CPU time in ns; of RESIDENT bytes.
    once: Mapping[str, Mapping[str, Mapping[str, Nanoseconds]]] = field(default_factory=dict)
    # Node id of a missing case -> why.
    unmeasurable: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Trial:
        """Return the trial of a line of a file.

        Raises:
            FieldError: names the field that is missing or wrong.
        """
        cases = {
            node_id: [
                {BASE: build.base, HEAD: build.head}
                for build in read(builds, _SavedBuilds, f"cases.{node_id}")
            ]
            for node_id, builds in member(line, "cases", Mapping[str, Any]).items()
        }
        return replace(read({**line, "cases": {}}, cls), cases=cases)


@dataclass(frozen=True)
class Shard:
    """One of the parts into which several machines divide a gate.

    The other fields identify the whole gate.
    """

    number: Positive
    of: Positive
    # Node ids of all tests that either side has, sorted.
    tests: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the value of ``--shard``."""
        return f"{self.number}/{self.of}"

    @property
    def prefix(self) -> str:
        """Start of the names of its files; empty for a whole gate."""
        return f"shard-{self.number}-of-{self.of}_" if self.of > 1 else ""

    def own(self) -> list[str]:
        """Return its tests.

        Tests are dealt out in turn, function by function, and the cases of a function in the order
        of a hash of their node ids. Every machine computes the same, and sizes differ by one at
        most. A change usually reaches all cases of a function, so each shard has as many reached
        cases as any other, without a survey of the cases of the others. In the order of their
        names, all large parameters of a function would often be those of one shard.
        """

        def turn(test: str) -> tuple[str, bytes, str]:
            function, _, _ = test.partition("[")
            return function, hashlib.sha256(test.encode()).digest(), test

        dealt = sorted(self.tests, key=turn)
        return sorted(dealt[self.number - 1 :: self.of])


WHOLE = Shard(1, 1)


#: Most parts of a gate whose tests are not known.
_MAX_SHARDS = 1_000


@dataclass(frozen=True, kw_only=True)
class GateHeader:
    """The first line of a file."""

    started: str  # UTC, ISO 8601
    base: str  # what is compared, as reports name it
    head: str
    arguments: tuple[str, ...]  # for pytest
    seed: Nanoseconds  # at least 0
    sides: Listings
    # Side -> environment variables of it alone.
    variables: Mapping[str, Mapping[str, str]]
    # Of the files of tests, fixtures and data (``ListedCase.sources``) those that differ between
    # the sides.
    differing: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()  # files that git ignores, copied to the sides
    carried: tuple[str, ...] = ()  # files of the head's benchmarks that measure the base, too
    remarks: tuple[str, ...] = ()  # what a reader has to know of the sides
    machine: str = ""  # processor and number of cores
    shard: Shard = WHOLE
    reach: Reach = field(default_factory=Reach)
    # The interpreter of the sides without one of their own, and how it was found; empty if it is
    # that of the gate, as expected.
    interpreter: str = ""
    base_rule: str = ""  # why the base was chosen; empty if it was given
    # Field of ``options.Thresholds`` -> share, or a time in ns: what the gate was judged by. Those
    # that are 0 are left out.
    thresholds: Mapping[str, Annotated[float, Meta(gt=0)]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that each shard has a test.

        Raises:
            ValueError: there are more shards than tests.
        """
        if self.shard.of > (len(self.shard.tests) or _MAX_SHARDS):
            raise ValueError(f"shard {self.shard} is one of more parts than there are tests")

    @property
    def labels(self) -> Mapping[str, str]:
        """Node id -> label of the case, for the cases that are measured."""
        return self.sides.labels

    @property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """Node id -> files of the test, its fixtures and its data that differ."""
        return self.sides.sources(self.differing)

    @functools.cached_property
    def names(self) -> CaseNames:
        """The names of the cases in reports."""
        sides = self.sides
        labels = {**self.reach.same, **sides.labels}
        others = {*sides.base.cases, *sides.head.cases, *sides.unmeasurable} - labels.keys()
        return CaseNames.of(labels, others)

    def line(self) -> dict[str, Any]:
        """Return the line of the file."""
        return {"schema": SCHEMA, "mnistbench": __version__, **asdict(self)}


@dataclass(frozen=True)
class Reproducer:
    """The script of an operation that was found slower, or why there is none."""

    key: tuple[str, str, str]  # case (a node id), kind and name of its quantity
    script: str  # path; empty if there is none
    why_not: str


@dataclass(frozen=True)
class End:
    """How a run ended: the last line of a file."""

    cut_short: str = ""  # why the run is incomplete; empty for a complete run
    broken_off: bool = False  # by an error or a user, not by a time limit
    # Only the end could not be saved, after everything was measured; so it is in no file.
    is_unsaved: bool = False
    elapsed_s: float = 0.0  # from start to finish, in seconds
    # Node ids of cases that were left out, because the budget did not allow to measure them.
    left_out: tuple[str, ...] = ()
    # A budget that is expected to be enough for all trials, in seconds; 0 if there was none.
    sufficient_s: float = 0.0
    # What most of it went to -> seconds.
    parts_s: Mapping[str, float] = field(default_factory=dict)
    # Of the operations that were found slower.
    reproducers: tuple[Reproducer, ...] = ()
    # Node id of a case that was found slower or faster -> its call paths.
    profiles: Mapping[str, CaseProfile] = field(default_factory=dict)

    def line(self) -> dict[str, Any]:
        """Return the line of the file."""
        fields = asdict(self)
        del fields["is_unsaved"]
        return {"end": fields}


#: Why a case is left out for which the budget leaves no time.
OUT_OF_BUDGET = "the budget leaves no time for it"

#: The end of a complete run.
COMPLETE = End()

#: The end of a run that the user stopped.
INTERRUPTED = End("interrupted", broken_off=True)

#: The end of a file without a last line: the process was killed.
NO_END = End("the run that was measured did not come to its end; measure again", broken_off=True)


@dataclass
class Recorded:
    """The samples of a gate, and how the measurement ended: the content of a file."""

    path: Path
    header: GateHeader
    trials: list[Trial]
    end: End = COMPLETE
    # Of a gate whose parts were measured by several machines; the rest is of all together.
    shards: tuple[Recorded, ...] = ()

    @property
    def left_out(self) -> tuple[str, ...]:
        """Node ids of the cases for which the budget left no time, of all shards."""
        return tuple(case for part in self.shards or (self,) for case in part.end.left_out)

    @property
    def sufficient_s(self) -> float:
        """A budget that is expected to be enough for each shard, in seconds; 0 without one."""
        return max(part.end.sufficient_s for part in self.shards or (self,))

    @property
    def seconds(self) -> float:
        """Duration of all trials."""
        return sum(trial.seconds for trial in self.trials)

    @property
    def unmeasurable(self) -> dict[str, str]:
        """Node id -> why the case cannot be measured.

        The surveys have found it, some trials did not find the case again, or the budget left no
        time for it.
        """
        return {
            **self.header.sides.unmeasurable,
            **dict.fromkeys(self.left_out, OUT_OF_BUDGET),
            **{case: why for trial in self.trials for case, why in trial.unmeasurable.items()},
        }

    @property
    def are_all_new(self) -> bool:
        """Whether the base has no case, so that there is nothing to compare.

        The base may have cases of a shard that is not here.
        """
        header = self.header
        is_whole = len(self.shards or (self,)) == header.shard.of
        # A gate without shards ends before it writes a file if the base has only cases that cannot
        # be measured.
        has_unmeasurable = bool(self.shards and self.unmeasurable)
        sides = header.sides
        has_same = bool(header.reach.same)
        concerns_base = (
            sides.labels or sides.only_base or sides.changed or has_unmeasurable or has_same
        )
        return bool(is_whole and sides.only_head and not concerns_base)

    def number_of_trials(self, stage: int) -> int:
        """Return how many trials of a stage there are."""
        return sum(trial.stage == stage for trial in self.trials)

    def measurable(self) -> Recorded:
        """Return the samples of the other cases."""
        left_out = self.unmeasurable.keys()
        header = replace(self.header, sides=self.header.sides.without(left_out))
        trials = [
            replace(
                trial,
                cases={
                    case: builds for case, builds in trial.cases.items() if case not in left_out
                },
            )
            for trial in self.trials
        ]
        shards = tuple(shard.measurable() for shard in self.shards)
        return replace(self, header=header, trials=trials, shards=shards)


class NotSavedError(UsageError):
    """Samples cannot be written."""


def create(path: Path, line: Mapping[str, Any]) -> None:
    """Create a file with its first line, in a folder that exists.

    Raises:
        FileExistsError: there is one.
        NotSavedError: it cannot be written.
    """
    header = _member(line)
    try:
        with path.open("xb") as stream:
            stream.write(header)
    except FileExistsError:
        raise
    except OSError as error:
        raise _not_saved(path, error) from None


def create_in(storage: Path, prefix: str, header: GateHeader) -> Path:
    """Create a file with this header, which no other gate has, and return its path.

    Raises:
        NotSavedError: it cannot be written.
        UsageError: there are 100 files of this second.
    """
    folder = storage / "gate"
    with suppress(OSError):  # the file cannot be created then, which says why
        folder.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%d_%H%M%S")
    for number in range(100):
        path = folder / f"{prefix}{stamp}{f'_{number}' if number else ''}{ENDING}"
        with suppress(FileExistsError):
            create(path, header.line())
            return path
    raise UsageError(f"{folder}: has 100 files of this second; run the gate again")


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line to a file that was created. If it cannot be written, nothing of it is left.

    Raises:
        NotSavedError: it cannot be written, or the file was removed.
    """
    added = _member(line)
    try:
        size = path.stat().st_size
        try:
            with path.open("r+b") as stream:  # "ab" would create a file without a header
                stream.seek(size)
                stream.write(added)
        except OSError:
            os.truncate(path, size)
            raise
    except OSError as error:
        raise _not_saved(path, error) from None


def _member(line: Mapping[str, Any]) -> bytes:
    """Return a line as a gzip member of its own, so that a truncated file lacks only the last."""
    text = json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n"
    return gzip.compress(text.encode(), mtime=0)


def _not_saved(path: Path, error: OSError) -> NotSavedError:
    return NotSavedError(
        f"{path}: cannot be written ({error.strerror}); free some space, or give another --storage"
    )


def load(path: Path) -> Recorded:
    """Read a file; an incomplete last line is left out.

    Raises:
        RecordError: the file is not one of :func:`append`, or a line is damaged.
    """
    lines = _lines(path)
    try:
        first, *rest = [
            read_text(line, Mapping[str, Any], f"line {number}")
            for number, line in enumerate(lines, 1)
        ]
        if (schema := member(first, "schema", int)) != SCHEMA:
            raise RecordError(  # noqa: TRY301
                f"schema: {schema} is not known to this version, which reads {SCHEMA}; update "
                "mnistbench"
            )
        header = read(first, GateHeader)
        end = NO_END
        if rest and "end" in rest[-1]:
            end = member(rest.pop(), "end", End)
        trials = [Trial.from_line(line) for line in rest]
        if unknown := [
            case for trial in trials for case in trial.cases if case not in header.labels
        ]:
            raise RecordError(f"a trial has a case that the header does not name: {unknown[0]}")  # noqa: TRY301
        return Recorded(path, header, trials, end)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None


def _lines(path: Path) -> list[str]:
    parts: list[bytes] = []
    try:
        parts.extend(compressed_parts(path, _RAW_SAMPLES))
    except CutOffError:
        pass  # the last line is incomplete
    except DamagedError:
        fault = (
            f"is spoiled after {units.counted(len(parts), 'line')}; measure again"
            if parts
            else f"is not gzip; {_NAME_ONE}"
        )
        raise RecordError(f"{path}: {fault}") from None
    text = b"".join(parts)
    check_memory(text, str(path))
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError:
        raise RecordError(f"{path}: is not text") from None
    if not lines:
        raise RecordError(f"{path}: is empty; {_NAME_ONE}")
    return lines


_NAME_ONE = "name a file that mnistbench gate has written"

#: An estimate from the number of times: a gate of 1,000 cases with 60 trials has some 200 MiB.
_RAW_SAMPLES = Limit(1024**3, "raw samples", "measure fewer cases in a gate, in shards")
