"""Survey both sides, each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mnistbench.core.machine import MAX_TOUCHED_BYTES, MIN_TOUCHED_BYTES
from mnistbench.gate.listing import Listings
from mnistbench.gate.processes.messages import CollectJob, Selection, Surveyed, SurveyJob, Surveys
from mnistbench.gate.processes.starting import (
    MIN_SILENCE_S,
    PATIENCE_S,
    GateError,
    LoadingError,
    Setup,
    SideProcess,
    TrialPlan,
    check_imports,
    side_processes,
)
from mnistbench.gate.samples.raw_samples import WHOLE, Shard
from mnistbench.gate.words import BASE, HEAD

#: After the survey a process may be silent for this multiple of the longest step that was surveyed
#: (loading, or a test with a few calls; of the base for the head's survey, of both sides for a
#: trial). A side waits half as long for its peer, so the error names the side that hangs.
SILENCE_FACTOR = 30.0

#: Bytes of heap that a trial touches for each byte by which a process grew in the survey. Later
#: iterations need more heap, because free memory is split into pieces that are too small.
TOUCHED_PER_GROWTH = 4


@dataclass(frozen=True, kw_only=True)
class SurveyRequest:
    """What both sides are asked for."""

    setup: Setup
    selection: Selection
    # The head's pytest decides which of the arguments are paths. If there is none, these are
    # measured; without these, the whole project.
    selects: bool = True
    paths: Sequence[str] = ()
    only: Sequence[str] = ()  # node ids of the cases; all if empty
    follows_code: bool = True  # note which of the tree's code each test runs
    differing: Sequence[str] = ()  # files that differ between the trees
    carried: Sequence[str] = ()  # files of the head that the base's copy has
    longest_call_s: float = 0.0  # as of a SurveyJob
    limit_s: float = PATIENCE_S  # longest time without a message from the base, seconds
    # With the tests of all shards after the first survey, which runs those of this one.
    shard: Shard = WHOLE

    @property
    def is_shard(self) -> bool:
        """Whether the sides have to say which tests there are."""
        return self.shard.of > 1 and not self.shard.tests

    def job(self, side: str, seed: int) -> SurveyJob:
        """Return the job of a side; only the head selects."""
        return SurveyJob(
            **self.setup.job(side, self.selection, seed),
            selects=self.selects and side == HEAD,
            paths=self.paths if side == HEAD else (),
            # A repeated survey of a shard runs the same tests again.
            only=self.only or self.shard.own() or None,
            is_shard=self.is_shard,
            follows_code=self.follows_code,
            differing=self.differing if self.follows_code else (),
            carried=self.carried if side == BASE else (),
            longest_call_s=self.longest_call_s,
        )


@dataclass(frozen=True)
class SurveyResult:
    """What both sides have answered."""

    # With what was selected, and the tests of a shard; so it can be repeated for some cases.
    request: SurveyRequest
    surveys: Surveys
    limit_s: float  # longest time without a message from a later process, seconds

    def trial_plan(self) -> TrialPlan:
        """Return what all trials share."""
        listings = self.surveys.listings
        sides = {BASE: listings.base, HEAD: listings.head}
        return TrialPlan(
            self.request.setup,
            self.request.selection,
            frameworks=tuple(
                name for name in listings.base.frameworks if name in listings.head.frameworks
            ),
            parameters={side: listing.parameters for side, listing in sides.items()},
            parallel=frozenset(
                node_id
                for listing in sides.values()
                for node_id, case in listing.cases.items()
                if case.parallel
            ),
            touched_bytes=touched_bytes(listings.base.growth_bytes, listings.head.growth_bytes),
            limit_s=self.limit_s,
        )


def touched_bytes(growth_of_base: int, growth_of_head: int) -> int:
    """Return the bytes of heap that each process of a trial touches before it measures."""
    needed = TOUCHED_PER_GROWTH * max(growth_of_base, growth_of_head)
    return min(MAX_TOUCHED_BYTES, max(MIN_TOUCHED_BYTES, needed))


def survey_in_processes(
    request: SurveyRequest,
    seed: int,
    log: Path,
    *,
    shows: Callable[[int, int], None] | None = None,
) -> SurveyResult:
    """Load each side in a process of its own, both at the same time, and survey it.

    ``shows`` gets the number of each test that begins on a side, and that of all.

    Raises:
        GateError: a side cannot be loaded.
    """
    with side_processes(request.setup, seed, log) as processes, _loading_of_both(processes):
        base = processes[BASE]
        head = processes[HEAD]
        base.begins = head.begins = shows
        head.begin(request.job(HEAD, seed))
        if request.selects:
            selection = head.receive("selected", Selection)
            request = replace(request, selection=selection, selects=False)
        base.begin(request.job(BASE, seed))
        if request.is_shard:
            request = replace(request, shard=_completed(request.shard, [base, head]))
        base_survey = base.receive("surveyed", Surveyed, request.limit_s)
        limit_s = max(MIN_SILENCE_S, SILENCE_FACTOR * base_survey.longest_s)
        head_survey = head.receive("surveyed", Surveyed, limit_s)
        limit_s = max(limit_s, SILENCE_FACTOR * head_survey.longest_s)
    surveys = Surveys(
        Listings(base_survey.listing, head_survey.listing),
        {BASE: base_survey.imports, HEAD: head_survey.imports},
        {BASE: base_survey.followed, HEAD: head_survey.followed},
    )
    for argument in base_survey.listing.missing:
        if argument in head_survey.listing.missing:
            raise GateError(neither_side_has(argument))
    check_imports(request.setup, surveys.imports)
    return SurveyResult(request, surveys, limit_s)


def neither_side_has(argument: str) -> str:
    """Return the error about an argument that names nothing."""
    return f"neither side has {argument}; name files and tests that exist"


@contextmanager
def _loading_of_both(processes: Mapping[str, SideProcess]) -> Iterator[None]:
    """Add to the reason why a side cannot be loaded whether the other one can.

    Raises:
        GateError: a side cannot be loaded.
    """
    try:
        yield
    except LoadingError as error:
        other_side = HEAD if error.side == BASE else BASE
        reason = str(error).removeprefix(f"{error.side}: ")
        other_reason = processes[other_side].why_not_loaded()
        if other_reason is None:
            raise
        if other_reason.removeprefix(f"{other_side}: ") == reason:
            raise GateError(f"both sides: {reason}") from None
        raise GateError(f"{error}; {other_reason or f'the {other_side} can be loaded'}") from None


def _completed(shard: Shard, processes: Sequence[SideProcess]) -> Shard:
    """Give a shard the tests that the processes have collected, and them those of the shard."""
    tests = {
        test for process in processes for test in process.receive("collected", tuple[str, ...])
    }
    shard = replace(shard, tests=tuple(sorted(tests)))
    for process in processes:
        process.child.tell(json.dumps(shard.own()))
    return shard


def collect_again(plan: TrialPlan, seed: int, log: Path) -> dict[str, Mapping[str, str]]:
    """Collect the tests of each side in another process.

    Return those of each side, with the hash of their parameters.

    Raises:
        GateError: a side cannot be loaded.
    """
    with side_processes(plan.setup, seed, log) as processes:
        for side, process in processes.items():
            process.begin(CollectJob(**plan.setup.job(side, plan.selection, seed)))
        tests: Any = Mapping[str, str]
        return {
            side: process.receive("collected", tests, plan.limit_s)
            for side, process in processes.items()
        }
