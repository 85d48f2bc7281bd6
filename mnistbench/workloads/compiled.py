"""The fast step of small batches, compiled: such a step takes most of its time for calls, not for arithmetic.

One compiled function runs the model forward and backward and updates its weights. Of the weights of a large linear layer only
those rows are updated whose output has a gradient. Their number differs from step to step, so a second function does that.
"""

from __future__ import annotations

import logging
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mnistbench.workloads.data import Batch
from mnistbench.workloads.fast import Adadelta, in_fast_order
from mnistbench.workloads.step import Step

#: Steps of a training from which on compiling pays: it takes up to 20 s and saves 0.8 ms of the 1.8 ms of a step of ConvNet at
#: batch size 1.
COMPILE_FROM = 25_000

#: Largest batch size at which the compiled step is faster.
COMPILE_UP_TO = 2

#: A linear layer with this number of weights is large: to choose rows takes less time than to pass over all of them.
LARGE = 2**16

_Loss = Callable[[Tensor, Tensor], Tensor]


def compiled_step(step: Step, model: nn.Module, loss: _Loss, batch: Batch) -> Step:
    """Return a step that is compiled for batches of one shape, or ``step`` if it cannot be compiled.

    Args:
        step: the fast step, of float32; it also trains batches of other shapes.
        model: that of which the model of ``step`` was made.
        loss: mean loss of outputs and targets.
        batch: inputs and targets with the shape of most batches.
    """
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)  # the compiler looks for CUDA and logs that there is none
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=()):
            warnings.simplefilter("ignore")  # torch 2.11: its compiler uses what it deprecates
            return _CompiledStep(step, model, loss, batch)
    except Exception:  # noqa: BLE001  # of a compiler that is missing or fails: any
        return step
    finally:
        logging.disable(disabled)


class _CompiledStep(Step):
    def __init__(self, step: Step, model: nn.Module, loss: _Loss, batch: Batch) -> None:
        assert isinstance(step.optimizer, Adadelta), "the optimizer of the fast step"
        super().__init__(step.model, loss, step.optimizer)
        modules, names = in_fast_order(model), {id(parameter): name for name, parameter in model.named_parameters()}
        self._fast, self._shape, self._adadelta = step, batch[0].shape, step.optimizer
        self._names = [names[id(parameter)] for parameter in step.optimizer.param_groups[0]["params"]]
        # What is added to the outputs of large layers, so that they have gradients.
        self._zeros = {
            name: torch.zeros(len(batch[0]), module.out_features)
            for name, module in modules
            if isinstance(module, nn.Linear) and module.weight.numel() >= LARGE
        }
        self._train, self._update_rows = _compiled(_training(modules, loss)), _compiled(_update_rows, dynamic=True)
        self._small, self._large = self._averaged(step.optimizer)
        copy = Adadelta([nn.Parameter(parameter.detach().clone()) for parameter in step.optimizer.param_groups[0]["params"]])
        self._run(copy, *self._averaged(copy), *batch)

    def _averaged(self, optimizer: Adadelta) -> tuple[dict[str, tuple[Tensor, ...]], dict[str, tuple[Tensor, ...]]]:
        """Return the parameters with both averages by name, and apart from them the weights of large layers by layer."""
        states = optimizer.state_dict()["states"]
        if len({state["factor"] for state in states}) > 1:
            raise ValueError("the averages have several factors")
        found: dict[str, tuple[Tensor, ...]] = {
            name: (parameter.detach(), state["squares"], state["deltas"])
            for name, parameter, state in zip(self._names, optimizer.param_groups[0]["params"], states, strict=True)
        }
        return found, {name: found.pop(f"{name}.weight") for name in self._zeros}

    def __call__(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Update the weights once; return output and loss from before the update."""
        if inputs.shape != self._shape:
            return self._fast(inputs, targets)
        return self._run(self._adadelta, self._small, self._large, inputs, targets)

    @torch.no_grad()
    def _run(
        self, optimizer: Adadelta, small: dict[str, Any], large: dict[str, Any], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        [group], [(_, state), *_] = optimizer.param_groups, optimizer.decayed(without_gradient=True)
        rho, eps, factor = group["rho"], group["eps"], state["factor"]
        share = (1 - rho) / factor
        numbers = share, eps * rho / factor, eps / factor, share / rho, -group["lr"] / rho**0.5
        constants = torch.tensor(
            numbers, dtype=torch.float64
        )  # as a number of Python each would be a part of the compiled code
        weights = {name: weight for name, (weight, _, _) in large.items()}
        output, loss, layers = self._train(small, weights, self._zeros, constants, inputs, targets)
        for name, (into, gradient) in layers.items():
            rows = gradient.any(0).nonzero().flatten()
            if len(rows) == 1:  # the function was compiled for several; a row without a gradient does not change
                rows = torch.cat([rows, (rows + 1) % gradient.shape[1]])
            if len(rows):
                self._update_rows(*large[name], into, gradient, rows, constants)
        return output, loss


def _compiled(function: Callable[..., Any], *, dynamic: bool = False) -> Callable[..., Any]:
    """Compile a function without guards, which take 0.05 ms per call: only the sizes of its tensors may change, if ``dynamic``.

    PyTorch keeps what it compiled by the code object, and without guards it would be used for other models.
    """
    code = function.__code__.replace()
    own = types.FunctionType(code, function.__globals__, closure=function.__closure__)
    options: dict[str, Any] = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
    return torch.compile(own, fullgraph=True, dynamic=dynamic, options=options)


def _training(modules: list[tuple[str, nn.Module]], loss: _Loss) -> Callable[..., Any]:
    """Return the function that runs the modules forward and backward and updates all weights except those of large layers.

    It returns the output, the loss, and the inputs of each large layer with the gradient of its outputs.
    """

    def train(
        small: dict[str, tuple[Tensor, Tensor, Tensor]],
        large: dict[str, Tensor],
        zeros: dict[str, Tensor],
        constants: Tensor,
        inputs: Tensor,
        targets: Tensor,
    ) -> tuple[Tensor, Tensor, dict[str, tuple[Tensor, Tensor]]]:
        def loss_of(values: dict[str, Tensor], zeros: dict[str, Tensor]) -> tuple[Tensor, Any]:
            hidden, into = inputs, {}
            for name, module in modules:
                if name in large:
                    into[name] = hidden
                    hidden = functional.linear(hidden, large[name], values.get(f"{name}.bias")) + zeros[name]
                elif isinstance(module, nn.Dropout):
                    hidden = _dropout(hidden, module.p)
                else:
                    own = {of_module: values[f"{name}.{of_module}"] for of_module, _ in module.named_parameters()}
                    hidden = torch.func.functional_call(module, own, hidden)
            mean_loss = loss(hidden, targets)
            return mean_loss, (hidden, mean_loss, into)

        values = {name: weights for name, (weights, _, _) in small.items()}
        differentiated = torch.func.grad(loss_of, argnums=(0, 1), has_aux=True)
        (gradients, of_outputs), (output, mean_loss, into) = differentiated(values, zeros)
        for name, averaged in small.items():
            for tensor, changed in zip(averaged, _updated(*averaged, gradients[name], constants), strict=True):
                tensor.copy_(changed)
        return output, mean_loss, {name: (into[name], of_outputs[name]) for name in large}

    return train


def _dropout(inputs: Tensor, p: float) -> Tensor:
    """Return the inputs with elements set to 0 with probability p; PyTorch's own is no part of the compiled code."""
    return torch.where(torch.rand_like(inputs) < p, 0, inputs / (1 - p))


def _update_rows(
    weights: Tensor, squares: Tensor, deltas: Tensor, into: Tensor, gradient: Tensor, rows: Tensor, constants: Tensor
) -> None:
    """Update rows of the weights [O, I] of a layer by its inputs [B, I] and the gradient of its outputs [B, O]."""
    of_rows = gradient[:, rows].t() @ into
    changed_rows = _updated(weights[rows], squares[rows], deltas[rows], of_rows, constants)
    for tensor, changed in zip((weights, squares, deltas), changed_rows, strict=True):
        tensor.index_copy_(0, rows, changed)  # index_add_ would be compiled with atomic sums


def _updated(weights: Tensor, squares: Tensor, deltas: Tensor, gradient: Tensor, constants: Tensor) -> tuple[Tensor, ...]:
    """Return what :class:`Adadelta` makes of weights and their averages."""
    of_squares, eps_of_deltas, eps_of_squares, of_deltas, scale = constants
    squares = squares + of_squares * gradient * gradient
    update = torch.sqrt((deltas + eps_of_deltas) / (squares + eps_of_squares)) * gradient
    return weights + scale * update, squares, deltas + of_deltas * update * update
