"""How launches are started, and what is said when one fails."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from scale_builders import scaling

from mnistbench.core.errors import UsageError
from mnistbench.core.machine import PINNED
from mnistbench.measuring import environment
from mnistbench.train.scale import run as scale
from mnistbench.train.scale.result import WEAK

SETTINGS = scaling().settings


def test_several_ranks_come_from_torchrun_and_one_by_itself(tmp_path: Path) -> None:
    one, two = (scale.command(SETTINGS, ranks, tmp_path / "f.json") for ranks in (1, 2))
    assert one[1:3] == ["-m", "mnistbench.train.scale.worker"]
    assert two[1:5] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert two[5:] == one[1:]


def test_ranks_have_pinned_thresholds_their_threads_and_no_place_of_this_process(tmp_path: Path) -> None:
    inherited = {"PATH": "/bin", "RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "1", "OMP_NUM_THREADS": "7"}
    found = scale.environment_of(dataclasses.replace(SETTINGS, threads=3), inherited, tmp_path)
    assert PINNED.items() <= found.items()
    assert (found["PATH"], found["OMP_NUM_THREADS"]) == ("/bin", "3")
    assert not {"RANK", "WORLD_SIZE", "MASTER_PORT"} & set(found)


def test_a_rank_cannot_start_ranks() -> None:
    environ = {
        "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1",
    }  # fmt: skip
    with pytest.raises(UsageError, match="without torchrun"):
        scale.check(SETTINGS, environ)


def test_each_rank_needs_a_sample() -> None:
    with pytest.raises(UsageError, match="--batch-size: 3 "):
        scale.check(dataclasses.replace(SETTINGS, batch_size=3), {})
    scale.check(dataclasses.replace(SETTINGS, batch_size=4), {})
    scale.check(dataclasses.replace(SETTINGS, batch_size=3, scaling=WEAK), {})


def test_each_rank_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = dataclasses.replace(SETTINGS, device="cuda", ranks=(1, 3))
    monkeypatch.setattr(environment, "accelerators", lambda: ["cuda", "cuda:1"])
    with pytest.raises(UsageError, match=r"--ranks: 3 .* there are 2"):
        scale.check(cuda, {})
    scale.check(dataclasses.replace(cuda, ranks=(1, 2)), {})


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (
            """
            print("W1122 a warning of the launcher", file=sys.stderr)
            print("mnistbench: rank 1 of 2: no memory", file=sys.stderr)
            print("Root Cause: ...", file=sys.stderr)
            sys.exit(1)
            """,
            "rank 1 of 2: no memory",
        ),
        ("sys.exit('odd')", "the launch of 2 ranks failed with exit code 1 (odd)"),
        ("os._exit(3)", "the launch of 2 ranks failed with exit code 3 (nothing was printed)"),
        ("", "the launch of 2 ranks ended without a result"),
    ],
)
def test_a_launch_that_fails_is_one_line(program: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [sys.executable, "-c", "import os, sys\n" + textwrap.dedent(program)]
    monkeypatch.setattr(scale, "command", lambda *_: words)
    with pytest.raises(scale.LaunchError) as error:
        scale.run(dataclasses.replace(SETTINGS, ranks=(2,)))
    assert str(error.value) == reason


@pytest.mark.versions
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_all_ranks(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mnistbench", "scale", "--ranks", "2", "--strong", "--model", "lenet5"]
    environ = {**os.environ, "MNISTBENCH_TEST_MARK": str(tmp_path)}
    with subprocess.Popen([*command, "--iterations", "100000"], cwd=tmp_path, env=environ, stderr=subprocess.PIPE) as running:
        until = time.monotonic() + 60
        while len(marked(str(tmp_path))) < 4:  # this process, the launcher and two ranks
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(1)
        running.send_signal(number)
        _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (130, b"mnistbench: interrupted\n")
    assert marked(str(tmp_path)) == []


def marked(mark: str) -> list[int]:
    """Return the processes with this value of MNISTBENCH_TEST_MARK."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"MNISTBENCH_TEST_MARK={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # another user's, or it has ended
            continue
    return found
