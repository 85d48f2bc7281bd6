"""``mnistbench study locality``: its settings, its result, its ranks, tables and figures.

Imports neither torch nor numba.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from mnistbench.core import units
from mnistbench.core.errors import UsageError
from mnistbench.core.extras import install
from mnistbench.core.options import one_of, option, output, output_format, several, some_of, whole
from mnistbench.course.studies.convolution.sizes import GRID
from mnistbench.course.studies.locality.caches import Cache, Caches, cache_of, of_this_machine
from mnistbench.course.studies.locality.nests import CONVOLUTIONS, ORDERS, PRODUCTS
from mnistbench.course.studies.study import run_study
from mnistbench.showing.output import CommandResult
from mnistbench.showing.plot import bars, beside
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table

#: Largest side of a matrix or a tile.
_LARGEST = 1024


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of the command."""

    sizes: tuple[int, ...] | None = option(
        "--size",
        several(whole(2, _LARGEST)),
        None,
        "comma list of sides of square matrices (default: 120,128; without numba: 112)",
        "N",
    )
    convolution: str | None = option(
        "--convolution",
        one_of(*GRID),
        None,
        "chapter, conv1-b1, conv2-b16, ... (default: conv2-b1; without numba: conv1-b1)",
        "NAME",
    )
    orders: tuple[str, ...] = option(
        "--order", some_of(*ORDERS), ",".join(ORDERS), "comma list of loop orders", "NAMES"
    )
    tile: int | None = option(
        "--tile",
        whole(1, _LARGEST),
        None,
        "side of a tile (default: the largest of whole lines of which L1 holds three)",
        "N",
    )
    l1: Cache | None = option(
        "--l1",
        cache_of("--l1"),
        None,
        "first cache, such as 32K:64:8 (default: that of this machine)",
        "SIZE:LINE:WAYS",
    )
    l2: Cache | None = option(
        "--l2",
        cache_of("--l2"),
        None,
        "second cache, such as 1M:64:16 (default: that of this machine)",
        "SIZE:LINE:WAYS",
    )
    format: str = output_format(["csv"])
    output: Path | None = output()

    def __post_init__(self) -> None:
        users = {
            "size": (self.sizes, PRODUCTS),
            "tile": (self.tile, ("tiled",)),
            "convolution": (self.convolution, CONVOLUTIONS),
        }
        for name, (value, using) in users.items():
            if value is not None and not set(using) & set(self.orders):
                raise UsageError(
                    f"--{name} is used by none of the orders; add {' or '.join(using)} to --order"
                )

    @property
    def caches(self) -> Caches:
        """The caches to simulate."""
        own = of_this_machine()
        return replace(own, l1=self.l1 or own.l1, l2=self.l2 or own.l2)


@dataclass(frozen=True)
class CacheCounts:
    """Accesses to elements, and those whose line was not in a cache. Only misses of L1 reach L2."""

    accesses: int
    l1_misses: int
    l2_misses: int


@dataclass(frozen=True)
class NestResult:
    """One loop nest."""

    order: str
    multiply_adds: int
    arrays: Mapping[str, CacheCounts]  # of one run that begins with empty caches
    rounds_ns: tuple[float, ...] = ()  # time of a multiply-add in each round; empty without numba
    # Median, of the same innermost loop with its data in L1; None if not measured.
    in_l1_ns: float | None = None

    @property
    def counts(self) -> CacheCounts:
        """The sums over all arrays."""
        return CacheCounts(*map(sum, zip(*map(astuple, self.arrays.values()), strict=True)))

    @property
    def l1_misses(self) -> float:
        """L1 misses for each multiply-add."""
        return self.counts.l1_misses / self.multiply_adds

    @property
    def l2_misses(self) -> float:
        """L2 misses for each multiply-add."""
        return self.counts.l2_misses / self.multiply_adds

    @property
    def ns(self) -> float | None:
        """Median time of a multiply-add."""
        return statistics.median(self.rounds_ns) if self.rounds_ns else None


@dataclass(frozen=True)
class Computation:
    """One computation by several loop nests, each on the same arrays."""

    name: str
    text: str  # with its sizes
    n_bytes: int  # of all arrays
    lines: int  # of L1 that the arrays occupy; each nest misses at least as often
    nests: tuple[NestResult, ...]


@dataclass(frozen=True)
class LocalityStudy:
    """All computations, and the caches that were simulated."""

    caches: Caches
    numba: str  # version; empty if it is not installed, and then there are no times
    computations: tuple[Computation, ...]


# ---- Ranks by misses and by time -----------------------------------------------------------------

#: Misses or times that differ by at most this share count as the same.
SAME = 0.05

#: Of two nests, one is faster if at most this share of the rounds says the opposite.
CONTRARY = 0.1


def has_fewer(few: float, many: float) -> bool:
    """Whether a number is smaller by more than ``SAME``."""
    return few * (1 + SAME) < many


def is_faster(fast: NestResult, slow: NestResult) -> bool:
    """Whether the median of a nest is smaller by more than ``SAME``.

    Nearly all rounds have to say the same.
    """
    if fast.ns is None or slow.ns is None or not has_fewer(fast.ns, slow.ns):
        return False
    rounds = zip(fast.rounds_ns, slow.rounds_ns, strict=True)
    contrary = sum(fast_ns >= slow_ns for fast_ns, slow_ns in rounds)
    return contrary <= CONTRARY * len(fast.rounds_ns)


def rank_by_misses(nest: NestResult, nests: Sequence[NestResult]) -> int:
    """Return 1 and how many nests have fewer L1 misses."""
    fewer = [rival for rival in nests if has_fewer(rival.counts.l1_misses, nest.counts.l1_misses)]
    return 1 + len(fewer)


def rank_by_time(nest: NestResult, nests: Sequence[NestResult]) -> int | None:
    """Return 1 and how many nests are faster; None without a time."""
    return None if nest.ns is None else 1 + sum(is_faster(rival, nest) for rival in nests)


def slower_than_its_misses(nest: NestResult, nests: Sequence[NestResult]) -> bool:
    """Whether more nests are faster than have fewer L1 misses; False without a time."""
    rank = rank_by_time(nest, nests)
    return rank is not None and rank > rank_by_misses(nest, nests)


# ---- Report --------------------------------------------------------------------------------------

#: Character of a bar. It has no meaning in Markdown.
_MARK = "x"
#: Character of the part of a time that is there with data in L1. It has no meaning in Markdown.
_IN_L1 = "="


class NestRow(NamedTuple):
    """A loop nest of a computation."""

    computation: Computation
    nest: NestResult


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
        lambda row: rank_by_misses(row.nest, row.computation.nests),
        units.count,
        "rank_by_misses",
    ),
    Column(
        "rank by time",
        lambda row: rank_by_time(row.nest, row.computation.nests),
        units.count,
        "rank_by_time",
    ),
)


def report_of(study: LocalityStudy) -> Report:
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


def _caches(study: LocalityStudy) -> Iterator[str]:
    caches = {"L1": study.caches.l1, "L2": study.caches.l2}
    for name, cache in caches.items():
        size = f"{units.size(cache.size)}, lines of {cache.line} bytes"
        yield f"{name}: {size}, {cache.ways} ways, {cache.sets:,} sets ({cache.source})"
    if study.numba and any(cache.source.startswith("--") for cache in caches.values()):
        yield "Times: with this machine's own caches"
    if not study.numba:
        yield f"No times, because numba cannot be imported; {install('numba')}"


def _block(computation: Computation) -> Block:
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


def _comparison(nests: Sequence[NestResult]) -> Iterator[str]:
    """Yield which nests are slower than their misses let one expect; nothing without times."""
    if all(nest.ns is None for nest in nests):
        return
    slower = [nest.order for nest in nests if slower_than_its_misses(nest, nests)]
    if slower:
        yield (
            f"Slower than the rank by misses: {', '.join(slower)}. Compare the times with data in "
            "L1, which contain no misses, and the L2 misses."
        )
    else:
        yield "No order is slower than its rank by misses."


def figure(nests: Sequence[NestResult]) -> str:
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


# ---- Command -------------------------------------------------------------------------------------


def run(settings: Settings) -> CommandResult:
    """Simulate each loop nest, time it if numba is installed, and return the report."""
    return run_study("locality", settings, report_of)
