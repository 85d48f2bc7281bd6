"""``mnistbench bisect``: the gates that it runs, its report and exit code, and wrong usage."""

import sys
import venv
from dataclasses import replace
from types import SimpleNamespace

import pytest
from gate_builders import CASE, LABEL, Measured, recorded, series

from mnistbench import cli
from mnistbench.core.errors import UsageError
from mnistbench.gate.decide.verdict.verdict import conclude
from mnistbench.gate.processes.starting import GateError
from mnistbench.gate.samples import raw_samples

EXIT_PASSED = 0
EXIT_REGRESSED = 1
EXIT_INCONCLUSIVE = 2

OTHER = "bench/test_step.py::test_step[lenet5-b1-cpu]"
LABELS = {CASE: LABEL, OTHER: "step lenet5-b1-cpu on digits"}
RELEASES = ("4.64.0", "4.65.0", "4.66.0", "4.67.0", "4.68.0")


@pytest.fixture
def gate(tmp_path, monkeypatch, torch):
    """Run the command with invented releases and samples.

    ``ends`` has what ends a gate, by release.
    """
    seen = SimpleNamespace(requests=[], wanted=[], ends={}, elapsed_s=100.0)

    def releases(wanted):
        seen.wanted.append(tuple(wanted))
        return RELEASES

    def measure(request, progress):
        seen.requests.append(request)
        base, head = (
            str(requirement).partition("==")[2]
            for requirement in (*request.base_with, *request.head_with)
        )
        end = seen.ends.get(head, 1.0)
        if isinstance(end, BaseException):
            raise end
        cases = {
            case: Measured(factor=1.0 if case == OTHER else end) for case in request.only or LABELS
        }
        trials = [*series(cases, seed=3), *(series(cases, stage=2, seed=4) if end != 1.0 else [])]
        header = {
            "labels": {case: LABELS[case] for case in cases},
            "packages": {"pillow": (base, head)},
        }
        recorded_gate = recorded(trials, end=raw_samples.End(elapsed_s=seen.elapsed_s), **header)
        return conclude(replace(recorded_gate, path=tmp_path / f"{head}.jsonl.gz"), request)

    seen.run = lambda *arguments: cli.main(["bisect", *arguments])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setattr("mnistbench.gate.commands.bisect.measure", measure)
    monkeypatch.setattr("mnistbench.gate.commands.bisect.releases", releases)
    return seen


RANGE = "pillow==4.64.0..4.68.0"
NO_ENVIRONMENT = UsageError("no environment with it: uv: Because of something")


def test_the_first_slower_release_is_the_last_line(gate, capsys, tmp_path):
    gate.ends = dict.fromkeys(("4.67.0", "4.68.0"), 1.1)
    assert gate.run(RANGE, "--trials", "9", "--", "bench", "-x") == EXIT_REGRESSED
    shown = capsys.readouterr()
    last = shown.out.splitlines()[-1]
    assert last.startswith(
        "first slower release: pillow 4.67.0 (4.66.0 is not slower); regressed: 1 case ("
    )
    assert gate.wanted == [("pillow", "4.64.0", "4.68.0")]
    assert [
        (str(request.base_with[0]), str(request.head_with[0]), request.only)
        for request in gate.requests
    ] == [
        ("pillow==4.64.0", f"pillow=={head}", only)
        for head, only in (("4.68.0", ()), ("4.66.0", (CASE,)), ("4.67.0", (CASE,)))
    ]
    assert {(request.base, request.trials, request.pytest) for request in gate.requests} == {
        (None, 9, ("bench", "-x"))
    }
    assert shown.err.splitlines()[0] == (
        "5 releases of pillow: 4.64.0, 4.65.0, 4.66.0, 4.67.0, 4.68.0; "
        "at most 3 gates, and one more for each that cannot judge its release"
    )
    raw = [
        f"raw samples: {tmp_path / release}.jsonl.gz" for release in ("4.68.0", "4.66.0", "4.67.0")
    ]
    assert [
        line.partition(";")[0] for line in shown.err.splitlines() if line.startswith("raw")
    ] == raw


def test_nothing_slower_passes(gate, capsys):
    assert gate.run(RANGE) == EXIT_PASSED
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(
        "no slower release: pillow 4.68.0 is not slower than 4.64.0; passed: no regression"
    )
    assert len(gate.requests) == 1


def test_releases_that_cannot_be_measured_leave_a_range(gate, capsys):
    gate.ends = {
        "4.68.0": 1.1,
        "4.67.0": 1.1,
        "4.66.0": GateError("head: boom"),
        "4.65.0": NO_ENVIRONMENT,
    }
    assert gate.run(RANGE, "--inconclusive", "warn") == EXIT_INCONCLUSIVE
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == (
        "inconclusive: the first slower release is pillow 4.65.0, 4.66.0 or 4.67.0 (4.64.0 is not "
        "slower); 4.65.0 and 4.66.0 could not be judged; measure again, or increase --trials"
    )
    assert "4.66.0: not judged: head: boom\n" in out
    assert f"4.65.0: not judged: {NO_ENVIRONMENT}\n" in out


def test_the_budget_is_of_all_gates_together(gate, capsys):
    gate.ends = dict.fromkeys(("4.66.0", "4.67.0", "4.68.0"), 1.1)
    assert gate.run(RANGE, "--budget", "200s") == EXIT_INCONCLUSIVE
    assert [request.budget_s for request in gate.requests] == [200.0, 100.0]
    assert capsys.readouterr().out.splitlines()[-1] == (
        "inconclusive: the first slower release is pillow 4.65.0 or 4.66.0 (4.64.0 is not slower); "
        "the budget is used up; increase --budget"
    )


# ---- Wrong usage ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["torch==2.4.0..2.15.0"],
            (
                "RANGE: 'torch==2.4.0..2.15.0' is older than 2.6, the oldest torch that the gate "
                "measures; give a newer version"
            ),
        ),
        (
            [RANGE, "--output", "."],
            "--output: . cannot be written (Is a directory); name another file",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_before_uv_is_asked(gate, capsys, arguments, message):
    assert gate.run(*arguments) == EXIT_INCONCLUSIVE
    assert capsys.readouterr().err == f"mnistbench: {message}\n"
    assert (gate.wanted, gate.requests) == ([], [])


# ---- A real run ----------------------------------------------------------------------------------


#: A package with a layer; the number is that of its matrix products.
PART = """
import torch


class Part(torch.nn.Module):
    def forward(self, inputs):
        square = torch.ones(192, 192)
        for _ in range({products}):
            square = square @ square / 192
        return inputs + square.sum() - square.sum()
"""


@pytest.mark.thorough
def test_a_release_that_does_more_work_is_found(project, monkeypatch, capsys, tmp_path_factory):
    """Environments that have the packages of this one, and a release of one more package."""
    folder = tmp_path_factory.mktemp("environments")

    def environment(changes, project):
        [(name, release)] = (str(change).split("==") for change in changes)
        if not (folder / release).exists():
            venv.create(folder / release, symlinks=True)
            [site] = (folder / release).glob("lib/python*/site-packages")
            packages = [path for path in sys.path if path.endswith("site-packages")]
            (site / "others.pth").write_text("\n".join(packages), encoding="utf-8")
            (site / "part.py").write_text(
                PART.format(products={"1.0": 4, "1.1": 8, "1.2": 8}[release]), encoding="utf-8"
            )
            (site / f"{name}-{release}.dist-info").mkdir()
            metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n"
            (site / f"{name}-{release}.dist-info" / "METADATA").write_text(
                metadata, encoding="utf-8"
            )
        return str(folder / release / "bin" / "python")

    model = "nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))"
    conftest = (project.path / "conftest.py").read_text(encoding="utf-8")
    project.write(
        "conftest.py",
        "from part import Part\n" + conftest.replace(model, model.replace("nn.ReLU()", "Part()")),
    )
    monkeypatch.chdir(project.path)
    monkeypatch.setattr(
        "mnistbench.gate.environments.releases.check_can_be_changed", lambda change: None
    )
    monkeypatch.setattr("mnistbench.gate.environments.made.environment", environment)
    monkeypatch.setattr("mnistbench.gate.commands.bisect.releases", lambda _: ("1.0", "1.1", "1.2"))
    code = cli.main(["bisect", "part==1.0..1.2", "--trials", "8", "--", "test_bench.py"])
    shown = capsys.readouterr()
    assert code == EXIT_REGRESSED, shown.out + shown.err
    assert shown.out.splitlines()[-1].startswith(
        "first slower release: part 1.1 (1.0 is not slower); regressed: "
    )
    assert "packages of other versions: part 1.0 -> 1.1\n" in shown.out
