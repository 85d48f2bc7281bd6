"""Operations and times of steps: eager, and eager and compiled in turn."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mnistbench.course.studies.graph.programs import Program
from mnistbench.course.studies.graph.result import Dispatched, Step
from mnistbench.profile.costs import moved_bytes

#: Untimed steps before the timed ones, at least this many timed ones, and at most.
_WARMUP, _LEAST, _MOST = 2, 5, 500


class _Dispatched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the names of the operations that are dispatched below autograd."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.views = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.is_view:
            self.views += 1
        else:
            self.names.append(str(func.overloadpacket).removeprefix("aten."))
        return func(*args, **(kwargs or {}))


def dispatched(program: Program) -> Dispatched:
    """Return the operations of one eager forward and backward pass."""
    program.zero_grad()
    forward, backward = _Dispatched(), _Dispatched()
    with forward:
        result = program.compute(*program.arguments)
    with backward:
        program.backward(result)
    program.zero_grad()
    n_bytes = moved_bytes(lambda: program.backward(program.compute(*program.arguments)))
    return Dispatched(tuple(forward.names), tuple(backward.names), forward.views + backward.views, n_bytes)


def timed_step(program: Program, compute: Callable[..., Tensor]) -> Step:
    """Run a step and return its times; dropping the gradients is a part of the update.

    Args:
        program: whose step it is.
        compute: its forward pass, eager or compiled.
    """
    readings = [time.perf_counter_ns()]

    def read() -> None:
        program.synchronize()
        readings.append(time.perf_counter_ns())

    result = compute(*program.arguments)
    read()
    program.backward(result)
    read()
    program.update()
    program.zero_grad()
    read()
    forward, backward, update = (end - start for start, end in itertools.pairwise(readings))
    return Step(forward, backward, update)


def timed_steps(program: Program, computes: dict[str, Callable[..., Tensor]], seconds: float) -> dict[str, tuple[Step, ...]]:
    """Return times of steps in several ways, one after the other in turn, so that a disturbance meets all of them.

    Args:
        program: whose steps they are.
        computes: way -> its forward pass.
        seconds: to fill with timed steps of all ways.
    """
    found: dict[str, list[Step]] = {way: [] for way in computes}
    program.zero_grad()
    for number in range(_WARMUP + _MOST):
        for way, compute in computes.items():
            step = timed_step(program, compute)
            if number >= _WARMUP:
                found[way].append(step)
        spent = sum(step.total_ns for steps in found.values() for step in steps)
        if number >= _WARMUP + _LEAST and spent > seconds * 1e9:
            break
    return {way: tuple(steps) for way, steps in found.items()}
