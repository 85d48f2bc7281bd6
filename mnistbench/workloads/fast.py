"""The fast training step on a CPU.

The same function, gradients and updates as the reference step, in less time.

Each rewrite is exact except for the rounding of sums:

- Convolutions, ReLU and pooling keep their values channels-last, so no operation converts its
  arguments.
- ReLU and max-pooling commute because both are monotonic. One loop that numba compiles computes
  both, and dropout and flattening after them. Its dropout compares random bytes with 256 p; PyTorch
  draws 32 random bits per value. What it drops is 0, also infinity and NaN.
- They leave few outputs of a convolution with a gradient (3 % in ConvNet): the gradients of its
  weights and of its inputs are sums over those only. numba compiles them; without it, the
  convolution is dense.
- Of one image, they leave few inputs of the linear layer that are not zero (2 to 4 % in ConvNet on
  MNIST): only their weights are read, and those updated whose output has a gradient.
- All elements of a running average of Adadelta decay by one factor. It is stored once, so the decay
  takes no pass over them. numba compiles the rest of an update, which then takes one pass instead
  of eight.

``docs/evidence/training.md`` has what they are worth.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

_BYTE = 256

#: Pooled values from which on two threads take less time for the compiled loops.
POOLED_AT_ONCE = 2**15
#: Elements of a convolution's gradient from which on two threads take less time.
SUMMED_AT_ONCE = 2**13
#: Elements of a linear layer's gradient from which on two threads take less time.
UPDATED_AT_ONCE = 2**19

#: A matrix product with fewer multiply-adds than this is computed by MKL: a call of oneDNN takes
#: longer.
ONEDNN_FROM = 2**21

#: An average's factor is multiplied into its elements before it becomes smaller than this, every
#: 175 steps.
SMALLEST_FACTOR = 1e-8

#: Number formats of the compiled loops; NumPy has no bfloat16.
_OF_NUMPY = torch.float32, torch.float64

#: Integers of as many bytes, in whose order numbers that are not negative are.
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}

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
            :class:`Adadelta` does; most of PyTorch's do not.

    Raises:
        TypeError: the model is not an ``nn.Sequential``, whose modules run in their order.
    """
    if not isinstance(model, nn.Sequential):
        raise TypeError(
            f"a fast step can be made of an nn.Sequential, not of {type(model).__name__}"
        )
    _make_first_sparse_tensor()
    # children() names a module once.
    modules: list[tuple[str, Any]] = list(model._modules.items())  # noqa: SLF001
    for last in range(len(modules) - 1, 0, -1):
        for position in range(last):
            first, second = (type(module) for _, module in modules[position : position + 2])
            if (first, second) in _COMMUTE:
                modules[position : position + 2] = modules[position + 1], modules[position]
    result: dict[str, nn.Module] = {}
    before: nn.Module | None = None
    for position, (name, module) in enumerate(modules):
        if name not in result:
            after = dict(
                itertools.takewhile(lambda each: _is_pooled(each[1]), modules[position + 1 :])
            )
            # A derived class may compute something else.
            is_of_torch = type(module).__module__.startswith("torch.nn.modules")
            before = result[name] = (
                _fast(module, before, list(after.values()), sparse_gradients)
                if is_of_torch
                else module
            )
            before.training = module.training
            if isinstance(before, _Pooled):
                result.update({each: nn.Identity() for each in after})
    return nn.Sequential(OrderedDict(result))


def _is_pooled(module: Any) -> bool:
    """Return whether max-pooling can compute the module after it as well."""
    if type(module) is nn.Dropout:
        return 0 < module.p < 1 and (_BYTE * module.p).is_integer()
    return type(module) is nn.ReLU or (
        type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)
    )


def _fast(
    module: nn.Module, before: nn.Module | None, after: Sequence[nn.Module], sparse_gradients: bool
) -> nn.Module:
    n_relu, n_dropout = (
        sum(isinstance(each, kind) for each in after) for kind in (nn.ReLU, nn.Dropout)
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


@functools.cache
def compiled_loops() -> Any:
    """Return the compiled loops, or None without numba or NumPy."""
    try:
        from mnistbench.workloads.loops import compiled

        return compiled()
    except ImportError:
        return None


def _array(tensor: Tensor) -> Any:
    """Return the tensor as a contiguous array, which shares its memory if it can.

    bfloat16 and float16 become float32.
    """
    is_converted = tensor.is_floating_point() and tensor.dtype not in _OF_NUMPY
    return (tensor.float() if is_converted else tensor).detach().contiguous().numpy()


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
        output: Tensor = _Convolution.apply(_autocast(inputs), self.weight, self.bias, self.padding)
        return output


class _Pooled(nn.Module):
    """Max-pooling of a convolution's result, with windows that do not overlap, and ReLU.

    Perhaps dropout and flattening follow.
    """

    def __init__(self, pool: Any, after: Sequence[nn.Module]) -> None:
        super().__init__()
        size = pool.kernel_size
        self.kernel_size = (size, size) if isinstance(size, int) else tuple(size)
        self.p = sum(each.p for each in after if isinstance(each, nn.Dropout))
        self.is_flat = any(isinstance(each, nn.Flatten) for each in after)

    def forward(self, inputs: Tensor) -> Tensor:
        p = self.p if self.training else 0.0
        has_window = all(map(operator.le, self.kernel_size, inputs.shape[-2:]))
        if inputs.dim() == 4 and has_window and inputs.requires_grad and compiled_loops():
            output: Tensor = _Pooling.apply(inputs, self.kernel_size, p, self.is_flat)
            return output
        output = functional.dropout(functional.max_pool2d(inputs, self.kernel_size).relu_(), p)
        return output.flatten(1) if self.is_flat else output


class _Linear(nn.Module):
    """A linear layer.

    Of one sample, it may read only the weights of inputs [1, I] that are not zero.
    """

    def __init__(self, plain: nn.Linear, skips_zeros: bool) -> None:
        super().__init__()
        self.weight = plain.weight
        self.bias = plain.bias
        self._skips_zeros = skips_zeros

    def forward(self, inputs: Tensor) -> Tensor:
        weight = self.weight
        is_one = False
        if torch.is_grad_enabled():
            is_one = (
                self._skips_zeros
                and inputs.shape == (1, weight.shape[1])
                and compiled_loops() is not None
            )
            # To add to it would be slow.
            is_one = is_one and weight.dtype in _OF_NUMPY and weight.grad is None
            # Its elements are in memory by inputs, or by outputs.
            if is_one == weight.is_contiguous():
                weight.data = (
                    weight.data.t().contiguous().t() if is_one else weight.data.contiguous()
                )
        if inputs.dim() != 2:
            return functional.linear(inputs, weight, self.bias)
        product = _ProductOfFew if is_one else _Product
        output: Tensor = product.apply(inputs if is_one else _autocast(inputs), weight, self.bias)
        return output


def _autocast(inputs: Tensor) -> Tensor:
    """Convert the inputs of a Function, as autocast does those of PyTorch's operations."""
    return (
        inputs.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else inputs
    )


# ---- Gradients -----------------------------------------------------------------------------------


class _Convolution(torch.autograd.Function):
    """``conv2d`` with a channels-last result, whose gradient may be sparse."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]
    ) -> Tensor:
        # A tensor of one channel is contiguous in both formats: only a copy has the strides of the
        # wanted one.
        channels_last = Tensor.clone if inputs.shape[1] == 1 else Tensor.contiguous
        inputs = channels_last(inputs, memory_format=torch.channels_last)
        weight = weight.to(inputs.dtype)
        bias = None if bias is None else bias.to(inputs.dtype)
        ctx.save_for_backward(inputs, weight)
        ctx.padding = padding
        return functional.conv2d(inputs, weight, bias, padding=padding)

    @staticmethod
    @once_differentiable  # its sums are not known to autograd
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors  # [B, C, H, W], [O, C, k, l]
        needed = ctx.needs_input_grad
        (height, width) = ctx.padding
        if not gradient.is_sparse:
            arguments = (
                inputs,
                weight,
                None,
                [1, 1],
                [height, width],
                [1, 1],
                False,
                [0, 0],
                1,
                [needed[0], True, False],
            )
            of_inputs, of_weight, _ = torch.ops.aten.convolution_backward(gradient, *arguments)
            return of_inputs, of_weight, gradient.sum((0, 2, 3)) if needed[2] else None, None
        # Not coalesced.
        elements = _array(gradient._indices()), _array(gradient._values())  # noqa: SLF001
        images = (
            functional.pad(inputs, (width, width, height, height)) if any(ctx.padding) else inputs
        )
        by_rows = [each.permute(0, 2, 3, 1) for each in (images, weight)]
        pixels, weights = (_array(each.flatten(2)) for each in by_rows)
        to_inputs, to_weights, to_bias = (
            _array(inputs.new_zeros(each)) for each in (pixels.shape, weights.shape, len(weight))
        )
        add = functools.partial(compiled_loops().add_products, *elements, inputs.shape[1])
        calls = [functools.partial(add, pixels, to_weights, to_bias, False)]
        if needed[0]:
            calls.append(functools.partial(add, to_inputs, weights, to_bias, True))
        _at_once(len(elements[1]) >= SUMMED_AT_ONCE, calls)
        of_inputs, of_weight = (
            torch.from_numpy(each).view(like.shape).permute(0, 3, 1, 2).to(inputs.dtype)
            for each, like in zip((to_inputs, to_weights), by_rows, strict=True)
        )
        of_inputs = of_inputs[
            :, :, height : images.shape[2] - height, width : images.shape[3] - width
        ]
        of_bias = torch.from_numpy(to_bias).to(inputs.dtype) if needed[2] else None
        return of_inputs if needed[0] else None, of_weight, of_bias, None


class _Pooling(torch.autograd.Function):
    """Max-pooling, ReLU and dropout of a convolution's result [B, O, h, w].

    Its gradient is sparse.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, size: tuple[int, int], p: float, is_flat: bool) -> Tensor:
        pixels = inputs.permute(0, 2, 3, 1).contiguous().view(_INTEGERS[inputs.element_size()])
        n, height, width, n_channels = pixels.shape
        grid = height // size[0], width // size[1]
        n_windows = math.prod(grid)
        output = pixels.new_zeros(n, n_windows * n_channels)
        random = torch.zeros(-(-output.numel() // 8), dtype=torch.int64)
        if p:
            random.random_(-(2**63), None)
        arrays = [
            each.numpy()
            for each in (
                pixels,
                random.view(torch.uint8)[: output.numel()].view(output.shape),
                output,
            )
        ]
        ctx.shape = inputs.shape
        ctx.scale = 1 / (1 - p)
        ctx.is_flat = is_flat
        strides = (1, n_windows) if is_flat else (n_channels, 1)
        limits = torch.tensor([-math.inf, math.nan], dtype=inputs.dtype).view(pixels.dtype).numpy()
        constants = (size, grid, strides, int(_BYTE * p), limits)
        pool = compiled_loops().pool
        calls = [
            functools.partial(pool, *(each[half] for each in arrays), half.start, *constants)
            for half in _halves(n)
        ]
        kept = [
            torch.from_numpy(each) for each in _at_once(output.numel() >= POOLED_AT_ONCE, calls)
        ]
        ctx.save_for_backward(torch.cat(kept, dim=1))
        in_shape = output if is_flat else output.view(n, *grid, n_channels).permute(0, 3, 1, 2)
        # Last, so that it is no view for autograd, which modules after it may change.
        result = in_shape.view(inputs.dtype)
        return result.mul_(ctx.scale) if p else result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        [kept] = ctx.saved_tensors
        by_output = gradient if ctx.is_flat else gradient.permute(0, 2, 3, 1)
        values = by_output.flatten().index_select(0, kept[4]).mul_(ctx.scale)
        return (
            torch.sparse_coo_tensor(kept[:4], values, ctx.shape, check_invariants=False),
            None,
            None,
            None,
        )


def _halves(n: int) -> list[slice]:
    return [slice(0, n // 2), slice(n // 2, n)] if n > 1 else [slice(0, n)]


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
        of_bias = gradient.sum(0) if ctx.needs_input_grad[2] else None
        of_inputs = _product(gradient, weight) if ctx.needs_input_grad[0] else None
        return of_inputs, _product(gradient.t(), inputs), of_bias


class _ProductOfFew(torch.autograd.Function):
    """``linear`` of one sample that reads only the weights of inputs that are not zero.

    It has the gradients of those only.

    The gradient of the weights is sparse. The others' gradients must not be needed, as those of
    ReLU's and dropout's zeros.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Shapes: [1, I], [M, I], [M] -> [1, M]."""
        ctx.save_for_backward(inputs, weight)
        ctx.few, sums = compiled_loops().sum_of_columns(
            _array(inputs[0].to(weight.dtype)), _array(weight.t())
        )
        output = torch.from_numpy(sums)
        return (output if bias is None else output.add_(bias)).to(inputs.dtype).unsqueeze(0)

    @staticmethod
    @once_differentiable  # its sums are not known to autograd
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        of_bias = gradient[0].to(weight.dtype)
        of_inputs = torch.zeros(weight.shape[1], dtype=weight.dtype)
        loop = compiled_loops().gradients_of_columns
        values = _array(inputs[0].to(weight.dtype))
        found = loop(ctx.few, values, _array(weight.t()), _array(of_bias), of_inputs.numpy())
        elements, of_elements = map(torch.from_numpy, found)
        of_weight = torch.sparse_coo_tensor(
            elements, of_elements, weight.shape, check_invariants=False
        )
        return (
            of_inputs.to(inputs.dtype).unsqueeze(0),
            of_weight,
            of_bias.clone() if ctx.needs_input_grad[2] else None,
        )


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


# ---- Optimizer -----------------------------------------------------------------------------------


class Adadelta:
    """Adadelta without weight decay, as ``torch.optim.Adadelta``.

    Zeiler, https://arxiv.org/abs/1212.5701

    With v and u the running averages of squared gradients and of squared updates, one step is

        v = rho v + (1 - rho) g^2
        d = sqrt((u + eps) / (v + eps)) g
        u = rho u + (1 - rho) d^2
        p = p - lr d

    All elements of an average are multiplied by rho, so this factor is stored once: v = c S and u =
    c D, where a step makes c smaller and changes only those elements of S and D that have a
    gradient. A gradient may be sparse.

    It is not a ``torch.optim.Optimizer``: making the first one imports ``torch._dynamo``, which
    takes seconds.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6
    ) -> None:
        """Take the parameters and the constants with PyTorch's names and defaults."""
        self.param_groups: list[dict[str, Any]] = [
            {"params": list(params), "lr": lr, "rho": rho, "eps": eps}
        ]
        self._states: list[dict[str, Any]] = [{} for _ in self.param_groups[0]["params"]]
        self._arrays: dict[int, tuple[Any, _Arrays | None]] = {}

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update all parameters that have a gradient."""
        [group] = self.param_groups
        rho = group["rho"]
        eps = group["eps"]
        for number, (parameter, state) in enumerate(
            zip(group["params"], self._states, strict=True)
        ):
            gradient = parameter.grad
            if gradient is None:
                continue
            if not state:
                state.update(
                    factor=1.0,
                    squares=torch.zeros_like(parameter),
                    deltas=torch.zeros_like(parameter),
                )
            state["factor"] *= rho
            if state["factor"] < SMALLEST_FACTOR:
                for average in (state["squares"], state["deltas"]):
                    average.mul_(state["factor"])
                state["factor"] = 1.0
            factor = state["factor"]
            share = (1 - rho) / state["factor"]
            constants: tuple[float, ...] = (
                share,
                eps * rho / factor,
                eps / factor,
                share / rho,
                -group["lr"] / rho**0.5,
            )
            memory = parameter.data_ptr(), parameter.stride()
            if number not in self._arrays or self._arrays[number][0] != memory:
                self._arrays[number] = memory, _Arrays.of(parameter, state)
            if arrays := self._arrays[number][1]:
                arrays.update(gradient, constants)
            else:
                _update(parameter, gradient, state, constants)

    def state_dict(self) -> dict[str, Any]:
        """Return the constants and the state of each parameter.

        ``step`` goes on to change them.
        """
        group = {name: value for name, value in self.param_groups[0].items() if name != "params"}
        return {"states": self._states, "group": group}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the result of ``state_dict``, of as many parameters in the same order."""
        self._states = [dict(state) for state in state_dict["states"]]
        self._arrays = {}
        self.param_groups[0].update(state_dict["group"])


#: Optimizers that a step can use.
Optimizer = torch.optim.Optimizer | Adadelta


class _Arrays:
    """A parameter and its averages as arrays with the dimensions in the order of their memory."""

    def __init__(self, order: list[int], tensors: Sequence[Tensor]) -> None:
        self._order = order
        self._arrays = [_array(each.permute(order)) for each in tensors]
        self._flat = [each.reshape(-1) for each in self._arrays]

    @classmethod
    def of(cls, parameter: Tensor, state: dict[str, Any]) -> _Arrays | None:
        """Give the averages the parameter's order. Return None if the loops cannot update them."""
        order = sorted(range(parameter.dim()), key=lambda each: -parameter.stride()[each])
        for name in ("squares", "deltas"):
            state[name] = torch.empty_like(parameter).copy_(state[name])
        is_dense = parameter.permute(order).is_contiguous() and parameter.dtype in _OF_NUMPY
        return (
            cls(order, (parameter, state["squares"], state["deltas"]))
            if is_dense and compiled_loops()
            else None
        )

    def update(self, gradient: Tensor, constants: tuple[float, ...]) -> None:
        """Update them by the compiled loops."""
        loops = compiled_loops()
        if gradient.is_sparse and gradient.sparse_dim() == len(self._order) == 2:
            # Not coalesced.
            values = _array(gradient._values())  # noqa: SLF001
            indices = _array(gradient._indices())  # noqa: SLF001
            rows, columns = (indices[each] for each in self._order)
            if loops.update_elements(
                *self._arrays, rows, columns, values, values.dtype.type(constants)
            ):
                return
        values = _array(gradient.to_dense().permute(self._order)).reshape(-1)
        numbers = values.dtype.type(constants)
        if len(values) < UPDATED_AT_ONCE:
            loops.update(*self._flat, values, numbers)
            return
        parts = [[each[half] for each in (*self._flat, values)] for half in _halves(len(values))]
        _at_once(True, [functools.partial(loops.update, *part, numbers) for part in parts])


def _at_once(is_large: bool, calls: Sequence[Callable[[], object]]) -> list[Any]:
    """Return the results of one or two functions of compiled loops.

    They are called at the same time where that is faster.
    """
    if not is_large or torch.get_num_threads() == 1:
        return [call() for call in calls]
    begun = [_thread_of(os.getpid()).submit(call) for call in calls[1:]]
    return [calls[0](), *(each.result() for each in begun)]


@functools.cache
def _thread_of(process: int) -> ThreadPoolExecutor:  # noqa: ARG001  # a fork has no threads
    """Return one thread, which is kept.

    The system starts a new one on the core of the thread that waits for it.
    """
    return ThreadPoolExecutor(1)


def _update(
    parameter: Tensor, gradient: Tensor, state: dict[str, Any], constants: tuple[float, ...]
) -> None:
    """Update a parameter as the compiled loops do, without them."""
    of_squares, eps_of_deltas, eps_of_squares, of_deltas, scale = constants
    gradient = gradient.to_dense()
    squares = state["squares"]
    deltas = state["deltas"]
    squares.addcmul_(gradient, gradient, value=of_squares)
    update = (deltas + eps_of_deltas).div_(squares + eps_of_squares).sqrt_().mul_(gradient)
    deltas.addcmul_(update, update, value=of_deltas)
    parameter.add_(update, alpha=scale)
