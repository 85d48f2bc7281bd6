"""What a user brings, and the two workloads that are there already."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch_builders import CPU, generator, tiny_set, tiny_workload

from mnistbench.core.errors import UsageError
from mnistbench.core.params import FAST, Params
from mnistbench.suite.workloads import data
from mnistbench.suite.workloads.workload import (
    ConvNet,
    LeNet5,
    SmallNet,
    Workload,
    builtin_workloads,
    number_correct,
    params_of,
)

pytestmark = pytest.mark.versions


def test_a_case_has_the_name_and_the_dataset_of_its_workload() -> None:
    workload = tiny_workload(name="mine", dataset="stars")
    assert params_of(workload, "step", 8, "cpu", threads=2, seed=3) == Params(
        workload="mine",
        phase="step",
        batch_size=8,
        device="cpu",
        dtype="float32",
        threads=2,
        compile=False,
        seed=3,
        dataset="stars",
    )
    changed = params_of(
        workload, "eval", 8, "cpu", threads=2, seed=3, dtype="bfloat16", compiled=True, step=FAST
    )
    assert (changed.phase, changed.dtype, changed.compile, changed.step) == (
        "eval",
        "bfloat16",
        True,
        FAST,
    )


@pytest.mark.parametrize(
    ("arguments", "compiled", "settings"),
    [
        (None, True, ""),
        ({"mode": "default"}, True, ""),
        ({"fullgraph": True, "mode": "max-autotune"}, True, "max-autotune,fullgraph"),
        ({"backend": "aot_eager", "dynamic": True}, True, "dynamic,backend=aot_eager"),
        ({"fullgraph": True}, False, ""),
    ],
)
def test_a_compiled_case_has_the_settings_of_its_workload(
    arguments: dict[str, Any] | None, compiled: bool, settings: str
) -> None:
    workload = tiny_workload(compile=arguments)
    params = params_of(workload, "step", 8, "cpu", threads=1, seed=1, compiled=compiled)
    assert (params.compile, params.compile_with) == (compiled, settings)


def test_wrong_arguments_of_the_compiler_are_refused() -> None:
    with pytest.raises(UsageError) as refusal:
        tiny_workload(name="mine", compile={"modus": "fast"})
    assert str(refusal.value) == (
        "workload 'mine': compile has 'modus'; choose of mode, dynamic, fullgraph, backend, options"
    )


@pytest.mark.parametrize("name", ["convnet", "lenet5", "my_model", "Net2", "7"])
def test_a_name_has_letters_digits_and_underscores(name: str) -> None:
    assert tiny_workload(name=name).name == name


@pytest.mark.parametrize("name", ["", "my-model", "net[1]", "net\n"])
def test_a_name_that_a_selection_could_not_use_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as refusal:
        tiny_workload(name=name)
    assert (
        str(refusal.value)
        == f"workload name {name!r}: use letters, digits and underscores, so that -k can select it"
    )


@pytest.mark.parametrize(
    ("outputs", "targets", "correct"),
    [
        ([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], [1, 0, 1], 3),
        ([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], [1, 1, 0], 1),
        ([[0.1, 0.9]], [0], 0),
    ],
)
def test_number_correct_counts_the_samples_whose_largest_output_is_the_target(
    outputs: list[list[float]], targets: list[int], correct: int
) -> None:
    counted = number_correct(torch.tensor(outputs), torch.tensor(targets))
    assert counted.shape == ()
    assert counted.item() == correct


def test_the_builtin_workloads_by_name() -> None:
    workloads = builtin_workloads("mnist", "nowhere")
    assert [workload.dataset for workload in workloads] == ["mnist", "mnist", "mnist"]
    models = {"convnet": ConvNet, "lenet5": LeNet5, "smallnet": SmallNet}
    assert {workload.name: type(workload.make_model()) for workload in workloads} == models


WORKLOADS = builtin_workloads("digits", None)
each_workload, each_example = (
    pytest.mark.parametrize("workload", chosen, ids=lambda workload: workload.name)
    for chosen in (WORKLOADS, WORKLOADS[:2])
)


class TestBuiltin:
    @each_example
    def test_optimizer_is_adadelta_at_learning_rate_one(self, workload: Workload) -> None:
        optimizer = workload.make_optimizer(nn.Linear(2, 2).parameters())
        assert type(optimizer) is torch.optim.Adadelta
        assert optimizer.defaults["lr"] == 1.0

    @each_example
    def test_loss_is_the_mean_negative_log_probability_of_the_target(
        self, workload: Workload
    ) -> None:
        log_probabilities = torch.tensor([[-1.0, -2.0], [-3.0, -5.0], [-7.0, -11.0]])
        assert workload.loss(log_probabilities, torch.tensor([0, 1, 0])).item() == pytest.approx(
            (1 + 5 + 7) / 3
        )

    def test_the_small_network_has_adam_and_smoothed_labels(self) -> None:
        assert type(WORKLOADS[2].make_optimizer(nn.Linear(2, 2).parameters())) is torch.optim.Adam
        logits = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
        likely, unlikely = (
            -logits.log_softmax(1)[[0, 1], classes].mean() for classes in ([0, 1], [1, 0])
        )
        expected = 0.975 * likely + 0.025 * unlikely  # 5 % of the weight are shared by both classes
        assert WORKLOADS[2].loss(logits, torch.tensor([0, 1])).item() == pytest.approx(
            expected.item()
        )

    @each_workload
    def test_batch_is_normalised_images_and_their_labels(self, workload: Workload) -> None:
        whole = data.load("digits")
        images, labels = workload.make_batch(7, CPU, generator(3))
        assert (images.shape, images.dtype) == ((7, 1, 28, 28), torch.float32)
        assert (labels.shape, labels.dtype) == ((7,), torch.int64)
        every_image, every_label = whole.batch(whole.train, torch.arange(len(whole.train)))
        # Each is a training image with the label of that image.
        for image, label in zip(images, labels, strict=True):
            same = (every_image == image).flatten(1).all(dim=1)
            assert label in every_label[same]

    @each_workload
    def test_a_batch_is_drawn_from_the_generator_alone(self, workload: Workload) -> None:
        drawn = workload.make_batch(16, CPU, generator(3))
        torch.manual_seed(99)
        again = workload.make_batch(16, CPU, generator(3))
        another_batch = workload.make_batch(16, CPU, generator(4))
        assert all(torch.equal(*pair) for pair in zip(drawn, again, strict=True))
        assert not torch.equal(drawn[0], another_batch[0])
        used = generator(3)
        first, second = (workload.make_batch(16, CPU, used)[0] for _ in range(2))
        assert not torch.equal(first, second)


def test_dataset_is_loaded_when_first_needed_and_once_per_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[tuple[str, str | None, str]] = []

    def load(name: str, data_dir: str | None, device: str) -> data.Dataset:
        loaded.append((name, data_dir, device))
        return tiny_set().to(device)

    monkeypatch.setattr(data, "load", load)
    workloads = builtin_workloads("mnist", "folder")
    assert loaded == []
    for workload in workloads:
        assert workload.load
        workload.make_batch(2, CPU, generator(0))
        workload.load(CPU)
        workload.load(torch.device("meta"))
    assert loaded == [("mnist", "folder", "cpu"), ("mnist", "folder", "meta")]
