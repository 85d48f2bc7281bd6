"""The result of ``mnistbench study locality``.

A figure and a table, and which orders are slower than their misses let one expect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import NamedTuple

from mnistbench.core import units
from mnistbench.core.errors import INSTALL_NUMBA
from mnistbench.course.studies.locality import study as result
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
        "",
        NESTS,
        [
            NestRow(computation, nest)
            for computation in study.computations
            for nest in computation.nests
        ],
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
        problems=[
            {
                "name": computation.name,
                "text": computation.text,
                "n_bytes": computation.n_bytes,
                "lines": computation.lines,
            }
            for computation in study.computations
        ],
    )
    blocks = [
        Block("Simulated caches", tuple(_caches(study))),
        *(_block(computation) for computation in study.computations),
    ]
    return Report("loop orders, cache misses and time", blocks, data, every)


def _caches(study: result.LocalityStudy) -> Iterator[str]:
    caches = {"L1": study.caches.l1, "L2": study.caches.l2}
    for name, cache in caches.items():
        size = f"{units.size(cache.size)}, lines of {cache.line} bytes"
        yield f"{name}: {size}, {cache.ways} ways, {cache.sets:,} sets ({cache.source})"
    if study.numba and any(cache.source.startswith("--") for cache in caches.values()):
        yield "Times: with this machine's own caches"
    if not study.numba:
        yield f"No times, because numba cannot be imported; {INSTALL_NUMBA}"


def _block(computation: result.Computation) -> Block:
    nests = sorted(computation.nests, key=lambda nest: nest.counts.l1_misses)
    size = f"{units.size(computation.n_bytes)} in {computation.lines:,} lines"
    table = Table(
        f"{computation.name}: {computation.text}, {size}",
        NESTS,
        [NestRow(computation, nest) for nest in nests],
        lines=tuple(_comparison(nests)),
    )
    title = f"{computation.name}, for each multiply-add"
    return Block(title, tables=(table,), drawing=figure(nests))


def _comparison(nests: Sequence[result.NestResult]) -> Iterator[str]:
    """Yield which nests are slower than their misses let one expect; nothing without times."""
    if all(nest.ns is None for nest in nests):
        return
    slower = [nest.order for nest in nests if result.slower_than_its_misses(nest, nests)]
    if slower:
        yield (
            f"Slower than the rank by misses: {', '.join(slower)}. Compare the times with data in "
            "L1, which contain no misses, and the L2 misses."
        )
    else:
        yield "No order is slower than its rank by misses."


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
