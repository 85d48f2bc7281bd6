"""Scripts: what they look like, and that they run with the arguments that were captured."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from types import SimpleNamespace

import pytest
import reproducer_builders as builders
import torch
from torch import nn

from mnistbench.core.errors import RecordError
from mnistbench.core.operation import NO_MODULE
from mnistbench.suite.reproducers.capture import capture
from mnistbench.suite.reproducers.script import file_name, make_same_calls, read, script

F = nn.functional


# ---- What it looks like --------------------------------------------------------------------------


def test_a_script_for_one_operation(golden):
    golden(script(builders.header(), [builders.row()]), "reproducer_mm.py.txt")


def test_a_script_for_calls_that_differ_between_the_sides_and_change_a_tensor(golden):
    calls = {
        size: builders.call(
            "aten::addcmul_",
            builders.tensor(size),
            builders.tensor(size),
            {"same": 1},
            writes=[0],
            value=0.5,
        )
        for size in (64, 80)
    }
    origin = builders.header(
        title="aten::addcmul_, optimizer",
        variables={"base": {}, "head": {"ATEN_CPU_CAPABILITY": "default"}},
        packages={"torch": ("2.14.0", "2.15.0"), "numpy": ("2.3.0", "2.4.0")},
    )
    rows = {
        size: [builders.row(call, row="aten::addcmul_", number=8, whole_ns=1_100_000)]
        for size, call in calls.items()
    }
    golden(script(origin, rows[80], rows[64]), "reproducer_sides.py.txt")


def test_a_script_for_a_part_of_an_operation(golden):
    images, weight = (builders.tensor(*shape) for shape in ((16, 32, 26, 26), (64, 32, 3, 3)))
    call = builders.call(
        "aten::convolution", images, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    )
    origin = builders.header(title="aten::mkldnn_convolution, forward conv2")
    row = builders.row(call, row="aten::mkldnn_convolution", self_share=0.8)
    golden(script(origin, [row]), "reproducer_part.py.txt")


@pytest.mark.parametrize(
    ("base", "has_base"), [(None, False), ([builders.row()], True), ([], True)]
)
def test_the_origin_is_read_again(tmp_path, base, has_base):
    origin = builders.header(
        variables={"head": {"X": "1"}}, packages={"torch": ("2.14.0", "2.15.0")}
    )
    path = tmp_path / "x.py"
    path.write_text(script(origin, [builders.row()], base))
    assert read(path) == replace(origin, has_base=has_base)


NO_SCRIPT = "is not a reproducer; name a script that mnistbench gate has written"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"import torch\n", NO_SCRIPT),
        (b"# mnistbench: {\n", r"file: is not JSON \(.*\)"),
        (b"# mnistbench: {}\n", "title: is missing"),
        (b"\xff\xfe", r"cannot be read \(it is not text\)"),
        (None, r"cannot be read \(No such file or directory\)"),
    ],
)
def test_another_file_is_one_line(tmp_path, content, fault):
    path = tmp_path / "x.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecordError, match=f"^{path}: {fault}$"):
        read(path)


def test_a_pipe_is_no_script(tmp_path):
    os.mkfifo(tmp_path / "x.py")
    with pytest.raises(RecordError, match=r"x\.py: is not a file; "):
        read(tmp_path / "x.py")


def test_a_script_of_another_version_is_refused(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(script(builders.header(schema=2), [builders.row()]))
    with pytest.raises(RecordError, match=r"schema: "):
        read(path)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("aten::mm, backward fc1", "aten_mm-backward-fc1"),
        (
            "aten::addmm -> aten::mm + aten::add_, forward 0.1",
            "aten_addmm-aten_mm-aten_add_-forward-0_1",
        ),
        ("../../x", "x"),
        ("", "operation"),
    ],
)
def test_a_title_gives_a_file_name(title, name):
    assert file_name(title) == name


def test_a_long_list_is_broken_into_lines():
    tensors = [builders.tensor(64 + number, 64, 3, 3) for number in range(160)]
    call = builders.call(
        "aten::_foreach_add_", tensors, tensors, writes=list(range(160)), overload="List"
    )
    text = script(builders.header(), [builders.row(call)])
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert max(map(len, lines)) <= 100
    compile(text, "script", "exec")


def test_text_with_line_ends_stays_in_the_comment():
    variables = {"head": {"PROMPT": "a\nb"}}
    text = script(builders.header(variables=variables), [builders.row()])
    assert r"head with PROMPT=a\nb" in text.splitlines()[1]


def test_all_captured_calls_are_made_and_the_share_of_the_others_is_kept(tmp_path):
    call = builders.call("aten::sin", builders.tensor(4, offset=4))
    rows = [builders.row(*[call] * 3, row=f"aten::{row}", number=5) for row in ("sin", "cos")]
    for row in rows:
        row["whole_ns"] = 4_000_000
    path = tmp_path / "x.py"
    path.write_text(script(builders.header(), rows))
    assert path.read_text().count("torch.ops.aten.sin.default(") == 6
    assert "\n# 6 of 10 calls in an iteration of the head, 75 % of their time\n" in path.read_text()
    assert read(path).made_share == 0.75


def test_saved_values_are_those_of_their_row_call_and_tensor():
    saved = builders.tensor(3, saved={"elements": 3})
    rows = [
        builders.row(builders.call("aten::cos", builders.tensor(3))),
        builders.row(
            builders.call("aten::cos", builders.tensor(3)),
            builders.call("aten::mul", builders.tensor(3), saved, overload="Tensor"),
        ),
    ]
    assert 'x4 = saved["1.1.1"]' in script(builders.header(), rows)


# ---- Whether the sides differ --------------------------------------------------------------------


def test_sides_differ_by_their_calls_but_not_by_values_times_or_caches():
    def row(*calls, **changes):
        return builders.row(*calls, **changes)

    def relu(size=4, **changes):
        return builders.call("aten::relu", builders.tensor(size, **changes))

    alike = [
        row(relu(), whole_ns=7, self_share=0.95),
        row(relu(values={"kind": "constant", "value": 1.0})),
        row(relu(saved={"elements": 4})),
        row(relu(since=1_000, since_ns=1_000)),
    ]
    different = [
        row(relu(size=5)),
        row(relu(dtype="float64")),
        row(relu(stride=[2])),
        row(relu(), relu()),
        row(builders.call("aten::relu_", builders.tensor(4))),
        row(builders.call("aten::relu", [builders.tensor(4)])),
        row(builders.call("aten::relu", builders.tensor(4), alpha=1)),
    ]
    assert [make_same_calls([row(relu())], [other_row]) for other_row in alike] == [True] * 4
    assert [make_same_calls([row(relu())], [other_row]) for other_row in different] == [False] * 7
    assert not make_same_calls([row(relu())], [])


# ---- That it runs --------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a script in this process, with short measurements.

    Return its names and all seconds that it prints.
    """
    monkeypatch.setattr("mnistbench.suite.reproducers.script._MEASUREMENT_NS", 1_000_000)
    threads = torch.get_num_threads()

    def ran(text, *arguments, values=None):
        path = tmp_path / "x.py"
        torch.save(values, path.with_suffix(".pt"))
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        names = {"__file__": str(path), "__name__": "__main__"}
        output = io.StringIO()
        with torch.random.fork_rng(), redirect_stdout(output):
            exec(compile(text, str(path), "exec"), names)
        return names, [
            json.loads(line)["seconds"]
            for line in output.getvalue().splitlines()
            if line.startswith("{")
        ]

    yield ran
    torch.set_num_threads(threads)


@pytest.fixture
def reproduced(run, monkeypatch):
    """Capture the calls of a row, write their script and run it.

    Return the script's names, its text and the row.
    """

    def reproduce(work, name, *, profiled=False):
        # Whether the profiler is needed depends on measured times: of the calls, and of the
        # operations inside them.
        monkeypatch.setattr(
            "mnistbench.suite.reproducers.script._SHORTEST_NS", math.inf if profiled else 0
        )
        if not profiled:
            monkeypatch.setattr("mnistbench.suite.reproducers.script._WHOLE", 0)

        rows = capture(
            work, nullcontext(), {(name, phase, NO_MODULE) for phase in ("", "backward")}
        ).values()
        row = max(rows, key=lambda row: row.whole_ns)
        assert row.why_not == ""
        text = script(builders.header(title=name), [json.loads(json.dumps(row.stored(name)))])
        values = {
            f"0.{place}.{number}": tensor
            for place, call in enumerate(row.calls)
            for number, tensor in call.saved.items()
        }
        names, [seconds] = run(text, values=values)
        assert seconds > 0
        return names, text, row

    return reproduce


def tensors(names):
    """The tensors that the function ``call`` of a script uses, in order."""
    return [cell.cell_contents for cell in names["call"].__closure__ or ()]


X = torch.randn(8, 16)
W = torch.randn(4, 16)
IMAGES = torch.randn(2, 3, 8, 8)
KERNELS = torch.randn(4, 3, 3, 3)


def backward(output):
    output.sum().backward()


def norm():
    torch.native_batch_norm(
        IMAGES, torch.ones(3), torch.zeros(3), torch.zeros(3), torch.ones(3), True, 0.1, 1e-5
    )


RUNS = {
    "aten::addmm": lambda: F.linear(X, W, torch.ones(4)),
    "aten::mm": lambda: backward(F.linear(X, W.clone().requires_grad_())),
    "aten::convolution_backward": lambda: backward(
        F.conv2d(IMAGES, KERNELS.clone().requires_grad_())
    ),
    "aten::mkldnn_convolution": lambda: F.conv2d(IMAGES, KERNELS),
    "aten::max_pool2d_with_indices": lambda: F.max_pool2d(IMAGES, 2, return_indices=True),
    "aten::_foreach_add": lambda: torch._foreach_add([X, W, X[:2]], [X, W, W[:2]], alpha=0.1),
    "aten::_foreach_mul_": lambda: torch._foreach_mul_([X.clone(), W.clone()], 0.5),
    "aten::native_batch_norm": norm,
    "aten::nll_loss_forward": lambda: F.nll_loss(X, torch.arange(8)),
    "aten::sum": lambda: X.sum([0, 1], keepdim=True),
    "aten::exp": lambda: X.t()[2:9:2].unsqueeze(0).expand(3, -1, -1).exp(),
    "aten::add_": lambda: X.clone().add_(3, alpha=2),
    "aten::index": lambda: X[torch.tensor([3, 1, 7])],
    "aten::embedding": lambda: F.embedding(torch.tensor([[3, 1], [7, 0]]), X),
    "aten::where": lambda: torch.where(X > 0, X, 0.0),
    "aten::_to_copy": lambda: X.to(torch.bfloat16),
    "aten::empty": lambda: torch.empty(
        3, 4, dtype=torch.int32, memory_format=torch.contiguous_format
    ),
}


@pytest.mark.parametrize(
    ("name", "profiled"),
    [
        *((name, False) for name in RUNS),
        *((name, True) for name in ("aten::mm", "aten::_foreach_mul_")),
    ],
)
def test_the_script_of_an_operation_runs(name, profiled, reproduced):
    names, text, row = reproduced(RUNS[name], name, profiled=profiled)
    assert row.calls[0].name.removeprefix("aten::") in text
    wanted = [
        argument["tensor"]
        for call in row.calls
        for argument in _described([*call.args, *call.kwargs.values()])
    ]
    made_tensors = [
        tensor
        for variable in tensors(names)
        for tensor in (variable if isinstance(variable, list) else [variable])
    ]
    assert sorted(
        (list(tensor.shape), list(tensor.stride()), str(tensor.dtype)) for tensor in made_tensors
    ) == sorted(
        (tensor["shape"], tensor["stride"], f"torch.{tensor['dtype']}") for tensor in wanted
    )


def _described(values):
    for value in values:
        if isinstance(value, list):
            yield from _described(value)
        elif isinstance(value, dict) and "tensor" in value:
            yield value


def test_an_operation_in_bfloat16_runs_in_bfloat16(reproduced):
    names, _, _ = reproduced(lambda: torch.mm(X.bfloat16(), W.t().bfloat16()), "aten::mm")
    assert {tensor.dtype for tensor in tensors(names)} == {torch.bfloat16}


def test_an_operation_that_writes_to_a_result_runs(reproduced):
    names, text, _ = reproduced(lambda: torch.sin(X, out=torch.empty(8, 16)), "aten::sin")
    assert "out=x2" in text
    assert names["written"] == []


@pytest.mark.parametrize(
    ("profiled", "timing"), [(True, "torch.profiler.profile"), (False, "timer.timeit(1)")]
)
def test_values_of_a_tensor_that_is_changed_are_restored(profiled, timing, reproduced):
    names, text, _ = reproduced(
        lambda: torch.full((100,), 2.0).pow_(2), "aten::pow_", profiled=profiled
    )
    assert timing in text
    [changed] = names["written"]
    assert changed.isfinite().all()  # 2 ** (2 ** n) is infinite after 8 calls
    names["prepare"]()
    assert (changed == 2).all()


@pytest.mark.versions
def test_the_part_of_an_operation_is_timed_by_its_name(reproduced):
    _, text, _ = reproduced(
        RUNS["aten::mkldnn_convolution"], "aten::mkldnn_convolution", profiled=True
    )
    assert "torch.ops.aten.convolution.default(x1, x2, None, [1, 1]" in text
    assert "if event.name in ['aten::mkldnn_convolution']\n" in text


class RecordedProfile:
    """Stands in for the profiler: in each repetition ``add_`` runs in prepare() and when timed."""

    def __init__(self, activities):
        timed = SimpleNamespace(name="timed", cpu_parent=None)
        prepared = SimpleNamespace(name="aten::add_", cpu_parent=None, self_cpu_time_total=5_000.0)
        called = SimpleNamespace(name="aten::add_", cpu_parent=timed, self_cpu_time_total=3.0)
        self.repetition = [prepared, timed, called]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def events(self):
        return self.repetition * 80


def test_what_prepares_a_call_does_not_count_as_the_call(run, monkeypatch):
    small = builders.call(
        "aten::add_", builders.tensor(4, since=1_000), 1.0, writes=[0], overload="Scalar"
    )
    text = script(builders.header(), [builders.row({**small, "self_ns": 1_000}, row="aten::add_")])
    names, _ = run(text)
    monkeypatch.setattr(torch.profiler, "profile", RecordedProfile)
    assert names["measure"]() == pytest.approx(3e-6)


def test_on_an_accelerator_calls_are_repeated():
    device_call = builders.call("aten::sin", builders.tensor(4, since=20_000_000, device="cuda"))
    text = script(builders.header(), [builders.row(device_call, row="aten::sin", self_share=0.5)])
    assert "timer.blocked_autorange" in text
    assert '.to("cuda")' in text
    assert "prepare" not in text


@pytest.mark.versions
def test_an_operation_as_a_whole_is_timed_by_the_timer_of_torch(reproduced):
    large = torch.randn(300, 300)
    _, text, row = reproduced(lambda: large @ large, "aten::mm")
    assert row.self_share > 0.9
    assert "timer.timeit(1)" in text


def test_saved_values_are_those_of_the_call(reproduced):
    names, _, _ = reproduced(RUNS["aten::max_pool2d_with_indices"], "aten::max_pool2d_with_indices")
    assert torch.equal(tensors(names)[0], IMAGES)


def test_made_values_are_distributed_like_those_of_the_call(reproduced):
    torch.manual_seed(0)
    activations = (torch.randn(100_000) * 3 + 1).relu()
    names, _, _ = reproduced(activations.exp2, "aten::exp2")
    [values] = tensors(names)
    positive = values[values > 0]
    positive_activations = activations[activations > 0]
    assert float(values.mean()) == pytest.approx(float(activations.mean()), rel=0.05)
    assert float(positive.mean()) == pytest.approx(float(positive_activations.mean()), rel=0.05)
    assert float((values == 0).double().mean()) == pytest.approx(
        float((activations == 0).double().mean()), abs=0.02
    )
    assert float(values.max()) <= float(activations.max()) * 1.001


def test_first_rows_are_repeated_if_not_all_are_saved(reproduced, monkeypatch):
    monkeypatch.setattr("mnistbench.suite.reproducers.tensors.LARGEST_SAVED", 3 * 3 * 64 * 4)
    names, text, _ = reproduced(
        lambda: F.max_pool2d(IMAGES.repeat(4, 1, 1, 1), 2, return_indices=True),
        "aten::max_pool2d_with_indices",
    )
    assert ".repeat(3)[:1536]" in text
    [images] = tensors(names)
    assert all(torch.equal(images[number], IMAGES[number % 3 % 2]) for number in range(8))


def test_a_side_has_its_own_arguments(run):
    rows = {
        size: [builders.row(builders.call("aten::sin", builders.tensor(size)), row="aten::sin")]
        for size in (64, 80)
    }
    text = script(builders.header(), rows[80], rows[64])
    for arguments, size in (((), 80), (("head",), 80), (("base",), 64)):
        names, [seconds] = run(text, *arguments)
        assert [len(tensor) for tensor in tensors(names)] == [size]
        assert math.isfinite(seconds)


@pytest.mark.parametrize(
    ("share", "timing"), [(0.5, "torch.profiler.profile"), (1.0, "timer.timeit(1)")]
)
def test_a_side_that_makes_no_call_does_nothing(share, timing, run):
    row = builders.row(
        builders.call("aten::sin", builders.tensor(64, since=1_000)),
        row="aten::sin",
        self_share=share,
    )
    text = script(builders.header(case_ns=1e8), [row], [])
    (base_names, [base_s]), (head_names, [head_s]) = (run(text, side) for side in ("base", "head"))
    assert tensors(base_names) == []
    assert [len(tensor) for tensor in tensors(head_names)] == [64]
    assert base_s > 0
    assert head_s > 0
    assert "+11.1 % of the case" in text
    assert timing in text


def test_several_rows_are_timed_by_their_names(run):
    rows = [
        builders.row(
            {**builders.call(f"aten::{name}", builders.tensor(64)), "self_ns": 1_000},
            row=f"aten::{name}",
        )
        for name in ("sin", "cos", "tan")
    ]
    text = script(builders.header(title="other"), rows, [*rows[1:], rows[0]])
    assert "if event.name in ['aten::cos', 'aten::sin', 'aten::tan']\n" in text
    _, [seconds] = run(text)
    assert seconds > 0


def test_results_are_kept_until_the_last_call():
    call = builders.call("aten::sin", builders.tensor(64))
    text = script(builders.header(), [builders.row(call, call)])
    assert (
        "        y1 = torch.ops.aten.sin.default(x1)\n        y2 = torch.ops.aten.sin.default(x2)\n"
        in text
    )


def test_before_a_call_as_much_time_passes_as_in_the_program(run, monkeypatch):
    first, second = (
        builders.tensor(4, since=since, since_ns=ns)
        for since, ns in ((2_000, 5_000_000), (1_000, 2_000_000))
    )
    call = builders.call("aten::mul", first, second, overload="Tensor")
    names, _ = run(script(builders.header(), [builders.row(call)]))
    assert [use for _, *use in names["used"]] == [[2_000, 5_000_000], [1_000, 2_000_000]]
    fake_clock = itertools.count(step=1_000_000)  # a millisecond passes at each look
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(fake_clock))
    names["prepare"]()
    # 3 ms after the first tensor, 2 ms after the second; each wait begins with one more look.
    assert next(fake_clock) == (3 + 1 + 2 + 1) * 1_000_000


def test_a_script_waits_no_longer_than_a_cache_keeps_its_contents():
    [longest, shortest] = (
        builders.tensor(4, since=1_000, since_ns=ns) for ns in (1_000_000_000, 1_000)
    )
    text = script(
        builders.header(),
        [builders.row(builders.call("aten::mul", longest, shortest, overload="Tensor"))],
    )
    assert "[(x1, 1000, 20000000), (x2, 1000, 0)]" in text


def test_memory_of_a_result_is_as_cold_as_in_the_program(reproduced):
    large = torch.randn(300, 300)
    names, _, row = reproduced(lambda: large @ large, "aten::mm")
    # All that the iterations of both sides use.
    assert row.calls[0].since[0] == 2 * 2 * large.nbytes
    hot_call = {
        **row.calls[0].stored(),
        "since_ns": 0,
        "args": [builders.tensor(300, 300), {"same": 0}],
    }
    text = script(builders.header(), [builders.row(hot_call)])
    assert "[(None, 1440000, 0), (x1, 0, 0)]" in text
    assert names["used"][0][1] == 2 * 2 * large.nbytes


def test_with_turns_a_script_measures_once_per_line_of_input(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n\n\n"))
    row = builders.row(builders.call("aten::sin", builders.tensor(64)), row="aten::sin")
    assert len(run(script(builders.header(), [row]), "--turns")[1]) == 3


def test_the_name_of_a_row_is_no_line_of_the_script():
    """A row of another profiler may have any name."""
    name = "x\nimport os; os.abort()"
    text = script(builders.header(), [builders.row(row=name, self_share=0.8)])
    assert not [line for line in text.splitlines() if line.startswith("import os;")]


def test_the_script_of_a_fused_kernel_makes_its_operations_and_can_compile_them(run, monkeypatch):
    names = ("aten::gelu", "aten::mul")
    keys = {(name, "", NO_MODULE) for name in names}
    rows = capture(lambda: F.gelu(X) * X, nullcontext(), keys)
    stored = [json.loads(json.dumps(rows[name, "", NO_MODULE].stored(name))) for name in names]
    text = script(builders.header(title="fused gelu, mul, forward act"), stored)
    found, [seconds] = run(text)
    assert seconds > 0
    assert [tuple(result.shape) for result in found["call"]()] == [(8, 16), (8, 16)]
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda call: compiled.append(call) or call)
    run(text, "compiled")
    assert len(compiled) == 1
