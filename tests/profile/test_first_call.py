"""First iterations.

What is marked cold, and how the processes that measure them start, fail and end.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from torch_builders import CPU, tiny_params

from mnistbench.core.child import ChildError
from mnistbench.core.errors import UsageError
from mnistbench.measuring.case import fork_random, thread_count
from mnistbench.profile import first_call
from mnistbench.profile.first_call import Processes

pytestmark = pytest.mark.versions
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


def job(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return a job that takes seconds."""
    params = tiny_params(workload="lenet5", phase="forward", batch_size=1, dataset="digits")
    return {
        "params": vars(params),
        "data_dir": None,
        "weights": str(folder / "weights.pt"),
        "trained": False,
        **changes,
    }


def test_only_the_first_iteration_of_a_process_is_cold(tmp_path: Path) -> None:
    with thread_count(1), fork_random(CPU):
        first, later = first_call._measure(job(tmp_path))
    assert (first["first"], first["table"]["temperature"]) == (True, "cold")
    assert (later["first"], later["table"]["temperature"]) == (False, "warm")


def test_a_process_gets_the_settings_of_the_gate_s_launches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {}

    def start(_: list[str], environ: dict[str, str]) -> Any:
        given.update(environ)
        raise ChildError("cannot be started (no memory)")

    monkeypatch.setattr(first_call, "Child", start)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", "here")
    message = (
        r"^first iteration: its process failed \(cannot be started \(no memory\)\); try again$"
    )
    with pytest.raises(UsageError, match=message):
        first_call.cold_calls(tiny_params(phase="forward"))
    package, here = given["PYTHONPATH"].split(os.pathsep)
    assert Path(package, "mnistbench").is_dir()
    assert here == str(Path("here").absolute())


def test_a_process_that_exceeds_the_time_limit_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "sleeps"
    script.write_text("#!/bin/sh\nexec sleep 100\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(first_call, "_TIMEOUT_S", 0.1)
    with pytest.raises(UsageError, match=r"\(was stopped because it printed nothing"):
        first_call.cold_calls(tiny_params(phase="forward"))


# ---- Forks ---------------------------------------------------------------------------------------


class FakeProcess:
    """Answers that it cannot fork; otherwise with no iterations."""

    asked: list[tuple[str, bool]]

    def __init__(self, *_: object) -> None:
        self._job: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def tell(self, line: str) -> None:
        self._job = json.loads(line)
        self.asked.append((self._job["params"]["device"], self._job["fork"]))

    def next_line(self, _: float) -> str:
        return json.dumps({"unfit": True} if self._job["fork"] else {"calls": []})

    def stop(self) -> None:
        pass


def test_where_a_fork_would_differ_each_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeProcess.asked = []
    monkeypatch.setattr(first_call, "Child", FakeProcess)
    monkeypatch.setattr(sys, "platform", "linux")
    with Processes() as processes:
        for device in ("cuda:0", "cpu", "cpu"):
            processes.run({"params": {"device": device}})
    assert FakeProcess.asked == [("cuda:0", False), ("cpu", True), ("cpu", False), ("cpu", False)]


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
            for begin, length, advice in first_call._present_pages()
            if begin <= start + page * mmap.PAGESIZE < begin + length
            and advice == first_call._POPULATE_WRITE
        ]
    assert used == [3]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """A server for all tests: it imports torch once."""
    with Processes() as opened:
        yield opened


@on_linux
def test_a_server_serves_job_after_job_and_survives_their_errors(
    processes: Processes, tmp_path: Path
) -> None:
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(b"not MNIST")
    params = {**job(tmp_path)["params"], "dataset": "mnist"}
    with pytest.raises(UsageError, match="train-images-idx3-ubyte"):
        processes.run(job(tmp_path, params=params, data_dir=str(tmp_path)))
    server = processes._server
    first, later = processes.run(job(tmp_path))
    assert processes._server is server
    assert (first.first, first.table.temperature, later.first) == (True, "cold", False)


def while_it_runs(
    processes: Processes, job: dict[str, Any], act: Callable[[int, int], None]
) -> str:
    """Run a job; call ``act`` with the server's and the fork's process ids while it runs.

    Return the error.
    """
    caught: list[UsageError] = []

    def run() -> None:
        try:
            processes.run(job)
        except UsageError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    children: list[str] = []
    while thread.is_alive() and not children:
        time.sleep(0.002)
        if processes._server:
            server = processes._server._process.pid
            children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    act(server, int(children[0]))
    thread.join()
    return str(caught[0])


@on_linux
def test_a_fork_that_is_killed_is_one_line(processes: Processes, tmp_path: Path) -> None:
    error = while_it_runs(processes, job(tmp_path), lambda _, fork: os.kill(fork, signal.SIGKILL))
    assert error.startswith("first iteration: its process failed (killed by signal 9")
    assert "\n" not in error


@on_linux
def test_a_fork_and_its_server_end_with_the_command(processes: Processes, tmp_path: Path) -> None:
    forks = []

    def close(_: int, fork: int) -> None:
        forks.append(fork)
        assert processes._server is not None
        assert processes._server._process.stdin is not None
        processes._server._process.stdin.close()  # as the system does when the command is killed

    assert "its process failed" in while_it_runs(processes, job(tmp_path), close)
    assert not Path(f"/proc/{forks[0]}").exists()
