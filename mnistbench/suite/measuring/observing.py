"""Runs code as torch.compile compiles it: observed, eagerly, or with an empty cache.

A case is timed as the program compiles it. What is observed is compiled a second time, to the same
kernels, whose calls then have events in a profile. The kernels are functions of the modules in
``PyCodeCache.modules``, which is private in PyTorch.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast

from mnistbench.core.compiled.compilation import Compilation, CompileTime
from mnistbench.events.linking.compiled import CallsOfGraphs
from mnistbench.suite.measuring.compile_log import CompilationLog, logged

#: Calls in which graphs, graph breaks and recompilations are counted: a changing value compiles a
#: function again in the second one, and once more with the value as a variable.
OBSERVED_CALLS = 4

#: Begins the names of generated kernels for a CPU.
_CPU_KERNEL = "cpp_"


# ---- Eager calls ---------------------------------------------------------------------------------

_runs_eagerly = False


@contextlib.contextmanager
def run_eagerly() -> Iterator[None]:
    """Run compiled functions as they are written in the body."""
    global _runs_eagerly  # noqa: PLW0603  # as the stance of torch.compile is
    with torch.compiler.set_stance("force_eager"):
        _runs_eagerly = True
        try:
            yield
        finally:
            _runs_eagerly = False


def runs_eagerly() -> bool:
    """Return whether :func:`run_eagerly` is in effect."""
    return _runs_eagerly


# ---- Observed calls ------------------------------------------------------------------------------


@contextlib.contextmanager
def observed() -> Iterator[CompilationLog]:
    """Compile everything anew in the body, and log its graphs.

    It is a compilation of its own, which Inductor's cache keeps beside that of the program; both
    have the same kernels. After the body everything is compiled anew as the program asks for.
    """
    torch.compiler.reset()
    try:
        with graphs_logged() as log:
            yield log
    finally:
        torch.compiler.reset()


@contextlib.contextmanager
def graphs_logged() -> Iterator[CompilationLog]:
    """Log what is compiled in the body, with the nodes of its graphs."""
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config
    from torch._inductor.custom_graph_pass import CustomGraphPass

    with logged() as log:

        class GraphWatch(CustomGraphPass):
            """Shows the log each graph that is compiled."""

            def __call__(self, graph: torch.fx.Graph) -> None:
                log.note_graph(graph)

            def uuid(self) -> str | None:
                """Return what a graph in the cache depends on beside itself."""
                return log.key_of_modules

        class WholeGraphWatch(CustomGraphPass):
            """Shows the log each graph before it is changed and divided into its parts."""

            def __call__(self, graph: torch.fx.Graph) -> None:
                log.note_whole_graph(graph)

            def uuid(self) -> str:
                """Return a constant: it changes no graph."""
                return "mnistbench"

        settings: dict[str, Any] = {
            "trace.provenance_tracking_level": 1,
            "joint_custom_pre_pass": WholeGraphWatch(),
            "post_grad_custom_post_pass": GraphWatch(),
        }
        with (
            inductor_config.patch(settings),
            functorch_config.patch({"enable_autograd_cache": False}),
        ):
            yield log


@dataclass(frozen=True)
class Observed:
    """The compiled code of a case."""

    compilation: Compilation  # of the first OBSERVED_CALLS calls
    _log: CompilationLog
    _outside: str

    @cached_property
    def graphs(self) -> CallsOfGraphs:
        """The calls of all graphs so far; ask for them after the profiled calls."""
        return self._log.calls_of_graphs(self._outside)


@contextlib.contextmanager
def observed_if(
    is_compiled: bool, run: Callable[[], object], outside: str
) -> Iterator[Observed | None]:
    """Compile a case anew, observed, and name its kernels in the profiles of the body.

    Do nothing for an eager case. What is counted is that of the first OBSERVED_CALLS calls, so that
    it does not depend on how often the body calls.

    Args:
        is_compiled: whether the case has compiled code.
        run: calls it.
        outside: module of operations in no module.
    """
    if not is_compiled:
        yield None
        return
    with observed() as log:
        for _ in range(OBSERVED_CALLS):
            run()
        compilation = log.compilation()
        with named_kernels():
            yield Observed(compilation, log, outside)


@contextlib.contextmanager
def named_kernels() -> Iterator[None]:
    """Give generated kernels of the CPU events in the profiles of the body.

    Inductor's option for it, ``cpp.enable_kernel_profile``, becomes a part of the kernels, so all
    would be built again, which takes as long as the first time. Kernels of Triton have events.
    """
    from torch._inductor.codecache import PyCodeCache

    # A module is in the list each time that it was loaded.
    modules = {id(module): vars(module) for module in getattr(PyCodeCache, "modules", ())}
    kernels = [
        (names, name, value)
        for names in modules.values()
        for name, value in names.items()
        if name.startswith(_CPU_KERNEL) and callable(value)
    ]
    for names, name, kernel in kernels:
        names[name] = with_event(name, kernel)
    try:
        yield
    finally:
        for names, name, kernel in kernels:
            names[name] = kernel


def with_event(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a kernel, and has an event in a profile."""

    def call(*arguments: Any) -> Any:
        with _RecordFunctionFast(name):
            return kernel(*arguments)

    return call


# ---- First calls ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstCompiledCalls:
    """The first call of compiled code with an empty cache, and with the cache that this filled."""

    cold: CompileTime
    warm: CompileTime
    cache_hits: int  # graphs, in the second of both
    cache_misses: int


def first_calls(run: Callable[[], object]) -> FirstCompiledCalls:
    """Call compiled code with an empty cache, and again with the cache that this filled."""
    with empty_cache():
        cold, _ = _timed_call(run)
        return called_again(cold, run)


def called_again(cold: CompileTime, run: Callable[[], object]) -> FirstCompiledCalls:
    """Call compiled code again, after a call that filled an empty cache.

    Args:
        cold: time of that call.
        run: calls the code.
    """
    forget_compiled()
    warm, log = _timed_call(run)
    return FirstCompiledCalls(cold, warm, log.cache_hits, log.cache_misses)


def _timed_call(run: Callable[[], object]) -> tuple[CompileTime, CompilationLog]:
    """Call a function that compiles; return the parts of its time, and what was compiled."""
    with logged() as log:
        began_ns = time.perf_counter_ns()
        run()
        total_ns = time.perf_counter_ns() - began_ns
    return log.time(total_ns), log


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """Let torch.compile have an empty cache in the body: its own folder, removed afterwards."""
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    before = {name: os.environ.get(name) for name in names}
    with tempfile.TemporaryDirectory(prefix="mnistbench-compiled-") as folder:
        for name in names:
            os.environ[name] = str(Path(folder, name))
        forget_compiled()
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            forget_compiled()


def forget_compiled() -> None:
    """Forget everything that was compiled; caches on disk remain."""
    torch.compiler.reset()
    if utils := sys.modules.get("torch._inductor.utils"):
        utils.clear_caches()
