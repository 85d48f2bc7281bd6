"""A trace -> a saved run with a case of its host and, if it was recorded, of its accelerator.

The time of the host's case is that of a step, the time of the device's case is the busy time of a
step. Traces have no parameters, so that the cases of two traces are the same cases, whatever their
files are called.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mnistbench.core import units
from mnistbench.core.record import CaseRecord, OpTable, Timing, median_ns, quartiles_ns
from mnistbench.events.analysis import Analysis, analyse
from mnistbench.events.model import UNNAMED
from mnistbench.saved_runs.run import Run
from mnistbench.saved_runs.storage import SavedRun

#: Name of the case of the host.
HOST = "host"
#: Name of the case of the device.
DEVICE = "device"


def saved_trace(path: Path) -> SavedRun:
    """Read a trace as a saved run.

    Raises:
        RecordError: the file is no trace, or damaged.
    """
    analysis = analyse(path)
    host = analysis.tables.host
    device = analysis.tables.device
    cases = [_case(HOST, host, host.iteration_ns)]
    if device is not None:
        cases.append(_case(DEVICE, device, device.busy_ns, device_ns=device.busy_ns))
    run = Run(
        environment=_environment(analysis),
        cases=tuple(cases),
        source=str(path),
        trace=_label(analysis),
        has_steps=analysis.tables.are_steps_marked,
    )
    return SavedRun(path, run)


def _label(analysis: Analysis) -> str:
    """Return file, rank, steps and what is lost: ``a.json.gz, rank 3 of 8, 6 steps``."""
    parts = [analysis.file.source]
    if analysis.file.rank is not None and (analysis.file.ranks or 1) > 1:
        parts.append(f"rank {analysis.file.rank} of {analysis.file.ranks}")
    parts.append(
        units.counted(len(analysis.tables.steps), "step")
        if analysis.tables.are_steps_marked
        else "no steps, so that one iteration is the whole trace"
    )
    if analysis.file.untimed:
        parts.append(f"without {units.counted(analysis.file.untimed, 'event')} that have no time")
    if any(asdict(analysis.file.impossible).values()):
        parts.append("with impossible times, see mnistbench trace")
    if analysis.launches.n_lost:
        parts.append(analysis.launches.lost_of_all)
    return ", ".join(parts)


def _environment(analysis: Analysis) -> dict[str, Any]:
    """Return the machine and software of a trace, by the names of an Environment if it has them."""
    memory = [units.size(n_bytes) for _, n_bytes in analysis.timeline.machine if n_bytes]
    return {
        "devices": tuple(name or UNNAMED for name, _ in analysis.timeline.machine),
        **({"device_memory": tuple(memory)} if memory else {}),
        **({"ranks": analysis.file.ranks} if analysis.file.ranks is not None else {}),
        **analysis.file.versions,
    }


def _case(
    name: str, table: OpTable, steps_ns: Sequence[int], *, device_ns: tuple[int, ...] = ()
) -> CaseRecord:
    first, third = quartiles_ns(steps_ns)
    return CaseRecord(
        test=name,
        node_id=name,
        params=None,
        device_ns=device_ns,
        rounds_ns=tuple(steps_ns),
        tables=(table,),
        timing=Timing(
            median_ns=median_ns(steps_ns),
            iqr_ns=third - first,
            min_ns=min(steps_ns),
            mean_ns=round(statistics.mean(steps_ns)),
            stddev_ns=round(statistics.stdev(steps_ns)) if len(steps_ns) > 1 else 0,
            rounds=len(steps_ns),
        ),
    )
