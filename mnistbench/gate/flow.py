"""Run a gate.

Copy both trees, run the launches of the first stage, then fresh launches of the flagged cases.

Every launch is appended to a file of raw samples.
"""

from __future__ import annotations

import functools
import math
import os
import random
import shlex
import shutil
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from mnistbench.core import units
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.machine import (
    TOUCHED_BYTES,
    allocator_settings,
    available_bytes,
    cpu_model,
    own_cores,
    usable_cpus,
)
from mnistbench.core.params import FAST
from mnistbench.core.reading import Reader
from mnistbench.gate import imports, planning, trees, words
from mnistbench.gate.environments.interpreters import interpreters
from mnistbench.gate.launcher import (
    LaunchError,
    Listing,
    Plan,
    capture,
    collect_again,
    environment,
    launching,
    own_hash_seed,
    stage_home,
    survey,
)
from mnistbench.gate.options import LAUNCHES, LEAST_LAUNCHES, GateOptions
from mnistbench.gate.planning import Efforts, LeastGate, Spent
from mnistbench.gate.qualification import LIVE, LIVE_LAUNCHES, PREFIX, SIZE, newest, qualify
from mnistbench.gate.reproducers.write import slower_operations
from mnistbench.gate.reproducers.write import write as write_reproducers
from mnistbench.gate.statistics import raw_samples
from mnistbench.gate.statistics.decision import (
    candidates,
    decide,
    is_settled,
    least_fresh,
    looks,
)
from mnistbench.gate.statistics.ids_of_tests import (
    REORDERED,
    moved,
    name_of_test,
    unstable,
    without_counterpart,
)
from mnistbench.gate.statistics.quantities import quantities, quantities_of_stages
from mnistbench.gate.statistics.raw_samples import (
    INTERRUPTED,
    LONGER,
    End,
    GateHeader,
    Launch,
    Recorded,
    Reproducer,
)
from mnistbench.gate.statistics.result import reasons_with_cases
from mnistbench.gate.words import BASE, HEAD
from mnistbench.showing.progress import Progress

#: Most launches at the same time, each with a core of its own for each thread. More have not been
#: measured.
MOST_AT_ONCE = 2

#: Share of the budget that is reserved for fresh launches, with up to FEW_CASES cases.
FRESH_SHARE = 0.4
#: With more cases than this, which are seldom all measured again, the share is smaller in
#: proportion.
FEW_CASES = 4
#: The least share of the budget that is reserved for fresh launches.
LEAST_FRESH_SHARE = 0.1

#: Time of a qualification without --launches and --budget, in seconds.
QUALIFYING_S = 600.0
#: Time of the resampling of a qualification, in seconds.
RESAMPLING_S = 60.0
#: Share of a qualification for launches of the same code.
SAME_SHARE = 0.75
#: Most launches of the same code.
MOST_SAME = 5 * SIZE

#: Measured by default: the cases of this folder with the phase ``sides.survey.DEFAULT_PHASE``.
DEFAULT_FOLDER = "bench"

#: The package that compiles the loops of the fast step.
_COMPILER = "numba"

#: Remarks about files that differ between the sides: the text, names of the files, and a word of
#: the lines that count.
_REMARKS = (
    (
        (
            "the sides may have other dependencies ({}), which the gate does not install; name "
            "other versions with --head-with"
        ),
        (
            "*.lock Pipfile constraints*.txt environment*.y*ml pyproject.toml requirements*.txt "
            "setup.cfg setup.py"
        ),
        b"",
    ),
    (
        (
            "the sides set other numbers of threads ({}), which count in the body of a plain "
            "test; elsewhere OMP_NUM_THREADS does"
        ),
        "*.py",
        b"_num_threads(",
    ),
)


#: Remark if the user's environment has a hash seed.
_ONE_HASH_SEED = (
    "all launches have PYTHONHASHSEED={} of your environment, so the order of sets is the same in "
    "each of them"
)


def measure(request: GateOptions, progress: Progress, seed: int | None = None) -> Recorded:
    """Measure both sides and return all samples, which are also written to the file.

    Args:
        request: the options.
        progress: shows each step.
        seed: of all random decisions; random if not given.

    Raises:
        UsageError: an option cannot be used.
        LaunchError: a side cannot be measured.
    """
    here = Path.cwd().resolve()
    seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    # An environment takes minutes and gigabytes, so what is wrong is found before.
    if request.qualify and "launches" in request.given and request.launches < SIZE:
        raise UsageError(
            f"--launches: {request.launches} are too few for --qualify; give at least {SIZE}"
        )
    if request.base_dir and not request.base_dir.is_dir():
        raise UsageError(
            f"--base-dir: {str(request.base_dir)!r} is not a folder; name a checkout of the base"
        )
    if request.base:
        trees.commit_of(here, request.base)
    _new_file(request.storage)
    with interpreters(request, progress.say) as pythons:
        began = monotonic()
        with trees.scratch() as folder, _terminable():
            return _Gate(
                request,
                _plan(request, pythons, here, folder),
                folder / "log",
                progress,
                seed,
                began,
            ).run(here)


def _plan(request: GateOptions, pythons: Mapping[str, str], here: Path, folder: Path) -> Plan:
    if request.base_dir:
        base = trees.of_working_tree(
            request.base_dir.resolve(), folder / BASE, str(request.base_dir)
        )
    elif request.base:
        base = trees.of_revision(here, request.base, folder / BASE)
    else:
        base = trees.of_working_tree(here, folder / BASE)
    return Plan(
        trees={BASE: base, HEAD: trees.of_working_tree(here, folder / HEAD)},
        pythons=pythons,
        variables=request.variables,
        home=stage_home(folder),
        repository=(trees.repository_of(here) if shutil.which("git") else None) or here,
        arguments=request.pytest,
        phases=(),
        only=request.only,
        shard=request.shard,
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


@dataclass
class _Gate:
    """One run of the gate."""

    _request: GateOptions
    _plan: Plan
    _log: Path
    _progress: Progress
    _seed: int
    _began: float
    _loading_s: float = 0.0  # of the sides, before anything is measured
    # Of the rounds of each stage.
    _durations_s: Mapping[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    # Of each launch of the first stage, by case.
    _spent: list[Mapping[str, Spent]] = field(default_factory=list)
    _at_once: int = 1  # launches of a round
    # Node id of a case that a launch did not find again -> why.
    _unmeasurable: dict[str, str] = field(default_factory=dict)

    def run(self, here: Path) -> Recorded:
        listing = self._listing()
        prefix = PREFIX * self._request.qualify + self._request.shard.prefix
        measured = Recorded(
            _new_file(self._request.storage, prefix), self._header(here, listing), []
        )
        if measured.header.labels:
            self._at_once = self._launches_at_once(measured.header, listing)
            self._check_budget(
                [listing[HEAD].cases[case].seconds for case in measured.header.labels]
            )
        raw_samples.append(measured.path, measured.header.line())
        try:
            if measured.header.labels:
                (self._qualify if self._request.qualify else self._compare)(
                    measured, list(measured.header.labels)
                )
            elif measured.header.shard.of > 1:
                raise LaunchError("no test of this shard is a case of both sides")  # noqa: TRY301
        except KeyboardInterrupt:
            measured.end = INTERRUPTED
        except LaunchError as error:
            if not measured.launches and measured.header.labels:
                raise
            measured.end = End(str(error), broken_off=True)
        parts_s = {name: round(part_s, 3) for name, part_s in self._parts_s().items()}
        measured.end = replace(
            measured.end, elapsed_s=round(monotonic() - self._began, 3), parts_s=parts_s
        )
        raw_samples.append(measured.path, measured.end.line())
        return measured

    def _compare(self, measured: Recorded, cases: Sequence[str]) -> None:
        left = self._deadline - monotonic()
        fresh = max(LEAST_FRESH_SHARE, FRESH_SHARE * min(1.0, FEW_CASES / len(cases)))
        first_deadline = monotonic() + (1 - fresh) * left if math.isfinite(left) else math.inf
        self._stage(measured, 1, self._request.launches, cases, self._loading_s, first_deadline)
        if (
            "launches" not in self._request.given
            and len(measured.launches) == LAUNCHES == self._request.launches
        ):
            needed = planning.planned_launches(
                measured.launches, self._request, self._request.shard.of
            )
            self._stage(measured, 1, needed, cases, 0.0, first_deadline)
        found = candidates(quantities(measured.launches), self._request, self._seed)
        if found:
            of_process = {
                one.quantity.kind for one in found if one.quantity.case == words.ALL_CASES
            }
            flagged = list(
                dict.fromkeys(
                    one.quantity.case for one in found if one.quantity.case != words.ALL_CASES
                )
            )
            # Its memory is measured with the first case, other costs of the process come from all.
            self._measure_again(
                measured, cases if of_process - {words.MEMORY} else flagged or cases[:FEW_CASES]
            )
            measured.end = replace(measured.end, reproducers=self._reproducers(measured))

    def _qualify(self, measured: Recorded, cases: Sequence[str]) -> None:
        """Measure the same code on both sides, then with time added to the head.

        See what gates of the former find.
        """
        count = self._request.launches
        durations = self._durations_s[1]
        if "launches" not in self._request.given:
            self._stage(measured, 1, self._at_once, cases, self._loading_s, self._deadline)
            rounds = (
                SAME_SHARE
                * (self._request.budget_s or QUALIFYING_S)
                / statistics.fmean(durations or [math.inf])
            )
            count = max(SIZE, min(MOST_SAME, int(rounds) * self._at_once))
        for stage, launches in ((1, count), (LONGER, LIVE_LAUNCHES)):
            if (
                not self._stage(measured, stage, launches, cases, self._loading_s, self._deadline)
                and measured.end.cut_short
            ):
                return
        self._progress.say("resampling gates")
        gate_s = self._loading_s + math.ceil(LAUNCHES / self._at_once) * statistics.fmean(durations)
        until = min(self._deadline, monotonic() + RESAMPLING_S)
        found = qualify(measured, self._request, gate_s, lambda: monotonic() < until)
        measured.end = replace(measured.end, qualification=found)

    def _parts_s(self) -> dict[str, float]:
        """Return what the time went to; launches at the same time count once."""
        all_s = [[spent.seconds for spent in of.values()] for of in self._spent]
        cases_s = sum(map(sum, all_s)) / self._at_once
        first_s, fresh_s = (sum(self._durations_s[stage]) for stage in (1, 2))
        return {
            "survey": self._loading_s,
            "starts and fixtures": first_s - cases_s,
            "cases": cases_s,
            "fresh launches": fresh_s,
        }

    def _check_budget(self, seconds: Sequence[float]) -> None:
        """Check that the fewest launches with the smallest effort fit into the budget.

        By the time of each case's calls.

        Raises:
            LaunchError: they do not.
        """
        self._plan = replace(self._plan, effort=planning.first_efforts(self._request))
        least = LeastGate(self._loading_s, tuple(seconds), self._at_once, self._plan.shard)
        budget_s = self._request.budget_s
        if budget_s and least.seconds() > budget_s and not self._request.qualify:
            raise LaunchError(
                f"{units.counted(len(seconds), 'case does', 'cases do')} not fit into --budget "
                f"{budget_s:g}s: {LEAST_LAUNCHES} launches, the fewest that can be judged, take "
                f"at least {least.seconds():.0f} s; {least.advice(budget_s)}"
            )

    @property
    def _deadline(self) -> float:
        """When all launches have to end, in seconds of the clock."""
        return self._began + (
            math.inf if self._request.budget_s is None else self._request.budget_s
        )

    def _listing(self) -> dict[str, Listing]:
        """Survey each side alone: its cases, and the tests that pytest selects."""
        self._progress.say("loading both sides")
        began = monotonic()
        folder = (
            DEFAULT_FOLDER if (self._plan.trees[HEAD].directory / DEFAULT_FOLDER).is_dir() else ""
        )
        self._plan, listing = survey(self._plan, self._seed, folder, self._log)
        self._loading_s = monotonic() - began
        self._leave_out_unstable(listing)
        shard = self._plan.shard
        if shard.of > len(shard.tests) > 0:
            number = len(shard.tests)
            remedy = (
                f"give {number} or fewer"
                if number > 1
                else "a single test cannot be divided, so remove --shard"
            )
            raise UsageError(
                f"--shard: {shard} are more parts than there are tests ({number}); {remedy}"
            )
        for side, tree in self._plan.trees.items():
            has_cases = listing[side].cases or listing[side].unmeasurable
            has_only_new = side == BASE and listing[HEAD].cases and not listing[BASE].left_out
            all_are_new = has_only_new and self._request.allow_missing
            if not has_cases and not shard.tests and not all_are_new:
                raise LaunchError(_no_cases(side, tree.what, self._plan, listing))
        return listing

    def _leave_out_unstable(self, listing: Mapping[str, Listing]) -> None:
        """Take cases from the listings that another process of the same side does not find.

        It does not find their ids again.

        These have no counterpart on the other side, or belong to other parameters there, so the
        tests are collected again only if there are such ids. Ids that depend on the hash seed,
        which both sides share, are found by the first launches.
        """
        suspected = without_counterpart(listing[BASE].cases, listing[HEAD].cases)
        if self._plan.shard.of > 1:  # another shard may have the counterpart
            suspected = {
                case
                for case in listing[BASE].cases.keys() ^ listing[HEAD].cases.keys()
                if case.endswith("]")
            }
        suspected |= moved(_parameters(listing[BASE]), _parameters(listing[HEAD]))
        if not suspected:
            return
        self._progress.say(
            "collecting the tests again, because their ids or parameters differ between the sides"
        )
        again = collect_again(self._plan, self._seed + 1, self._log)
        differing: dict[str, str] = {}
        for side, found in listing.items():
            differing |= unstable(
                suspected.intersection(found.cases), _parameters(found), again[side]
            )
        for found in listing.values():
            own = {case: why for case, why in differing.items() if case in found.cases}
            # Another process has no such ids.
            tests = {f"{name_of_test(case)}[...]": why for case, why in own.items()}
            found.unmeasurable = {**found.unmeasurable, **tests}
            found.cases = {case: listed for case, listed in found.cases.items() if case not in own}

    def _header(self, here: Path, listing: Mapping[str, Listing]) -> GateHeader:
        commit, dirty = trees.head_of(here)
        head = f"{commit}{' with changes' if dirty else ''}" if commit else str(here)
        sides = listing[BASE], listing[HEAD]
        differ = functools.partial(trees.differing, tuple(self._plan.trees.values()))
        of_base, of_head = (found.cases for found in sides)
        # On a side with OMP_NUM_THREADS the threads of a plain test are those of the side.
        ignored = {"threads": 0} if any(map(self._plan.threads, (BASE, HEAD))) else {}
        params = [
            {case: {**found.params, **ignored} for case, found in side.cases.items()}
            for side in sides
        ]
        reordered = moved(*map(_parameters, sides))
        unmeasurable = {
            case: _joined(*(side.unmeasurable.get(case, "") for side in sides))
            for case in dict.fromkeys(case for side in sides for case in side.unmeasurable)
        } | dict.fromkeys(sorted(reordered), REORDERED)
        common = [
            case
            for case in of_base
            if case in of_head and params[0][case] == params[1][case] and case not in unmeasurable
        ]
        are_all_new = not of_base and not sides[0].unmeasurable
        if not common and unmeasurable and not are_all_new and not self._plan.shard.tests:
            raise LaunchError(
                f"no case can be measured: {'; '.join(reasons_with_cases(unmeasurable))}"
            )
        if not common and not are_all_new and not self._plan.shard.tests:
            raise LaunchError(
                f"no case in common: the base has {', '.join(list(of_base)[:3])}, the head "
                f"{', '.join(list(of_head)[:3])}; cases with other node ids are not compared: if "
                "a file or a test was renamed, compare with a commit that has the new name"
            )
        if failed := [
            found.cases[case].failed
            for case in common
            for found in sides
            if found.cases[case].failed
        ]:
            raise LaunchError(failed[0])
        returned = {case: (of_base[case].returns, of_head[case].returns) for case in common}
        alike = [case for case, types in returned.items() if types[0] == types[1]]
        installed = sorted({name for found in sides for name in found.packages}, key=str.lower)
        machine = f"{cpu_model()}, {usable_cpus()} cores"
        versions_of = {
            name: (sides[0].packages.get(name, ""), sides[1].packages.get(name, ""))
            for name in installed
        }
        shard = self._plan.shard
        imported = {
            side: listing[side].imports(tree.root) for side, tree in self._plan.trees.items()
        }
        return GateHeader(
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            base=self._plan.trees[BASE].what
            if self._request.base or self._request.base_dir
            else head,
            head=head,
            arguments=self._plan.arguments,
            seed=self._seed,
            allocator=allocator_settings(environment(os.environ, self._plan.home, self._seed)),
            variables=self._plan.variables,
            cpu={side: listing[side].cpu for side in (BASE, HEAD)},
            onednn={
                case: runs
                for case in common
                if any((runs := {BASE: of_base[case].onednn, HEAD: of_head[case].onednn}).values())
            },
            packages={
                name: versions
                for name, versions in versions_of.items()
                if versions[0] != versions[1]
            },
            torch=" -> ".join(dict.fromkeys(filter(None, (found.torch for found in sides)))),
            labels={case: of_head[case].label for case in common},
            # The same code computes the same bits on one thread of a CPU.
            exact={
                case: of_head[case].params["device"] == "cpu"
                and self._threads(of_head[case].params) == {1}
                for case in common
            },
            only_base=tuple(
                case for case in of_base if case not in of_head and case not in unmeasurable
            ),
            only_head=tuple(
                case for case in of_head if case not in of_base and case not in unmeasurable
            ),
            changed=tuple(
                case
                for case in of_base
                if case in of_head and case not in common and case not in unmeasurable
            ),
            unmeasurable=unmeasurable,
            generated=tuple(
                sorted({name for tree in self._plan.trees.values() for name in tree.generated})
            ),
            left_out={side: listing[side].left_out for side in (BASE, HEAD)},
            files={side: listing[side].files for side in (BASE, HEAD)},
            one_sided=_one_sided(listing, versions_of, common),
            memory={
                case: {BASE: bytes_of_base, HEAD: bytes_of_head}
                for case in common
                if (bytes_of_base := of_base[case].memory) is not None
                and (bytes_of_head := of_head[case].memory) is not None
            },
            resident={side: listing[side].resident for side in (BASE, HEAD)},
            returned={case: types for case, types in returned.items() if case not in alike},
            sources={
                case: names
                for case in common
                if (names := differ(names=of_base[case].sources + of_head[case].sources))
            },
            remarks=(
                *(
                    text.format(", ".join(found))
                    for text, names, word in _REMARKS
                    if (found := differ(names, word=word))
                ),
                *([_ONE_HASH_SEED.format(seed)] if (seed := own_hash_seed(os.environ)) else []),
                *filter(None, [imports.remark(imported)]),
            ),
            notes={
                case: said
                for case in common
                if (said := _joined(of_base[case].note, of_head[case].note))
            },
            uncompared={
                case: said
                for case in alike
                if (said := _joined(of_base[case].uncompared, of_head[case].uncompared))
            },
            machine=machine,
            qualified=""
            if self._request.qualify
            else newest(self._request.storage / "gate", machine, common),
            shard=replace(shard, installed=versions_of) if shard.of > 1 else shard,
        )

    def _threads(self, params: Mapping[str, Any]) -> set[int]:
        """Return the numbers of threads of a case on the sides."""
        return {self._plan.threads(side) or params["threads"] for side in (BASE, HEAD)}

    def _launches_at_once(self, header: GateHeader, listing: Mapping[str, Listing]) -> int:
        """Return how many launches run at the same time.

        As many as cores and memory allow, at most MOST_AT_ONCE.
        """
        # Those of the base are equal.
        cases = [listing[HEAD].cases[case].params for case in header.labels]
        if any(params["device"] != "cpu" for params in cases) or self._plan.parallel.intersection(
            header.labels
        ):
            return 1
        by_cores = len(own_cores()) // max(max(self._threads(params)) for params in cases)
        of_a_launch = sum(found.resident for found in listing.values()) + 2 * TOUCHED_BYTES
        by_memory = available_bytes() // of_a_launch
        return int(max(1, min(MOST_AT_ONCE, by_cores, by_memory)))

    def _measure_again(self, measured: Recorded, flagged: Sequence[str]) -> None:
        """Measure flagged cases in fresh launches until a look settles the gate.

        If the budget allows for enough of them.
        """
        each = self._round_s(flagged)
        left = max(0.0, self._deadline - monotonic())
        least = self._least(measured, 2)
        needed = each * math.ceil(least / self._at_once)
        if left < needed:
            too_little = (
                f"the budget leaves {left:.0f} s, and {least} fresh launches take about "
                f"{needed:.0f} s; increase --budget"
            )
            self._progress.say(too_little)
            measured.end = End(too_little)
            return
        self._progress.say(
            f"measuring {units.counted(len(flagged), 'case')} again, in fresh launches"
        )
        shards = measured.header.shard.of
        left_looks = [look for look in looks(shards) if look >= least]
        for look in left_looks:
            is_complete = self._stage(measured, 2, look, flagged, each, self._deadline)
            if not is_complete or look == left_looks[-1]:
                return
            stages = quantities_of_stages(measured.launches)
            if is_settled(decide(*stages, self._request, self._seed, shards=shards), self._request):
                return
            self._progress.say(f"{look} fresh launches are not enough to decide")

    def _reproducers(self, measured: Recorded) -> tuple[Reproducer, ...]:
        """Write a script for each operation that was found slower."""
        found = slower_operations(
            measured.launches, self._request, self._seed, measured.header.shard.of
        )
        if not found:
            return ()
        self._progress.say("writing scripts that reproduce the slower operations")
        folder = self._request.reproducers or measured.path.with_name(
            measured.path.name.removesuffix(".jsonl.gz")
        )

        def described(
            wanted: Mapping[str, Sequence[Mapping[str, Any]]], values: Path
        ) -> dict[str, Mapping[str, Any]]:
            if monotonic() + self._loading_s > self._deadline:
                raise LaunchError("the budget leaves no time for it; increase --budget")
            return capture(self._plan, self._seed, wanted, values, self._log)

        return write_reproducers(measured.header, measured.launches, found, described, folder)

    def _least(self, measured: Recorded, stage: int) -> int:
        """Return the fewest launches of a stage that can be judged, or confirm a slowdown."""
        if self._request.qualify:
            return SIZE if stage == 1 else LIVE_LAUNCHES
        if stage == 1:
            return LEAST_LAUNCHES
        return least_fresh(
            sum(launch.stage == 1 for launch in measured.launches), measured.header.shard.of
        )

    def _stage(
        self,
        measured: Recorded,
        stage: int,
        count: int,
        cases: Sequence[str],
        each: float,
        deadline: float,
    ) -> bool:
        """Run launches up to a number of them, or until the next would exceed the deadline.

        Return whether all were run.

        Args:
            measured: receives the launches.
            stage: 1 or 2.
            count: number of launches, with those that this stage already has.
            cases: node ids of the cases to measure.
            each: estimated seconds of the first round; those of later ones are the mean of the
                earlier ones.
            deadline: time of the clock, in seconds.
        """
        durations = self._durations_s[stage]
        while (done := sum(launch.stage == stage for launch in measured.launches)) < count:
            if durations:
                each = self._round_s(cases) if stage == 1 else statistics.fmean(durations)
            # To judge: time reserved for fresh launches would be of no use.
            too_few = done < self._least(measured, stage)
            limit = self._deadline
            if not too_few:
                limit = max(deadline, self._for_fewer_fresh(done, each)) if stage == 1 else deadline
            if monotonic() + each > limit:
                used_up = (
                    f"the budget allowed {done} of {count} {'fresh ' if stage == 2 else ''}launches"
                )
                if too_few:
                    measured.end = End(used_up)
                self._progress.say(used_up)
                return False
            rounds = math.ceil((count - done) / self._at_once)
            left_s = each * rounds if durations or stage == 2 else None
            text = f"launch {done + 1} of {count}"
            round_began = monotonic()
            self._progress.step(text, left_s=left_s)
            begins = functools.partial(
                self._show_case, text, len(cases), round_began, each if left_s else None, rounds
            )
            self._round(measured, stage, min(self._at_once, count - done), cases, begins)
            durations.append(monotonic() - round_began)
            if stage == 1:
                done = len(self._spent)
                self._adjust(
                    measured.launches,
                    cases,
                    limit - monotonic(),
                    math.ceil((count - done) / self._at_once),
                )
        return True

    def _adjust(
        self, launches: Sequence[Launch], cases: Sequence[str], left_s: float, rounds: int
    ) -> None:
        """Plan the efforts of later launches.

        All are smaller by the same factor if so many rounds would take too long.
        """
        needed = planning.planned_efforts(
            launches, self._spent, self._request, self._request.shard.of
        )
        factor = 1.0
        self._plan = replace(self._plan, efforts=needed)
        while rounds * self._round_s(cases) > left_s and factor > planning.LEAST_EFFORT:
            factor *= 0.8
            self._plan = replace(
                self._plan,
                efforts={case: efforts.scaled(factor) for case, efforts in needed.items()},
            )

    def _round_s(self, cases: Sequence[str]) -> float:
        """Return the expected seconds of a round of launches with these cases.

        From those of the first stage so far.
        """
        measured = [
            case
            for case in cases
            if any(case in of for of in self._spent) and case not in self._unmeasurable
        ]
        start_s = statistics.fmean(self._durations_s[1]) - statistics.fmean(
            sum(spent.seconds for spent in of.values()) for of in self._spent
        )
        efforts = {
            case: Efforts(*self._plan.efforts.get(case, self._plan.effort)) for case in measured
        }
        return start_s + sum(
            statistics.fmean(
                of[case].with_efforts(efforts[case]) for of in self._spent if case in of
            )
            for case in measured
        )

    def _show_case(
        self, text: str, cases: int, began: float, each: float | None, rounds: int, number: int
    ) -> None:
        """Show which case a round measures.

        Until a round has ended, the first tenth of the cases gives its time.
        """
        done = (number - 1) / cases
        each = (monotonic() - began) / done if each is None and done >= 0.1 else each
        self._progress.step(
            f"{text}, case {number} of {cases}", log="", left_s=each and each * (rounds - done)
        )

    def _for_fewer_fresh(self, done: int, each: float) -> float:
        """Return the deadline of the first stage if fewer fresh launches suffice, else 0.

        They suffice if more launches of it are made.

        After 8 or 9 launches 8 fresh ones are needed, after 10 only 4: together those are fewer.
        """
        fewest = min(looks(shards := self._request.shard.of))
        return (
            self._deadline - each * math.ceil(fewest / self._at_once)
            if least_fresh(done, shards) > fewest
            else 0.0
        )

    def _round(
        self,
        measured: Recorded,
        stage: int,
        count: int,
        cases: Sequence[str],
        begins: Callable[[int], None],
    ) -> None:
        """Run launches at the same time, on different cores.

        Raises:
            LaunchError: a side cannot be measured, or earlier launches have found none of the cases
                again.
        """
        cases = [case for case in cases if case not in self._unmeasurable]
        if not cases:
            raise LaunchError(
                "no case is left to be measured: "
                f"{'; '.join(reasons_with_cases(self._unmeasurable))}"
            )
        seeds = [self._seed + len(measured.launches) + number for number in range(1, count + 1)]
        cores = own_cores()
        random.Random(seeds[0]).shuffle(cores)  # noqa: S311  # no secret
        plan = replace(self._plan, added=LIVE) if stage == LONGER else self._plan
        with ThreadPoolExecutor() as threads, ExitStack() as running:
            launches = [
                running.enter_context(
                    launching(
                        plan,
                        seed,
                        cases,
                        self._log.with_name(f"{self._log.name}{slot}"),
                        cores[slot::count],
                    )
                )
                for slot, seed in enumerate(seeds)
            ]
            for launch in launches:
                launch.ready()
            # The launches of a round measure equally many cases.
            shown = [begins, *[None] * (count - 1)]
            for future in list(map(threads.submit, [launch.measure for launch in launches], shown)):
                line = {"stage": stage, **future.result()}
                checked, spent = _checked(line)
                measured.launches.append(checked)
                self._unmeasurable |= checked.unmeasurable
                raw_samples.append(measured.path, line)
                if stage == 1:
                    self._spent.append(spent)


def _one_sided(
    listing: Mapping[str, Listing], versions_of: Mapping[str, tuple[str, str]], cases: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return what one side lacks of the packages that the tests of the other one import.

    By case, or for ALL_CASES.
    """
    found: dict[str, list[str]] = defaultdict(list)
    compiled = {side: listing[side].has_compiled_loops for side in (BASE, HEAD)}
    differs = None not in compiled.values() and compiled[BASE] != compiled[HEAD]
    for case in cases if differs else ():
        if listing[HEAD].cases[case].params.get("step") == FAST:
            package = f"{_COMPILER} {_changed_version(versions_of.get(_COMPILER, ('', '')))}"
            lacking = HEAD if compiled[BASE] else BASE
            found[case].append(
                f"{package}, so the fast step runs without compiled loops in the {lacking}"
            )
    for name, (of_base, of_head) in versions_of.items():
        having = HEAD if of_head else BASE
        is_said = differs and name == _COMPILER
        if not (of_base and of_head) and name in listing[having].loaded and not is_said:
            found[words.ALL_CASES].append(f"{name} {_changed_version((of_base, of_head))}")
    return {case: tuple(texts) for case, texts in found.items()}


def _changed_version(versions: tuple[str, str]) -> str:
    """Return the versions of both sides: ``1.0 -> not installed``, or one if they are equal."""
    return " -> ".join(dict.fromkeys(version or "not installed" for version in versions))


def _joined(of_base: str, of_head: str) -> str:
    """Return what the surveys say about a case: once if both say the same, else with the sides."""
    if of_base == of_head:
        return of_base
    return "; ".join(
        f"in the {side}: {text}" for side, text in ((BASE, of_base), (HEAD, of_head)) if text
    )


def _checked(line: Mapping[str, Any]) -> tuple[Launch, Mapping[str, Spent]]:
    """Return a launch and what it spent by case.

    Checked before it is written, as a bad line makes the file unreadable.
    """
    try:
        reader = Reader(line)
        spent = dict[str, Spent]()
        for case, seconds in reader["case_seconds"].read(Mapping[str, float]).items():
            timed, profiled, *parts_s = reader["efforts"][case].read(
                tuple[float, float, float, float]
            )
            spent[case] = Spent(seconds, Efforts(timed, profiled), *parts_s)
        return reader.read(Launch), spent
    except RecordError as error:
        raise LaunchError(f"the result of a launch cannot be used: {error}") from None


def _parameters(listing: Listing) -> dict[str, str]:
    """Return the hash of what each case is parametrized with: node id -> hash."""
    return {node_id: case.parameters for node_id, case in listing.cases.items()}


def _no_cases(side: str, what: str, plan: Plan, listing: Mapping[str, Listing]) -> str:
    other = BASE if side == HEAD else HEAD
    selection = " ".join(plan.arguments) or "the whole project"
    left_out = next((f" ({node_id} {why})" for node_id, why in listing[side].left_out.items()), "")
    missing = listing[side].missing
    which = (
        f"{missing[0]}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}"
        if missing
        else ""
    )
    if listing[other].cases and which and side == HEAD:
        return f"head ({what}) does not have {which}; name tests that both sides have after --"
    if listing[other].cases and side == BASE and not listing[side].left_out:
        lacking = f"does not have {which}" if which else f"has no case in {selection}"
        selecting = f" -- {shlex.join(plan.arguments)}" if plan.arguments else ""
        return (
            f"base ({what}) {lacking}, so all benchmarks are new, and there is nothing to compare "
            "with; add --allow-missing to pass, or measure them alone: mnistbench gate "
            f"--qualify{selecting}"
        )
    if listing[other].cases:
        return (
            f"{side} ({what}) has no case in {selection}: no test there uses benchmark or "
            f"op_benchmark, or its mnistbench is too old for the gate{left_out}; choose another "
            "base, or other tests after --"
        )
    if unmeasurable := listing[other].unmeasurable:
        return f"no case can be measured: {'; '.join(reasons_with_cases(unmeasurable))}"
    return (
        f"no case in {selection}{left_out}: select tests that use the fixture benchmark or "
        "op_benchmark after --"
    )


def _new_file(storage: Path, prefix: str = "") -> Path:
    """Return the path of a file that does not exist yet."""
    folder = storage / "gate"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--storage: {folder} cannot be written ({error.strerror}); name another folder"
        ) from None
    stamp = datetime.now(UTC).strftime("%Y%m%d_%H%M%S")
    for number in range(100):
        path = folder / f"{prefix}{stamp}{f'_{number}' if number else ''}.jsonl.gz"
        if not path.exists():
            return path
    raise UsageError(f"{folder}: has 100 files of this second; run the gate again")
