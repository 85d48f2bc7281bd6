"""A file of torch.profiler -> its events.

The format is Chrome's trace event format with the categories and arguments of Kineto
(``output_json.cpp`` of pytorch/kineto). Timestamps are microseconds with three decimals, so a time
in nanoseconds is exact.
"""

from __future__ import annotations

import operator
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
    OPERATION,
    RANGE,
    RUNTIME,
    DeviceEvent,
    MemoryRecord,
    Place,
    ThreadEvent,
    Trace,
)

#: Category -> kind. Those in capitals are the names of torch 1.8 to 1.11.
_HOST_KINDS = {
    "cpu_op": OPERATION,
    "user_annotation": RANGE,
    "python_function": model.PYTHON,
    "Operator": OPERATION,
    "Runtime": RUNTIME,
}
_DEVICE_KINDS = {
    "kernel": model.KERNEL,
    "gpu_memcpy": model.COPY,
    "gpu_memset": model.FILL,
    "Kernel": model.KERNEL,
    "Memcpy": model.COPY,
    "Memset": model.FILL,
}
#: Of the profiler: of its buffers, which have a thread of their own, or of loading a kernel.
_OVERHEAD = "overhead"
#: cuda_runtime, cuda_driver, xpu_runtime, privateuse1_runtime, ...
_RUNTIME_ENDS = ("_runtime", "_driver", _OVERHEAD)

#: Categories of earlier versions have no ranges: these names are ranges all the same.
_RANGES = ("ProfilerStep#", "Optimizer.")

#: Values of c10::DeviceType that are memory of the host: CPU, MKLDNN, IDEEP.
_HOST_MEMORY = (0, 2, 5)

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

#: Categories of Kineto that are no work: copies of ranges, marks, and waiting that has an event of
#: the runtime, too.
_NO_WORK = frozenset(
    (
        "gpu_user_annotation",
        "Trace",
        "cpu_instant_event",
        "external_correlation",
        "cuda_sync",
        "xpu_sync",
        "cuda_event",
        "cuda_profiler_range",
    )
)

#: torch_npu writes times as texts, so that no digit is lost.
_TIME_IN_TEXT = re.compile(r"\s*[-+]?\d{1,20}(\.\d{1,20})?\s*", re.ASCII)

#: A number of ranks above this one is damage.
_MOST_RANKS = 10**6


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
        # Nothing waits for overhead on another thread.
        threads = {event.thread for event in self._host}
        self._host += [event for event in self._overhead if event.thread in threads]
        self._host.sort(key=lambda event: (event.start, -event.end))
        self._device.sort(key=lambda event: (event.start, event.end))
        # Without processes: numbers and texts have no order.
        self._memory.sort(key=operator.itemgetter(0, 1, 2))
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
            is_rounded=self._is_rounded,
            left_out=dict(self._left_out),
            repairs=self._repairs,
        )

    def _add_timed(self, position: int, raw: Mapping[str, Any]) -> None:
        category = raw.get("cat")
        if type(category) is not str:
            if raw.get("pid") != _LEGACY_HOST:
                self._left_out[_without_category(raw)] += 1
                return
            category = self._legacy_category(raw)
        of_device = _DEVICE_KINDS.get(category)
        kind = (
            of_device
            or _HOST_KINDS.get(category)
            or (RUNTIME if category.endswith(_RUNTIME_ENDS) else None)
        )
        if kind is None:
            if category not in _NO_WORK:
                self._left_out[f"the category {category}"] += 1
            return
        name = raw.get("name")
        if type(name) is not str:
            raise self._error(position, "name", f"{name!r} is not a name")
        if name in LEFT_OUT:
            return
        duration = None if raw.get("dur") is None else self._ns(position, raw, "dur")
        if duration is None or duration < 0:  # the profiler stopped before the end
            self._unfinished += 1
            return
        start = self._ns(position, raw, "ts")
        end = start + duration
        args = raw.get("args")
        args = args if type(args) is dict else {}
        if of_device:
            self._device.append(
                DeviceEvent(name, kind, raw.get("pid"), raw.get("tid"), start, end, args)
            )
            return
        if kind is OPERATION and name.startswith(_RANGES):
            kind = RANGE
        found = ThreadEvent(name, kind, self._thread(raw), start, end, args)
        (self._overhead if category == _OVERHEAD else self._host).append(found)

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
            of_host = args.get("Device Type") in _HOST_MEMORY
            process = model.process_of(self._thread(raw))
            self._memory.append(
                MemoryRecord(self._ns(position, raw, "ts"), n_bytes, of_host, process)
            )

    def _ns(self, position: int, raw: Mapping[str, Any], field: str) -> int:
        value: Any = raw.get(field)
        if type(value) not in (int, float):
            is_time = type(value) is str and _TIME_IN_TEXT.fullmatch(value)
            if not is_time:
                raise self._error(position, field, f"{value!r} is not a time")
            value = Decimal(value) if "." in value else int(value)
        if not abs(value) * 1000 <= LARGEST:  # NaN is not, either
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
        found = {name: self._document.get(name) for name in _VERSIONS}
        return {
            name: str(value) for name, value in found.items() if type(value) in (int, float, str)
        }

    def _ranks(self) -> tuple[int | None, int | None]:
        distributed = self._document.get("distributedInfo")
        if type(distributed) is not dict:
            return None, None
        rank = distributed.get("rank")
        ranks = distributed.get("world_size")
        is_number = type(ranks) is int and 1 <= ranks <= _MOST_RANKS
        return (rank if type(rank) is int else None), (ranks if is_number else None)


def _without_category(raw: Mapping[str, Any]) -> str:
    """Return how an event without a category is called among those that are left out."""
    if raw.get("pid") == "CUDA functions":
        return "the process CUDA functions, whose times are of whole operations"
    args = raw.get("args")
    task = args.get("Task Type") if type(args) is dict else None
    return f"the task type {task} of Ascend" if type(task) is str else "no category"


def _text(value: object) -> str:
    """Return the name of a device.

    Empty for one that only has spaces, as ROCm writes it, or no text.
    """
    return value.strip() if type(value) is str else ""


def _size(value: object) -> int:
    return value if type(value) is int and 0 <= value <= LARGEST else 0
