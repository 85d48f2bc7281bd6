"""Count how many operations that the gate finds slower are reproduced by their scripts.

    python docs/evidence/reproducers.py FOLDER [NAME ...]

For each injected slowdown: change a clone of this repository or set an environment variable of the
head, run the gate on ConvNet's step at batch size 16, and run each script on both sides, as
``mnistbench reproduce`` does. Prints a line for each slower operation and the rate of all of them.
An operation without a script counts as not reproduced. Writes FOLDER/NAME.json (the gate's report),
the raw samples, the scripts, and FOLDER/results.jsonl, whose lines are not measured again. Nothing
else may run: 10 gates and about 40 scripts take 45 minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gate_live import cloned, replace, restore

from mnistbench.showing.progress import Progress
from mnistbench.suite.reproducers.run import TRIALS, measure, sentence
from mnistbench.suite.reproducers.script import read

WORKLOADS = Path("mnistbench/suite/workloads/workload.py")

#: The report's kinds of quantities that are not operations.
OF_CASE = ("iteration", "mean")


@dataclass(frozen=True)
class Injected:
    """A slowdown: texts that are replaced in a file, or an environment variable of the head."""

    what: str
    file: Path = WORKLOADS
    replaced: tuple[tuple[str, str], ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


#: A layer between ``flatten`` and ``fc1`` that gives its input other strides.
STRIDED = """flatten=nn.Flatten(),  # [B, 9216]
            strided=Strided(),"""
STRIDED_CLASS = '''class Strided(nn.Module):
    """Puts the samples beside each other in memory."""

    def forward(self, inputs):
        return inputs.t().contiguous().t()


class ConvNet(nn.Sequential):'''

CAST_CLASS = """class Cast(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, inputs):
        return inputs.to(self.dtype)


class ConvNet(nn.Sequential):"""

INJECTED = {
    "fc141": Injected(
        "fc1 has 141 outputs instead of 128: 10 % more work in its products",
        replaced=(
            ("nn.Linear(9216, 128)", "nn.Linear(9216, 141)"),
            ("nn.Linear(128, 10)", "nn.Linear(141, 10)"),
        ),
    ),
    "conv68": Injected(
        "conv2 has 68 channels instead of 64: 6 % more work in its convolutions and later layers",
        replaced=(
            ("conv2=nn.Conv2d(32, 64,", "conv2=nn.Conv2d(32, 68,"),
            ("fc1=nn.Linear(9216,", "fc1=nn.Linear(9792,"),
        ),
    ),
    "conv36": Injected(
        "conv1 has 36 channels instead of 32: 12 % more work in both convolutions",
        replaced=(
            ("conv1=nn.Conv2d(1, 32,", "conv1=nn.Conv2d(1, 36,"),
            ("conv2=nn.Conv2d(32, 64,", "conv2=nn.Conv2d(36, 64,"),
        ),
    ),
    "strided": Injected(
        "the input of fc1 is transposed in memory",
        replaced=(
            ("flatten=nn.Flatten(),  # [B, 9216]", STRIDED),
            ("class ConvNet(nn.Sequential):", STRIDED_CLASS),
        ),
    ),
    "unsorted": Injected(
        "max-pooling before ReLU: it gets negative values instead of zeros",
        replaced=(
            (
                "            relu2=nn.ReLU(),\n            pool=nn.MaxPool2d(2),",
                "            pool=nn.MaxPool2d(2),",
            ),
            ("            dropout1=", "            relu2=nn.ReLU(),\n            dropout1="),
        ),
    ),
    "double": Injected(
        "the model computes in double precision up to fc1",
        replaced=(
            (
                "conv1=nn.Conv2d(1, 32, kernel_size=3)",
                (
                    "to_double=Cast(torch.float64),\n            conv1=nn.Conv2d(1, 32, "
                    "kernel_size=3).double()"
                ),
            ),
            (
                "conv2=nn.Conv2d(32, 64, kernel_size=3)",
                (
                    "to_single=Cast(torch.float32),\n            conv2=nn.Conv2d(32, 64, "
                    "kernel_size=3)"
                ),
            ),
            ("class ConvNet(nn.Sequential):", CAST_CLASS),
        ),
    ),
    "weight_decay": Injected(
        "the optimizer also decays the weights: more calls of aten::add",
        replaced=(
            ("torch.optim.Adadelta, lr=1.0)", "torch.optim.Adadelta, lr=1.0, weight_decay=1e-4)"),
        ),
    ),
    "aten": Injected(
        "aten without vector instructions", variables={"ATEN_CPU_CAPABILITY": "default"}
    ),
    "onednn": Injected("oneDNN without AVX", variables={"ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "mkl": Injected(
        "MKL in the mode that gives the same bits on all processors",
        variables={"MKL_CBWR": "COMPATIBLE"},
    ),
}


def gate(repository: Path, folder: Path, name: str, injected: Injected) -> dict:
    """Run the gate, unless its report is there; return the report."""
    report = folder / f"{name}.json"
    if not report.exists():
        restore(repository)
        replace(repository / injected.file, *injected.replaced)
        base = ["--base", "HEAD"] if injected.replaced else []
        variables = [
            word for pair in injected.variables.items() for word in ("--head-env", "=".join(pair))
        ]
        command = [
            sys.executable,
            "-P",
            "-m",
            "mnistbench",
            "gate",
            *base,
            *variables,
            "--format",
            "json",
            "--output",
            str(report),
            "--storage",
            str(folder / name),
            "--",
            "bench/test_step.py",
            "--bench-model=convnet",
            "--bench-batch-size=16",
        ]
        subprocess.run(command, cwd=repository, check=False, stderr=subprocess.DEVNULL)
    return json.loads(report.read_text())


def reproduce(name: str, reproducer: dict) -> dict:
    """Run the script of a slower operation on both sides; return what is counted and printed."""
    result = {
        "injected": name,
        "operation": reproducer["name"],
        "reproduced": False,
        "said": reproducer["why_not"],
    }
    if reproducer["script"]:
        path = Path(reproducer["script"])
        origin = read(path)
        sides = ("base", "head")
        with Progress(sys.stderr) as progress:
            pythons = dict.fromkeys(sides, sys.executable)
            variables = {side: {} for side in sides}
            changes = measure(
                path, origin, pythons, variables, trials=TRIALS, progress=progress, seed=1
            )
        text = sentence(changes, origin)
        result |= {
            "reproduced": text.startswith("reproduced: "),
            "said": text,
            "changes": changes,
            "gate": [origin.change, origin.low, origin.high],
        }
    return result


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    repository = cloned(folder)
    results = folder / "results.jsonl"
    done = (
        [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    )
    for name in sys.argv[2:] or INJECTED:
        report = gate(repository, folder, name, INJECTED[name])
        print(f"{name} ({INJECTED[name].what}): {report['sentence']}", flush=True)
        for reproducer in report["reproducers"]:
            known = [
                result
                for result in done
                if (result["injected"], result["operation"]) == (name, reproducer["name"])
            ]
            result = known[0] if known else reproduce(name, reproducer)
            if not known:
                done.append(result)
                with results.open("a") as stream:
                    stream.write(json.dumps(result) + "\n")
            print(
                (
                    f"  {'yes' if result['reproduced'] else 'no '} {result['operation']}: "
                    f"{result['said']}"
                ),
                flush=True,
            )
    scripts = [result for result in done if "changes" in result]
    inside = sum(result["reproduced"] for result in done)
    print(
        f"{inside} of {len(done)} slower operations are reproduced, {len(scripts)} of them have a "
        "script"
    )


if __name__ == "__main__":
    main()
