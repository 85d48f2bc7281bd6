"""Judge public reports of slowdowns with the gate, by the rules of pytorch_reports.md.

    python docs/evidence/pytorch_reports.py FOLDER [NAME ...]  # reports; all if none is named
    python docs/evidence/pytorch_reports.py FOLDER controls  # the twenty negative controls
    python docs/evidence/pytorch_reports.py FOLDER sweep [HOURS]  # all cases with one thread
    python docs/evidence/pytorch_reports.py FOLDER bisect  # the releases of confirmed reports
    python docs/evidence/pytorch_reports.py FOLDER table  # what the gates found, as Markdown
    python docs/evidence/pytorch_reports.py FOLDER scripts  # scripts of torch alone

Runs in a clone of this repository in FOLDER, with environments that uv makes. Writes a JSON report
and the raw samples of each gate to FOLDER; a report that is there is not measured again. The
scripts of slower operations are run. Nothing else may run.
"""

from __future__ import annotations

import json
import random
import runpy
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gate_live import ROOT, cloned

OPS = ("bench/test_ops.py",)

#: Least lower bound of a confirmed slowdown, as a share.
LEAST = 0.05
#: Least lower bound of a slowdown that nobody has reported, as a share.
SURPRISING = 0.10

#: Cases of a gate of the sweep, which has 10 trials: more cases in an hour.
TOGETHER = 482


@dataclass(frozen=True)
class Report:
    """What a report says, and the cases that judge it."""

    claim: str
    base: str  # release
    head: str
    select: str  # -k
    tests: tuple[str, ...] = OPS
    variables: Mapping[str, str] = field(default_factory=dict)  # of both sides
    threshold: str = "5%"
    threads: int = 1
    is_reported: bool = True
    # Of the only gate; without it the default, then 20 if that gate is inconclusive.
    trials: str = ""


REPORTS = {
    "189279": Report(
        "sinh, cosh, atan, log2, log10 of 512 x 512: 3 to 5 times slower",
        "2.9.1",
        "2.14.0",
        "([sinh- or [cosh- or [atan- or [log2 or [log10) and float32-contiguous and forward",
    ),
    "189283": Report(
        "index_add_ 2.4 times, baddbmm 2 times",
        "2.9.1",
        "2.14.0",
        "([index_add_- or [baddbmm-) and float32 and forward",
    ),
    "189280": Report(
        "quantized cat 3 to 4 times, fake_quantize 700 times",
        "2.9.1",
        "2.14.0",
        "[quantized_cat- or [fake_quantize",
    ),
    "189281": Report(
        "embedding 90 times, embedding_bag 74 times", "2.9.1", "2.14.0", "[embedding and float32"
    ),
    "189282": Report(
        "gradient of add 229 to 424 times",
        "2.9.1",
        "2.14.0",
        "[add-64x64x and float32 and backward",
    ),
    "183812": Report("scatter_reduce 15 to 58 times", "2.12.0", "2.13.0", "[scatter_reduce_cube"),
    "183815": Report(
        "conv2d in bfloat16 4 to 16 times",
        "2.12.0",
        "2.13.0",
        "([conv2d_dilated or [conv2d_grouped) and bfloat16",
    ),
    "151037": Report(
        "training on MNIST +25 to +39 %",
        "2.6.0",
        "2.7.0",
        "b64",
        tests=("bench/test_step.py", "--bench-model=convnet", "--bench-step=reference"),
    ),
    "133304": Report(
        "conv_transpose1d of changing shapes 3.4 times slower than in 2.1.2",
        "2.6.0",
        "2.15.0",
        "[conv_transpose1d",
        variables={"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0"},
    ),
    "146508": Report(
        "products in float16 40 to 137 times slower than in float32",
        "2.6.0",
        "2.15.0",
        "[mm-500x500 and contiguous and forward",
    ),
    "172205": Report(
        "contiguous() after permute() 156 times slower than a copy",
        "2.6.0",
        "2.15.0",
        "([permute_contiguous or [clone or [conv2d_1x1) and forward",
    ),
    "193951": Report(
        "products in float16 1,385 times",
        "2.13.0",
        "2.14.0",
        "([mm-500x500 or [mm_float16) and contiguous and forward",
    ),
    "162683": Report(
        "batched products in float16 5 times", "2.9.1", "2.10.0", "[matmul_heads and forward"
    ),
    "177906": Report(
        "CPU time doubled, and no wall time gained",
        "2.8.0",
        "2.9.1",
        "([mm-256 or [conv2d-8x32 or [softmax- or [gelu-) and float32-contiguous",
        threads=2,
    ),
}

#: Those whose operations PyTorch computes in parallel, measured with two threads, too.
REPORTS |= {
    f"{name}-2t": replace(REPORTS[name], threads=2)
    for name in ("189279", "189283", "189280", "189282", "183812", "183815", "146508", "193951")
}

#: Words of operations that a report names: no controls.
NAMED = (
    "sinh",
    "cosh",
    "atan",
    "log",
    "index_add",
    "baddbmm",
    "cat",
    "quantize",
    "embedding",
    "scatter",
    "conv",
    "mm",
    "matmul",
    "copy",
    "contiguous",
    "clone",
    "linear",
    "bmm",
    "einsum",
    "softmax",
    "gelu",
    "fill",
)

#: Pairs of releases of the controls, and of the sweep.
PAIRS = (("2.9.1", "2.14.0"), ("2.6.0", "2.15.0"))


def collected(repository: Path, *arguments: str) -> list[str]:
    """Return the ids of the cases that pytest selects."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        *arguments,
        "--collect-only",
        "-q",
        "-o",
        "addopts=--strict-markers",
    ]
    output = subprocess.run(
        command, cwd=repository, check=True, capture_output=True, text=True
    ).stdout
    return [
        line.partition("[")[2].rstrip("]") for line in output.splitlines() if "::test_op[" in line
    ]


def cases(repository: Path) -> list[str]:
    """Return the ids of the cases with one thread."""
    return [case for case in collected(repository, *OPS) if "-1t-" in case]


def controls(repository: Path) -> dict[str, Report]:
    """Return the negative controls: ten cases for each pair of releases."""
    allowed = [
        case
        for case in cases(repository)
        if "-float32-contiguous-1t-forward" in case
        and not any(word in case.partition("-")[0] for word in NAMED)
    ]
    drawn = random.Random(20).sample(allowed, 20)
    return {
        f"controls-{base}": Report(
            "nobody reports these",
            base,
            head,
            " or ".join(f"[{case}" for case in part),
            is_reported=False,
        )
        for (base, head), part in zip(PAIRS, (drawn[:10], drawn[10:]), strict=True)
    }


def sweep(repository: Path) -> dict[str, Report]:
    """Return the gates of the sweep, forward cases first."""
    ordered = sorted(cases(repository), key=lambda case: case.endswith("backward"))
    base, head = PAIRS[-1]
    return {
        f"sweep-{start // TOGETHER:03}": Report(
            "",
            base,
            head,
            " or ".join(f"[{case}" for case in ordered[start : start + TOGETHER]),
            threshold="10%",
            is_reported=False,
            trials="10",
        )
        for start in range(0, len(ordered), TOGETHER)
    }


def selected(report: Report) -> list[str]:
    """Return the arguments of pytest."""
    select = (
        f"({report.select}) and {report.threads}t"
        if report.tests == OPS and report.is_reported
        else report.select
    )
    return [*report.tests, "-k", select]


def gate_options(report: Report) -> list[str]:
    """Return the arguments of the gate, without those of its files."""
    sides = [
        f"--{side}-with=torch=={version}"
        for side, version in (("base", report.base), ("head", report.head))
    ]
    return ["--base", "HEAD", *sides, "--threshold", report.threshold]


def run(repository: Path, report: Report, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mnistbench in the clone, with the variables of a report."""
    environ = ["env", *(f"{name}={value}" for name, value in report.variables.items())]
    command = [*environ, sys.executable, "-P", "-m", "mnistbench", *arguments]
    return subprocess.run(command, cwd=repository, check=False, capture_output=True, text=True)


def measure(repository: Path, folder: Path, name: str, measured: Report) -> dict:
    """Run the gate unless its report is there, twice if it is inconclusive.

    Reproduce what is slower.
    """
    report = folder / f"{name}.json"
    for trials in (measured.trials,) if measured.trials else ("", "20"):
        if report.exists():
            break
        began = time.monotonic()
        target = folder / f"{name}.new.json"
        options = ["--format", "json", "--output", str(target), "--storage", str(folder / name)]
        options += ["--trials", trials] if trials else []
        process = run(
            repository,
            measured,
            "gate",
            *gate_options(measured),
            *options,
            "--",
            *selected(measured),
        )
        if not target.exists():
            print(f"{name}: {process.stderr.strip().splitlines()[-1]}", flush=True)
            return {}
        verdict = json.loads(target.read_text())
        print(
            (
                f"{name}: exit {process.returncode}, {time.monotonic() - began:.0f} s, "
                f"{verdict['sentence']}"
            ),
            flush=True,
        )
        if (
            verdict["outcome"] != "inconclusive"
            or trials
            or measured.threads > 1
            or not measured.is_reported
        ):
            target.rename(report)
    verdict = json.loads(report.read_text())
    if measured.is_reported and slower(verdict):
        reproduce(repository, folder, name, measured, verdict)
    return verdict


def slower(verdict: dict, least: float = LEAST) -> list[dict]:
    """Return the confirmed slowdowns of cases with at least this lower bound, the largest first."""
    regressed = [
        finding
        for finding in verdict["findings"]
        if finding["verdict"] == "regressed"
        and finding["screened"]["kind"] in ("iteration", "mean")
        and (finding["least"] or 0) >= least
    ]
    return sorted(regressed, key=lambda finding: -finding["confirmed"]["change"])


def reproduce(repository: Path, folder: Path, name: str, measured: Report, verdict: dict) -> None:
    """Run the scripts of slower operations."""
    scripts = [
        reproducer["script"] for reproducer in verdict["reproducers"] if reproducer["script"]
    ]
    target = folder / f"{name}.reproduce.txt"
    if scripts and not target.exists():
        target.write_text(
            run(repository, measured, "reproduce", *gate_options(measured)[2:4], *scripts).stdout
        )


def bisect(repository: Path, folder: Path, name: str, measured: Report) -> None:
    """Find the release with which the slowest case of a report became slower."""
    report = folder / f"{name}.json"
    target = folder / f"{name}.bisect.txt"
    regressed = slower(json.loads(report.read_text())) if report.exists() else []
    if regressed and not target.exists():
        case = regressed[0]["screened"]["case"].partition("[")[2].rstrip("]")
        select = f"[{case}" if measured.tests == OPS else measured.select
        releases = f"torch=={measured.base}..{measured.head}"
        done = run(
            repository,
            measured,
            "bisect",
            releases,
            "--threshold",
            measured.threshold,
            "--",
            *measured.tests,
            "-k",
            select,
        )
        target.write_text(done.stdout or done.stderr)
        print(f"{name}: {target.read_text().strip().splitlines()[-1]}", flush=True)


def table(folder: Path, reports: Mapping[str, Report]) -> Iterable[str]:
    """Yield a row of Markdown for each case that has a verdict."""
    for name in reports:
        report = folder / f"{name}.json"
        if not report.exists():
            continue
        verdict = json.loads(report.read_text())
        best: dict[str, dict] = {}
        for estimate in verdict["cases"]:
            if estimate["kind"] == "iteration" and estimate["clock"] == "wall":
                best[estimate["case"]] = estimate
        finding_of_case = {
            finding["screened"]["case"]: finding for finding in reversed(slower(verdict, 0.0))
        }
        for case, estimate in best.items():
            confirmed = finding_of_case.get(case)
            of = confirmed["confirmed"] if confirmed else estimate
            interval = f"{of['change']:+.1%} ({of['low']:+.1%} to {of['high']:+.1%})"
            word = "regressed" if confirmed else f"below {max(0.0, estimate['high']):.1%}"
            label = case.partition("[")[2].rstrip("]") or case
            base_us = estimate["base_ns"] / 1e3
            yield f"| {name} | {label} | {base_us:,.1f} us | {interval} | {word} |"


SCRIPT = '''"""{address}: {claim}. Run it with torch {base} and {head}; it needs nothing else."""

import time

import torch
import torch.nn.functional as F


def report(name, function):
    """Print the median time of a call."""
    times, ends = [], time.perf_counter() + 1
    while len(times) < 3 or time.perf_counter() < ends:
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    print(f"{{name}}: {{1e6 * sorted(times)[len(times) // 2]:,.1f}} us")


{gradient}torch.manual_seed(0)
torch.set_num_threads({threads})
print(torch.__version__, torch.backends.cpu.get_cpu_capability())
'''


GRADIENT = '''def gradient(result, *inputs):
    """Return a function that computes the gradients of the inputs."""
    ones = torch.ones_like(result)
    return lambda: torch.autograd.grad(result, inputs, ones, retain_graph=True)


'''


def script(repository: Path, number: str, report: Report) -> str:
    """Return a script that times the cases of a report without this project."""
    ops = runpy.run_path(str(repository / OPS[0]))
    chosen = set(collected(repository, *selected(report)))
    lines = list[str]()
    last = ""
    for case in ops["cases"]():
        call, contents, dtype, layout, _, direction, _ = case.values
        if case.id not in chosen:
            continue
        built = "".join(
            f"{name} = {ops['expression'](content, dtype, layout)}\n"
            for name, content in contents.items()
        )
        if built != last:
            lines.append(built)
        last = built
        timed = f"lambda: {call}"
        if direction == "backward":
            inputs = [
                name
                for name, content in contents.items()
                if "of" not in content and "constant" not in content
            ]
            lines.append("".join(f"{name}.requires_grad_()\n" for name in inputs))
            last = ""
            timed = f"gradient({call}, {', '.join(inputs)})"
        lines.append(f'report("{case.id}", {timed})\n')
    gradient = GRADIENT if any("gradient(" in line for line in lines) else ""
    return SCRIPT.format(
        address=f"pytorch/pytorch#{number}", gradient=gradient, **asdict(report)
    ) + "".join(lines)


def main(arguments: Sequence[str]) -> None:
    folder, *words = arguments
    path = Path(folder).resolve()
    repository = cloned(path)
    if words[:1] == ["table"]:
        print("\n".join(table(path, {**REPORTS, **controls(repository)})))
        return
    if words[:1] == ["scripts"]:
        for name, report in REPORTS.items():
            if report.tests == OPS and not name.endswith("-2t"):
                Path(__file__).with_name("pytorch_reports").joinpath(
                    f"report_{name}.py"
                ).write_text(script(ROOT, name, report))
        return
    if words[:1] == ["bisect"]:
        for name, report in REPORTS.items():
            bisect(repository, path, name, report)
        return
    hours = float(words[1]) if words[:1] == ["sweep"] and len(words) > 1 else 6.0
    chosen = {"controls": controls, "sweep": sweep}.get(
        words[0] if words else "", lambda _: REPORTS
    )(repository)
    ends = time.monotonic() + 3600 * hours
    for name, report in chosen.items():
        if time.monotonic() > ends or (
            chosen is REPORTS and words and name.removesuffix("-2t") not in words
        ):
            continue
        verdict = measure(repository, path, name, report)
        surprising = (
            {finding["screened"]["case"]: finding for finding in slower(verdict, SURPRISING)}
            if verdict and not report.is_reported
            else {}
        )
        for case, finding in surprising.items():
            print(
                f"  {case}: {finding['confirmed']['change']:+.1%}, "
                f"at least {finding['least']:+.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
