"""``mnistbench profile`` as a user runs it."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys

import forks
import pytest

#: Forward passes of a small network; without an optimizer a process does not import torch._dynamo.
QUICK = ("--model", "lenet5", "--phase", "forward", "--device", "cpu", "--iterations", "2")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where the ceilings of this machine are kept: not with the user's own."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(cache, tmp_path):
    def call(*arguments):
        return forks.run(
            "mnistbench", "profile", *arguments, cwd=tmp_path, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, errors=True
        )

    return call


def test_tables_of_batch_sizes_and_files_of_traces(run, tmp_path):
    done = run(*QUICK, "--batch-size", "1,4", "--trace", "traces/t.json.gz", "--shapes", "--memory")
    assert (done.returncode, done.stderr) == (0, "")
    titles = [line for line in done.stdout.splitlines() if line.startswith(("forward lenet5", "Roofline", "lenet5"))]
    assert [title.partition(" on digits")[0] for title in titles] == [
        "forward lenet5", "forward lenet5 at batch 1", "forward lenet5 at batch 4", "Roofline, forward lenet5 at batch 4",
        "lenet5: layers, forward, one sample",
    ]  # fmt: skip
    assert "model FLOP utilisation" in done.stdout
    assert "[[4, 1, 28, 28]" in done.stdout
    for size in (1, 4):
        with gzip.open(tmp_path / "traces" / f"t-forward-lenet5-b{size}-cpu.json.gz") as file:
            events = json.load(file)["traceEvents"]
        assert sum(event["name"] == "mnistbench.iteration" and event["ph"] == "X" for event in events) == 2


def test_first_calls_and_json(run, tmp_path):
    done = run(*QUICK, "--batch-size", "2", "--cold", "--format", "json", "--output", "profile.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (case,) = json.loads((tmp_path / "profile.json").read_text())["cases"]
    assert [(call["trained"], call["first"]) for call in case["cold"]] == [(False, True), (True, False), (True, True)]
    assert [call["table"]["first_of_process"] for call in case["cold"]] == [True, False, True]
    assert all(min(call["table"]["iteration_ns"]) > 0 for call in case["cold"])
    assert (case["trained_steps"], case["params"]["batch_size"], case["params"]["phase"]) == (20, 2, "forward")


@pytest.mark.versions
def test_csv_of_a_step_by_module(tmp_path, cache):
    # A process of its own: torch's allocator warns of a step, unless told not to before torch is imported.
    command = [sys.executable, "-W", "error", "-m", "mnistbench", "profile"]
    small = ("--model", "lenet5", "--device", "cpu", "--batch-size", "2", "--iterations", "1", "--by", "module")
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [*command, *small, "--format", "csv"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert {row["phase"] for row in rows} >= {"forward", "backward", "optimizer"}
    conv = next(row for row in rows if (row["module"], row["phase"]) == ("conv1", "forward"))
    assert int(conv["flops"]) == 2 * 2 * 6 * 28 * 28 * 25


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--batch-size", "0"), "--batch-size: '0' cannot be used; give a whole number, at least 1"),
        (("--output", "no/p.txt"), "--output: no/p.txt cannot be written (No such file or directory); name another file"),
        (("--sort", "cpu"), "--sort: 'cpu' is not known; choose self-cpu or self-device or total"),
        (("--min-share", "much"), "--min-share: 'much' is not a percentage"),
        (("--trace", "t.txt"), "--trace: 't.txt' does not end in .json or .json.gz"),
    ],
)
def test_a_wrong_option_is_one_line_before_torch_is_loaded(run, arguments, complaint):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"mnistbench: {complaint}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--model", "resnet"), "--model: 'resnet' is not known; choose convnet or lenet5"),
        (("--device", "tpu"), "device 'tpu' is not known"),
        (("--device", "cpu", "--sort", "self-device"), "--sort: 'self-device' needs an accelerator"),
        ((*QUICK, "--batch-size", "1", "--trace", "/proc/no/t.json"), "--trace: /proc/no/t.json cannot be written"),
        (
            ("--trace", "/dev/null/t.json"),
            "--trace: /dev/null/t-step-convnet-b1-cpu.json cannot be written (/dev/null is not a",
        ),
    ],
)
def test_an_error_after_torch_is_loaded_is_one_line(run, arguments, complaint):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"mnistbench: {complaint}")
    assert "Traceback" not in done.stderr
