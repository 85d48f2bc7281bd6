"""Survey both sides before anything is timed: their cases, and the header of the samples."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from mnistbench.core import units
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.machine import cpu_model, own_cores, usable_cpus
from mnistbench.core.options import options_of
from mnistbench.gate.copies import trees
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
from mnistbench.gate.options import OWN_TESTS, GateOptions, Thresholds
from mnistbench.gate.processes.messages import Efforts, Selection, Surveys
from mnistbench.gate.processes.sides import stray
from mnistbench.gate.processes.starting import (
    GateError,
    Setup,
    TrialPlan,
    own_hash_seed,
    running_trial,
    shared_places,
)
from mnistbench.gate.samples.raw_samples import FIRST_STAGE, GateHeader, Shard, Trial
from mnistbench.gate.survey.carried import (
    CarriedFiles,
    cases_of,
    changed_benchmarks,
    head_benchmarks,
)
from mnistbench.gate.survey.folders import folders_with_cases
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.survey.reach.dependencies import differing_dependencies
from mnistbench.gate.survey.reach.narrowing import Narrowing
from mnistbench.gate.survey.side_surveys import (
    SurveyRequest,
    SurveyResult,
    collect_again,
    neither_side_has,
    survey_in_processes,
)
from mnistbench.gate.words import BASE, HEAD
from mnistbench.measuring.calls import NEEDS_CODSPEED
from mnistbench.showing.progress import Progress

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


@dataclass(frozen=True)
class SurveyedSides:
    """What is known of both sides before anything is timed."""

    plan: TrialPlan
    code: ComparedCode
    header: GateHeader  # of the samples


def survey_sides(
    options: GateOptions,
    setup: Setup,
    longest_call_s: float,
    here: Path,
    seed: int,
    log: Path,
    progress: Progress,
) -> SurveyedSides:
    """Survey each side alone, and choose the cases to measure.

    Args:
        options: of the gate.
        setup: of its processes.
        longest_call_s: a case whose first call takes longer is left out, seconds; 0: none is.
        here: folder of the working tree.
        seed: of the surveys.
        log: for the output of the processes.
        progress: shows each step.

    Raises:
        GateError: a side cannot be loaded, or there is nothing to compare.
    """
    say = progress.say
    _check_paths(setup, options.pytest)
    _check_paths(setup, options.paths)
    say("loading both sides")
    # Before tests write files into the trees.
    differing = trees.all_differing(tuple(setup.trees.values()))
    request = SurveyRequest(
        setup=setup,
        selection=Selection(options.pytest),
        paths=options.paths
        or folders_with_cases(*(setup.trees[side].directory for side in (BASE, HEAD))),
        only=options.only,
        follows_code=not options.all_cases,
        differing=differing,
        longest_call_s=longest_call_s,
        shard=options.shard,
    )
    surveyed = survey_in_processes(request, seed, log, shows=_shown_tests(progress))
    surveyed = _with_benchmarks_of_head(options.tests, surveyed, seed, log, progress)
    request = surveyed.request
    surveys = surveyed.surveys
    plan = surveyed.trial_plan()
    _check_shard(request.shard)
    sides = _without_unstable(plan, request.shard, surveys.listings, seed, log, say)
    _check_cases(options, request, sides)
    _check_common(request.shard, sides)
    reached = Reach()
    code = _code(surveyed)
    if request.follows_code:
        of_all = tuple(_differences_for_all(options, sides))

        def again(cases: Sequence[str]) -> Surveys:
            again = replace(request, paths=(), only=cases)
            return survey_in_processes(again, seed, log, shows=_shown_tests(progress)).surveys

        def short_trial(cases: Sequence[str]) -> Trial | None:
            return _short_trial(plan, seed, log, cases)

        reached = Narrowing(sides, code, of_all, again, short_trial, say).reach()
        sides = sides.without(reached.same.keys())
        if reached.same:
            measured = len(sides.common)
            say(f"{measured} of {measured + len(reached.same)} cases are affected")
    header = _header(options, request, here, seed, surveys, sides, reached)
    return SurveyedSides(plan, code, header)


def _code(surveyed: SurveyResult) -> ComparedCode:
    surveys = surveyed.surveys
    request = surveyed.request
    return ComparedCode(request.setup.trees, surveys.imports, surveys.followed, request.differing)


def _with_benchmarks_of_head(
    tests: str | None, first: SurveyResult, seed: int, log: Path, progress: Progress
) -> SurveyResult:
    """Survey again with benchmarks of the head on both sides, if there are any to carry.

    By itself, a file is carried only if the base can run all the cases that it ran before; if it
    cannot be surveyed with it, each side runs its own.

    Raises:
        GateError: a side cannot be loaded with the benchmarks of the head, which were asked for.
    """
    if tests == OWN_TESTS:
        return first
    code = _code(first)
    cases = first.surveys.listings.head.cases.keys()
    names = set(head_benchmarks(code) if tests == HEAD else changed_benchmarks(code, cases))
    carried = CarriedFiles(code)
    ran_before = first.surveys.listings.base.cases.keys()
    while names:
        carried.carry(names)
        progress.say(f"surveying both sides with the head's {units.and_more(carried.names)}")
        request = replace(
            first.request,
            differing=[name for name in first.request.differing if name not in carried.names],
            carried=carried.names,
            limit_s=first.limit_s,
        )
        try:
            second = survey_in_processes(request, seed, log, shows=_shown_tests(progress))
        except GateError as error:
            carried.take_back()
            if tests == HEAD:
                raise
            progress.say(f"each side runs its own benchmarks: {error}")
            return first
        base = second.surveys.listings.base
        lost = [] if tests == HEAD else [case for case in ran_before if case not in base.cases]
        if not lost:
            # What cannot even be collected would end each trial.
            carried.take_back([name for name in carried.names if _is_named(name, base.cannot_run)])
            second = replace(second, request=replace(request, carried=carried.names))
            return _without_lost(second, first) if tests == HEAD else second
        kept = {name for name in names if not any(cases_of(name, lost))}
        names = kept if len(kept) < len(names) else set()
        carried.take_back()
    return first


def _is_named(name: str, cannot_run: Mapping[str, str]) -> bool:
    return any(cases_of(name, [node_id for node_id in cannot_run if "::" not in node_id]))


def _without_lost(surveyed: SurveyResult, before: SurveyResult) -> SurveyResult:
    """Say which cases the base has in its own benchmarks alone."""
    listings = surveyed.surveys.listings
    lost = before.surveys.listings.base.cases.keys() - listings.base.cases.keys()
    left_out = {
        **listings.base.left_out,
        **dict.fromkeys(sorted(lost), "is in the base's own benchmarks alone"),
    }
    base = replace(listings.base, left_out=left_out)
    surveys = replace(surveyed.surveys, listings=Listings(base, listings.head))
    return replace(surveyed, surveys=surveys)


# ---- Which cases there are -----------------------------------------------------------------------


def _check_shard(shard: Shard) -> None:
    number = len(shard.tests)
    if shard.of > number > 0:
        remedy = (
            f"give {number} or fewer"
            if number > 1
            else "a single test cannot be divided, so remove --shard"
        )
        raise UsageError(
            f"--shard: {shard} are more parts than there are tests ({number}); {remedy}"
        )


def _without_unstable(
    plan: TrialPlan,
    shard: Shard,
    sides: Listings,
    seed: int,
    log: Path,
    say: Callable[[str], None],
) -> Listings:
    """Take cases from the listings that another process of the same side does not find.

    These have no counterpart on the other side, or belong to other parameters there, so the tests
    are collected again only if there are such ids. Ids that depend on the hash seed, which both
    sides share, are found by the first trials.
    """
    base = sides.base.cases
    head = sides.head.cases
    suspected = without_counterpart(base, head)
    if shard.of > 1:  # another shard may have the counterpart
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


def _check_paths(setup: Setup, arguments: Sequence[str]) -> None:
    """Check that one of the sides has each file and folder that is named.

    Without one that exists, pytest would load the whole project and report its first error.
    """
    if "--pyargs" in arguments:
        return
    for before, argument in itertools.pairwise(("", *arguments)):
        path, _, _ = argument.partition("[")[0].partition("::")
        # After an option it may be the option's value; @ names a file with arguments.
        is_path = not argument.startswith(("-", "@")) and not before.startswith("-")
        if is_path and not any((tree.directory / path).exists() for tree in setup.trees.values()):
            raise GateError(neither_side_has(argument))


def _check_cases(options: GateOptions, request: SurveyRequest, sides: Listings) -> None:
    """Check that each side has a case, unless all of the head are new and may be."""
    has_only_new = sides.head.cases and not sides.base.left_out
    is_tried = bool(request.carried or sides.base.cannot_run)
    for side in (BASE, HEAD):
        has_cases = sides[side].cases or sides[side].not_measured
        may_be_empty = side == BASE and has_only_new and (options.allow_missing or is_tried)
        if not has_cases and not request.shard.tests and not may_be_empty:
            raise GateError(_no_cases(side, request, sides))


def _no_cases(side: str, request: SurveyRequest, sides: Listings) -> str:
    """Return why a side has no case, and what to do."""
    tree = request.setup.trees[side].what
    arguments = request.selection.arguments
    listing = sides[side]
    other_listing = sides[BASE if side == HEAD else HEAD]
    selection = " ".join(arguments) or "the whole project"
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
        selecting = f" -- {shlex.join(arguments)}" if arguments else ""
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


def _check_common(shard: Shard, sides: Listings) -> None:
    """Check that there are cases to compare, and that they can be run."""
    if not sides.common and not sides.are_all_new and not shard.tests:
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


#: Efforts of a trial that only repeats a quick look.
_SHORT = Efforts(0.1, 0.02)


def _short_trial(plan: TrialPlan, seed: int, log: Path, cases: Sequence[str]) -> Trial | None:
    """Measure some cases for a short time, both sides in turn; None if that fails."""
    cores = own_cores()
    try:
        with running_trial(plan, seed, cases, log, cores, efforts=_SHORT, in_order=True) as trial:
            trial.ready()
            return Trial.from_line(trial.measure().line(FIRST_STAGE))
    except (GateError, RecordError):
        return None


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


# ---- The header ----------------------------------------------------------------------------------


def _header(
    options: GateOptions,
    request: SurveyRequest,
    here: Path,
    seed: int,
    surveys: Surveys,
    sides: Listings,
    reached: Reach,
) -> GateHeader:
    commit, has_changes = trees.head_of(here)
    head = f"{commit}{' with changes' if has_changes else ''}" if commit else str(here)
    setup = request.setup
    copies = tuple(setup.trees.values())
    sources = {
        name
        for node_id in sides.common
        for listing in (sides.base, sides.head)
        for name in listing.cases[node_id].sources
    }
    return GateHeader(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        base=setup.trees[BASE].what if options.base else head,
        head=head,
        arguments=request.selection.arguments,
        seed=seed,
        sides=sides,
        variables=setup.variables,
        differing=trees.differing(copies, names=sources),
        carried=tuple(request.carried),
        generated=tuple(sorted({name for tree in copies for name in tree.generated})),
        remarks=tuple(_remarks(surveys, request)),
        machine=f"{cpu_model()}, {usable_cpus()} cores",
        shard=request.shard,
        reach=reached,
        base_rule=options.base_rule,
        thresholds={
            name: value for name in options_of(Thresholds) if (value := getattr(options, name))
        },
    )


def _remarks(surveys: Surveys, request: SurveyRequest) -> Iterable[str]:
    """Yield what a reader has to know of the sides."""
    if files := differing_dependencies(request.differing, request.setup.trees):
        yield _OTHER_DEPENDENCIES.format(", ".join(files))
    copies = tuple(request.setup.trees.values())
    if files := trees.differing(copies, "*.py", word=_SETTING_THREADS):
        yield _OTHER_THREADS.format(", ".join(files))
    if seed := own_hash_seed(os.environ):
        yield _ONE_HASH_SEED.format(seed)
    if remark := stray.remark(surveys.imports):
        yield remark
    written = [path for side in surveys.followed.values() for path in side.written]
    shared = [
        place
        for place in shared_places(request.setup)
        if any(path.startswith(f"{place}{os.sep}") for path in written)
    ]
    if shared:
        yield (
            f"both sides write files below {units.and_so_on(shared)}, so one may find what the "
            "other has written; give each side its own folder with --base-env and --head-env"
        )
