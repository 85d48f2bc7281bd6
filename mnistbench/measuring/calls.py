"""Calls that tests give to pytest-benchmark's own fixture. Does not import torch."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mnistbench.core.params import Params, params_of_call

#: Shortest profiled sample, in nanoseconds without the profiler: a sample repeats a short call, because the range around it
#: takes some microseconds. Reading the events takes ten times as long as the calls.
PROFILED_NS = 1_000_000


@dataclass(frozen=True)
class Call:
    """What a test gives to ``benchmark(...)`` or ``benchmark.pedantic(...)``."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    setup: Callable[[], Any] | None = None
    teardown: Callable[..., Any] | None = None
    warmup_rounds: int = 0
    collects_garbage: bool = True
    once: bool = False  # one call is asked for, and none to warm up

    def arguments(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Call the setup, and return the arguments of the next call.

        Raises:
            TypeError: the setup returns arguments although the test gives some, as for pytest-benchmark.
        """
        made = self.setup() if self.setup else None
        if not made:
            return self.args, self.kwargs
        if self.args or self.kwargs:
            raise TypeError("Can't use `args` or `kwargs` if `setup` returns the arguments.")
        args, kwargs = made
        return args, kwargs

    @contextlib.contextmanager
    def prepared(self) -> Iterator[Callable[[], Any]]:
        """Yield the function with its arguments, between its setup and its teardown."""
        args, kwargs = self.arguments()
        try:
            yield lambda: self.function(*args, **kwargs)
        finally:
            if self.teardown is not None:
                self.teardown(*args, **kwargs)


def device_in_use() -> str:
    """Return the device of the calls in this process: ``cuda`` once torch has used one, else ``cpu``."""
    torch = sys.modules.get("torch")
    return "cuda" if torch is not None and torch.cuda.is_initialized() else "cpu"


def params_of_test(node_id: str, threads: int) -> Params:
    """Return the parameters of a plain test in this process, whose calls have so many intra-op threads."""
    name = node_id[node_id.rfind("/", 0, node_id.find("::")) + 1 :]  # the parameters of a test may contain a path
    return params_of_call(name, device_in_use(), threads)


def intercept(
    fixture: Any, before: Callable[[Call], object] = lambda _: None, after: Callable[[Call], object] = lambda _: None
) -> None:
    """Make pytest-benchmark's fixture hand over its call before it runs it and, if there was no exception, after it.

    Other fixtures of its name are left alone.
    """
    base = type(fixture)
    if not any(parent.__module__ == "pytest_benchmark.fixture" for parent in base.__mro__):
        return

    def around(benchmark: Any, call: Call, run: Callable[[], Any]) -> Any:
        is_first = not benchmark._mode  # noqa: SLF001  # pytest-benchmark refuses a second call
        if is_first:
            before(call)
        found = run()
        if is_first:
            after(call)
        return found

    class Intercepted(base):  # type: ignore[misc, valid-type]
        def __call__(self, function_to_benchmark: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            call = Call(function_to_benchmark, args, kwargs, collects_garbage=not self._disable_gc)
            return around(self, call, lambda: base.__call__(self, function_to_benchmark, *args, **kwargs))

        def pedantic(self, *args: Any, **kwargs: Any) -> Any:
            given = inspect.signature(base.pedantic).bind(self, *args, **kwargs).arguments
            warmup_rounds = given.get("warmup_rounds", 0)
            once = given.get("rounds", 1) == given.get("iterations", 1) == 1 and not warmup_rounds
            call = Call(
                given["target"], tuple(given.get("args", ())), given.get("kwargs") or {}, given.get("setup"),
                given.get("teardown"), warmup_rounds, not self._disable_gc, once,
            )  # fmt: skip
            return around(self, call, lambda: base.pedantic(self, *args, **kwargs))

    fixture.__class__ = Intercepted


def refuse_weave(fixture: Any) -> None:
    """Make ``benchmark.weave`` and ``benchmark.patch`` skip their test: the functions that they wrap are called by others."""
    if not hasattr(fixture, "weave"):
        return

    def weave(*_: object, **__: object) -> None:
        import pytest  # here: a training imports this module, and pytest takes 0.15 s

        pytest.skip("benchmark.weave cannot be measured")

    fixture.weave = fixture.patch = weave
