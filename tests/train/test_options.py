"""The command's options and what it prints; the runs themselves are test_lab_train's and integration/test_train's."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import environment

from mnistbench import cli
from mnistbench.core.errors import UsageError
from mnistbench.core.ranks import Rank
from mnistbench.measuring import tensorboard
from mnistbench.measuring.environment import accelerators
from mnistbench.train import options as train_options
from mnistbench.train import progress as train_progress
from mnistbench.train import run as lab
from mnistbench.train.result import WEIGHTS, EpochResult, Point, Settings

ALONE, SECOND = Rank(), Rank(rank=1, world_size=2, local_rank=1, local_world_size=2)

SMALL = ("--dataset", "digits", "--model", "lenet5", "--batch-size", "512", "--epochs", "1", "--threads", "1", "--no-accel")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lab, "read", lambda threads: environment(threads=threads))
    return tmp_path


def settings_of(*arguments: str) -> Settings:
    return train_options.settings_of(
        cli.parser().parse_args(["train", *arguments]), Settings(device="auto", save_checkpoint=True), ALONE
    )


# ---- Options ---------------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_pytorch_examples() -> None:
    parsed = settings_of()
    assert parsed == Settings(device="auto", save_checkpoint=True)
    assert (parsed.batch_size, parsed.test_batch_size, parsed.epochs, parsed.lr, parsed.gamma, parsed.seed) == (
        64, 1000, 14, 1.0, 0.7, 1,
    )  # fmt: skip
    assert (parsed.log_interval, parsed.dry_run, parsed.save_model, parsed.dataset) == (10, False, False, "mnist")


@pytest.mark.parametrize(
    ("given", "device", "step"),
    [
        (None, "cpu", "fast"), (None, "cuda:1", "reference"), (None, "mps", "reference"),
        ("fast", "cuda", "fast"), ("reference", "cpu", "reference"), ("reference", "mps", "reference"),
    ],
)  # fmt: skip
def test_the_fast_step_is_the_default_on_a_cpu(given: str | None, device: str, step: str) -> None:
    assert train_options.step_of(given, device, ALONE) == step


def test_a_fast_step_for_a_device_without_one_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--step: there is no fast step for mps; leave --step out$"):
        train_options.step_of("fast", "mps", ALONE)


@pytest.mark.parametrize(
    ("given", "flags", "dtype"),
    [
        ("auto", ["avx512f", "avx512_bf16"], "bfloat16"), ("auto", ["avx2", "avx512f"], "float32"), ("auto", [], "float32"),
        ("bfloat16", [], "bfloat16"), ("float32", ["amx_bf16"], "float32"),
    ],
)  # fmt: skip
def test_auto_is_bfloat16_where_the_processor_multiplies_it(
    given: str, flags: list[str], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cpuinfo.get_cpu_info", lambda: {"flags": flags})
    assert train_options.dtype_of(given, "cpu") == dtype


@pytest.mark.parametrize("native", [True, False])
def test_auto_is_bfloat16_where_the_gpu_multiplies_it(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda *, including_emulation: native or including_emulation)
    assert train_options.dtype_of("auto", "cuda:1") == ("bfloat16" if native else "float32")


def test_every_option_arrives() -> None:
    line = (
        "--batch-size 16 --test-batch-size 500 --epochs 3 --lr 0.5 --gamma 1 --dry-run --seed 0 --log-interval 2 --threads 2 "
        "--save-model --device cuda:1 --model lenet5 --dataset digits --data-dir d --profile --dtype bfloat16 "
        "--step reference"
    )
    given = settings_of(*line.split())
    assert given == Settings(
        model="lenet5", dataset="digits", data_dir="d", device="cuda:1", dtype="bfloat16", threads=2, batch_size=16,
        test_batch_size=500, epochs=3, lr=0.5, gamma=1.0, seed=0, log_interval=2, dry_run=True, save_model=True, profile=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "scalars", "images", "graph"),
    [
        ((), True, True, True),
        (("--tensorboard", "--save-graph"), True, True, True),
        (("--no-tensorboard",), False, False, False),
        (("--no-tensorboard", "--save-scalar"), True, False, False),
        (("--no-tensorboard", "--save-graph"), False, False, True),
        (("--no-tensorboard", "--save-graph", "--save-scalar"), True, False, True),
    ],
)
def test_what_tensorboard_gets(arguments: tuple[str, ...], scalars: bool, images: bool, graph: bool) -> None:
    given = settings_of(*arguments)
    assert (given.save_scalars, given.save_images, given.save_graph) == (scalars, images, graph)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--batch-size", "0"], "--batch-size: '0' cannot be used; give a whole number, at least 1"),
        (["--batch-size", "many"], "--batch-size: 'many' cannot be used; give a whole number, at least 1"),
        (["--batch-size", "6.5"], "--batch-size: '6.5' cannot be used; give a whole number, at least 1"),
        (["--batch-size", "9" * 19], f"--batch-size: '{'9' * 19}' cannot be used; give a whole number, 1 to 2147483648"),
        (["--test-batch-size", "-1"], "--test-batch-size: '-1' cannot be used; give a whole number, at least 1"),
        (["--epochs", "0"], "--epochs: '0' cannot be used; give a whole number, at least 1"),
        (["--log-interval", "0"], "--log-interval: '0' cannot be used; give a whole number, at least 1"),
        (["--seed", "-1"], "--seed: '-1' cannot be used; give a whole number, at least 0"),
        (["--seed", ""], "--seed: '' cannot be used; give a whole number, at least 0"),
        (["--threads", "0"], "--threads: '0' cannot be used; give a whole number, 1 to 1024"),
        (["--threads", "100000"], "--threads: '100000' cannot be used; give a whole number, 1 to 1024"),
        (["--lr", "nan"], "--lr: 'nan' cannot be used; give a number above 0"),
        (["--lr", "inf"], "--lr: 'inf' cannot be used; give a number above 0"),
        (["--lr", "0"], "--lr: '0' cannot be used; give a number above 0"),
        (["--lr", "fast"], "--lr: 'fast' cannot be used; give a number above 0"),
        (["--gamma", "-0.7"], "--gamma: '-0.7' cannot be used; give a number above 0"),
        (["--model", "resnet"], "--model: 'resnet' is not known; choose convnet or lenet5"),
        (["--dataset", "cifar"], "--dataset: 'cifar' is not known; choose digits or mnist"),
        (["--dtype", "float16"], "--dtype: 'float16' is not known; choose float32 or bfloat16 or auto"),
        (["--data-dir", ""], "--data-dir: '' is no value; give one, or leave the option out"),
        (["--output", " "], "--output: ' ' is no value; give one, or leave the option out"),
        (["--output", "file/run"], "--output: {here}/file is not a directory; name another directory"),
        (["--output", "full"], "--output: full is not empty; name a new one, or leave --output out"),
        (["--output", "x" * 300], "--output: " + "x" * 300 + " cannot be used (File name too long); name another directory"),
        (["--device", "abacus"], "--device: device 'abacus' is not known: use auto, cpu, cuda, cuda:1 or mps"),
        (
            ["--device", "cuda", "--no-accel"],
            "--device: 'cuda' and --no-accel (or --no-cuda) contradict each other; give one of them",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    (here / "file").touch()
    (here / "full").mkdir()
    (here / "full" / "result.json").touch()
    before = sorted(here.rglob("*"))
    assert cli.main(["train", "--dataset", "digits", *arguments]) == 2
    assert capsys.readouterr() == ("", f"mnistbench: {line.format(here=here)}\n")
    assert sorted(here.rglob("*")) == before


@pytest.mark.skipif(bool(accelerators()), reason="there is an accelerator here")
def test_a_device_that_is_not_here_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--dataset", "digits", "--device", "cuda"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("mnistbench: --device: device 'cuda' is not available: torch ")
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("present", "arguments", "device"),
    [
        (["cuda", "cuda:1"], [], "cuda"),
        (["cuda", "cuda:1"], ["--device", "cuda:1"], "cuda:1"),
        (["cuda", "cuda:1"], ["--device", "cpu"], "cpu"),
        (["cuda"], ["--no-cuda"], "cpu"),
        (["mps"], ["--no-accel", "--device", "cpu"], "cpu"),
        ([], [], "cpu"),
    ],
)
def test_the_accelerator_is_taken_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, present: list[str], arguments: list[str], device: str
) -> None:
    monkeypatch.setattr("mnistbench.measuring.environment.accelerators", lambda: present)
    parsed = cli.parser().parse_args(["train", *arguments])
    assert train_options.device_of(settings_of(*arguments).device, ALONE, no_accelerator=parsed.no_accel) == device


def test_each_rank_has_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mnistbench.measuring.environment.accelerators", lambda: ["cuda", "cuda:1"])
    assert train_options.device_of("auto", SECOND, no_accelerator=False) == "cuda:1"
    assert train_options.device_of("auto", SECOND, no_accelerator=True) == "cpu"


def test_ranks_share_the_cores_of_their_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mnistbench.train.options.usable_cpus", lambda: 5)
    assert [
        train_options.threads_of(None, SECOND),
        train_options.threads_of(3, SECOND),
        train_options.threads_of(None, ALONE),
    ] == [2, 3, None]


def test_the_graph_of_a_step_is_for_one_process() -> None:
    with pytest.raises(
        UsageError, match=r"^--step: the fast step of cuda:1 is for one process, not for ranks; leave --step out$"
    ):
        train_options.step_of("fast", "cuda:1", SECOND)


def test_batches_of_ranks_are_added() -> None:
    parsed = cli.parser().parse_args(["train", "--batch-size-per-rank", "24"])
    assert train_options.settings_of(parsed, Settings(), SECOND).batch_size == 48
    with pytest.raises(UsageError, match="exclude each other"):
        settings_of("--batch-size", "64", "--batch-size-per-rank", "64")


# ---- A run that is continued -----------------------------------------------------------------------------------------


@pytest.fixture
def begun(here: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert cli.main(["train", *SMALL, "--no-tensorboard", "--lr", "0.5", "--output", "run"]) == 0
    capsys.readouterr()
    return here / "run"


def test_a_run_continues_with_its_options(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--resume", "run", "--epochs", "2", "--lr", "0.5"]) == 0
    title, continuing, *_ = capsys.readouterr().out.splitlines()
    assert title.startswith("lenet5 on digits, cpu, 1 thread, float32, fast step, batch 512, 2 epochs, into run")
    assert continuing == "continuing after epoch 1"
    assert sorted(path.name for path in begun.iterdir()) == ["checkpoint.pt", "metrics.csv", "result.json"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "--resume: run has 1 epoch already; give more with --epochs"),
        (("--epochs", "2", "--lr", "1"), "--lr: 1.0 cannot continue run, which was trained with 0.5; leave --lr out"),
        (
            ("--epochs", "2", "--batch-size", "64"),
            "--batch-size: 64 cannot continue run, which was trained with 512; leave --batch-size out",
        ),
        (
            ("--epochs", "2", "--step", "reference"),
            "--step: reference cannot continue run, which was trained with fast; leave --step out",
        ),
        (("--output", "other"), "--output: 'other' is not the directory of --resume; leave --output out"),
    ],
)
def test_options_that_would_change_a_run_are_refused(
    begun: Path, arguments: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in begun.iterdir()}
    assert cli.main(["train", "--resume", "run", *arguments]) == 2
    assert capsys.readouterr().err == f"mnistbench: {problem}\n"
    assert {path.name: path.read_bytes() for path in begun.iterdir()} == before


def test_a_run_of_another_device_is_not_continued(
    begun: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mnistbench.measuring.environment.accelerators", lambda: ["mps"])
    assert cli.main(["train", "--resume", "run", "--epochs", "2", "--device", "mps"]) == 2
    assert capsys.readouterr().err == "mnistbench: --resume: run was trained on cpu, and this is mps; give --device cpu\n"


# ---- While it trains -------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


POINT = Point(epoch=1, step=10, samples=640, loss=0.25, accuracy=87.5, learning_rate=1.0, train_ns=500_000_000)
EPOCH = EpochResult(1, 10, 1.0, 640, 0.25, 87.5, 500_000_000)


def shown(terminal: io.StringIO, script: Callable[[Any], None]) -> tuple[str, str]:
    """What is printed to the output and to the terminal."""
    out = io.StringIO()
    with train_progress.Progress(Settings(epochs=2), out, terminal, []) as view:
        script(view)
    return out.getvalue(), terminal.getvalue()


def an_epoch(view: Any) -> None:
    view.begin(1280, 100)
    view.batch(640)
    view.point(POINT)
    view.epoch(EPOCH.tested(100, 0.0275, 99.14, 1_500_000_000))


EPOCH_LINE = "epoch 1/2: train loss 0.2500, accuracy 87.50 %; test loss 0.0275, accuracy 99.14 %; 2.00 s, 1,280 samples/s\n"


def test_lines_in_a_log() -> None:
    def script(view: Any) -> None:
        an_epoch(view)
        view.point(Point(2, 20, 640, None, None, 0.7, 1_000_000_000))
        view.point(Point(2, 30, 640, 0.5, 90.0, 0.7, 1_000_000_000))
        view.epoch(EPOCH)

    assert shown(io.StringIO(), script) == (
        "train epoch 1 [640/1280 (50 %)] loss 0.2500, accuracy 87.50 %, 1,280 samples/s\n"
        + EPOCH_LINE
        + "train epoch 2 [640/1280 (50 %)] loss not a number, accuracy -, 640 samples/s\n"
        "train epoch 2 [1280/1280 (100 %)] loss 0.5000, accuracy 90.00 %, 640 samples/s\n"
        "epoch 1/2, stopped after 640 samples: train loss 0.2500, accuracy 87.50 %; 500 ms, 1,280 samples/s\n",
        "",
    )


def test_a_bar_on_a_terminal_and_the_epochs_above_it() -> None:
    def script(view: Any) -> None:
        an_epoch(view)
        view._bar.refresh()  # which it does by itself every tenth of a second

    out, terminal = shown(Terminal(), script)
    assert out == EPOCH_LINE
    assert "epoch 1/2   0 %|" in terminal
    assert "epoch 1/2  25 %|" in terminal
    assert " samples/s, loss 0.2500, accuracy 87.50 %" in terminal
    assert " left" in terminal


def test_the_bar_of_a_run_that_is_continued_begins_where_the_run_is() -> None:
    terminal = Terminal()
    with train_progress.Progress(Settings(epochs=4), io.StringIO(), terminal, [], done=3) as view:
        view.begin(1280, 100)
    assert "epoch 4/4  75 %|" in terminal.getvalue()


def test_the_first_interrupt_is_noted_and_the_second_one_ends_everything() -> None:
    before = signal.getsignal(signal.SIGINT)
    with train_progress.interruptible(again=True) as received:
        os.kill(os.getpid(), signal.SIGINT)
        assert received == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_ranks_ignore_the_second_interrupt_which_torchrun_sends() -> None:
    with train_progress.interruptible(again=False) as received:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        assert received == [signal.SIGINT] * 2


# ---- When it is over -------------------------------------------------------------------------------------------------


def test_a_run_of_its_own_directory_and_where_to_look(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert cli.main(["train", *SMALL, "--dry-run", "--save-model", "--profile"]) == 0
    out, _ = capsys.readouterr()
    first, second = sorted((here / "runs").iterdir())
    assert {first.name[15:42], second.name[15:42]} == {"-lenet5-b512-cpu-fast-digit"}
    lines = out.splitlines()
    title = "lenet5 on digits, cpu, 1 thread, float32, fast step, batch 512, dry run: one batch, into runs/"
    assert lines[0].startswith(title)
    assert any(line.startswith("train epoch 1 [512/512 (100 %)] loss ") for line in lines)
    assert "step lenet5 on digits, cpu, float32, fast step: self CPU time per iteration" in lines
    assert any(line.endswith(": result.json, metrics.csv, mnist_cnn.pt, trace.json.gz") for line in lines)
    assert "TensorBoard: tensorboard --logdir runs" in lines
    assert any("--host 0.0.0.0" in line and "--bind_all" in line and "everybody" in line for line in lines)


def test_a_directory_that_was_named_is_made_and_looked_into(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", *SMALL, "--dry-run", "--output", "my runs/first"]) == 0
    assert "TensorBoard: tensorboard --logdir 'my runs/first'\n" in capsys.readouterr().out
    assert not (here / "my runs" / "first" / WEIGHTS).exists()  # nobody asked
    assert not (here / "runs").exists()


def test_without_tensorboard_nothing_points_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", *SMALL, "--dry-run", "--no-tensorboard", "--output", "run"]) == 0
    assert "ensor" not in capsys.readouterr().out
    assert sorted(path.name for path in (here / "run").iterdir()) == ["metrics.csv", "result.json"]


def test_training_that_diverged_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", *SMALL, "--lr", "1e30", "--no-tensorboard"]) == 0
    assert "the loss is not a number: training diverged; a smaller --lr than 1e+30 may not" in capsys.readouterr().out


def test_an_interrupt_ends_with_130_and_says_so(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = train_progress.Progress.begin

    def interrupted(self: Any, *samples: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        begin(self, *samples)

    monkeypatch.setattr(train_progress.Progress, "begin", interrupted)
    assert cli.main(["train", *SMALL, "--save-model", "--output", "run"]) == 130
    assert "interrupted; the files have the steps before the interruption" in capsys.readouterr().out
    assert (here / "run" / WEIGHTS).exists()


def test_an_interrupt_before_training_ends_with_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(tensorboard, "new_directory", interrupted)
    assert cli.main(["train", *SMALL]) == 130
    assert capsys.readouterr().err == "mnistbench: interrupted\n"
