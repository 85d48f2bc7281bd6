"""First iterations.

What is marked cold, and how the processes that measure them start, fail and end.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import forks
import pytest
import sleeping
from torch_builders import CPU, tiny_params

from mnistbench.core.errors import UsageError
from mnistbench.suite.measuring.case import fork_random, thread_count
from mnistbench.suite.profile import first_call, preloaded
from mnistbench.suite.profile.first_call import (
    FirstCallJob,
    FirstCalls,
    calls_of_process,
    cold_calls,
)

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


NO_CALLS = FirstCalls([], None)


def job(**changes: Any) -> FirstCallJob:
    """Return a job that takes seconds."""
    params = tiny_params(workload="lenet5", phase="forward", batch_size=1, dataset="digits")
    return FirstCallJob(**{"params": params, "data_dir": None, **changes})


def test_only_the_first_iteration_of_a_process_is_cold() -> None:
    with thread_count(1), fork_random(CPU):
        untrained = first_call._calls(job())
        trained = first_call._calls(job(trained_weights=untrained.trained_weights))
    first, later = untrained.calls
    assert (first.first, first.trained, first.table.temperature) == (True, False, "cold")
    assert (later.first, later.trained, later.table.temperature) == (False, True, "warm")
    [of_trained] = trained.calls
    assert (of_trained.first, of_trained.trained) == (True, True)
    assert trained.trained_weights is None


def test_weights_are_handed_on_without_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A command that is killed cannot remove one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    jobs: list[FirstCallJob] = []

    def measured(job: FirstCallJob) -> FirstCalls:
        assert list(tmp_path.iterdir()) == []
        jobs.append(job)
        return FirstCalls([], b"weights")

    monkeypatch.setattr(first_call, "calls_of_process", measured)
    assert cold_calls(job().params) == ()
    assert [of_process.trained_weights for of_process in jobs] == [None, b"weights"]


def test_a_process_gets_the_settings_of_the_gate_s_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", "here")
    before = dict(os.environ)
    with first_call._environment({"OPENBLAS_NUM_THREADS": "1"}):
        started_with = dict(os.environ)
    assert started_with["OPENBLAS_NUM_THREADS"] == "1"
    package, here = started_with["PYTHONPATH"].split(os.pathsep)
    assert Path(package, "mnistbench").is_dir()
    assert here == str(Path("here").absolute())
    assert dict(os.environ) == before


# ---- Forks ---------------------------------------------------------------------------------------


@on_linux
def test_where_a_fork_would_differ_a_process_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    methods = []

    def measured(context: Any, job: FirstCallJob, _: object) -> FirstCalls | None:
        methods.append((job.params.device, context.get_start_method()))
        return None if methods[-1][1] == "forkserver" else NO_CALLS

    monkeypatch.setattr(first_call, "_measured", measured)
    for device in ("cuda:0", "cpu"):
        assert calls_of_process(job(params=tiny_params(device=device))) == NO_CALLS
    assert calls_of_process(job(), forks=False) == NO_CALLS
    assert methods == [
        ("cuda:0", "spawn"),
        ("cpu", "forkserver"),
        ("cpu", "spawn"),
        ("cpu", "spawn"),
    ]


@on_linux
def test_the_pages_of_a_process_are_those_that_it_has_used() -> None:
    size = 8 * mmap.PAGESIZE
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.madvise(15)  # MADV_NOHUGEPAGE: a single page is to be used
        block[3 * mmap.PAGESIZE] = 1
        import ctypes

        start = ctypes.addressof(ctypes.c_char.from_buffer(block))
        used = [
            page
            for page in range(8)
            for begin, length, advice in preloaded.present_pages()
            if begin <= start + page * mmap.PAGESIZE < begin + length
            and advice == preloaded.POPULATE_WRITE
        ]
    assert used == [3]


@on_linux
def test_this_process_is_no_fork_of_a_server() -> None:
    """It has not the pages of one, as where the server could not import what it preloads."""
    assert not first_call._is_like_a_started_process()


#: In a process of its own: one process has one fork server.
PROGRAM = """
import multiprocessing
import sys
from dataclasses import replace

from mnistbench.core.errors import UsageError
from mnistbench.core.params import Params
from mnistbench.suite.profile import first_call

if __name__ == "__main__":  # the fork server imports this module
    params = Params("lenet5", "forward", 1, "cpu", "float32", 1, False, 1, "mnist")
    job = first_call.FirstCallJob(params, sys.argv[1])
    try:
        first_call.calls_of_process(job)
    except UsageError as error:
        print(error)
    context = multiprocessing.get_context("forkserver")
    job_on_digits = replace(job, params=replace(params, dataset="digits"))
    calls = first_call._measured(context, job_on_digits, {}).calls
    print([(call.first, call.table.temperature) for call in calls])
"""


@pytest.mark.versions
@on_linux
def test_forks_are_served_one_after_another_and_an_error_ends_none(tmp_path: Path) -> None:
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(b"not MNIST")
    (tmp_path / "first_calls.py").write_text(PROGRAM)
    done = forks.run("first_calls", tmp_path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    error, calls = done.stdout.splitlines()
    assert "train-images-idx3-ubyte" in error
    assert calls == "[(True, 'cold'), (False, 'warm')]"  # an unfit fork has none


def test_a_process_that_exceeds_the_time_limit_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_call, "_serve", sleeping.sleep)
    monkeypatch.setattr(first_call, "_TIMEOUT_S", 0.1)
    message = r"^first iteration: its process failed \(it took longer than 0.1 s\); try again$"
    with pytest.raises(UsageError, match=message):
        calls_of_process(job(), forks=False)
    assert multiprocessing.active_children() == []


def test_a_process_that_is_killed_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_call, "_serve", sleeping.end_by_signal)
    message = r"^first iteration: its process failed \(killed by signal 9\); try again$"
    with pytest.raises(UsageError, match=message):
        calls_of_process(job(), forks=False)
