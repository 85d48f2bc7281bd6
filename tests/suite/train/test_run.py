"""A training run: what it reaches, tells, writes and leaves behind when it is stopped."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from real_mnist import needs_mnist
from torch import Tensor, nn
from torch_builders import (
    CPU,
    TEST_SAMPLES,
    TRAIN_SAMPLES,
    read_back,
    scalars_in,
    tiny_model,
    tiny_set,
    tiny_workload,
    whole_tiny_set,
)

from mnistbench.core.errors import UsageError
from mnistbench.suite.train import run as training
from mnistbench.suite.train.result import (
    DONE,
    INTERRUPTED,
    METRICS,
    RESULT,
    TRACE,
    WEIGHTS,
    EpochResult,
    Listener,
    Point,
    Result,
    Settings,
)
from mnistbench.suite.train.run import run
from mnistbench.suite.workloads.workload import workload_of_ranks

pytestmark = pytest.mark.usefixtures("known_machine")

#: 20 training samples at batch 6: batches of 6, 6, 6 and 2; 12 test samples at batch 5: 5, 5 and 2.
SETTINGS = Settings(
    model="tiny",
    dataset="tiny",
    device="cpu",
    step="reference",
    batch_size=6,
    test_batch_size=5,
    epochs=2,
    lr=0.5,
    gamma=0.5,
    log_interval=3,
    threads=1,
)
BATCHES = 4
TEST_BATCHES = 3
WORKLOAD = tiny_workload(load=whole_tiny_set, dataset="tiny")


class Heard(Listener):
    """Keeps what it is told; stops after that many questions."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.calls: list[Any] = []
        self._asked = 0
        self._stop_after = stop_after

    def begin(self, train_samples: int) -> None:
        self.calls.append((train_samples,))

    def batch(self, samples: int) -> None:
        self.calls.append(samples)

    def point(self, point: Point) -> None:
        self.calls.append(point)

    def epoch(self, epoch: EpochResult) -> None:
        self.calls.append(epoch)

    def stop(self) -> bool:
        self._asked += 1
        return self._stop_after is not None and self._asked >= self._stop_after

    def of(self, kind: type) -> list[Any]:
        return [call for call in self.calls if isinstance(call, kind)]


def trained(output: Path | None = None, listener: Listener | None = None, **changes: Any) -> Result:
    return run(dataclasses.replace(SETTINGS, **changes), output, listener, WORKLOAD)


def saved_in(directory: Path) -> Any:
    return json.loads((directory / RESULT).read_text(encoding="utf-8"))


def losses(result: Result) -> list[tuple[float | None, float | None]]:
    return [(epoch.train_loss, epoch.test_loss) for epoch in result.epochs]


# ---- What it reaches -----------------------------------------------------------------------------


def test_epochs_are_the_sums_of_their_points() -> None:
    heard = Heard()
    result = trained(listener=heard)
    points = heard.of(Point)
    epochs = heard.of(EpochResult)
    assert result.outcome == DONE
    assert list(result.epochs) == epochs
    assert [(point.epoch, point.step, point.samples) for point in points] == [
        (1, 3, 18),
        (1, 4, 2),
        (2, 7, 18),
        (2, 8, 2),
    ]
    assert [
        (epoch.number, epoch.step, epoch.train_samples, epoch.test_samples) for epoch in epochs
    ] == [
        (1, 4, TRAIN_SAMPLES, TEST_SAMPLES),
        (2, 8, TRAIN_SAMPLES, TEST_SAMPLES),
    ]
    for epoch, (long, short) in zip(epochs, (points[:2], points[2:]), strict=True):
        assert epoch.train_loss == pytest.approx((18 * long.loss + 2 * short.loss) / 20)
        assert epoch.train_accuracy == pytest.approx((18 * long.accuracy + 2 * short.accuracy) / 20)
        assert epoch.train_ns == long.train_ns + short.train_ns
        assert 0 < epoch.train_ns < result.wall_ns
        assert 0 < epoch.test_ns < result.wall_ns


def test_the_listener_gets_all_events_in_order() -> None:
    heard = Heard()
    trained(listener=heard, epochs=1)
    kinds = [type(call).__name__ for call in heard.calls]
    assert heard.calls[0] == (TRAIN_SAMPLES,)
    assert kinds == ["tuple", "int", "int", "Point", "int", "int", "Point", "EpochResult"]
    assert heard.of(int) == [6, 6, 6, 2]


def test_the_same_settings_give_the_same_losses_with_and_without_a_directory(
    tmp_path: Path,
) -> None:
    assert losses(trained()) == losses(trained(tmp_path, profile=True, save_model=True))
    assert losses(trained()) != losses(trained(seed=2))
    assert losses(trained()) != losses(trained(dtype="bfloat16"))


@pytest.mark.versions
def test_random_generators_and_threads_are_restored() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    trained(threads=2)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == 1


@pytest.mark.versions
def test_training_is_the_same_as_in_pytorch_examples() -> None:
    """Adadelta, StepLR after each epoch, the mean loss of a batch.

    The same weights as plain torch code leaves.
    """
    settings = Settings(
        model="lenet5",
        dataset="digits",
        device="cpu",
        step="reference",
        epochs=2,
        batch_size=512,
        threads=1,
    )
    result = run(settings)
    workload = workload_of_ranks(settings.model, settings.dataset, settings.data_dir, 1)
    assert workload.load is not None
    whole = workload.load(CPU)
    order = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    model = workload.make_model()
    torch.manual_seed(1)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    tests = []
    for _ in range(2):
        model.train()
        for inputs, targets in whole.epoch(whole.train, 512, order):
            optimizer.zero_grad()
            nn.functional.nll_loss(model(inputs), targets).backward()
            optimizer.step()
        schedule.step()
        inputs, targets = next(iter(whole.epoch(whole.test, 1000)))
        with torch.no_grad():
            tests.append(nn.functional.nll_loss(model.eval()(inputs), targets).item())
    assert [epoch.test_loss for epoch in result.epochs] == pytest.approx(tests, rel=1e-5)


@pytest.mark.versions
def test_the_learning_rate_of_a_recipe_rises_and_falls_over_all_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = Heard()
    updates = list[float]()
    before = torch.optim.SGD.step

    def step(optimizer: torch.optim.SGD) -> None:
        updates.append(optimizer.param_groups[0]["lr"])
        before(optimizer)

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    trained(listener=heard, recipe="fastest", log_interval=1)
    rates = [
        0.5 * share for share in (4 / 9, 8 / 9, 8 / 9, 20 / 27, 16 / 27, 12 / 27, 8 / 27, 4 / 27)
    ]  # 8 steps, a quarter rises
    assert updates == pytest.approx(rates)
    assert [point.learning_rate for point in heard.of(Point)] == pytest.approx(rates)


def test_a_dry_run_is_one_batch_of_each() -> None:
    heard = Heard()
    result = trained(listener=heard, dry_run=True)
    assert heard.calls[0] == (6,)
    assert heard.of(int) == [6]
    assert [(epoch.train_samples, epoch.test_samples) for epoch in result.epochs] == [(6, 5)]
    assert result.outcome == DONE


def test_each_epoch_trains_in_train_mode_and_is_tested_in_eval_mode() -> None:
    model = tiny_model().eval()
    modes = []
    model.register_forward_hook(lambda module, *_: modes.append(module.training))
    run(SETTINGS, workload=dataclasses.replace(WORKLOAD, make_model=lambda: model, metric=None))
    assert modes == ([True] * BATCHES + [False] * TEST_BATCHES) * 2


def test_without_a_metric_there_is_no_accuracy() -> None:
    [*_, epoch] = run(SETTINGS, workload=dataclasses.replace(WORKLOAD, metric=None)).epochs
    assert epoch.train_accuracy is epoch.test_accuracy is None


@pytest.mark.parametrize(
    ("dataset", "epochs", "percent"),
    [
        ("digits", 2, 85),
        pytest.param("digits", 10, 95, marks=pytest.mark.thorough),
        pytest.param("mnist", 1, 98, marks=[pytest.mark.thorough, needs_mnist]),  # takes a minute
    ],
)
def test_accuracy_that_training_reaches(dataset: str, epochs: int, percent: int) -> None:
    """On one thread, it is the same every time."""
    *_, last = run(
        Settings(dataset=dataset, device="cpu", step="reference", epochs=epochs, threads=1)
    ).epochs
    assert last.test_accuracy is not None
    assert last.test_accuracy >= percent


def test_a_model_that_is_not_known() -> None:
    with pytest.raises(
        UsageError, match=r"^model 'resnet' is unknown; choose one of convnet, lenet5, smallnet$"
    ):
        run(dataclasses.replace(SETTINGS, model="resnet"))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_memory_that_does_not_suffice_is_one_line(error: RuntimeError) -> None:
    def loss(output: Tensor, targets: Tensor) -> Tensor:
        raise error

    with pytest.raises(
        UsageError,
        match=(
            r"^memory of cpu does not suffice for batches of 6, in tests of 5: choose a smaller "
            r"batch size$"
        ),
    ):
        run(SETTINGS, workload=dataclasses.replace(WORKLOAD, loss=loss))


def test_another_error_is_raised_unchanged() -> None:
    def loss(output: Tensor, targets: Tensor) -> Tensor:
        raise RuntimeError("a shape does not fit")

    with pytest.raises(RuntimeError, match="a shape does not fit"):
        run(SETTINGS, workload=dataclasses.replace(WORKLOAD, loss=loss))


@pytest.mark.versions
def test_a_loss_that_is_not_finite_is_none_and_the_run_continues(tmp_path: Path) -> None:
    def loss(output: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.nll_loss(output, targets) * float("nan")

    result = run(SETTINGS, tmp_path, workload=dataclasses.replace(WORKLOAD, loss=loss))
    assert losses(result) == [(None, None)] * 2
    assert saved_in(tmp_path) == json.loads(json.dumps(result.to_json()))
    assert "train/loss" not in scalars_in(tmp_path)


# ---- What it writes ------------------------------------------------------------------------------


def test_without_a_directory_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert trained(save_model=True, profile=True).scalars.directory == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.versions
def test_tensorboard_has_what_the_result_has(tmp_path: Path) -> None:
    heard = Heard()
    result = trained(tmp_path, heard)
    curves = scalars_in(tmp_path)
    points = heard.of(Point)
    epochs = heard.of(EpochResult)
    seen = list(itertools.accumulate(point.samples for point in points))
    tested = [seen[1], seen[3]]
    assert {tag: [step for step, _ in curve] for tag, curve in curves.items()} == {
        "train/loss": seen,
        "train/accuracy": seen,
        "train/learning_rate": seen,
        "train/samples_per_second": seen,
        "test/loss": tested,
        "test/accuracy": tested,
    }
    values = {tag: [value for _, value in curve] for tag, curve in curves.items()}
    assert values["train/loss"] == pytest.approx([point.loss for point in points])
    assert values["train/accuracy"] == pytest.approx([point.accuracy for point in points])
    assert values["train/learning_rate"] == pytest.approx([0.5, 0.5, 0.25, 0.25])
    assert values["train/samples_per_second"] == pytest.approx(
        [point.samples * 1e9 / point.train_ns for point in points]
    )
    assert values["test/loss"] == pytest.approx([epoch.test_loss for epoch in epochs])
    assert values["test/accuracy"] == pytest.approx([epoch.test_accuracy for epoch in epochs])
    steps = {tag: [step for step, _ in curve] for tag, curve in result.scalars.curves.items()}
    assert steps == {
        tag: [1, 2] if tag in ("test/loss", "test/accuracy") else [3, 4, 7, 8] for tag in curves
    }
    assert result.scalars.directory == str(tmp_path)


def test_curves_of_all_batch_sizes_end_after_the_same_number_of_images(tmp_path: Path) -> None:
    ends = set()
    for size in (1, 6, 20):
        trained(tmp_path / str(size), batch_size=size)
        ends |= {curve[-1][0] for curve in scalars_in(tmp_path / str(size)).values()}
    assert len(ends) == 1


@pytest.mark.versions
def test_images_graph_and_what_was_misclassified(tmp_path: Path) -> None:
    result = trained(tmp_path, save_model=True)
    reader = read_back(tmp_path)
    assert reader.Tags()["graph"]
    assert any("[hidden]" in node.name for node in reader.Graph().node)
    assert set(reader.Tags()["images"]) == {"inputs/tiny", "misclassified/tiny"}
    output, targets = outputs_of(tmp_path)
    wrong = int((output.argmax(dim=1) != targets).sum())
    [image] = reader.Images("misclassified/tiny")
    assert image.step == 40  # images seen in two epochs
    assert (image.width, image.height) == (min(8, wrong) * 90, -(-wrong // 8) * 125)
    [text] = reader.Tensors("misclassified/tiny/text_summary")
    shown_text = text.tensor_proto.string_val[0].decode()
    first = (
        f"{wrong} of 12 test images were misclassified. The grid of the same name shows the first "
        f"{wrong}: "
    )
    assert shown_text.startswith(first)
    assert re.search(r"'(\d) as (\d)' is a \1 that was taken for a \2\.$", shown_text)
    assert result.epochs[-1].test_accuracy == pytest.approx(100 * (12 - wrong) / 12)


def outputs_of(directory: Path) -> tuple[Tensor, Tensor]:
    """The outputs of the saved weights for the test images, and their labels.

    By plain torch code.
    """
    model = tiny_model()
    model.load_state_dict(torch.load(directory / WEIGHTS, weights_only=True))
    whole = tiny_set()
    inputs, targets = whole.batch(whole.test, torch.arange(TEST_SAMPLES))
    with torch.no_grad():
        return model.eval()(inputs), targets


@pytest.mark.versions
def test_a_text_is_written_if_nothing_was_misclassified(tmp_path: Path) -> None:
    class Right(nn.Module):
        """Knows the labels.

        Each image is filled with its number, which begins at 100 in the test set.
        """

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, images: Tensor) -> Tensor:
            numbers = (images[:, 0, 0, 0] * 0.5 + 0.25).mul(255).round().long()
            labels = torch.where(numbers >= 100, numbers - 100, numbers) % 3
            return nn.functional.one_hot(labels, 3) * self.scale

    run(SETTINGS, tmp_path, workload=dataclasses.replace(WORKLOAD, make_model=Right))
    reader = read_back(tmp_path)
    assert reader.Tags()["images"] == ["inputs/tiny"]
    [text] = reader.Tensors("misclassified/tiny/text_summary")
    assert text.tensor_proto.string_val == [b"0 of 12 test images were misclassified."]


def test_metrics_have_every_point_and_test(tmp_path: Path) -> None:
    heard = Heard()
    trained(tmp_path, heard)
    with (tmp_path / METRICS).open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["part"], row["epoch"], row["step"]) for row in rows] == [
        ("train", "1", "3"),
        ("train", "1", "4"),
        ("test", "1", "4"),
        ("train", "2", "7"),
        ("train", "2", "8"),
        ("test", "2", "8"),
    ]
    for row, point in zip(
        [row for row in rows if row["part"] == "train"], heard.of(Point), strict=True
    ):
        assert (float(row["loss"]), float(row["accuracy"]), int(row["ns"])) == (
            point.loss,
            point.accuracy,
            point.train_ns,
        )
    for row, epoch in zip(
        [row for row in rows if row["part"] == "test"], heard.of(EpochResult), strict=True
    ):
        assert (float(row["loss"]), float(row["accuracy"]), int(row["ns"])) == (
            epoch.test_loss,
            epoch.test_accuracy,
            epoch.test_ns,
        )


@pytest.mark.versions
def test_weights_are_those_that_were_tested(tmp_path: Path) -> None:
    result = trained(tmp_path, save_model=True)
    output, targets = outputs_of(tmp_path)
    assert nn.functional.nll_loss(output, targets).item() == pytest.approx(
        result.epochs[-1].test_loss
    )


@pytest.mark.versions
def test_the_trace_and_the_operations_are_of_training_steps(tmp_path: Path) -> None:
    result = trained(tmp_path, profile=True)
    events = json.loads(gzip.decompress((tmp_path / TRACE).read_bytes()))["traceEvents"]
    assert {"aten::addmm", "mnistbench.phase:backward"} <= {event.get("name") for event in events}
    assert saved_in(tmp_path) == json.loads(json.dumps(result.to_json()))
    assert result.profiled is not None
    [table] = result.profiled.tables
    assert len(table.iteration_ns) == training.PROFILED_STEPS
    assert ("aten::addmm", "forward", "hidden") in {row.key for row in table.rows}
    assert {row.phase for row in table.rows} >= {"forward", "backward", "optimizer"}


# ---- Stopped -------------------------------------------------------------------------------------


def test_a_run_that_is_stopped_saves_what_it_has(tmp_path: Path) -> None:
    heard = Heard(stop_after=2)
    result = trained(tmp_path, heard, save_model=True, profile=True)
    assert heard.of(int) == [6, 6]  # the batch in which it was stopped is the last
    assert result.outcome == INTERRUPTED
    [epoch] = result.epochs
    assert (epoch.number, epoch.step, epoch.train_samples) == (1, 2, 12)
    assert (epoch.test_samples, epoch.test_loss, epoch.test_accuracy) == (0, None, None)
    assert saved_in(tmp_path) == json.loads(json.dumps(result.to_json()))
    assert result.profiled is None
    assert not (tmp_path / TRACE).exists()
    assert set(torch.load(tmp_path / WEIGHTS, weights_only=True)) == set(tiny_model().state_dict())
    assert [step for step, _ in scalars_in(tmp_path)["train/loss"]] == [12]
    assert read_back(tmp_path).Tags()["images"] == ["inputs/tiny"]


#: A run is asked after each batch, before the test, in the test, and after it.
ASKED_PER_EPOCH = BATCHES + 1 + TEST_BATCHES + 1


@pytest.mark.parametrize("stop_after", [BATCHES, BATCHES + 1, BATCHES + 2, ASKED_PER_EPOCH])
def test_an_incomplete_test_is_not_a_result(stop_after: int, tmp_path: Path) -> None:
    result = trained(tmp_path, Heard(stop_after))
    [epoch] = result.epochs
    assert (epoch.train_samples, epoch.test_samples, epoch.test_loss) == (TRAIN_SAMPLES, 0, None)
    assert result.outcome == INTERRUPTED
    assert "test/loss" not in scalars_in(tmp_path)


def test_a_run_stopped_in_a_later_epoch_keeps_the_tests_before(tmp_path: Path) -> None:
    result = trained(tmp_path, Heard(stop_after=ASKED_PER_EPOCH + 1))
    assert [(epoch.number, epoch.train_samples, epoch.test_samples) for epoch in result.epochs] == [
        (1, TRAIN_SAMPLES, TEST_SAMPLES),
        (2, 6, 0),
    ]
    assert result.outcome == INTERRUPTED


@pytest.mark.versions
def test_the_device_is_synchronized_once_per_log_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a number of a tensor is what waits.

    Two are read per interval and per test: loss and accuracy.
    """
    reads: list[int] = []
    for name in ("item", "__float__", "__int__", "__bool__", "tolist"):
        plain = getattr(Tensor, name)
        monkeypatch.setattr(
            Tensor, name, lambda self, *, plain=plain: reads.append(1) or plain(self)
        )

    class Quiet(torch.optim.SGD):
        """Without torch's own bookkeeping, which reads numbers too."""

        def step(self, closure: Any = None) -> None:
            with torch.no_grad():
                for group in self.param_groups:
                    for parameter in group["params"]:
                        parameter.sub_(parameter.grad)

    workload = dataclasses.replace(
        WORKLOAD, make_optimizer=lambda parameters: Quiet(parameters, lr=0.5)
    )
    for interval, windows in ((1, BATCHES), (BATCHES, 1)):
        reads.clear()
        run(dataclasses.replace(SETTINGS, epochs=1, log_interval=interval), workload=workload)
        assert len(reads) == 2 * windows + 2
