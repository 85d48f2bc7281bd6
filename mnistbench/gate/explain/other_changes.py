"""Why a case is affected -> what differs that its profiled iterations do not call.

A fixture, a data file, a statement of a module, a compiled module or a package may give other
values to functions that did not change, and these then take longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from mnistbench.core.compiled.compilation import CodePlace, CompilationDifference
from mnistbench.gate.listing import change_of_versions
from mnistbench.gate.samples.case_profile import (
    COMPILED,
    FILE,
    FIXTURE,
    FUNCTION,
    GRAPH,
    IMPORT,
    PACKAGE,
    SETTING,
    STATEMENT,
    VARIABLE,
    CaseProfile,
    OtherChange,
)
from mnistbench.gate.samples.raw_samples import GateHeader
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.survey.reach.differences import CHANGED, GONE, NEW
from mnistbench.gate.words import BASE, HEAD

#: Most of them that are kept.
MAX_KEPT = 20

#: In the order in which they are probable causes; functions that differ themselves come first.
_KINDS = (FIXTURE, FUNCTION, FILE, STATEMENT, IMPORT, COMPILED, PACKAGE, VARIABLE, SETTING)

_ITSELF = f"{CHANGED}|{NEW}|{GONE}"
#: How the reasons of ``gate.survey.reach`` begin, and what they say. Others, such as another result
#: of the case, follow from a change and are none.
_REASONS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (rf"runs (?P<name>.+:\S+) \((?P<change>{_ITSELF})\)(?: outside of tests)?", FUNCTION),
        (
            r"runs (?P<name>.+:\S+) \((?P<change>\S+ is defined by it and differs)\)",
            FUNCTION,
        ),
        (r"runs (?P<name>[^:]+:\S+), which (?P<change>.+?)(?: outside of tests)?", FUNCTION),
        (rf"(?P<name>.+:\S+) \((?P<change>{_ITSELF})\) may be compiled, .*", FUNCTION),
        (rf"reads (?P<name>.+) \((?P<change>{CHANGED})\)", FILE),
        (rf"(?P<name>.+) \((?P<change>{CHANGED})\) is read outside of tests", FILE),
        (r"imports (?P<name>.+?) \((?P<change>.+)\)", IMPORT),
        (r"gets \S+ by its name \((?P<name>.+?:\d+) (?P<change>.+)\)", STATEMENT),
        (r"(?P<name>\S.*?:\d+) (?P<change>(?:changed|new|gone|uses ).*)", STATEMENT),
        (rf"the project loads (?P<name>.+) \((?P<change>{CHANGED})\)", COMPILED),
        (r"(?P<name>.+ is imported (?:earlier|in|outside) .+)", SETTING),
        (r"(?P<name>the options of pytest in .+) differ", SETTING),
        (r"the sides have (?P<name>other interpreters)", SETTING),
        (r"has (?P<name>other parameters)", SETTING),
    )
)


def with_others(
    profile: CaseProfile, node_id: str, header: GateHeader, code: ComparedCode
) -> CaseProfile:
    """Return a profile with what else differs that the case depends on.

    Args:
        profile: of the case.
        node_id: of the case.
        header: says why the case is affected, and which packages and variables differ.
        code: of both sides.
    """
    called = {function.name for function in profile.functions}
    reasons = [*code.why_affected(node_id), *header.reach.reasons.get(node_id, ())]
    # They count for all cases, whose reasons may have left them out.
    modules = [other for other in of_reasons(header.reach.outside) if other.kind == COMPILED]
    read = [*of_reasons(reasons, code), *modules, *_of_environment(header)]
    compiled = {other.name for other in read if other.kind == COMPILED}
    others = {
        other: None
        for other in read
        if other.name not in called and not (other.kind == FILE and other.name in compiled)
    }
    return replace(profile, others=tuple(sorted(others, key=_rank)[:MAX_KEPT]))


def with_graphs(
    profile: CaseProfile, differences: Sequence[CompilationDifference], code: ComparedCode
) -> CaseProfile:
    """Return a profile with the lines that make compiled graphs other ones, first.

    A line of a function that is not edited does not differ itself: it gets other values.

    Args:
        profile: of the case.
        differences: between what the compiler made of it on both sides.
        code: of both sides.
    """
    graphs = (
        _graph(difference, difference.place, code)
        for difference in differences
        if difference.place and difference.place.line
    )
    return replace(profile, others=(*list(graphs)[:MAX_KEPT], *profile.others))


def _graph(difference: CompilationDifference, place: CodePlace, code: ComparedCode) -> OtherChange:
    side = BASE if difference.is_of_base else HEAD
    path = code.path_in_tree(side, place) or place.path
    return OtherChange(
        GRAPH,
        # A line of the base is none of the head.
        f"{path}:{place.function if difference.is_of_base else place.line}",
        difference.text,
        differs_itself=not difference.only_sizes and code.is_edited_at(side, place),
        line=0 if difference.is_of_base else place.line,
    )


def _rank(other: OtherChange) -> tuple[bool, int]:
    is_function = other.kind in (FIXTURE, FUNCTION)
    return not (is_function and other.differs_itself), _KINDS.index(other.kind)


def of_reasons(reasons: Iterable[str], code: ComparedCode | None = None) -> Iterator[OtherChange]:
    """Yield what differs, as reasons of ``mnistbench.gate.survey.reach`` say it.

    With the code of both sides, fixtures are told from functions, and what has the same text is
    left out.
    """
    for reason in reasons:
        for pattern, kind in _REASONS:
            if match := pattern.fullmatch(reason):
                yield from _read(kind, match["name"], match.groupdict().get("change") or "", code)
                break


def _read(kind: str, name: str, change: str, code: ComparedCode | None) -> Iterator[OtherChange]:
    """Yield a change; none of what has the same text and may differ by what runs before it."""
    if kind not in (FUNCTION, STATEMENT):
        yield OtherChange(kind, name, change)
        return
    path, _, what = name.partition(":")
    if code is not None and change == CHANGED and not code.is_edited(path, what):
        return
    is_fixture = code is not None and kind == FUNCTION and code.is_fixture(path, what)
    is_itself = change in (CHANGED, NEW, GONE) or change.endswith(" is defined by it and differs")
    yield OtherChange(
        FIXTURE if is_fixture else kind,
        name,
        change,
        differs_itself=is_itself,
        line=code.line_in_head(path, what) if code is not None else 0,
    )


def _of_environment(header: GateHeader) -> Iterator[OtherChange]:
    """Yield what differs beside the trees."""
    for package, (base, head) in header.sides.packages.items():
        yield OtherChange(PACKAGE, package, change_of_versions(base, head))
    base_values, head_values = (header.variables.get(side, {}) for side in (BASE, HEAD))
    for name in sorted({*base_values, *head_values}):
        values = [one.get(name, "not set") for one in (base_values, head_values)]
        yield OtherChange(VARIABLE, name, " -> ".join(dict.fromkeys(values)))
