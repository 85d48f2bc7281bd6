"""Run whole gates, as a user runs them, on a clone of this repository.

    python docs/evidence/gate_live.py FOLDER same=12 spin2 fc141 spin2@16=2 spin3@16 conv68@16
    python docs/evidence/gate_live.py FOLDER same@16/0.5 spin0.5@16/0.5

Each word is a change to the working tree and the number of gates: ``same`` (no change), ``spin2``
(2 % of a step in Python, outside operations), ``wait5`` (5 % of a step by the wall clock, after an
accelerator has finished the step), ``conv68`` (68 channels for conv2 instead of 64: more work in
its convolutions and in later layers), ``fc141`` (141 outputs for fc1 instead of 128: 10 % more work
in its products). The number after ``@`` is a batch size (default: 1, 16 and 64), that after ``/``
a threshold in percent. Writes a JSON report and the raw samples of each gate to FOLDER, and a line
to FOLDER/log.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKLOADS = Path("mnistbench/suite/workloads/workload.py")
TRAINING = Path("mnistbench/suite/workloads/step.py")


def change(repository: Path, kind: str, number: float) -> None:
    """Change the working tree of the clone."""
    began = "        self.zero_grad()\n        output"
    ended = "        self.update()\n        return output, loss\n"
    if kind == "spin":
        spin = (
            f"        until = began + (time.thread_time() - began) * {1 + number / 100}\n"
            "        while time.thread_time() < until:\n            pass\n"
        )
        replace(
            repository / TRAINING,
            (began, f"        import time\n\n        began = time.thread_time()\n{began}"),
            (ended, ended.replace("        return", f"{spin}        return")),
        )
    elif kind == "wait":
        wait = (
            "        if loss.device.type != 'cpu':\n            "
            "torch.accelerator.synchronize(loss.device)\n"
            f"        until = began + (time.perf_counter() - began) * {1 + number / 100}\n"
            "        while time.perf_counter() < until:\n            pass\n"
        )
        replace(
            repository / TRAINING,
            (began, f"        import time\n\n        began = time.perf_counter()\n{began}"),
            (ended, ended.replace("        return", f"{wait}        return")),
        )
    elif kind == "conv":
        replace(
            repository / WORKLOADS,
            ("conv2=nn.Conv2d(32, 64,", f"conv2=nn.Conv2d(32, {number:g},"),
            ("fc1=nn.Linear(9216,", f"fc1=nn.Linear({number * 144:g},"),
        )
    elif kind == "fc":
        replace(
            repository / WORKLOADS,
            ("nn.Linear(9216, 128)", f"nn.Linear(9216, {number:g})"),
            ("nn.Linear(128, 10)", f"nn.Linear({number:g}, 10)"),
        )


def replace(path: Path, *pairs: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in pairs:
        assert old in text, f"{path} has no {old!r}"
        text = text.replace(old, new, 1)
    path.write_text(text)


def cloned(folder: Path) -> Path:
    """Return a clone of this repository in a folder; make both if they are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    repository = folder / "repository"
    if not repository.exists():
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(repository)], check=True)
    return repository


def restore(repository: Path) -> None:
    """Undo all changes to the working tree of the clone."""
    subprocess.run(["git", "checkout", "--quiet", "--", "."], cwd=repository, check=True)


def judge(
    repository: Path, folder: Path, name: str, batch_sizes: str, options: Sequence[str]
) -> str:
    """Run the gate once; return what it said."""
    start = time.monotonic()
    report = folder / f"{name}.json"
    selection = ("bench/test_step.py", "--bench-model=convnet", f"--bench-batch-size={batch_sizes}")
    command = [
        sys.executable,
        "-P",
        "-m",
        "mnistbench",
        "gate",
        "--all-cases",
        "--base",
        "HEAD",
        "--format",
        "json",
        "--output",
        str(report),
        "--storage",
        str(folder / name),
        *options,
        "--",
        *selection,
    ]
    code = subprocess.run(
        command, cwd=repository, check=False, stderr=subprocess.DEVNULL
    ).returncode
    sentence = json.loads(report.read_text())["sentence"] if report.exists() else "no report"
    return f"{name}: exit {code}, {time.monotonic() - start:.0f} s, {sentence}"


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    repository = cloned(folder)
    runs = []
    for word in sys.argv[2:]:
        what, _, times = word.partition("=")
        runs += [what] * int(times or 1)
    random.Random(1).shuffle(runs)  # the machine's slow drift must not fall on one kind
    for number, what in enumerate(runs):
        restore(repository)
        measured, _, threshold = what.partition("/")
        changed, _, batch_sizes = measured.partition("@")
        kind = changed.rstrip("0123456789.")
        change(repository, kind, float(changed.removeprefix(kind) or 0))
        options = ["--threshold", f"{threshold}%"] if threshold else []
        name = f"{number:02}-{what.replace('/', '-')}"
        line = judge(repository, folder, name, batch_sizes or "1,16,64", options)
        with (folder / "log").open("a") as log:
            log.write(line + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()
