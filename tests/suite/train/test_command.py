"""The options of ``mnistbench train`` and what it prints.

The runs themselves are those of test_run and test_processes.
"""

from __future__ import annotations

import io
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from builders import environment

from mnistbench import cli
from mnistbench.core.errors import UsageError
from mnistbench.core.options import read
from mnistbench.suite.measuring import tensorboard
from mnistbench.suite.train import command
from mnistbench.suite.train import run as training
from mnistbench.suite.train.report import TrainingProgress
from mnistbench.suite.train.result import (
    CHECKPOINT,
    METRICS,
    RESULT,
    TRACE,
    WEIGHTS,
    EpochResult,
    Point,
    Settings,
)
from mnistbench.suite.workloads.torchrun import Rank

ALONE = Rank()
SECOND = Rank(rank=1, world_size=2, local_rank=1, local_world_size=2)

SMALL = (
    "--dataset",
    "digits",
    "--model",
    "lenet5",
    "--batch-size",
    "512",
    "--epochs",
    "1",
    "--threads",
    "1",
    "--no-accel",
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "read", lambda threads: environment(threads=threads))
    return tmp_path


def settings_of(*arguments: str) -> Settings:
    return read(Settings, vars(cli.parser("train").parse_args(["train", *arguments])))


# ---- Options -------------------------------------------------------------------------------------


def test_defaults_are_those_of_pytorch_examples() -> None:
    settings = settings_of()
    assert (
        settings.batch_size,
        settings.test_batch_size,
        settings.epochs,
        settings.lr,
        settings.gamma,
        settings.seed,
    ) == (
        64,
        1000,
        14,
        1.0,
        0.7,
        1,
    )
    assert (settings.log_interval, settings.dry_run, settings.save_model, settings.dataset) == (
        10,
        False,
        False,
        "mnist",
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--output", "file/run"],
            "--output: {here}/file is not a directory; name another directory",
        ),
        (
            ["--output", "full"],
            "--output: full is not empty; name a new one, or leave --output out",
        ),
        (
            ["--resume", "run", "--output", "other"],
            "--output: 'other' is not the directory of --resume; leave --output out",
        ),
        (
            ["--device", "abacus"],
            "--device: device 'abacus' is not known: use auto, cpu, cuda, cuda:1 or mps",
        ),
        (
            ["--device", "cuda", "--no-accel"],
            (
                "--device: 'cuda' and --no-accel (or --no-cuda) contradict each other; give one "
                "of them"
            ),
        ),
        (
            ["--batch-size", "64", "--batch-size-per-rank", "64"],
            "--batch-size and --batch-size-per-rank exclude each other; give one of them",
        ),
    ],
)
def test_an_option_that_cannot_be_used_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    (here / "file").touch()
    (here / "full").mkdir()
    (here / "full" / "result.json").touch()
    before = sorted(here.rglob("*"))
    assert cli.main(["train", "--dataset", "digits", *arguments]) == 2
    assert capsys.readouterr() == ("", f"mnistbench: {line.format(here=here)}\n")
    assert sorted(here.rglob("*")) == before


# ---- What they mean on a machine and for a rank --------------------------------------------------


def resolved(rank: Rank = ALONE, **changes: Any) -> Settings:
    return command.resolved(Settings(**changes), rank)


@pytest.mark.parametrize(
    ("present", "options", "device"),
    [
        (["cuda", "cuda:1"], {}, "cuda"),
        (["cuda", "cuda:1"], {"device": "cuda:1"}, "cuda:1"),
        (["cuda", "cuda:1"], {"device": "cpu"}, "cpu"),
        (["cuda"], {"no_accel": True}, "cpu"),
        (["mps"], {"no_accel": True, "device": "cpu"}, "cpu"),
        ([], {}, "cpu"),
        (["cuda", "cuda:1"], {"rank": SECOND}, "cuda:1"),
        (["cuda", "cuda:1"], {"rank": SECOND, "no_accel": True}, "cpu"),
    ],
)
def test_the_accelerator_is_the_default_and_each_rank_has_its_own(
    monkeypatch: pytest.MonkeyPatch, present: list[str], options: dict[str, Any], device: str
) -> None:
    monkeypatch.setattr("mnistbench.suite.measuring.environment.accelerators", lambda: present)
    assert resolved(**options).device == device


@pytest.mark.parametrize(
    ("option", "device", "step"),
    [
        ("auto", "cpu", "fast"),
        ("auto", "cuda:1", "reference"),
        ("auto", "mps", "reference"),
        ("fast", "cpu", "fast"),
        ("reference", "cpu", "reference"),
        ("reference", "mps", "reference"),
    ],
)
def test_the_fast_step_is_the_default_on_a_cpu(
    option: str, device: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mnistbench.suite.measuring.environment.accelerators", lambda: [device])
    assert resolved(step=option, device=device).step == step


def test_the_fast_step_is_refused_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mnistbench.suite.measuring.environment.accelerators", lambda: ["mps"])
    with pytest.raises(UsageError, match=r"not for mps; give --step reference$"):
        resolved(step="fast")


@pytest.mark.parametrize(
    ("option", "native", "dtype"),
    [
        ("auto", True, "bfloat16"),
        ("auto", False, "float32"),
        ("bfloat16", False, "bfloat16"),
        ("float32", True, "float32"),
    ],
)
def test_auto_is_bfloat16_where_the_hardware_multiplies_it(
    option: str, native: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mnistbench.suite.measuring.environment.multiplies_bfloat16", lambda _: native
    )
    assert resolved(dtype=option, device="cpu").dtype == dtype


def test_ranks_share_the_cores_of_their_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "usable_cpus", lambda: 5)
    threads = [
        resolved(rank, no_accel=True, threads=option).threads
        for rank, option in ((SECOND, None), (SECOND, 3), (ALONE, None))
    ]
    assert threads == [2, 3, None]


# ---- A run that is continued ---------------------------------------------------------------------


@pytest.mark.parametrize(("step", "is_told"), [("fast", True), ("reference", False)])
def test_without_numba_a_line_tells_how_to_get_a_faster_step(
    step: str, is_told: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mnistbench.suite.workloads.compiled.loops", lambda: None)
    assert cli.main(["train", *SMALL, "--dry-run", "--step", step]) == 0
    assert ("pip install 'mnistbench[fast]'" in capsys.readouterr().out) == is_told


@pytest.fixture
def begun(here: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert cli.main(["train", *SMALL, "--lr", "0.5", "--output", "run"]) == 0
    capsys.readouterr()
    return here / "run"


def test_a_run_continues_with_its_options_and_others_are_refused(
    begun: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as machine:
        machine.setattr("mnistbench.suite.measuring.environment.accelerators", lambda: ["mps"])
        check_refusals(begun, capsys)
    assert cli.main(["train", "--resume", "run", "--epochs", "2", "--lr", "0.5"]) == 0
    title, continuing, *_ = capsys.readouterr().out.splitlines()
    assert title.startswith(
        "lenet5 on digits, cpu, 1 thread, float32, fast step, batch 512, 2 epochs, into run"
    )
    assert continuing == "continuing after epoch 1"
    assert {path.name for path in begun.iterdir()} >= {CHECKPOINT, METRICS, RESULT}


def check_refusals(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that options which would change a run are refused, and leave its files as they are."""
    before = {path.name: path.read_bytes() for path in begun.iterdir()}
    for arguments, problem in {
        (): "--resume: run has 1 epoch already; give more with --epochs",
        (
            "--epochs",
            "2",
            "--lr",
            "1",
        ): "--lr: 1.0 cannot continue run, which was trained with 0.5; leave --lr out",
        ("--epochs", "2", "--batch-size-per-rank", "64"): (
            "--batch-size: 64 cannot continue run, which was trained with 512; leave --batch-size "
            "out"
        ),
        ("--epochs", "2", "--step", "reference"): (
            "--step: reference cannot continue run, which was trained with fast; leave --step out"
        ),
        (
            "--epochs",
            "2",
            "--device",
            "mps",
        ): "--resume: the run was trained on cpu, and this is mps; give --device cpu",
    }.items():
        assert cli.main(["train", "--resume", "run", *arguments]) == 2
        assert capsys.readouterr().err == f"mnistbench: {problem}\n"
    assert {path.name: path.read_bytes() for path in begun.iterdir()} == before


def test_the_recipe_of_a_run_decides_whether_it_may_have_more_epochs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--dataset", "digits", "--batch-size", "512", "--threads", "1", "--no-accel")
    assert cli.main(["train", "--recipe", "fastest", *small, "--output", "run"]) == 0
    assert capsys.readouterr().out.startswith("smallnet on digits, cpu, 1 thread, ")
    assert cli.main(["train", "--resume", "run", "--epochs", "2"]) == 2
    assert capsys.readouterr().err == (
        "mnistbench: --epochs: 2 cannot continue run, which has 1, because the learning rates of "
        "recipe fastest follow from it; leave --epochs out\n"
    )


# ---- While it trains -----------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


POINT = Point(
    epoch=1, step=10, samples=640, loss=0.25, accuracy=87.5, learning_rate=1.0, train_ns=500_000_000
)
EPOCH = EpochResult(1, 10, 1.0, 640, 0.25, 87.5, 500_000_000)
EPOCH_LINE = (
    "epoch 1/2: train loss 0.2500, accuracy 87.50 %; test loss 0.0275, accuracy 99.14 %; 2.00 s, "
    "1,280 samples/s\n"
)


def shown_of_an_epoch(terminal: io.StringIO, *later: Point | EpochResult) -> str:
    """Return what is printed; the bar is on the terminal."""
    out = io.StringIO()
    with closing(TrainingProgress(Settings(epochs=2), [], out, terminal)) as view:
        view.begin(1280)
        view.batch(640)
        for event in (POINT, EPOCH.tested(100, 0.0275, 99.14, 1_500_000_000), *later):
            (view.point if isinstance(event, Point) else view.epoch)(event)  # type: ignore[arg-type]
    return out.getvalue()


def test_lines_in_a_log() -> None:
    log = io.StringIO()
    second = (
        Point(2, 20, 640, None, None, 0.7, 1_000_000_000),
        Point(2, 30, 640, 0.5, 90.0, 0.7, 1_000_000_000),
    )
    assert shown_of_an_epoch(log, *second, EPOCH) == (
        "train epoch 1 [640/1280 (50 %)] loss 0.2500, accuracy 87.50 %, 1,280 samples/s\n"
        + EPOCH_LINE
        + "train epoch 2 [640/1280 (50 %)] loss not a number, accuracy -, 640 samples/s\n"
        "train epoch 2 [1280/1280 (100 %)] loss 0.5000, accuracy 90.00 %, 640 samples/s\n"
        "epoch 1/2, stopped after 640 samples: train loss 0.2500, accuracy 87.50 %; 500 ms, 1,280 "
        "samples/s\n"
    )
    assert log.getvalue() == ""


def test_a_bar_on_a_terminal_and_the_epochs_above_it() -> None:
    terminal = Terminal()
    assert shown_of_an_epoch(terminal) == EPOCH_LINE
    assert "  0 % |" in terminal.getvalue()
    # The rate of a clock that does not run is so long that the text is cut.
    assert "epoch 1/2, loss 0.2500, accuracy" in terminal.getvalue()
    continued = Terminal()
    with closing(
        TrainingProgress(Settings(epochs=4), [], io.StringIO(), continued, done=3)
    ) as view:
        view.begin(1280)
    assert " 75 % |" in continued.getvalue()
    assert "epoch 4/4" in continued.getvalue()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_interrupt_is_recorded_and_the_second_one_raises(number: int) -> None:
    before = signal.getsignal(number)
    with command.interruptible(again=True) as received:
        os.kill(os.getpid(), number)
        assert received == [number]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_ranks_ignore_the_second_interrupt_which_torchrun_sends() -> None:
    with command.interruptible(again=False) as received:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        assert received == [signal.SIGINT] * 2
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


# ---- When it is over -----------------------------------------------------------------------------


def test_each_run_has_its_own_directory_and_the_end_lists_its_files(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert cli.main(["train", *SMALL, "--dry-run", "--save-model", "--profile"]) == 0
    out, _ = capsys.readouterr()
    first, second = sorted((here / "runs").iterdir())
    assert {first.name[15:42], second.name[15:42]} == {"-lenet5-b512-cpu-fast-digit"}
    lines = out.splitlines()
    title = (
        "lenet5 on digits, cpu, 1 thread, float32, fast step, batch 512, dry run: one batch, into "
        "runs/"
    )
    assert lines[0].startswith(title)
    assert any(line.startswith("train epoch 1 [512/512 (100 %)] loss ") for line in lines)
    assert "step lenet5 on digits, cpu, float32, fast step: self CPU time per iteration" in lines
    assert any(line.endswith(f": {RESULT}, {METRICS}, {WEIGHTS}, {TRACE}") for line in lines)
    assert "TensorBoard: tensorboard --logdir runs" in lines
    assert any(
        "--host 0.0.0.0" in line and "--bind_all" in line and "everybody" in line for line in lines
    )


def test_a_named_directory_is_made_and_training_that_diverged_is_reported(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", *SMALL, "--lr", "1e30", "--output", "my runs/first"]) == 0
    out = capsys.readouterr().out
    assert "TensorBoard: tensorboard --logdir 'my runs/first'\n" in out
    assert not (here / "my runs" / "first" / WEIGHTS).exists()  # --save-model was not given
    assert not (here / "runs").exists()
    assert "the loss is not a number: training diverged; a smaller --lr than 1e+30 may not" in out


def test_an_interrupt_ends_with_130(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = TrainingProgress.begin

    def interrupted(self: Any, samples: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        begin(self, samples)

    monkeypatch.setattr(TrainingProgress, "begin", interrupted)
    assert cli.main(["train", *SMALL, "--save-model", "--output", "run"]) == 130
    assert (
        "interrupted; the files have the steps before the interruption" in capsys.readouterr().out
    )
    assert (here / "run" / WEIGHTS).exists()


def test_an_interrupt_before_training_ends_with_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(tensorboard, "new_directory", interrupted)
    assert cli.main(["train", *SMALL]) == 130
    assert capsys.readouterr().err == "mnistbench: interrupted\n"
