"""Options that name what differs between two sides, and thresholds."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, replace

import gate_builders
import pytest

from mnistbench.core.errors import UsageError
from mnistbench.core.options import read, tool_table
from mnistbench.gate.commands import bisect, gate, judge
from mnistbench.gate.options import SideOptions, Thresholds, shard, short_time
from mnistbench.gate.words import HEAD
from mnistbench.judging.grouping import LARGE_SHARE
from mnistbench.judging.kinds import ADDED, ITERATION, MEAN, ONCE, OPERATION, OTHER, REPLACED


def options(**texts):
    """Read the options as they are on the command line: field -> text or texts."""
    return read(SideOptions, texts)


@pytest.mark.parametrize(
    "texts",
    [{"base_python": sys.executable}, {"head_env": ["A=1"]}, {"base_with": ["pygments==1"]}],
    ids=str,
)
def test_any_option_makes_the_sides_differ(texts):
    assert options(**texts).differ


def test_variables_are_those_of_a_side():
    assert options(base_env=["A=1", "B=x=y"], head_env=["A="]).variables == {
        "base": {"A": "1", "B": "x=y"},
        "head": {"A": ""},
    }


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("version", ["==2.6.0", "==2.6.0+cpu", "==2.*", "==2.10.0", ">=2.0,<2.9"])
def test_a_torch_that_may_be_measured_is_not_refused(version):
    assert str(options(base_with=[f"torch{version}"]).base_with[0]).startswith("torch")


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"base_python": "/nowhere"},
            "--base-python: '/nowhere' cannot be started as Python; name another interpreter",
        ),
        ({"base_env": ["X"]}, "--base-env: 'X' is not a variable with a value; give NAME=VALUE"),
        ({"head_env": ["=1"]}, "--head-env: '=1' is not a variable with a value; give NAME=VALUE"),
        (
            {"head_env": ["MKL_NUM_THREADS=2"]},
            (
                "--head-env: 'MKL_NUM_THREADS=2' has no effect, because cases set their threads; "
                "give OMP_NUM_THREADS=2"
            ),
        ),
        (
            {"head_env": ["OMP_NUM_THREADS=0"]},
            (
                "--head-env: 'OMP_NUM_THREADS=0' is not a number of threads; give a whole number, "
                "at least 1"
            ),
        ),
        (
            {"head_env": ["OMP_NUM_THREADS=999999"]},
            (
                "--head-env: 'OMP_NUM_THREADS=999999' is more than the number of cores, 2; give a "
                "smaller number"
            ),
        ),
        (
            {"base_with": ["pygments=4"]},
            (
                "--base-with: 'pygments=4' is not a requirement; give NAME==VERSION, such as "
                "torch==2.13.0"
            ),
        ),
        (
            {"base_with": ["pygments"]},
            "--base-with: 'pygments' names no version; give NAME==VERSION, such as pygments==1.0",
        ),
        (
            {"head_with": ["jax==1"]},
            "--head-with: 'jax==1' names jax, which is not installed; name an installed package",
        ),
        (
            {"base_with": ["torch==2.5.1"]},
            (
                "--base-with: 'torch==2.5.1' is older than 2.6, the oldest torch that the gate "
                "measures; give a newer version"
            ),
        ),
        (
            {"head_with": ["pygments==4", "Pygments==5"]},
            "--head-with: pygments is given twice; give one version",
        ),
        *(
            (
                {f"{side}_with": ["pygments==4"], f"{side}_python": sys.executable},
                (
                    f"--{side}-with: the new environment has its own interpreter; remove "
                    f"--{side}-python or --{side}-with"
                ),
            )
            for side in ("base", "head")
        ),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_one_line(monkeypatch, texts, message):
    monkeypatch.setattr("mnistbench.gate.options.usable_cpus", lambda: 2)
    with pytest.raises(UsageError) as refused:
        options(**texts)
    assert str(refused.value) == message


@pytest.mark.parametrize("text", ["0/8", "9/8", "1/257", "3", "1/2/3"])
def test_a_shard_that_is_no_part_is_refused(text):
    with pytest.raises(ValueError, match=r"^is not a shard; give K/N with K <= N <= 256, such as"):
        shard(text)


def test_an_interpreter_that_is_too_old_is_named(tmp_path):
    old = tmp_path / "python"
    facts = {
        "version": "3.10.13 (main)",
        "numbers": [3, 10, 13],
        "path": [],
        "pytest": "",
        "fault": "ModuleNotFoundError: pytest",
        "has_pip": False,
    }
    old.write_text(f"#!/bin/sh\necho started\necho '{json.dumps(facts)}'\n", encoding="utf-8")
    old.chmod(0o755)
    with pytest.raises(UsageError) as refused:
        options(head_python=str(old))
    assert str(refused.value) == (
        f"--head-python: {str(old)!r} is Python 3.10.13, and the gate needs Python 3.11 or newer; "
        "name another interpreter"
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("raise ModuleNotFoundError('pytest')", "has no pytest"),
        (
            "__version__ = '7.4.0'\ndef hookimpl(*, tryfirst=False): pass",
            "has pytest 7.4.0, and the gate needs 8.1 or newer",
        ),
        ("1 / 0", "cannot import its pytest (ZeroDivisionError: division by zero)"),
    ],
)
@pytest.mark.parametrize(
    ("pip", "installer"),
    [("", "{python} -m pip install"), ("pip = None", "uv pip install -p {python}")],
)
def test_an_interpreter_without_a_usable_pytest_is_named(tmp_path, text, fault, pip, installer):
    if pip:  # as in an environment of uv
        text = f"import sys\nsys.modules['pip'] = None\n{text}"
    (tmp_path / "pip.py").touch()
    (tmp_path / "pytest.py").write_text(text, encoding="utf-8")
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\nPYTHONPATH='{tmp_path}' exec '{sys.executable}' \"$@\"\n", encoding="utf-8"
    )
    python.chmod(0o755)
    with pytest.raises(UsageError) as refused:
        options(base_python=str(python))
    assert str(refused.value) == (
        f"--base-python: {str(python)!r} {fault}; install it there with: "
        f"{installer.format(python=python)} 'pytest>=8.1'"
    )


def test_a_relative_interpreter_becomes_absolute(tmp_path, monkeypatch):
    (tmp_path / "python").write_text(
        f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n", encoding="utf-8"
    )
    (tmp_path / "python").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert options(head_python="./python").head_python == str(tmp_path / "python")


# ---- Settings of the project ---------------------------------------------------------------------

PROJECT = """
[tool.mnistbench.gate]
paths = ["bench", "more/test_b.py"]
threshold = "3%"
floor = "1us"
budget = "5m"
require_coverage = true
inconclusive = "warn"
accept = [
  {case = "*:iteration:5%", reason = "exact sums"},
  {case = "*:import:50%", reason = "a new parser", until = 9999-12-31},
  {case = "*:fc1:7%", reason = "old", until = 2001-02-03},
]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write a pyproject.toml into the current directory."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
        return tmp_path / "pyproject.toml"

    return write


def settings_of(command, **command_line):
    return read(command, command_line, *tool_table(command))


def test_the_project_sets_what_holds_for_its_gates(project):
    project(PROJECT)
    settings = settings_of(gate.Settings)
    assert settings.paths == ("bench", "more/test_b.py")
    assert (settings.case, settings.floor_ns, settings.budget_s) == (0.03, 1_000, 300)
    assert (settings.require_coverage, settings.inconclusive) == (True, "warn")
    assert [one.reason for one in settings.accept] == ["exact sums", "a new parser"]
    [expired] = settings.expired
    assert (expired.text, str(expired.until)) == ("*:fc1:7%", "2001-02-03")
    assert replace(settings) == settings


def test_the_command_line_counts_before_the_project(project):
    project(PROJECT)
    settings = settings_of(
        gate.Settings,
        case="4%",
        floor_ns="0",
        budget_s="9s",
        inconclusive="fail",
        accept=["*:conv1:3%"],
        reason="this change",
    )
    assert (settings.case, settings.floor_ns, settings.budget_s) == (0.04, 0, 9)
    assert settings.inconclusive == "fail"
    reasons = [one.reason for one in settings.accept]
    assert reasons == ["this change", "exact sums", "a new parser"]


def test_each_command_has_its_part_of_the_settings(project):
    project(PROJECT)
    searched = settings_of(bisect.Settings, range="pygments==1..2")
    assert (searched.paths, searched.case) == (("bench", "more/test_b.py"), 0.03)
    assert searched.budget_s == 300
    judged = settings_of(judge.Settings, files=["raw.jsonl.gz"])
    assert (judged.inconclusive, len(judged.accept)) == ("warn", 2)
    # The thresholds of a gate are those of its samples.
    assert judged.given_fields == {"files"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('threshold = "0.05%"', "threshold in FILE: '0.05%' is below 0.1%, three times the "),
        ('floor = "1"', "floor in FILE: '1' is not a time with a unit; give 1us, 500ns, 2ms or 0"),
        ("floor = 0", "floor in FILE: 0 is not a string; write it in quotes, such as "),
        ('threshold = ""', "threshold in FILE: '' is empty; give a value, or leave it out"),
        ('budget = "soon"', "budget in FILE: 'soon' is not a time; give 5m or 300s"),
        ('paths = ["-k"]', "paths in FILE: '-k' is an option of pytest; name files, folders or "),
        ('paths = ""', "paths in FILE: '' is empty; give a value, or leave it out"),
        ('inconclusive = "ok"', "inconclusive in FILE: 'ok' is not known; choose fail or warn"),
        ("require_coverage = 1", "require_coverage in FILE: 1 is not true or false"),
        ("trials = 20", "trials in FILE: is not a setting of [tool.mnistbench.gate]; choose of "),
        ('accept = "*:fc1:5%"', "accept in FILE: '*:fc1:5%' is not a list of tables; give "),
        (
            'accept = [{case = "*:fc1:5%"}]',
            "accept in FILE: {'case': '*:fc1:5%'} needs a key 'reason', such as {case = ",
        ),
    ],
)
def test_a_wrong_setting_names_the_file_and_the_key(project, text, message):
    file = project(f"[tool.mnistbench.gate]\n{text}\n")
    with pytest.raises(UsageError) as refused:
        settings_of(gate.Settings)
    assert str(refused.value).startswith(message.replace("FILE", str(file)))


@pytest.mark.parametrize(
    ("text", "ns"), [("1us", 1e3), ("500ns", 500), ("2.5 ms", 2.5e6), ("1s", 1e9), ("0", 0)]
)
def test_a_short_time_is_in_nanoseconds(text, ns):
    assert short_time(text) == ns


@pytest.mark.parametrize("text", ["1", "-1us", "us", "1 m", "1e3us", "1us 2us", "inf ns"])
def test_what_is_no_short_time_is_refused(text):
    with pytest.raises(ValueError, match=r"^is not a time with a unit; give 1us, "):
        short_time(text)


# ---- Limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("floor_ns", "changes", "limit", "text"),
    [
        (0, {}, 0.02, "2.0 %"),
        (20_000, {}, 0.02, "2.0 %"),  # 4 ms, of which this is half a percent
        (400_000, {}, 0.1, "400 us"),
        (400_000, {"kind": "mean"}, 0.1, "400 us"),
        (400_000, {"kind": "operation", "base": 1e6}, 0.4, "400 us"),
        # Of a case of 4 ms, to which they add 1 ms.
        (400_000, {"kind": "added", "base": 0.0, "head": 1e6}, 0.1, "400 us"),
        (400_000, {"kind": "replaced", "base": 0.0}, math.inf, "400 us"),
        (400_000, {"kind": "once"}, 0.2, "20.0 %"),
        (400_000, {"kind": "memory"}, 0.1, "10.0 %"),
    ],
)
def test_a_floor_raises_the_limits_of_what_is_short(floor_ns, changes, limit, text):
    quantity = gate_builders.quantity((0.0,) * 8, **changes)
    thresholds = Thresholds(floor_ns=floor_ns)
    assert thresholds.of(quantity) == pytest.approx(limit)
    assert thresholds.limit_text(quantity) == text
    if changes.get("kind") == "mean":
        assert thresholds.pass_limit(quantity) == pytest.approx(0.1)


# ---- Thresholds ----------------------------------------------------------------------------------

MM = ("aten::mm", "forward", "fc1")
RELU = ("aten::relu", "forward", "")


@dataclass
class Quantity:
    kind: str
    members: tuple[tuple[str, str, str], ...] = ()
    case: str = "t.py::own"
    is_case: bool = False
    is_once: bool = False
    reference_ns: float = 1e6


@pytest.mark.parametrize(
    ("quantity", "limit", "pass_limit"),
    [
        (Quantity(ITERATION, is_case=True), 0.03, 0.03),
        (Quantity(MEAN, is_case=True), 0.03, 0.15),
        (Quantity(OPERATION, (RELU,)), 0.2, 0.2),
        (Quantity(OPERATION, (MM,)), 0.05, 0.05),
        (Quantity(REPLACED, (RELU, MM)), 0.05, 0.05),
        (Quantity(ADDED, (RELU,)), 0.2 * LARGE_SHARE, 0.2 * LARGE_SHARE),
        (Quantity(OTHER, (RELU, MM)), 0.2, 0.2),
        (Quantity(ONCE, is_once=True), 0.4, 0.4),
        (Quantity(ITERATION, is_case=True, case="t.py::other"), 0.01, 0.01),
        (Quantity(OPERATION, (MM,), case="t.py::other"), 0.07, 0.07),
    ],
    ids=[
        *("case", "mean", "operation", "named operation", "replaced", "added", "other", "once"),
        *("case without a mark", "operation without a mark"),
    ],
)
def test_the_thresholds_of_a_mark_hold_for_its_case(quantity, limit, pass_limit):
    sides = gate_builders.listings(
        {"t.py::own": "own", "t.py::other": "other"},
        case_fail={"t.py::own": ("1%", "3%")},
        op_fail={"t.py::own": {HEAD: ("20%", "mm:9%", "fc1:5%")}},
    )
    thresholds = Thresholds(case=0.01, operation=0.07, once=0.4).with_marks(sides)
    assert thresholds.of(quantity) == pytest.approx(limit)
    assert thresholds.pass_limit(quantity) == pytest.approx(pass_limit)


def test_a_mark_of_operations_alone_leaves_the_threshold_of_the_case():
    sides = gate_builders.listings({"t.py::own": "own"}, op_fail={"t.py::own": {HEAD: ("fc1:5%",)}})
    thresholds = Thresholds().with_marks(sides)
    assert thresholds.of(Quantity(ITERATION, is_case=True)) == Thresholds().case
    assert thresholds.of(Quantity(OPERATION, (RELU,))) == Thresholds().operation
