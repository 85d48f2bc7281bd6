"""Marks are there while a case is profiled, and leave nothing behind."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import record_function
from torch_builders import tiny_params, tiny_workload

from mnistbench.core.operation import NO_MODULE
from mnistbench.suite.measuring.case import Case, build
from mnistbench.suite.measuring.compile_log import logged
from mnistbench.suite.measuring.profiling import (
    LOSS,
    in_ranges,
    marked,
    marked_calls,
    profile,
    profile_first_call,
)

pytestmark = pytest.mark.versions


def traces_of_marks(case: Case) -> dict[str, object]:
    """All that marking could leave.

    Attributes of the runner, hooks and attributes of the modules.
    """
    return {
        "runner": {name: id(value) for name, value in vars(case.runner).items()},
        **{
            name: {key: copy.copy(value) for key, value in vars(module).items() if "hook" in key}
            for name, module in case.model.named_modules()
        },
    }


@pytest.mark.parametrize("phase", ["forward", "step"])
def test_marks_are_removed(phase: str) -> None:
    case = build(tiny_params(phase=phase), tiny_workload())
    before = traces_of_marks(case)
    with marked(case):
        assert traces_of_marks(case) != before
    assert traces_of_marks(case) == before
    profile(case, iterations=1)
    profile_first_call(case, first_of_process=False)
    assert traces_of_marks(case) == before


@pytest.mark.parametrize("run", ["cold", "warm"])
def test_marks_are_removed_after_an_error(run: str) -> None:
    calls = 0

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == (1 if run == "cold" else 4):  # the warm pass is marked from its third call on
            raise RuntimeError("in the loss")
        return nn.functional.nll_loss(output, targets)

    case = build(tiny_params(), tiny_workload(loss=loss))
    before = traces_of_marks(case)
    with pytest.raises(RuntimeError, match=r"^in the loss$"):
        profile_first_call(case, first_of_process=False) if run == "cold" else profile(
            case, iterations=3
        )
    assert traces_of_marks(case) == before


def test_other_hooks_stay() -> None:
    case = build(tiny_params(), tiny_workload())
    calls: list[int] = []
    case.model.register_forward_hook(lambda *_: calls.append(1))
    profile(case, iterations=1)
    calls.clear()
    case()
    assert calls == [1]


def test_modules_of_a_compiled_model_are_not_marked() -> None:
    case = build(tiny_params(), tiny_workload())
    # The marks depend on the parameter; compiling would take long.
    case = replace(case, params=tiny_params(compile=True))
    modules = {name: trace for name, trace in traces_of_marks(case).items() if name != "runner"}
    with marked(case, is_compiled=True):
        assert {
            name: trace for name, trace in traces_of_marks(case).items() if name != "runner"
        } == modules
    table = profile(case, iterations=1)
    assert {row.module for row in table.rows} == {NO_MODULE, LOSS}
    assert {row.phase for row in table.rows if row.is_operation} == {
        "forward",
        "backward",
        "optimizer",
    }


def test_a_case_that_is_not_profiled_cannot_be_marked() -> None:
    case = build(tiny_params(phase="batch"), tiny_workload())
    with pytest.raises(AssertionError, match="only a case with a runner"), marked(case):
        pass


def test_marks_do_not_break_the_graph_of_a_model_that_compiles_itself() -> None:
    """The timed rounds may use the code that the profiled first call compiled."""

    class Compiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        @torch.compile(backend="eager")
        def forward(self, values: Tensor) -> Tensor:
            return self.inner(values).relu()

    model = nn.Sequential(Compiled())
    step: Any = SimpleNamespace()  # without parts
    for marks in (in_ranges(step, model, record_function), marked_calls()):
        torch.compiler.reset()
        with logged() as log, marks:
            model(torch.ones(2, 4))
        assert log.time(0).compile_ns > 0  # something was compiled
        assert log.compilation().breaks == ()
    torch.compiler.reset()
