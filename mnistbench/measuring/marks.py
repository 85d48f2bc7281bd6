"""Marks on a case while it is profiled: ranges around the runner's parts and around each module's forward.

The ranges of the parts give operations their phase, those of the modules their module. The timed pass runs the same code
without marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any

from torch import nn
from torch.nn.modules import module as hooks
from torch.profiler import record_function

from mnistbench.core.operation import MODULE, PHASE
from mnistbench.measuring.case import Case
from mnistbench.workloads.step import Inference, Step

#: Makes a range of a name: torch's record_function, or a context manager that has the name as its argument.
Ranges = Callable[[str], AbstractContextManager[Any]]

#: Module of the loss, which is not part of the model.
LOSS = "(loss)"
#: Module of operations in the outermost module's own forward, outside its children.
MODEL = "(model)"

_PHASE_OF_PART = {
    "zero_grad": "optimizer",
    "forward": "forward",
    "loss": "forward",
    "backward": "backward",
    "update": "optimizer",
}


@contextmanager
def marked(case: Case) -> Iterator[None]:
    """Put ranges around the runner's parts and the model's modules while the body runs.

    Compiled code does not run module hooks, so the operations of a compiled model have no module.
    """
    assert case.runner is not None, "only a case with a runner is profiled per operation"
    with in_ranges(case.runner, None if case.params.compile else case.model, record_function):
        yield


@contextmanager
def in_ranges(runner: Step | Inference, model: nn.Module | None, make_range: Ranges) -> Iterator[None]:
    """Put ranges around the runner's parts and the modules of a model while the body runs.

    Args:
        runner: its parts have the ranges PHASE + phase, the loss also MODULE + LOSS.
        model: its modules have the ranges MODULE + name; None: no module has one.
        make_range: makes a range of a name.
    """
    with ExitStack() as undo:
        _mark_parts(runner, make_range, undo)
        if model is not None:
            _mark_modules(model, make_range, undo)
        yield


def _mark_parts(runner: Step | Inference, make_range: Ranges, undo: ExitStack) -> None:
    for part, phase in _PHASE_OF_PART.items():
        method = getattr(runner, part, None)
        if method is None:
            continue
        setattr(runner, part, _in_ranges(method, [PHASE + phase, *([MODULE + LOSS] if part == "loss" else [])], make_range))
        undo.callback(delattr, runner, part)  # the instance's attribute hid the class's method


def _in_ranges(function: Callable[..., Any], names: Sequence[str], make_range: Ranges) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(*args: Any) -> Any:
        with ExitStack() as ranges:
            for name in names:
                ranges.enter_context(make_range(name))
            return function(*args)

    return wrapper


def _mark_modules(model: nn.Module, make_range: Ranges, undo: ExitStack) -> None:
    open_ranges: list[AbstractContextManager[Any]] = []

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: object) -> None:
            open_ranges.append(make_range(MODULE + name))
            open_ranges[-1].__enter__()

        return hook

    def leave(*_: object) -> None:
        open_ranges.pop().__exit__(None, None, None)

    for name, module in model.named_modules():
        undo.callback(module.register_forward_pre_hook(enter(name or MODEL)).remove)
        undo.callback(module.register_forward_hook(leave, always_call=True).remove)


@contextmanager
def marked_calls() -> Iterator[None]:
    """Mark all modules that are called in the body; a name begins with the class of the outermost module."""
    names: dict[int, str] = {}
    open_ranges: list[record_function] = []

    def enter(module: nn.Module, _: object) -> None:
        if not open_ranges:
            outermost = type(module).__name__
            names.update({id(part): f"{outermost}.{name}" if name else outermost for name, part in module.named_modules()})
        open_ranges.append(record_function(MODULE + names.get(id(module), type(module).__name__)))
        open_ranges[-1].__enter__()  # type: ignore[no-untyped-call]

    def leave(*_: object) -> None:
        open_ranges.pop().__exit__(None, None, None)

    entering = hooks.register_module_forward_pre_hook(enter)
    leaving = hooks.register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        entering.remove()
        leaving.remove()


def forward_range() -> record_function:
    """Return a range whose operations are those of the phase ``forward``, except those that autograd runs for ``backward``."""
    return record_function(PHASE + "forward")
