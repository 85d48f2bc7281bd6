"""Compiled code of small models on the CPU: rows, exact facts and times of first calls."""

from __future__ import annotations

import contextlib
import fnmatch
import importlib
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, library, nn
from torch.profiler import ProfilerActivity, record_function

from mnistbench.core.compiled.compilation import BACKWARD_PART, FORWARD_PART, Compilation
from mnistbench.core.compiled.names import (
    COMPILED,
    COMPILING,
    FUSED,
    LOOKUP,
)
from mnistbench.core.operation import ITERATION, MODEL
from mnistbench.core.record import OpTable
from mnistbench.gate.copies.places import precompiled_headers
from mnistbench.suite.measuring.compile_log import CompilationLog, logged
from mnistbench.suite.measuring.observing import empty_cache, first_calls, observed, observed_if
from mnistbench.suite.measuring.profiling import WarmProfile, forward_range, started

pytestmark = [
    pytest.mark.skipif(
        not shutil.which("g++"), reason="torch.compile needs a C++ compiler, and g++ is not here"
    ),
    pytest.mark.filterwarnings("ignore"),  # the compiler's own
]


@library.custom_op("mnistbench_test::scale", mutates_args=())
def scale(values: Tensor) -> Tensor:
    """Inductor has no lowering of it."""
    return values * 2


@scale.register_fake
def _(values: Tensor) -> Tensor:
    return torch.empty_like(values)


scale.register_autograd(lambda _, gradient: gradient * 2)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.drop = nn.Dropout(0.1)

    def forward(self, values: Tensor) -> Tensor:
        return self.drop(nn.functional.gelu(self.norm(self.fc(values))))


class Model(nn.Module):
    """Two equal blocks, a graph break, a custom operation, and a guard that fails once."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 4)
        self.odd = False

    def forward(self, values: Tensor) -> Tensor:
        for block in self.blocks:
            values = block(values)
        torch._dynamo.graph_break()  # the break
        values = scale(values) * (3 if self.odd else 2)  # the guard
        return self.head(values).sum()


def doubled(values: Tensor) -> Tensor:
    return (values.sin() * 2).sum()


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


@dataclass
class Measured:
    tables: list[OpTable]  # of two observed compilations
    compilations: list[Compilation]
    before: Tensor  # result of the program's own compiled code, before and afterwards
    after: Tensor
    settings_before: object
    settings_after: object


def settings() -> tuple[object, ...]:
    """What an observation changes."""
    from torch._functorch import config as functorch_config
    from torch._inductor import config

    trace = logging.getLogger("torch.__trace")
    return (
        config.cpp.enable_kernel_profile,
        config.trace.provenance_tracking_level,
        config.post_grad_custom_post_pass,
        config.fx_graph_cache,
        functorch_config.enable_autograd_cache,
        trace.level,
        tuple(trace.handlers),
        os.environ.get("TORCHINDUCTOR_CACHE_DIR"),
        os.environ.get("TRITON_CACHE_DIR"),
    )


def profiled(run: Callable[[], object]) -> tuple[OpTable, Compilation]:
    """Profile two iterations of compiled code."""
    profiler = torch.profiler.profile(activities=[ProfilerActivity.CPU])
    with observed_if(True, run, MODEL) as compiled, started(profiler):
        run()
        for _ in range(2):
            with record_function(ITERATION), forward_range():
                run()
    assert compiled is not None
    return WarmProfile(profiler, "cpu", "host", 0, compiled).table(), compiled.compilation


@pytest.fixture(scope="module")
def measured() -> Iterator[Measured]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = Model()
    compiled, function = torch.compile(model), torch.compile(doubled)
    values = torch.ones(8, 16)

    def run() -> None:
        model.odd = not model.odd
        model.zero_grad()
        (compiled(values) + function(values)).backward()

    def result() -> Tensor:
        torch.manual_seed(0)
        model.odd = False
        return compiled(values).detach()

    before, settings_before = result(), settings()
    profiles = []
    for _ in range(2):
        model.odd = False
        profiles.append(profiled(run))
    yield Measured(
        [table for table, _ in profiles],
        [compilation for _, compilation in profiles],
        before,
        result(),
        settings_before,
        settings(),
    )
    torch.compiler.reset()
    torch.set_num_threads(threads)


def identities(table: OpTable) -> set[tuple[str, str, str]]:
    return {(row.name, row.phase, row.module) for row in table.rows}


# ---- Rows ----------------------------------------------------------------------------------------


def test_kernels_and_library_calls_have_their_modules_and_phases(measured: Measured) -> None:
    fused = "fused gelu, native_dropout, native_layer_norm"
    assert identities(measured.tables[0]) >= {
        (LOOKUP, "forward", ""),
        (COMPILED, "forward", ""),
        (COMPILED, "backward", ""),
        ("aten::addmm", "forward", "blocks.0.fc"),
        (fused, "forward", "blocks.0.norm + blocks.0 + blocks.0.drop"),
        ("aten::addmm", "forward", "blocks.1.fc"),
        (fused, "forward", "blocks.1.norm + blocks.1 + blocks.1.drop"),
        ("aten::mul", "forward", MODEL),  # that the custom operation calls
        ("fused mul", "forward", MODEL),
        ("aten::addmm", "forward", "head"),
        ("fused sum", "forward", MODEL),
        ("fused mul, sin, sum", "forward", MODEL),
        ("aten::mm", "backward", "head"),
        ("aten::mm", "backward", "blocks.1.fc"),
        ("aten::mm", "backward", "blocks.0.fc"),
        ("fused sum", "backward", "blocks.0.fc"),
    }


def test_every_kernel_has_a_module(measured: Measured) -> None:
    kernels = {key for key in identities(measured.tables[0]) if key[0].startswith(FUSED)}
    assert len(kernels) == 10
    assert all(module for _, _, module in kernels)
    assert {phase for _, phase, _ in kernels} == {"forward", "backward"}


def test_nothing_is_compiled_in_a_profiled_iteration(measured: Measured) -> None:
    assert not any(row.name == COMPILING for row in measured.tables[0].rows)


def test_the_rows_add_up(measured: Measured) -> None:
    for table in measured.tables:
        columns = (row.self_cpu_ns for row in table.rows)
        assert [sum(times) for times in zip(*columns, strict=True)] == list(table.iteration_ns)


def test_two_compilations_have_the_same_rows_and_facts(measured: Measured) -> None:
    assert identities(measured.tables[0]) == identities(measured.tables[1])
    assert measured.compilations[0] == measured.compilations[1]


# ---- Facts ---------------------------------------------------------------------------------------


def test_graphs(measured: Measured) -> None:
    compilation = measured.compilations[0]
    assert not compilation.notes
    assert [(graph.place.function, graph.part) for graph in compilation.graphs] == [
        ("forward", FORWARD_PART),
        ("forward", BACKWARD_PART),
        ("forward", FORWARD_PART),
        ("forward", BACKWARD_PART),
        ("doubled", FORWARD_PART),
    ]
    assert {graph.place.path for graph in compilation.graphs} == {
        "tests/suite/measuring/test_compilation.py"
    }
    assert [graph.kernels for graph in compilation.graphs] == [2, 3, 2, 2, 1]
    assert all(graph.operations >= graph.kernels for graph in compilation.graphs)
    assert compilation.n_graphs == 3
    assert compilation.cuda_graphs == ""


def test_a_fallback_is_named_and_the_seeds_of_dropout_are_none(measured: Measured) -> None:
    fallbacks = [graph.fallbacks for graph in measured.compilations[0].graphs]
    assert fallbacks == [(), (), ("mnistbench_test::scale",), (), ()]


def test_a_break_has_its_reason_and_line(measured: Measured) -> None:
    [broken] = measured.compilations[0].breaks
    assert "graph_break" in broken.reason
    assert "\n" not in broken.reason
    assert broken.place.line == line_of("the break")
    assert broken.place.without_line == "forward of tests/suite/measuring/test_compilation.py"


def test_a_recompilation_has_the_guard_that_failed_and_its_line(measured: Measured) -> None:
    [again] = measured.compilations[0].recompilations
    assert again.guard.startswith("self.odd == ")
    assert again.times == 1
    assert again.place.function == "forward"
    assert again.place.line in (line_of("the guard"), line_of("the break"))


def test_a_guard_of_another_file_has_the_path_of_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project" / "scaling"
    folder.mkdir(parents=True)
    (folder / "factors.py").write_text("def scaled(x, factor):\n    return x * factor\n")
    (folder.parent / "models.py").write_text(
        "from scaling.factors import scaled\n\ndef model(x, k):\n    return scaled(x, k) + 1\n"
    )
    monkeypatch.chdir(folder.parent)
    monkeypatch.syspath_prepend(str(folder.parent))
    model = torch.compile(importlib.import_module("models").model, backend="eager", dynamic=False)
    with logged() as log:
        for factor in (2, 3):
            model(torch.ones(2), factor)
    [again] = log.compilation().recompilations
    for name in ("models", "scaling.factors", "scaling"):
        del sys.modules[name]
    assert str(again.place) == "scaling/factors.py:2"


def looped(values: Tensor) -> Tensor:
    for _ in range(2):
        values = values + 1
        torch._dynamo.graph_break()
    return values


@pytest.mark.parametrize(
    ("function", "backend", "note"),
    [
        (looped, "inductor", "looped at *test_compilation.py:* is not compiled: *loop*"),
        (doubled, "eager", "compiled by another backend than Inductor: *"),
    ],
)
def test_a_function_that_inductor_does_not_compile_has_a_note(
    function: Callable[[Tensor], Tensor], backend: str, note: str
) -> None:
    compiled = torch.compile(function, backend=backend)
    torch.compiler.reset()
    with logged() as log:
        compiled(torch.ones(8))
    [found] = log.compilation().notes
    assert fnmatch.fnmatch(found, note)


# ---- The program's own code ----------------------------------------------------------------------


def test_the_compiled_code_of_the_program_computes_the_same_afterwards(measured: Measured) -> None:
    torch.testing.assert_close(measured.before, measured.after)


def test_all_settings_are_restored(measured: Measured) -> None:
    assert measured.settings_before == measured.settings_after


@pytest.mark.parametrize("around", [logged, observed, empty_cache])
def test_an_exception_in_the_body_restores_all_settings(
    around: Callable[[], contextlib.AbstractContextManager[object]],
) -> None:
    before = settings()
    within = before

    def fail() -> None:
        nonlocal within
        with around():
            within = settings()
            raise ValueError("in the body")

    with pytest.raises(ValueError, match="in the body"):
        fail()
    assert within != before
    assert settings() == before


def test_an_eager_case_is_not_observed() -> None:
    with observed_if(False, lambda: pytest.fail("it was called"), MODEL) as compiled:
        assert compiled is None


# ---- Times of first calls ------------------------------------------------------------------------


def test_first_calls_with_an_empty_and_with_a_filled_cache() -> None:
    function = torch.compile(doubled)
    values = torch.ones(8, 16, requires_grad=True)

    def run() -> None:
        function(values).backward()

    before = settings()
    calls = first_calls(run)
    assert settings() == before
    for time in (calls.cold, calls.warm):
        assert min(time.tracing_ns, time.backend_ns, time.run_ns) > 0
        parts = time.tracing_ns + time.backend_ns + time.build_ns + time.run_ns
        assert time.total_ns == parts
    assert calls.cold.build_ns > calls.warm.build_ns == 0
    assert calls.cache_hits > 0
    assert calls.cache_misses == 0


@pytest.mark.versions
def test_precompiled_headers_are_where_the_gate_looks_for_them() -> None:
    from torch._inductor import codecache

    assert Path(codecache._HEADER_DIR).parts[-2:] == precompiled_headers(Path()).parts


def test_cuda_graphs_are_skipped_on_a_cpu() -> None:
    function = torch.compile(doubled, mode="reduce-overhead")
    with observed() as log:
        function(torch.ones(8, 16))
    assert log.compilation().cuda_graphs == "skipped: a graph runs on the CPU"


def test_another_backend_has_a_note() -> None:
    function = torch.compile(doubled, backend="eager")
    with observed() as log:
        function(torch.ones(8, 16))
    [note] = log.compilation().notes
    assert note == "compiled by another backend than Inductor: no graph of it is described"


def test_the_reason_of_a_break_has_no_address() -> None:
    """An address differs between two processes, whose breaks are compared."""
    log = CompilationLog()
    event = logging.LogRecord("torch.__trace", logging.DEBUG, "", 0, "", (), None)
    event.metadata = {"artifact": {"name": "dynamo_graph_break_reason"}}
    event.payload = (
        "Graph break in user code at model.py:3\n\n"
        "Skip calling `torch.compiler.disable()`d function\n"
        "  Explanation: Skip calling function `<function f at 0x7f14d53aa8e0>`\n\n"
        'User code traceback:\n  File "model.py", line 3, in forward\n    f(x)\n'
    )
    log.emit(event)
    [found] = log.compilation().breaks
    assert (str(found.place), found.place.function) == ("model.py:3", "forward")
    assert found.reason == (
        "Skip calling `torch.compiler.disable()`d function: Skip calling function `<function f>`"
    )
