"""Saved runs -> tables: the list of runs, and the history of one time. Also the entries of exports."""

from __future__ import annotations

import difflib
import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mnistbench.compare.diff import grouped_times
from mnistbench.compare.thresholds import Criteria
from mnistbench.core import units
from mnistbench.core.errors import UsageError
from mnistbench.core.operation import operation_name
from mnistbench.saved_runs.compatibility import blocking_differences, differences
from mnistbench.saved_runs.storage import SavedRun
from mnistbench.saved_runs.summary import CaseSummary, RunSummary
from mnistbench.showing.table import Table, text_table

#: Most marks of a sparkline; with more runs, each mark is the median of several.
SPARKS = 60
#: Names that an error suggests; a case may have 160 operations.
NEAREST = 5

_LEVELS = "▁▂▃▄▅▆▇█"


def list_table(runs: Sequence[SavedRun]) -> Table:
    """Return a row per saved run, oldest first."""
    newest = runs[-1].run
    return text_table(
        title=f"{len(runs)} saved run{'s' if len(runs) != 1 else ''}",
        headings=("run", "saved (UTC)", "commit", "branch", "machine", "torch", "cases", "comparable with the newest"),
        rows=tuple(
            (
                saved.number or saved.path.name,
                saved.run.minute or units.MISSING,
                saved.run.short_commit or units.MISSING,
                saved.run.branch or units.MISSING,
                _machine(saved.run.environment),
                str(saved.run.environment.get("torch", units.MISSING)),
                str(len(saved.run.cases)),
                _comparable(saved.run, newest),
            )
            for saved in runs
        ),
        sums=(),
        numbers_from=8,
    )


def _machine(environment: Mapping[str, Any]) -> str:
    cpu, count = environment.get("cpu_model", units.MISSING), environment.get("cpu_count")
    accelerators = [device.get("name", "accelerator") for device in environment.get("devices", ())]
    return ", ".join([f"{cpu} x {count}" if count else str(cpu), *accelerators])


def _comparable(run: RunSummary, newest: RunSummary) -> str:
    found = blocking_differences(run.environment, newest.environment, None)
    return f"no: different {', '.join(name.replace('_', ' ') for name in found)}" if found else "yes"


def history_table(runs: Sequence[SavedRun], case_name: str, op: str, module: str) -> Table:
    """Return the time of a case, or of its operations of one name and module, in every saved run that has it.

    Raises:
        UsageError: no run has it.
    """
    found = [(saved, case, ns) for saved, case in _cases(runs, case_name) if (ns := _time(case, op, module)) is not None]
    if not found:
        what = " ".join(
            [f"case {case_name!r}", *([f"with operation {op!r}"] if op else []), *([f"in {module!r}"] if module else [])]
        )
        raise UsageError(f"no saved run has {what}; {_known(runs, case_name, op, module)}")
    labels = {case.label for _, case, _ in found}
    if several := _several(found) if len(labels) == 1 else labels:
        raise UsageError(f"{case_name!r} is {len(several)} cases: {', '.join(sorted(several))}; name one")
    times = [ns for _, _, ns in found]
    of = " ".join(filter(None, (op, f"in {module}" if module else ""))) or "wall time of one iteration"
    heading = units.printable(f"{labels.pop()}: {of}")  # a name may contain line ends; only this title may have two lines
    return text_table(
        title=f"{heading}\n{sparkline(times)}  {units.duration(min(times))} to {units.duration(max(times))}",
        headings=("run", "saved (UTC)", "commit", "us", "change", "what else changed"),
        rows=tuple(_history_rows(found)),
        sums=(),
        numbers_from=3,
        words_after=1,
    )


def _cases(runs: Iterable[SavedRun], name: str) -> Iterable[tuple[SavedRun, CaseSummary]]:
    for saved in runs:
        for case in saved.run.cases:
            if name in case.names:
                yield saved, case


def _several(found: Iterable[tuple[SavedRun, CaseSummary, int]]) -> set[str]:
    """Return the node ids of a run in which several tests measure the same case: their times are not one series."""
    of_run: dict[int, set[str]] = defaultdict(set)
    for saved, case, _ in found:
        of_run[id(saved)].add(case.node_id)
    return next((node_ids for node_ids in of_run.values() if len(node_ids) > 1), set())


def _known(runs: Sequence[SavedRun], case_name: str, op: str, module: str) -> str:
    cases = {case.label: case for saved in runs for case in saved.run.cases}
    named = [case for case in cases.values() if case_name in case.names]
    if not named:
        return f"cases: {', '.join(sorted(cases)) or 'none'}"
    keys = [key for case in named for view in case.tables.values() for key in view.operations]
    operations, modules = ({key[position] for key in keys if key[position]} for position in (0, 2))
    wrong, known, what = (module, modules, "modules") if op in operations else (op, operations, "operations")
    near = difflib.get_close_matches(wrong, sorted(known), n=NEAREST, cutoff=0)
    return f"its {what} with similar names: {', '.join(near) or 'none'}"


def _time(case: CaseSummary, op: str, module: str) -> int | None:
    if not op and not module:
        return case.wall_ns
    table = case.tables.get("device") or case.tables.get("host")
    if table is None:
        return None
    times = grouped_times(table, "op,module", "device" if "device" in case.tables else "cpu")
    found = [ns for (name, _, of), ns in times.items() if (not op or name == op) and (not module or of == module)]
    return sum(found) if found else None


def _history_rows(found: Sequence[tuple[SavedRun, CaseSummary, int]]) -> Iterable[tuple[str, ...]]:
    before: tuple[SavedRun, CaseSummary, int] | None = None
    for saved, case, ns in found:
        change = changed = ""
        if before:
            change = units.percent(ns / before[2] - 1, signed=True) if before[2] > 0 else units.MISSING
            others = differences(before[0].run.environment, saved.run.environment)
            changed = "; ".join(
                f"{name.replace('_', ' ')} {units.listed(old)} -> {units.listed(new)}" for name, (old, new) in others.items()
            )
        yield (
            saved.number or saved.path.name, saved.run.minute or units.MISSING,
            saved.run.short_commit or units.MISSING, units.microseconds(ns), change, changed,
        )  # fmt: skip
        before = (saved, case, ns)


def sparkline(values: Sequence[float]) -> str:
    """Return the values as a line of block characters; of more than SPARKS values, medians of neighbours."""
    if len(values) > SPARKS:
        edges = [round(position * len(values) / SPARKS) for position in range(SPARKS + 1)]
        values = [statistics.median(values[start:end]) for start, end in itertools.pairwise(edges)]
    low, high = min(values), max(values)
    scale = (len(_LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(_LEVELS[round((value - low) * scale)] for value in values)


def export_entries(run: RunSummary, criteria: Criteria) -> Iterable[dict[str, Any]]:
    """Yield entries for github-action-benchmark: each case, its operations that matter, and the other operations together.

    Operations of a few nanoseconds get no charts of their own. Names are unique, because entries of one name share a chart.
    """
    taken: set[str] = set()
    for entry in _entries(run, criteria):
        name, number = entry["name"], 1
        while entry["name"] in taken:
            number += 1
            entry["name"] = f"{name} ({number})"
        taken.add(entry["name"])
        yield entry


def _entries(run: RunSummary, criteria: Criteria) -> Iterable[dict[str, Any]]:
    labels = Counter(case.label for case in run.cases)
    for case in run.cases:
        label = case.label if labels[case.label] == 1 else f"{case.label} ({case.node_id})"  # two tests may measure one case
        yield _entry(label, case.wall_ns, case.wall_spread_ns, run.label)
        table = case.tables.get("device") or case.tables.get("host")
        if table is None:
            continue
        rest_ns = rest = 0
        cost = 0 if "device" in case.tables else table.profiler_ns
        for key, row in table.operations.items():
            ns = row.self_ns - round(row.calls * cost)
            if criteria.matters(ns, case.wall_ns, row.calls, cost):
                yield _entry(f"{label}: {operation_name(*key)}", ns, row.spread_ns, f"{row.calls:g} calls")
            else:
                rest_ns, rest = rest_ns + ns, rest + 1
        if rest:
            yield _entry(f"{label}: other", max(0, rest_ns), None, f"{rest} operations")


def _entry(name: str, ns: int, spread_ns: int | None, extra: str) -> dict[str, Any]:
    """Return an entry with unit and spread as the action shows them. It shows names as text, not as markup."""
    entry = {"name": units.printable(name), "unit": "us", "value": ns / 1_000, "extra": units.printable(extra)}
    return entry if spread_ns is None else {**entry, "range": f"± {spread_ns / 1_000:g}"}


RUN_COLUMNS = ("case", "operation", "phase", "module", "calls", "self_ns", "spread_ns", "memory_bytes")


def run_rows(run: RunSummary) -> Iterable[Sequence[Any]]:
    """Yield a row per case and operation of one run, as measured, with the profiler's overhead."""
    for case in run.cases:
        yield (case.label, "(call)", "", "", None, case.wall_ns, case.wall_spread_ns, None)
        table = case.tables.get("device") or case.tables.get("host")
        for (name, phase, module), row in (table.operations if table else {}).items():
            yield (case.label, name, phase, module, row.calls, row.self_ns, row.spread_ns, row.memory_bytes)
