"""Every phase runs what it says, in the mode it says.

It can start again from the same state to the bit.
"""

from __future__ import annotations

import functools
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_builders import (
    CPU,
    PIXELS,
    TEST_SAMPLES,
    TRAIN_SAMPLES,
    LossSpy,
    tiny_batch,
    tiny_model,
    tiny_params,
    tiny_workload,
    whole_tiny_set,
)

from mnistbench.core.errors import UsageError
from mnistbench.suite.measuring.case import (
    Case,
    build,
    compile_arguments,
    fork_random,
    in_step,
    seed,
    synchronizer,
    thread_count,
)
from mnistbench.suite.workloads.step import Step

pytestmark = pytest.mark.versions

needs_compiler = pytest.mark.skipif(
    not shutil.which("g++"), reason="torch.compile needs a C++ compiler, and g++ is not here"
)


def watch_model(case: Case) -> list[tuple[bool, int]]:
    """Keep train mode and batch size of every forward pass."""
    seen: list[tuple[bool, int]] = []
    case.model.register_forward_hook(
        lambda module, arguments, _: seen.append((module.training, len(arguments[0])))
    )
    return seen


def built(workload_changes: dict[str, Any] | None = None, **params: Any) -> Case:
    return build(tiny_params(**params), tiny_workload(**(workload_changes or {})))


WITH_SET = {"load": whole_tiny_set}


# ---- What a call does ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "batch_size", "training", "batches"),
    [
        ("forward", 1, False, [1]),
        ("forward", 64, False, [64]),
        ("step", 1, True, [1]),
        ("step", 64, True, [64]),
        ("train", 1, True, [1, 1, 1]),  # an eighth of 20, rounded up
        ("train", 4, True, [4, 4, 2]),  # half of it
        ("train", 8, True, [8, 8, 4]),
        ("train", 64, True, [20]),
        ("eval", 1, False, [1, 1]),  # an eighth of 12, rounded up
        ("eval", 4, False, [4, 2]),
        ("eval", 8, False, [8, 4]),
        ("eval", 64, False, [12]),
        ("batch", 4, None, []),
    ],
)
def test_an_iteration_processes_its_samples_in_the_mode_of_its_phase(
    phase: str, batch_size: int, training: bool | None, batches: list[int]
) -> None:
    case = built(WITH_SET, phase=phase, batch_size=batch_size)
    seen = watch_model(case)
    case()
    assert seen == [(training, size) for size in batches]
    assert case.samples == (sum(batches) or batch_size)
    case()
    assert seen == [(training, size) for size in batches] * 2


@pytest.mark.parametrize(
    ("phase", "whole"),
    [("forward", 2), ("step", 2), ("train", TRAIN_SAMPLES), ("eval", TEST_SAMPLES), ("batch", 2)],
)
def test_a_case_has_the_size_of_the_whole_set(phase: str, whole: int) -> None:
    assert built(WITH_SET, phase=phase, batch_size=2).whole_set == whole


@pytest.mark.parametrize(
    ("phase", "trains"),
    [("forward", False), ("step", True), ("train", True), ("eval", False), ("batch", False)],
)
def test_only_training_changes_weights(phase: str, trains: bool) -> None:
    case = built(WITH_SET, phase=phase)
    before = [parameter.clone() for parameter in case.model.parameters()]
    case()
    unchanged = all(
        torch.equal(*pair) for pair in zip(case.model.parameters(), before, strict=True)
    )
    assert unchanged is not trains


@pytest.mark.parametrize("phase", ["forward", "eval", "batch"])
def test_phases_that_do_not_train_make_no_optimizer(phase: str) -> None:
    def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
        pytest.fail("the first optimizer of a process takes seconds")

    case = built({**WITH_SET, "make_optimizer": make_optimizer}, phase=phase)
    case()
    case.reset()


def test_forward_uses_no_autograd() -> None:
    outputs: list[Tensor] = []
    case = built(phase="forward")
    case.model.register_forward_hook(lambda *arguments: outputs.append(arguments[2]))
    case()
    assert outputs[0].is_inference()


@pytest.mark.parametrize(
    ("phase", "label"),
    [
        ("forward", ""),
        ("step", ""),
        ("train", "step tiny-b4-cpu"),
        ("eval", "forward tiny-b4-cpu"),
        ("batch", "step tiny-b4-cpu"),
    ],
)
def test_forward_and_step_are_profiled_and_the_other_phases_name_one_of_them(
    phase: str, label: str
) -> None:
    case = built(WITH_SET, phase=phase)
    assert case.tables_in == label
    assert (case.runner is None) is (case.inputs is None) is bool(label)


def test_trainable_parameters_are_counted() -> None:
    def make_model() -> nn.Module:
        model = tiny_model()
        model.get_submodule("out").requires_grad_(False)
        return model

    assert built({"make_model": make_model}).parameter_count == PIXELS * 8 + 8


@pytest.mark.parametrize("phase", ["train", "eval"])
def test_an_epoch_of_a_workload_without_a_whole_set_is_refused(phase: str) -> None:
    with pytest.raises(UsageError) as refusal:
        built(phase=phase)
    assert str(refusal.value) == (
        f"workload 'tiny' has no whole set, which the phase '{phase}' needs: give it load=..., or "
        "measure its step and forward"
    )


# ---- Batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload_changes", "params", "complaint"),
    [
        ({}, {}, "workload 'tiny' has no fast step: give it make_fast_model=..."),
        (
            {"make_fast_model": lambda model: model},
            {"device": "cuda"},
            "the fast step of 'tiny' is for the CPU, not for cuda",
        ),
        (
            {"make_fast_model": lambda model: model},
            {"compile": True},
            "the fast step of 'tiny' cannot be compiled",
        ),
    ],
)
def test_a_fast_step_that_cannot_be_built_is_refused(
    workload_changes: dict[str, Any], params: dict[str, Any], complaint: str
) -> None:
    workload = tiny_workload(**workload_changes)
    with pytest.raises(UsageError) as refusal:
        in_step(tiny_params(step="fast", **params), workload, workload.make_model())
    assert str(refusal.value) == f"{complaint}; choose the reference step"


def test_a_fast_step_has_the_model_and_the_optimizer_of_its_workload() -> None:
    changes = {"make_fast_model": nn.Sequential, "make_fast_optimizer": torch.optim.Adagrad}
    case = built(changes, step="fast", phase="step")
    assert isinstance(case.runner, Step)
    assert case.runner.model is case.model
    assert [name for name, _ in case.model.named_children()] == ["0"]
    assert isinstance(case.runner.optimizer, torch.optim.Adagrad)
    plain = built(changes, phase="step")
    assert isinstance(plain.runner, Step)
    assert isinstance(plain.runner.optimizer, torch.optim.SGD)


def test_batches_of_a_dataset_are_those_of_epoch_after_epoch() -> None:
    case = built(WITH_SET, phase="batch", batch_size=8)
    pixels = [image[0, 0, 0].item() for _ in range(6) for image in case._run()[0]]
    first = pixels[:TRAIN_SAMPLES]
    second = pixels[TRAIN_SAMPLES:]
    assert len(second) == TRAIN_SAMPLES
    assert len(set(first)) == TRAIN_SAMPLES
    assert sorted(first) == sorted(second)
    assert first != second


def test_batches_of_a_workload_without_a_set_are_made_one_by_one() -> None:
    sizes: list[int] = []

    def make_batch(*arguments: Any) -> tuple[Tensor, Tensor]:
        sizes.append(arguments[0])
        return tiny_batch(*arguments)

    case = built({"make_batch": make_batch}, phase="batch", batch_size=3)
    for calls in (1, 2):
        case()
        assert sizes == [3] * calls


# ---- The same again ------------------------------------------------------------------------------


def with_batch_norm() -> nn.Module:
    """Has what a state holds beside weights: running statistics."""
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            norm=nn.BatchNorm1d(PIXELS),
            dropout=nn.Dropout(0.5),
            out=nn.Linear(PIXELS, 3),
        )
    )


def with_tensor_rate(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=torch.tensor(0.1))


OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda parameters: torch.optim.Adadelta(parameters, lr=1.0),
    lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9),
    lambda parameters: torch.optim.Adagrad(parameters, lr=0.5),  # has state before its first step
    with_tensor_rate,
]
OPTIMIZER_NAMES = ["adadelta", "momentum", "adagrad", "adam"]


@pytest.mark.parametrize("phase", ["step", "train"])
@pytest.mark.parametrize("make_model", [tiny_model, with_batch_norm])
@pytest.mark.parametrize("make_optimizer", OPTIMIZERS, ids=OPTIMIZER_NAMES)
def test_a_reset_restores_the_initial_weights_and_losses(
    phase: str, make_model: Callable[[], nn.Module], make_optimizer: Any
) -> None:
    spy = LossSpy()
    case = built(
        {**WITH_SET, "make_model": make_model, "make_optimizer": make_optimizer, "loss": spy},
        phase=phase,
    )
    runs = []
    for _ in range(2):
        weights = [tensor.clone() for tensor in case.model.state_dict().values()]
        for _ in range(4):
            case()
        runs.append(
            (
                list(spy.values),
                [*weights, *(tensor.clone() for tensor in case.model.state_dict().values())],
            )
        )
        torch.rand(5)  # as another test may
        case.reset()
        spy.values.clear()
    (losses, state), (losses_again, state_again) = runs
    assert losses == losses_again
    assert len(set(losses)) > 1
    assert all(torch.equal(*pair) for pair in zip(state, state_again, strict=True))


def test_a_reset_of_inference_restores_the_weights() -> None:
    case = built(phase="forward")
    weights = [parameter.clone() for parameter in case.model.parameters()]
    with torch.no_grad():
        for parameter in case.model.parameters():
            parameter.add_(1)
    case.reset()
    assert all(torch.equal(*pair) for pair in zip(case.model.parameters(), weights, strict=True))


def test_a_reset_drops_gradients_and_the_optimizers_state() -> None:
    optimizers: list[torch.optim.Optimizer] = []

    def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
        optimizers.append(torch.optim.Adadelta(parameters))
        return optimizers[0]

    case = built({"make_optimizer": make_optimizer})
    case()
    assert optimizers[0].state
    case.reset()
    assert not optimizers[0].state
    assert all(parameter.grad is None for parameter in case.model.parameters())


@pytest.mark.parametrize("phase", ["step", "train"])
def test_the_same_seed_builds_the_same_case(phase: str) -> None:
    losses = []
    cases = []
    for _ in range(2):
        spy = LossSpy()
        cases.append(built({**WITH_SET, "loss": spy}, phase=phase))
        weights = [parameter.clone() for parameter in cases[-1].model.parameters()]
        for _ in range(3):
            cases[-1]()
        losses.append((spy.values, [weight.tolist() for weight in weights]))
        torch.rand(7)
    assert losses[0] == losses[1]
    if phase == "step":
        assert torch.equal(cases[0].inputs, cases[1].inputs)


def test_another_seed_builds_another_case() -> None:
    first = built(seed=1)
    second = built(seed=2)
    assert not torch.equal(first.inputs, second.inputs)
    assert not torch.equal(next(first.model.parameters()), next(second.model.parameters()))


# ---- dtype and compile ---------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["step", "train"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtype_is_that_of_the_output_while_weights_and_loss_stay_float32(
    phase: str, dtype: str
) -> None:
    spy = LossSpy()
    case = built({**WITH_SET, "loss": spy}, phase=phase, dtype=dtype)
    case()
    assert set(spy.output_dtypes) == {getattr(torch, dtype)}
    assert set(spy.dtypes) == {torch.float32}
    assert {parameter.dtype for parameter in case.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("phase", ["forward", "eval"])
def test_inference_runs_in_bfloat16(phase: str) -> None:
    case = built(WITH_SET, phase=phase, dtype="bfloat16")
    outputs: list[Tensor] = []
    case.model.register_forward_hook(lambda *arguments: outputs.append(arguments[2]))
    case()
    assert {output.dtype for output in outputs} == {torch.bfloat16}


@pytest.mark.parametrize(
    "backend", ["eager", pytest.param("inductor", marks=[needs_compiler, pytest.mark.thorough])]
)
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_compiled_case_computes_what_an_eager_one_computes(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    graphs: list[object] = []
    spies = {}
    for compiled in (False, True):
        spies[compiled] = LossSpy()
        case = built({"loss": spies[compiled], "make_model": without_dropout}, compile=compiled)
        assert type(case.model) is nn.Sequential
        assert case.model.training
        for _ in range(3):
            case()
        graphs.append(case.runner.model)
    assert [hasattr(model, "_orig_mod") for model in graphs] == [False, True]
    assert spies[True].values == pytest.approx(spies[False].values, rel=1e-5)


@pytest.mark.parametrize(
    ("own", "compile_with", "expected"),
    [
        (None, "", {}),
        (None, "max-autotune,static", {"mode": "max-autotune", "dynamic": False}),
        (
            {"fullgraph": True, "options": {"trace.enabled": True}},
            "fullgraph",
            {"fullgraph": True, "options": {"trace.enabled": True}},
        ),
        (
            {"fullgraph": True, "backend": "eager"},
            "fullgraph,backend=eager",
            {"fullgraph": True, "backend": "eager"},
        ),
        ({"fullgraph": True, "backend": "eager"}, "dynamic", {"dynamic": True}),
    ],
)
def test_a_model_is_compiled_with_the_settings_of_its_case(
    own: dict[str, Any] | None,
    compile_with: str,
    expected: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = tiny_params(compile=True, compile_with=compile_with)
    assert compile_arguments(params, tiny_workload(compile=own)) == expected
    given: list[dict[str, Any]] = []

    def compiled(model: nn.Module, **arguments: Any) -> nn.Module:
        given.append(arguments)
        return model

    monkeypatch.setattr(torch, "compile", compiled)
    built({"compile": own}, compile=True, compile_with=compile_with)
    built({"compile": own})
    assert given == [expected]


def without_dropout() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 3), nn.LogSoftmax(dim=1))


# ---- Surroundings --------------------------------------------------------------------------------


def test_an_iteration_synchronizes_its_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[object] = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    wait = synchronizer(torch.device("cuda", 1))
    device = torch.device("cuda", 1)
    assert waited == []
    wait()
    assert waited == [device]


def test_an_iteration_synchronizes_after_its_work() -> None:
    happened: list[str] = []
    case = replace(
        built(), _run=lambda: happened.append("work"), _synchronize=lambda: happened.append("wait")
    )
    case()
    case()
    assert happened == ["work", "wait", "work", "wait"]


def test_an_iteration_on_a_cpu_does_not_synchronize(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda *_: pytest.fail("synchronised"))
    built()()


def test_threads_and_random_state_are_restored_after_an_error() -> None:
    torch.manual_seed(2)  # another test may have left the state that a reset sets
    threads = torch.get_num_threads()
    state = torch.random.get_rng_state()

    def body() -> None:
        assert torch.get_num_threads() == threads + 2
        case = built()
        case()
        case.reset()
        assert not torch.equal(torch.random.get_rng_state(), state)
        raise RuntimeError("in the body")

    with (
        pytest.raises(RuntimeError, match=r"^in the body$"),
        thread_count(threads + 2),
        fork_random(CPU),
    ):
        body()
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)


class FakeDevices:
    """Two accelerators; the state of a generator is its seed and how often it was set."""

    def __init__(self) -> None:
        self.states = {0: torch.tensor([7]), 1: torch.tensor([8])}
        self._current = 0

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        before = self._current
        self._current = index
        yield
        self._current = before

    def manual_seed(self, number: int) -> None:
        self.states[self._current] = torch.tensor([number])

    def get_rng_state(self, index: int) -> torch.Tensor:
        return self.states[index]

    def set_rng_state(self, state: torch.Tensor, index: int) -> None:
        self.states[index] = state


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> FakeDevices:
    fake = FakeDevices()
    monkeypatch.setattr(torch, "get_device_module", lambda _: fake)
    for name in ("get_rng_state", "set_rng_state"):  # torch 2.11 takes them from the module
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    monkeypatch.setattr(
        torch.cuda, "manual_seed_all", lambda _: pytest.fail("all devices are seeded")
    )
    return fake


def test_only_the_generator_of_the_cases_device_is_seeded_and_restored(
    devices: FakeDevices,
) -> None:
    with fork_random(torch.device("cuda:1")):
        seed(torch.device("cuda:1"), 3)
        assert devices.states == {0: torch.tensor([7]), 1: torch.tensor([3])}
        first = torch.rand(3)
        seed(torch.device("cuda:1"), 3)
        assert torch.equal(torch.rand(3), first)
    assert devices.states == {0: torch.tensor([7]), 1: torch.tensor([8])}


def test_a_case_on_the_cpu_seeds_no_accelerator(devices: FakeDevices) -> None:
    with fork_random(CPU):
        built().reset()
    assert devices.states == {0: torch.tensor([7]), 1: torch.tensor([8])}
