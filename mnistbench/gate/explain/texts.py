"""What a report says of the functions of profiled cases.

The line of a finding with its probable cause, and which functions are called more or less often.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mnistbench.core import units
from mnistbench.core.operation import CALLS, NO_MODULE, OpKey
from mnistbench.gate.decide.verdict.findings import GateFinding
from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.explain.attribution import MIN_SHARE, CallCounts, Cause, Causes, causes
from mnistbench.gate.explain.other_changes import of_reasons
from mnistbench.gate.samples.case_profile import (
    COMPILED,
    FILE,
    FIXTURE,
    FUNCTION,
    GRAPH,
    IMPORT,
    PACKAGE,
    STATEMENT,
    VARIABLE,
    CaseProfile,
    OtherChange,
    ProfiledFunction,
)
from mnistbench.gate.survey.reach.differences import CHANGED
from mnistbench.gate.words import IMPORT as IMPORT_COST
from mnistbench.judging.exact import BothCounts, Counts, arrow, operation_differences
from mnistbench.judging.verdicts import IMPROVED

#: Beginning of a line that names a cause.
LIKELY = "likely cause: "

#: Most functions that are named in a list.
MAX_NAMED = 3

#: Share of the change of a case that iterations with a profiler have to show, at least: the rest
#: may be what they do not see, such as other work of a built-in operator.
MIN_SHOWN = 0.25

#: How some kinds of ``OtherChange`` are named.
_NAMED = {
    FILE: "the {change} file {name}",
    IMPORT: "the import of {name} ({change})",
    COMPILED: "the {change} module {name}",
    PACKAGE: "{name} {change}",
    VARIABLE: "{name} ({change})",
    GRAPH: "{change}",
}

#: What the times of a cause are.
_PROFILED = "in a profiled iteration"


@dataclass(frozen=True)
class Explanation:
    """What a report says of the cause of a finding."""

    text: str = ""  # one sentence; empty if there is nothing to say
    # What the sentence names first as the likely cause; None if it names none.
    cause: ProfiledFunction | OtherChange | None = None
    detail: str = ""  # what the sentence says beside the name of the cause
    is_only: bool = False  # the sentence names no other likely cause

    @classmethod
    def by_one_of(
        cls, suspects: Sequence[ProfiledFunction | OtherChange], detail: str
    ) -> Explanation:
        """Return that one of several things is the likely cause, the most probable first."""
        first, *others = (named(suspect) for suspect in suspects)
        if not others:
            return cls(f"{LIKELY}{first}: {detail}", suspects[0], detail, is_only=True)
        detail = f"or {units.and_more(others, MAX_NAMED - 1, ', or ', ', or ')}: {detail}"
        return cls(f"{LIKELY}{first}, {detail}", suspects[0], detail)


def causes_of(finding: GateFinding, verdict: Verdict) -> Causes | None:
    """Return the functions that explain a finding about the time of a case; None if unknown."""
    profile = _profile(finding, verdict)
    if profile is None or profile.why_not or not finding.quantity.is_case:
        return None
    header = verdict.header
    only_tree = not header.sides.packages and not any(header.variables.values())
    explained = causes(profile, only_tree=only_tree).within_the_change()
    quantity = finding.best.quantity
    shown = explained.change_ns / (quantity.head - quantity.base or 1)
    return explained if shown >= MIN_SHOWN else Causes(explained.change_ns, ())


def explanation(finding: GateFinding, verdict: Verdict) -> Explanation:
    """Return what probably made something slower or faster."""
    if _is_found_import(finding):
        return _outside_of_tests(verdict)
    profile = _profile(finding, verdict)
    if profile is None:
        return Explanation()
    if graphs := [other for other in profile.others if other.kind == GRAPH]:
        differences = verdict.compilations.get(finding.quantity.case, ())
        counts = [difference.text for difference in differences if difference.place is None]
        return _of_graphs(graphs, profile, "; ".join(counts) or "all counts are the same")
    if profile.why_not:
        return Explanation(f"cause not known: {profile.why_not}")
    if finding.quantity.is_operation:
        return _called_by(_callers(profile, finding))
    explained = causes_of(finding, verdict)
    assert explained is not None, "there are call paths"
    if not explained.functions:
        return _without_functions(profile, explained)
    if explained.spent:
        return _suspected(explained, explained.spent)
    first = explained.functions[0]
    detail = _described(first, explained)
    if explained.are_enough:
        return Explanation.by_one_of([first.profiled], detail)
    return Explanation(
        "no function explains half of the change; the largest part: "
        f"{named(first.profiled)}: {detail}"
    )


def _of_graphs(graphs: Sequence[OtherChange], profile: CaseProfile, counts: str) -> Explanation:
    """Return what probably changed compiled graphs: their lines, if these differ themselves.

    Else they get other values, from a function that differs, or by something else that does.
    """
    if itself := [graph for graph in graphs if graph.differs_itself]:
        return Explanation.by_one_of(itself, counts)
    suspects: list[ProfiledFunction | OtherChange] = [
        *_differing(profile),
        *(other for other in profile.others if other.kind != GRAPH),
    ]
    suspects.sort(key=_rank)
    if not suspects:
        return Explanation.by_one_of(graphs, counts)
    lines = units.and_more([named(graph) for graph in graphs], 1)
    return Explanation.by_one_of(suspects, f"{lines}; {counts}")


def _rank(suspect: ProfiledFunction | OtherChange) -> tuple[bool, bool]:
    """Return a key for sorting: functions come first, of them those that differ themselves."""
    is_function = isinstance(suspect, ProfiledFunction) or suspect.kind in (FUNCTION, FIXTURE)
    return not is_function, not suspect.differs_itself


def _is_found_import(finding: GateFinding) -> bool:
    """Whether the import got slower or faster."""
    is_import = finding.quantity.is_once and finding.quantity.name == IMPORT_COST
    return is_import and (finding.is_slower or finding.verdict == IMPROVED)


def _outside_of_tests(verdict: Verdict) -> Explanation:
    """Return that the import takes another time because of what differs outside of tests."""
    differing = {named(other): other for other in of_reasons(verdict.reach.outside)}
    if not differing:
        return Explanation()
    likely = units.and_more([*differing], MAX_NAMED, ", or ", ", or ")
    [first, *others] = differing.values()
    return Explanation(
        f"{LIKELY}{likely}, outside of tests",
        None if others else first,
        "" if others else "outside of tests",
        is_only=not others,
    )


def _called_by(functions: Sequence[ProfiledFunction]) -> Explanation:
    """Return that functions which differ call an operation."""
    if not functions:
        return Explanation()
    names = [named(function) for function in functions]
    return Explanation(
        f"{LIKELY}called by {units.and_more(names, MAX_NAMED)}",
        functions[0],
        f"called by it, {units.and_more(names[1:], MAX_NAMED - 1)}" if names[1:] else "",
        is_only=not names[1:],
    )


def _without_functions(profile: CaseProfile, explained: Causes) -> Explanation:
    """Return what differs if the profiled iterations do not show the change."""
    if compiled := [other for other in profile.others if other.kind == COMPILED]:
        modules = units.and_more([named(other) for other in compiled], MAX_NAMED)
        unseen = "whose functions the profiler does not see"
        return Explanation(
            f"{LIKELY}{modules}, {unseen}", compiled[0], unseen, is_only=len(compiled) == 1
        )
    change = units.duration(explained.change_ns, signed=True)
    differing = _differing(profile)
    if len(differing) == 1 and not profile.others:
        return Explanation.by_one_of(
            differing,
            "nothing else that the case runs differs, but a profiled iteration does not show it "
            f"({change})",
        )
    return Explanation(f"no cause found: {change} {_PROFILED}{_what_differs(profile)}")


def _suspected(explained: Causes, spent: Cause) -> Explanation:
    """Return what may have made an unchanged function slower or faster."""
    where = _where(spent)
    part = f"{_part(spent, explained)}, {where}"
    if not explained.suspects:
        return Explanation(f"nothing that is known to differ explains it: {part}")
    first = explained.suspects[0]
    if len(explained.suspects) == 1 and first.share >= MIN_SHARE:
        of_spent = units.duration(spent.change_ns, signed=True)
        part = "; ".join([_part(first, explained), *_calls_of(first), f"{of_spent} {where}"])
    return Explanation.by_one_of([cause.profiled for cause in explained.suspects], part)


def _part(cause: Cause, explained: Causes) -> str:
    """Return how much of the change of a case a function explains."""
    part, whole = (units.duration(ns, signed=True) for ns in (cause.change_ns, explained.change_ns))
    return f"{'all' if part == whole else part} of {whole} {_PROFILED}"


def _where(spent: Cause) -> str:
    """Return in which function a time is, and what is known of it."""
    function = spent.profiled
    facts = []
    if isinstance(function, ProfiledFunction) and function.is_of_tree:
        facts.append("did not change")
    if spent.calls.base != spent.calls.head:
        facts.append(f"is called {_calls(spent.calls)} times")
    which = f", which {' and '.join(facts)}" if facts else ""
    inside = f"{spent.inside}, called from " if spent.inside else ""
    return f"in {inside}{function.name}{which}"


def _what_differs(profile: CaseProfile) -> str:
    """Return the functions of a case that differ; else what else differs."""
    differing = _differing(profile)
    if functions := [named(function) for function in differing if function.differs_itself]:
        return f", which runs {units.and_more(functions, MAX_NAMED)}"
    others = [named(other) for other in profile.others]
    return f"; what differs: {units.and_more(others, MAX_NAMED)}" if others else ""


def _differing(profile: CaseProfile) -> list[ProfiledFunction]:
    """Return the functions that differ or use what does, those of the most time first."""
    times_ns: dict[int, int] = defaultdict(int)
    for path in profile.paths:
        times_ns[path.function] += max(path.base_self_ns, path.head_self_ns)
    ranked = sorted(times_ns, key=lambda function: -times_ns[function])
    functions = [profile.functions[function] for function in ranked]
    return [function for function in functions if function.change]


def _callers(profile: CaseProfile, finding: GateFinding) -> list[ProfiledFunction]:
    """Return the functions that differ and call an operation, those of the largest change first.

    It leaves out those whose calls of it have changed the other way.
    """
    sign = 1 if finding.is_slower else -1
    changes_ns: dict[int, int] = defaultdict(int)
    for called in profile.operations:
        if called.operation in finding.quantity.members and called.function is not None:
            changes_ns[called.function] += sign * (called.head_ns - called.base_ns)
    ranked = sorted(changes_ns, key=lambda function: -changes_ns[function])
    grew = [function for function in ranked if changes_ns[function] > 0]
    return [profile.functions[function] for function in grew or ranked]


def named(thing: ProfiledFunction | OtherChange) -> str:
    """Return the name of a function or another thing, and how it differs between the sides."""
    if not thing.change:
        return thing.name
    if isinstance(thing, OtherChange) and thing.kind in _NAMED:
        return _NAMED[thing.kind].format(name=thing.name, change=thing.change)
    how = f" ({thing.change})" if thing.differs_itself else f", which {thing.change}"
    if isinstance(thing, OtherChange) and thing.kind == STATEMENT:
        return f"{thing.name}{how}{', which runs' if thing.differs_itself else ''} at import"
    if isinstance(thing, OtherChange) and thing.kind == FIXTURE:
        is_changed = thing.change == CHANGED
        return (
            f"the changed fixture {thing.name}" if is_changed else f"the fixture {thing.name}{how}"
        )
    return f"{thing.name}{how}"


def _profile(finding: GateFinding, verdict: Verdict) -> CaseProfile | None:
    quantity = finding.quantity
    is_of_iteration = quantity.is_case or quantity.is_operation
    if not is_of_iteration or not (finding.is_slower or finding.verdict == IMPROVED):
        return None
    return verdict.end.profiles.get(quantity.case)


def _described(cause: Cause, explained: Causes) -> str:
    texts = [_part(cause, explained), *_calls_of(cause)]
    if cause.inside:
        texts.append(f"in {cause.inside}")
    return "; ".join(texts)


def _calls_of(cause: Cause) -> Iterator[str]:
    if cause.calls.base != cause.calls.head:
        yield f"called {_calls(cause.calls)} times"
    if cause.makes:
        yield f"calls {cause.makes.function} {_calls(cause.makes)} times"


def _calls(calls: CallCounts) -> str:
    return arrow(calls.base, calls.head, units.count)


# ---- Numbers of calls ----------------------------------------------------------------------------


def function_differences(verdict: Verdict) -> dict[str, tuple[str, ...]]:
    """Return the profiled cases whose numbers of calls differ, with a text for each function."""
    differences = {case: _changed_calls(profile) for case, profile in verdict.end.profiles.items()}
    return {case: texts for case, texts in differences.items() if texts}


def _changed_calls(profile: CaseProfile) -> tuple[str, ...]:
    """Return which functions a case calls more or less often, those of the largest change first."""
    calls: dict[int, tuple[float, float]] = {}
    changes_ns: dict[int, int] = defaultdict(int)
    for path in profile.paths:
        base_calls, head_calls = calls.get(path.function, (0.0, 0.0))
        calls[path.function] = (base_calls + path.base_calls, head_calls + path.head_calls)
        changes_ns[path.function] += path.head_self_ns - path.base_self_ns
    names = [function.name for function in profile.functions]
    ranked = sorted(calls, key=lambda function: (-abs(changes_ns[function]), names[function]))
    functions: dict[OpKey, BothCounts] = {
        (names[function], "", NO_MODULE): (
            _counts(base_calls, profile.functions[function]),
            _counts(head_calls, profile.functions[function]),
        )
        for function in ranked
        for base_calls, head_calls in [calls[function]]
    }
    return tuple(operation_differences(functions))


def _counts(calls: float, function: ProfiledFunction) -> Counts | None:
    varying = (CALLS,) if function.calls_vary else ()
    return Counts(calls, 0, varying=varying) if calls else None
