"""Operations of a trace and the peak rates of its accelerator -> a table and a roofline plot."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from mnistbench.core import units
from mnistbench.core.operation import OpKey, grouped, operation_name, shortened
from mnistbench.core.record import SCHEMA, OpRow
from mnistbench.core.roofline import Ceilings, Cost, of_roof, point
from mnistbench.profile.report import Shown, cost_columns, operations_table, percent, picked_rows
from mnistbench.profile.rows import Row, rows_of
from mnistbench.showing.report import Block
from mnistbench.showing.roofline import plot
from mnistbench.traces.analysis import Analysis
from mnistbench.traces.arguments import NOT_RECORDED
from mnistbench.traces.costs import NO_DATA, Costs, Work
from mnistbench.traces.peaks import Peaks

#: Number of operation names that a sentence lists for a reason.
_NAMES = 3

#: Smaller shares of the time are not listed.
_LEAST_SHARE = 0.0005

_NO_PEAK = "operations in a number format without a known peak"


@dataclass(frozen=True)
class TraceProfile:
    """A trace with the work of its operations. Without peaks, no operation has a share of the roofline limit."""

    analysis: Analysis
    costs: Costs
    peaks: Peaks

    def work(self, by: str) -> dict[OpKey, Work]:
        """Return the work of each group of operations. A group in which one operation's work is not known has none."""
        clock, found = self.analysis.table.clock, defaultdict[OpKey, list[Work | None]](list)
        for row in self.analysis.table.rows:
            if row.is_operation and row.self_ns(clock) > 0:
                found[grouped(row.key, by)].append(self.costs.work.get(row.key))
        return {
            key: _sum(known) for key, works in found.items() if len(known := [work for work in works if work]) == len(works)
        }

    def uncounted(self, by: str) -> dict[OpKey, str]:
        """Return why a group of operations has no work: the reason of its longest operation without work."""
        clock, costs = self.analysis.table.clock, self.costs
        rows = sorted(self.analysis.table.rows, key=lambda row: -row.self_ns(clock))
        found: dict[OpKey, str] = {}
        for row in rows:
            if row.self_ns(clock) > 0 and row.key not in costs.work:
                found.setdefault(grouped(row.key, by), costs.uncounted.get(row.key, NO_DATA))
        return found

    @property
    def missing(self) -> list[str]:
        """The options that would give peaks, because not all are known."""
        peaks = self.peaks
        missing = [] if peaks.flops_per_s or peaks.flops_per_s_of_all else ["--peak-tflops"]
        return missing if peaks.bytes_per_s else [*missing, "--peak-gbs"]

    def rows(self, by: str) -> dict[OpKey, Row]:
        """Return the operations of the table, grouped."""
        work = self.work(by)
        rows = rows_of(self.analysis.table, {}, by)
        return {key: replace(row, cost=_cost(work[key]) if key in work else None) for key, row in rows.items()}

    def ceilings(self, work: Work | None) -> Ceilings | None:
        """Return the peaks that work is compared with; None if one of them is not known.

        Of work in several number formats, the peak is that of doing one after the other.
        """
        bandwidth = self.peaks.bytes_per_s
        peaks = {dtype: self.peaks.of(dtype) for dtype in work.flops} if work else {}
        known = {dtype: peak for dtype, peak in peaks.items() if peak}
        if work is None or not bandwidth or len(known) < len(peaks):
            return None
        seconds = sum(flops / known[dtype] for dtype, flops in work.flops.items())
        flops_per_s = sum(work.flops.values()) / seconds if seconds else math.inf
        return Ceilings(flops_per_s, bandwidth, " and ".join(sorted(known)))


def _sum(works: list[Work]) -> Work:
    flops: dict[str, int] = defaultdict(int)
    for work in works:
        for dtype, number in work.flops.items():
            flops[dtype] += number
    return Work(dict(flops), sum(work.n_bytes for work in works))


def _cost(work: Work) -> Cost:
    return Cost(sum(work.flops.values()) if work.flops else None, work.n_bytes)


# ---- Tables ----------------------------------------------------------------------------------------------------------


def blocks(profile: TraceProfile, shown: Shown) -> list[Block]:
    """Return the whole report: the operations, and a plot for each number format in which they multiply."""
    table, work, rows = profile.analysis.table, profile.work(shown.by), profile.rows(shown.by)
    title = _title(profile.analysis)

    def share(row: Row) -> float | None:
        return of_roof(profile.ceilings(work.get(row.key)), row.cost, row.self_ns(table.clock))

    def limit(row: Row) -> str:
        ceilings = profile.ceilings(work.get(row.key))
        return _limit(ceilings, row.cost) if ceilings and row.cost and share(row) is not None else units.MISSING

    columns: dict[str, Callable[[Row], str]] = {**cost_columns(table.clock), "of roof": lambda row: percent(share(row))}
    drawn = operations_table(title, table, rows, shown, columns, sentences(profile, shown.by), {"limit": limit})
    plots = [
        Block(f"Roofline, {title}, {precision}", drawing=drawing) for precision, drawing in _plots(profile, rows, work, shown)
    ]
    return [Block("", tables=(drawn,)), *plots]


def _title(analysis: Analysis) -> str:
    devices = ", ".join(dict.fromkeys(name for name, _ in analysis.machine if name))
    steps = f"median of {len(analysis.steps)} steps" if len(analysis.steps) > 1 else analysis.steps[0]
    return units.printable(", ".join(filter(None, (PurePath(analysis.source).name, devices, steps))))


def _limit(ceilings: Ceilings, cost: Cost) -> str:
    """Return what limits an operation: memory, or multiplication in its number format."""
    if not cost.flops or ceilings.attainable(cost.flops, cost.n_bytes) < ceilings.flops_per_s:
        return "memory"
    return ceilings.precision


def _plots(
    profile: TraceProfile, rows: Mapping[OpKey, Row], work: Mapping[OpKey, Work], shown: Shown
) -> Iterator[tuple[str, str]]:
    table = profile.analysis.table
    of_precision: dict[str, list[tuple[Row, Ceilings]]] = defaultdict(list)
    for row in picked_rows(rows, table, shown)[0]:
        ceilings = profile.ceilings(work.get(row.key))
        if ceilings and row.cost and row.cost.flops:
            of_precision[ceilings.precision].append((row, ceilings))
    for precision, found in of_precision.items():
        if " and " in precision:  # each operation has a peak of its own
            continue
        drawn = (point(operation_name(*row.key), row.cost, row.self_ns(table.clock), ceilings) for row, ceilings in found)
        if points := [one for one in drawn if one]:
            yield precision, plot(points, found[0][1])


# ---- Sentences -------------------------------------------------------------------------------------------------------


def sentences(profile: TraceProfile, by: str) -> Iterator[str]:
    """Yield sentences about the peaks, and about the time that has no place on the roofline."""
    table, costs = profile.analysis.table, profile.costs
    if not costs.work and NOT_RECORDED in costs.uncounted.values():
        yield (
            "The trace has no shapes from which FLOPs and bytes could be counted, so no operation has a place on the roofline. "
            "torch.profiler records them with record_shapes=True."
        )
        return
    yield _peaks(profile)
    clock = table.clock
    whole = sum(row.self_ns(clock) for row in table.rows)
    placed, rest = 0, dict[str, list[OpRow]]()
    for row in table.rows:
        if reason := _reason(profile, row):
            rest.setdefault(reason, []).append(row)
        else:
            placed += row.self_ns(clock)
    if not whole:
        return
    time = "device time" if clock == "device" else "host time"
    share = f"{units.percent(placed / whole)} of the {time}"
    text = f"With them, {share} would have a place." if profile.missing else f"{share} has a place on the roofline."
    if reasons := list(_reasons(rest, clock, whole)):
        text += f" The rest: {'; '.join(reasons)}."
    yield text
    if names := sorted({shortened(name) for name, _, _ in costs.bounds}):
        yield f"FLOPs of {', '.join(names)} are upper bounds: they include those that a causal mask leaves out."
    if by != "op,module" and rest:
        yield "A sum over operations has a place only if each of them has one."


def _reason(profile: TraceProfile, row: OpRow) -> str:
    """Return why a row has no place on the roofline; empty if it has one."""
    if not row.is_operation:
        return profile.costs.uncounted.get(row.key, "time outside operations")
    work = profile.costs.work.get(row.key)
    if work is None:
        return profile.costs.uncounted.get(row.key, NOT_RECORDED)
    return "" if profile.missing or profile.ceilings(work) else _NO_PEAK


def _reasons(rest: Mapping[str, list[OpRow]], clock: str, whole: int) -> Iterator[str]:
    """Yield each reason with its share of the time and the longest operations, the largest share first."""
    shares = {reason: sum(row.self_ns(clock) for row in rows) / whole for reason, rows in rest.items()}
    for reason, share in sorted(shares.items(), key=lambda item: -item[1]):
        if share < _LEAST_SHARE:
            continue
        times: dict[str, int] = defaultdict(int)
        for row in rest[reason]:
            if row.is_operation:
                times[shortened(row.name)] += row.self_ns(clock)
        names = [name for name in sorted(times, key=lambda name: -times[name]) if times[name]]
        listed = ", ".join([*names[:_NAMES], *(["..."] if len(names) > _NAMES else [])])
        yield f"{units.percent(share)} {reason}{f' ({listed})' if listed else ''}"


def _peaks(profile: TraceProfile) -> str:
    """Return a sentence with the peaks that are used, or what is missing."""
    peaks = profile.peaks
    used = sorted({dtype for work in profile.costs.work.values() for dtype in work.flops})
    if profile.missing:
        names = list(dict.fromkeys(name or "that the trace does not name" for name, _ in profile.analysis.machine))
        of = f"a device {' or '.join(map(repr, names))}" if names else "the processor"
        options = " and ".join(profile.missing)
        return f"No operation has a place on the roofline, because the peaks of {of} are not known: give {options}."
    bandwidth = units.bytes_per_s(peaks.bytes_per_s or 0)
    if peaks.flops_per_s_of_all:
        return f"Peaks: {units.flops_per_s(peaks.flops_per_s_of_all)} for every number format, {bandwidth} ({peaks.source})."
    rates = [f"{units.flops_per_s(rate)} ({dtype})" for dtype in used if (rate := peaks.of(dtype))]
    tf32 = " Products of float32 count as TF32 where the name of a kernel contains it." if "tf32" in used else ""
    return f"Peaks: {', '.join([*rates, bandwidth])} ({peaks.source}).{tf32}"


# ---- Data ------------------------------------------------------------------------------------------------------------

CSV_COLUMNS = (
    "trace", "view", "operation", "phase", "module", "calls", "self_cpu_ns", "self_device_ns", "total_cpu_ns", "memory_bytes",
    "flops", "bytes", "precision", "peak_flops_per_s", "peak_bytes_per_s", "of_roof", "not_counted",
)  # fmt: skip


def csv_rows(profile: TraceProfile, by: str) -> Iterator[tuple[object, ...]]:
    """Yield every operation, the longest first."""
    analysis, work, uncounted = profile.analysis, profile.work(by), profile.uncounted(by)
    table = analysis.table
    for row in sorted(profile.rows(by).values(), key=lambda row: (-row.self_ns(table.clock), row.key)):
        ceilings = profile.ceilings(work.get(row.key))
        share = of_roof(ceilings, row.cost, row.self_ns(table.clock))
        has_flops = ceilings is not None and math.isfinite(ceilings.flops_per_s)
        yield (
            analysis.source, table.view, *row.key, row.calls, row.self_cpu_ns,
            row.self_device_ns if table.view == "device" else None, row.total_ns, row.memory_bytes,
            row.cost.flops if row.cost else None, row.cost.n_bytes if row.cost else None,
            " and ".join(sorted(work[row.key].flops)) or None if row.key in work else None,
            ceilings.flops_per_s if ceilings and has_flops else None, ceilings.bytes_per_s if ceilings else None,
            None if share is None else round(share, 4),
            uncounted.get(row.key),
        )  # fmt: skip


def dumps(profile: TraceProfile, by: str) -> str:
    """Return the operations as the text of a JSON file."""
    analysis, peaks = profile.analysis, profile.peaks
    found = {
        "schema": SCHEMA,
        "trace": analysis.source,
        "devices": [{"name": name, "memory_bytes": memory} for name, memory in analysis.machine],
        "steps": list(analysis.steps),
        "peaks": {
            "flops_per_s": peaks.flops_per_s_of_all or dict(peaks.flops_per_s),
            "bytes_per_s": peaks.bytes_per_s,
            "source": peaks.source,
        },
        "operations": [dict(zip(CSV_COLUMNS[1:], row[1:], strict=True)) for row in csv_rows(profile, by)],
    }
    return json.dumps(found, indent=1, allow_nan=False) + "\n"
