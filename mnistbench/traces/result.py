"""A trace as JSON, for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mnistbench import __version__
from mnistbench.core.record import OpTable
from mnistbench.traces.analysis import Analysis
from mnistbench.traces.ranks import RanksRun

#: Version of the JSON.
#:
#: 1: the first.
SCHEMA = 1


def dumps(traces: Sequence[Analysis]) -> str:
    """Return traces as JSON. Times are nanoseconds, with a sample per step."""
    return _dumps({"traces": [_trace(trace) for trace in traces]})


def dumps_ranks(run: RanksRun) -> str:
    """Return a distributed run as JSON: its traces by rank, and the slowest."""
    return _dumps({
        "folder": run.folder,
        "slowest_rank": run.slowest.rank,
        "missing_ranks": run.missing,
        "traces": [_trace(rank) for rank in run.ranks],
    })  # fmt: skip


def _dumps(content: dict[str, Any]) -> str:
    return json.dumps({"schema": SCHEMA, "mnistbench": __version__, **content}, indent=1) + "\n"


def _trace(trace: Analysis) -> dict[str, Any]:
    return {
        "source": trace.source,
        "rank": trace.rank,
        "ranks": trace.ranks,
        "machine": [{"name": name, "memory_bytes": memory} for name, memory in trace.machine],
        "versions": dict(trace.versions),
        "steps": trace.steps,
        "steps_are_marked": trace.are_steps_marked,
        "timelines": [{**asdict(each), "idle_ns": each.idle_ns} for each in trace.timelines],
        "elapsed_ns": trace.elapsed_ns,
        "collectives_ns": trace.collectives_ns,
        "outside_collectives_ns": trace.outside_collectives_ns,
        "unplaced": asdict(trace.unplaced),
        "outside_steps_ns": trace.outside_ns,
        "outside_steps_device_ns": trace.outside_device_ns,
        "unfinished": trace.unfinished,
        "host": _table(trace.host),
        "device": _table(trace.device) if trace.device else None,
        "kernels": [
            {**dict(zip(("operation", "phase", "module"), kernel.key, strict=True)), "name": kernel.name, "kind": kernel.kind,
             "count": kernel.count, "ns": kernel.ns, "least_ns": kernel.least_ns, "most_ns": kernel.most_ns}
            for kernel in trace.kernels
        ],
    }  # fmt: skip


def _table(table: OpTable) -> dict[str, Any]:
    return {
        "iteration_ns": table.iteration_ns,
        "busy_ns": table.busy_ns,
        "rows": [
            {"operation": row.name, "phase": row.phase, "module": row.module, "calls": row.calls,
             "self_cpu_ns": row.self_cpu_ns, "total_cpu_ns": row.total_cpu_ns,
             "self_device_ns": row.self_device_ns, "memory_bytes": row.memory_bytes, "shapes": row.shapes,
             "kernels": row.kernels}
            for row in table.rows
        ],
    }  # fmt: skip
