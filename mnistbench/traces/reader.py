"""A file of torch.profiler -> its events.

The format is Chrome's trace event format with the categories and arguments of Kineto (``output_json.cpp`` of
pytorch/kineto). Timestamps are microseconds with three decimals, so a time in nanoseconds is exact.
"""

from __future__ import annotations

import gzip
import json
import operator
import zlib
from collections import defaultdict
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from mnistbench.core.document import LARGEST
from mnistbench.core.errors import RecordError
from mnistbench.core.operation import LEFT_OUT, MEMORY
from mnistbench.traces import events
from mnistbench.traces.events import OPERATION, RANGE, RUNTIME, DeviceEvent, MemoryRecord, Place, ThreadEvent, Trace

#: Category -> kind. Those in capitals are the names of torch 1.8 to 1.11.
_HOST_KINDS = {
    "cpu_op": OPERATION, "user_annotation": RANGE, "python_function": events.PYTHON, "Operator": OPERATION,
    "Runtime": RUNTIME,
}  # fmt: skip
_DEVICE_KINDS = {
    "kernel": events.KERNEL, "gpu_memcpy": events.COPY, "gpu_memset": events.FILL,
    "Kernel": events.KERNEL, "Memcpy": events.COPY, "Memset": events.FILL,
}  # fmt: skip
_OVERHEAD = "overhead"  # of the profiler: of its buffers, which have a thread of their own, or of loading a kernel
_RUNTIME_ENDS = ("_runtime", "_driver", _OVERHEAD)  # cuda_runtime, cuda_driver, xpu_runtime, privateuse1_runtime, ...

#: Categories of earlier versions have no ranges: these names are ranges all the same.
_RANGES = ("ProfilerStep#", "Optimizer.")

#: Values of c10::DeviceType that are memory of the host: CPU, MKLDNN, IDEEP.
_HOST_MEMORY = (0, 2, 5)

_VERSIONS = ("cuda_runtime_version", "cuda_driver_version", "cupti_version", "hip_runtime_version", "hip_driver_version",
             "roctracer_version", "pytorch_version")  # fmt: skip

#: Endings of the names of traces.
ENDINGS = (".json", ".json.gz")

#: First bytes of a compressed file.
GZIP = b"\x1f\x8b"

_ADVICE = "give a file that torch.profiler's export_chrome_trace wrote"


def read(path: Path) -> Trace:
    """Read a trace, plain or compressed with gzip.

    Raises:
        RecordError: one line with the file, what is wrong with it, and its place.
    """
    return _Reading(str(path), _parsed(path)).trace()


def _parsed(path: Path) -> Mapping[str, Any]:
    """Return the JSON object of the file."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content.startswith(GZIP) else content
    except EOFError:
        raise RecordError(f"{path}: is cut off; copy the whole file again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise RecordError(f"{path}: is damaged ({error}); copy the file again") from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None
    if not content.strip():
        raise RecordError(f"{path}: is empty; the program may have ended before the profiler wrote the trace")
    try:
        document = json.loads(content, strict=False)  # torch 2.0 writes names of code with line breaks as they are
    except UnicodeDecodeError:
        raise RecordError(f"{path}: is not a text file; {_ADVICE}") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: is not JSON ({error}); the file is cut off or damaged, or {_ADVICE}") from None
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise RecordError(f"{path}: has no list of traceEvents, so it is no trace; {_ADVICE}")
    return document


class _Reading:
    """Collects the events of one document."""

    def __init__(self, source: str, document: Mapping[str, Any]) -> None:
        self._document = document
        self._source = source
        self._host: list[ThreadEvent] = []
        self._overhead: list[ThreadEvent] = []
        self._device: list[DeviceEvent] = []
        self._memory: list[MemoryRecord] = []
        self._starts: dict[Hashable, Place] = {}  # of flows, by their process and their id
        self._flows: list[tuple[Place, Place]] = []
        self._unfinished = 0
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
        if not self._device and not any(event.kind == OPERATION for event in self._host):
            raise RecordError(
                f"{self._source}: has no operation and no kernel of PyTorch; profile while operations run, or {_ADVICE}"
            )
        threads = {event.thread for event in self._host}  # nothing waits for overhead on another thread
        self._host += [event for event in self._overhead if event.thread in threads]
        self._host.sort(key=lambda event: (event.start, -event.end))
        self._device.sort(key=lambda event: (event.start, event.end))
        self._memory.sort(key=operator.itemgetter(0, 1, 2))  # without processes: numbers and texts have no order
        rank, ranks = self._ranks()
        return Trace(
            source=self._source, host=self._host, device=self._device, flows=self._flows, memory=self._memory,
            devices=self._devices(), versions=self._versions(), rank=rank, ranks=ranks, unfinished=self._unfinished,
            is_rounded=self._is_rounded,
        )  # fmt: skip

    def _add_timed(self, position: int, raw: Mapping[str, Any]) -> None:
        category = raw.get("cat")
        if type(category) is not str:
            return
        of_device = _DEVICE_KINDS.get(category)
        kind = of_device or _HOST_KINDS.get(category) or (RUNTIME if category.endswith(_RUNTIME_ENDS) else None)
        if kind is None:
            return
        name = raw.get("name")
        if type(name) is not str:
            raise self._error(position, "name", f"{name!r} is not a name")
        if name in LEFT_OUT:
            return
        duration = raw.get("dur")
        if duration is None or (type(duration) in (int, float) and duration < 0):  # the profiler stopped before the end
            self._unfinished += 1
            return
        start = self._ns(position, raw, "ts")
        end = start + self._ns(position, raw, "dur")
        args = raw.get("args")
        args = args if type(args) is dict else {}
        if of_device:
            self._device.append(DeviceEvent(name, kind, raw.get("pid"), start, end, args))
            return
        if kind is OPERATION and name.startswith(_RANGES):
            kind = RANGE
        found = ThreadEvent(name, kind, self._thread(raw), start, end, args)
        (self._overhead if category == _OVERHEAD else self._host).append(found)

    def _add_flow(self, position: int, raw: Mapping[str, Any], phase: str) -> None:
        number = raw.get("id")
        if raw.get("cat") != "fwdbwd" or type(number) not in (int, str):
            return
        place = (self._thread(raw), self._ns(position, raw, "ts"))
        process = events.process_of(place[0])
        first = self._starts.pop((phase == "s", process, number), None)  # the end of a flow may come before its start
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
            process = events.process_of(self._thread(raw))
            self._memory.append(MemoryRecord(self._ns(position, raw, "ts"), n_bytes, of_host, process))

    def _ns(self, position: int, raw: Mapping[str, Any], field: str) -> int:
        value: Any = raw.get(field)
        if type(value) not in (int, float) or not abs(value) * 1000 <= LARGEST:  # NaN is not, either
            raise self._error(position, field, f"{value!r} is not a time")
        self._is_rounded = self._is_rounded and type(value) is int
        ns: int = round(value * 1000)
        return ns

    def _thread(self, raw: Mapping[str, Any]) -> Hashable:
        process, thread = raw.get("pid"), raw.get("tid")
        return (process, thread) if type(process) in (int, str) and type(thread) in (int, str) else ""

    def _error(self, position: int, field: str, complaint: str) -> RecordError:
        place = f"traceEvents[{position}]{f'.{field}' if field else ''}"
        return RecordError(f"{self._source}: {place}: {complaint}; the file is damaged, or {_ADVICE}")

    # ---- The machine -------------------------------------------------------------------------------------------------

    def _devices(self) -> dict[str, tuple[str, int]]:
        """Return the accelerators. Where files of several machines are merged, a number of different ones has no name."""
        listed = self._document.get("deviceProperties")
        described = [one for one in listed if type(one) is dict] if type(listed) is list else []
        devices: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for one in described:
            if type(one.get("name")) is str:
                memory = one.get("totalGlobalMem")
                devices[str(one.get("id"))].add((one["name"], memory if type(memory) is int else 0))
        return {number: found.pop() for number, found in devices.items() if len(found) == 1}

    def _versions(self) -> dict[str, str]:
        found = {name: self._document.get(name) for name in _VERSIONS}
        return {name: str(value) for name, value in found.items() if type(value) in (int, float, str)}

    def _ranks(self) -> tuple[int | None, int | None]:
        distributed = self._document.get("distributedInfo")
        if type(distributed) is not dict:
            return None, None
        rank, ranks = distributed.get("rank"), distributed.get("world_size")
        return (rank if type(rank) is int else None), (ranks if type(ranks) is int else None)
