"""``mnistbench scale`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import forks
import pytest


@pytest.mark.versions
def test_one_and_two_ranks(tmp_path: Path) -> None:
    small = ("--model", "lenet5", "--batch-size", "9", "--iterations", "12", "--format", "json", "-o", "scale.json")
    done = forks.run("mnistbench", "scale", "--ranks", "2,1", "--strong", *small, cwd=tmp_path, errors=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = json.loads((tmp_path / "scale.json").read_text())
    one, two = found["launches"]
    assert (one["ranks"], one["batch_sizes"], two["ranks"], two["batch_sizes"]) == (1, [9], 2, [5, 4])
    assert [len(times) for times in (*one["steps_ns"], *two["steps_ns"], *two["no_sync_steps_ns"])] == [12] * 5
    assert all(ns > 0 for times in two["steps_ns"] for ns in times)
    assert one["efficiency"] == 1
    assert found["environment"]["threads"] == 1
    assert "MALLOC_TRIM_THRESHOLD_" in found["environment"]["allocator"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "--strong and --weak are both missing"),
        (("--strong", "--weak"), "--strong and --weak exclude each other"),
        (("--strong", "--batch-size-per-rank", "8"), "--batch-size-per-rank: '8' cannot be used with --strong"),
        (("--weak", "--batch-size", "8"), "--batch-size: '8' cannot be used with --weak"),
        (("--strong", "--batch-size", "0"), "--batch-size: '0' cannot be used"),
        (("--weak", "--batch-size-per-rank", ""), "--batch-size-per-rank: '' is no value"),
        (("--strong", "--ranks", "1,0"), "--ranks: '0' cannot be used"),
        (("--strong", "--ranks", "1,,2"), "--ranks: '1,,2' has an empty entry"),
        (("--strong", "--ranks", "4", "--batch-size", "3"), "--batch-size: 3 has no sample for each of 4 ranks"),
        (("--strong", "--iterations", "0"), "--iterations: '0' cannot be used"),
        (("--strong", "--model", "resnet"), "--model: 'resnet' is not known"),
        (("--strong", "--device", "tpu"), "--device: 'tpu' is not known"),
        (("--strong", "--device", "cuda", "--step", "fast"), "--step: the fast step is for the CPU"),
        (("--strong", "--output", "no/s.txt"), "--output: no/s.txt cannot be written"),
    ],
)
def test_a_wrong_option_is_one_line(arguments: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    done = forks.run("mnistbench", "scale", *arguments, cwd=tmp_path, errors=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"mnistbench: {complaint}")
    assert done.stderr.count("\n") == 1
