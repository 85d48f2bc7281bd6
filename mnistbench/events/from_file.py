"""A file of torch.profiler -> its events.

The format is Chrome's trace event format with the categories and arguments of Kineto
(``output_json.cpp`` of pytorch/kineto). Timestamps are microseconds with three decimals, so a time
in nanoseconds is exact.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from mnistbench.core.errors import RecordError
from mnistbench.core.operation import LEFT_OUT, MEMORY, is_runtime_call
from mnistbench.core.units import LARGEST
from mnistbench.events import model
from mnistbench.events.content.document import ADVICE, read_document
from mnistbench.events.content.formats import NoTraceError
from mnistbench.events.model import (
    HOST_MEMORY,
    NO_WORK,
    OPERATION,
    OVERHEAD,
    RANGE,
    RUNTIME,
    DeviceEvent,
    MemoryRecord,
    Place,
    ThreadEvent,
    Trace,
    awaited_overhead,
    device_kind,
    host_kind,
)

#: Category -> kind of host events in files of torch 1.8 to 1.11.
_EARLIER_HOST_KINDS = {"Operator": OPERATION, "Runtime": RUNTIME}

#: Category -> kind of device events in files of torch 1.8 to 1.11.
_EARLIER_DEVICE_KINDS = {"Kernel": model.KERNEL, "Memcpy": model.COPY, "Memset": model.FILL}

#: Categories of earlier versions have no ranges: these names are ranges all the same.
_RANGES = ("ProfilerStep#", "Optimizer.")

_VERSIONS = (
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
    "pytorch_version",
)

#: Endings of the names of traces.
ENDINGS = (".json", ".json.gz")

#: Process of the operations in a list of the legacy profiler, whose events have no category
#: (``EventList.export_chrome_trace`` in ``torch/autograd/profiler_util.py``).
_LEGACY_HOST = "CPU functions"

#: Functions of Python in such a list: ``torch/nn/modules/module.py(12): call``, ``<built-in method
#: t>``, ``nn.Module: ReLU_0``.
_PYTHON_FUNCTION = re.compile(r"nn\.Module: |<built-in |.*\(\d+\): ", re.DOTALL)

#: torch_npu writes times as texts, so that no digit is lost.
_TIME_IN_TEXT = re.compile(r"\s*[-+]?\d{1,20}(\.\d{1,20})?\s*", re.ASCII)

#: An event that lasts more than seven days has a damaged duration: the profiler counts from 0, or
#: below it and without a sign. HolisticTraceAnalysis leaves such events out, too.
_LONGEST_NS = 7 * 24 * 3600 * 10**9

#: If the first event that does not begin at 0 begins later than this, those at 0 that last for 0 ns
#: have no time (pytorch/pytorch issue 188481). A trace may count from its own beginning.
_AFTER_NO_TIME_NS = 1_000_000
#: If it begins later than this, the trace has the time of the system, and none begins at 0.
_AFTER_NO_START_NS = 24 * 3600 * 10**9

#: A number of ranks above this one is damage.
_MAX_RANKS = 10**6


def read(path: Path) -> Trace:
    """Read a trace, plain or compressed with gzip.

    Raises:
        RecordError: one line with the file, what is wrong with it, and its place. It is a
            NoTraceError if the file is of another format.
    """
    document = read_document(path)
    return _Reading(str(path), document.content, document.repairs).trace()


class _Reading:
    """Collects the events of one document."""

    def __init__(self, source: str, document: Mapping[str, Any], repairs: tuple[str, ...]) -> None:
        self._document = document
        self._source = source
        self._repairs = repairs
        self._host: list[ThreadEvent] = []
        self._overhead: list[ThreadEvent] = []
        self._device: list[DeviceEvent] = []
        self._memory: list[MemoryRecord] = []
        self._starts: dict[Hashable, Place] = {}  # of flows, by their process and their id
        self._flows: list[tuple[Place, Place]] = []
        self._unfinished = 0
        self._untimed = 0
        self._left_out: Counter[str] = Counter()  # by category
        self._is_rounded = True

    def trace(self) -> Trace:
        for position, raw in enumerate(self._document["traceEvents"]):
            if type(raw) is not dict:
                raise self._error(position, "", "is not an event")
            phase = raw.get("ph")
            if phase == "X":
                self._add_timed(position, raw)
            elif phase in ("s", "f"):
                self._add_flow(position, raw, phase)
            elif phase == "i" and raw.get("name") == MEMORY:
                self._add_memory(position, raw)
            # Chrome's format allows pairs of begin and end, which the profiler does not write.
            elif phase == "B":
                self._left_out["the phases B and E"] += 1
        if not self._device and not any(event.kind == OPERATION for event in self._host):
            raise NoTraceError(
                f"{self._source}: has no operation and no kernel of PyTorch; profile while "
                f"operations run, or {ADVICE}"
            )
        self._leave_out_untimed()
        self._host += awaited_overhead(self._host, self._overhead)
        rank, ranks = self._ranks()
        return Trace(
            source=self._source,
            host=self._host,
            device=self._device,
            flows=self._flows,
            memory=self._memory,
            devices=self._devices(),
            versions=self._versions(),
            rank=rank,
            ranks=ranks,
            unfinished=self._unfinished,
            untimed=self._untimed,
            is_rounded=self._is_rounded,
            left_out=dict(self._left_out),
            repairs=self._repairs,
        )

    def _add_timed(self, position: int, raw: Mapping[str, Any]) -> None:
        category = self._category(raw)
        if category is None:
            self._left_out[_without_category(raw)] += 1
            return
        kind, runs_on_device = _kind_of(category)
        if kind is None:
            if category not in NO_WORK:
                self._left_out[f"the category {category}"] += 1
            return
        name = raw.get("name")
        if type(name) is not str:
            raise self._error(position, "name", f"{name!r} is not a name")
        if name in LEFT_OUT:
            return
        duration = self._duration(position, raw)
        if duration is None:
            self._unfinished += 1
            return
        start = self._ns(position, raw, "ts")
        if runs_on_device:
            self._device.append(_device_event(name, kind, raw, start, duration))
            return
        if duration > _LONGEST_NS:
            self._untimed += 1
            return
        args = _arguments(raw)
        if kind is OPERATION and name.startswith(_RANGES):
            kind = RANGE
        event = ThreadEvent(
            name,
            kind,
            self._thread(raw),
            start,
            start + duration,
            external=_whole(args.get("External id")),
            correlation=_whole(args.get("correlation")),
            sequence=_whole(args.get("Sequence number")),
            forward_thread=_whole(args.get("Fwd thread id")),
            args=args,
        )
        (self._overhead if category == OVERHEAD else self._host).append(event)

    def _category(self, raw: Mapping[str, Any]) -> str | None:
        category = raw.get("cat")
        if type(category) is str:
            return category
        return self._legacy_category(raw) if raw.get("pid") == _LEGACY_HOST else None

    def _duration(self, position: int, raw: Mapping[str, Any]) -> int | None:
        """Return a duration, which may be damaged; None if the profiler stopped before the end."""
        if raw.get("dur") is None:
            return None
        duration = self._ns(position, raw, "dur", math.inf)
        return duration if duration >= 0 else None

    def _leave_out_untimed(self) -> None:
        """Leave out events of the host without a time, and mark those of a device.

        The profiler wrote 0 for their start.
        """
        events: list[ThreadEvent | DeviceEvent] = [*self._host, *self._overhead, *self._device]
        first = min((event.start for event in events if event.start != 0), default=0)

        def is_untimed(event: ThreadEvent | DeviceEvent) -> bool:
            if event.start != 0 or first <= _AFTER_NO_TIME_NS:
                return False
            return event.end == 0 or first > _AFTER_NO_START_NS

        for device_event in self._device:
            if is_untimed(device_event):
                device_event.is_timed = False
        n_events = len(self._host) + len(self._overhead)
        self._host = [event for event in self._host if not is_untimed(event)]
        self._overhead = [event for event in self._overhead if not is_untimed(event)]
        self._untimed += n_events - len(self._host) - len(self._overhead)

    def _legacy_category(self, raw: Mapping[str, Any]) -> str:
        """Return the category of an event in a list that has none.

        Such a list is ``prof.events()`` of any profiler. That of the legacy profiler has operations
        only. That of Kineto has functions of Python among them and, with an accelerator, kernels
        and calls of the runtime.
        """
        name = str(raw.get("name"))
        if is_runtime_call(name):
            raise NoTraceError(
                f"{self._source}: is a list of prof.events(), in which kernels cannot be told "
                f"from operations; {ADVICE}"
            )
        return "python_function" if _PYTHON_FUNCTION.match(name) else "cpu_op"

    def _add_flow(self, position: int, raw: Mapping[str, Any], phase: str) -> None:
        number = raw.get("id")
        if raw.get("cat") != "fwdbwd" or type(number) not in (int, str):
            return
        place = (self._thread(raw), self._ns(position, raw, "ts"))
        process = model.process_of(place[0])
        # The end of a flow may come before its start.
        first = self._starts.pop((phase == "s", process, number), None)
        if first is None:
            self._starts[phase == "f", process, number] = place
        else:
            self._flows.append((place, first) if phase == "s" else (first, place))

    def _add_memory(self, position: int, raw: Mapping[str, Any]) -> None:
        args = raw.get("args")
        if type(args) is not dict:
            return
        n_bytes = args.get("Bytes")
        if type(n_bytes) is int and abs(n_bytes) <= LARGEST:
            is_of_host = args.get("Device Type") in HOST_MEMORY
            ns = self._ns(position, raw, "ts")
            self._memory.append(MemoryRecord(ns, n_bytes, is_of_host, self._thread(raw)))

    def _ns(
        self, position: int, raw: Mapping[str, Any], field: str, largest: float = LARGEST
    ) -> int:
        value: Any = raw.get(field)
        if type(value) not in (int, float):
            is_time = type(value) is str and _TIME_IN_TEXT.fullmatch(value)
            if not is_time:
                raise self._error(position, field, f"{value!r} is not a time")
            value = Decimal(value) if "." in value else int(value)
        # NaN is not at most anything.
        if not abs(value) * 1000 <= largest or abs(value) * 1000 == math.inf:
            raise self._error(position, field, f"{value!r} is not a time")
        self._is_rounded = self._is_rounded and type(value) is int
        ns: int = round(value * 1000)
        return ns

    def _thread(self, raw: Mapping[str, Any]) -> Hashable:
        process = raw.get("pid")
        thread = raw.get("tid")
        return (
            (process, thread) if type(process) in (int, str) and type(thread) in (int, str) else ""
        )

    def _error(self, position: int, field: str, complaint: str) -> RecordError:
        place = f"traceEvents[{position}]{f'.{field}' if field else ''}"
        return RecordError(
            f"{self._source}: {place}: {complaint}; the file is damaged, or {ADVICE}"
        )

    # ---- The machine -----------------------------------------------------------------------------

    def _devices(self) -> dict[str, tuple[str, int]]:
        """Return the accelerators.

        Where files of several machines are merged, a number of different ones has no name.
        """
        listed = self._document.get("deviceProperties")
        devices: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for device in listed if type(listed) is list else []:
            if type(device) is dict:
                devices[str(device.get("id"))].add(
                    (_text(device.get("name")), _size(device.get("totalGlobalMem")))
                )
        return {
            number: described.pop() for number, described in devices.items() if len(described) == 1
        }

    def _versions(self) -> dict[str, str]:
        recorded = {name: self._document.get(name) for name in _VERSIONS}
        return {
            name: str(value) for name, value in recorded.items() if type(value) in (int, float, str)
        }

    def _ranks(self) -> tuple[int | None, int | None]:
        distributed = self._document.get("distributedInfo")
        if type(distributed) is not dict:
            return None, None
        rank = distributed.get("rank")
        ranks = distributed.get("world_size")
        is_number = type(ranks) is int and 1 <= ranks <= _MAX_RANKS
        return (rank if type(rank) is int else None), (ranks if is_number else None)


def _arguments(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    args = raw.get("args")
    return args if type(args) is dict else {}


def _device_event(
    name: str, kind: str, raw: Mapping[str, Any], start: int, duration: int
) -> DeviceEvent:
    args = _arguments(raw)
    process = raw.get("pid")
    numbers = (args.get("device"), process)
    device = next((str(number) for number in numbers if type(number) in (int, str)), "")
    stream = args.get("stream", raw.get("tid"))
    # Streams of two processes or contexts may have one number.
    unique_stream = f"{process} {device} {args.get('context')} {stream}"
    is_timed = duration <= _LONGEST_NS
    event = DeviceEvent(
        name,
        kind,
        start,
        start + (duration if is_timed else 0),
        device=device,
        stream=unique_stream if type(stream) in (int, str) else "",
        external=_whole(args.get("External id")),
        correlation=_whole(args.get("correlation")),
        is_of_graph=bool(_whole(args.get("graph id"))),
        process=process if type(process) in (int, str) else "",
        rank=_whole(args.get("rank")),
    )
    event.is_timed = is_timed
    return event


@functools.lru_cache(maxsize=1024)  # a file has a few categories, and asks for each event
def _kind_of(category: str) -> tuple[str | None, bool]:
    """Return the kind of a category of events, None for others, and whether a device has them."""
    kind_on_device = device_kind(category) or _EARLIER_DEVICE_KINDS.get(category)
    if kind_on_device:
        return kind_on_device, True
    return host_kind(category) or _EARLIER_HOST_KINDS.get(category), False


def _whole(value: object) -> int | None:
    """Return a whole number from 0 as it is; None for anything else."""
    return value if type(value) is int and value >= 0 else None


def _without_category(raw: Mapping[str, Any]) -> str:
    """Return how an event without a category is called among those that are left out."""
    if raw.get("pid") == "CUDA functions":
        return "the process CUDA functions, whose times are of whole operations"
    args = raw.get("args")
    task = args.get("Task Type") if type(args) is dict else None
    return f"the task type {task} of Ascend" if type(task) is str else "no category"


def _text(value: object) -> str:
    """Return the name of a device; empty for no text, and for spaces alone, which ROCm writes."""
    return value.strip() if type(value) is str else ""


def _size(value: object) -> int:
    return value if type(value) is int and 0 <= value <= LARGEST else 0
