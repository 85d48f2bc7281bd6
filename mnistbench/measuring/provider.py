"""What a framework, such as PyTorch, adds to the measurement of Python functions.

The gate and the pytest plug-in time calls by themselves. What only a framework can tell (which
operations ran, what a tensor contains, when a device is ready) they ask the provider of the
framework that the process has imported. :class:`Provider` itself is that of plain Python: it has
one device, the CPU, and no operations.

A provider is a subclass in a package of its own, and an entry of :data:`PROVIDERS`. Beside the list
of commands nothing else names it, and importing its modules does not import the framework.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from types import CodeType

    from mnistbench.core.compiled.compilation import Compilation
    from mnistbench.core.operation import Callers, OpKey
    from mnistbench.core.record import Environment, OpTable
    from mnistbench.measuring.calls import Call
    from mnistbench.measuring.timing import Sample


class Declared(NamedTuple):
    """What is known of a provider before any of its modules is imported."""

    module: str  # of this package; its ``PROVIDER`` is the provider
    plugin: str  # module of pytest's plug-in with the fixture
    fixture: str  # with which tests measure cases that the provider builds
    oldest: str  # version of the framework that the gate measures


#: Framework, as it is imported -> its provider.
PROVIDERS = {
    "torch": Declared(
        "suite.provider", "mnistbench.suite.op_benchmark.plugin", "op_benchmark", oldest="2.6"
    )
}

#: The fixtures of all providers.
OWN_FIXTURES = frozenset(declared.fixture for declared in PROVIDERS.values())

#: Calls its argument between what precedes and what follows an iteration.
Around = Callable[[Callable[[], object]], object]
#: Yields once in each turn of the process.
Turn = Callable[[], Iterable[None]]


class CallProfile(NamedTuple):
    """The operations of a call."""

    tables: tuple[OpTable, ...]
    compilation: Compilation | None  # what became of compiled code; None without any


class Provider:
    """Plain Python."""

    #: The framework, as it is imported; empty for plain Python.
    framework = ""
    #: The library of :meth:`implementations_of`, and what computes an operation without it.
    operator_library = ""
    own_code = "its own code"

    # ---- The process -----------------------------------------------------------------------------

    def load(self) -> None:
        """Import the framework and what measures it, before the tests do; use one thread."""

    def version(self) -> str:
        """Return the version of the framework; empty without one."""
        return ""

    def why_refused(self) -> str:
        """Return why the imported framework cannot be measured, and what is needed; else ""."""
        return ""

    def seed(self, seed: int) -> None:
        """Seed the framework's generators."""

    def set_threads(self, number: int) -> None:
        """Set the number of threads that an operation uses."""

    def threads(self) -> int | None:
        """Return the number of threads that an operation uses; None if there is no such number."""
        return None

    def device(self) -> str:
        """Return the device that calls of this process use, known once one has used it."""
        return "cpu"

    def synchronize(self) -> None:
        """Wait for the device."""

    def environment(self, threads: int) -> Environment:
        """Return the machine and the software, for a saved run."""
        from mnistbench.core.record import without_torch

        return without_torch(threads)

    def cpu_paths(self) -> Mapping[str, str]:
        """Return what decides which code computes operations in this process, by name."""
        return {}

    def allocated_bytes(self) -> int:
        """Return the memory of all tensors, in bytes."""
        return 0

    def compilations(self) -> int:
        """Return how many functions this process has compiled; they are not seen to run."""
        return 0

    def compile_clock(self) -> AbstractContextManager[Callable[[], int]]:
        """Return a clock of what compilers take in the body, in nanoseconds."""
        return contextlib.nullcontext(lambda: 0)

    def empty_compiler_cache(self) -> AbstractContextManager[object]:
        """Let compilers have an empty cache in the body; after it everything is compiled anew."""
        return contextlib.nullcontext()

    def run_eagerly(self) -> AbstractContextManager[object]:
        """Run compiled functions as they are written in the body."""
        return contextlib.nullcontext()

    def is_made_by_compiler(self, name: str) -> bool:  # noqa: ARG002
        """Return whether a function of this name is no function of the source."""
        return False

    def is_of_compiler(self, file: str) -> bool:  # noqa: ARG002
        """Return whether a file of the framework compiles functions."""
        return False

    # ---- A call ----------------------------------------------------------------------------------

    def timed(self, work: Callable[[], object], device: str) -> Sample:  # noqa: ARG002
        """Run an iteration and return its times, on a device also by the clock of that."""
        from mnistbench.measuring.timing import clocked  # the plug-in needs no clock

        return clocked(work)

    def operations_of(self, run: Callable[[], object]) -> tuple[bool, bool]:  # noqa: ARG002
        """Run once; return whether there were operations, and whether some were compiled."""
        return False, False

    def implementations_of(self, run: Callable[[], object]) -> Mapping[str, int]:  # noqa: ARG002
        """Run once; return how often each implementation of a library ran, which is exact."""
        return {}

    def range_of_call(self) -> AbstractContextManager[object]:
        """Return what marks a call for the profiler while the body runs."""
        return contextlib.nullcontext()

    def marks_of_modules(self) -> AbstractContextManager[object]:
        """Return what marks the modules that are called in the body, for the profiler."""
        return contextlib.nullcontext()

    def profiled(
        self,
        run: Callable[[], object],
        device: str,
        one_turn: Turn,
        turns: Iterable[None],
        *,
        is_compiled: bool,
        observes: bool = True,
        around: Around = lambda run: run(),
        loops: int = 1,
    ) -> dict[str, Any]:
        """Profile an iteration at each of ``turns``; return its operations as JSON columns.

        Args:
            run: an iteration, which makes ``loops`` calls.
            device: of the operations.
            one_turn: turns in which code is compiled, and buffers of the profiler are made.
            turns: of the profiled iterations.
            is_compiled: whether the calls run compiled code.
            observes: compile it anew, to know its kernels.
            around: calls an iteration with what precedes and follows it.
            loops: calls of an iteration; counts and times are those of one.
        """
        raise NotImplementedError

    def callers_of_operations(
        self,
        run: Callable[[], object],  # noqa: ARG002
    ) -> Mapping[tuple[OpKey, Callers], int]:
        """Run once; return which functions call each operation -> its self time, ns."""
        return {}

    def profile_of_call(
        self,
        call: Call,  # noqa: ARG002
        *,
        iterations: int,  # noqa: ARG002
        duration_ns: float,  # noqa: ARG002
        shapes: bool,  # noqa: ARG002
    ) -> CallProfile:
        """Return the operations of a call that takes ``duration_ns``, if there are any."""
        return CallProfile((), None)

    def visible_operators(self) -> AbstractContextManager[object]:
        """Return what makes functions of the operators of tensors, for cProfile, in the body."""
        return contextlib.nullcontext()

    def is_operator(self, code: CodeType | str) -> bool:  # noqa: ARG002
        """Return whether what cProfile has of a function is such an operator."""
        return False

    def tensor_types(self) -> tuple[type, ...]:
        """Return the types whose values, and those of their subclasses, are tensors."""
        return ()

    def content_of(
        self, tensor: Any, parts_of: Callable[[int, int], Iterable[slice]]
    ) -> tuple[bytes, float | None] | str:
        """Return what a tensor contains, as a description with a hash, and a mean of its numbers.

        A text is why it cannot be read.

        Args:
            tensor: of one of :meth:`tensor_types`, or of a subclass; runs no code of that.
            parts_of: number of items and bytes of an item -> the parts in which they are read; it
                raises an exception if they are too many.
        """
        raise NotImplementedError

    # ---- Cases of its own, for the gate ----------------------------------------------------------

    def case(self, build: Callable[[], Any], params: Any, threads: int) -> Any:
        """Return a case of the gate (``gate.processes.sides.case``) that the own fixture makes.

        Args:
            build: returns a new case, made by the side's own copy of the provider.
            params: of the case, by the same copy.
            threads: of the case on this side.
        """
        raise NotImplementedError

    def capture(self, job: Any, say: Callable[..., None]) -> None:
        """Send the calls of operations that a ``gate.processes.messages.CaptureJob`` asks for."""
        raise NotImplementedError

    def write_scripts(self, verdict: Any, rounds: Any, folder: Path) -> Sequence[Any]:  # noqa: ARG002
        """Write a script that reproduces each slower operation; return a ``Reproducer`` of each.

        Called by the gate itself, which has not imported the framework.
        """
        return ()


PLAIN = Provider()


def provider_of(framework: str) -> Provider:
    """Return the provider of a framework, by the copy of this package that asks."""
    package = __name__.partition(".")[0]
    provider: Provider = importlib.import_module(
        f"{package}.{PROVIDERS[framework].module}"
    ).PROVIDER
    return provider


def imported_provider() -> Provider:
    """Return the provider of the framework that this process has imported, else PLAIN."""
    for framework in PROVIDERS:
        if sys.modules.get(framework) is not None:
            return provider_of(framework)
    return PLAIN
