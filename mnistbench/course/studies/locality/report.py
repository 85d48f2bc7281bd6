"""The result of ``mnistbench study locality``.

A figure and a table, and where misses and times are in different order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any, NamedTuple

from mnistbench.core import units
from mnistbench.core.errors import INSTALL_NUMBA
from mnistbench.course.studies.locality import result
from mnistbench.showing.plot import bars, beside
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table

#: Character of a bar. It has no meaning in Markdown.
_MARK = "x"
#: Character of the part of a time that is there with data in L1. It has no meaning in Markdown.
_IN_L1 = "="


class NestRow(NamedTuple):
    """A loop nest of a computation."""

    computation: result.Computation
    nest: result.NestResult


def _number(value: float | None) -> str:
    return units.MISSING if value is None else f"{value:.3f}"


def _time(nanoseconds: float | None) -> str:
    """Return the time of a multiply-add, which may be far below 1 ns."""
    return units.MISSING if nanoseconds is None else f"{_number(nanoseconds)} ns"


NESTS: tuple[Column[NestRow], ...] = (
    Column(None, lambda row: row.computation.name, key="problem"),
    Column("order", lambda row: row.nest.order, key="order"),
    Column(None, lambda row: row.nest.multiply_adds, key="multiply_adds"),
    Column("accesses", lambda row: row.nest.counts.accesses, units.count, "accesses"),
    Column(
        "L1 hits",
        lambda row: row.nest.counts.accesses - row.nest.counts.l1_misses,
        units.count,
        "l1_hits",
    ),
    Column("L1 misses", lambda row: row.nest.counts.l1_misses, units.count, "l1_misses"),
    Column(
        "L2 hits",
        lambda row: row.nest.counts.l1_misses - row.nest.counts.l2_misses,
        units.count,
        "l2_hits",
    ),
    Column("L2 misses", lambda row: row.nest.counts.l2_misses, units.count, "l2_misses"),
    Column(
        "L1 misses per multiply-add",
        lambda row: row.nest.l1_misses,
        _number,
        "l1_misses_per_multiply_add",
    ),
    Column("time per multiply-add", lambda row: row.nest.ns, _time, "ns_per_multiply_add"),
    Column("with data in L1", lambda row: row.nest.in_l1_ns, _time, "ns_per_multiply_add_in_l1"),
    Column(
        "rank by misses",
        lambda row: result.rank_by_misses(row.nest, row.computation.nests),
        units.count,
        "rank_by_misses",
    ),
    Column(
        "rank by time",
        lambda row: result.rank_by_time(row.nest, row.computation.nests),
        units.count,
        "rank_by_time",
    ),
)


def report_of(study: result.LocalityStudy) -> Report:
    """Return the caches, and a figure and a table for each computation."""
    every = Table(
        "", NESTS, [NestRow(each, nest) for each in study.computations for nest in each.nests]
    )
    more = [
        {
            "rounds_ns": row.nest.rounds_ns,
            "arrays": {name: asdict(counts) for name, counts in row.nest.arrays.items()},
        }
        for row in every.rows
    ]
    caches = [{**asdict(cache), "sets": cache.sets} for cache in (study.caches.l1, study.caches.l2)]
    data = document(
        "locality",
        l1=caches[0],
        l2=caches[1],
        numba=study.numba or None,
        nests=[record | raw for record, raw in zip(every.records(), more, strict=True)],
        problems=[_computation_json(each) for each in study.computations],
    )
    blocks = [
        Block("Simulated caches", tuple(_caches(study))),
        *(_block(each) for each in study.computations),
    ]
    return Report("loop orders, cache misses and time", blocks, data, every)


def _computation_json(found: result.Computation) -> dict[str, Any]:
    pairs = result.agreement(found.nests)
    return {
        "name": found.name,
        "text": found.text,
        "n_bytes": found.n_bytes,
        "lines": found.lines,
        "pairs": {**asdict(pairs), "kendall_tau": pairs.kendall_tau},
        "disagreements": [
            {
                "slower": each.slower.order,
                "faster": each.faster.order,
                "slower_has_fewer_misses": each.fewer,
                "share_of_difference_in_l1": each.in_l1,
                "cause": each.cause,
            }
            for each in result.disagreements(found.nests)
        ],
    }


def _caches(study: result.LocalityStudy) -> Iterator[str]:
    caches = {"L1": study.caches.l1, "L2": study.caches.l2}
    for name, cache in caches.items():
        size = f"{units.size(cache.size)}, lines of {cache.line} bytes"
        yield f"{name}: {size}, {cache.ways} ways, {cache.sets:,} sets ({cache.source})"
    if study.numba and any(cache.source.startswith("--") for cache in caches.values()):
        yield "Times: with this machine's own caches"
    if not study.numba:
        yield f"No times, because numba cannot be imported; {INSTALL_NUMBA}"


def _block(found: result.Computation) -> Block:
    nests = sorted(found.nests, key=lambda nest: nest.counts.l1_misses)
    title = f"{found.name}: {found.text}, {units.size(found.n_bytes)} in {found.lines:,} lines"
    table = Table(
        title, NESTS, [NestRow(found, nest) for nest in nests], lines=tuple(_sentences(nests))
    )
    return Block(f"{found.name}, for each multiply-add", tables=(table,), drawing=figure(nests))


def _sentences(nests: Sequence[result.NestResult]) -> Iterator[str]:
    """Yield how well both orders agree, then a sentence for each nest that disagrees.

    Such a nest is slower than its misses say.
    """
    pairs = result.agreement(nests)
    if any(nest.ns is not None for nest in nests):
        tau = "" if pairs.kendall_tau is None else f"; Kendall's tau-b {pairs.kendall_tau:.2f}"
        yield (
            f"Pairs that rank the same way by L1 misses and by time: {pairs.same}; the opposite "
            f"way: {pairs.opposite}; that differ in time only: {pairs.only_times_differ}; in "
            f"misses only: {pairs.only_misses_differ}; in neither: {pairs.neither_differs}{tau}."
        )
    slower_and_cause = attrgetter("slower.order", "cause")
    found = sorted(result.disagreements(nests), key=slower_and_cause)
    for (slower, _), of_slower in itertools.groupby(found, slower_and_cause):
        yield _sentence(slower, list(of_slower))


def _sentence(slower: str, found: Sequence[result.Disagreement]) -> str:
    names = [one.faster.order for one in found]
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    has = "fewer" if all(one.fewer for one in found) else "no more"
    start = f"{slower} takes longer than {listed}, and has {has} L1 misses: "
    one = found[0].slower
    others = [each.faster for each in found]
    if found[0].cause == result.INSTRUCTIONS:
        times = [other.in_l1_ns for other in others if other.in_l1_ns is not None]
        ends = dict.fromkeys((_time(min(times)), _time(max(times))))
        return (
            f"{start}with its data in L1, a multiply-add takes {_time(one.in_l1_ns)} against "
            f"{' to '.join(ends)}, so most of the difference is not due to misses."
        )
    if found[0].cause == result.L2_MISSES:
        misses = units.count(max(other.counts.l2_misses for other in others))
        return (
            f"{start}it has {units.count(one.counts.l2_misses)} L2 misses, against at most "
            f"{misses}."
        )
    return f"{start}no number here explains it."


def figure(nests: Sequence[result.NestResult]) -> str:
    """Return three bars for each nest.

    L1 misses, L2 misses and time of a multiply-add, linear from 0.

    Both kinds of misses have the same scale.
    """
    most = max(nest.l1_misses for nest in nests)
    panels = [
        bars(
            "L1 misses",
            [(_number(nest.l1_misses), [(nest.l1_misses, _MARK)]) for nest in nests],
            most,
        ),
        bars(
            "L2 misses",
            [(_number(nest.l2_misses), [(nest.l2_misses, _MARK)]) for nest in nests],
            most,
        ),
    ]
    timed = [(nest.ns, min(nest.in_l1_ns or 0.0, nest.ns)) for nest in nests if nest.ns is not None]
    if len(timed) == len(nests):
        rows = [(_number(ns), [(in_l1, _IN_L1), (ns - in_l1, _MARK)]) for ns, in_l1 in timed]
        panels.append(bars(f"ns ({_IN_L1} with data in L1)", rows, max(ns for ns, _ in timed)))
    return beside([nest.order for nest in nests], *panels)
