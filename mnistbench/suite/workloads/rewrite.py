"""The fast training step on a CPU: a network in other modules, with the same function.

**Idea.** The step of the reference is rewritten in three ways. This module exchanges modules;
:mod:`~.sparse_gradients` leaves out the zeros of gradients, and :mod:`~.adadelta` updates with one
pass. Here:

- Convolutions, ReLU and pooling keep their values channels-last, so no operation converts its
  arguments.
- Max-pooling runs before ReLU, and one loop computes both, and dropout and flattening after them.
- A product of the linear layers is computed by oneDNN, which PyTorch calls for other formats than
  float32 alone.
- The weights of a linear layer that is given one image lie in memory by inputs, so those of an
  input that is not zero are read at once.

**Measured** (Zen 4, ConvNet, batch 64, float32, two threads; ``docs/evidence/training.md``). A
product of the linear layers takes 0.8 ms by oneDNN and 1.1 to 1.5 ms by MKL. oneDNN's own blocked
layout in place of channels-last saves 1 ms and costs 3 ms of changes of the layout. The whole fast
step: an epoch of MNIST with the test takes 0.34 times as long as in pytorch/examples, and 1.8 times
as long without numba.

**Exact.** Only the layout in memory differs; ReLU and max-pooling commute because both are
monotonic; flattening and ReLU or dropout commute because they do not see the shape.

**Not exact.** Sums are rounded in another order, and dropout masks come from another random stream.
In double precision and with the same masks, the losses of the first 50 steps have seven equal
digits (``tests/suite/workloads/test_rewrite.py``).
"""

from __future__ import annotations

import functools
import itertools
import operator
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mnistbench.suite.workloads import compiled
from mnistbench.suite.workloads.compiled import NUMPY_FLOATS
from mnistbench.suite.workloads.sparse_gradients import (
    BYTE_VALUES,
    Convolution,
    Pooling,
    ProductOfNonzeros,
)

#: A matrix product with fewer multiply-adds than this is computed by MKL: a call of oneDNN takes
#: longer.
ONEDNN_FROM = 2**21

#: Neighbours that ``fast_model`` exchanges: classes of the first and of the second module.
_COMMUTE = (nn.ReLU, nn.MaxPool2d), (nn.ReLU, nn.Flatten), (nn.Dropout, nn.Flatten)


def fast_model(model: nn.Module, *, sparse_gradients: bool = False) -> nn.Module:
    """Return a model that computes the same function of the same parameters faster on a CPU.

    Modules have their names in ``model``; their order differs where operations commute. Max-pooling
    also computes modules after it, which become an ``nn.Identity``. Rewritten modules lose their
    hooks; the others are shared with ``model``, and so are all parameters, whose elements may
    change their order in memory. Dropout masks come from another random stream. A gradient of the
    gradients of a convolution is refused.

    Args:
        model: an ``nn.Sequential``.
        sparse_gradients: in training with one image, let the weights of the linear layer after a
            pooled convolution have a sparse gradient of elements. The optimizer must take it, as
            :class:`~.adadelta.Adadelta` does; most of PyTorch's do not.

    Raises:
        TypeError: the model is not an ``nn.Sequential``, whose modules run in their order.
    """
    if not isinstance(model, nn.Sequential):
        raise TypeError(
            f"a fast step can be made of an nn.Sequential, not of {type(model).__name__}"
        )
    _make_first_sparse_tensor()
    modules = _in_fast_order(model)
    rewritten: dict[str, nn.Module] = {}
    before: nn.Module | None = None
    for position, (name, module) in enumerate(modules):
        if name in rewritten:  # max-pooling computes it
            continue
        after = dict(
            itertools.takewhile(lambda named: _can_pool(named[1]), modules[position + 1 :])
        )
        # A derived class may compute something else.
        is_of_torch = type(module).__module__.startswith("torch.nn.modules")
        before = (
            _fast(module, before, list(after.values()), sparse_gradients) if is_of_torch else module
        )
        before.training = module.training
        rewritten[name] = before
        if isinstance(before, _Pooled):
            rewritten.update({name_after: nn.Identity() for name_after in after})
    return nn.Sequential(OrderedDict(rewritten))


def _in_fast_order(model: nn.Sequential) -> list[tuple[str, Any]]:
    """Return the named modules with max-pooling and flattening as early as they commute."""
    # children() names a module once.
    modules: list[tuple[str, Any]] = list(model._modules.items())  # noqa: SLF001
    for last in range(len(modules) - 1, 0, -1):
        for position in range(last):
            first, second = (type(module) for _, module in modules[position : position + 2])
            if (first, second) in _COMMUTE:
                modules[position : position + 2] = modules[position + 1], modules[position]
    return modules


def _can_pool(module: Any) -> bool:
    """Return whether max-pooling can compute the module after it as well."""
    if type(module) is nn.Dropout:
        return 0 < module.p < 1 and (BYTE_VALUES * module.p).is_integer()
    return type(module) is nn.ReLU or (
        type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)
    )


def _fast(
    module: nn.Module, before: nn.Module | None, after: Sequence[nn.Module], sparse_gradients: bool
) -> nn.Module:
    """Return what computes a module of PyTorch faster, or the module itself.

    ``before`` is the rewritten module before it; ``after`` are modules that max-pooling can compute
    as well.
    """
    n_relu, n_dropout = (
        sum(isinstance(later, kind) for later in after) for kind in (nn.ReLU, nn.Dropout)
    )
    match module:
        case nn.Conv2d(groups=1, stride=(1, 1), dilation=(1, 1), padding_mode="zeros") if (
            isinstance(module.padding, tuple)
        ):
            return _Conv2d(module)
        case nn.MaxPool2d(
            kernel_size=int() | (_, _) as size,
            stride=stride,
            padding=0,
            dilation=1,
            ceil_mode=False,
            return_indices=False,
        ) if isinstance(before, _Conv2d) and stride == size and n_relu and n_dropout <= 1:
            return _Pooled(module, after)
        case nn.ReLU() if isinstance(before, _Conv2d):  # whose gradient does not need the result
            return nn.ReLU(inplace=True)
        case nn.Linear():
            return _Linear(module, sparse_gradients and isinstance(before, _Pooled))
    return module


@functools.cache
def _make_first_sparse_tensor() -> None:
    """Make a sparse tensor without its warning.

    torch 2.11 warns once that checks were not chosen, even where they were.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_coo_tensor(
            torch.zeros((1, 0), dtype=torch.int64), torch.zeros(0), (1,), check_invariants=False
        )


# ---- Modules -------------------------------------------------------------------------------------


class _Conv2d(nn.Module):
    """A convolution with stride 1 whose result is channels-last."""

    def __init__(self, plain: nn.Conv2d) -> None:
        super().__init__()
        self.weight = plain.weight
        self.bias = plain.bias
        self.padding = plain.padding
        # A copy: the strides of one channel may be those of another order, of which
        # DistributedDataParallel warns.
        self.weight.data = self.weight.data.clone(memory_format=torch.channels_last)

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.dim() != 4:
            return functional.conv2d(inputs, self.weight, self.bias, padding=self.padding)
        output: Tensor = Convolution.apply(_autocast(inputs), self.weight, self.bias, self.padding)
        return output


class _Pooled(nn.Module):
    """Max-pooling of a convolution's result, with windows that do not overlap, and ReLU.

    Perhaps dropout and flattening follow.
    """

    def __init__(self, pool: Any, after: Sequence[nn.Module]) -> None:
        super().__init__()
        size = pool.kernel_size
        self.kernel_size = (size, size) if isinstance(size, int) else tuple(size)
        self.p = sum(module.p for module in after if isinstance(module, nn.Dropout))
        self.is_flat = any(isinstance(module, nn.Flatten) for module in after)

    def forward(self, inputs: Tensor) -> Tensor:
        p = self.p if self.training else 0.0
        has_window = all(map(operator.le, self.kernel_size, inputs.shape[-2:]))
        if inputs.dim() == 4 and has_window and inputs.requires_grad and compiled.loops():
            output: Tensor = Pooling.apply(inputs, self.kernel_size, p, self.is_flat)
            return output
        output = functional.dropout(functional.max_pool2d(inputs, self.kernel_size).relu_(), p)
        return output.flatten(1) if self.is_flat else output


class _Linear(nn.Module):
    """A linear layer. Of one sample, it may read only the weights of inputs that are not zero."""

    def __init__(self, plain: nn.Linear, skips_zeros: bool) -> None:
        super().__init__()
        self.weight = plain.weight
        self.bias = plain.bias
        self._skips_zeros = skips_zeros

    def forward(self, inputs: Tensor) -> Tensor:
        weight = self.weight
        skips_zeros = False
        if torch.is_grad_enabled():
            skips_zeros = (
                self._skips_zeros
                and inputs.shape == (1, weight.shape[1])
                and compiled.loops() is not None
                and weight.dtype in NUMPY_FLOATS
                and weight.grad is None  # to add a sparse gradient to it would be slow
            )
            # The elements are in memory by inputs to skip zeros, else by outputs.
            if skips_zeros == weight.is_contiguous():
                weight.data = (
                    weight.data.t().contiguous().t() if skips_zeros else weight.data.contiguous()
                )
        output: Tensor
        if inputs.dim() != 2:
            output = functional.linear(inputs, weight, self.bias)
        elif skips_zeros:
            output = ProductOfNonzeros.apply(inputs, weight, self.bias)
        else:
            output = _Product.apply(_autocast(inputs), weight, self.bias)
        return output


def _autocast(inputs: Tensor) -> Tensor:
    """Convert the inputs of a Function, as autocast does those of PyTorch's operations."""
    return (
        inputs.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else inputs
    )


class _Product(torch.autograd.Function):
    """``linear`` with the matrix products of ``_product``."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        weight = weight.to(inputs.dtype)
        bias = None if bias is None else bias.to(inputs.dtype)
        ctx.save_for_backward(inputs, weight)
        return _product(inputs, weight.t(), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors  # [B, I], [O, I]
        bias_gradient = gradient.sum(0) if ctx.needs_input_grad[2] else None
        input_gradient = _product(gradient, weight) if ctx.needs_input_grad[0] else None
        return input_gradient, _product(gradient.t(), inputs), bias_gradient


def _product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the matrix product. Shapes: [N, I], [I, O], [O] -> [N, O].

    In float32 PyTorch calls MKL, which takes up to twice the time of oneDNN.
    """
    # torch leaves it untyped.
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if has_onednn and left.dtype == torch.float32 and left.numel() * right.shape[1] >= ONEDNN_FROM:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.t(), bias, "none", [], "")  # noqa: SLF001
        return product
    return functional.linear(left, right.t(), bias)
