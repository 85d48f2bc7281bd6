"""Scripts of slower operations.

Which operations have one, its path, and what the processes of both sides describe.
"""

from __future__ import annotations

import json
from pathlib import Path

import gate_builders
import projects
import pytest
import reproducer_builders
import torch

from mnistbench.core.operation import OUTSIDE
from mnistbench.gate.decide.statistics.quantities import Replaced, quantities_of_stages
from mnistbench.gate.decide.verdict.decision import decide
from mnistbench.gate.decide.verdict.findings import GateFinding
from mnistbench.gate.options import Thresholds
from mnistbench.gate.processes.starting import GateError
from mnistbench.gate.samples.raw_samples import End, load
from mnistbench.gate.words import BASE, HEAD
from mnistbench.judging.kinds import ADDED, OPERATION, OTHER, OUTSIDE_KIND, REPLACED
from mnistbench.judging.verdicts import REGRESSED
from mnistbench.suite.reproducers.script import VALUES, read
from mnistbench.suite.reproducers.write import capture_on_sides, slower_operations, write

CASE = gate_builders.CASE


def finding(change=0.1, **quantity):
    changes = {
        "case": CASE,
        "kind": OPERATION,
        "name": "aten::mm, forward fc1",
        "members": (gate_builders.MM,),
        **quantity,
    }
    estimate = gate_builders.estimate(change, change - 0.02, change + 0.02, **changes)
    return GateFinding(estimate, estimate, verdict=REGRESSED)


def described(rows=None, why_not=""):
    return {
        "rows": [reproducer_builders.row()] if rows is None else rows,
        "why_not": why_not,
        "threads": 1,
    }


class Described:
    """Stands in for the processes.

    Keeps what is wanted, and describes the same calls on both sides.
    """

    def __init__(self, **sides):
        self.sides = {BASE: {}, HEAD: {}, **sides}
        self.wanted = None

    def __call__(self, wanted, folder):
        assert folder.is_dir()
        assert folder.is_absolute()
        self.wanted = wanted
        for side in (BASE, HEAD):
            for wanted_script in wanted[side]:
                (folder / f"{wanted_script['script']}{VALUES[side]}").touch()
        return {
            side: {wanted_script["script"]: described() for wanted_script in wanted[side]}
            | self.sides[side]
            for side in (BASE, HEAD)
        }


def written(folder, *findings, describe=None, trials=(), **header):
    return write(gate_builders.header(**header), trials, findings, describe or Described(), folder)


def test_a_slower_operation_has_a_script_with_what_the_gate_found(tmp_path):
    describe = Described()
    [reproducer] = written(
        tmp_path / "scripts", finding(), describe=describe, packages={"torch": ["2.14.0", "2.15.0"]}
    )
    path = tmp_path / "scripts" / "aten_mm-forward-fc1.py"
    assert (reproducer.key, reproducer.script, reproducer.why_not) == (
        (CASE, OPERATION, "aten::mm, forward fc1"),
        str(path),
        "",
    )
    header = read(path)
    assert (header.title, header.case) == ("aten::mm, forward fc1", gate_builders.LABEL)
    assert (header.change, header.low, header.high) == (0.1, 0.08, pytest.approx(0.12))
    assert (header.base, header.head, header.packages) == (
        "origin/main (1a2b3c4)",
        "5d6e7f8 with changes",
        {"torch": ("2.14.0", "2.15.0")},
    )
    wanted = [
        {
            "script": "aten_mm-forward-fc1",
            "case": CASE,
            "rows": [["aten::mm", "forward", "fc1"]],
            "iterations": 0,
        }
    ]
    assert describe.wanted == {BASE: wanted, HEAD: wanted}
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "aten_mm-forward-fc1.pt",
        path.name,
    ]


@pytest.mark.parametrize(("iterations", "before"), [(7, 7), (1_000, 50)])
def test_iterations_precede_the_captured_calls_but_few_of_a_short_case(
    tmp_path, iterations, before
):
    describe = Described()
    case_build = gate_builders.build(gate_builders.side(iterations=iterations))
    trials = [gate_builders.trial(cases={}), gate_builders.trial(case_build)]
    written(tmp_path, finding(), describe=describe, trials=trials)
    assert [describe.wanted[side][0]["iterations"] for side in (BASE, HEAD)] == [before] * 2


def test_if_the_calls_differ_the_script_has_those_of_both_sides(tmp_path):
    small = reproducer_builders.row(
        reproducer_builders.call("aten::mm", *[reproducer_builders.tensor(8, 8)] * 2)
    )
    describe = Described(base={"aten_mm-forward-fc1": described([small])})
    written(tmp_path, finding(), describe=describe)
    text = (tmp_path / "aten_mm-forward-fc1.py").read_text()
    assert (
        text.index("def base():")
        < text.index("(8, 8)")
        < text.index("def head():")
        < text.index("(16, 9216)")
    )
    assert (tmp_path / "aten_mm-forward-fc1.base.pt").exists()


def test_of_a_replaced_operation_each_side_describes_its_own(tmp_path):
    mm = gate_builders.MM
    gemm = gate_builders.GEMM
    clone = gate_builders.CLONE
    replaced = (Replaced(mm, 5.0, None), Replaced(gemm, None, 6.0), Replaced(clone, 1.0, 2.0))
    describe = Described()
    [reproducer] = written(
        tmp_path,
        finding(
            kind=REPLACED, replaced=replaced, members=[operation.key for operation in replaced]
        ),
        describe=describe,
    )
    rows = {side: describe.wanted[side][0]["rows"] for side in (BASE, HEAD)}
    assert rows == {BASE: [list(mm), list(clone)], HEAD: [list(gemm), list(clone)]}
    assert (
        Path(reproducer.script).name
        == "aten_mm-aten_clone-aten__scaled_mm-aten_clone-forward-fc1.py"
    )


def test_an_operation_of_two_cases_has_two_scripts(tmp_path):
    other_case = CASE.replace("b16", "b64")
    reproducers = written(
        tmp_path,
        finding(case="step b16"),
        finding(case="step b64"),
        labels={CASE: "step b16", other_case: "step b64"},
    )
    assert [Path(reproducer.script).name for reproducer in reproducers] == [
        f"aten_mm-forward-fc1-step-{size}.py" for size in ("b16", "b64")
    ]
    assert [read(Path(reproducer.script)).case for reproducer in reproducers] == [
        "step b16",
        "step b64",
    ]


def test_time_outside_operations_has_a_reason_and_no_process_starts(tmp_path):
    [reproducer] = written(
        tmp_path / "scripts",
        finding(kind=OUTSIDE_KIND, members=((OUTSIDE, "", ""),)),
        describe=None,
    )
    assert reproducer.script == ""
    assert reproducer.why_not.startswith("it is no operation")
    assert not (tmp_path / "scripts").exists()


def test_a_group_of_small_operations_has_a_script(tmp_path):
    describe = Described()
    [reproducer] = written(
        tmp_path,
        finding(kind=OTHER, name="other", members=(gate_builders.TINY, gate_builders.ADD)),
        describe=describe,
    )
    assert Path(reproducer.script).name == "other.py"
    assert describe.wanted[BASE][0]["rows"] == [list(gate_builders.TINY), list(gate_builders.ADD)]


def test_operations_that_only_the_head_has_are_compared_with_nothing(tmp_path):
    replaced = (Replaced(gate_builders.CLONE, None, 6_000.0),)
    added = finding(
        kind=ADDED,
        replaced=replaced,
        members=(gate_builders.CLONE,),
        base=0.0,
        head=6_000.0,
        share=0.02,
    )
    name = "nothing-aten_clone-forward-fc1"
    describe = Described(base={name: described([])})
    [reproducer] = written(tmp_path, added, describe=describe)
    assert describe.wanted[BASE][0]["rows"] == []
    text = Path(reproducer.script).read_text()
    assert "\ndef base():\n\n    def call():\n        pass\n" in text
    assert read(Path(reproducer.script)).case_ns == 300_000


@pytest.mark.parametrize(
    ("base", "head", "reason"),
    [
        (
            described([], "aten::mm is sparse"),
            described([], "aten::mm is sparse"),
            "aten::mm is sparse",
        ),
        (described(), described([], "was not called"), "was not called in the head"),
        (described([], "was not called"), described(), "was not called in the base"),
    ],
)
def test_without_calls_on_both_sides_there_is_a_reason(tmp_path, base, head, reason):
    name = "aten_mm-forward-fc1"
    [reproducer] = written(
        tmp_path, finding(), describe=Described(base={name: base}, head={name: head})
    )
    assert (reproducer.script, reproducer.why_not) == ("", reason)
    assert list(tmp_path.glob("*.py")) == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (GateError("a trial ended"), "its calls could not be captured: a trial ended"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_an_error_while_calls_are_described_is_the_reason(tmp_path, error, reason):
    def describe(wanted, folder):
        raise error

    [reproducer] = written(tmp_path, finding(), describe=describe)
    assert (reproducer.script, reproducer.why_not) == ("", reason)


def test_a_folder_that_cannot_be_written_is_the_reason(tmp_path):
    (tmp_path / "file").touch()
    [reproducer] = written(tmp_path / "file" / "scripts", finding())
    assert (
        reproducer.why_not == f"{tmp_path / 'file' / 'scripts'} cannot be written (Not a directory)"
    )


def decided(trials):
    return decide(*quantities_of_stages(trials), Thresholds(), 1)


def test_only_confirmed_slowdowns_of_operations_have_scripts():
    operations = {
        gate_builders.CONV: (1_500_000, 1.2),
        gate_builders.MM: (1_500_000, 0.8),
        gate_builders.ADD: (1_000_000, 1.0),
    }
    slower = gate_builders.Measured(factor=1.2, operations=operations)
    first = gate_builders.series(slower, count=10)
    fresh = gate_builders.series(slower, count=8, stage=2, seed=2)
    [slower] = slower_operations(decided([*first, *fresh]))
    assert slower.quantity.name == "aten::mkldnn_convolution, forward conv2"
    assert slower_operations(decided(first)) == []


def test_the_scripts_are_in_the_file_of_raw_samples(tmp_path):
    reproducers = written(tmp_path, finding(), finding(kind=OTHER))
    path = tmp_path / "raw.jsonl.gz"
    gate_builders.write(path, [], end=End(reproducers=reproducers))
    assert load(path).end.reproducers == reproducers


# ---- The processes -------------------------------------------------------------------------------

#: The model has one layer, named ``fc``, with SIZE outputs.
CONFTEST = "from collections import OrderedDict\n" + projects.CONFTEST.replace(
    "nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))",
    "nn.Sequential(OrderedDict(fc=nn.Linear(8, SIZE)))",
)

TESTS = """
import itertools

import pytest
import torch


def test_step(op_benchmark):
    op_benchmark("step")


def test_plain(benchmark):
    benchmark.pedantic(torch.sin, setup=lambda: ((torch.ones(SIZE),), {}))


@pytest.mark.parametrize("name", ["few", "many"])
def test_counted(benchmark, name):
    counts = itertools.count()
    benchmark.pedantic(torch.sin, setup=lambda: ((torch.full((SIZE,), float(next(counts))),), {}))
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    plan = gate_builders.plan(tmp_path_factory.mktemp("plan"), "test_own.py")
    for side, size in ((BASE, "4"), (HEAD, "5")):
        root = plan.setup.trees[side].root
        (root / "conftest.py").write_text(CONFTEST.replace("SIZE", size))
        (root / "test_own.py").write_text(TESTS.replace("SIZE", size))
        (root / "pytest.ini").write_text(
            "[pytest]\nbench_model = tiny\nbench_batch_size = 4\nbench_device = cpu\n"
            "filterwarnings = error\n"
        )
    return plan


STEP = "test_own.py::test_step[tiny-b4-cpu]"
PLAIN = "test_own.py::test_plain"
COUNTED = "test_own.py::test_counted[{}]"


def test_both_sides_describe_the_calls_of_their_own_code(plan, tmp_path):
    wanted = [
        {"script": "mm", "case": STEP, "rows": [["aten::mm", "backward", "fc"]], "iterations": 3},
        {
            "script": "loss",
            "case": STEP,
            "rows": [["aten::nll_loss_forward", "forward", "(loss)"]],
            "iterations": 3,
        },
        {"script": "gone", "case": STEP, "rows": [["aten::cos", "forward", "fc"]], "iterations": 3},
        {"script": "plain", "case": PLAIN, "rows": [["aten::sin", "forward", ""]], "iterations": 0},
        *(
            {
                "script": name,
                "case": COUNTED.format(name),
                "rows": [["aten::sin", "forward", ""]],
                "iterations": iterations,
            }
            for name, iterations in (("few", 4), ("many", 9))
        ),
    ]
    captured = capture_on_sides(plan, 1, {BASE: wanted, HEAD: wanted}, tmp_path, tmp_path / "log")
    for side, size in ((BASE, 4), (HEAD, 5)):
        [mm] = captured[side]["mm"]["rows"]
        assert [arg["tensor"]["shape"] for arg in mm["calls"][0]["args"]] == [[size, 4], [4, 8]]
        assert captured[side]["gone"] == {"rows": [], "why_not": "was not called", "threads": 1}
        [plain] = captured[side]["plain"]["rows"]
        assert plain["calls"][0]["args"][0]["tensor"]["shape"] == [size]
        [few], [many] = (captured[side][name]["rows"] for name in ("few", "many"))
        few, many = (row["calls"][0]["args"][0]["tensor"]["values"]["value"] for row in (few, many))
        assert many - few == 9 - 4  # each iteration has other values
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == ["loss.base.pt", "loss.pt"]
    values = torch.load(tmp_path / "loss.pt")
    # The targets, second argument of the first call of the first row.
    assert {key: list(value.shape) for key, value in values.items()} == {"0.0.1": [4]}
    assert json.loads(json.dumps(captured)) == captured


def test_an_error_of_the_code_of_a_side_is_named(plan, tmp_path):
    wanted = [
        {"script": "x", "case": PLAIN, "rows": [["aten::sin", "forward", ""]], "iterations": 0}
    ]
    broken = plan.setup.trees[HEAD].directory / "test_own.py"
    text = broken.read_text()
    broken.write_text(text.replace("torch.ones(5)", "1 / 0"))
    try:
        with pytest.raises(
            GateError,
            match=r"^head: test_own.py::test_plain fails: ZeroDivisionError: division by zero",
        ):
            capture_on_sides(plan, 1, {BASE: wanted, HEAD: wanted}, tmp_path, tmp_path / "log")
    finally:
        broken.write_text(text)
