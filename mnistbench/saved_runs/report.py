"""Saved runs -> tables: the list of runs, the history of one time, and the CSV of one run."""

from __future__ import annotations

import difflib
import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mnistbench.core import units
from mnistbench.core.errors import UsageError
from mnistbench.core.record import CaseRecord
from mnistbench.saved_runs.compatibility import blocking_differences, described, differences
from mnistbench.saved_runs.run import Run
from mnistbench.saved_runs.storage import SavedRun
from mnistbench.showing.table import Column, Table, csv_text

#: Most marks of a sparkline; with more runs, each mark is the median of several.
SPARKS = 60
#: Names that an error suggests; a case may have 160 operations.
NEAREST = 5

_LEVELS = "▁▂▃▄▅▆▇█"


def list_table(runs: Sequence[SavedRun]) -> Table:
    """Return a row per saved run, oldest first."""
    newest = runs[-1].run

    def comparable(saved: SavedRun) -> str:
        blocking = blocking_differences(saved.run.environment, newest.environment, None)
        return (
            f"no: different {', '.join(name.replace('_', ' ') for name in blocking)}"
            if blocking
            else "yes"
        )

    references = run_references(runs)
    names = (
        [Column[SavedRun]("name", lambda saved: saved.given_name or None)]
        if any(saved.given_name for saved in runs)
        else []
    )
    columns = (
        Column[SavedRun]("run", lambda saved: references[saved.path]),
        *names,
        Column[SavedRun]("saved (UTC)", lambda saved: saved.run.minute or None),
        Column[SavedRun]("commit", lambda saved: saved.run.short_commit or None),
        Column[SavedRun]("branch", lambda saved: saved.run.branch or None),
        Column[SavedRun]("machine", lambda saved: _machine(saved.run.environment)),
        Column[SavedRun]("torch", lambda saved: saved.run.environment.get("torch")),
        Column[SavedRun]("cases", lambda saved: len(saved.run.cases), str),
        Column[SavedRun]("comparable with the newest", comparable),
    )
    return Table(units.counted(len(runs), "saved run"), columns, runs)


def run_references(runs: Sequence[SavedRun]) -> dict[Path, str]:
    """Return what names each run on a command line.

    That is its number, with its folder where numbers repeat, or its file where folders do, too.
    """
    numbers = Counter(saved.name for saved in runs)
    in_folders = Counter((saved.path.parent.name, saved.name) for saved in runs)

    def reference(saved: SavedRun) -> str:
        folder = saved.path.parent.name
        if numbers[saved.name] == 1:
            return saved.name
        return f"{folder}/{saved.name}" if in_folders[folder, saved.name] == 1 else str(saved.path)

    return {saved.path: reference(saved) for saved in runs}


def _machine(environment: Mapping[str, Any]) -> str:
    cpu = environment.get("cpu_model", units.MISSING)
    count = environment.get("cpu_count")
    accelerators = [device.get("name", "accelerator") for device in environment.get("devices", ())]
    return ", ".join([f"{cpu} x {count}" if count else str(cpu), *accelerators])


# ---- History -------------------------------------------------------------------------------------


class EarlierTime(NamedTuple):
    """A time of a case in one saved run, and the run before it that has the case."""

    saved: SavedRun
    case: CaseRecord
    ns: float
    before: EarlierTime | None = None

    @property
    def change(self) -> float | None:
        """The change since the run before, as a share of its time."""
        return self.ns / self.before.ns - 1 if self.before and self.before.ns > 0 else None

    @property
    def changed(self) -> str:
        """What else changed since the run before."""
        before = self.before.saved.run.environment if self.before else {}
        return "; ".join(described(differences(before, self.saved.run.environment)))


#: Columns after the run.
_HISTORY = (
    Column[EarlierTime]("saved (UTC)", lambda past: past.saved.run.minute or None),
    Column[EarlierTime]("commit", lambda past: past.saved.run.short_commit or None),
    Column[EarlierTime]("time", lambda past: past.ns, units.duration),
    Column[EarlierTime](
        "change", lambda past: past.change, lambda share: units.percent(share, signed=True)
    ),
    Column[EarlierTime]("what else changed", lambda past: past.changed),
)


def history_table(runs: Sequence[SavedRun], case_name: str, op: str, module: str) -> Table:
    """Return the time of a case, or of its operations of a name and module, in every run."""
    past_times = [
        EarlierTime(saved, case, ns)
        for saved in runs
        for case in saved.run.cases
        if case_name in case.names and (ns := _time(case, op, module)) is not None
    ]
    if not past_times:
        sought = " ".join(
            [
                f"case {case_name!r}",
                *([f"with operation {op!r}"] if op else []),
                *([f"in {module!r}"] if module else []),
            ]
        )
        raise UsageError(f"no saved run has {sought}; {_known(runs, case_name, op, module)}")
    labels = {past.case.label for past in past_times}
    if several := _several(past_times) if len(labels) == 1 else labels:
        raise UsageError(
            f"{case_name!r} is {len(several)} cases: {', '.join(sorted(several))}; name one"
        )
    times = [past.ns for past in past_times]
    clocks = sorted({past.case.timing.clock for past in past_times if past.case.timing})
    of = (
        " ".join(filter(None, (op, f"in {module}" if module else "")))
        or f"{' or '.join(clocks)} time of one iteration"
    )
    # A name may contain line ends; only this title may have two lines.
    heading = units.printable(f"{labels.pop()}: {of}")
    rows = [
        past._replace(before=before)
        for before, past in zip([None, *past_times], past_times, strict=False)
    ]
    references = run_references(runs)
    columns = (Column[EarlierTime]("run", lambda past: references[past.saved.path]), *_HISTORY)
    return Table(
        (
            f"{heading}\n{sparkline(times)}  {units.duration(min(times))} to "
            f"{units.duration(max(times))}"
        ),
        columns,
        rows,
    )


def _several(past_times: Iterable[EarlierTime]) -> set[str]:
    """Return the node ids of a run in which several tests measure the case: no series of one."""
    node_ids_of_run: dict[int, set[str]] = defaultdict(set)
    for past in past_times:
        node_ids_of_run[id(past.saved)].add(past.case.node_id)
    return next((node_ids for node_ids in node_ids_of_run.values() if len(node_ids) > 1), set())


def _known(runs: Sequence[SavedRun], case_name: str, op: str, module: str) -> str:
    cases = {case.label: case for saved in runs for case in saved.run.cases}
    named = [case for case in cases.values() if case_name in case.names]
    if not named:
        return f"cases: {', '.join(sorted(cases)) or 'none'}"
    keys = [key for case in named for table in case.tables for key in table.keys]
    operations, modules = ({key[position] for key in keys if key[position]} for position in (0, 2))
    wrong, known, what = (
        (module, modules, "modules") if op in operations else (op, operations, "operations")
    )
    near = difflib.get_close_matches(wrong, sorted(known), n=NEAREST, cutoff=0)
    return f"its {what} with similar names: {', '.join(near) or 'none'}"


def _time(case: CaseRecord, op: str, module: str) -> float | None:
    if not op and not module:
        return case.wall_ns
    times_ns = [
        ns
        for table in case.warm_columns
        for (name, _, of), ns in zip(table.keys, table.net_ns, strict=True)
        if (not op or name == op) and (not module or of == module)
    ]
    return sum(times_ns) if times_ns else None


def sparkline(values: Sequence[float]) -> str:
    """Return values as a line of block characters; more than SPARKS as medians of neighbours."""
    if len(values) > SPARKS:
        edges = [round(position * len(values) / SPARKS) for position in range(SPARKS + 1)]
        values = [statistics.median(values[start:end]) for start, end in itertools.pairwise(edges)]
    low = min(values)
    high = max(values)
    scale = (len(_LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(_LEVELS[round((value - low) * scale)] for value in values)


# ---- CSV -----------------------------------------------------------------------------------------

_RUN_KEYS = (
    "case",
    "operation",
    "phase",
    "module",
    "calls",
    "self_ns",
    "spread_ns",
    "memory_bytes",
    "clock",  # of the times: wall, process, cpu, device
)


def run_csv(run: Run) -> str:
    """Return a row per case and operation or function of one run, with the profiler's overhead."""
    rows: list[tuple[object, ...]] = []
    for case in run.cases:
        clock = case.timing.clock if case.timing else None
        iteration = (case.wall_ns, case.wall_spread_ns, None, clock)
        rows.append((case.label, "(iteration)", "", "", None, *iteration))
        for table in case.warm_columns:
            counts = table.counts
            times = table.times
            columns = (counts.calls, times.self_ns, times.spread_ns, counts.memory_bytes)
            rows += [
                (case.label, *key, *cells, table.clock)
                for key, *cells in zip(table.keys, *columns, strict=True)
            ]
    return csv_text(_RUN_KEYS, rows)
