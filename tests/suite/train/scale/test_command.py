"""``mnistbench scale``: its options, how launches are started, and what is said when one fails."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import forks
import pytest
from scale_builders import SETTINGS

from mnistbench import cli
from mnistbench.core.child import ChildError
from mnistbench.core.errors import UsageError
from mnistbench.suite.measuring import environment
from mnistbench.suite.train.scale import command


@pytest.mark.versions
def test_one_and_two_ranks(tmp_path: Path) -> None:
    small = (
        "--model",
        "lenet5",
        "--batch-size",
        "9",
        "--iterations",
        "12",
        "--format",
        "json",
        "-o",
        "scale.json",
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = forks.run(
        "mnistbench",
        "scale",
        "--ranks",
        "2,1",
        "--strong",
        *small,
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(temporary)},
        errors=True,
    )
    # The cache of torch's compiler stays: later processes use it.
    assert [path for path in temporary.iterdir() if "inductor" not in path.name] == []
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    content = json.loads((tmp_path / "scale.json").read_text())
    alone, pair = content["launches"]
    assert (alone["ranks"], alone["batch_sizes"], pair["ranks"], pair["batch_sizes"]) == (
        1,
        [9],
        2,
        [5, 4],
    )
    assert [
        len(times) for times in (*alone["steps_ns"], *pair["steps_ns"], *pair["no_sync_steps_ns"])
    ] == [12] * 5
    assert all(ns > 0 for times in pair["steps_ns"] for ns in times)
    assert alone["efficiency"] == 1
    assert content["environment"]["threads"] == 1
    assert "MALLOC_TRIM_THRESHOLD_" in content["environment"]["allocator"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "--strong and --weak are both missing"),
        (("--strong", "--weak"), "--strong and --weak exclude each other"),
        (
            ("--strong", "--batch-size-per-rank", "8"),
            "--batch-size-per-rank: cannot be used with --strong",
        ),
        (
            ("--weak", "--batch-size", "64"),
            "--batch-size: cannot be used with --weak; give --batch-size-per-rank",
        ),
        (
            ("--strong", "--ranks", "4", "--batch-size", "3"),
            "--batch-size: 3 has no sample for each of 4 ranks; give 4",
        ),
        (
            ("--strong", "--device", "cuda", "--step", "fast"),
            "--step: the fast step is for the CPU",
        ),
        (("--strong", "--output", "no/s.txt"), "--output: no/s.txt cannot be written"),
    ],
)
def test_a_wrong_option_is_one_line(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["scale", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"mnistbench: {complaint}"), err.count("\n")) == ("", True, 1)


def test_several_ranks_are_started_by_torchrun_and_one_without(tmp_path: Path) -> None:
    alone, pair = (command.words(SETTINGS, ranks, tmp_path / "f.json") for ranks in (1, 2))
    assert alone[1:3] == ["-m", "mnistbench.suite.train.scale.worker"]
    assert pair[1:5] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert pair[-len(alone[1:]) :] == alone[1:]


def test_ranks_have_their_threads_and_no_variables_of_another_launcher(
    tmp_path: Path,
) -> None:
    inherited = {
        "PATH": "/bin",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_PORT": "1",
        "OMP_NUM_THREADS": "7",
    }
    environ = command.environment_of(dataclasses.replace(SETTINGS, threads=3), inherited, tmp_path)
    assert (environ["PATH"], environ["OMP_NUM_THREADS"]) == ("/bin", "3")
    assert not {"RANK", "WORLD_SIZE", "MASTER_PORT"} & set(environ)


def test_a_rank_cannot_start_ranks() -> None:
    environ = {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "x",
        "MASTER_PORT": "1",
    }
    with pytest.raises(UsageError, match="without torchrun"):
        command.check_ranks(SETTINGS, environ)


def test_each_rank_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = dataclasses.replace(SETTINGS, device="cuda", ranks=(1, 3))
    monkeypatch.setattr(environment, "accelerators", lambda: ["cuda", "cuda:1"])
    with pytest.raises(UsageError, match=r"--ranks: 3 .* there are 2"):
        command.check_ranks(cuda, {})
    command.check_ranks(dataclasses.replace(cuda, ranks=(1, 2)), {})


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
        (
            """
            print("  traceback : Signal 9 (SIGKILL) received by PID 3", file=sys.stderr)
            print("=" * 60, file=sys.stderr)
            sys.exit(1)
            """,
            "a rank failed: Signal 9 (SIGKILL) received by PID 3",
        ),
        ("sys.exit('odd')", "the launch of 2 ranks ended with exit code 1: odd"),
        ("", "the launch of 2 ranks ended without a result"),
    ],
)
def test_a_launch_that_fails_is_one_line(
    program: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [sys.executable, "-c", "import os, sys\n" + textwrap.dedent(program)]
    monkeypatch.setattr(command, "words", lambda *_: words)
    with pytest.raises(ChildError) as error:
        command.measured(dataclasses.replace(SETTINGS, ranks=(2,)))
    assert str(error.value) == reason


def test_termination_ends_all_ranks(tmp_path: Path) -> None:
    starting = [
        sys.executable,
        "-m",
        "mnistbench",
        "scale",
        "--ranks",
        "2",
        "--strong",
        "--model",
        "lenet5",
    ]
    environ = {**os.environ, "MNISTBENCH_TEST_MARK": str(tmp_path)}
    with subprocess.Popen(
        [*starting, "--iterations", "100000"], cwd=tmp_path, env=environ, stderr=subprocess.PIPE
    ) as running:
        until = time.monotonic() + 60
        while len(marked(str(tmp_path))) < 4:  # this process, the launcher and two ranks
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(1)
        running.terminate()
        _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (130, b"mnistbench: interrupted\n")
    assert marked(str(tmp_path)) == []


def marked(mark: str) -> list[int]:
    """Return the processes with this value of MNISTBENCH_TEST_MARK."""
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"MNISTBENCH_TEST_MARK={mark}".encode() in (folder / "environ").read_bytes().split(
                b"\0"
            ):
                processes.append(int(folder.name))
        except OSError:  # another user's, or it has ended
            continue
    return processes
