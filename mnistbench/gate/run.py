"""Run a gate: copy both trees, run the launches of the first stage, then fresh launches of the flagged cases.

Every launch is appended to a file of raw samples. Tests replace the functions that start launches and read the clock.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mnistbench import __version__
from mnistbench.core.document import Reader
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.machine import TOUCHED_BYTES, allocator_settings, available_bytes, own_cores
from mnistbench.gate import snapshot
from mnistbench.gate.launcher import (
    Default,
    LaunchError,
    Launching,
    Listing,
    Plan,
    capture,
    environment,
    launching,
    stage_home,
    survey,
)
from mnistbench.gate.reproducers.write import slower_operations
from mnistbench.gate.reproducers.write import write as write_reproducers
from mnistbench.gate.verdict import samples
from mnistbench.gate.verdict.decision import LEAST_LAUNCHES, LOOKS, Thresholds, candidates, decide, is_settled, least_fresh
from mnistbench.gate.verdict.samples import BASE, COMPLETE, HEAD, INTERRUPTED, End, Launch, Reproducer

#: Launches of the first stage (docs/evidence/gate_power.py). The numbers of fresh launches are decision.LOOKS.
LAUNCHES = 10

#: Most launches at the same time, each with a core of its own for each thread. More have not been measured.
MOST_AT_ONCE = 2

#: Share of the budget for the first stage; the rest is reserved for fresh launches.
FIRST_SHARE = 0.6

#: Measured by default: the step cases of this folder.
DEFAULT_FOLDER, DEFAULT_PHASE = "bench", "step"

Survey = Callable[[Plan, int, Default, Path], tuple[Plan, dict[str, Listing]]]
Wanted = Mapping[str, Sequence[Mapping[str, Any]]]
Describe = Callable[[Plan, int, Wanted, Path, Path], dict[str, Mapping[str, Any]]]
Start = Callable[[Plan, int, "Sequence[str] | None", Path, "Sequence[int]"], AbstractContextManager[Launching]]


@dataclass(frozen=True)
class Request:
    """The options of a gate that measures."""

    base: str = ""  # a revision; neither this nor base_dir: the base is the working tree as well
    base_dir: str = ""  # a checkout, instead of a revision
    base_python: str = ""
    head_python: str = ""
    base_variables: Mapping[str, str] = field(default_factory=dict)  # environment variables
    head_variables: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()  # for pytest
    only: tuple[str, ...] = ()  # node ids of the cases to measure; all that the arguments select if empty
    launches: int = LAUNCHES
    budget_s: float = math.inf
    thresholds: Thresholds = field(default_factory=Thresholds)
    storage: Path = Path(".benchmarks")
    reproducers: Path | None = None  # folder for scripts of slower operations; None: beside the raw samples, with their name


@dataclass
class Measured:
    """The samples of a gate, and how the measurement ended."""

    path: Path  # of the file of raw samples
    header: Mapping[str, Any]
    launches: list[Launch]
    end: End = COMPLETE


class Progress:
    """Receives the progress of a gate; this base class ignores it."""

    def say(self, text: str) -> None:
        """Receive a sentence."""

    def launch(self, done: int, of: int, seconds_left: float) -> None:
        """Receive the number of finished launches, the total, and the estimated remaining seconds (0: unknown)."""


def measure(
    request: Request,
    progress: Progress,
    *,
    here: Path | None = None,
    look: Survey | None = None,
    start: Start | None = None,
    describe: Describe | None = None,
    now: Callable[[], float] = time.monotonic,
    seed: int | None = None,
) -> Measured:
    """Measure both sides and return all samples, which are also written to the file.

    Args:
        request: the options.
        progress: receives each step.
        here: the user's directory.
        look: surveys each side; in a process if not given.
        start: starts a launch; in a process if not given.
        describe: describes the calls of slower operations on both sides; in processes if not given.
        now: a clock, in seconds.
        seed: of all random decisions; random if not given.

    Raises:
        UsageError: an option cannot be used.
        LaunchError: a side cannot be measured.
    """
    here = (here or Path.cwd()).resolve()
    seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    began = now()
    with snapshot.scratch() as folder, _terminable():
        plan = _plan(request, here, folder)
        gate = _Gate(
            request, plan, folder / "log", progress, look or survey, start or launching, describe or capture, now, seed, began
        )
        return gate.run(here)


def check_base_and_storage(request: Request) -> None:
    """Check what can be checked before environments are made: the base, and the folder of raw samples.

    Raises:
        UsageError: there is no such revision or folder, or raw samples cannot be written.
    """
    if request.base_dir:
        _base_dir(request)
    elif request.base:
        snapshot.commit_of(Path.cwd().resolve(), request.base)
    _new_file(request.storage)


def _base_dir(request: Request) -> Path:
    folder = Path(request.base_dir).resolve()
    if not folder.is_dir():
        raise UsageError(f"--base-dir: {request.base_dir!r} is not a folder; name a checkout of the base")
    return folder


def _plan(request: Request, here: Path, folder: Path) -> Plan:
    if request.base_dir:
        base = snapshot.of_working_tree(_base_dir(request), folder / BASE, request.base_dir)
    elif request.base:
        base = snapshot.of_revision(here, request.base, folder / BASE)
    else:
        base = snapshot.of_working_tree(here, folder / BASE)
    new = snapshot.of_working_tree(here, folder / HEAD)
    return Plan(
        trees={BASE: base, HEAD: new},
        pythons={BASE: request.base_python or sys.executable, HEAD: request.head_python or sys.executable},
        variables={BASE: request.base_variables, HEAD: request.head_variables},
        home=stage_home(folder),
        repository=(snapshot.repository_of(here) if shutil.which("git") else None) or here,
        arguments=request.arguments,
        phases=(),
        only=request.only,
    )


@contextmanager
def _terminable() -> Iterator[None]:
    """Treat SIGTERM like SIGINT, so that copies are removed and children killed."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Gate:
    """One run of the gate."""

    def __init__(
        self, request: Request, plan: Plan, log: Path, progress: Progress, look: Survey, start: Start, describe: Describe,
        now: Callable[[], float], seed: int, began: float,
    ) -> None:  # fmt: skip
        self._request, self._plan, self._log, self._progress = request, plan, log, progress
        self._look, self._start, self._describe = look, start, describe
        self._now, self._seed, self._began = now, seed, began
        self._deadline = began + request.budget_s
        self._loading_s = 0.0  # of the sides, before anything is measured
        self._durations_s: dict[int, list[float]] = {1: [], 2: []}  # of the rounds of each stage
        self._case_seconds: list[Mapping[str, float]] = []  # of each launch of the first stage
        self._launched = 0
        self._at_once = 1  # launches of a round

    def run(self, here: Path) -> Measured:
        _new_file(self._request.storage)  # a folder that cannot be written is refused before a process starts
        return self._measured(here, self._listing())

    def _measured(self, here: Path, listing: Mapping[str, Listing]) -> Measured:
        path = _new_file(self._request.storage)
        header = self._header(here, listing)
        self._at_once = self._launches_at_once(header, listing)
        self._durations_s, self._case_seconds = {1: [], 2: []}, []
        measured = Measured(path, header, [])
        samples.append(measured.path, header)
        try:
            cases = list(header["labels"])
            self._stage(measured, 1, self._request.launches, cases, self._loading_s, self._first_deadline())
            flagged = self._flagged(measured)
            if flagged:
                self._measure_again(measured, flagged)
                measured.end = replace(measured.end, reproducers=self._reproducers(measured))
        except KeyboardInterrupt:
            measured.end = INTERRUPTED
        except LaunchError as error:
            if not measured.launches:
                raise
            measured.end = End(str(error), broken_off=True)
        measured.end = replace(measured.end, elapsed_s=round(self._now() - self._began, 3))
        samples.append(measured.path, measured.end.line())
        return measured

    def _listing(self) -> dict[str, Listing]:
        """Survey each side alone: its cases, and the tests that pytest selects."""
        self._progress.say("loading both sides")
        began = self._now()
        folder = DEFAULT_FOLDER if (self._plan.trees[HEAD].directory / DEFAULT_FOLDER).is_dir() else ""
        self._plan, listing = self._look(self._plan, self._seed, Default(folder, DEFAULT_PHASE), self._log)
        self._loading_s = self._now() - began
        for side, tree in self._plan.trees.items():
            if not listing[side].cases:
                raise LaunchError(_no_cases(side, tree.what, self._plan, listing))
        return listing

    def _header(self, here: Path, listing: Mapping[str, Listing]) -> dict[str, Any]:
        commit, dirty = snapshot.head_of(here)
        head = f"{commit}{' with changes' if dirty else ''}" if commit else str(here)
        base, new = (listing[side].cases for side in (BASE, HEAD))
        common = [case for case in base if case in new and base[case]["params"] == new[case]["params"]]
        changed = [case for case in base if case in new and base[case]["params"] != new[case]["params"]]
        if not common:
            raise LaunchError(
                f"no case in common: the base has {', '.join(list(base)[:3])}, the head {', '.join(list(new)[:3])}"
            )
        for case in common:
            for side in (BASE, HEAD):
                if case in listing[side].failed:
                    raise LaunchError(listing[side].failed[case])
        return {
            "schema": samples.SCHEMA,
            "mnistbench": __version__,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "base": self._plan.trees[BASE].what if self._request.base or self._request.base_dir else head,
            "head": head,
            "arguments": list(self._plan.arguments),
            "seed": self._seed,
            "allocator": allocator_settings(environment(os.environ, self._plan.home, self._seed)),
            "variables": {side: dict(variables) for side, variables in self._plan.variables.items()},
            "packages": _differences(*(listing[side].packages for side in (BASE, HEAD))),
            "torch": " -> ".join(dict.fromkeys(filter(None, (listing[side].torch for side in (BASE, HEAD))))),
            "labels": {case: new[case]["label"] for case in common},
            "exact": {case: self._is_exact(new[case]["params"]) for case in common},
            "only_base": [case for case in base if case not in new],
            "only_head": [case for case in new if case not in base],
            "changed": changed,
            "generated": sorted({name for tree in self._plan.trees.values() for name in tree.generated}),
            "left_out": {side: dict(listing[side].left_out) for side in (BASE, HEAD)},
            "notes": {case: _joined(listing, "notes", case) for case in common if _joined(listing, "notes", case)},
            "uncompared": {
                case: _joined(listing, "uncompared", case) for case in common if _joined(listing, "uncompared", case)
            },
            "files": {side: dict(listing[side].files) for side in (BASE, HEAD)},
            "memory": {
                case: {side: listing[side].memory[case] for side in (BASE, HEAD)}
                for case in common
                if all(case in listing[side].memory for side in (BASE, HEAD))
            },
            "resident": {side: listing[side].resident for side in (BASE, HEAD)},
        }

    def _is_exact(self, params: Mapping[str, Any]) -> bool:
        """Whether the same code computes the same bits on both sides: on one thread of a CPU."""
        threads = {self._plan.threads(side) or params["threads"] for side in (BASE, HEAD)}
        return params["device"] == "cpu" and threads == {1}

    def _launches_at_once(self, header: Mapping[str, Any], listing: Mapping[str, Listing]) -> int:
        """Return how many launches run at the same time: as many as cores and memory allow, at most MOST_AT_ONCE."""
        cases = [(side, listing[side].cases[case]["params"]) for side in (BASE, HEAD) for case in header["labels"]]
        if any(params["device"] != "cpu" for _, params in cases):
            return 1
        by_cores = len(own_cores()) // max(self._plan.threads(side) or params["threads"] for side, params in cases)
        of_a_launch = sum(found.resident for found in listing.values()) + 2 * TOUCHED_BYTES
        by_memory = available_bytes() // of_a_launch
        return int(max(1, min(MOST_AT_ONCE, by_cores, by_memory)))

    def _first_deadline(self) -> float:
        left = self._deadline - self._now()
        return self._now() + FIRST_SHARE * left if math.isfinite(left) else math.inf

    def _measure_again(self, measured: Measured, flagged: Sequence[str]) -> None:
        """Measure flagged cases in fresh launches, if the budget allows for enough of them, until a look settles the gate."""
        case_seconds = [sum(each.values()) for each in self._case_seconds]
        start_up = statistics.fmean(self._durations_s[1]) - statistics.fmean(case_seconds)
        of_flagged = statistics.fmean(sum(each.get(case, 0.0) for case in flagged) for each in self._case_seconds)
        each, left = start_up + of_flagged, max(0.0, self._deadline - self._now())
        least = self._least(measured, 2)
        needed = each * math.ceil(least / self._at_once)
        if left < needed:
            too_little = (
                f"the budget leaves {left:.0f} s, and {least} fresh launches take about {needed:.0f} s; increase --budget"
            )
            self._progress.say(too_little)
            measured.end = End(too_little)
            return
        self._progress.say(f"measuring {len(flagged)} case{'s' if len(flagged) > 1 else ''} again, in fresh launches")
        looks = [look for look in LOOKS if look >= least]
        for look in looks:
            is_complete = self._stage(measured, 2, look, flagged, each, self._deadline)
            if not is_complete or look == looks[-1] or self._is_settled(measured.launches):
                return
            self._progress.say(f"{look} fresh launches are not enough to decide")

    def _reproducers(self, measured: Measured) -> tuple[Reproducer, ...]:
        """Write a script for each operation that was found slower."""
        found = slower_operations(measured.launches, self._request.thresholds, self._seed)
        if not found:
            return ()
        self._progress.say("writing scripts that reproduce the slower operations")
        folder = self._request.reproducers or measured.path.with_name(measured.path.name.removesuffix(".jsonl.gz"))

        def described(wanted: Wanted, values: Path) -> dict[str, Mapping[str, Any]]:
            if self._now() + self._loading_s > self._deadline:
                raise LaunchError("the budget leaves no time for it; increase --budget")
            return self._describe(self._plan, self._seed, wanted, values, self._log)

        return write_reproducers(measured.header, found, described, folder)

    def _least(self, measured: Measured, stage: int) -> int:
        """Return the fewest launches of a stage that can be judged, or that can confirm a slowdown."""
        return LEAST_LAUNCHES if stage == 1 else least_fresh(sum(launch.stage == 1 for launch in measured.launches))

    def _is_settled(self, launches: Sequence[Launch]) -> bool:
        first, second = samples.effects_of_stages(launches)
        thresholds = self._request.thresholds
        return is_settled(decide(first, second, thresholds, self._seed), thresholds)

    def _stage(
        self, measured: Measured, stage: int, count: int, cases: Sequence[str], each: float, deadline: float
    ) -> bool:  # fmt: skip
        """Run launches up to a number of them, or until the next would exceed the deadline; return whether all were run.

        Args:
            measured: receives the launches.
            stage: 1 or 2.
            count: number of launches, with those that this stage already has.
            cases: node ids of the cases to measure.
            each: estimated seconds of the first round; those of later ones are the mean of the earlier ones.
            deadline: time of the clock, in seconds.
        """
        durations = self._durations_s[stage]
        while (done := sum(launch.stage == stage for launch in measured.launches)) < count:
            each = statistics.fmean(durations) if durations else each
            too_few = done < self._least(measured, stage)  # to judge: time reserved for fresh launches would be of no use
            limit = self._deadline
            if not too_few:
                limit = max(deadline, self._for_fewer_fresh(done, each)) if stage == 1 else deadline
            if self._now() + each > limit:
                used_up = f"the budget allowed {done} of {count} {'fresh ' if stage == 2 else ''}launches"
                if too_few:
                    measured.end = End(used_up)
                self._progress.say(used_up)
                return False
            rounds = math.ceil((count - done) / self._at_once)
            self._progress.launch(done, count, each * rounds if durations or stage == 2 else 0.0)
            round_began = self._now()
            self._round(measured, stage, min(self._at_once, count - done), cases)
            durations.append(self._now() - round_began)
        self._progress.launch(count, count, 0.0)
        return True

    def _for_fewer_fresh(self, done: int, each: float) -> float:
        """Return until when launches of the first stage may end that make fewer fresh ones sufficient; 0 if there are none.

        After 8 or 9 launches 8 fresh ones are needed, after 10 only 4: together those are fewer.
        """
        fewest = min(LOOKS)
        return self._deadline - each * math.ceil(fewest / self._at_once) if least_fresh(done) > fewest else 0.0

    def _round(self, measured: Measured, stage: int, count: int, cases: Sequence[str]) -> None:
        """Run launches at the same time, on different cores."""
        seeds = [self._seed + self._launched + number for number in range(1, count + 1)]
        self._launched += count
        cores = own_cores()
        random.Random(seeds[0]).shuffle(cores)  # noqa: S311  # no secret
        with ThreadPoolExecutor() as threads, ExitStack() as running:
            launches = [
                running.enter_context(
                    self._start(self._plan, seed, cases, self._log.with_name(f"{self._log.name}{slot}"), cores[slot::count])
                )
                for slot, seed in enumerate(seeds)
            ]
            for launch in launches:
                launch.ready()
            for future in [threads.submit(launch.measure) for launch in launches]:
                line = {"stage": stage, **future.result()}
                checked, case_seconds = _checked(line)
                measured.launches.append(checked)
                samples.append(measured.path, line)
                if stage == 1:
                    self._case_seconds.append(case_seconds)

    def _flagged(self, measured: Measured) -> list[str]:
        """Return the cases with a flagged quantity."""
        found = candidates(samples.quantities(measured.launches), self._request.thresholds, self._seed)
        return list(dict.fromkeys(estimate.quantity.case for estimate in found))


def _joined(listing: Mapping[str, Listing], name: str, case: str) -> str:
    """Return what the surveys say about a case: once if both say the same, else with the sides."""
    said: dict[str, str] = {side: getattr(listing[side], name).get(case, "") for side in (BASE, HEAD)}
    if said[BASE] == said[HEAD]:
        return said[BASE]
    return "; ".join(f"in the {side}: {text}" for side, text in said.items() if text)


def _differences(base: Mapping[str, str], new: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the packages with other versions: name -> version in the base and in the head; empty if it is not installed."""
    names = sorted({*base, *new}, key=str.lower)
    return {name: [base.get(name, ""), new.get(name, "")] for name in names if base.get(name) != new.get(name)}


def _checked(line: Mapping[str, Any]) -> tuple[Launch, dict[str, float]]:
    """Return a launch and its seconds by case; checked before it is written, as a bad line makes the file unreadable."""
    try:
        reader = Reader(line)
        seconds = {case: taken.number() for case, taken in reader["case_seconds"].mapping().items()}
        return reader.read(Launch), seconds
    except RecordError as error:
        raise LaunchError(f"the result of a launch cannot be used: {error}") from None


def _no_cases(side: str, what: str, plan: Plan, listing: Mapping[str, Listing]) -> str:
    other = BASE if side == HEAD else HEAD
    selection = " ".join(plan.arguments) or "the whole project"
    if listing[other].cases:
        return (
            f"{side} ({what}) has no case in {selection}: no test there uses benchmark or op_benchmark, or its mnistbench is "
            f"too old for the gate{_first_left_out(listing[side])}; choose another base, or other tests after --"
        )
    left_out = _first_left_out(listing[side])
    return f"no case in {selection}{left_out}: select tests that use the fixture benchmark or op_benchmark after --"


def _first_left_out(listing: Listing) -> str:
    return next((f" ({node_id} {why})" for node_id, why in listing.left_out.items()), "")


def _new_file(storage: Path) -> Path:
    """Return the path of a file that does not exist yet.

    Raises:
        UsageError: the folder cannot be created.
    """
    folder = storage / "gate"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--storage: {folder} cannot be written ({error.strerror}); name another folder") from None
    stamp = datetime.now(UTC).strftime("%Y%m%d_%H%M%S")
    for number in range(100):
        path = folder / f"{stamp}{f'_{number}' if number else ''}.jsonl.gz"
        if not path.exists():
            return path
    raise UsageError(f"{folder}: has 100 files of this second; run the gate again")
