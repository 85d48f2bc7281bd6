"""Runs torch.profiler over a case and returns its operation tables.

The profiled callable is the timed one. Only during the profiled pass it has marks: ranges around
the runner's parts and around each module's forward.
"""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.profiler import ProfilerActivity, record_function

from mnistbench.core.compiled.compilation import Compilation
from mnistbench.core.compiled.names import COMPILED
from mnistbench.core.errors import UsageError
from mnistbench.core.operation import (
    ITERATION,
    MODEL,
    MODULE,
    NO_MODULE,
    PHASE,
)
from mnistbench.core.record import OpTable
from mnistbench.events.from_profiler import operation_table, trace_of
from mnistbench.measuring.calls import Call
from mnistbench.measuring.provider import CallProfile, imported_provider
from mnistbench.measuring.timing import WARMUP_ITERATIONS
from mnistbench.suite.measuring.case import Case, synchronizer
from mnistbench.suite.measuring.observing import (
    Observed,
    first_calls,
    observed_if,
    runs_eagerly,
)
from mnistbench.suite.workloads.step import Inference, Step

#: Blocks of each kind, and calls per block. Disturbances only add time, so the fastest block is the
#: best estimate.
_COST_BLOCKS = 10
_COST_CALLS = 300


def profile_first_call(case: Case, *, first_of_process: bool) -> OpTable:
    """Return the operations of a case's first iteration, host activities only."""
    profiler = profile_iterations(
        case,
        iterations=1,
        activities=[ProfilerActivity.CPU],
        shapes=False,
        is_compiled=case.params.compile,
    )
    return operation_table(
        profiler,
        case.params.device,
        "host",
        temperature="cold",
        first_of_process=first_of_process,
    )


def profile(case: Case, *, iterations: int, view: str = "host", shapes: bool = False) -> OpTable:
    """Return the operations of a warm case, from its initial state, one sample per iteration.

    ``shapes`` records the distinct input shapes of each operation.
    """
    return profile_warm(case, iterations=iterations, view=view, shapes=shapes).table()


@dataclass(frozen=True)
class WarmProfile:
    """A profile of iterations of a warm case."""

    profiler: torch.profiler.profile  # has ended
    device: str  # of the case
    view: str  # host or device
    # Overhead of the profiler per operation call. It was measured before the profile: the events
    # of an accelerator are in the trace of the last profile only.
    profiler_ns: int
    observed: Observed | None = None  # compiled code of the case; None without any

    def table(self) -> OpTable:
        """Return the operations, one sample per iteration."""
        return operation_table(
            self.profiler,
            self.device,
            self.view,
            profiler_ns=self.profiler_ns,
            graphs=self.observed.graphs if self.observed else None,
        )

    def export_trace(self, path: Path) -> None:
        """Write a Chrome trace, as long as no other profile has started."""
        export_trace(self.profiler, path)


def profile_warm(
    case: Case,
    *,
    iterations: int,
    view: str = "host",
    shapes: bool = False,
    communicates: bool = False,
) -> WarmProfile:
    """Profile iterations of a warm case, from its initial state.

    If it ``communicates`` with other ranks, another iteration follows that is dropped: the ranges
    of the communication end on threads of their own, shortly after the iteration, and the profiler
    loses those that have not ended.
    """
    device = case.params.device
    activities = activities_of(device, view)
    profiler_ns = cost_per_call(tuple(activities))
    with observed_if(has_compiled_code(case), case, MODEL) as observed:
        case.reset()
        for _ in range(WARMUP_ITERATIONS):
            case()
        profiler = profile_iterations(
            case,
            iterations=iterations,
            activities=activities,
            shapes=shapes,
            dropped=1,  # in which the profiler creates its buffers
            dropped_after=int(communicates),
            is_compiled=observed is not None,
        )
    return WarmProfile(profiler, device, view, profiler_ns, observed)


def has_compiled_code(case: Case) -> bool:
    """Return whether torch.compile compiles code of a case; a model may do so by itself."""
    if runs_eagerly():
        return False
    if case.params.compile:
        return True
    return imported_provider().compilations() > 0 and operations_of(case)[1]


def operations_of(run: Callable[[], object]) -> tuple[bool, bool]:
    """Run once under the profiler.

    Return whether there were operations of torch, and whether some were compiled.
    """
    profiler = torch.profiler.profile(activities=activities_of("cpu", "host"))
    with started(profiler):
        run()
    names = {event.name for event in trace_of(profiler).host}
    is_compiled = COMPILED in names
    return is_compiled or any("::" in name for name in names), is_compiled


def profile_call(
    call: Call, *, iterations: int, duration_ns: float, device: str, shapes: bool = False
) -> CallProfile:
    """Return the operations of a warm call: host alone and, on an accelerator, with the device.

    There are no tables without operations.

    A sample repeats a call whose ``duration_ns`` is short. ``shapes`` records the distinct input
    shapes of each operation.
    """
    loops = call.repetitions(duration_ns)
    with call.prepared() as run:
        has_operations, is_compiled = operations_of(run)
    if not has_operations:
        return CallProfile((), None)

    def run_once() -> None:
        with call.prepared() as run:
            run()
            synchronizer(torch.device(device))()

    tables = []
    compilation: Compilation | None = None
    for view in views_of(device):
        activities = activities_of(device, view)
        profiler_ns = cost_per_call(tuple(activities))
        profiler = torch.profiler.profile(
            activities=activities, record_shapes=shapes, profile_memory=True
        )
        with (
            observed_if(is_compiled, run_once, NO_MODULE) as observed,
            started(profiler),
            contextlib.nullcontext() if is_compiled else marked_calls(),
        ):
            for number in range(1 + iterations):
                mark = record_function(ITERATION) if number else contextlib.nullcontext()
                with call.prepared() as run, mark, forward_range():
                    for _ in range(loops):
                        run()
                    synchronizer(torch.device(device))()
        profile = WarmProfile(profiler, device, view, profiler_ns, observed)
        tables.append(profile.table().of_one_call(loops))
        compilation = observed.compilation if observed else None
    if compilation:
        compilation = replace(compilation, **vars(first_calls(run_once)))
    return CallProfile(tuple(tables), compilation)


def activities_of(device: str, view: str) -> list[ProfilerActivity]:
    """Return the profiler's activities for the view ``host`` or ``device``."""
    on_device = {"cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}
    return [
        ProfilerActivity.CPU,
        *([on_device[torch.device(device).type]] if view == "device" else []),
    ]


@functools.cache  # constant within a process
def cost_per_call(activities: tuple[ProfilerActivity, ...]) -> int:
    """Return the overhead of the profiler per operation call, in nanoseconds.

    The fastest profiled block minus the fastest plain block, per call. Blocks alternate and call
    one small in-place operation, so that the overhead dominates.
    """
    operand = torch.ones(16)

    def block() -> int:
        start = time.perf_counter_ns()
        for _ in range(_COST_CALLS):
            operand.neg_()
        return time.perf_counter_ns() - start

    def profiled() -> int:
        # Without acc_events nothing parses the events, which takes ten times as long as the blocks.
        with started(torch.profiler.profile(activities=activities, profile_memory=True)):
            block()  # the first calls create the profiler's buffers
            return block()

    pairs = [(block(), profiled()) for _ in range(_COST_BLOCKS)]
    quickest, quickest_profiled = (min(pair[side] for pair in pairs) for side in (0, 1))
    return max(0, round((quickest_profiled - quickest) / _COST_CALLS))


def views_of(device: str) -> tuple[str, ...]:
    """Return the views of a warm case: ``host`` and, if the profiler supports it, ``device``."""
    return ("host", "device") if has_device_view(device) else ("host",)


def has_device_view(device: str) -> bool:
    """Whether the profiler supports the device (not mps: Kineto has no support for it)."""
    return torch.device(device).type in ("cuda", "xpu")


def profile_iterations(
    case: Case,
    *,
    iterations: int,
    activities: Sequence[ProfilerActivity],
    shapes: bool,
    dropped: int = 0,
    dropped_after: int = 0,
    is_compiled: bool = False,
) -> torch.profiler.profile:
    """Run the case, marked, under the profiler.

    ``dropped`` iterations before and others after are profiled but not marked.

    The events are parsed when they are read: ``acc_events=True`` would parse them here.
    """
    profiler = torch.profiler.profile(
        activities=activities, record_shapes=shapes, profile_memory=True
    )
    with started(profiler), marked(case, is_compiled=is_compiled):
        for _ in range(dropped):
            case()
        for _ in range(iterations):
            with record_function(ITERATION):
                case()
        for _ in range(dropped_after):
            case()
    return profiler


@contextlib.contextmanager
def started(profiler: torch.profiler.profile) -> Iterator[None]:
    """Profile the body.

    torch 2.11 warns at the start that a second cycle would clear the events, but there is only one.
    """
    with contextlib.ExitStack() as stack:
        with warnings.catch_warnings(), _without_import_of_inductor():
            warnings.filterwarnings("ignore", message=".*Profiler clears events")
            stack.enter_context(profiler)
        yield


@contextlib.contextmanager
def _without_import_of_inductor() -> Iterator[None]:
    """Make ``torch._inductor`` absent in the body, unless it has been imported before.

    The start of the profiler asks for the attribute to know whether inductor uses CUDA graphs. This
    imports inductor, which takes nearly as long as the import of torch itself. The profiler still
    finds it where ``torch.compile`` has imported it.
    """
    lazy_modules: set[str] = getattr(torch, "_lazy_modules", set())
    is_lazy = "_inductor" in lazy_modules
    lazy_modules.discard("_inductor")
    try:
        yield
    finally:
        if is_lazy:
            lazy_modules.add("_inductor")


# ---- Marks ---------------------------------------------------------------------------------------

# Ranges around parts of a step give operations their phase, those around modules their module.


#: Makes a range of a name: torch's record_function, or a context manager that has the name as its
#: argument.
Ranges = Callable[[str], AbstractContextManager[Any]]

#: Module of the loss, which is not part of the model.
LOSS = "(loss)"

_PHASE_OF_PART = {
    "zero_grad": "optimizer",
    "forward": "forward",
    "loss": "forward",
    "backward": "backward",
    "update": "optimizer",
}


@contextmanager
def marked(case: Case, *, is_compiled: bool = False) -> Iterator[None]:
    """Put ranges around the runner's parts and the model's modules while the body runs.

    Compiled code does not run the hooks of modules.
    """
    assert case.runner is not None, "only a case with a runner is profiled per operation"
    with in_ranges(case.runner, None if is_compiled else case.model, record_function):
        yield


@contextmanager
def in_ranges(
    runner: Step | Inference, model: nn.Module | None, make_range: Ranges
) -> Iterator[None]:
    """Put ranges around the runner's parts and the modules of a model while the body runs.

    The parts have the ranges PHASE + phase, the loss also MODULE + LOSS; the modules MODULE + name,
    none if the model is None.
    """
    with ExitStack() as undo:
        for part, phase in _PHASE_OF_PART.items():
            method = getattr(runner, part, None)
            if method is not None:
                names = [PHASE + phase, *([MODULE + LOSS] if part == "loss" else [])]
                setattr(runner, part, _in_ranges(method, names, make_range))
                # The instance's attribute hid the class's method.
                undo.callback(delattr, runner, part)
        if model is not None:
            _mark_modules(model, make_range, undo)
        yield


def _in_ranges(
    function: Callable[..., Any], names: Sequence[str], make_range: Ranges
) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(*args: Any) -> Any:
        with ExitStack() as ranges:
            for name in names:
                ranges.enter_context(make_range(name))
            return function(*args)

    return wrapper


def _mark_modules(model: nn.Module, make_range: Ranges, undo: ExitStack) -> None:
    """Put ranges around modules, except those in compiled code: a range would break its graph."""
    open_ranges: list[AbstractContextManager[Any]] = []

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: object) -> None:
            if torch.compiler.is_compiling():
                return
            open_ranges.append(make_range(MODULE + name))
            open_ranges[-1].__enter__()

        return hook

    def leave(*_: object) -> None:
        if not torch.compiler.is_compiling():
            open_ranges.pop().__exit__(None, None, None)

    for name, module in model.named_modules():
        undo.callback(module.register_forward_pre_hook(enter(name or MODEL)).remove)
        undo.callback(module.register_forward_hook(leave, always_call=True).remove)


@contextmanager
def marked_calls() -> Iterator[None]:
    """Mark all modules that are called in the body.

    A name begins with the class of the outermost module.
    """
    names: dict[int, str] = {}
    open_ranges: list[record_function] = []

    def enter(module: nn.Module, _: object) -> None:
        if torch.compiler.is_compiling():
            return
        if not open_ranges:
            outermost = type(module).__name__
            names.update(
                {
                    id(part): f"{outermost}.{name}" if name else outermost
                    for name, part in module.named_modules()
                }
            )
        open_ranges.append(record_function(MODULE + names.get(id(module), type(module).__name__)))
        open_ranges[-1].__enter__()  # type: ignore[no-untyped-call]

    def leave(*_: object) -> None:
        if not torch.compiler.is_compiling():
            open_ranges.pop().__exit__(None, None, None)

    entering = hooks.register_module_forward_pre_hook(enter)
    leaving = hooks.register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        entering.remove()
        leaving.remove()


def forward_range() -> record_function:
    """Return a range whose operations are those of the phase ``forward``.

    Except those that autograd runs for ``backward``.
    """
    return record_function(PHASE + "forward")


def export_trace(recorded: torch.profiler.profile, path: Path) -> None:
    """Write a Chrome trace."""
    export: Callable[[str], None] = recorded.export_chrome_trace
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):  # torch does not report why it cannot write
            pass
        export(str(path))
    except OSError as error:
        raise UsageError(
            f"--trace: {path} cannot be written ({error.strerror}); name another file"
        ) from None
