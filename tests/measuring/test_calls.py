"""A call whose function only creates what would do the work is known by its result."""

import asyncio
import contextlib
import functools
import itertools
import re
import warnings

import pytest

from mnistbench.measuring.calls import close_unrun, only_created


async def coroutine():
    return 1


def generator():
    yield 1


async def async_generator():
    yield 1


@contextlib.contextmanager
def manager():
    yield 1


@contextlib.asynccontextmanager
async def async_manager():
    yield 1


class Query:
    def __await__(self):
        yield


def started():
    running = generator()
    next(running)
    return running


def future(*, is_done):
    loop = asyncio.new_event_loop()
    future_result = loop.create_future()
    if is_done:
        future_result.set_result(1)
    loop.close()
    return future_result


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (coroutine, "a coroutine"),
        (functools.partial(coroutine), "a coroutine"),
        (lambda: coroutine(), "a coroutine"),  # noqa: PLW0108  # a function that is none itself
        (generator, "a generator"),
        (lambda: (number for number in range(3)), "a generator"),
        (async_generator, "an async generator"),
        (manager, "a context manager"),
        (async_manager, "a context manager"),
        (lambda: map(abs, [1]), "an iterator (map)"),
        (lambda: filter(None, [1]), "an iterator (filter)"),
        (lambda: zip([1], [2], strict=True), "an iterator (zip)"),
        (lambda: enumerate([1]), "an iterator (enumerate)"),
        (lambda: itertools.chain([1], [2]), "an iterator (chain)"),
        (lambda: re.finditer("a", "aaa"), "an iterator (callable_iterator)"),
        (Query, "an awaitable (Query)"),
        (lambda: future(is_done=False), "an awaitable (Future)"),
    ],
)
def test_a_call_that_only_creates_its_work_is_known(function, what):
    result = function()
    assert only_created(result).startswith(
        f"its function only creates {what}, whose work is not measured; "
    )
    close_unrun(result)


@pytest.mark.parametrize(
    "function",
    [
        lambda: [1],
        lambda: None,
        {"a": 1}.items,
        lambda: iter([1]),
        started,
        lambda: asyncio.run(coroutine()),
        lambda: list(generator()),
        lambda: future(is_done=True),
        lambda: Query,
        lambda: coroutine,
        lambda: range(3),
    ],
)
def test_a_call_that_has_done_its_work_is_none(function):
    assert only_created(function()) == ""


def test_no_code_of_the_result_runs():
    class Computing:
        def __getattribute__(self, name):
            raise AssertionError(name)

    assert only_created(Computing()) == ""


def test_python_does_not_warn_of_a_coroutine_that_is_closed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close_unrun(coroutine())
    close_unrun([1])
