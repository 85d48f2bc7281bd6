"""The script that checks a machine with an accelerator.

Its frame runs short programs here, in the place of its parts.
"""

import contextlib
import gzip
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"

#: Runs parts whose programs are the arguments after OUT and SECONDS, in its own process: it kills
#: all that descend from it.
RUN = """
import os, sys, time
from pathlib import Path
import accelerator

accelerator.GRACE_S, accelerator.KILL_S = 0.5, 1.0
accelerator.supervise()
parts = [
    accelerator.Part(
        name,
        f"part {name}",
        lambda _, program=program: (sys.executable, "-c", program),
        least_s=0.1,
        most_s=float(most_s),
        figure=accelerator.last_line,
        needs_device=name.startswith("device"),
    )
    for name, most_s, program in (word.split("=", 2) for word in sys.argv[3:])
]
deadline = time.monotonic() + float(sys.argv[2])
sys.exit(accelerator.Run(Path(sys.argv[1]), parts, dict(os.environ), "# Stubs", deadline).all())
"""


@pytest.fixture
def accelerator(monkeypatch):
    monkeypatch.syspath_prepend(str(EVIDENCE))
    return importlib.import_module("accelerator")


@pytest.fixture
def key_averages(monkeypatch):
    monkeypatch.syspath_prepend(str(EVIDENCE))
    return importlib.import_module("key_averages")


@contextlib.contextmanager
def started(folder, *parts, seconds=60):
    """Start a run of parts; each is its name, its most seconds and its program.

    Yield its process.
    """
    words = [f"{name}={most_s}={textwrap.dedent(program)}" for name, most_s, program in parts]
    command = [sys.executable, "-c", RUN, str(folder), str(seconds), *words]
    environment = {**os.environ, "PYTHONPATH": str(EVIDENCE)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        yield process


def finished(folder, *parts, seconds=60):
    """Run parts to their end; return the exit code."""
    with started(folder, *parts, seconds=seconds) as process:
        process.communicate(timeout=60)
        return process.returncode


def rows(folder):
    """Return result and figure of each part of a summary, by the name of its log."""
    lines = (folder / "summary.md").read_text(encoding="utf-8").splitlines()
    table = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in lines
        if line.startswith("| part ")
    ]
    return {
        cells[-1].removesuffix(".log"): (cells[1], cells[3])
        for cells in table
        if cells[0] != "part"
    }


def is_running(number):
    """Whether a process runs; one that has ended and still has an entry does not."""
    stat = Path(f"/proc/{number}/stat")
    return stat.exists() and stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"


# ---- Running parts -------------------------------------------------------------------------------


def test_a_part_that_fails_or_hangs_ends_neither_the_run_nor_the_summary(tmp_path):
    hangs = f"""
        import signal, subprocess, sys, time
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
        child = subprocess.Popen(sleep, start_new_session=True)
        open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
        print("it hangs", flush=True)
        time.sleep(60)
    """
    code = finished(
        tmp_path,
        ("good", 20, "print('a figure')"),
        ("bad", 20, "raise SystemExit('no such thing')"),
        ("hangs", 3, hangs),
        ("last", 20, "print('another figure')"),
    )
    assert code == 1
    row_of = rows(tmp_path)
    assert row_of["good"] == ("ok", "a figure")
    assert row_of["bad"] == ("failed", "no such thing")
    assert (row_of["hangs"][0], row_of["hangs"][1].rpartition(": ")[2]) == ("stopped", "it hangs")
    assert row_of["last"] == ("ok", "another figure")
    assert not is_running(int((tmp_path / "child").read_text()))


def test_a_stopped_part_can_report_what_it_has(tmp_path):
    program = """
        import time
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            print("half of it")
    """
    assert finished(tmp_path, ("slow", 2, program)) == 1
    assert rows(tmp_path)["slow"][1].endswith("half of it")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_a_summary(tmp_path, number):
    parts = (
        ("good", 20, "print('a figure')"),
        ("long", 60, "import time; time.sleep(60)"),
        ("last", 20, ""),
    )
    with started(tmp_path, *parts) as process:
        while "long: part long" not in process.stdout.readline():
            pass
        time.sleep(0.5)  # its process starts
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 130
    row_of = rows(tmp_path)
    assert [row_of[name][0] for name in ("good", "long", "last")] == [
        "ok",
        "interrupted",
        "not run",
    ]


def test_without_the_device_its_parts_are_not_run(tmp_path):
    code = finished(
        tmp_path,
        ("02-environment", 20, "print('torch sees no CUDA device'); raise SystemExit(1)"),
        ("device-tests", 20, "print('a figure')"),
        ("other", 20, "print('a figure')"),
    )
    assert code == 1
    row_of = rows(tmp_path)
    assert row_of["device-tests"] == ("not run", "torch sees no CUDA device")
    assert row_of["other"] == ("ok", "a figure")


def test_a_part_is_not_started_without_time(tmp_path):
    assert finished(tmp_path, ("late", 20, "print('a figure')"), seconds=1) == 1
    assert rows(tmp_path)["late"] == ("not run", "no time was left")


def test_a_part_leaves_later_ones_their_least(accelerator):
    def part(least_s, most_s):
        return accelerator.Part("name", "what", lambda _: (), least_s, most_s, str)

    stopping_s = accelerator.GRACE_S + accelerator.KILL_S
    parts = [part(20, 100), part(60, 300), part(40, 50)]
    assert accelerator.limit_of(parts, 0, 500) == 100
    assert accelerator.limit_of(parts, 0, 150) == 150 - 60 - 40 - stopping_s
    assert accelerator.limit_of(parts, 1, 500) == 300
    # Too little for both: its own least.
    assert accelerator.limit_of(parts, 1, 90) == 60 - stopping_s
    assert accelerator.limit_of(parts, 2, 30) == 30 - stopping_s
    assert accelerator.limit_of(parts, 2, 10) < 0


# ---- What parts say ------------------------------------------------------------------------------


def test_tests_that_are_all_skipped_give_the_reason(accelerator):
    skipped = (
        "$ pytest\nSKIPPED [13] tests/gpu/test_cuda.py:90: needs a CUDA device\n===== 14 skipped "
        "in 2.18s =====\n"
    )
    passed = (
        "$ pytest\nSKIPPED [1] tests/gpu/test_cuda.py:214: needs two\n===== 13 passed, 1 skipped, "
        "9 deselected in 61.2s =====\n"
    )
    failed = "$ pytest\n===== 1 failed, 12 passed, 1 skipped in 61.20s (0:01:01) =====\n"
    assert accelerator.tests_figure(skipped) == "skipped: needs a CUDA device (14 skipped)"
    assert accelerator.tests_figure(passed) == "13 passed, 1 skipped"
    assert accelerator.tests_figure(failed) == "1 failed, 12 passed, 1 skipped"


def test_the_figure_of_a_suite_has_its_steps(accelerator, tmp_path):
    text = "$ pytest\n===== 3 passed in 61.2s =====\n"
    saved = tmp_path / "results.json"
    assert accelerator.suite_figure(saved, text) == "3 passed"  # it was stopped before it saved
    medians = {"test_forward[b1]": 0.001, "test_step[b1]": 0.00123456, "test_step[b64]": 0.02}
    benchmarks = [{"name": name, "stats": {"median": median}} for name, median in medians.items()]
    saved.write_text(json.dumps({"benchmarks": benchmarks}), encoding="utf-8")
    assert (
        accelerator.suite_figure(saved, text)
        == "3 passed; test_step[b1] 1.23 ms; test_step[b64] 20 ms"
    )


def test_the_figure_of_a_compiled_suite_has_its_names(accelerator, tmp_path):
    text = "$ pytest\n===== 1 passed in 61.2s =====\n"
    saved = tmp_path / "results.json"
    names = ["fused add, mul", "aten::mm", f"## Call CompiledFxGraph {'f' * 52} ##"]
    table = {"temperature": "warm", "operations": json.dumps({"name": names})}
    record = {"tables": [table], "compilation": json.dumps({"cuda_graphs": "used"})}
    benchmark = {"name": "x", "stats": {"median": 1}, "extra_info": {"mnistbench": record}}
    saved.write_text(json.dumps({"benchmarks": [benchmark]}), encoding="utf-8")
    assert accelerator.compiled_figure(saved, text) == (
        "1 passed; 1 names of fused kernels; 1 names without meaning; CUDA graphs used"
    )


def test_the_figure_of_a_gate_is_its_sentence(accelerator):
    sentence = "regressed: 1 case (step, +5.0 %)"
    text = f"$ mnistbench gate\nregressed: wall time (step), +5.0 %\nVerdict:\n{sentence}\n\n"
    assert accelerator.gate_figure(text) == sentence
    assert accelerator.gate_figure("$ mnistbench gate\nmnistbench: cannot be measured\n") == ""


def test_the_figure_of_training_has_each_arm_and_what_was_missing(accelerator):
    table = (
        "| arm | whole command | ratio to the first |",
        "| peer | 10.2 s | 1.00 | |",
        "| fast | 4.1 s | 0.40 | 1 ms |",
    )
    text = "\n".join(("$ training.py", *table))
    assert accelerator.training_figure("", text) == "peer 10.2 s (1.00), fast 4.1 s (0.40)"
    assert accelerator.training_figure("on digits", text).endswith("; on digits")


def test_operations_are_compared_by_calls_and_times(key_averages):
    ours = {
        "aten::mm": key_averages.Sums(2, 100.0, 30.0),
        "aten::add": key_averages.Sums(3, 10.0, 5.0),
    }
    theirs = {
        "aten::mm": key_averages.Sums(2, 101.5, 30.0),
        "cudaLaunchKernel": key_averages.Sums(5),
    }
    [missing] = key_averages.differences(ours, theirs, "device_ns")  # two calls: 1.5 ns is rounding
    assert missing.startswith("aten::add: ")
    theirs["aten::add"] = key_averages.Sums(4, 20.0, 5.0)
    assert [
        line.partition(":")[0] for line in key_averages.differences(ours, theirs, "host_ns")
    ] == []
    for quantity in ("calls", "device_ns"):
        [line] = key_averages.differences(ours, theirs, quantity)
        assert line.startswith("aten::add: ")


# ---- What is carried -----------------------------------------------------------------------------


def mnist(accelerator, folder):
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in accelerator.MNIST_FILES:
        (raw / name).write_text(name, encoding="utf-8")
    return folder


@pytest.fixture
def without_pip(accelerator, monkeypatch):
    """Return the commands that would run pip."""
    commands = []

    def run(command, check):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(accelerator.subprocess, "run", run)
    return commands


def test_what_is_prepared_is_found_with_mnist_unpacked(
    accelerator, without_pip, tmp_path, monkeypatch
):
    monkeypatch.delenv("MNISTBENCH_DATA", raising=False)
    (tmp_path / "main.py").write_text("print()", encoding="utf-8")
    data = mnist(accelerator, tmp_path / "data")
    prepared = tmp_path / "prepared"
    arguments = [
        "prepare",
        str(prepared),
        "--data",
        str(data),
        "--peer",
        str(tmp_path / "main.py"),
        "--packages",
        "platformdirs",
    ]
    assert accelerator.main(arguments) == 0
    assert without_pip[0][-1] == "platformdirs"
    name = accelerator.MNIST_FILES[0]
    assert (
        gzip.decompress((prepared / "MNIST" / "raw" / f"{name}.gz").read_bytes()).decode() == name
    )
    (prepared / "wheels" / "platformdirs-4.2-py3-none-any.whl").touch()
    carried = accelerator.carried_in(prepared)
    assert [wheel.name for wheel in carried.wheels] == ["platformdirs-4.2-py3-none-any.whl"]
    assert carried.peer == prepared / "main.py"
    accelerator.unpack(tmp_path / "scratch", prepared)
    unpacked = tmp_path / "scratch" / "MNIST" / "raw"
    assert {path.name: path.read_text() for path in unpacked.iterdir()} == {
        name: name for name in accelerator.MNIST_FILES
    }


def test_without_a_prepared_folder_mnist_is_that_of_the_environment(
    accelerator, tmp_path, monkeypatch
):
    data = mnist(accelerator, tmp_path / "data")
    monkeypatch.setenv("MNISTBENCH_DATA", str(data))
    assert accelerator.carried_in(None) == accelerator.Carried(raw=data / "MNIST" / "raw")
    assert accelerator.environ_of(tmp_path, accelerator.carried_in(None))["MNISTBENCH_DATA"] == str(
        tmp_path
    )
    monkeypatch.delenv("MNISTBENCH_DATA")
    assert accelerator.carried_in(None) == accelerator.Carried()


def test_only_wheels_that_are_needed_are_installed(
    accelerator, without_pip, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        accelerator, "unmet", lambda: {"tabulate": "0.8 is installed, and >=0.9 is needed"}
    )
    names = ("pytest_benchmark-5.3.1", "tabulate-0.9", "no_such_package-1.0")
    accelerator.install(
        tmp_path / "site", [tmp_path / f"{name}-py3-none-any.whl" for name in names]
    )
    [command] = without_pip
    assert [Path(word).name for word in command if word.endswith(".whl")] == [
        "tabulate-0.9-py3-none-any.whl",
        "no_such_package-1.0-py3-none-any.whl",
    ]
    assert "2 of 3 wheels are needed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "out", "--carried", "nowhere"], "--carried: nowhere is not a folder"),
        (["run", "out", "--parts", "10-tea"], "invalid choice: '10-tea'"),
        (["prepare", "folder", "--data", "nowhere"], "--data: nowhere has no folder MNIST/raw"),
    ],
)
def test_a_wrong_argument_is_one_line(accelerator, capsys, arguments, line):
    with pytest.raises(SystemExit, match="2"):
        accelerator.main(arguments)
    assert line in capsys.readouterr().err


# ---- The longer step -----------------------------------------------------------------------------


def test_the_head_of_the_second_gate_waits_for_five_percent_of_its_step(
    accelerator, tmp_path, monkeypatch
):
    accelerator.copy_trees(tmp_path)
    texts = {
        name: (tmp_path / name / "mnistbench/suite/workloads/step.py").read_text()
        for name in ("base", "same", "slower")
    }
    assert texts["base"] == texts["same"]
    spec = importlib.util.spec_from_file_location(
        "slower_step", tmp_path / "slower" / "mnistbench/suite/workloads/step.py"
    )
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "slower_step", module)
    spec.loader.exec_module(module)
    model = torch.nn.Linear(2, 2)
    step = module.Step(
        model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1)
    )
    readings = []

    def perf_counter():
        readings.append(float(len(readings)))
        return readings[-1]

    with monkeypatch.context() as clock:
        clock.setattr(time, "perf_counter", perf_counter)
        step(torch.ones(1, 2), torch.ones(1, 2))
    began, ended, *waited = readings
    until = began + 1.05 * (ended - began)
    assert waited[-1] >= until
    assert all(reading < until for reading in waited[:-1])
