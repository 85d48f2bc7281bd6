"""Await the calls of a coroutine function in the event loop of their test.

What measures a call is no coroutine: it repeats the call, waits for the process of the other side,
and profiles. So the loop of the test is stopped while the test awaits its benchmark. The call is
then measured outside of the loop, which runs for each sample, and the loop continues with the test.
asyncio cannot run a loop inside of a running one, and a second loop would not have what the test
has opened.

Imports asyncio only for a coroutine function.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mnistbench.measuring.calls import Call
from mnistbench.measuring.timing import Clock, Sample

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task

_T = TypeVar("_T")

#: The classes of loops, by their modules.
_LOOPS = {"asyncio": "BaseEventLoop", "uvloop": "Loop"}

#: Running loops that ``while_stopped`` can stop.
_stoppable: set[AbstractEventLoop] = set()
#: What is called while a loop is stopped, and who waits for the result.
_requests: dict[AbstractEventLoop, tuple[Callable[[], Any], Future[Any]]] = {}


# ---- Loops ---------------------------------------------------------------------------------------


def make_stoppable(*, imports: bool = False) -> None:
    """Make the loops that start from now on stoppable.

    Args:
        imports: the packages of loops, too: a plug-in may import one when it starts the loop.
    """
    for module, name in _LOOPS.items():
        if imports:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        loop_type: Any = getattr(sys.modules.get(module), name, None)
        if loop_type is not None and not hasattr(loop_type.run_forever, "answers_requests"):
            loop_type.run_forever = _answering(loop_type.run_forever)


def _answering(run_forever: Callable[[AbstractEventLoop], None]) -> Callable[..., None]:
    """Return ``run_forever`` of a type of loops, which also does what ``while_stopped`` asks."""

    def run_and_answer(loop: AbstractEventLoop) -> None:
        is_of_request = loop in _stoppable  # a request runs the loop itself
        try:
            while True:
                _stoppable.add(loop)
                run_forever(loop)
                if loop not in _requests:
                    return
                work, waiting = _requests.pop(loop)
                try:
                    waiting.set_result(work())
                except (KeyboardInterrupt, SystemExit):
                    super(type(waiting), waiting).cancel()  # type: ignore[misc]  # it ends its tasks
                    raise
                except BaseException as error:  # noqa: BLE001  # such as pytest.skip, in the test
                    waiting.set_exception(error)
        finally:
            if not is_of_request:
                _stoppable.discard(loop)

    run_and_answer.answers_requests = True  # type: ignore[attr-defined]
    return run_and_answer


def why_unstoppable() -> str:
    """Return why the loop that runs the caller cannot be stopped; empty if it can."""
    import asyncio

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return "is not run by asyncio, in whose loop its benchmark could be awaited"
    if threading.current_thread() is not threading.main_thread():
        return "is run by a loop in another thread, which cannot be stopped to measure"
    if loop not in _stoppable:
        return f"is run by a loop that cannot be stopped to measure ({type(loop).__name__})"
    return ""


async def while_stopped(work: Callable[[], _T]) -> _T:
    """Return what a function returns that is called while the running loop is stopped."""
    import asyncio

    class _Answer(asyncio.Future[_T]):
        def cancel(self, msg: object = None) -> bool:  # noqa: ARG002
            """Let a cancelled test wait for the answer.

            If it ended while the function runs the loop, that would stop the loop of the function.
            """
            return False

    loop = asyncio.get_running_loop()
    waiting = _Answer(loop=loop)
    _requests[loop] = work, waiting
    loop.stop()
    return await waiting


# ---- Calls ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AwaitedCall(Call):
    """A call of a coroutine function, whose loop is stopped, and runs until the call has ended.

    Setup and teardown are called in the loop, too, and are not awaited.
    """

    loop: Any = None  # AbstractEventLoop
    context: contextvars.Context | None = None  # of the test
    _samples: list[Sample] = field(default_factory=list)  # the last one

    @classmethod
    def of(cls, call: Call) -> Self:
        """Return the call for the loop that runs."""
        import asyncio

        values = {part.name: getattr(call, part.name) for part in fields(call)}
        loop = asyncio.get_running_loop()
        return cls(**values, loop=loop, context=contextvars.copy_context())

    def arguments(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Call the setup, and return the arguments of the next call."""
        return self._in_loop(super().arguments) if self.setup else super().arguments()

    def tear_down(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Call the teardown with the arguments of a call."""
        if self.teardown:
            self._in_loop(lambda: Call.tear_down(self, args, kwargs))

    def repeat(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], times: int) -> Any:
        """Await so many calls; return what the last one returns."""
        return self._run(self._repeated(args, kwargs, times))

    async def _repeated(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], times: int) -> Any:
        function = self.function
        cpu_start = Clock.cpu_ns()
        start = Clock.wall_ns()
        for _ in range(times - 1):
            await function(*args, **kwargs)
        result = await function(*args, **kwargs)
        end = Clock.wall_ns()
        cpu_end = Clock.cpu_ns()
        self._samples[:] = [Sample(end - start, cpu_end - cpu_start)]
        return result

    def own_times(self, _: Sample) -> Sample:
        """Return the times of the calls that a sample has just timed, without those of the loop."""
        return self._samples[0]

    def unfinished(self) -> frozenset[Task[Any]]:
        """Return the tasks of the loop that go on, after those that are about to end."""
        import asyncio

        async def tasks() -> frozenset[Task[Any]]:
            for _ in range(_LAST_TURNS):
                await asyncio.sleep(0)
            return frozenset(asyncio.all_tasks()) - {asyncio.current_task()}

        return self._run(tasks())

    def _in_loop(self, function: Callable[[], _T]) -> _T:
        async def call() -> _T:
            return function()

        return self._run(call())

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        task = self.loop.create_task(coroutine, context=self.context)
        result: _T = self.loop.run_until_complete(task)
        return result


#: Turns of the loop in which a task that is finished or cancelled ends.
_LAST_TURNS = 3
