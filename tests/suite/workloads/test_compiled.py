"""Compiled loops: with and without numba, in two threads, and in a fork."""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from typing import Any

import pytest
import torch

from mnistbench.suite.workloads import compiled, loops

pytestmark = pytest.mark.versions


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("place", [0, 1])
def test_an_error_of_either_of_two_loops_is_raised(
    threads: int, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    calls: list[Any] = [int, int]
    calls[place] = {}.popitem
    with pytest.raises(KeyError):
        compiled.call_all(calls, in_two_threads=True)


def test_without_numba_or_a_directory_for_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def njit(*, cache: bool = False, **_: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr("numba.njit", njit)
    assert loops.compiled().update is loops.update
    monkeypatch.setitem(sys.modules, "numba", None)
    assert compiled.loops.__wrapped__() is None


def test_a_fork_has_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert compiled.call_all([int, float], in_two_threads=True) == [0, 0.0]
    with warnings.catch_warnings():
        # Of a fork beside threads, which is what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(
            target=compiled.call_all,
            args=([int, float],),
            kwargs={"in_two_threads": True},
            daemon=True,
        )
        child.start()
    child.join(60)
    assert child.exitcode == 0
