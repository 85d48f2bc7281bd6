"""The process of a side: it does one job.

In a trial it runs the pytest session of the side, and measures its cases in turn with the other
side's process.

The process reads a job and writes messages (``gate.processes.messages``). All other output goes to
the log, which is its standard error. Only a trial compares the times of the sides; a survey has a
quick look, and the other jobs time nothing.

Both processes of a trial have the same random generator and draw from it in the same order, so
they agree about the order of cases, builds and iterations.

The process imports a framework, such as torch, before its session if the surveys have shown that
both sides use it. If only one side does, that is a cost of its imports.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import random
import socket
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from mnistbench.core.errors import first_line
from mnistbench.core.machine import (
    end_with,
    gc_paused,
    peak_resident_bytes,
    pin_allocator,
    touch_heap,
)
from mnistbench.gate.listing import unstable
from mnistbench.gate.processes.iterations import BUILDS, builds_of
from mnistbench.gate.processes.messages import (
    CaptureJob,
    CollectJob,
    Efforts,
    Job,
    SideResult,
    Spent,
    SurveyJob,
    TrialJob,
    job_of,
)
from mnistbench.gate.processes.sides.session import TakenCase, run_tests
from mnistbench.gate.processes.sides.side import CaseError, Side, SideError
from mnistbench.gate.processes.sides.side_paths import measure_paths
from mnistbench.gate.processes.sides.steps import Measured, SideRun, measure, rehearse
from mnistbench.gate.processes.sides.survey import collect, survey
from mnistbench.gate.processes.sides.turns import PeerError, Turns
from mnistbench.gate.words import ALL_CASES, BASE, HEAD, RESIDENT
from mnistbench.measuring.provider import provider_of
from mnistbench.measuring.timing import Clock

#: Seconds between two messages of a case that takes long.
ALIVE_S = 10.0


def main() -> None:
    """Do one job; report errors as messages, too."""
    pin_allocator()
    faulthandler.enable()  # also while conftest.py is imported, before pytest does
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of the sides must not be read as a message
    lines = os.fdopen(os.dup(0), encoding="utf-8")
    with Path(os.devnull).open() as nothing:
        # A test or a child that reads its input must not wait for the gate's next line.
        os.dup2(nothing.fileno(), 0)

    def say(**message: Any) -> None:
        out.write(json.dumps(message, separators=(",", ":")) + "\n")
        out.flush()

    try:
        job = job_of(lines.readline())
        if job.gate:
            end_with(job.gate)
        _do(job, say, lines)
    except _NotToMeasureError:
        return
    except SideError as error:
        say(error=str(error))
    except PeerError as error:
        say(peer_error=str(error))
    # A side's code may raise anything; the log has the traceback.
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        say(error=f"{type(error).__name__}: {first_line(error)}")


def _do(job: Job, say: Callable[..., None], lines: IO[str]) -> None:
    """Do a job."""
    match job:
        case SurveyJob():
            survey(job, say, lines)
        case CollectJob():
            collect(job, say)
        case CaptureJob():
            provider_of(job.framework).capture(job, say)
        case TrialJob():
            trial = _Trial(job, say, lines)
            # The other side has to notice the end of this process.
            os.register_at_fork(after_in_child=trial.turns.close)
            with closing(trial.turns):
                trial.run()


class _NotToMeasureError(SideError):
    """The trial ended before its measurement began."""


class _Trial:
    """One side of a trial."""

    def __init__(self, job: TrialJob, say: Callable[..., None], lines: IO[str]) -> None:
        self._job = job
        self._say = say
        self._lines = lines
        self._coin = random.Random(job.seed)  # noqa: S311  # a coin, not a secret
        self._order = self._coin.sample([BASE, HEAD], 2)
        peer = socket.socket(fileno=job.peer)
        peer.settimeout(job.patience_s)
        self.turns = Turns(job.side, peer, self._order[0], self._say_alive)
        self._side = Side.of(job, say)
        self._cases: dict[str, list[dict[str, Any]]] = {}
        # Node id of a case that this process cannot tell from others -> why.
        self._unmeasurable: dict[str, str] = {}
        self._spent: dict[str, Spent] = {}
        self._number_of_cases = 0
        self._start: float | None = None
        self._case_ended_s = 0.0  # time of the clock, of the last case
        self._said_s = _now_s()
        self._cores = [*job.cores]

    def run(self) -> None:
        """Measure the cases that both sides have, and send the result.

        Raises:
            SideError: the code of the side cannot be measured.
            PeerError: the process of the other side has ended.
        """
        for framework in self._job.frameworks:
            provider_of(framework).load()
        failed = run_tests(self._side, self._job.arguments, self._ordered, self._take)
        if failed:  # in the survey it passed
            raise CaseError(self._side.name, *next(iter(failed.items())))
        self.turns.agree("")
        if self._start is None:
            raise SideError(self._why_nothing_is_measured())
        result = SideResult(
            side=self._side.name,
            cases={node_id: tuple(builds) for node_id, builds in self._cases.items()},
            spent=self._spent,
            seconds=_now_s() - self._start,
            once=dict(self._side.once),
            unmeasurable=self._unmeasurable,
        )
        self._say(result=asdict(result))

    def _ordered(self, node_ids: list[str]) -> list[str]:
        """Return the tests of the job that both sides have, in an order that both draw.

        If the job has an order, it is that one.
        """
        wanted = node_ids if self._job.only is None else self._job.only
        known = {node_id: self._side.parameters[node_id] for node_id in node_ids}
        own, other_unstable = self.turns.exchange(unstable(wanted, self._job.parameters, known))
        self._unmeasurable = {**other_unstable, **own}
        own_tests, other_tests = self.turns.exchange(node_ids)
        common = {*own_tests}.intersection(other_tests, wanted) - self._unmeasurable.keys()
        self._number_of_cases = len(common)
        if self._job.in_order:
            return [node_id for node_id in wanted if node_id in common]
        return self._coin.sample(sorted(common), len(common))

    def _why_nothing_is_measured(self) -> str:
        for node_id, why in self._unmeasurable.items():
            return f"{self._side.name}: {node_id}: {why}"
        return f"{self._side.name}: pytest collected no case that both sides have"

    def _take(self, case: TakenCase) -> None:
        """Measure a case inside its test."""
        if not case.is_selected(self._job.phases):
            return
        self.turns.agree(case.node_id)  # a test may be skipped or fail on one side
        # Both sides draw alike, also if one has more threads.
        cores = self._coin.sample(self._cores, len(self._cores))
        if self._start is None:
            self._start = self._case_ended_s = self._begin(case, cores)
        self._say(case=(len(self._cases) + 1, self._number_of_cases))
        parallel = case.node_id in self._job.parallel
        _use_cores(
            cores,
            len(cores) if parallel else self._side.threads_of(case.params),
            case.params.device,
        )
        if self._job.collects_paths:
            self._cases[case.node_id] = [self._measure_paths(case, parallel=parallel)]
        else:
            self._time(case, parallel=parallel)
        # Threads that the fixtures of the next test start keep the cores of this moment.
        _use_cores(cores, len(cores), case.params.device)

    def _time(self, case: TakenCase, *, parallel: bool) -> None:
        """Time and profile a case."""
        measured = self._measure_builds(case, parallel=parallel)
        self._cases[case.node_id] = [build.columns for build in measured]
        most_builds = _most_builds(case)
        self._spent[case.node_id] = Spent(
            _now_s() - self._case_ended_s,
            Efforts(
                sum(build.efforts.timed for build in measured) / most_builds,
                sum(build.efforts.profiled for build in measured) / most_builds,
            ),
            timed_s=sum(build.timed_s for build in measured),
            profiled_s=sum(build.profiled_s for build in measured),
        )
        self._case_ended_s = _now_s()

    def _measure_builds(self, case: TakenCase, *, parallel: bool) -> list[Measured]:
        """Measure a case from as many builds as the effort allows."""
        timed, profiled = self._job.efforts
        most_builds = _most_builds(case)
        number = 1 if timed <= 1 / BUILDS else most_builds
        share = most_builds / number  # of the effort, for a build
        measured = list[Measured]()
        for build in range(number):
            side_run = SideRun(self._side, case.make(), case.node_id)
            side_run.case.parallel = parallel
            measured.append(
                measure(
                    side_run,
                    self.turns,
                    self._order[:: -1 if build % 2 else 1],
                    self._coin,
                    Efforts(timed * share, profiled * share),
                    shares_core=bool(self._cores),
                    is_compiled_anew=case.node_id in self._job.compiled_anew,
                )
            )
            gc.collect()
        return measured

    def _measure_paths(self, case: TakenCase, *, parallel: bool) -> dict[str, Any]:
        """Collect the call paths of a case."""
        side_run = SideRun(self._side, case.make(), case.node_id)
        side_run.case.parallel = parallel
        return measure_paths(side_run, self.turns, self._order, self._coin, Path(self._job.home))

    def _say_alive(self) -> None:
        """Tell the starter, from time to time, that a long case is being measured."""
        if _now_s() - self._said_s > ALIVE_S:
            self._said_s = _now_s()
            self._say(alive="")

    def _begin(self, case: TakenCase, cores: list[int]) -> float:
        """Import what the first case needs, wait until the trial may measure.

        Return the time.
        """
        threads = self._side.threads_of(case.params)
        # They keep the cores with which they are started; one thread uses any core for imports.
        if threads > 1:
            _use_cores(cores, threads, case.params.device)
        with gc_paused():  # imports a thousand modules
            rehearse(SideRun(self._side, case.make(), case.node_id))
        self._side.once[RESIDENT][ALL_CASES] = peak_resident_bytes()
        _tidy_memory(self._job.touched_bytes)
        self._say(ready=asdict(self._side.imports()))
        if self._lines.readline().strip() != "go":
            raise _NotToMeasureError("the trial was not to be measured")
        return _now_s()


def _most_builds(case: TakenCase) -> int:
    return builds_of(is_plain=case.is_plain, is_compiled=case.params.compile)


def _now_s() -> float:
    return Clock.wall_ns() / 1e9


def _tidy_memory(touched_bytes: int) -> None:
    """Exclude imported objects from later garbage collections.

    It also touches the heap before it is needed.

    The heap keeps its pages, because the allocator's thresholds are raised. But if small
    allocations have split a freed block, it is too small for the next tensor, which then gets
    untouched pages. Their page faults tripled the time of single operations in some trials
    (docs/evidence/page_faults.py).
    """
    gc.collect()
    gc.freeze()
    touch_heap(touched_bytes)


def _use_cores(cores: list[int], threads: int, device: str) -> None:
    """Restrict the process to as many cores as a case has threads.

    Their random order makes the choice average out.

    It does nothing with an accelerator, which is driven from additional threads, or where a process
    cannot choose its cores.
    """
    if cores:
        os.sched_setaffinity(0, cores[:threads] if device == "cpu" else cores)
