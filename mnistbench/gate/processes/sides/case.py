"""Cases as the gate measures them on one side: the base class, and calls of plain tests.

Does not import torch by itself.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from mnistbench.core.machine import gc_paused
from mnistbench.gate.processes.following.outliving import Watch
from mnistbench.gate.processes.iterations import SAMPLE_NS
from mnistbench.gate.processes.sides.fingerprint import Fingerprint, fingerprint
from mnistbench.measuring.calls import PROFILED_NS, Call, close_unrun
from mnistbench.measuring.provider import PLAIN, Turn, imported_provider
from mnistbench.measuring.timing import WARMUP_ITERATIONS, Sample, clocked, with_queue

#: Hash and number of what a case computes; the number is None if it is not finite.
Outcome = tuple[str, float | None]


class SideCase(ABC):
    """A case of one side. An iteration runs its work ``loops`` times."""

    device = "cpu"  # torch's name
    threads = 1  # of the work
    parallel = False  # it uses more than one core all the same, by threads or processes of its own
    loops = 1
    parameters = 0  # trainable, of its model
    by_share = True  # the share of an operation in a profiled iteration is that in any other
    # Calls may follow each other inside one timed iteration: the test has no setup or teardown.
    can_loop = False

    @property
    def has_operations(self) -> bool:
        """Whether it can be profiled."""
        return False

    def build(self) -> None:  # noqa: B027  # many cases do nothing here
        """Make the case anew, in its initial state."""

    def reset(self) -> None:  # noqa: B027  # many cases do nothing here
        """Restore the initial state."""

    def prepare(self) -> None:  # noqa: B027  # many cases do nothing here
        """Do what has to happen before each iteration, outside its time."""

    @abstractmethod
    def __call__(self) -> None:
        """Run the work ``loops`` times, and wait for the device."""

    def finish(self) -> None:  # noqa: B027  # many cases do nothing here
        """Do what has to happen after each iteration, outside its time."""

    def clocked(self) -> Sample:
        """Run an iteration and return its times."""
        return clocked(self)

    @abstractmethod
    def outcome(self) -> Outcome:
        """Return what the case computes."""

    def is_finite(self) -> bool:
        """Whether the iterations so far have led to no NaN and no infinity."""
        return True

    def operations(
        self, one_turn: Turn, turns: Iterable[None], *, observes: bool = True
    ) -> dict[str, Any]:
        """Profile an iteration at each of ``turns``; return the operations as JSON columns.

        Compiled code is compiled anew, to know its kernels, unless the result is not needed.
        """
        raise NotImplementedError

    def marked(self) -> AbstractContextManager[Callable[[], None]]:
        """Put the marks of profiled iterations on the case; yield what runs one iteration."""
        raise NotImplementedError

    def facts(self) -> Mapping[str, str]:
        """Return what decides which code the case runs, by name, after it has run."""
        return {}

    def peak_memory(self) -> int | None:
        """Build and warm up the case.

        Return the peak memory of tensors in the next iteration, in bytes, None if unknown.
        """
        return None


def seed_all(seed: int) -> None:
    """Seed all generators that the code of a side may use, of the packages that it has imported."""
    random.seed(seed)
    imported_provider().seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


# ---- Plain tests ---------------------------------------------------------------------------------


def own_threads() -> int:
    """Return the number of threads of numerical libraries: OMP_NUM_THREADS, else 1."""
    number = os.environ.get("OMP_NUM_THREADS", "")
    return int(number) if number.isdecimal() and int(number) else 1


class PlainCase(SideCase):
    """A call. The fixtures of its test have made its objects."""

    by_share = False  # the ranges of the profiler are a large part of a short call

    def __init__(self, call: Call, threads: int) -> None:
        """Prepare; ``threads`` are those of numerical libraries."""
        self._call = call
        self._args: tuple[Any, ...] = call.args
        self._kwargs: Mapping[str, Any] = call.kwargs
        self._provider = PLAIN  # of what is imported when an iteration begins
        self._waits = False  # for an accelerator
        self.threads = threads
        # The last call of ``result``, without setup, teardown and the time of other programs.
        self.took_ns = 0
        # What went on after that call returned, if it was watched; empty if nothing did.
        self.outlives = ""
        self.once = call.once
        self.can_loop = call.setup is None and call.teardown is None

    @property
    def device(self) -> str:  # type: ignore[override]
        """The device, known after the first call."""
        return imported_provider().device()

    def build(self) -> None:
        """Seed the generators, and run the warm-up rounds that the test asks for.

        Only rounds beyond the gate's own are run.
        """
        seed_all(0)
        imported_provider().set_threads(self.threads)
        for _ in range(self._call.warmup_rounds - WARMUP_ITERATIONS):
            with self._call.prepared() as run:
                close_unrun(run())

    def prepare(self) -> None:
        """Call the setup of the test."""
        self._provider = imported_provider()
        self._waits = self._provider.device() != "cpu"
        self._args, self._kwargs = self._call.arguments()

    def __call__(self) -> None:
        """Call the function ``loops`` times."""
        self._call.repeat(self._args, self._kwargs, self.loops)
        if self._waits:
            self._provider.synchronize()

    def finish(self) -> None:
        """Call the function's teardown."""
        self._call.tear_down(self._args, self._kwargs)

    def clocked(self) -> Sample:
        """Run an iteration as pytest-benchmark does, and return its times."""
        with contextlib.nullcontext() if self._call.collects_garbage else gc_paused(), _untraced():
            if self._waits:
                return self._provider.timed(self, self.device)
            return self._call.own_times(clocked(self))

    def outcome(self) -> Outcome:
        """Return the hash and the mean number of the result; constants if it cannot be compared."""
        result = fingerprint(self.result())
        return (result.digest, result.number) if not result.unread else ("", 0.0)

    def result(self, watch: Watch | None = None) -> Any:
        """Return what the function returns, with freshly seeded generators.

        Args:
            watch: looks for threads and processes that outlive the call, before its teardown.
        """
        seed_all(0)
        with self._call.prepared() as run:
            results = []
            if watch:
                watch.begin()

            def call() -> None:
                results.append(run())
                if watch:
                    watch.note_return()

            tasks = self._call.unfinished()
            sample = with_queue(lambda: self._call.own_times(clocked(call)))
            if watch:
                self.outlives = watch.outliving(len(self._call.unfinished() - tasks))
            self.took_ns = sample.alone_ns
            return results.pop()

    def arguments(self) -> Fingerprint:
        """Return the fingerprint of the arguments, and of what the function itself refers to."""
        return fingerprint(self._call.args, self._call.kwargs, *_referred_to(self._call.function))

    @functools.cached_property
    def _seen(self) -> tuple[bool, bool]:
        """Whether it calls operations of a framework, and compiled ones."""
        provider = imported_provider()
        if not provider.framework:
            return False, False
        with self._call.prepared() as run:
            return provider.operations_of(run)

    @property
    def has_operations(self) -> bool:
        """Whether the function calls operations of a framework."""
        return self._seen[0]

    def operations(
        self, one_turn: Turn, turns: Iterable[None], *, observes: bool = True
    ) -> dict[str, Any]:
        """Profile the call; one of a short function is repeated."""
        loops = max(1, round(self.loops * PROFILED_NS / SAMPLE_NS)) if self.loops > 1 else 1

        def run() -> None:
            with self._provider.range_of_call():
                self._call.repeat(self._args, self._kwargs, loops)
                if self._waits:
                    self._provider.synchronize()

        def around(iteration: Callable[[], object]) -> None:
            self.prepare()
            try:
                iteration()
            finally:
                self.finish()

        return self._provider.profiled(
            run,
            self.device,
            one_turn,
            turns,
            is_compiled=self._seen[1],
            observes=observes,
            around=around,
            loops=loops,
        )

    def _marks(self) -> AbstractContextManager[object]:
        """Return the marks of modules, which compiled operations do not have."""
        is_compiled = self._seen[1]
        return contextlib.nullcontext() if is_compiled else self._provider.marks_of_modules()

    @contextlib.contextmanager
    def marked(self) -> Iterator[Callable[[], None]]:
        """Put the marks of profiled iterations on the case; yield what runs one iteration."""

        def run() -> None:
            with self._call.prepared() as function, self._provider.range_of_call():
                function()

        with self._marks():
            yield run


def _referred_to(function: object) -> Iterator[object]:
    """Yield the objects that a function refers to.

    Those are the object of a method, the cells of a closure, and the arguments of ``partial``.

    Runs no code of the user: other callables may compute such attributes.
    """
    if type(function) is types.FunctionType:
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # still empty
                yield cell.cell_contents
    elif type(function) is types.MethodType:
        yield function.__self__
        # What a hash of it has not: the setup of an asv benchmark sets attributes.
        with contextlib.suppress(AttributeError):
            yield object.__getattribute__(function.__self__, "__dict__")
        yield from _referred_to(function.__func__)
    elif type(function) is types.BuiltinMethodType or type(function) is types.MethodWrapperType:
        yield function.__self__
    elif type(function) is functools.partial:
        yield from (function.args, function.keywords)
        yield from _referred_to(function.func)


@contextlib.contextmanager
def _untraced() -> Iterator[None]:
    """Run the body without a tracer or profiler of Python, as pytest-benchmark does.

    A coverage plug-in may have set one.
    """
    tracer = sys.gettrace()
    profiler = sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        sys.setprofile(profiler)
