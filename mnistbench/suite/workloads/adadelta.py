"""Adadelta that passes over the elements of a weight once in an update, or over few of them.

**Idea.** All elements of a running average decay by the same factor rho in each step. The factor is
stored once, so the decay takes no pass over the elements. With v and u the running averages of
squared gradients and of squared updates, one step of Adadelta is

    v = rho v + (1 - rho) g^2
    d = sqrt((u + eps) / (v + eps)) g
    u = rho u + (1 - rho) d^2
    p = p - lr d

With v = c S and u = c D, a step makes c smaller and changes only those elements of S and D that
have a gradient. A gradient may be sparse: of one image, few weights of the first linear layer have
one (:mod:`~.sparse_gradients`). numba compiles the rest of an update, which then takes one pass
instead of eight.

**Measured** (``docs/evidence/training.md``). Of a step of ConvNet at batch 64, the update takes
0.75 ms, 1.05 ms before a second thread was kept. In blocks of 64 KiB that fit the cache it took
4 ms instead of 2, because every call costs about 5 us; on a quarter of the rows at a time it took
the same time. Row by row, a sparse gradient of batch size 1 took 2.9 ms instead of 1.8.

**Exact.** Each element gets the operations above. An element without a gradient stays as it is,
which is what a gradient of zero leaves of p.

**Not exact.** c S is rounded differently than v, in the last digits. Before c becomes too small for
float32, it is multiplied into the elements, every 175 steps.

Zeiler, "ADADELTA: An Adaptive Learning Rate Method" (2012), https://arxiv.org/abs/1212.5701
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mnistbench.suite.workloads import compiled
from mnistbench.suite.workloads.compiled import NUMPY_FLOATS, as_array, call_all, halves

#: Elements of a linear layer's gradient from which on two threads take less time.
UPDATE_IN_TWO_THREADS_FROM = 2**19

#: An average's factor is multiplied into its elements before it becomes smaller than this.
SMALLEST_FACTOR = 1e-8


class Adadelta:
    """Adadelta without weight decay, as ``torch.optim.Adadelta``.

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
        # Number of a parameter -> its place in memory, and its arrays there.
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
            share = (1 - rho) / factor
            constants: tuple[float, ...] = (
                share,  # of a squared gradient in S
                eps * rho / factor,  # beside D, whose factor is that of the step before
                eps / factor,  # beside S
                share / rho,  # of a squared change in D; a change is sqrt(rho) d
                -group["lr"] / rho**0.5,  # of a change in the parameter
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
        self._arrays = [as_array(tensor.permute(order)) for tensor in tensors]
        self._flat = [array.reshape(-1) for array in self._arrays]

    @classmethod
    def of(cls, parameter: Tensor, state: dict[str, Any]) -> _Arrays | None:
        """Give the averages the parameter's order. Return None if the loops cannot update them."""
        order = sorted(range(parameter.dim()), key=lambda dim: -parameter.stride()[dim])
        for name in ("squares", "deltas"):
            state[name] = torch.empty_like(parameter).copy_(state[name])
        is_dense = parameter.permute(order).is_contiguous() and parameter.dtype in NUMPY_FLOATS
        return (
            cls(order, (parameter, state["squares"], state["deltas"]))
            if is_dense and compiled.loops()
            else None
        )

    def update(self, gradient: Tensor, constants: tuple[float, ...]) -> None:
        """Update them by the compiled loops."""
        loops = compiled.loops()
        if gradient.is_sparse and gradient.sparse_dim() == len(self._order) == 2:
            # The elements are not coalesced.
            values = as_array(gradient._values())  # noqa: SLF001
            indices = as_array(gradient._indices())  # noqa: SLF001
            rows, columns = (indices[dim] for dim in self._order)
            if loops.update_elements(
                *self._arrays, rows, columns, values, values.dtype.type(constants)
            ):
                return
        values = as_array(gradient.to_dense().permute(self._order)).reshape(-1)
        numbers = values.dtype.type(constants)
        arrays = (*self._flat, values)
        if len(values) < UPDATE_IN_TWO_THREADS_FROM:
            loops.update(*arrays, numbers)
            return
        calls = [
            functools.partial(loops.update, *(array[half] for array in arrays), numbers)
            for half in halves(len(values))
        ]
        call_all(calls, in_two_threads=True)


def _update(
    parameter: Tensor, gradient: Tensor, state: dict[str, Any], constants: tuple[float, ...]
) -> None:
    """Update a parameter as the compiled loops do, without them."""
    square_share, delta_eps, square_eps, delta_share, scale = constants
    gradient = gradient.to_dense()
    squares = state["squares"]
    deltas = state["deltas"]
    squares.addcmul_(gradient, gradient, value=square_share)
    change = (deltas + delta_eps).div_(squares + square_eps).sqrt_().mul_(gradient)
    deltas.addcmul_(change, change, value=delta_share)
    parameter.add_(change, alpha=scale)
