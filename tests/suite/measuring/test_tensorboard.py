"""Curves as TensorBoard reads them back, against the record.

And what happens to what cannot be drawn.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from drawing_elsewhere import drawn_alike
from torch import Tensor, nn
from torch_builders import (
    PIXELS,
    TEST_SAMPLES,
    LossSpy,
    Untraceable,
    no_bar,
    read_back,
    scalars_in,
    tiny_model,
    tiny_params,
    tiny_set,
    tiny_workload,
    whole_tiny_set,
)

from mnistbench.core.errors import first_line
from mnistbench.core.record import MAX_POINTS
from mnistbench.suite.measuring import tensorboard as tracking
from mnistbench.suite.measuring.case import build
from mnistbench.suite.measuring.tensorboard import Tracker, new_directory
from mnistbench.suite.workloads.data import Batch
from mnistbench.suite.workloads.step import Inference, evaluate
from mnistbench.suite.workloads.workload import Workload, number_correct

pytestmark = pytest.mark.versions


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training run of eight batches of four."""
    monkeypatch.setattr(tracking, "CURVE_SAMPLES", 30)


def as_float32(points: Iterable[tuple[int, float | None]]) -> list[tuple[int, float]]:
    """What TensorBoard keeps of a curve."""
    return [(step, torch.tensor(value).item()) for step, value in points if value is not None]


with_set = tiny_workload(load=whole_tiny_set, dataset="tiny")


# ---- Training curves -----------------------------------------------------------------------------


def test_tensorboard_has_the_curves_of_the_record(tmp_path: Path) -> None:
    scalars, notes = Tracker(tmp_path, no_bar).training(tiny_params(), with_set)
    assert scalars_in(scalars.directory) == {
        tag: as_float32(points) for tag, points in scalars.curves.items()
    }
    assert (notes, scalars.dataset) == ((), "synthetic")
    assert {tag: [step for step, _ in points] for tag, points in scalars.curves.items()} == {
        "train/loss": list(range(1, 9)),
        "train/accuracy": list(range(1, 9)),
        "test/loss": [8],
        "test/accuracy": [8],
    }
    assert scalars.final == {tag: points[-1][1] for tag, points in scalars.curves.items()}


def test_values_are_those_of_the_training_that_a_case_does() -> None:
    """The first loss is the case's: the same weights, the same batch, the same dropout masks."""
    spies = LossSpy(), LossSpy()
    scalars, _ = Tracker(None, no_bar).training(tiny_params(), tiny_workload(loss=spies[0]))
    build(tiny_params(), tiny_workload(loss=spies[1]))()
    assert spies[0].values[0] == spies[1].values[0]
    assert [value for _, value in scalars.curves["train/loss"]] == pytest.approx(spies[0].values)


def test_a_dataset_of_any_name_has_a_folder_of_one_printable_name(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path / "runs", no_bar)
    for dataset in ("x/../../y", "x .. .. y", "a\n\u202eb", "synthetic"):
        scalars = tracker.rounds(tiny_params(dataset=dataset), (1.0,), 1)
        assert scalars.dataset == dataset
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert len(names) == 4
    assert all(name.isprintable() for name in names)


def test_final_test_values_are_those_of_the_trained_model() -> None:
    models: list[nn.Module] = []

    def make_model() -> nn.Module:
        models.append(tiny_model())
        return models[0]

    workload = dataclasses.replace(with_set, make_model=make_model)
    scalars, _ = Tracker(None, no_bar).training(tiny_params(), workload)
    whole = tiny_set()
    expected = evaluate(
        Inference(models[0]),
        [whole.batch(whole.test, torch.arange(TEST_SAMPLES))],
        loss=workload.loss,
        metric=number_correct,
    )
    assert scalars.final["test/loss"] == pytest.approx(expected.loss)
    assert scalars.final["test/accuracy"] == pytest.approx(expected.accuracy)


@pytest.mark.parametrize(
    ("workload", "curves"),
    [
        (tiny_workload(), {"train/loss", "train/accuracy"}),
        (dataclasses.replace(with_set, metric=None), {"train/loss", "test/loss"}),
    ],
    ids=["without a dataset", "without a metric"],
)
def test_a_workload_without_a_dataset_or_a_metric_has_fewer_curves(
    workload: Workload, curves: set[str]
) -> None:
    scalars, _ = Tracker(None, no_bar).training(tiny_params(), workload)
    assert set(scalars.curves) == curves


@pytest.mark.parametrize(
    ("batch_size", "steps"), [(1, 32), (64, 32), (100, 29), (2000, 2), (5000, 1)]
)
def test_length_of_a_run_and_of_its_curve(
    monkeypatch: pytest.MonkeyPatch, batch_size: int, steps: int
) -> None:
    monkeypatch.setattr(tracking, "CURVE_SAMPLES", 2874)
    spy = LossSpy()
    scalars, _ = Tracker(None, no_bar).training(
        tiny_params(batch_size=batch_size), tiny_workload(loss=spy)
    )
    curve = scalars.curves["train/loss"]
    assert len(spy.values) == steps
    assert [step for step, _ in curve] == list(range(1, steps + 1))


def test_progress_gets_the_number_of_batches_and_the_case() -> None:
    told: list[tuple[int, str]] = []
    shown: list[Batch] = []

    @contextmanager
    def progress(
        batches: Iterable[Batch], total: int, description: str
    ) -> Iterator[Iterable[Batch]]:
        told.append((total, description))
        yield (shown.append(batch) or batch for batch in batches)

    Tracker(None, progress).training(tiny_params(), tiny_workload())
    assert told == [(8, "training tiny-b4-cpu on synthetic")]
    assert [len(targets) for _, targets in shown] == [4] * 8


def test_a_run_is_made_once_and_shared_by_step_and_train() -> None:
    models: list[int] = []

    def make_model() -> nn.Module:
        models.append(1)
        return tiny_model()

    tracker = Tracker(None, no_bar)
    workload = dataclasses.replace(with_set, make_model=make_model)
    step_run = tracker.training(tiny_params(phase="step"), workload)
    train_run = tracker.training(tiny_params(phase="train"), workload)
    assert models == [1]
    assert step_run == train_run


@pytest.mark.parametrize(
    "changes", [{"batch_size": 8}, {"dtype": "bfloat16"}, {"seed": 2}, {"dataset": "other"}]
)
def test_another_case_has_a_run_of_its_own(tmp_path: Path, changes: dict[str, Any]) -> None:
    tracker = Tracker(tmp_path, no_bar)
    first, _ = tracker.training(tiny_params(), tiny_workload())
    changed, _ = tracker.training(tiny_params(**changes), tiny_workload())
    assert first.directory != changed.directory
    assert scalars_in(first.directory) == {
        tag: as_float32(points) for tag, points in first.curves.items()
    }
    assert scalars_in(changed.directory) == {
        tag: as_float32(points) for tag, points in changed.curves.items()
    }


def test_training_restores_the_random_state() -> None:
    before = torch.random.get_rng_state()
    Tracker(None, no_bar).training(tiny_params(), with_set)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_bfloat16_trains_and_is_tested_under_autocast() -> None:
    spy = LossSpy()
    scalars, _ = Tracker(None, no_bar).training(
        tiny_params(dtype="bfloat16"), dataclasses.replace(with_set, loss=spy)
    )
    assert set(spy.output_dtypes) == {torch.bfloat16}
    assert set(spy.dtypes) == {torch.float32}
    assert scalars.final["test/loss"] == pytest.approx(spy.values[-1])


# ---- Images and graph ----------------------------------------------------------------------------


def test_writing_the_graph_does_not_change_the_model(tmp_path: Path) -> None:
    models: list[nn.Module] = []

    def make_model() -> nn.Module:
        models.append(tiny_model())
        return models[0]

    scalars, _ = Tracker(tmp_path, no_bar).training(
        tiny_params(), tiny_workload(make_model=make_model)
    )
    assert read_back(scalars.directory).Tags()["graph"]
    assert models[0].training
    assert all(parameter.requires_grad for parameter in models[0].parameters())


@pytest.mark.parametrize("batch_size", [4, 100])
def test_a_grid_of_64_images_is_shown_whatever_the_batch_size(
    tmp_path: Path, batch_size: int
) -> None:
    scalars, _ = Tracker(tmp_path, no_bar).training(tiny_params(batch_size=batch_size), with_set)
    reader = read_back(scalars.directory)
    assert reader.Tags()["images"] == ["inputs/synthetic"]
    (image,) = reader.Images("inputs/synthetic")
    assert image.width * image.height == 64 * PIXELS


def vectors(batch_size: int, device: torch.device, generator: torch.Generator) -> Batch:
    return torch.randn(batch_size, PIXELS, generator=generator), torch.randint(
        3, (batch_size,), generator=generator
    )


def many_channels(batch_size: int, device: torch.device, generator: torch.Generator) -> Batch:
    return torch.randn(batch_size, PIXELS, 1, 1, generator=generator), torch.randint(
        3, (batch_size,), generator=generator
    )


@pytest.mark.parametrize("make_batch", [vectors, many_channels])
def test_inputs_that_are_no_images_are_not_shown(
    tmp_path: Path, make_batch: Callable[..., Batch]
) -> None:
    scalars, notes = Tracker(tmp_path, no_bar).training(
        tiny_params(), tiny_workload(make_batch=make_batch)
    )
    tags = read_back(scalars.directory).Tags()
    assert tags["images"] == []
    assert tags["graph"]
    assert notes == ()


def test_images_without_contrast_are_shown_too(tmp_path: Path) -> None:
    def blank(batch_size: int, *_: object) -> Batch:
        return torch.zeros(batch_size, 1, 4, 4), torch.zeros(batch_size, dtype=torch.int64)

    scalars, notes = Tracker(tmp_path, no_bar).training(
        tiny_params(), tiny_workload(make_batch=blank)
    )
    assert read_back(scalars.directory).Tags()["images"]
    assert notes == ()


class Uncopyable(Untraceable):
    def __deepcopy__(self, memo: object) -> Any:
        raise TypeError


@pytest.mark.parametrize(
    ("make_model", "note"),
    [
        (Untraceable, "no model graph: RuntimeError: cannot be traced"),
        (Uncopyable, "no model graph: TypeError: no message"),
    ],
)
def test_a_graph_that_cannot_be_made_is_a_note(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    make_model: Callable[[], nn.Module],
    note: str,
) -> None:
    workload = dataclasses.replace(with_set, make_model=make_model)
    Tracker(tmp_path / "before", no_bar).rounds(tiny_params(), (1,), 1)  # what imports print
    capfd.readouterr()
    scalars, notes = Tracker(tmp_path / "run", no_bar).training(tiny_params(), workload)
    assert capfd.readouterr() == ("", "")
    assert notes == (note,)
    reader = read_back(scalars.directory)
    assert reader.Tags()["graph"] is False
    assert reader.Tags()["images"]
    assert scalars_in(scalars.directory) == {
        tag: as_float32(points) for tag, points in scalars.curves.items()
    }


def test_a_graph_that_succeeds_prints_and_warns_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    Tracker(tmp_path, no_bar).training(tiny_params(), with_set)
    assert capfd.readouterr() == ("", "")
    assert [str(warning.message) for warning in recwarn] == []


# ---- Losses that are no numbers ------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("tensorboard", [True, False])
def test_a_loss_that_is_not_finite_is_none(tmp_path: Path, bad: float, tensorboard: bool) -> None:
    calls = 0

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        value = nn.functional.nll_loss(output, targets)
        return value + bad if calls in (3, 8) else value  # whose gradient is finite

    scalars, notes = Tracker(tmp_path if tensorboard else None, no_bar).training(
        tiny_params(), tiny_workload(loss=loss)
    )
    values = dict(scalars.curves["train/loss"])
    assert [step for step, value in values.items() if value is None] == [3, 8]
    assert scalars.final["train/loss"] is None
    assert scalars.final["train/accuracy"] is not None
    assert notes == ()
    if tensorboard:
        assert scalars_in(scalars.directory)["train/loss"] == as_float32(
            scalars.curves["train/loss"]
        )


# ---- Rounds --------------------------------------------------------------------------------------


def test_rounds_are_time_per_call_and_samples_per_second(tmp_path: Path) -> None:
    scalars = Tracker(tmp_path, no_bar).rounds(
        tiny_params(phase="forward"), (2_000_000, 500_000), 64
    )
    assert scalars.curves == {
        "timing/ms_per_iteration": ((1, 2.0), (2, 0.5)),
        "timing/samples_per_second": ((1, 32_000.0), (2, 128_000.0)),
    }
    assert scalars.final == {"timing/ms_per_iteration": 0.5, "timing/samples_per_second": 128_000.0}
    assert scalars.dataset == "synthetic"
    assert scalars_in(scalars.directory) == {
        tag: list(points) for tag, points in scalars.curves.items()
    }


def test_many_rounds_are_thinned_in_the_record_and_whole_in_tensorboard(tmp_path: Path) -> None:
    rounds = tuple(range(1_000_000, 1_250_000, 1_000))
    scalars = Tracker(tmp_path, no_bar).rounds(tiny_params(phase="forward"), rounds, 1)
    curve = scalars.curves["timing/ms_per_iteration"]
    assert len(curve) == MAX_POINTS
    assert (curve[0][0], curve[-1][0]) == (1, len(rounds))
    written = scalars_in(scalars.directory)["timing/ms_per_iteration"]
    assert [step for step, _ in written] == list(range(1, len(rounds) + 1))
    assert set(as_float32(curve)) <= set(written)


# ---- Directories ---------------------------------------------------------------------------------


def test_every_run_has_a_directory_of_its_own_named_for_the_case(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path, no_bar)
    all_scalars = [
        tracker.training(tiny_params(), tiny_workload())[0],
        tracker.rounds(tiny_params(phase="forward"), (1_000,), 4),
        tracker.rounds(tiny_params(phase="eval"), (1_000,), 4),
        tracker.rounds(tiny_params(phase="forward", batch_size=16, device="cuda:1"), (1_000,), 16),
    ]
    assert [
        Path(scalars.directory).relative_to(tmp_path).as_posix() for scalars in all_scalars
    ] == [
        "training-tiny-b4-cpu-synthetic",
        "forward-tiny-b4-cpu-synthetic",
        "eval-tiny-b4-cpu-synthetic",
        "forward-tiny-b16-cuda1-synthetic",
    ]
    assert all(len(list(Path(scalars.directory).iterdir())) == 1 for scalars in all_scalars)


def test_two_tests_of_the_same_case_do_not_share_a_curve(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path, no_bar)
    first, second = (
        tracker.rounds(tiny_params(phase="forward"), rounds, 1)
        for rounds in ((1_000_000,), (3_000_000,))
    )
    assert scalars_in(first.directory)["timing/ms_per_iteration"] == [(1, 1.0)]
    assert scalars_in(second.directory)["timing/ms_per_iteration"] == [(1, 3.0)]


def test_without_tensorboard_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tracker = Tracker(None, no_bar)
    trained, notes = tracker.training(tiny_params(), with_set)
    timed = tracker.rounds(tiny_params(phase="forward"), (1_000_000,), 4)
    assert (trained.directory, timed.directory, notes) == ("", "", ())
    assert timed.final["timing/ms_per_iteration"] == 1.0
    assert list(tmp_path.iterdir()) == []
    written, _ = Tracker(tmp_path, no_bar).training(tiny_params(), with_set)
    assert dataclasses.replace(written, directory="") == trained


def test_a_directory_has_the_time_as_its_name_and_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.strftime", lambda _: "20261120-103105")
    root = tmp_path / "not" / "there"
    directories = [new_directory(root) for _ in range(3)]
    assert [directory.name for directory in directories] == [
        "20261120-103105",
        "20261120-103105-1",
        "20261120-103105-2",
    ]
    assert all(directory.is_dir() for directory in directories)
    (root / "20261120-103105-3").write_text("a file in the way")
    assert new_directory(root).name == "20261120-103105-4"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("\n  one  \ntwo"), "one  "),
        (ValueError(), "no message"),
        (ValueError(" \n "), "no message"),
    ],
)
def test_first_line_of_an_error(error: Exception, line: str) -> None:
    assert first_line(error) == line


#: Draws misclassified images, in a process that has not imported matplotlib.
MISCLASSIFIED = """
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

from mnistbench.suite.measuring.tensorboard import write_misclassified


def add_figure(_, figure, step):
    figure.savefig("drawn.png")


writer = SimpleNamespace(add_figure=add_figure, add_text=lambda *_: None)
images = torch.arange(2 * 8 * 8, dtype=torch.uint8).reshape(2, 1, 8, 8)
write_misclassified(writer, "digits", images, [3, 4], [5, 6], of="2 of 9", step=1)
"""


@pytest.mark.versions
@pytest.mark.parametrize("content", [b"text.usetex: True\nfont.size: 3\n", b"\xff"])
def test_a_matplotlibrc_of_the_current_directory_decides_nothing(
    tmp_path: Path, content: bytes
) -> None:
    assert drawn_alike(tmp_path, MISCLASSIFIED, "drawn.png", content)
