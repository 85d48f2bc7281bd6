"""A file that several processes are merged into -> a trace of each.

torch.profiler records one process. Its file has the number of the host's process in host events and
the number of the accelerator in device events. Tools merge the files of several ranks into one.
External ids, correlations, numbers of flows and of autograd's threads are counted in each process
anew, so that several processes have the same ones: links are sought within a process only. What
tools change tells which device events belong to which process:

- TraceLens (TraceFuse) and ROCm's aorta write the rank into the arguments of each event.
- SGLang (``--merge-profiles``) puts a label before each process: ``[TP00] 4711``.
  Triton-distributed puts a rank behind it: ``4711_0``.
- Others give all events of a rank one process, as Megatron-LM-AutoTuner does.
- A file whose lists of events are only joined has several processes of the host. A device event is
  that of the process that has its launch, if only one has a launch with its correlation and its
  External id.

Files of one process are left as they are, also if they list others which have operations only.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mnistbench.core import units
from mnistbench.core.errors import RecordError
from mnistbench.core.operation import ITERATION
from mnistbench.events.launches import is_launch
from mnistbench.events.model import (
    OPERATION,
    RANGE,
    RUNTIME,
    STEP,
    DeviceEvent,
    Impossible,
    MemoryRecord,
    Place,
    ThreadEvent,
    Trace,
    process_of,
)

#: Argument in which tools that merge files write the rank. Those of collectives, which torch
#: writes, begin with a capital.
_RANK = "rank"

_NUMBER = re.compile(r"\d+")

#: Longer texts are no label of a process, and have numbers that Python does not read.
_LONGEST_LABEL = 1_000

#: So many numbers of a label are tried from each end. Those of SGLang have one for each dimension
#: of parallelism.
_MAX_NUMBERS = 10

#: Stands in a label for the number of the process that the profiler wrote.
_PROCESS = "\0"

_LAUNCHING_OR_COMPUTING = (OPERATION, RUNTIME)

#: Number of processes that a message names.
_NAMED = 4

#: A process, as the file has it, or what a tool wrote instead: a rank, a label.
_Owner = Hashable


@dataclass(frozen=True)
class _Owners:
    """Which process each event belongs to."""

    of_host: Mapping[Hashable, _Owner]  # by the process that a host event has; others are left out
    of_device: Sequence[_Owner]  # of each device event
    names: Mapping[_Owner, str]  # in order, as people read them
    ranks: Mapping[_Owner, int] | None  # None: the file does not have them


def split(trace: Trace) -> tuple[Trace, ...]:
    """Return a trace of each process in order of their ranks; a trace of one process as it is.

    Raises:
        RecordError: device events cannot be told apart.
    """
    processes = _launching_or_computing(trace)
    device_processes = {launched.process for launched in trace.device}
    owners = (
        _by_rank_arguments(trace, processes)
        or _by_labels(trace, processes, device_processes)
        or _by_processes(trace, processes)
    )
    return (trace,) if owners is None else tuple(_parts(trace, owners))


def _launching_or_computing(trace: Trace) -> set[Hashable]:
    """Return the processes that have operations or launch kernels."""
    processes = {
        process_of(thread)
        for thread in {
            event.thread for event in trace.host if event.kind in _LAUNCHING_OR_COMPUTING
        }
    }
    if len(processes) < 2:  # nearly all files: a runtime call is not looked at
        return processes
    threads = {event.thread for event in trace.host if event.kind == OPERATION or _launches(event)}
    return {process_of(thread) for thread in threads}


def _launches(event: ThreadEvent) -> bool:
    return event.kind == RUNTIME and event.correlation is not None and is_launch(event.name)


def _parts(trace: Trace, owners: _Owners) -> Iterable[Trace]:
    host: dict[_Owner, list[ThreadEvent]] = defaultdict(list)
    device: dict[_Owner, list[DeviceEvent]] = defaultdict(list)
    flows: dict[_Owner, list[tuple[Place, Place]]] = defaultdict(list)
    memory: dict[_Owner, list[MemoryRecord]] = defaultdict(list)
    for event in trace.host:
        host[owners.of_host.get(process_of(event.thread))].append(event)
    for launched, owner in zip(trace.device, owners.of_device, strict=True):
        device[owner].append(launched)
    for start, end in trace.flows:
        flows[owners.of_host.get(process_of(start[0]))].append((start, end))
    for record in trace.memory:
        memory[owners.of_host.get(process_of(record.thread))].append(record)
    for position, (owner, name) in enumerate(owners.names.items()):
        yield replace(
            trace,
            source=f"{trace.source} ({units.printable(name)})",
            host=host[owner],
            device=device[owner],
            flows=flows[owner],
            memory=memory[owner],
            rank=owners.ranks[owner] if owners.ranks else position,
            ranks=trace.ranks
            if owners.ranks and (trace.ranks or 0) > max(owners.ranks.values())
            else None,
            impossible=Impossible(),  # counted in each process
            # The reader counts these for the whole file.
            unfinished=0 if position else trace.unfinished,
            untimed=0 if position else trace.untimed,
            left_out={} if position else trace.left_out,
            repairs=() if position else trace.repairs,
        )


# ---- Marks of tools ------------------------------------------------------------------------------


def _by_rank_arguments(trace: Trace, processes: set[Hashable]) -> _Owners | None:
    marks = {launched.rank for launched in trace.device}
    if None in marks or (len(marks) < 2 and (trace.device or len(processes) < 2)):
        return None
    owner_of_host: dict[Hashable, _Owner] = {}
    for event in trace.host:
        rank = event.args.get(_RANK)
        if type(rank) is int and rank >= 0:
            owner_of_host.setdefault(process_of(event.thread), rank)
    ranks = {rank for rank in (*marks, *owner_of_host.values()) if isinstance(rank, int)}
    if len(ranks) < 2:
        return None
    return _Owners(
        of_host=owner_of_host,
        of_device=[launched.rank for launched in trace.device],
        names={rank: f"rank {rank}" for rank in sorted(ranks)},
        ranks={rank: rank for rank in ranks},
    )


def _by_labels(trace: Trace, processes: set[Hashable], of_device: set[Hashable]) -> _Owners | None:
    """Split by processes that are texts: by each text without the number that the profiler wrote.

    Without this number the device events have labels that processes of the host have.
    """
    texts = [
        process for process in (*processes, *of_device) if isinstance(process, str) and process
    ]
    if (
        not texts
        or len(texts) < len(processes) + len(of_device)
        or max(map(len, texts)) > _LONGEST_LABEL
    ):
        return None
    most_numbers = min(_MAX_NUMBERS, max(len(_NUMBER.findall(text)) for text in texts))
    for position in range(most_numbers):
        for place in (-1 - position, position):  # from the end first: a label is mostly in front
            labels = {_label(process, place) for process in processes or of_device}
            if (
                len(labels) > 1
                and None not in labels
                and {_label(process, place) for process in of_device} <= labels
            ):
                return _labelled(trace, labels, place)
    return None


def _labelled(trace: Trace, labels: Iterable[str | None], place: int) -> _Owners:
    ordered = sorted(
        (label for label in labels if label),
        key=lambda label: ([*map(int, _NUMBER.findall(label))], label),
    )
    numbers = [_NUMBER.findall(label) for label in ordered]
    ranks: dict[_Owner, int] = {
        label: int(numbers_of_rank[0])
        for label, numbers_of_rank in zip(ordered, numbers, strict=True)
        if len(numbers_of_rank) == 1
    }
    have_ranks = len(set(ranks.values())) == len(ordered)
    processes = {process_of(thread) for thread in {event.thread for event in trace.host}}
    return _Owners(
        of_host={process: _label(process, place) for process in processes},
        of_device=[_label(launched.process, place) for launched in trace.device],
        names={label: _readable(label) for label in ordered},
        ranks=ranks if have_ranks else None,
    )


def _label(process: Hashable, place: int) -> str | None:
    """Return a text with a mark in place of one of its numbers; None if it has none there."""
    numbers = list(_NUMBER.finditer(process)) if isinstance(process, str) else []
    if not -len(numbers) <= place < len(numbers):
        return None
    number = numbers[place]
    return f"{number.string[: number.start()]}{_PROCESS}{number.string[number.end() :]}"


def _readable(label: str) -> str:
    """Return a label as people read it: ``TP00`` of ``[TP00] 4711``, ``rank 0`` of ``4711_0``."""
    text = label.replace(_PROCESS, "").strip(" []()_-:/")
    return f"rank {text}" if text.isdigit() else text


# ---- Processes without a mark --------------------------------------------------------------------


def _by_processes(trace: Trace, processes: set[Hashable]) -> _Owners | None:
    if len(processes) < 2:
        return None
    programs = {
        process_of(event.thread)
        for event in trace.host
        if _launches(event)
        or event.is_backward
        or (event.kind == RANGE and event.name.startswith((STEP, ITERATION)))
    }
    if len(processes & programs) < 2:  # one program, and others that only prepare its data
        return None
    ordered = sorted(processes, key=lambda process: (str(type(process)), process))
    return _Owners(
        of_host={process: process for process in processes},
        of_device=_by_launches(trace, ordered),
        names={process: f"process {process}" for process in ordered},
        ranks=None,
    )


@dataclass
class _Evidence:
    """Which processes may have launched the events of one device."""

    # Events that only this process may have launched.
    launched: Counter[Hashable] = field(default_factory=Counter)
    # Processes with such an event that has an External id.
    proven: set[Hashable] = field(default_factory=set)
    ambiguous: int = 0  # events that several may have launched
    # Events that the process with the number of the device may have launched, minus those of
    # others.
    agreeing: int = 0

    def owner_of(self, process: Hashable) -> Hashable | None:
        """Return the process that launched an event of the device, if known.

        ``process`` is the only one that may have launched this event; None if there is no such one.
        """
        if len(self.proven) == 1:
            return next(iter(self.proven))
        if len(self.launched) == 1 and self.launched.total() >= self.ambiguous:
            return next(iter(self.launched))
        return process if len(self.launched) > 1 else None


def _by_launches(trace: Trace, processes: Sequence[Hashable]) -> list[Hashable]:
    """Return the process of each device event.

    That is its own process, if the host has it and launched most of its events. Else it is the
    process that certainly launched events of its device; or, if several did, the one that certainly
    launched this event.

    Raises:
        RecordError: several may have launched it.
    """
    launches: dict[Hashable, dict[int, ThreadEvent]] = {process: {} for process in processes}
    for event in trace.host:
        if (
            event.kind == RUNTIME
            and event.correlation is not None
            and (process := process_of(event.thread)) in launches
        ):
            launches[process][event.correlation] = event
    # Earlier versions of torch write the correlation as External id, which then proves nothing more
    # than the correlation.
    has_external_ids = any(
        launched.external not in (None, launched.correlation) for launched in trace.device
    )
    evidence_of_device: dict[Hashable, _Evidence] = defaultdict(_Evidence)
    certain = []
    for launched in trace.device:
        possible = [process for process in processes if _may_be_of(launched, launches[process])]
        process = _certain(launched, possible, launches)
        certain.append(process)
        evidence = evidence_of_device[launched.process]
        evidence.ambiguous += len(possible) > 1
        evidence.agreeing += (launched.process in possible) - (
            bool(possible) and launched.process not in possible
        )
        if process is not None:
            evidence.launched[process] += 1
            if has_external_ids and launched.external is not None:
                evidence.proven.add(process)
    if all(
        process in launches and evidence.agreeing >= 0
        for process, evidence in evidence_of_device.items()
    ):
        return [launched.process for launched in trace.device]
    owners = [
        evidence_of_device[launched.process].owner_of(process)
        for launched, process in zip(trace.device, certain, strict=True)
    ]
    if None in owners:
        listed = units.printable(
            ", ".join(
                [*map(str, processes[:_NAMED]), *(["..."] if len(processes) > _NAMED else [])]
            )
        )
        raise RecordError(
            f"{trace.source}: {len(processes)} processes are merged into it ({listed}), whose "
            "External ids and correlations are the same, so that it cannot be told which of them "
            "launched a kernel; give the trace of one"
        )
    return owners


def _may_be_of(event: DeviceEvent, launches: Mapping[int, ThreadEvent]) -> bool:
    """Whether one of the launches of a process may be that of a device event."""
    launch = None if event.correlation is None else launches.get(event.correlation)
    if launch is None or launch.start > event.end:
        return False
    return launch.external is None or event.external is None or launch.external == event.external


def _certain(
    event: DeviceEvent,
    possible: Sequence[Hashable],
    launches: Mapping[Hashable, Mapping[int, ThreadEvent]],
) -> Hashable | None:
    """Return the process that launched a device event; None if that is not certain.

    A kernel without an External id may have been launched before the trace, and the correlation be
    another's by chance.
    """
    if len(possible) != 1 or event.correlation is None:
        return None
    return (
        possible[0] if launches[possible[0]][event.correlation].external == event.external else None
    )
