"""Processes of ``mnistbench train``, as a user starts them."""

import json
import platform
import subprocess
import sys

import forks
import pytest
import torch
from forks import run_on_terminal
from rank_builders import plain_environ
from torch_builders import read_back, scalars_in

from mnistbench.core.machine import PINNED
from mnistbench.suite.workloads.workload import LeNet5

SMALL = (
    "--dataset",
    "digits",
    "--model",
    "lenet5",
    "--threads",
    "1",
    "--no-accel",
    "--output",
    "run",
)


@pytest.mark.versions
def test_an_epoch_into_a_log(tmp_path):
    # A process of its own: torch reads how much it may warn when it is imported.
    command = [
        sys.executable,
        "-m",
        "mnistbench",
        "train",
        *SMALL,
        "--epochs",
        "1",
        "--save-model",
        "--profile",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=plain_environ(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.partition(" loss")[0] for line in lines[1:4]] == [
        "train epoch 1 [640/1437 (45 %)]",
        "train epoch 1 [1280/1437 (89 %)]",
        "train epoch 1 [1437/1437 (100 %)]",
    ]
    assert lines[4].startswith("epoch 1/1: train loss ")
    assert "TensorBoard: tensorboard --logdir run" in lines
    tags = read_back(tmp_path / "run").Tags()
    assert {"train/loss", "test/accuracy"} <= set(tags["scalars"])
    assert tags["graph"]
    assert set(tags["images"]) == {"inputs/digits", "misclassified/digits"}
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["environment"]["allocator"] == (
        PINNED if platform.libc_ver()[0] == "glibc" else {}
    )
    assert result["settings"]["step"] == "fast"
    [epoch] = result["epochs"]
    assert epoch["test_samples"] == 360
    assert epoch["test_accuracy"] > 50  # of ten classes: it learns
    LeNet5().load_state_dict(torch.load(tmp_path / "run" / "mnist_cnn.pt", weights_only=True))


def test_on_a_terminal_there_is_a_bar_and_an_interrupt_keeps_what_was_trained(tmp_path):
    status, text = run_on_terminal(
        "mnistbench",
        "train",
        *SMALL,
        "--epochs",
        "1000",
        "--save-model",
        columns=120,
        cwd=tmp_path,
        env=plain_environ(),
        interrupt_at="epoch 2/1000",
    )
    assert status == 130
    assert "Traceback" not in text
    shown = ("  0 % |", "epoch 1/1000, loss ", " samples/s, ", " left", "epoch 1/1000: train loss")
    assert [text_shown for text_shown in shown if text_shown not in text] == []
    assert "interrupted; the files have the steps before the interruption" in text
    assert "train/loss" in scalars_in(tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["outcome"] == "interrupted"
    assert result["epochs"][0]["test_samples"] == 360
    LeNet5().load_state_dict(torch.load(tmp_path / "run" / "mnist_cnn.pt", weights_only=True))


def test_mnist_without_a_network_is_one_line_with_three_ways_out(tmp_path):
    nowhere = dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"
    )
    environ = {
        **plain_environ(),
        **nowhere,
        "no_proxy": "",
        "NO_PROXY": "",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = forks.run("mnistbench", "train", cwd=tmp_path, env=environ)
    assert done.returncode == 2
    assert (
        done.stdout
        == f"MNIST is not in {tmp_path / 'cache' / 'mnistbench'} yet: downloading 11 MiB\n"
    )
    [line] = done.stderr.splitlines()
    assert "nothing there, and the download failed" in line
    assert all(
        way in line
        for way in ("(1) ", "(2) ", "MNISTBENCH_DATA", "--data-dir", "(3) --dataset digits")
    )
    assert str(tmp_path / "cache") in line
    assert not (tmp_path / "runs").exists()
