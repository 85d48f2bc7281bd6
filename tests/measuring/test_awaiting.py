"""Calls of coroutine functions: their loop is stopped while they are measured."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial

import pytest

from mnistbench.measuring.awaiting import (
    AwaitedCall,
    make_stoppable,
    while_stopped,
    why_unstoppable,
)
from mnistbench.measuring.calls import Call, awaits_its_call, is_awaited
from mnistbench.measuring.timing import Sample

NAME = ContextVar("name")


@pytest.fixture(autouse=True)
def _stoppable(monkeypatch):
    loop_type = asyncio.BaseEventLoop
    monkeypatch.setattr(loop_type, "run_forever", loop_type.run_forever)
    make_stoppable()


async def double(number):
    await asyncio.sleep(0)
    return 2 * number


class Function:
    async def __call__(self):
        pass


def test_a_coroutine_function_is_known_by_its_definition():
    async def generator():
        yield 1

    for function in (double, partial(double, 1), Function(), Function().__call__):
        assert is_awaited(function)

    class Computing:
        def __call__(self):
            pass

        def __getattr__(self, name):
            raise RuntimeError

    for function in (len, int, lambda: double(1), generator, Function, None, Computing()):
        assert not is_awaited(function)


def test_whether_code_awaits_its_call_is_known_in_the_call():
    seen = []

    def benchmark(*_, **__):
        seen.append(awaits_its_call(sys._getframe(1)))
        return double(1)

    async def main():
        await benchmark()
        assert await benchmark(lambda: 1, setup=[2]) == 2
        await benchmark(*[1], setup=None)
        benchmark().close()
        coroutine = benchmark()
        await coroutine
        await asyncio.ensure_future(benchmark())

    for _ in range(20):  # the interpreter specializes instructions
        asyncio.run(main())
    assert seen == [True, True, True, False, False, False] * 20


def test_a_loop_is_stopped_during_a_function_and_continues():
    async def main():
        loop = asyncio.get_running_loop()
        seen = []
        task = asyncio.create_task(double(3))

        def work():
            seen.append(loop.is_running())
            with pytest.raises(RuntimeError, match="no running event loop"):
                asyncio.get_running_loop()
            return loop.run_until_complete(double(4))

        results = [await while_stopped(work) for _ in range(2)]
        return results, seen, await task, loop.is_running(), why_unstoppable()

    assert asyncio.run(main()) == ([8, 8], [False, False], 6, True, "")


@pytest.mark.parametrize("error", [ZeroDivisionError("own"), pytest.skip.Exception("own")])
def test_what_a_function_raises_is_raised_where_it_is_awaited(error):
    def work():
        raise error

    async def main():
        with pytest.raises(type(error), match="own"):
            await while_stopped(work)
        return await while_stopped(int)

    assert asyncio.run(main()) == 0


def test_an_interruption_ends_the_loop():
    def work():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(while_stopped(work))


def test_a_timeout_of_the_test_expires_as_usual():
    async def main():
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(0):
            await while_stopped(lambda: loop.run_until_complete(double(1)))

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def why_of_main():
    async def main():
        return why_unstoppable()

    return asyncio.run(main())


def test_a_loop_that_ran_before_cannot_be_stopped(monkeypatch):
    assert why_of_main() == ""
    monkeypatch.undo()
    assert why_of_main().startswith("is run by a loop that cannot be stopped to measure (")


def test_a_loop_in_another_thread_is_not_stopped():
    with ThreadPoolExecutor(1) as pool:
        why = pool.submit(why_of_main).result()
    assert why == "is run by a loop in another thread, which cannot be stopped to measure"


def test_loops_of_uvloop_can_be_stopped(monkeypatch):
    uvloop = pytest.importorskip("uvloop", exc_type=ImportError)
    monkeypatch.setattr(uvloop.Loop, "run_forever", uvloop.Loop.run_forever)
    make_stoppable(imports=True)

    async def main():
        loop = asyncio.get_running_loop()
        return await while_stopped(lambda: loop.run_until_complete(double(4)))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == 8


def test_without_a_loop_of_asyncio_nothing_is_awaited():
    assert (
        why_unstoppable() == "is not run by asyncio, in whose loop its benchmark could be awaited"
    )


def measured(call, work):
    """Return what ``work`` returns for an awaited call, in a loop that is stopped."""

    async def main():
        NAME.set("of the test")
        awaited = AwaitedCall.of(call)
        return await while_stopped(lambda: work(awaited))

    return asyncio.run(main())


def test_calls_are_awaited_one_after_the_other_in_the_context_of_the_test():
    seen = []

    async def note():
        await asyncio.sleep(0)
        seen.append((NAME.get(), asyncio.get_running_loop()))
        return len(seen)

    assert measured(Call(note), lambda call: (call.repeat((), {}, 3), call.loop)) == (
        3,
        seen[0][1],
    )
    assert seen == [("of the test", seen[0][1])] * 3


def test_the_times_of_a_sample_are_those_of_its_calls_alone(monkeypatch):
    from mnistbench.measuring.timing import Clock

    ticks = iter(range(0, 100, 10))
    monkeypatch.setattr(Clock, "cpu_ns", staticmethod(lambda: next(ticks)))
    monkeypatch.setattr(Clock, "wall_ns", staticmethod(lambda: next(ticks)))

    def work(call):
        call.repeat((2,), {}, 5)
        return call.own_times(Sample(1_000, 1_000))

    assert measured(Call(double), work) == Sample(10, 30)
    assert Call(len).own_times(Sample(5, 6)) == Sample(5, 6)


def test_setup_and_teardown_are_called_in_the_loop():
    ended = []

    def setup():
        return (asyncio.get_running_loop(),), {}

    def teardown(loop):
        ended.append(loop is asyncio.get_running_loop())

    async def is_own(loop):
        return loop is asyncio.get_running_loop()

    def work(call):
        with call.prepared() as run:
            return run()

    assert measured(Call(is_own, setup=setup, teardown=teardown), work)
    assert ended == [True]


def test_a_task_that_goes_on_is_unfinished_and_one_that_ends_is_not():
    started = []

    async def start(seconds):
        started.append(asyncio.create_task(asyncio.sleep(seconds)))

    def unfinished(call):
        before = call.unfinished()
        call.repeat(call.args, {}, 1)
        return len(call.unfinished() - before)

    assert measured(Call(start, (60,)), unfinished) == 1
    assert measured(Call(start, (0,)), unfinished) == 0
    assert Call(len).unfinished() == frozenset()
