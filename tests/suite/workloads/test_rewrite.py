"""The fast step computes what the reference step computes.

Outputs, gradients, updates, dropout's probabilities.
"""

from __future__ import annotations

import copy
import gc
import math
import re
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch_builders import CPU

from mnistbench.suite.measuring.case import autocaster
from mnistbench.suite.workloads.adadelta import Adadelta
from mnistbench.suite.workloads.data import load
from mnistbench.suite.workloads.rewrite import fast_model
from mnistbench.suite.workloads.step import Step
from mnistbench.suite.workloads.workload import ConvNet, LeNet5

MODELS = pytest.mark.parametrize("make_model", [ConvNet, LeNet5])


class Masked(nn.Module):
    """Dropout whose masks are given: a module that no rewrite knows, so both steps share it."""

    def __init__(self, p: float, masks: dict[torch.Size, list[Tensor]]) -> None:
        super().__init__()
        self.p = p
        self._masks = masks
        self._calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        flat = inputs.flatten(1)
        masks = self._masks.setdefault(flat.shape, [])
        if len(masks) <= self._calls:
            masks.append((torch.rand(flat.shape) >= self.p) / (1 - self.p))
        self._calls += 1
        return inputs * masks[self._calls - 1].view(inputs.shape)


def with_masks(model: nn.Module, masks: dict[torch.Size, list[Tensor]]) -> nn.Module:
    for name, module in model.named_children():
        if isinstance(module, nn.Dropout):
            setattr(model, name, Masked(module.p, masks))
    return model


def without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def losses(
    model: nn.Module, optimizer: torch.optim.Optimizer, n_steps: int, dtype: torch.dtype
) -> list[float]:
    step = Step(model, nn.functional.nll_loss, optimizer)
    digits = load("digits")
    batches = digits.epoch(digits.train, 16, torch.Generator().manual_seed(0))
    values = []
    for _ in range(n_steps):
        images, labels = next(batches)
        values.append(step(images.to(dtype), labels)[1].item())
    return values


@pytest.mark.parametrize(
    ("dtype", "n_steps", "rel"),
    [
        # Sums are rounded in another order, and training at this learning rate amplifies the
        # difference a millionfold: in single precision it reaches percents after 25 steps. In
        # double precision 1.5e-9 was seen after 50.
        (torch.float64, 50, 1e-7),
        (torch.float32, 10, 1e-3),
    ],
)
@MODELS
def test_steps_have_the_losses_of_the_reference(
    make_model: type[nn.Sequential], dtype: torch.dtype, n_steps: int, rel: float
) -> None:
    masks: dict[torch.Size, list[Tensor]] = {}
    plain, twin = (with_masks(make_model(), masks).to(dtype) for _ in range(2))
    twin.load_state_dict(plain.state_dict())
    reference = losses(plain, torch.optim.Adadelta(plain.parameters(), lr=1.0), n_steps, dtype)
    fast = losses(
        fast_model(twin, sparse_gradients=True), Adadelta(twin.parameters(), lr=1.0), n_steps, dtype
    )
    assert fast == pytest.approx(reference, rel=rel)
    if n_steps == 50:
        # It learns: equal losses of a model that stays as it is would be easy.
        assert reference[-1] < 0.5 * reference[0]


@pytest.mark.versions
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("batch_size", [1, 5])
@MODELS
def test_every_gradient_is_that_of_the_reference(
    make_model: type[nn.Sequential], batch_size: int, dtype: str
) -> None:
    plain = without_dropout(make_model())
    twin = copy.deepcopy(plain)
    images = torch.randn(batch_size, 1, 28, 28)
    labels = torch.randint(10, (batch_size,))
    gradients = []
    for model in (plain, fast_model(twin, sparse_gradients=True)):
        step = Step(
            model,
            nn.functional.nll_loss,
            torch.optim.SGD(model.parameters()),
            autocaster(CPU, dtype),
        )
        step.backward(step.loss(step.forward(images), labels))
        gradients.append(
            {name: parameter.grad.to_dense() for name, parameter in model.named_parameters()}
        )
        # DistributedDataParallel warns of other strides.
        assert all(
            parameter.grad.stride() == parameter.stride()
            for parameter in model.parameters()
            if parameter.dim() == 4
        )
    reference, rewritten = gradients
    for name, gradient in rewritten.items():
        assert gradient.dtype == torch.float32
        # bfloat16 has eight bits, and sums of other orders are rounded to it.
        close = 1e-4 if dtype == "float32" else 0.05
        assert torch.dist(gradient, reference[name]) <= close * torch.linalg.vector_norm(
            reference[name]
        )


@pytest.mark.versions
@MODELS
def test_testing_gives_the_outputs_of_the_reference(make_model: type[nn.Sequential]) -> None:
    model = make_model().eval()
    images = torch.randn(7, 1, 28, 28)
    with torch.inference_mode():
        torch.testing.assert_close(fast_model(model).eval()(images), model(images))


def test_parameters_are_shared_and_names_stay() -> None:
    model = ConvNet()
    fast = fast_model(model)
    assert dict(fast.named_parameters()).keys() == dict(model.named_parameters()).keys()
    assert all(
        fast.get_parameter(name) is parameter for name, parameter in model.named_parameters()
    )
    assert {name for name, _ in fast.named_children()} == {
        name for name, _ in model.named_children()
    }
    fast.load_state_dict(model.state_dict())
    assert len(fast[:3]) == 3


@pytest.mark.versions
@pytest.mark.parametrize(
    "modules",
    [
        # Overwriting its input would change the images.
        (nn.ReLU(), nn.Conv2d(1, 2, 3), nn.Flatten()),
        (
            nn.Conv2d(1, 4, 3, stride=2),
            nn.Conv2d(4, 4, 3, groups=2),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Flatten(),
        ),
        (
            nn.Conv2d(1, 4, 3, padding="same", padding_mode="reflect"),
            nn.Sigmoid(),
            nn.ReLU(),
            nn.Flatten(),
        ),
        (
            nn.Conv2d(1, 4, 3, bias=False, padding=(0, 2)),
            nn.Conv2d(4, 2, 3, bias=False),
            nn.MaxPool2d(3, 2),
            nn.Flatten(),
        ),
        (
            nn.Conv2d(1, 4, 3),
            nn.MaxPool2d(2),
            nn.Tanh(),
            nn.Conv2d(4, 2, 2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(2),
        ),
        (nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(), nn.Dropout(), nn.Flatten()),
    ],
)
def test_modules_of_other_kinds_are_computed_as_they_are(modules: tuple[nn.Module, ...]) -> None:
    model = nn.Sequential(*modules).eval()
    images = torch.randn(3, 1, 12, 12)
    before = images.clone()
    twin = copy.deepcopy(model)
    expected = model(images)
    output = fast_model(twin).eval()(images)
    torch.testing.assert_close(output, expected)
    assert torch.equal(images, before)
    weights = torch.randn_like(expected)
    (expected * weights).sum().backward()
    (output * weights).sum().backward()
    for mine, theirs in zip(twin.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.versions
@pytest.mark.parametrize(
    ("kernel_size", "padding", "bias"), [(3, 0, True), ((2, 4), (1, 2), False)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_a_pooled_convolution_is_dense_or_sparse(
    loops: str, kernel_size: Any, padding: Any, bias: bool, dtype: torch.dtype
) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 5, kernel_size, padding=padding, bias=bias), nn.ReLU(), nn.MaxPool2d((2, 3))
    )
    twin = copy.deepcopy(model.to(dtype))
    images = torch.randn(4, 3, 9, 13, dtype=dtype)
    # Some samples have no gradient.
    weights = torch.randn_like(model(images)) * (torch.rand(4, 1, 1, 1) > 0.5)
    weights[:, 2] = 0  # nor has a channel
    gradients = []
    for network in (model, fast_model(twin)):
        network.zero_grad()
        inputs = images.clone().requires_grad_()
        with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
            (network(inputs) * weights).sum().backward()
        gradients.append([inputs.grad, *(parameter.grad for parameter in network.parameters())])
    torch.testing.assert_close(gradients[1], gradients[0])
    is_dense = any(
        event.name == "aten::max_pool2d_with_indices_backward" for event in profiler.events()
    )
    assert is_dense == (loops == "none")


def test_a_first_convolution_whose_input_needs_a_gradient_gives_it() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3))
    images = torch.randn(2, 1, 8, 8, requires_grad=True)
    [expected] = torch.autograd.grad(model(images).square().sum(), images)
    [gradient] = torch.autograd.grad(fast_model(model)(images).square().sum(), images)
    torch.testing.assert_close(gradient, expected)


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="not of Linear"):
        fast_model(nn.Linear(2, 2))


@pytest.mark.versions
@pytest.mark.parametrize(
    ("size", "image", "bias"), [(2, (8, 9), True), ((1, 3), (3, 8), False), (20, (22, 22), True)]
)
@pytest.mark.parametrize("p", [0.0, 0.25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_single_image_uses_only_the_weights_of_the_values_that_are_kept(
    dtype: torch.dtype, p: float, size: Any, image: tuple[int, int], bias: bool
) -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.ReLU(),
        nn.MaxPool2d(size),
        *([nn.Dropout(p)] if p else []),
        nn.Flatten(),
    )
    n_values = model.eval()(torch.zeros(1, 1, *image)).numel()
    model.append(nn.Linear(n_values, 5, bias=bias)).to(dtype).train()
    twin = copy.deepcopy(model)
    images = torch.randn(1, 1, *image, dtype=dtype)
    output = fast_model(twin, sparse_gradients=True)(images)
    weights = torch.randn_like(output)
    output.backward(weights)
    assert not bias or twin[-1].bias.grad.data_ptr() != weights.data_ptr()
    gradient = twin[-1].weight.grad
    assert gradient.is_sparse
    used = gradient.coalesce().indices()[1].unique()
    values = model[:3](images).flatten()
    assert (values[used] > 0).all()
    if not p:
        assert len(used) == (values > 0).sum()
    mask = torch.zeros(n_values, dtype=dtype).index_fill(0, used, 1 / (1 - p))
    expected = model[-1]((values * mask).unsqueeze(0))
    torch.testing.assert_close(output, expected)
    (expected * weights).sum().backward()
    for mine, theirs in zip(twin.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.to_dense(), theirs.grad)


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("ps", [(0.25,), (3 / 256,), (0.3,), (0.5, 0.5), (1.0,)])
def test_dropout_after_pooling_has_its_probability(ps: tuple[float, ...], batch_size: int) -> None:
    modules = nn.Conv2d(1, 4, 1), nn.MaxPool2d(2), *map(nn.Dropout, ps), nn.ReLU(), nn.Flatten()
    model = fast_model(nn.Sequential(*modules).double())
    images = torch.zeros(batch_size, 1, 200, 200, dtype=torch.float64)
    nn.init.ones_(model.get_parameter("0.bias"))
    torch.manual_seed(5)
    values = model(images)
    later_values = model(images)
    values.sum().backward()
    torch.manual_seed(5)
    assert torch.equal(model(images), values)
    kept = math.prod(1 - p for p in ps)
    dropped = values == 0
    assert not kept or torch.allclose(values[~dropped], torch.tensor(1 / kept, dtype=torch.float64))
    for events, p in (
        (dropped, 1 - kept),
        # Bytes of one random word must not depend on each other.
        ((dropped[:, 1:] & dropped[:, :-1])[:, ::2], (1 - kept) ** 2),
        (dropped & (later_values == 0), (1 - kept) ** 2),  # nor must two masks
    ):
        assert stats.binomtest(int(events.sum()), events.numel(), p).pvalue > 1e-4
    torch.testing.assert_close(model.get_parameter("0.bias").grad.sum(), values.sum())
    assert model.eval()(images).eq(1).all()


@pytest.mark.versions
@pytest.mark.parametrize(
    "pool",
    [nn.MaxPool2d((2,)), nn.MaxPool2d(2, (2, 2)), nn.MaxPool2d(7), nn.MaxPool2d((1, 7))],
    ids=["one number", "another stride", "too large", "too wide"],
)
def test_windows_that_are_left_to_pytorch(pool: nn.Module) -> None:
    plain = nn.Sequential(nn.Conv2d(1, 2, 3), pool, nn.ReLU())
    images = torch.randn(2, 1, 8, 8)
    try:
        expected = plain(images)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=re.escape(str(error)[:40])):
            fast_model(plain)(images)
    else:
        torch.testing.assert_close(fast_model(plain)(images), expected)


class Clip(nn.ReLU):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.clamp(0, 0.1)


def test_derived_classes_are_computed_as_they_are() -> None:
    plain = nn.Sequential(nn.Conv2d(1, 2, 3), Clip(), nn.MaxPool2d(2), Clip(), nn.Flatten())
    images = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(fast_model(plain)(images), plain(images))


def test_a_module_after_pooling_may_change_its_input() -> None:
    plain = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.ReLU6(inplace=True))
    twin = copy.deepcopy(plain)
    images = torch.randn(2, 1, 8, 8)
    for model in (plain, fast_model(twin)):
        model(images).square().sum().backward()
    torch.testing.assert_close(twin[0].weight.grad, plain[0].weight.grad)


def test_modes_are_those_of_the_model() -> None:
    fast = fast_model(ConvNet().eval())
    images = torch.randn(2, 1, 28, 28)
    assert torch.equal(fast(images), fast(images))


@pytest.mark.versions
def test_a_gradient_of_gradients_is_refused() -> None:
    model = fast_model(LeNet5())
    images = torch.randn(2, 1, 28, 28, requires_grad=True)
    [gradient] = torch.autograd.grad(model(images).sum(), images, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.versions
def test_indices_are_freed_by_the_backward_pass() -> None:
    def n_indices() -> int:
        tensors = [
            tensor
            for tensor in gc.get_objects()
            if type(tensor) is Tensor and tensor.dtype is torch.int64
        ]
        return sum(tensor.numel() for tensor in tensors if tensor.dim() == 2 and len(tensor) == 5)

    output = fast_model(LeNet5())(torch.randn(8, 1, 28, 28))
    output.sum().backward()
    assert not n_indices()


@pytest.mark.versions
def test_one_image_in_bfloat16() -> None:
    plain = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3)
    ).bfloat16()
    twin = copy.deepcopy(plain)
    image = torch.randn(1, 1, 8, 8).bfloat16()
    for model in (plain, fast_model(twin, sparse_gradients=True)):
        model(image).sum().backward()
    torch.testing.assert_close(twin[4].weight.grad, plain[4].weight.grad)


@pytest.mark.parametrize("wrong", ["image", "flatten"])
def test_other_shapes_are_left_to_the_modules(wrong: str) -> None:
    """The compiled loops check no bounds."""
    plain = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(2 if wrong == "flatten" else 1),
        nn.Linear(16, 3),
    )
    model = fast_model(plain, sparse_gradients=True)
    image = torch.randn(1, 1, 10, 10)
    if wrong == "flatten":
        torch.testing.assert_close(model(image), plain(image))
    else:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            model(image)


@pytest.mark.versions
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("batch_size", [1, 2])
def test_not_a_number_is_seen(batch_size: int, sign: int) -> None:
    model = fast_model(
        nn.Sequential(
            nn.Conv2d(1, 4, 1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(100, 3)
        ),
        sparse_gradients=True,
    )
    images = torch.randn(batch_size, 1, 10, 10)
    images[0, 0, 4, 4] = torch.tensor(torch.nan).copysign(torch.tensor(sign))
    with torch.no_grad():
        model.get_parameter("0.weight").abs_()
    assert model(images).isnan().any(dim=1).tolist() == [True, False][:batch_size]


@pytest.mark.versions
@pytest.mark.parametrize("n_hidden", [1, 7])  # one row is in the same order as one column
def test_single_images_among_batches(loops: str, n_hidden: int) -> None:
    """The order of the weights in memory changes with the batch.

    Also where the optimizer has averages of them already.
    """
    plain = nn.Sequential(
        nn.Conv2d(1, 3, 5),
        nn.MaxPool2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(108, n_hidden),
        nn.Linear(n_hidden, 4),
    ).double()
    twin = copy.deepcopy(plain)
    fast = fast_model(twin, sparse_gradients=True).train()
    optimizers = torch.optim.Adadelta(plain.parameters()), Adadelta(twin.parameters())
    for number, batch_size in enumerate((4, 1, 1, 4, 1)):
        twin[4].requires_grad_(number != 2)
        plain[4].requires_grad_(number != 2)
        images = torch.randn(batch_size, 1, 28, 28).double()
        for model, optimizer in zip((plain, fast), optimizers, strict=True):
            optimizer.zero_grad()
            model(images).square().mean().backward()
            optimizer.step()
    for mine, theirs in zip(twin.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("batch_sizes", [(1, 1), (1, 2), (2, 1)])
def test_gradients_of_single_images_and_of_batches_add_up(batch_sizes: tuple[int, ...]) -> None:
    plain = LeNet5()
    twin = copy.deepcopy(plain)
    for model in (plain, fast_model(twin, sparse_gradients=True)):
        for batch_size in batch_sizes:
            model(
                torch.randn(batch_size, 1, 28, 28, generator=torch.Generator().manual_seed(4))
            ).square().sum().backward()
    for mine, theirs in zip(twin.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.to_dense(), theirs.grad, rtol=1e-3, atol=1e-4)


def test_two_images_before_an_update_and_a_forward_pass_without_gradients() -> None:
    plain = LeNet5().double()
    twin = copy.deepcopy(plain)
    fast = fast_model(twin, sparse_gradients=True)
    images = torch.randn(3, 1, 1, 28, 28).double()
    for model, optimizer in (
        (plain, torch.optim.Adadelta(plain.parameters())),
        (fast, Adadelta(twin.parameters())),
    ):
        with torch.inference_mode():
            model(images[0])
        for _ in range(2):
            optimizer.zero_grad()
            (model(images[1]).square().sum() + model(images[2]).square().sum()).backward()
            optimizer.step()
    for mine, theirs in zip(twin.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_a_module_that_is_used_twice_runs_twice() -> None:
    relu = nn.ReLU()
    linear = nn.Linear(4, 4)
    model = nn.Sequential(
        nn.Conv2d(1, 1, 3), nn.MaxPool2d(2), relu, nn.Flatten(), linear, relu, linear, relu
    )
    image = torch.randn(1, 1, 6, 6)
    torch.testing.assert_close(fast_model(model, sparse_gradients=True)(image), model(image))


def test_an_infinite_value_has_a_gradient_as_in_pytorch() -> None:
    plain = nn.Sequential(
        nn.Conv2d(1, 2, 1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(2, 2)
    )
    twin = copy.deepcopy(plain)
    image = torch.full((1, 1, 2, 2), torch.inf)
    for model in (plain, fast_model(twin, sparse_gradients=True)):
        (model(image).nan_to_num(0.0, 0.0, 0.0) * 0).sum().backward()
    torch.testing.assert_close(twin[0].bias.grad, plain[0].bias.grad, equal_nan=True)


def test_max_pooling_computes_the_modules_after_it() -> None:
    pooled = {
        name
        for name, module in fast_model(ConvNet()).named_children()
        if isinstance(module, nn.Identity)
    }
    assert pooled == {"relu2", "dropout1", "flatten"}


def test_a_training_with_single_images_continues_from_its_saved_state() -> None:
    def run(n_saved: int) -> list[Tensor]:
        torch.manual_seed(2)
        plain = ConvNet()
        model = fast_model(plain, sparse_gradients=True)
        optimizer = Adadelta(plain.parameters())
        for number in range(4):
            if number == n_saved:
                state = copy.deepcopy((plain.state_dict(), optimizer.state_dict()))
                plain = ConvNet()
                model = fast_model(plain, sparse_gradients=True)
                optimizer = Adadelta(plain.parameters())
                plain.load_state_dict(state[0])
                optimizer.load_state_dict(state[1])
            torch.manual_seed(number)
            optimizer.zero_grad()
            model(torch.randn(1, 1, 28, 28))[0, number].neg().backward()
            optimizer.step()
        return list(plain.parameters())

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(run(2), run(-1), strict=True))


def test_gradients_are_dense_for_other_optimizers() -> None:
    model = nn.Sequential(nn.Linear(6, 10))
    fast_model(model)(torch.randn(4, 6))[:, [2]].sum().backward()
    assert not model[0].weight.grad.is_sparse
    torch.optim.Adam(model.parameters()).step()


def test_an_image_without_a_batch_is_convolved() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3))
    image = torch.randn(1, 8, 8)
    torch.testing.assert_close(fast_model(model)(image), model(image))
