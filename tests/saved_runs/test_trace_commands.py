"""``mnistbench compare``, ``report`` and ``export`` on traces.

What they print, and one line for each mistake.
"""

import csv
import io
import json
import re
from pathlib import Path

import builders
import pytest
import real_traces
import trace_builders as build

EXIT_PASSED = 0
EXIT_REGRESSED = 1
EXIT_INCONCLUSIVE = 2

pytestmark = pytest.mark.usefixtures("alone")


def trace(name="a.json", devices=(build.H100,), top=None, **changes):
    return build.trace_file(
        Path(), build.network(**changes), name=name, devices=devices, **(top or {})
    )


def two_machines():
    """A base on an H100 and a run on an MI300X.

    With another operation, other kernels and other times.
    """
    trace("base.json", steps=3)
    gemm = (
        "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT32x64x128_MI16x16x1_SN_"
        "LDSB1_AFC1_AFEM1_AFEM1_ASEM1_CLR1_CADS0"
    )
    changes = {"scale": 1.5, "steps": 3, "step_us": 1_250.0, "kernel_name": gemm}
    trace("now.json.gz", devices=(build.MI300X,), **changes)
    return "base.json", "now.json.gz"


# ---- compare -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "ending"),
    [("terminal", "txt"), ("markdown", "markdown"), ("json", "json")],
)
def test_across_machines_every_format_says_so(run, golden, form, ending):
    code, out, _ = run("compare", *two_machines(), "--across-machines", "--format", form)
    assert code == EXIT_PASSED
    golden(out, f"comparison_across_machines.{ending}")


def test_the_kernels_of_two_machines_are_counted_and_not_listed(run):
    sides = two_machines()
    for option in ("--across-machines", "--allow-incomparable"):
        _, text, _ = run("compare", *sides, option)
        assert "exact: kernels of 1 operation differ between the machines" in text
        assert "Cijk" not in text
    assert "Cijk" in run("compare", *sides, "--across-machines", "--format", "json")[1]


def kernels_of(*operations):
    """A step with a matrix product and operations that launch a kernel each.

    Of so many microseconds on host and device.
    """
    events = [build.step(1, 1_000, 2_000)]
    start = 1_100
    for number, (name, host_us, device_us) in enumerate([("aten::mm", 300, 100), *operations], 1):
        events += [
            build.op(name, start, host_us, external=number),
            build.launch(start + 1, 2, number),
            build.kernel(name, start + 5, device_us, correlation=number, external=number),
        ]
        start += max(host_us, device_us) + 20
    return events


def test_fused_operations_are_compared_with_what_replaced_them_whatever_the_share(
    run,
):
    build.trace_file(
        Path(),
        kernels_of(*((f"my::part{number}", 20, 40) for number in range(4))),
        name="parts.json",
    )
    build.trace_file(Path(), kernels_of(("my::fused", 48, 80)), name="fused.json")
    code, text, _ = run("compare", "parts.json", "fused.json", "--op-fail", "10%")
    assert code == EXIT_PASSED
    assert "nothing ->" not in text
    # On the host and on the device.
    assert text.count("my::part0 + my::part1 + 2 others -> my::fused") == 2
    code, text, _ = run("compare", "fused.json", "parts.json", "--op-fail", "10%")
    assert code == EXIT_REGRESSED
    assert (
        "regressed: my::fused -> my::part0 + my::part1 + 2 others (host), 46.0 us -> 72.0 us, "
        "+56.5 %"
    ) in text


def test_traces_of_different_numbers_of_steps_are_compared_by_step(run):
    trace("few.json", steps=2)
    trace("many.json", steps=7)
    code, text, _ = run("compare", "few.json", "many.json", "--op-fail", "50%")
    assert code == EXIT_PASSED
    assert "different numbers of" not in text


def iterations(count, name, mm_us=80):
    """A trace without steps of so many iterations: a product with a kernel, and an addition."""
    events = []
    for number in range(count):
        start = 1_000 + 500 * number
        events += [
            build.op("aten::mm", start, mm_us, external=2 * number + 1),
            build.launch(start + 1, 2, 2 * number + 1),
            build.kernel(
                "gemm", start + 5, mm_us, correlation=2 * number + 1, external=2 * number + 1
            ),
            build.op("aten::add", start + 450, 20, external=2 * number + 2),
        ]
    build.trace_file(Path(), events, name=name)


@pytest.mark.parametrize(("base", "head"), [(10, 1), (1, 10), (3, 2)])
def test_traces_without_steps_are_compared_per_call(run, base, head):
    iterations(base, "base.json")
    iterations(head, "head.json")
    iterations(head, "slow.json", mm_us=400)
    code, text, _ = run("compare", "base.json", "head.json", "--op-fail", "10%")
    assert code == EXIT_PASSED
    assert "different numbers of iterations (host): every operation has " in text
    assert "different numbers of iterations (device): every operation has " in text
    code, text, _ = run("compare", "base.json", "slow.json", "--op-fail", "10%")
    assert code == EXIT_REGRESSED
    assert "regressed: aten::mm (device), 80.0 us -> 400 us, +400.0 %" in text


def test_two_machines_are_incomparable_without_the_option(run):
    sides = two_machines()
    code, text, _ = run("compare", *sides)
    assert code == EXIT_PASSED  # no threshold was given
    assert f"incomparable: 2 cases: devices {build.H100} -> {build.MI300X}; " in text
    assert "add --across-machines" in text
    assert run("compare", *sides, "--op-fail", "5%")[0] == EXIT_INCONCLUSIVE
    assert run("compare", *sides, "--op-fail", "5%", "--across-machines")[0] == EXIT_REGRESSED


def test_thresholds_judge_two_traces(run):
    trace("a.json")
    trace("b.json", scale=1.2)
    assert run("compare", "a.json", "b.json", "--op-fail", "25%")[0] == EXIT_PASSED
    code, text, _ = run("compare", "a.json", "b.json", "--op-fail", "Linear_0:10%")
    assert code == EXIT_REGRESSED
    assert "regressed: aten::addmm, forward Linear_0 (device), 100 us -> 120 us" in text
    assert run("compare", "a.json", "b.json", "--case-fail", "10%")[0] == EXIT_REGRESSED


def test_a_trace_with_and_one_without_an_accelerator(run):
    trace("a.json")
    build.trace_file(
        Path(), [build.step(0, 0, 900), build.op("aten::addmm", 10, 300)], name="b.json", devices=()
    )
    _, text, _ = run("compare", "a.json", "b.json", "--across-machines")
    assert f"different devices: {build.H100} -> none" in text
    assert re.search("^missing: .*: device, trace a.json, 1 step", text, re.MULTILINE)
    _, text, _ = run("compare", "b.json", "a.json", "--across-machines")
    assert "new, not compared: device" in text


def test_many_small_operations_have_a_hint(run):
    events = [build.step(0, 0, 1_000)]
    for number in range(100):
        events += [
            build.module(f"Linear_{number}", 10 * number, 9),
            build.op("aten::addmm", 10 * number, 8),
        ]
    build.trace_file(Path(), events, name="a.json")
    build.trace_file(Path(), events, name="b.json")
    hint = "no operation is large enough to be judged by itself; --by op sums over modules"
    assert hint in run("compare", "a.json", "b.json")[1]
    assert hint not in run("compare", "a.json", "b.json", "--by", "op")[1]


# ---- export and report ---------------------------------------------------------------------------


def test_a_trace_is_exported_with_both_cases(run):
    trace("a.json", steps=3)
    code, text, _ = run("export", "a.json")
    assert code == EXIT_PASSED
    rows = {
        (row["case"], row["operation"]): int(row["self_ns"])
        for row in csv.DictReader(io.StringIO(text))
    }
    assert rows["host", "(iteration)"] == 1_000_000
    assert rows["device", "(iteration)"] == 165_000
    assert rows["device", "aten::addmm"] == 110_000


def test_the_page_shows_a_trace(run):
    trace("a.json.gz", steps=3, top={"cuda_driver_version": 12090})
    assert run("report", "a.json.gz") == (EXIT_PASSED, "1 trace: report.html\n", "")
    text = Path("report.html").read_text(encoding="utf-8")
    assert "trace a.json.gz, 3 steps" in text
    assert "Times of one step, with the profiler" in text
    assert '<th scope="col">steps</th>' in text
    assert "cuda driver version" in text
    for wrong in (
        "rounds</th>",
        "iteration without the profiler",
        "<dt>without the profiler",
        "device busy</th>",
        "1 thread",
    ):
        assert wrong not in text


def test_the_page_compares_each_trace_with_the_one_before_it_in_the_order_given(run):
    trace("b.json")
    trace("a.json", scale=2.0)
    code, out, _ = run("report", "b.json", "a.json")
    assert (code, out) == (EXIT_PASSED, "2 traces: report.html\n")
    text = Path("report.html").read_text(encoding="utf-8")
    assert "<summary>device: +100.0 %, regressed</summary>" in text
    assert text.index("base: trace b.json") < text.index("head: trace a.json")


# ---- mistakes ------------------------------------------------------------------------------------


def test_a_trace_and_a_saved_run(refused):
    trace("a.json")
    Path("run.json").write_text(json.dumps(builders.saved_file()), encoding="utf-8")
    line = "'a.json' is a trace and 'run.json' a saved run; name two traces or two saved runs"
    for arguments in (
        ("compare", "a.json", "run.json"),
        ("compare", "run.json", "a.json"),
        ("report", "a.json", "run.json"),
    ):
        assert refused(*arguments) == line
    assert refused("report", "run.json", "--base", "a.json") == line
    assert (
        refused("report", "--base", "a.json")
        == "--base: 'a.json' is a trace; name the traces to compare with it"
    )


def test_files_that_cannot_be_compared(refused):
    trace("a.json")
    Path("folder").mkdir()
    Path("empty.json").touch()
    Path("empty.json.gz").touch()
    Path("cut.json").write_text(Path("a.json").read_text()[:-30], encoding="utf-8")
    Path("other.json").write_text("[1]", encoding="utf-8")
    for name, problem in {
        "none.json": "'none.json' does not exist; name a saved run or a trace",
        "none.json.gz": "'none.json.gz' does not exist",
        "folder": "'folder' is a folder; name one file in it",
        "empty.json": "empty.json: is empty",
        "empty.json.gz": "empty.json.gz: is empty",
        "cut.json": "cut.json: is not JSON",
        "other.json": "other.json: file: needs an object",
    }.items():
        assert refused("compare", name, "a.json").startswith(problem)
        assert refused("export", name).startswith(problem)


def test_one_trace_twice(refused):
    trace("a.json")
    assert (
        refused("compare", "a.json", "./a.json")
        == "'a.json' and './a.json' are one trace, a.json: name another base"
    )


def test_a_trace_has_no_parameters(refused):
    trace("a.json")
    trace("b.json")
    problem = refused("compare", "a.json", "b.json", "--between", "step=reference,fast")
    assert problem == "--between: traces have no parameters; leave it out"


def test_commands_about_saved_runs_name_a_trace(refused, run):
    trace("a.json")
    assert refused("history", "a.json").startswith("'a.json' is a trace, not a case of saved runs")
    for command in (("list",), ("history", "host")):
        assert refused(*command, "--storage", "a.json").startswith(
            "a.json is not a folder of saved runs"
        )
    Path(".benchmarks").mkdir()
    trace(".benchmarks/0001_a.json")
    _, _, err = run("list")
    assert "skipped: .benchmarks/0001_a.json: is a trace, no saved run" in err


# ---- traces of real machines ---------------------------------------------------------------------


@real_traces.needs_traces
@pytest.mark.parametrize(
    ("base", "head"), [("h100_bert_small", "mi300_bert_small"), ("diff_control", "diff_test")]
)
def test_no_line_about_two_real_machines_is_too_long_to_be_read(run, base, head, monkeypatch):
    monkeypatch.setattr("mnistbench.saved_runs.trace.analyse", real_traces.analysed_file)
    code, text, _ = run(
        "compare", real_traces.path(base), real_traces.path(head), "--across-machines"
    )
    assert code == EXIT_PASSED
    assert max(map(len, text.split("\n"))) < 300
