"""The fast training step on a CPU: the same function, gradients and updates as the reference step, in less time.

Each rewrite is exact except for the rounding of sums:

- Convolutions, ReLU and pooling keep their values channels-last, so no operation converts its arguments.
- ReLU and max-pooling commute because both are monotonic, so ReLU processes the pooled quarter of the values.
- Flattening commutes with operations on single values, so these run on contiguous values in both directions.
- Max-pooling, ReLU and dropout leave few outputs of a convolution with a gradient (3 % in ConvNet): the gradients of its
  weights and of its inputs are sums over those only. numba compiles them; without it, the convolution is dense.
- Otherwise the gradient of a convolution's weights is the convolution of its input with its output's gradient, batch and
  channels exchanged.
- An output that is zero for the whole batch leaves its row of a linear layer without a gradient, so only the other rows are
  computed and updated.
- Dropout compares random bytes with 256 p; PyTorch draws a random number of 32 bits per value, one after the other.
- All elements of a running average of Adadelta decay by one factor. It is stored once, so the decay takes no pass over them.
  numba compiles the rest of an update, which then takes one pass instead of eight.

``docs/evidence/training.md`` has what they are worth.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

_BYTE = 256

#: The gradient of a linear layer's weights is sparse if at most this share of its rows has one.
SPARSE_ROWS = 0.5

#: The gradient of a convolution's output is sparse if at most this share of its elements is not zero. With more, the sums
#: take longer than a dense convolution.
SPARSE_OUTPUTS = 0.125

#: Elements of a convolution's and of a linear layer's gradient from which on two threads take less time for the compiled loops.
SUMMED_AT_ONCE, UPDATED_AT_ONCE = 2**13, 2**19

#: A matrix product with fewer multiply-adds than this is computed by MKL: a call of oneDNN takes longer.
ONEDNN_FROM = 2**21

#: An average's factor is multiplied into its elements before it becomes smaller than this, every 175 steps.
SMALLEST_FACTOR = 1e-8

#: Number formats of the compiled loops; NumPy has no bfloat16.
_OF_NUMPY = torch.float32, torch.float64

#: Neighbours that ``fast_model`` exchanges: classes of the first and of the second module.
_COMMUTE: tuple[tuple[Any, Any], ...] = ((nn.ReLU, nn.MaxPool2d), ((nn.ReLU, nn.Dropout), nn.Flatten))


def fast_model(model: nn.Module, *, sparse_gradients: bool = False) -> nn.Module:
    """Return a model that computes the same function of the same parameters faster on a CPU.

    Modules have their names in ``model``; their order differs where operations commute. Modules that are not rewritten are
    shared with ``model``, and so are all parameters. Dropout masks come from another random stream.

    Args:
        model: an ``nn.Sequential``.
        sparse_gradients: let the weights of linear layers have a sparse gradient of rows where few rows have one. The
            optimizer must take it, as :class:`Adadelta` does; most of PyTorch's do not.

    Raises:
        TypeError: the model is not an ``nn.Sequential``, whose modules run in their order.
    """
    if not isinstance(model, nn.Sequential):
        raise TypeError(f"a fast step can be made of an nn.Sequential, not of {type(model).__name__}")
    _make_first_sparse_tensor()
    modules = list(model.named_children())
    for last in range(len(modules) - 1, 0, -1):
        for position in range(last):
            (_, first), (_, second) = modules[position : position + 2]
            if any(isinstance(first, before) and isinstance(second, after) for before, after in _COMMUTE):
                modules[position : position + 2] = modules[position + 1], modules[position]
    result = nn.Sequential()
    before: nn.Module | None = None
    for name, module in modules:
        before = _fast(module, before, sparse_rows=SPARSE_ROWS if sparse_gradients else 0.0)
        result.add_module(name, before)
    return result


def _fast(module: nn.Module, before: nn.Module | None, *, sparse_rows: float) -> nn.Module:
    match module:
        case nn.Conv2d(groups=1, stride=(1, 1), dilation=(1, 1), padding_mode="zeros") if isinstance(module.padding, tuple):
            return _Conv2d(module)
        case nn.MaxPool2d(padding=0, dilation=1, ceil_mode=False, return_indices=False) if module.stride == module.kernel_size:
            return _MaxPool2d(module) if isinstance(before, _Conv2d) else module
        case nn.ReLU() if isinstance(before, _Conv2d):  # whose gradient does not need the result
            return nn.ReLU(inplace=True)
        case nn.Linear():
            return _Linear(module, sparse_rows)
        case nn.Dropout() if (_BYTE * module.p).is_integer() and 0 < module.p < 1:
            return _Dropout(module.p)
    return module


@functools.cache
def _make_first_sparse_tensor() -> None:
    """Make a sparse tensor without its warning: torch 2.11 warns once that checks were not chosen, even where they were."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_coo_tensor(torch.zeros((1, 0), dtype=torch.int64), torch.zeros(0), (1,), check_invariants=False)


@functools.cache
def compiled_loops() -> Any:
    """Return the compiled loops, or None without numba or NumPy."""
    try:
        from mnistbench.workloads.loops import compiled

        return compiled()
    except ImportError:
        return None


def _for_numpy(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype in _OF_NUMPY else tensor.float()


# ---- Modules ---------------------------------------------------------------------------------------------------------


class _Conv2d(nn.Module):
    """A convolution with stride 1 whose result is channels-last."""

    def __init__(self, plain: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias, self.padding = plain.weight, plain.bias, plain.padding

    def forward(self, inputs: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if inputs.dim() != 4:
            return functional.conv2d(inputs, weight, bias, padding=self.padding)
        output: Tensor = _Convolution.apply(_autocast(inputs), weight, bias, self.padding)
        return output


class _MaxPool2d(nn.Module):
    """Max-pooling of a convolution's result, with windows that do not overlap."""

    def __init__(self, plain: nn.MaxPool2d) -> None:
        super().__init__()
        self.kernel_size = plain.kernel_size

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.dim() != 4 or not inputs.requires_grad:
            return functional.max_pool2d(inputs, self.kernel_size)
        output: Tensor = _MaxPooling.apply(inputs, self.kernel_size)
        return output


class _Linear(nn.Module):
    """A linear layer whose weights get a sparse gradient if at most a share of its rows has one."""

    def __init__(self, plain: nn.Linear, sparse_rows: float) -> None:
        super().__init__()
        self.weight, self.bias = plain.weight, plain.bias
        self._sparse_rows = sparse_rows

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.dim() != 2:
            return functional.linear(inputs, self.weight, self.bias)
        output: Tensor = _Product.apply(_autocast(inputs), self.weight, self.bias, self._sparse_rows)
        return output


class _Dropout(nn.Module):
    """Dropout with a probability that is a multiple of 1/256."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * keep_mask(inputs, self.p) if self.training else inputs


def _autocast(inputs: Tensor) -> Tensor:
    """Convert the inputs of a Function, as autocast does those of PyTorch's operations."""
    return inputs.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else inputs


def keep_mask(inputs: Tensor, p: float) -> Tensor:
    """Return a mask of ``inputs``' shape and dtype: 0 with probability p, a multiple of 1/256, else 1 / (1 - p)."""
    words = torch.empty(-(-inputs.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
    random = words.view(torch.uint8)[: inputs.numel()].view(inputs.shape)
    # PyTorch takes ten times as long to compare integers and to convert the result.
    return random.to(inputs.dtype).sub_(_BYTE * p - 1).clamp_(0, 1).mul_(1 / (1 - p))


# ---- Gradients -------------------------------------------------------------------------------------------------------


class _Convolution(torch.autograd.Function):
    """``conv2d`` with a channels-last result, whose gradient may be sparse."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]) -> Tensor:
        # A tensor of one channel is contiguous in both formats: only a copy has the strides of the wanted one.
        channels_last = Tensor.clone if inputs.shape[1] == 1 else Tensor.contiguous
        inputs = channels_last(inputs, memory_format=torch.channels_last)
        weight, bias = weight.to(inputs.dtype), None if bias is None else bias.to(inputs.dtype)
        ctx.save_for_backward(inputs, weight)
        ctx.padding = padding
        return functional.conv2d(inputs, weight, bias, padding=padding)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors  # [B, C, H, W], [O, C, k, l]
        if gradient.is_sparse:
            return *_sparse_gradients(gradient, inputs, weight, ctx.padding, ctx.needs_input_grad), None
        if weight.shape[1] == 1:
            patches = _patches(inputs, weight, ctx.padding)  # [B, k l, h w]
            outputs = gradient.permute(0, 2, 3, 1).flatten(1, 2)  # [B, h w, O]
            of_weight = torch.bmm(patches, outputs).sum(0).t().reshape(weight.shape)
        else:
            # Copied here: conv2d would do the same, more slowly.
            images, filters = inputs.transpose(0, 1).contiguous(), gradient.transpose(0, 1).contiguous()
            of_weight = functional.conv2d(images, filters, padding=ctx.padding).transpose(0, 1)
        of_bias = gradient.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None
        of_inputs = None
        if ctx.needs_input_grad[0]:
            arguments = (inputs, weight, None, [1, 1], list(ctx.padding), [1, 1], False, [0, 0], 1, [True, False, False])
            of_inputs = torch.ops.aten.convolution_backward(gradient, *arguments)[0]
        return of_inputs, of_weight, of_bias, None


def _patches(inputs: Tensor, weight: Tensor, padding: tuple[int, int]) -> Tensor:
    """Return the patches of one channel that each weight meets. Shapes: [B, 1, H, W], [O, 1, k, l] -> [B, k l, h w]."""
    padded = functional.pad(inputs, (padding[1], padding[1], padding[0], padding[0]))
    windows = padded[:, 0].unfold(1, weight.shape[2], 1).unfold(2, weight.shape[3], 1)  # [B, h, w, k, l]
    return windows.permute(0, 3, 4, 1, 2).flatten(3).flatten(1, 2)  # copied once, along the rows of the image


def _sparse_gradients(
    gradient: Tensor, inputs: Tensor, weight: Tensor, padding: tuple[int, int], needed: Sequence[bool]
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """Return the gradients of inputs, weight and bias by a sparse gradient of the output, [B, O, h, w]."""
    loops, indices, values = compiled_loops(), gradient._indices(), gradient._values()  # noqa: SLF001  # not coalesced
    n_channels, (height, width) = inputs.shape[1], padding
    images = functional.pad(inputs, (width, width, height, height)) if any(padding) else inputs
    elements = indices.numpy(), _for_numpy(values).numpy()

    def by_rows(tensor: Tensor) -> Tensor:
        """Return an array [N, rows, columns channels] of a tensor [N, channels, rows, columns]."""
        return _for_numpy(tensor.permute(0, 2, 3, 1).flatten(2)).contiguous()

    def by_planes(rows: Tensor, shape: Sequence[int]) -> Tensor:
        """Return the tensor of this shape of which ``by_rows`` made the array."""
        return rows.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2).to(inputs.dtype)

    of_inputs, pixels, weights = None, by_rows(images), by_rows(weight)
    to_weights, to_inputs, to_bias = torch.zeros_like(weights), torch.zeros_like(pixels), weights.new_zeros(len(weight))
    _at_once(
        len(values) >= SUMMED_AT_ONCE,
        lambda: needed[0] and loops.add_to_inputs(*elements, weights.numpy(), n_channels, to_inputs.numpy()),
        lambda: loops.add_to_weights(*elements, pixels.numpy(), n_channels, to_weights.numpy(), to_bias.numpy()),
    )
    if needed[0]:
        of_inputs = by_planes(to_inputs, images.shape)[:, :, height : images.shape[2] - height, width : images.shape[3] - width]
    # With the strides of the weight: DistributedDataParallel warns of others.
    of_weight = torch.empty_like(weight).copy_(by_planes(to_weights, weight.shape))
    return of_inputs, of_weight, to_bias.to(inputs.dtype) if needed[2] else None


class _MaxPooling(torch.autograd.Function):
    """``max_pool2d`` of a convolution's result. The gradient of its argument is sparse if it has few elements."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, kernel_size: int | tuple[int, int]) -> Tensor:
        output, places = functional.max_pool2d(inputs, kernel_size, return_indices=True)
        ctx.save_for_backward(inputs, places)
        ctx.kernel_size = kernel_size
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, places = ctx.saved_tensors  # places [B, O, h, w]: positions in the planes of inputs
        loops, number = compiled_loops(), 0
        if loops:
            elements = _for_numpy(gradient.flatten(2))
            kept, values = torch.empty(elements.numel() + 1, dtype=torch.int32), elements.new_empty(elements.numel() + 1)
            number = loops.nonzero(elements.numpy(), kept.numpy(), values.numpy())
        if not loops or number > SPARSE_OUTPUTS * inputs.numel():
            size = [ctx.kernel_size] if isinstance(ctx.kernel_size, int) else list(ctx.kernel_size)
            arguments = (inputs, size, size, [0, 0], [1, 1], False, places)
            return torch.ops.aten.max_pool2d_with_indices_backward(gradient, *arguments), None
        indices, by_window = torch.empty(4, number, dtype=torch.int64), places.permute(0, 2, 3, 1).flatten()
        sizes = gradient.shape[1], gradient[0, 0].numel(), inputs.shape[3]
        halves = slice(number // 2), slice(number // 2, number)
        calls = [(kept[half].numpy(), by_window.numpy(), *sizes, indices[:, half].numpy()) for half in halves]
        _at_once(number >= SUMMED_AT_ONCE, *(functools.partial(loops.coordinates, *call) for call in calls))
        values = values[:number].to(inputs.dtype)
        return torch.sparse_coo_tensor(indices, values, inputs.shape, check_invariants=False), None


class _Product(torch.autograd.Function):
    """``linear`` whose backward pass leaves out the outputs that have no gradient."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, sparse_rows: float) -> Tensor:
        ctx.sparse_rows, ctx.dtype = sparse_rows, weight.dtype
        weight, bias = weight.to(inputs.dtype), None if bias is None else bias.to(inputs.dtype)
        ctx.save_for_backward(inputs, weight)
        return _product(inputs, weight.t(), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors  # [B, I], [O, I]
        of_bias = gradient.sum(0) if ctx.needs_input_grad[2] else None
        rows = gradient.any(0).nonzero().flatten()
        if not ctx.sparse_rows or len(rows) > ctx.sparse_rows * len(weight):
            of_inputs = _product(gradient, weight) if ctx.needs_input_grad[0] else None
            return of_inputs, _product(gradient.t(), inputs), of_bias, None
        kept = gradient.index_select(1, rows)
        of_inputs = _product(kept, weight.index_select(0, rows)) if ctx.needs_input_grad[0] else None
        values = _product(kept.t(), inputs).to(ctx.dtype)
        of_weight = torch.sparse_coo_tensor(rows.unsqueeze(0), values, weight.shape, is_coalesced=True, check_invariants=False)
        return of_inputs, of_weight, of_bias, None


def _product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the matrix product. Shapes: [N, I], [I, O], [O] -> [N, O].

    In float32 PyTorch calls MKL, which takes up to twice the time of oneDNN.
    """
    if left.dtype == torch.float32 and left.numel() * right.shape[1] >= ONEDNN_FROM and _has_onednn():
        product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.t(), bias, "none", [], "")  # noqa: SLF001
        return product
    return functional.linear(left, right.t(), bias)


def _has_onednn() -> bool:
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]  # torch leaves it untyped


# ---- Optimizer -------------------------------------------------------------------------------------------------------


class Optimizer(Protocol):
    """What a step needs of an optimizer: ``torch.optim.Optimizer`` has it, and so has ``Adadelta``."""

    param_groups: list[dict[str, Any]]

    def zero_grad(self) -> None:
        """Drop the gradients."""

    def step(self) -> object:
        """Update the parameters."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the result of ``state_dict``."""


class Adadelta:
    """Adadelta without weight decay (Zeiler, https://arxiv.org/abs/1212.5701), as ``torch.optim.Adadelta``.

    With v and u the running averages of squared gradients and of squared updates, one step is

        v = rho v + (1 - rho) g^2;  d = sqrt((u + eps) / (v + eps)) g;  u = rho u + (1 - rho) d^2;  p = p - lr d

    All elements of an average are multiplied by rho, so this factor is stored once: v = c S and u = c D, where a step makes c
    smaller and changes only those elements of S and D that have a gradient. A gradient may be a sparse tensor of rows.

    It is not a ``torch.optim.Optimizer``: making the first one imports ``torch._dynamo``, which takes seconds.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6) -> None:
        """Take the parameters and the constants with PyTorch's names and defaults."""
        self.param_groups: list[dict[str, Any]] = [{"params": list(params), "lr": lr, "rho": rho, "eps": eps}]
        self._states: list[dict[str, Any]] = [{} for _ in self.param_groups[0]["params"]]

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update all parameters that have a gradient."""
        [group] = self.param_groups
        used = self._decayed()
        if (loops := compiled_loops()) and all(each.is_contiguous() and each.dtype in _OF_NUMPY for each, _ in used):
            for parameter, state in used:
                _update(loops, parameter, state, group)
            return
        scale = -group["lr"] / group["rho"] ** 0.5
        dense = [(parameter, state) for parameter, state in used if not parameter.grad.is_sparse]
        if dense:
            parameters, states = zip(*dense, strict=True)
            updates = _updates([parameter.grad for parameter in parameters], states, group)
            torch._foreach_add_(parameters, updates, alpha=scale)
        for parameter, state in used:
            if parameter.grad.is_sparse:
                rows = parameter.grad._indices()[0]  # noqa: SLF001  # autograd forgets that it is coalesced, and values()
                values = parameter.grad._values()  # noqa: SLF001  # would refuse it
                averages = {name: state[name].index_select(0, rows) for name in ("squares", "deltas")}
                [update] = _updates([values], [state | averages], group)
                for name, average in averages.items():
                    state[name].index_copy_(0, rows, average)
                parameter.index_add_(0, rows, update, alpha=scale)

    def _decayed(self) -> list[tuple[Any, dict[str, Any]]]:
        """Return the parameters that have a gradient, with their states after the decay."""
        [group] = self.param_groups
        used = [each for each in zip(group["params"], self._states, strict=True) if each[0].grad is not None]
        for parameter, state in used:
            if not state:
                state.update(factor=1.0, squares=torch.zeros_like(parameter), deltas=torch.zeros_like(parameter))
            state["factor"] *= group["rho"]
            if state["factor"] < SMALLEST_FACTOR:
                for average in (state["squares"], state["deltas"]):
                    average.mul_(state["factor"])
                state["factor"] = 1.0
        return used

    def state_dict(self) -> dict[str, Any]:
        """Return the constants and the state of each parameter, which ``step`` goes on to change."""
        group = {name: value for name, value in self.param_groups[0].items() if name != "params"}
        return {"states": self._states, "group": group}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the result of ``state_dict``, of as many parameters in the same order."""
        self._states = [dict(state) for state in state_dict["states"]]
        self.param_groups[0].update(state_dict["group"])


def _update(loops: Any, parameter: nn.Parameter, state: dict[str, Any], group: dict[str, Any]) -> None:
    """Update a parameter by the compiled loops."""
    rho, eps, factor = group["rho"], group["eps"], state["factor"]
    gradient: Any = parameter.grad
    share = (1 - rho) / factor
    numbers = share, eps * rho / factor, eps / factor, share / rho, -group["lr"] / rho**0.5
    n_rows = len(parameter) if parameter.dim() else 1
    n_columns = parameter.numel() // max(n_rows, 1)
    updated = [each.detach().view(n_rows, n_columns).numpy() for each in (parameter, state["squares"], state["deltas"])]
    if gradient.is_sparse:  # autograd forgets that it is coalesced, and values() would refuse it
        rows, gradient = gradient._indices()[0], gradient._values()  # noqa: SLF001
    else:
        rows = torch.arange(n_rows)
    rows, gradient, constants = rows.numpy(), gradient.reshape(len(rows), n_columns).numpy(), updated[0].dtype.type(numbers)
    half = len(rows) // 2
    _at_once(
        gradient.size >= UPDATED_AT_ONCE,
        lambda: loops.update(*updated, rows[:half], gradient[:half], constants),
        lambda: loops.update(*updated, rows[half:], gradient[half:], constants),
    )


def _at_once(is_large: bool, first: Callable[[], object], second: Callable[[], object]) -> None:
    """Run two functions of compiled loops, at the same time where that is faster."""
    if not is_large or torch.get_num_threads() == 1:
        first()
        second()
        return
    with ThreadPoolExecutor(1) as beside:  # for this call only: its thread would be lost in a fork
        begun = beside.submit(first)
        second()
        begun.result()


def _updates(gradients: list[Tensor], states: Sequence[dict[str, Any]], group: dict[str, Any]) -> list[Tensor]:
    """Change the averages of several tensors by their gradients; return the updates d without a constant, the root of 1 / rho.

    The factors of S and D are already those after the step, so u before it is D c / rho.
    """
    rho, eps, share = group["rho"], group["eps"], 1 - group["rho"]
    squares, deltas, factors = ([state[name] for state in states] for name in ("squares", "deltas", "factor"))
    torch._foreach_addcmul_(squares, gradients, gradients, [share / factor for factor in factors])
    updates = torch._foreach_add(deltas, [eps * rho / factor for factor in factors])  # noqa: SLF001
    torch._foreach_div_(updates, torch._foreach_add(squares, [eps / factor for factor in factors]))  # noqa: SLF001
    torch._foreach_sqrt_(updates)
    torch._foreach_mul_(updates, gradients)
    torch._foreach_addcmul_(deltas, updates, updates, [share / (rho * factor) for factor in factors])
    return list(updates)
