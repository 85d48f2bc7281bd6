"""Files of torch.profiler made by hand.

Events as dicts, with times in microseconds, as Kineto writes them.

An event begins at ``ts`` and lasts ``dur``. Events of one thread of the host are nested by their
times.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]

#: Process of the host unless another is given.
PID = 100
#: Thread of the host unless another is given.
THREAD = 100
#: The thread on which autograd runs backward.
BACKWARD_THREAD = 101

H100 = "NVIDIA H100 80GB HBM3"
MI300X = "AMD Instinct MI300X"

#: A kernel that communicates between ranks.
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def event(
    category: str,
    name: str,
    ts: float,
    dur: float | None,
    *,
    thread: Any = THREAD,
    pid: Any = PID,
    **args: Any,
) -> Event:
    """Any event with a duration; ``args`` are its arguments.

    Without a duration, it was not finished.
    """
    built: Event = {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": thread,
        "ts": ts,
        "args": args,
    }
    return built if dur is None else {**built, "dur": dur}


def op(
    name: str,
    ts: float,
    dur: float,
    *arguments: Any,
    external: int | None = None,
    sequence: int | None = None,
    forward_thread: int | None = None,
    shapes: Sequence[Any] | None = None,
    thread: Any = THREAD,
) -> Event:
    """An operation of PyTorch, maybe with recorded arguments or with their shapes alone.

    One with a ``forward_thread`` is autograd's, for the operation of forward with the sequence.
    """
    args = {
        "External id": external,
        "Sequence number": sequence,
        "Fwd thread id": forward_thread,
        "Input Dims": shapes,
    }
    return event(
        "cpu_op",
        name,
        ts,
        dur,
        thread=thread,
        **_given({**args, **(recorded(*arguments) if arguments else {})}),
    )


def backward(name: str, ts: float, dur: float, sequence: int) -> Event:
    """An operation that autograd runs for the operation of forward with this sequence number."""
    return op(name, ts, dur, sequence=sequence, forward_thread=1, thread=BACKWARD_THREAD)


def range_(name: str, ts: float, dur: float, *, thread: Any = THREAD) -> Event:
    """A range of ``record_function``."""
    return event("user_annotation", name, ts, dur, thread=thread)


def step(number: int, ts: float, dur: float) -> Event:
    """A step of the profiler."""
    return range_(f"ProfilerStep#{number}", ts, dur)


def module(name: str, ts: float, dur: float) -> Event:
    """A call of a module, which is recorded with Python stacks: ``Linear_3``."""
    return event("python_function", f"nn.Module: {name}", ts, dur)


def launch(
    ts: float,
    dur: float,
    correlation: int,
    *,
    name: str = "cudaLaunchKernel",
    external: int | None = None,
    thread: Any = THREAD,
) -> Event:
    """A call of the runtime that launches what has the same correlation."""
    args = {"correlation": correlation, "External id": external}
    return event("cuda_runtime", name, ts, dur, thread=thread, **_given(args))


def kernel(
    name: str,
    ts: float,
    dur: float,
    *,
    correlation: int | None = None,
    external: int | None = None,
    device: int = 0,
    stream: int = 7,
    category: str = "kernel",
) -> Event:
    """A kernel; with the category ``gpu_memcpy`` or ``gpu_memset`` a copy or a fill."""
    args = {"correlation": correlation, "External id": external, "device": device, "stream": stream}
    return event(category, name, ts, dur, pid=device, thread=stream, **_given(args))


def run(ts: float, number: int, *kernels: str, category: str = "kernel") -> list[Event]:
    """Launches by the operation with this external id.

    With kernels of a microsecond that they launched.
    """
    events: list[Event] = []
    for at, name in enumerate(kernels):
        correlation = 100 * number + at
        events.append(launch(ts + at, 1, correlation))
        events.append(
            kernel(
                name, ts + 10 + at, 1, correlation=correlation, external=number, category=category
            )
        )
    return events


def forward_backward(number: int, forward: Event, backward: Event) -> list[Event]:
    """The link from an operation of forward to the one of backward that autograd ran for it."""
    return [
        {
            "ph": phase,
            "cat": "fwdbwd",
            "name": "fwdbwd",
            "id": number,
            **{name: at[name] for name in ("pid", "tid", "ts")},
        }
        for phase, at in (("s", forward), ("f", backward))
    ]


def memory(ts: float, n_bytes: int, *, of_host: bool = False) -> Event:
    """A record of bytes that were allocated or, if below 0, freed."""
    args = {"Bytes": n_bytes, "Device Type": 0 if of_host else 1}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": PID,
        "tid": THREAD,
        "ts": ts,
        "args": args,
    }


def document(
    events: Iterable[Event], *, devices: Sequence[str] = (H100,), **top: Any
) -> dict[str, Any]:
    """What a file of these events parses to; keywords are entries of its top level."""
    properties = [
        {"id": number, "name": name, "totalGlobalMem": 80 * 1024**3}
        for number, name in enumerate(devices)
    ]
    return {"schemaVersion": 1, "deviceProperties": properties, **top, "traceEvents": list(events)}


def trace_file(
    folder: Path,
    events: Iterable[Event],
    *,
    name: str = "trace.json",
    devices: Sequence[str] = (H100,),
    **top: Any,
) -> Path:
    """Write a trace of these events, compressed if the name ends in ``.gz``."""
    path = folder / name
    content = json.dumps(document(events, devices=devices, **top)).encode()
    path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    return path


def _given(args: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if value is not None}


# ---- Arguments of operations, as they are recorded with ``record_shapes=True`` -------------------

_TYPES = {
    "float32": "float",
    "float64": "double",
    "bfloat16": "c10::BFloat16",
    "float16": "c10::Half",
    "int64": "long int",
    "int32": "int",
    "uint8": "unsigned char",
    "bool": "bool",
}


class Of(NamedTuple):
    """A tensor: its shape, its number format, and its strides if they are recorded."""

    shape: Sequence[int]
    dtype: str = "bfloat16"
    strides: Sequence[int] = ()


def recorded(*arguments: Any) -> dict[str, Any]:
    """The arguments of one call.

    Each a tensor (of torch, or ``Of``), a list of them, a number, a list of numbers, or None.
    """
    columns = [_argument(argument) for argument in arguments]
    names = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    return {
        name: list(column) for name, column in zip(names, zip(*columns, strict=True), strict=True)
    }


def _argument(argument: Any) -> tuple[Any, str, Any, str]:
    if argument is None:
        return [], "", [], ""
    if isinstance(argument, Of):
        return list(argument.shape), _TYPES[argument.dtype], list(argument.strides), ""
    if hasattr(argument, "stride"):
        return (
            list(argument.shape),
            _TYPES[str(argument.dtype).removeprefix("torch.")],
            list(argument.stride()),
            "",
        )
    if isinstance(argument, list | tuple):
        if argument and not isinstance(argument[0], int):
            inner = [_argument(item) for item in argument]
            return [item[0] for item in inner], "TensorList", [item[2] for item in inner], ""
        return [], "ScalarList", [], str(list(argument))
    return [], "Scalar", [], str(argument)


# ---- Whole traces --------------------------------------------------------------------------------


def network(
    *,
    steps: int = 1,
    scale: float = 1.0,
    step_us: float = 1_000.0,
    addmm: str = "aten::addmm",
    kernel_name: str = "gemm",
    linked: bool = True,
) -> list[Event]:
    """Steps of a linear layer and a ReLU.

    Two kernels each, which take ``scale`` times 100 and 50 microseconds.

    Args:
        steps: how many; each later one takes 10 % longer than the one before it.
        scale: of the times of the kernels.
        step_us: length of a step, in microseconds.
        addmm: name of the operation of the linear layer.
        kernel_name: name of its kernel.
        linked: each kernel has the launch that its operation made.
    """
    events: list[Event] = []
    start = 1_000.0
    for number in range(steps):
        longer = scale * 1.1**number
        ids = 10 * (number + 1)
        links = [
            {"correlation": ids + position, "external": ids + position} if linked else {}
            for position in (1, 2)
        ]
        events += [
            step(number, start, step_us),
            module("Linear_0", start + 10, 400),
            op(addmm, start + 20, 300, external=ids + 1),
            launch(start + 100, 20, ids + 1),
            kernel(kernel_name, start + 150, round(100 * longer, 3), **links[0]),
            module("ReLU_0", start + 500, 200),
            op("aten::relu", start + 510, 100, external=ids + 2),
            launch(start + 550, 10, ids + 2),
            kernel("relu", start + 600, round(50 * longer, 3), **links[1]),
        ]
        start += step_us + 10
    return events
