"""``mnistbench profile`` as a user runs it, and as torchrun starts it, once for each rank."""

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys

import forks
import pytest
from rank_builders import environ_of, imported_without_a_launcher, start, wait

from mnistbench.cli import main
from mnistbench.suite.profile import run as profile_run
from mnistbench.suite.profile.run import TIMED_STEPS

#: Forward passes of a small network; without an optimizer a process does not import torch._dynamo.
QUICK = ("--model", "lenet5", "--phase", "forward", "--device", "cpu", "--iterations", "2")


def run(folder, *arguments):
    """Run the command in a fork, with warnings as errors."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    return forks.run("mnistbench", "profile", *arguments, cwd=folder, env=environment, errors=True)


def test_tables_of_batch_sizes_and_files_of_traces(tmp_path):
    done = run(
        tmp_path,
        *QUICK,
        "--batch-size",
        "1,4",
        "--trace",
        "traces/t.json.gz",
        "--shapes",
        "--memory",
    )
    assert (done.returncode, done.stderr) == (0, "")
    titles = [
        line
        for line in done.stdout.splitlines()
        if line.startswith(("forward lenet5", "Roofline", "lenet5"))
    ]
    assert [title.partition(" on digits")[0] for title in titles] == [
        "forward lenet5",
        "forward lenet5 at batch 1",
        "forward lenet5 at batch 4",
        "Roofline, forward lenet5 at batch 4",
        "lenet5: layers, forward, one sample",
    ]
    assert "model FLOP utilisation" in done.stdout
    assert "[[4, 1, 28, 28]" in done.stdout
    for size in (1, 4):
        with gzip.open(tmp_path / "traces" / f"t-forward-lenet5-b{size}-cpu.json.gz") as file:
            events = json.load(file)["traceEvents"]
        assert (
            sum(event["name"] == "mnistbench.iteration" and event["ph"] == "X" for event in events)
            == 2
        )


def test_first_calls_and_json(tmp_path):
    done = run(
        tmp_path,
        *QUICK,
        "--batch-size",
        "2",
        "--cold",
        "--format",
        "json",
        "--output",
        "profile.json",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (case,) = json.loads((tmp_path / "profile.json").read_text())["cases"]
    assert [(call["trained"], call["first"]) for call in case["cold"]] == [
        (False, True),
        (True, False),
        (True, True),
    ]
    assert [call["table"]["first_of_process"] for call in case["cold"]] == [True, False, True]
    assert all(min(call["table"]["iteration_ns"]) > 0 for call in case["cold"])
    assert (case["trained_steps"], case["params"]["batch_size"], case["params"]["phase"]) == (
        20,
        2,
        "forward",
    )


def test_csv_of_a_step_by_module(tmp_path):
    # A process of its own: torch's allocator warns of a step, unless told not to before torch is
    # imported.
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "mnistbench",
        "profile",
        "--model",
        "lenet5",
        "--device",
        "cpu",
    ]
    options = ("--batch-size", "2", "--iterations", "1", "--by", "module", "--format", "csv")
    done = subprocess.run(
        [*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert {row["phase"] for row in rows} >= {"forward", "backward", "optimizer"}
    conv = next(row for row in rows if (row["module"], row["phase"]) == ("conv1", "forward"))
    assert int(conv["flops"]) == 2 * 2 * 6 * 28 * 28 * 25


@pytest.fixture
def _not_profiled(monkeypatch):
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")  # the command sets it
    monkeypatch.setattr(profile_run, "profile_case", lambda *_, **__: pytest.fail("profiled"))


@pytest.mark.usefixtures("_not_profiled")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            "--output no/p.txt",
            "--output: no/p.txt cannot be written (No such file or directory); name another file",
        ),
        ("--trace t.txt", "--trace: 't.txt' does not end in .json or .json.gz; name such a file"),
        ("--model resnet", "--model: 'resnet' is not known; choose convnet or lenet5 or smallnet"),
        ("--device cpu --sort self-device", "--sort: 'self-device' needs an accelerator"),
        (
            "--trace /dev/null/t.json",
            "--trace: /dev/null/t-step-convnet-b1-cpu.json cannot be written (/dev/null is not a",
        ),
    ],
)
def test_a_wrong_option_is_one_line(monkeypatch, tmp_path, capsys, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    assert main(["profile", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"mnistbench: {complaint}")


# ---- Ranks ---------------------------------------------------------------------------------------

OF_RANKS = ("--model", "lenet5", "--device", "cpu", "--iterations", "2")


@pytest.mark.versions
def test_rank_0_shows_the_operations_and_what_all_ranks_spend(tmp_path):
    options = ("--batch-size", "4,6", "--trace", "t.json", "--format", "json", "--threads", "1")
    ranks = wait(start(2, "profile", *OF_RANKS, *options, cwd=tmp_path, errors=True))
    assert [rank.returncode for rank in ranks] == [0, 0]
    # torch's allocator warns of a step in a fork: nobody has told it not to before the import.
    warned = [line for rank in ranks for line in rank.stderr.splitlines()]
    assert [line for line in warned if "Memory block of unknown size" not in line] == []
    assert ranks[1].stdout == ""
    cases = json.loads(ranks[0].stdout)["cases"]
    assert [(case["params"]["batch_size"], case["samples"]) for case in cases] == [(4, 2), (6, 3)]
    for case in cases:
        assert [
            len(times) for times in (*case["ranks"]["step_ns"], *case["ranks"]["no_sync_ns"])
        ] == [TIMED_STEPS] * 4
        rows = {row["name"]: row for row in case["tables"][0]["rows"]}
        assert rows["gloo:all_reduce"]["calls"] == rows["c10d::allreduce_"]["calls"] >= 1
        assert len(rows["gloo:all_reduce"]["self_cpu_ns"]) == 2
        assert min(rows["gloo:all_reduce"]["self_cpu_ns"]) > 0
        conv_rows = [
            row
            for row in case["operations"]
            if (row["phase"], row["module"]) == ("forward", "conv1")
        ]
        flops = [row["flops"] for row in conv_rows if row["flops"]]
        assert flops == [case["samples"] * 2 * 6 * 28 * 28 * 25]  # of this rank's part
        trace = json.loads(
            (tmp_path / f"t-step-lenet5-b{case['params']['batch_size']}-cpu.json").read_text()
        )
        assert "gloo:all_reduce" in {event["name"] for event in trace["traceEvents"]}


def test_an_error_of_all_ranks_is_one_line(tmp_path):
    arguments = ("--device", "cpu", "--trace", "/dev/null/t.json")
    done = wait(start(2, "profile", *arguments, cwd=tmp_path, errors=True))
    assert [rank.returncode for rank in done] == [2, 2]
    # Without a launcher the store ends with rank 0: rank 1 cannot learn that the error was said,
    # and PyTorch may warn of the store's end.
    assert all("Traceback" not in rank.stderr for rank in done)
    errors = [
        line
        for rank in done
        for line in rank.stderr.splitlines()
        if line.startswith("mnistbench: ")
    ]
    [line] = {re.sub("rank [01]", "rank N", line) for line in errors}
    assert line.startswith("mnistbench: rank N of 2: --trace: /dev/null/t-step")


def test_without_a_launcher_nothing_of_torch_distributed_is_imported(tmp_path):
    options = (*OF_RANKS, "--batch-size", "2", "--phase", "forward")
    assert imported_without_a_launcher("profile", *options, cwd=tmp_path, fork=True) == []


@pytest.mark.usefixtures("_not_profiled")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--phase forward", "--phase: ranks communicate in a step only"),
        ("--phase step,forward", "--phase: ranks communicate in a step only"),
        ("--cold", "--cold: first iterations are those of one process"),
        ("--device cpu,cuda", "--device: 'cpu,cuda' cannot be used by 2 ranks"),
        ("--batch-size 8,1", "--batch-size: 1 has no sample for each of 2 ranks; give 2 at least"),
    ],
)
def test_an_option_that_ranks_cannot_use_is_one_line(monkeypatch, capsys, arguments, complaint):
    for name, value in environ_of(0, 2, 1).items():
        monkeypatch.setenv(name, value)
    assert main(["profile", *arguments.split()]) == 2
    assert capsys.readouterr().err.startswith(f"mnistbench: {complaint}")
