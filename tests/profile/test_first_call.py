"""First iterations: what is marked cold, and the environment of the processes that measure them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from torch_builders import CPU, tiny_params

from mnistbench.core.allocator import PINNED
from mnistbench.core.errors import UsageError
from mnistbench.measuring.case import fork_random, thread_count
from mnistbench.profile import first_call

pytestmark = pytest.mark.versions


def test_only_the_first_iteration_of_a_process_is_cold(tmp_path: Path) -> None:
    params = tiny_params(workload="lenet5", phase="forward", batch_size=1, dataset="digits")
    job = {"params": vars(params), "data_dir": None, "weights": str(tmp_path / "weights.pt"), "trained": False}
    with thread_count(1), fork_random(CPU):
        first, later = first_call._measure(job)
    assert (first["first"], first["table"]["temperature"]) == (True, "cold")
    assert (later["first"], later["table"]["temperature"]) == (False, "warm")


def test_a_process_gets_the_settings_of_the_gate_s_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> Any:
        given.update(env)
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(first_call.subprocess, "run", run)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", "here")
    with pytest.raises(UsageError):
        first_call.cold_calls(tiny_params(phase="forward"))
    assert PINNED.items() <= given.items()
    assert "PYTHONDONTWRITEBYTECODE" not in given
    assert Path(given["PYTHONPYCACHEPREFIX"]).is_absolute()
    package, here = given["PYTHONPATH"].split(os.pathsep)
    assert Path(package, "mnistbench").is_dir()
    assert here == str(Path("here").absolute())


def test_a_process_that_fails_is_one_line_with_its_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_call.sys, "executable", shutil.which("false") or "false")
    with pytest.raises(UsageError, match=r"^first iteration: its process failed \("):
        first_call.cold_calls(tiny_params(phase="forward"))


def test_an_error_in_a_process_is_passed_on(tmp_path: Path) -> None:
    params = tiny_params(workload="lenet5", phase="forward", dataset="mnist")
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(b"not MNIST")
    with pytest.raises(UsageError, match="train-images-idx3-ubyte"):
        first_call.cold_calls(params, str(tmp_path))
