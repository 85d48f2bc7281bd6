"""Survey both sides before anything is timed: their cases, and the header of the samples."""

from __future__ import annotations

import itertools
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mnistbench.core import units
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.machine import cpu_model, own_cores, usable_cpus
from mnistbench.core.options import options_of
from mnistbench.gate.copies import trees
from mnistbench.gate.decide.statistics.raw_samples import FIRST_STAGE, GateHeader, Shard, Trial
from mnistbench.gate.listing import (
    Listing,
    Listings,
    Reach,
    change_of_versions,
    moved,
    name_of_test,
    reasons_with_cases,
    unstable,
    without_counterpart,
)
from mnistbench.gate.options import GateOptions, Thresholds
from mnistbench.gate.processes.messages import (
    CollectJob,
    Efforts,
    Selected,
    Surveyed,
    SurveyJob,
    Surveys,
)
from mnistbench.gate.processes.sides import stray
from mnistbench.gate.processes.starting import (
    MIN_SILENCE_S,
    GateError,
    LoadingError,
    Plan,
    SideProcess,
    check_imports,
    own_hash_seed,
    running_trial,
    shared_places,
    side_processes,
)
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.survey.reach.dependencies import differing_dependencies
from mnistbench.gate.survey.reach.narrowing import Narrowing
from mnistbench.gate.words import BASE, HEAD
from mnistbench.measuring.calls import NEEDS_CODSPEED
from mnistbench.showing.progress import Progress

#: Measured by default: the cases of this folder with the phase ``sides.survey.DEFAULT_PHASE``.
DEFAULT_FOLDER = "bench"

#: After the survey a process may be silent for this multiple of the longest step that was surveyed
#: (loading, or a test with a few calls; of the base for the head's survey, of both sides for a
#: trial). A side waits half as long for its peer, so the error names the side that hangs.
SILENCE_FACTOR = 30.0

#: Most cases of a side that an error names.
_NAMED = 3

#: Remark about files with dependencies that differ.
_OTHER_DEPENDENCIES = (
    "the sides may have other dependencies ({}), which the gate does not install; name other "
    "versions with --head-with"
)
#: Remark about Python files of which lines with this word differ.
_OTHER_THREADS = (
    "the sides set other numbers of threads ({}), which count in the body of a plain test; "
    "elsewhere OMP_NUM_THREADS does"
)
_SETTING_THREADS = b"_num_threads("

#: Remark if the user's environment has a hash seed.
_ONE_HASH_SEED = (
    "all trials have PYTHONHASHSEED={} of your environment, so the order of sets is the same in "
    "each of them"
)


def survey_sides(
    options: GateOptions, plan: Plan, here: Path, seed: int, log: Path, progress: Progress
) -> tuple[Plan, ComparedCode, GateHeader]:
    """Survey each side alone.

    Return the completed plan, the code of both sides, and the header of the samples.

    Raises:
        GateError: a side cannot be loaded, or there is nothing to compare.
    """
    say = progress.say
    _check_paths(plan)
    say("loading both sides")
    # Before tests write files into the trees.
    differing = trees.all_differing(tuple(plan.trees.values()))
    has_default = (plan.trees[HEAD].directory / DEFAULT_FOLDER).is_dir()
    plan, surveys = survey_in_processes(
        replace(plan, differing=differing),
        seed,
        DEFAULT_FOLDER if has_default else "",
        log,
        shows=_shown_tests(progress),
    )
    _check_shard(plan)
    sides = _without_unstable(plan, surveys.listings, seed, log, say)
    _check_cases(options, plan, sides)
    _check_common(plan, sides)
    reached = Reach()
    code = ComparedCode(plan.trees, surveys.imports, surveys.followed, differing)
    if plan.follows_code:
        of_all = tuple(_differences_for_all(options, sides))

        def again(cases: Sequence[str]) -> Surveys:
            shows = _shown_tests(progress)
            return survey_in_processes(plan, seed, "", log, cases, shows=shows)[1]

        def short_trial(cases: Sequence[str]) -> Trial | None:
            return _short_trial(plan, seed, log, cases)

        reached = Narrowing(sides, code, of_all, again, short_trial, say).reach()
        sides = sides.without(reached.same.keys())
        if reached.same:
            measured = len(sides.common)
            say(f"{measured} of {measured + len(reached.same)} cases are affected")
    return plan, code, _header(options, plan, here, seed, surveys, sides, reached)


# ---- The processes of both sides -----------------------------------------------------------------


def survey_in_processes(
    plan: Plan,
    seed: int,
    folder: str,
    log: Path,
    only: Sequence[str] = (),
    *,
    shows: Callable[[int, int], None] | None = None,
) -> tuple[Plan, Surveys]:
    """Load each side in a process of its own, both at the same time.

    Return the completed plan and what they have found.

    The head's pytest decides which of the user's arguments are paths. If there is none, ``folder``
    is measured; if that is empty, the whole project. A survey of some cases alone (``only``) has
    the plan that an earlier one has completed. ``shows`` gets the number of each test that begins
    on a side, and that of all.

    Raises:
        GateError: a side cannot be loaded.
    """
    is_first = not only
    wanted: dict[str, Any] = {
        "only": only or plan.only or None,
        "is_shard": is_first and plan.shard.of > 1,
        "follows_code": plan.follows_code,
        "longest_call_s": plan.longest_call_s,
        "differing": plan.differing if plan.follows_code else (),
    }
    with side_processes(plan, seed, log) as processes, _loading_of_both(processes):
        base = processes[BASE]
        head = processes[HEAD]
        base.begins = head.begins = shows
        head.begin(SurveyJob(**plan.job(HEAD, seed), selects=is_first, folder=folder, **wanted))
        if is_first:
            selected = head.receive("selected", Selected)
            plan = replace(plan, arguments=selected.arguments, phases=selected.phases)
        base.begin(SurveyJob(**plan.job(BASE, seed), **wanted))
        if is_first and plan.shard.of > 1:
            plan = replace(plan, shard=_completed(plan.shard, [base, head]))
        base_survey = base.receive("surveyed", Surveyed)
        limit_s = max(MIN_SILENCE_S, SILENCE_FACTOR * base_survey.longest_s)
        head_survey = head.receive("surveyed", Surveyed, limit_s)
        limit_s = max(limit_s, SILENCE_FACTOR * head_survey.longest_s)
    listings = Listings(base_survey.listing, head_survey.listing)
    for argument in listings.base.missing:
        if argument in listings.head.missing:
            raise GateError(_neither_side_has(argument))
    imports = {BASE: base_survey.imports, HEAD: head_survey.imports}
    check_imports(plan, imports)
    sides = {BASE: listings.base, HEAD: listings.head}
    plan = replace(
        plan,
        frameworks=tuple(name for name in sides[BASE].frameworks if name in sides[HEAD].frameworks),
        parallel=frozenset(
            node_id
            for listing in sides.values()
            for node_id, case in listing.cases.items()
            if case.parallel
        ),
        parameters={side: listing.parameters for side, listing in sides.items()},
        touched_bytes=listings.touched_bytes,
        limit_s=limit_s,
    )
    followed = {BASE: base_survey.followed, HEAD: head_survey.followed}
    return plan, Surveys(listings, imports, followed)


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


def _shown_tests(progress: Progress) -> Callable[[int, int], None]:
    """Return what shows the number of a test that begins, of the side that is ahead."""
    largest = 0

    def show(number: int, of: int) -> None:
        nonlocal largest
        if number > largest:
            text = f"surveying {units.counted(of, 'test')}" if number == 1 else ""
            progress.step(f"surveying test {number} of {of}", log=text)
            largest = number

    return show


def _completed(shard: Shard, processes: Sequence[SideProcess]) -> Shard:
    """Give a shard the tests that the processes have collected, and them those of the shard."""
    tests = {
        test for process in processes for test in process.receive("collected", tuple[str, ...])
    }
    shard = replace(shard, tests=tuple(sorted(tests)))
    for process in processes:
        process.child.tell(json.dumps(shard.own()))
    return shard


def collect_again(plan: Plan, seed: int, log: Path) -> dict[str, Mapping[str, str]]:
    """Collect the tests of each side in another process.

    Return those of each side, with the hash of their parameters.

    Raises:
        GateError: a side cannot be loaded.
    """
    with side_processes(plan, seed, log) as processes:
        for side, process in processes.items():
            process.begin(CollectJob(**plan.job(side, seed)))
        tests: Any = Mapping[str, str]
        return {
            side: process.receive("collected", tests, plan.limit_s)
            for side, process in processes.items()
        }


#: Efforts of a trial that only repeats a quick look.
_SHORT = Efforts(0.1, 0.02)


def _short_trial(plan: Plan, seed: int, log: Path, cases: Sequence[str]) -> Trial | None:
    """Measure some cases for a short time, both sides in turn; None if that fails."""
    short = replace(plan, efforts=_SHORT)
    try:
        with running_trial(short, seed, cases, log, own_cores(), in_order=True) as trial:
            trial.ready()
            return Trial.from_line(trial.measure().line(FIRST_STAGE))
    except (GateError, RecordError):
        return None


# ---- Which cases there are -----------------------------------------------------------------------


def _check_shard(plan: Plan) -> None:
    number = len(plan.shard.tests)
    if plan.shard.of > number > 0:
        remedy = (
            f"give {number} or fewer"
            if number > 1
            else "a single test cannot be divided, so remove --shard"
        )
        raise UsageError(
            f"--shard: {plan.shard} are more parts than there are tests ({number}); {remedy}"
        )


def _without_unstable(
    plan: Plan, sides: Listings, seed: int, log: Path, say: Callable[[str], None]
) -> Listings:
    """Take cases from the listings that another process of the same side does not find.

    These have no counterpart on the other side, or belong to other parameters there, so the tests
    are collected again only if there are such ids. Ids that depend on the hash seed, which both
    sides share, are found by the first trials.
    """
    base = sides.base.cases
    head = sides.head.cases
    suspected = without_counterpart(base, head)
    if plan.shard.of > 1:  # another shard may have the counterpart
        suspected = {node_id for node_id in base.keys() ^ head.keys() if node_id.endswith("]")}
    suspected |= moved(sides.base.parameters, sides.head.parameters)
    if not suspected:
        return sides
    say("collecting the tests again, because their ids or parameters differ between the sides")
    again = collect_again(plan, seed + 1, log)
    differing = {
        node_id: why
        for side in (BASE, HEAD)
        for node_id, why in unstable(
            suspected.intersection(sides[side].cases), sides[side].parameters, again[side]
        ).items()
    }
    return Listings(_left_out(sides.base, differing), _left_out(sides.head, differing))


def _left_out(listing: Listing, differing: Mapping[str, str]) -> Listing:
    """Move cases to those that cannot be measured; another process has no such ids."""
    tests = {
        f"{name_of_test(node_id)}[...]": why
        for node_id, why in differing.items()
        if node_id in listing.cases
    }
    unmeasurable = {**listing.unmeasurable, **tests}
    return replace(listing.without(differing.keys()), unmeasurable=unmeasurable)


def _check_paths(plan: Plan) -> None:
    """Check that one of the sides has each file and folder that is named after ``--``.

    Without one that exists, pytest would load the whole project and report its first error.
    """
    if "--pyargs" in plan.arguments:
        return
    for before, argument in itertools.pairwise(("", *plan.arguments)):
        path, _, _ = argument.partition("[")[0].partition("::")
        # After an option it may be the option's value; @ names a file with arguments.
        is_path = not argument.startswith(("-", "@")) and not before.startswith("-")
        if is_path and not any((tree.directory / path).exists() for tree in plan.trees.values()):
            raise GateError(_neither_side_has(argument))


def _neither_side_has(argument: str) -> str:
    return f"neither side has {argument}; name files and tests that exist"


def _check_cases(options: GateOptions, plan: Plan, sides: Listings) -> None:
    """Check that each side has a case, unless all of the head are new and may be."""
    has_only_new = sides.head.cases and not sides.base.left_out
    for side in (BASE, HEAD):
        has_cases = sides[side].cases or sides[side].not_measured
        may_be_empty = side == BASE and has_only_new and options.allow_missing
        if not has_cases and not plan.shard.tests and not may_be_empty:
            raise GateError(_no_cases(side, plan, sides))


def _no_cases(side: str, plan: Plan, sides: Listings) -> str:
    """Return why a side has no case, and what to do."""
    tree = plan.trees[side].what
    listing = sides[side]
    other_listing = sides[BASE if side == HEAD else HEAD]
    selection = " ".join(plan.arguments) or "the whole project"
    left_out = next((f" ({node_id} {why})" for node_id, why in listing.left_out.items()), "")
    missing = listing.missing
    more_missing = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    missing_names = f"{missing[0]}{more_missing}" if missing else ""
    if other_listing.cases and missing_names and side == HEAD:
        return (
            f"head ({tree}) does not have {missing_names}; name tests that both sides have after --"
        )
    if other_listing.cases and side == BASE and not listing.left_out:
        lacks = f"does not have {missing_names}" if missing else f"has no case in {selection}"
        selecting = f" -- {shlex.join(plan.arguments)}" if plan.arguments else ""
        return (
            f"base ({tree}) {lacks}, so all benchmarks are new, and there is nothing to compare "
            "with; add --allow-missing to pass, or measure them alone: mnistbench gate "
            f"--qualify{selecting}"
        )
    if other_listing.cases:
        return (
            f"{side} ({tree}) has no case in {selection}: no test there uses benchmark or "
            f"op_benchmark, or its mnistbench is too old for the gate{left_out}; choose another "
            "base, or other tests after --"
        )
    if other_listing.not_measured:
        reasons = "; ".join(reasons_with_cases(other_listing.not_measured))
        return f"no case can be measured: {reasons}"
    if listing.left_out and {*listing.left_out.values()} == {NEEDS_CODSPEED}:
        first, *others = listing.left_out
        more = f"; {units.counted(len(others), 'more test')} with it" if others else ""
        return f"no case in {selection}: {first} {NEEDS_CODSPEED}{more}"
    return (
        f"no case in {selection}{left_out}: select tests that use the fixture benchmark or "
        "op_benchmark after --"
    )


def _check_common(plan: Plan, sides: Listings) -> None:
    """Check that there are cases to compare, and that they can be run."""
    if not sides.common and not sides.are_all_new and not plan.shard.tests:
        if sides.unmeasurable:
            reasons = "; ".join(reasons_with_cases(sides.unmeasurable))
            raise GateError(f"no case can be measured: {reasons}")
        base = ", ".join(list(sides.base.cases)[:_NAMED])
        head = ", ".join(list(sides.head.cases)[:_NAMED])
        raise GateError(
            f"no case in common: the base has {base}, the head {head}; cases with other node ids "
            "are not compared: if a file or a test was renamed, compare with a commit that has the "
            "new name"
        )


# ---- Which cases are affected --------------------------------------------------------------------


def _differences_for_all(options: GateOptions, sides: Listings) -> Iterable[str]:
    """Yield what differs between the sides beside their trees."""
    if options.pythons[BASE] != options.pythons[HEAD]:
        yield "the sides have other interpreters"
    if any(options.variables.values()):
        yield "the sides have other environment variables"
    for name, (base, head) in sides.packages.items():
        yield f"the sides have other packages: {name} {change_of_versions(base, head)}"
    if imported_by_one := sorted({*sides.base.loaded} ^ {*sides.head.loaded}):
        yield f"one side alone imports {', '.join(imported_by_one)}"
    if sides.base.cpu != sides.head.cpu:
        yield "the sides use other instructions of the processor"


# ---- The header ----------------------------------------------------------------------------------


def _header(
    options: GateOptions,
    plan: Plan,
    here: Path,
    seed: int,
    surveys: Surveys,
    sides: Listings,
    reached: Reach,
) -> GateHeader:
    commit, has_changes = trees.head_of(here)
    head = f"{commit}{' with changes' if has_changes else ''}" if commit else str(here)
    copies = tuple(plan.trees.values())
    sources = {
        name
        for node_id in sides.common
        for listing in (sides.base, sides.head)
        for name in listing.cases[node_id].sources
    }
    return GateHeader(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        base=plan.trees[BASE].what if options.base else head,
        head=head,
        arguments=plan.arguments,
        seed=seed,
        sides=sides,
        variables=plan.variables,
        differing=trees.differing(copies, names=sources),
        generated=tuple(sorted({name for tree in copies for name in tree.generated})),
        remarks=tuple(_remarks(surveys, plan)),
        machine=f"{cpu_model()}, {usable_cpus()} cores",
        shard=plan.shard,
        reach=reached,
        thresholds={name: getattr(options, name) for name in options_of(Thresholds)},
    )


def _remarks(surveys: Surveys, plan: Plan) -> Iterable[str]:
    """Yield what a reader has to know of the sides."""
    if files := differing_dependencies(plan.differing, plan.trees):
        yield _OTHER_DEPENDENCIES.format(", ".join(files))
    copies = tuple(plan.trees.values())
    if files := trees.differing(copies, "*.py", word=_SETTING_THREADS):
        yield _OTHER_THREADS.format(", ".join(files))
    if seed := own_hash_seed(os.environ):
        yield _ONE_HASH_SEED.format(seed)
    if remark := stray.remark(surveys.imports):
        yield remark
    written = [path for side in surveys.followed.values() for path in side.written]
    shared = [
        place
        for place in shared_places(plan)
        if any(path.startswith(f"{place}{os.sep}") for path in written)
    ]
    if shared:
        yield (
            f"both sides write files below {units.and_so_on(shared)}, so one may find what the "
            "other has written; give each side its own folder with --base-env and --head-env"
        )
