"""Misses and times of loop nests -> a figure, a table, and where both are in different order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from mnistbench.core import units
from mnistbench.course.studies.locality.caches import Cache
from mnistbench.course.studies.locality.measured import Measured, Problem
from mnistbench.course.studies.locality.ranking import (
    INSTRUCTIONS,
    L2_MISSES,
    Disagreement,
    agreement,
    disagreements,
    rank_by_misses,
    rank_by_time,
)
from mnistbench.course.studies.locality.result import INSTALL, Study
from mnistbench.showing.report import Block
from mnistbench.showing.table import Table, text_table

#: Characters of the longest bar of a panel, and of the number before it.
_BAR, _NUMBER = 24, 6

#: A bar; of a time, the part that is there with data in L1. Neither has a meaning in Markdown.
_MARK, _IN_L1 = "x", "="


def blocks(study: Study) -> list[Block]:
    """Return the caches, and a figure and a table for each problem."""
    return [Block("Simulated caches", tuple(_caches(study))), *(_block(problem) for problem in study.problems)]


def _caches(study: Study) -> Iterator[str]:
    yield f"L1: {_cache(study.caches.l1)}"
    yield f"L2: {_cache(study.caches.l2)}"
    given = any(cache.source.startswith("--") for cache in (study.caches.l1, study.caches.l2))
    if study.numba and given:
        yield "Times: with this machine's own caches"
    if not study.numba:
        yield f"No times, because numba cannot be imported; {INSTALL}"


def _cache(cache: Cache) -> str:
    return f"{units.size(cache.size)}, lines of {cache.line} bytes, {cache.ways} ways, {cache.sets:,} sets ({cache.source})"


def _block(problem: Problem) -> Block:
    nests = sorted(problem.nests, key=lambda nest: nest.counts.l1_misses)
    return Block(f"{problem.name}, for each multiply-add", tables=(table(problem, nests),), drawing=figure(nests))


# ---- Table -----------------------------------------------------------------------------------------------------------


def table(problem: Problem, nests: Sequence[Measured]) -> Table:
    """Return a row for each nest."""
    return text_table(
        title=f"{problem.name}: {problem.text}, {units.size(problem.n_bytes)} in {problem.lines:,} lines",
        headings=(
            "order", "accesses", "L1 hits", "L1 misses", "L2 hits", "L2 misses", "L1 misses per multiply-add",
            "ns per multiply-add", "with data in L1", "rank by misses", "rank by time",
        ),
        rows=tuple(_row(nest, nests) for nest in nests),
        sums=(),
        numbers_from=1,
        lines=tuple(_sentences(nests)),
    )  # fmt: skip


def _row(nest: Measured, nests: Sequence[Measured]) -> tuple[str, ...]:
    counts, rank = nest.counts, rank_by_time(nest, nests)
    return (
        nest.order,
        *map(units.count, (counts.accesses, counts.l1_hits, counts.l1_misses, counts.l2_hits, counts.l2_misses)),
        _number(counts.l1_misses / nest.multiply_adds),
        _number(nest.ns),
        _number(nest.in_l1_ns),
        units.count(rank_by_misses(nest, nests)),
        units.MISSING if rank is None else units.count(rank),
    )


def _number(value: float | None) -> str:
    return units.MISSING if value is None else f"{value:.3f}"


def _sentences(nests: Sequence[Measured]) -> Iterator[str]:
    """Yield how well both orders agree, and a sentence for each nest that is slower than its misses say."""
    pairs = agreement(nests)
    if any(nest.ns is not None for nest in nests):
        tau = "" if pairs.kendall_tau is None else f"; Kendall's tau-b {pairs.kendall_tau:.2f}"
        yield (
            f"Pairs that rank the same way by L1 misses and by time: {pairs.same}; the opposite way: {pairs.opposite}; "
            f"that differ in time only: {pairs.only_times_differ}; in misses only: {pairs.only_misses_differ}; "
            f"in neither: {pairs.neither_differs}{tau}."
        )
    found = sorted(disagreements(nests), key=_slower_and_cause)
    for (slower, _), of_slower in itertools.groupby(found, _slower_and_cause):
        yield _sentence(slower, list(of_slower))


def _slower_and_cause(found: Disagreement) -> tuple[str, str]:
    return found.slower.order, found.cause


def _sentence(slower: str, found: Sequence[Disagreement]) -> str:
    names = [one.faster.order for one in found]
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    has = "fewer" if all(one.fewer for one in found) else "no more"
    start = f"{slower} takes longer than {listed}, and has {has} L1 misses: "
    one = found[0].slower
    others = [each.faster for each in found]
    if found[0].cause == INSTRUCTIONS:
        times = [other.in_l1_ns for other in others if other.in_l1_ns is not None]
        return (
            f"{start}with its data in L1, a multiply-add takes {_number(one.in_l1_ns)} ns against {_range(times)} ns, "
            "so most of the difference is not due to misses."
        )
    if found[0].cause == L2_MISSES:
        misses = units.count(max(other.counts.l2_misses for other in others))
        return f"{start}it has {units.count(one.counts.l2_misses)} L2 misses, against at most {misses}."
    return f"{start}no number here explains it."


def _range(values: Sequence[float]) -> str:
    low, high = _number(min(values)), _number(max(values))
    return low if low == high else f"{low} to {high}"


# ---- Figure ----------------------------------------------------------------------------------------------------------


def figure(nests: Sequence[Measured]) -> str:
    """Return three bars for each nest: L1 misses, L2 misses and time of a multiply-add, linear from 0.

    Both kinds of misses have the same scale.
    """
    names = max(len(nest.order) for nest in nests)
    l1_misses = [nest.counts.l1_misses / nest.multiply_adds for nest in nests]
    l2_misses = [nest.counts.l2_misses / nest.multiply_adds for nest in nests]
    panels = [_misses("L1 misses", l1_misses, max(l1_misses)), _misses("L2 misses", l2_misses, max(l1_misses))]
    if all(nest.ns is not None for nest in nests):
        panels.append(_times(nests))
    labels = ["", *(nest.order for nest in nests)]
    lines = ["  ".join([f"{label:<{names}}", *parts]).rstrip() for label, *parts in zip(labels, *panels, strict=True)]
    return "\n".join(lines)


def _misses(title: str, values: Sequence[float], longest: float) -> list[str]:
    return _panel(title, values, [_MARK * _length(value, longest) for value in values])


def _times(nests: Sequence[Measured]) -> list[str]:
    values = [nest.ns or 0.0 for nest in nests]
    bars = []
    for nest, value in zip(nests, values, strict=True):
        whole, part = (_length(each, max(values)) for each in (value, min(nest.in_l1_ns or 0.0, value)))
        bars.append(_IN_L1 * part + _MARK * (whole - part))
    return _panel(f"ns ({_IN_L1} with data in L1)", values, bars)


def _length(value: float, longest: float) -> int:
    return round(value / longest * _BAR)


def _panel(title: str, values: Sequence[float], bars: Sequence[str]) -> list[str]:
    width = _NUMBER + 2 + _BAR
    rows = [f"{_number(value):>{_NUMBER}} |{bar}" for value, bar in zip(values, bars, strict=True)]
    return [f"{row:<{width}}" for row in (f"{'':{_NUMBER}}  {title}", *rows)]
