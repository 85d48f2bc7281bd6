"""Calls that tests give to pytest-benchmark's own fixture. Does not import torch."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import opcode
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mnistbench.core.params import Params, params_of_call

if TYPE_CHECKING:
    from mnistbench.measuring.timing import Sample

#: Shortest profiled sample, in nanoseconds without the profiler: a sample repeats a short call,
#: because the range around it takes some microseconds. Reading the events takes ten times as long
#: as the calls.
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

    def repetitions(self, duration_ns: float) -> int:
        """Return how often a profiled sample repeats the call, which takes ``duration_ns``.

        It is once if something has to happen between two calls.
        """
        if self.setup is not None or self.teardown is not None:
            return 1
        return max(1, round(PROFILED_NS / max(1.0, duration_ns)))

    def arguments(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Call the setup, and return the arguments of the next call.

        Raises:
            TypeError: the setup returns arguments although the test gives some, as for
                pytest-benchmark.
        """
        arguments = self.setup() if self.setup else None
        if not arguments:
            return self.args, self.kwargs
        if self.args or self.kwargs:
            raise TypeError("Can't use `args` or `kwargs` if `setup` returns the arguments.")
        args, kwargs = arguments
        return args, kwargs

    def tear_down(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Call the teardown with the arguments of a call."""
        if self.teardown is not None:
            self.teardown(*args, **kwargs)

    def repeat(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], times: int) -> Any:
        """Call the function so many times; return what the last call returns."""
        function = self.function
        for _ in range(times - 1):
            function(*args, **kwargs)
        return function(*args, **kwargs)

    @contextlib.contextmanager
    def prepared(self) -> Iterator[Callable[[], Any]]:
        """Yield the function with its arguments, between its setup and its teardown."""
        args, kwargs = self.arguments()
        try:
            yield lambda: self.repeat(args, kwargs, 1)
        finally:
            self.tear_down(args, kwargs)

    def own_times(self, sample: Sample) -> Sample:
        """Return the times of the calls of a sample that has just been timed."""
        return sample

    def unfinished(self) -> frozenset[object]:
        """Return what the calls have started in a loop and not awaited."""
        return frozenset()


# ---- Calls that only create what would do the work -----------------------------------------------

#: Iterators of Python that compute an item when it is asked for; the last one is that of
#: ``re.finditer``.
_LAZY_ITERATORS = (
    map,
    filter,
    zip,
    enumerate,
    reversed,
    *(kind for kind in vars(itertools).values() if isinstance(kind, type)),
    type(iter(int, 1)),
)

#: What functions with ``@contextlib.contextmanager`` and ``@contextlib.asynccontextmanager``
#: return.
_CONTEXT_MANAGERS: tuple[type, ...] = (
    type(contextlib.contextmanager(lambda: iter(()))()),
    type(contextlib.asynccontextmanager(lambda: iter(()))()),  # type: ignore[arg-type, return-value]
)


def only_created(result: object) -> str:
    """Return why the time of a call is not that of its work.

    It returns what would do the work, and nothing has run that.

    Empty if the call has done its work, as far as the type of its result tells. Runs no code of the
    result.
    """
    kind = type(result)
    if type(result) is types.GeneratorType:
        is_new = inspect.getgeneratorstate(result) == inspect.GEN_CREATED
        return _why_only_created("a generator", _READ_ALL) if is_new else ""
    if type(result) is types.CoroutineType:
        is_new = inspect.getcoroutinestate(result) == inspect.CORO_CREATED
        return (
            _why_only_created(
                "a coroutine",
                "run it: benchmark(lambda: asyncio.run(f())); the gate also measures "
                "await benchmark(f)",
            )
            if is_new
            else ""
        )
    if kind is types.AsyncGeneratorType:
        return _why_only_created(
            "an async generator",
            "read it in a coroutine, and run that with asyncio.run in the function",
        )
    if any(kind is context_manager for context_manager in _CONTEXT_MANAGERS):
        return _why_only_created("a context manager", "enter it in the function: with f(): ...")
    if any(kind is lazy for lazy in _LAZY_ITERATORS):
        return _why_only_created(f"an iterator ({kind.__name__})", _READ_ALL)
    if _is_awaitable(kind) and not _is_done_future(result):
        what = f"an awaitable ({type.__dict__['__name__'].__get__(kind)})"
        return _why_only_created(
            what, "await it in a coroutine, and run that with asyncio.run in the function"
        )
    return ""


_READ_ALL = "read it: benchmark(lambda: list(f()))"


def _why_only_created(what: str, remedy: str) -> str:
    return f"its function only creates {what}, whose work is not measured; {remedy}"


def _is_awaitable(kind: type) -> bool:
    """Whether a type defines ``__await__``.

    A metaclass does not run, as it would in ``hasattr``.
    """
    namespace = type.__dict__["__dict__"]
    return any("__await__" in namespace.__get__(parent) for parent in type.mro(kind))


def _is_done_future(result: object) -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or not (type(result) is asyncio.Future or type(result) is asyncio.Task):
        return False
    return bool(result.done())  # type: ignore[attr-defined]


def close_unrun(result: object) -> None:
    """Close a coroutine that is not awaited, because Python warns of it."""
    if type(result) is types.CoroutineType:
        result.close()


def is_awaited(function: object) -> bool:
    """Return whether the calls of a function are awaited, as far as its definition tells.

    Runs no code of the function: other callables may compute their attributes.
    """
    while type(function) is functools.partial:
        function = function.func
    if type(function) is types.MethodType:
        function = function.__func__
    if type(function) is not types.FunctionType:
        namespaces = (
            type.__dict__["__dict__"].__get__(parent) for parent in type.mro(type(function))
        )
        function = next((names["__call__"] for names in namespaces if "__call__" in names), None)
    return type(function) is types.FunctionType and inspect.iscoroutinefunction(function)


def awaits_its_call(caller: types.FrameType) -> bool:
    """Return whether code awaits what its current call returns, as ``await benchmark(f)`` does.

    The next instruction then gets the awaitable; CPython keeps caches between the two, which are 0.
    """
    instructions = caller.f_code.co_code[caller.f_lasti + 2 :: 2]
    return next(filter(None, instructions), None) == opcode.opmap["GET_AWAITABLE"]


# ---- The fixture ---------------------------------------------------------------------------------

#: pytest-benchmark's fixture; in pytest-codspeed it is a mark, too.
BENCHMARK = "benchmark"
#: The other name of this fixture in pytest-codspeed, where it is a mark, too.
CODSPEED = "codspeed_benchmark"


#: Why a test with a mark alone is not measured without pytest-codspeed.
NEEDS_CODSPEED = (
    "has the mark of pytest-codspeed, which is not installed, and no fixture; install "
    "pytest-codspeed, with which its body is measured, or use the fixture benchmark"
)


def is_marked(item: Any) -> bool:
    """Return whether a test has a mark with which pytest-codspeed measures the test's body."""
    return any(map(item.get_closest_marker, (BENCHMARK, CODSPEED)))


def has_codspeed(config: Any) -> bool:
    """Return whether pytest-codspeed is loaded, as without it the marks do not measure a test."""
    return bool(config.pluginmanager.hasplugin("codspeed"))


def params_of_test(node_id: str, device: str, threads: int) -> Params:
    """Return the parameters of a plain test in this process.

    Its calls have so many intra-op threads.
    """
    # The parameters of a test may contain a path.
    name = node_id[node_id.rfind("/", 0, node_id.find("::")) + 1 :]
    return params_of_call(name, device, threads)


def intercept(
    fixture: Any,
    before: Callable[[Call], object] = lambda _: None,
    after: Callable[[Call, Any], object] = lambda *_: None,
    awaited: Callable[[Call], Any] | None = None,
    *,
    tears_down: bool = False,
) -> None:
    """Make pytest-benchmark's fixture hand over its call before and after it runs it.

    It calls ``after`` only if there was no exception.

    Other fixtures of its name are left alone.

    Args:
        fixture: pytest-benchmark's.
        before: gets the call.
        after: gets the call and what its function has returned.
        awaited: gets the call of a coroutine function, or a call that the test awaits, in place of
            the fixture, and returns what the test awaits.
        tears_down: call the teardown of ``pedantic`` also if the fixture is disabled;
            pytest-benchmark then calls the setup and the function alone.
    """
    base = type(fixture)
    if not any(parent.__module__ == "pytest_benchmark.fixture" for parent in base.__mro__):
        return

    def around(benchmark: Any, call: Call, run: Callable[[], Any], caller: types.FrameType) -> Any:
        is_first = not benchmark._mode  # noqa: SLF001  # pytest-benchmark refuses a second call
        if (
            is_first
            and awaited is not None
            and (is_awaited(call.function) or awaits_its_call(caller))
        ):
            benchmark._mode = "awaited"  # noqa: SLF001
            return awaited(call)
        if is_first:
            before(call)
        result = run()
        if is_first:
            after(call, result)
        return result

    class Intercepted(base):  # type: ignore[misc, valid-type]
        def __call__(
            self, function_to_benchmark: Callable[..., Any], *args: Any, **kwargs: Any
        ) -> Any:
            call = Call(function_to_benchmark, args, kwargs, collects_garbage=not self._disable_gc)
            return around(
                self,
                call,
                lambda: base.__call__(self, function_to_benchmark, *args, **kwargs),
                sys._getframe(1),  # noqa: SLF001
            )

        def pedantic(self, *args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1)  # noqa: SLF001
            bound = inspect.signature(base.pedantic).bind(self, *args, **kwargs).arguments
            warmup_rounds = bound.get("warmup_rounds", 0)
            once = bound.get("rounds", 1) == bound.get("iterations", 1) == 1 and not warmup_rounds
            call = Call(
                bound["target"],
                tuple(bound.get("args", ())),
                bound.get("kwargs") or {},
                bound.get("setup"),
                bound.get("teardown"),
                warmup_rounds,
                not self._disable_gc,
                once,
            )
            teardown = call.teardown
            if tears_down and teardown is not None:
                return around(
                    self,
                    call,
                    lambda: _torn_down(base.pedantic, bound, call, teardown),
                    caller,
                )
            return around(self, call, lambda: base.pedantic(self, *args, **kwargs), caller)

    fixture.__class__ = Intercepted


def _torn_down(
    pedantic: Callable[..., Any], bound: Mapping[str, Any], call: Call, teardown: Callable[..., Any]
) -> Any:
    """Run ``pedantic`` and the teardown with the arguments of the last call.

    It does not run the teardown if ``pedantic`` does so itself.
    """
    last_arguments = call.args, call.kwargs
    is_torn_down = False

    def remembering_setup() -> Any:
        nonlocal last_arguments, is_torn_down
        arguments = call.setup() if call.setup else None
        last_arguments = arguments or last_arguments
        is_torn_down = False
        return arguments

    def remembering_teardown(*args: Any, **kwargs: Any) -> None:
        nonlocal is_torn_down
        is_torn_down = True
        teardown(*args, **kwargs)

    own = {"setup": remembering_setup} if call.setup else {}
    result = pedantic(**{**bound, **own, "teardown": remembering_teardown})
    if not is_torn_down:
        args, kwargs = last_arguments
        teardown(*args, **kwargs)
    return result


def refuse_weave(fixture: Any) -> None:
    """Make ``benchmark.weave`` and ``benchmark.patch`` skip their test.

    The functions that they wrap are called by others.
    """
    if not hasattr(fixture, "weave"):
        return

    def weave(*_: object, **__: object) -> None:
        import pytest  # here: a training imports this module, and pytest takes 0.15 s

        pytest.skip("benchmark.weave cannot be measured")

    fixture.weave = fixture.patch = weave
