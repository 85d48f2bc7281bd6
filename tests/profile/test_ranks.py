"""``mnistbench profile`` as torchrun starts it, once for each rank."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from rank_builders import TORCHRUN, distributed_modules, start, wait

from mnistbench.profile.run import TIMED_STEPS

pytestmark = pytest.mark.versions

SMALL = ("--model", "lenet5", "--device", "cpu", "--iterations", "2")


def torchrun(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Profile on two ranks. Not in forks: torch's allocator warns of a step, unless told not to before torch is imported."""
    return subprocess.run(
        [*TORCHRUN, "mnistbench", "profile", *SMALL, *arguments],
        cwd=cwd, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_rank_0_shows_the_operations_and_what_all_ranks_spend(tmp_path: Path) -> None:
    done = torchrun("--batch-size", "5", "--trace", "t.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    titles = [line for line in done.stdout.splitlines() if line.startswith("step lenet5")]
    assert titles == ["step lenet5 at batch 5 on digits, cpu, 1 thread, rank 0 of 2, host activities: by self CPU time"]
    assert "computes 3 of the 5 samples" in done.stdout
    assert "exposed communication" in done.stdout
    names = {event["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert "gloo:all_reduce" in names


def test_json_has_the_times_of_all_ranks_and_communication_as_operations(tmp_path: Path) -> None:
    done = torchrun("--batch-size", "4,6", "--format", "json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    cases = json.loads(done.stdout)["cases"]
    assert [(case["params"]["batch_size"], case["samples"]) for case in cases] == [(4, 2), (6, 3)]
    for case in cases:
        assert [len(times) for times in (*case["ranks"]["step_ns"], *case["ranks"]["no_sync_ns"])] == [TIMED_STEPS] * 4
        rows = {row["name"]: row for row in case["tables"][0]["rows"]}
        assert rows["gloo:all_reduce"]["calls"] == rows["c10d::allreduce_"]["calls"] >= 1
        assert len(rows["gloo:all_reduce"]["self_cpu_ns"]) == 2
        assert min(rows["gloo:all_reduce"]["self_cpu_ns"]) > 0
        of_conv = [row for row in case["operations"] if (row["phase"], row["module"]) == ("forward", "conv1")]
        flops = [row["flops"] for row in of_conv if row["flops"]]
        assert flops == [case["samples"] * 2 * 6 * 28 * 28 * 25]  # of this rank's part


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--phase", "forward"), "--phase: ranks communicate in a step only"),
        (("--phase", "step,forward"), "--phase: ranks communicate in a step only"),
        (("--cold",), "--cold: first iterations are those of one process"),
        (("--device", "cpu,cuda"), "--device: 'cpu,cuda' cannot be used by 2 ranks"),
        (("--batch-size", "8,1"), "--batch-size: 1 has no sample for each of 2 ranks"),
        (("--device", "cpu", "--trace", "/dev/null/t.json"), "rank N of 2: --trace: /dev/null/t-step"),
    ],
)
def test_an_option_that_ranks_cannot_use_is_one_line(arguments: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    started = 2 if complaint.startswith("rank") else 1  # other errors come before the ranks meet
    done = wait(start(2, "profile", *arguments, cwd=tmp_path, modules=("mnistbench",) * started, errors=True))
    assert [rank.returncode for rank in done] == [2] * started
    # Both ranks have the error. Without a launcher the store ends with rank 0: rank 1 cannot learn that the error was said, and
    # PyTorch may warn of the store's end.
    assert all("Traceback" not in rank.stderr for rank in done)
    said = [line for rank in done for line in rank.stderr.splitlines() if line.startswith("mnistbench: ")]
    [line] = {re.sub("rank [01]", "rank N", line) for line in said}
    assert re.match(f"mnistbench: {complaint}", line)


def test_without_a_launcher_nothing_of_torch_distributed_is_imported(tmp_path: Path) -> None:
    profiling = "from mnistbench.cli import main\nmain()"
    found = distributed_modules(profiling, "profile", *SMALL, "--batch-size", "2", "--phase", "forward", cwd=tmp_path)
    assert found == distributed_modules("import torch, torch._dynamo, torch.profiler, torch.utils.flop_counter", cwd=tmp_path)
