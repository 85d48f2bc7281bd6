"""FLOPs and bytes of a trace's rows, from recorded shapes; and the peaks of its accelerators.

With an accelerator, the operation that launched a kernel has the work: of ``aten::linear``, which
calls ``aten::addmm``, which launches a kernel, only ``aten::addmm``. Without one, the work belongs
to the operations that spend the time themselves. So each operation's work is compared with its own
time, and counts once.

Peaks are found by the name and the memory that a trace records. They are those of dense matrices,
the highest of a number format: those of tensor or matrix cores where they have it. FLOPs are
counted for matrix products, convolutions and attention only. Data sheets since that of the H100
list the rates of matrices with 2:4 sparsity, which are twice as high; the rates here are half of
them.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mnistbench.core.operation import OWN_SHARE, OpKey
from mnistbench.core.units import LARGEST
from mnistbench.events.launches import UnrecordedLaunches
from mnistbench.events.model import COPY, OPERATION, DeviceEvent, Steps, ThreadEvent, Trace
from mnistbench.events.table import key_of
from mnistbench.events.work.arguments import NO_RULE, Arguments, UncountedError
from mnistbench.events.work.bytes_moved import MOVES, VIEWS
from mnistbench.events.work.flops import PRODUCTS, Work
from mnistbench.events.work.roofline import Ceilings

#: Why the work of a row is not counted, besides the reasons in ``arguments``.
NO_OPERATION = "kernels and copies of no operation"
COMMUNICATION = "communication"
FOREIGN_COPY = "copies to and from the accelerator, which its memory does not limit"
OTHERS_WORK = "operations that call others, which have the work"
NO_DATA = "operations that move no data"
IMPOSSIBLE = "kernels with impossible times"
UNRECORDED = "operations that launched kernels which are not recorded"

#: In the names of kernels that multiply TF32 numbers: cuBLAS and cuDNN write tf32, CUTLASS of
#: earlier versions the shape of the instruction, 16 x 8 x 8, which has no other number format with
#: tensors of float32.
_TF32 = ("tf32", "s1688")


@dataclass(frozen=True)
class Costs:
    """The rows of a table, each in one of both."""

    work: Mapping[OpKey, Work] = field(default_factory=dict)  # in all steps
    # Why the work of at least one call is not known.
    uncounted: Mapping[OpKey, str] = field(default_factory=dict)


def costs_of(trace: Trace, steps: Steps, launches: UnrecordedLaunches) -> Costs:
    """Count the work of each row of the device table or, without an accelerator, of the host table.

    The events are linked and placed. A row with at least one call that cannot be counted has no
    work, nor has one with a call whose kernels are not all recorded: its time is not that of its
    work.
    """
    calls = _calls(trace, steps)
    multiplying = {id(event): event for _, event, _ in calls if event and event.name in PRODUCTS}
    around: set[int] = set()  # ids of all events around these
    for product in multiplying.values():
        caller = product.caller
        while caller is not None:
            around.add(id(caller.kept))
            caller = caller.caller
    work: dict[OpKey, Work] = defaultdict(Work)
    uncounted: dict[OpKey, str] = {}
    for key, event, launched in calls:
        if id(event) in multiplying and id(event) in around:
            uncounted.setdefault(key, OTHERS_WORK)
            continue
        try:
            work[key].add(_work(event, launched))
        except UncountedError as reason:
            uncounted.setdefault(key, str(reason))
    uncounted.update(dict.fromkeys(_rows_without_kernels(trace, launches), UNRECORDED))
    known = {key: row_work for key, row_work in work.items() if key not in uncounted}
    if not trace.device:
        for event in trace.host:
            if event.kind == OPERATION and (key := (event.name, *event.scope)) not in known:
                uncounted.setdefault(key, OTHERS_WORK)
    return Costs(known, uncounted)


def _rows_without_kernels(trace: Trace, launches: UnrecordedLaunches) -> set[OpKey]:
    """Return the rows of operations whose launches have no kernel.

    In a host table, an operation around them has their time.
    """
    rows = set()
    for launch in (*launches.lost, *(() if trace.device else launches.captured)):
        caller = launch.caller
        while caller is not None:
            if caller.kind == OPERATION:
                operation = caller.kept
                rows.add((operation.name, *operation.scope))
                if trace.device:
                    break
            caller = caller.caller
    return rows


#: A row, an operation that did its work or None, and what that launched.
_Call = tuple[OpKey, ThreadEvent | None, Sequence[DeviceEvent]]


def _calls(trace: Trace, steps: Steps) -> list[_Call]:
    if not trace.device:
        operations = (
            event for event in trace.host if event.kind == OPERATION and event.replaced_by is None
        )
        return [
            ((event.name, *event.scope), event, ())
            for event in operations
            if not event.is_beside
            and steps.slot_of(event.start) >= 0
            and event.self_ns >= OWN_SHARE * event.ns
        ]
    groups: dict[int, list[DeviceEvent]] = defaultdict(list)  # by operation
    for launched in trace.device:
        if steps.slot_of_device(launched) >= 0:
            groups[id(launched.operation or launched)].append(launched)
    return [(key_of(group[0]), group[0].operation, group) for group in groups.values()]


def _work(event: ThreadEvent | None, launched: Sequence[DeviceEvent]) -> Work:
    """Count one call; the number format is that in which the kernels multiply."""
    if event is None:
        raise UncountedError(NO_OPERATION)
    if not all(activity.is_possible for activity in launched):
        raise UncountedError(IMPOSSIBLE)
    if any(activity.kind == COPY and "DtoD" not in activity.name for activity in launched):
        raise UncountedError(FOREIGN_COPY)
    if any(activity.is_communication for activity in launched):
        raise UncountedError(COMMUNICATION)
    if event.name in VIEWS and not launched:
        raise UncountedError(NO_DATA)
    # First, because a trace without any shapes has a message of its own.
    arguments = Arguments(event.args)
    rule = PRODUCTS.get(event.name) or MOVES.get(event.name)
    if rule is None:
        raise UncountedError(NO_RULE)
    work = rule(arguments)
    if max(work.n_bytes, *work.flops.values(), 0) > LARGEST:
        raise UncountedError(NO_RULE)
    if "float32" in work.flops and any(
        mark in activity.name.lower() for activity in launched for mark in _TF32
    ):
        work.flops["tf32"] = work.flops.pop("float32")
    return work


# ---- Peak rates ----------------------------------------------------------------------------------

_TERA = 1e12
_GIGA = 1e9


@dataclass(frozen=True)
class Peaks:
    """Peak rates of an accelerator. None, or no entry: not known."""

    # By number format: bfloat16, tf32.
    flops_per_s: Mapping[str, float] = field(default_factory=dict)
    flops_per_s_of_all: float | None = None  # of any number format
    bytes_per_s: float | None = None
    source: str = ""

    def of(self, dtype: str) -> float | None:
        """Return the peak of a number format in FLOP/s."""
        return self.flops_per_s_of_all or self.flops_per_s.get(dtype)

    @property
    def missing(self) -> list[str]:
        """The options that would give peaks, because not all are known."""
        missing = [] if self.flops_per_s or self.flops_per_s_of_all else ["--peak-tflops"]
        return missing if self.bytes_per_s else [*missing, "--peak-gbs"]

    def ceilings(self, work: Work) -> Ceilings | None:
        """Return the peaks that work is compared with; None if one of them is not known.

        Of work in several number formats, the peak is that of doing one after the other.
        """
        known = {dtype: peak for dtype in work.flops if (peak := self.of(dtype))}
        if not self.bytes_per_s or len(known) < len(work.flops):
            return None
        seconds = sum(flops / known[dtype] for dtype, flops in work.flops.items())
        mixed = sum(work.flops.values()) / seconds if seconds else math.inf
        flops_per_s = next(iter(known.values())) if len(known) == 1 else mixed
        return Ceilings(flops_per_s, self.bytes_per_s, " and ".join(sorted(known)))


_H100_TERAFLOPS = {
    "float64": 66.9,
    "float32": 66.9,
    "tf32": 494.7,
    "bfloat16": 989.4,
    "float16": 989.4,
}
_A100_TERAFLOPS = {
    "float64": 19.5,
    "float32": 19.5,
    "tf32": 156.0,
    "bfloat16": 312.0,
    "float16": 312.0,
}
_A100_SHEET = "NVIDIA A100 data sheet nvidia-1758950-r4"
_HOPPER = "white paper on the Hopper architecture"

#: Regular expression for the whole name; bounds of the memory in 10**9 bytes, which exclude parts
#: of a partitioned accelerator; 10**12 FLOP/s by number format; 10**9 bytes/s; source.
_ENTRIES: tuple[tuple[str, tuple[float, float], Mapping[str, float], float, str], ...] = (
    (
        r"(NVIDIA )?(Tesla )?V100-SXM2-(16|32)GB",
        (15, 35),
        {"float64": 7.8, "float32": 15.7, "float16": 125.0},
        900,
        "NVIDIA V100 data sheet, V100 SXM2",
    ),
    (r"(NVIDIA )?A100[- ].*", (39, 44), _A100_TERAFLOPS, 1555, f"{_A100_SHEET}, 40 GB"),
    (r"(NVIDIA )?A100-SXM.*", (79, 87), _A100_TERAFLOPS, 2039, f"{_A100_SHEET}, 80 GB SXM"),
    (
        r"NVIDIA H100 80GB HBM3",
        (79, 87),
        _H100_TERAFLOPS,
        3350,
        f"NVIDIA H100 SXM data sheet, {_HOPPER}",
    ),
    (r"NVIDIA H200", (140, 152), _H100_TERAFLOPS, 4800, f"NVIDIA H200 SXM data sheet, {_HOPPER}"),
    (
        r"NVIDIA B200",
        (178, 195),
        {"float64": 37.0, "float32": 75.0, "tf32": 1125.0, "bfloat16": 2250.0, "float16": 2250.0},
        7700,
        "NVIDIA Blackwell data sheet, HGX B200",
    ),
    (  # ROCm shows each of the two dies as a device, and gives the MI250 and the MI250X this name
        r"AMD Instinct MI250X / MI250",
        (63, 70),
        {"float64": 47.85, "float32": 47.85, "bfloat16": 191.5, "float16": 191.5},
        1600,
        (
            "AMD Instinct MI250X data sheet, half of it for one of two dies; an MI250 has 5 % "
            "less FLOP/s and the same name"
        ),
    ),
    (
        r"AMD Instinct MI300X( VF| HF)?",
        (190, 210),
        {"float64": 163.4, "float32": 163.4, "tf32": 653.7, "bfloat16": 1307.4, "float16": 1307.4},
        5300,
        "AMD Instinct MI300X data sheet",
    ),
)


def peaks_of(
    machine: Iterable[tuple[str, int]], tflops: float | None = None, gbs: float | None = None
) -> Peaks:
    """Return the peaks of accelerators.

    None are known if they are not known of each of them, or not the same.

    Args:
        machine: name and bytes of memory of each.
        tflops: 10**12 FLOP/s that the user gave instead.
        gbs: 10**9 bytes/s that the user gave instead.
    """
    listed = [_listed(name, memory) for name, memory in machine]
    known = listed[0] if listed and all(peaks == listed[0] for peaks in listed) else Peaks()
    sources = [flag for flag, value in (("--peak-tflops", tflops), ("--peak-gbs", gbs)) if value]
    return Peaks(
        flops_per_s=known.flops_per_s,
        flops_per_s_of_all=tflops * _TERA if tflops else None,
        bytes_per_s=gbs * _GIGA if gbs else known.bytes_per_s,
        # Both.
        source=", ".join(
            [*sources, *([known.source] if known.source and len(sources) < 2 else [])]
        ),
    )


def _listed(name: str, memory_bytes: int) -> Peaks:
    for names, (least, most), teraflops, gigabytes, source in _ENTRIES:
        if re.fullmatch(names, name) and least * _GIGA <= memory_bytes <= most * _GIGA:
            return Peaks(
                {dtype: rate * _TERA for dtype, rate in teraflops.items()},
                None,
                gigabytes * _GIGA,
                source,
            )
    return Peaks()
