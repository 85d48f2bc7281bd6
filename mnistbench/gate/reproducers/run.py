"""Run a reproducer on both sides and compare what it shows with what the gate found. Does not import torch.

A launch starts the script in two processes, one for each side, on the same core (or cores, if the calls have threads). They
take turns: each measures while the other one waits for a line of input, so both see the same speed of the machine. Two
launches run at the same time, on different cores. The pairs of a launch give the median of log(head / base), the launches
their median.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from mnistbench.core import units
from mnistbench.core.child import measuring_environment
from mnistbench.core.errors import MnistbenchError, RecordError
from mnistbench.core.machine import own_cores
from mnistbench.gate.reproducers.script import Header, is_of_both_sides, read_header

#: Launches, and pairs of measurements in each. A measurement takes 0.3 s. Where the tensors of a process are in memory may
#: change its times by a third, so there are many launches.
LAUNCHES, PAIRS = 10, 5

#: Most launches at the same time, each with cores of its own, as many as the gate runs: what runs beside an operation takes a
#: part of the cache and of the memory's bandwidth.
MOST_AT_ONCE = 2

#: How far a change may be outside the gate's interval and still be the same, as a share: the script measures another process.
TOLERANCE = 0.05

_SIDES = BASE, HEAD = ("base", "head")


class ReproducerError(MnistbenchError):
    """A script ended without a result; the message gives the reason."""


@dataclass(frozen=True)
class SideOfRun:
    """How a script is run on one side."""

    python: str  # interpreter
    variables: Mapping[str, str] = field(default_factory=dict)  # environment variables of this side alone


@dataclass(frozen=True)
class Reproduced:
    """What a script shows. Changes are shares (0.05 is 5 % slower), of the calls or of their case."""

    changes: tuple[float, ...]  # of each launch
    base_s: float  # median over launches of the time of the calls, in seconds
    head_s: float

    @property
    def change(self) -> float:
        """The median over launches."""
        return math.expm1(statistics.median(map(math.log1p, self.changes)))


def measure(
    script: Path,
    sides: Mapping[str, SideOfRun],
    *,
    launches: int = LAUNCHES,
    pairs: int = PAIRS,
    threads: int = 1,
    case_ns: float = 0.0,
    seed: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    environ: Mapping[str, str] | None = None,
) -> Reproduced:
    """Run a script on both sides.

    Args:
        script: path of the script.
        sides: ``base`` and ``head``.
        launches: number of launches, at least 1.
        pairs: measurements of each side in a launch, at least 1.
        threads: of the calls; both processes share as many cores.
        case_ns: of the script's header; if it is not 0, changes are shares of it.
        seed: of the order of the sides; random if not given.
        progress: receives the number of finished launches and the total.
        environ: environment of the processes; that of this process if not given.

    Raises:
        ReproducerError: the script fails on a side.
    """
    coin = random.Random(seed)  # noqa: S311  # no secret
    changes: list[float] = []
    seconds: dict[str, list[float]] = {side: [] for side in _SIDES}
    cores = own_cores()
    at_once = max(1, min(MOST_AT_ONCE, len(cores) // threads))
    done = 0
    while done < launches:
        progress(done, launches)
        coin.shuffle(cores)
        with ThreadPoolExecutor() as pool:
            running = [
                pool.submit(
                    _launch, script, sides, pairs, cores[slot * threads : (slot + 1) * threads],
                    random.Random(coin.random()),  # noqa: S311  # no secret
                    os.environ if environ is None else environ,
                )
                for slot in range(min(at_once, launches - done))
            ]  # fmt: skip
        results = [one.result() for one in running]
        done += len(results)
        for found in results:
            changes.append(_change(list(zip(found[BASE], found[HEAD], strict=True)), case_ns))
            for side in _SIDES:
                seconds[side].append(statistics.median(found[side]))
    progress(launches, launches)
    base_s, head_s = (statistics.median(seconds[side]) for side in _SIDES)
    return Reproduced(tuple(changes), base_s, head_s)


def _change(pairs: Sequence[tuple[float, float]], case_ns: float) -> float:
    """Return the median over pairs of measurements, base and head, in seconds."""
    if case_ns:
        return statistics.median(1e9 * (head - base) / case_ns for base, head in pairs)
    return math.expm1(statistics.median(math.log(head / base) for base, head in pairs))


def is_reproduced(found: Reproduced, header: Header) -> bool:
    """Whether a script shows the change that the gate found: inside its interval, widened by TOLERANCE, and slower at all.

    If the change is a share of the case, it may be smaller than TOLERANCE, so the interval is widened by this share of the
    change.
    """
    tolerance = TOLERANCE * (abs(header.change) if header.case_ns else 1.0)
    return header.low - tolerance <= found.change <= header.high + tolerance and found.change > 0


def sentence(found: Reproduced, header: Header) -> str:
    """Return what a script shows, in one sentence."""
    change, gate = (units.percent(value, signed=True) for value in (found.change, header.change))
    interval = f"{units.percent(header.low, signed=True)} to {units.percent(header.high, signed=True)}"
    gate = f"the gate: {gate}, {interval}"
    change += " of the case" if header.case_ns else ""
    if is_reproduced(found, header):
        return f"reproduced: {change} ({gate})"
    if found.change < header.low:
        cause = "the cause is in its surroundings (layout of its input, allocator, cache)"
        return f"does not show by itself: {change} ({gate}); {cause}"
    return f"larger by itself: {change} ({gate}); the surroundings hide a part of it (cache, other operations of the program)"


# ---- Processes -------------------------------------------------------------------------------------------------------


def _launch(
    script: Path,
    sides: Mapping[str, SideOfRun],
    pairs: int,
    cores: Sequence[int],
    coin: random.Random,
    environ: Mapping[str, str],
) -> dict[str, list[float]]:
    """Return the seconds of each measurement by side, pair by pair."""
    seconds: dict[str, list[float]] = {side: [] for side in _SIDES}
    order = coin.sample(_SIDES, 2)
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        stack.enter_context(_on(cores))
        processes = {side: stack.enter_context(_process(script, side, sides[side], Path(folder), environ)) for side in order}
        for side in order:
            processes[side].seconds()  # the first one is not counted: memory is allocated, pages are touched
        for pair in range(pairs):
            order = order[::-1] if pair % 2 else coin.sample(_SIDES, 2)
            for side in order:
                seconds[side].append(processes[side].seconds())
    return seconds


@contextlib.contextmanager
def _on(cores: Sequence[int]) -> Iterator[None]:
    """Restrict this thread, whose child processes inherit it, to these cores while the body runs; to none if there are none."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class _Process:
    """A script that measures once for each line of its input."""

    def __init__(self, side: str, child: subprocess.Popen[str], log: IO[bytes]) -> None:
        self._side, self._child, self._log = side, child, log

    def seconds(self) -> float:
        """Let the script measure and return the seconds.

        Raises:
            ReproducerError: the script has ended.
        """
        assert self._child.stdin is not None, "a pipe"
        assert self._child.stdout is not None, "a pipe"
        with contextlib.suppress(OSError):  # it has ended, so there is no line
            self._child.stdin.write("\n")
            self._child.stdin.flush()
        for line in self._child.stdout:
            if line.startswith("{"):
                return _seconds(self._side, line)
        raise ReproducerError(f"{self._side}: the script failed: {self._why_ended()}")

    def _why_ended(self) -> str:
        code = self._child.wait()
        self._log.seek(0)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return lines[-1].strip() if lines else f"exit code {code}"


def _seconds(side: str, line: str) -> float:
    try:
        found: Any = json.loads(line)
        seconds = float(found["seconds"])
    except (ValueError, KeyError, TypeError):
        raise ReproducerError(f"{side}: the script printed {line.strip()[:60]!r} instead of its seconds") from None
    if not 0 < seconds < math.inf:
        raise ReproducerError(f"{side}: the script measured {seconds} s; its operation may not have run")
    return seconds


@contextlib.contextmanager
def _process(script: Path, side: str, how: SideOfRun, folder: Path, environ: Mapping[str, str]) -> Iterator[_Process]:
    """Start a script that takes turns; kill it at the end of the body."""
    variables = {**measuring_environment(environ, folder / "pycache"), **how.variables}
    with (folder / side).open("w+b") as log:
        command: Sequence[str] = [how.python, str(script), side, "--turns"]
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=variables,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            raise ReproducerError(f"{how.python}: cannot be started ({error.strerror}); name a Python interpreter") from None
        try:
            yield _Process(side, child, log)
        finally:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            for stream in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]


def read(script: Path) -> tuple[Header, bool]:
    """Return what a script says about its origin, and whether it has the arguments of both sides.

    Raises:
        RecordError: the file cannot be read, or is not a reproducer.
    """
    try:
        text = script.read_text(encoding="utf-8")
        return read_header(text), is_of_both_sides(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise RecordError(f"{script}: cannot be read ({reason})") from None
    except RecordError as error:
        raise RecordError(f"{script}: {error}") from None
