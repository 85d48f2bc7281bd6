"""Count the FLOPs and bytes of every operation and layer.

They follow from the shapes of the tensors that the dispatcher sees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from mnistbench.core.operation import OWN_SHARE, OpKey
from mnistbench.events.from_profiler import trace_of
from mnistbench.events.model import Trace
from mnistbench.events.work.roofline import Cost, total_cost
from mnistbench.suite.measuring.case import Case
from mnistbench.suite.measuring.profiling import activities_of, profile_iterations
from mnistbench.suite.profile.result import Layer

#: Profiled iterations: several, because the times of the shortest operations vary.
ITERATIONS = 3

#: Operations that do not read the data of their first argument: they overwrite it or use only its
#: shape.
FIRST_NOT_READ = frozenset(
    f"aten::{name}"
    for name in (
        "copy_",
        "fill_",
        "zero_",
        "_foreach_copy_",
        "_foreach_zero_",
        "bernoulli_",
        "uniform_",
        "normal_",
        "random_",
        "exponential_",
        "geometric_",
        "cauchy_",
        "log_normal_",
        "zeros_like",
        "ones_like",
        "full_like",
        "rand_like",
        "randn_like",
        "randint_like",
    )
)

_COST = "mnistbench.cost:"


def operation_costs(case: Case) -> dict[OpKey, Cost]:
    """Return the FLOPs and bytes of each operation in one iteration.

    The names are those of the case's operation tables.

    The dispatcher sees ``aten::convolution``, but the profiler assigns the self time to the
    ``aten::mkldnn_convolution`` that it calls. Therefore one pass counts at the dispatcher and
    marks each operation with a range. Within the range, the cost goes to the operation itself or,
    if it spends nearly all its time in operations that it calls, to the one of these with the
    longest self time. The times of that pass are used for nothing else.

    Empty for a case whose iterations do not all run the same operations: they have no common cost.
    """
    case.reset()
    case()  # the optimizer makes its state
    counted = Counting()
    with counted:
        recorded = profile_iterations(
            case,
            iterations=ITERATIONS,
            activities=activities_of(case.params.device, "host"),
            shapes=False,
        )
    trace = trace_of(recorded)
    case.reset()
    return _by_doer(trace, counted.costs)


def moved_bytes(call: Callable[[], object]) -> int:
    """Return the bytes that the operations of a call read and write, ignoring caches.

    Each tensor counts once for each operation.
    """
    counted = Counting()
    with counted:
        call()
    return counted.moved_bytes


def _by_doer(trace: Trace, counted: Sequence[tuple[str, Cost]]) -> dict[OpKey, Cost]:
    """Assign the costs of ITERATIONS iterations to the operations that do the work."""
    per_iteration = len(counted) // ITERATIONS
    if list(counted) != list(counted[:per_iteration]) * ITERATIONS:
        return {}
    self_ns: list[dict[OpKey, int]] = [defaultdict(int) for _ in range(per_iteration)]
    for event in trace.kept_host:
        counted_range = event.enclosing(_COST)
        if counted_range is not None and counted_range is not event:
            number = int(counted_range.name.removeprefix(_COST)) % per_iteration
            self_ns[number][event.name, *counted_range.scope] += event.self_ns
    costs_by_doer: dict[OpKey, list[Cost]] = defaultdict(list)
    for (name, cost), times_of_range in zip(counted[:per_iteration], self_ns, strict=True):
        if times_of_range and (cost.flops or cost.n_bytes):  # a view has neither
            costs_by_doer[_doer(name, times_of_range)].append(cost)
    return {key: total_cost(costs) for key, costs in costs_by_doer.items()}


def _doer(name: str, self_ns: Mapping[OpKey, int]) -> OpKey:
    own = next((key for key in self_ns if key[0] == name), None)
    if own and self_ns[own] >= OWN_SHARE * sum(self_ns.values()):
        return own
    return max(self_ns, key=lambda key: self_ns[key])


class Counting(TorchDispatchMode):
    """Counts the cost of every operation and marks the operation with a profiler range."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.costs: list[tuple[str, Cost]] = []
        self.views = 0  # operations that return a view, which compute nothing
        self.names: list[str] = []  # of all others, without the namespace of ATen

    @property
    def moved_bytes(self) -> int:
        """What all operations read and write, ignoring caches."""
        return sum(cost.n_bytes for _, cost in self.costs)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket not in flop_registry:
            # Without autograd aten::conv2d is not decomposed yet; its parts have formulas.
            with self:
                decomposed = func.decompose(*args, **kwargs)
            if decomposed is not NotImplemented:
                return decomposed
        with record_function(f"{_COST}{len(self.costs)}"):
            out = func(*args, **kwargs)
        cost = Cost(_flops(func, args, kwargs, out), _bytes(func, args, kwargs, out))
        self.costs.append((func._schema.name, cost))  # noqa: SLF001  # the only way to the schema
        if func.is_view:
            self.views += 1
        else:
            self.names.append(str(func.overloadpacket).removeprefix("aten."))
        return out


def _flops(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> int | None:
    """Apply the formula of ``torch.utils.flop_counter``.

    Operations such as batch norm and ReLU have none.
    """
    # The counter does not know it.
    if func._schema.name == "mkldnn::_linear_pointwise":  # noqa: SLF001
        return 2 * int(out.numel()) * int(args[0].shape[-1])
    formula = flop_registry.get(func.overloadpacket)
    return int(formula(*args, **kwargs, out_val=out)) if formula else None


def _bytes(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> int:
    """Count each tensor once if the operation reads it and once if it writes it.

    A tensor that is changed in place counts twice. Views move no data, and memory that is only
    allocated is not written: both count 0.
    """
    schema = func._schema  # noqa: SLF001
    returned = [returned.alias_info for returned in schema.returns]
    if (
        returned and all(alias is not None and not alias.is_write for alias in returned)
    ) or "empty" in schema.name:
        return 0
    changed = [
        argument
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    # out= and the like.
    only_written = {argument.name for argument in changed if argument.kwarg_only}
    arguments_by_name = {
        **{argument.name: value for argument, value in zip(schema.arguments, args, strict=False)},
        **kwargs,
    }
    read = [
        value
        for position, (name, value) in enumerate(arguments_by_name.items())
        if name not in only_written and not (position == 0 and schema.name in FIRST_NOT_READ)
    ]
    written = [
        arguments_by_name[argument.name]
        for argument in changed
        if argument.name in arguments_by_name
    ]
    return _size(read) + _size((out, written))


def _size(values: Any) -> int:
    """Return the bytes of all tensors among values, each once."""
    tensors = {id(tensor): tensor for tensor in tree_leaves(values) if isinstance(tensor, Tensor)}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def layers(model: nn.Module, inputs: Tensor) -> tuple[Layer, ...]:
    """Return every module without modules inside, in the order of the forward pass.

    Its numbers are those of one sample of a batch [B, ...].
    """
    # By hooks: ``counter.get_flop_counts()`` has one sum of all calls of a module, so a module that
    # runs twice would have one row with twice its FLOPs, and none if it has no formula.
    ordered: list[Layer] = []
    before: list[int] = []
    counter = FlopCounterMode(display=False)

    def enter(*_: object) -> None:
        before.append(counter.get_total_flops())

    def leave(name: str) -> Any:
        def hook(module: nn.Module, _: object, output: object) -> None:
            flops = counter.get_total_flops() - before.pop()
            first = next((leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)), None)
            if first is not None:
                ordered.append(_layer(name, module, first, flops))

        return hook

    training = model.training
    with torch.no_grad(), counter:
        hooks = [
            hook
            for name, module in model.named_modules()
            if not any(True for _ in module.children())
            for hook in (
                module.register_forward_pre_hook(enter),
                module.register_forward_hook(leave(name)),
            )
        ]
        try:
            model.eval()(inputs[:1])
        finally:
            model.train(training)
            for hook in hooks:
                hook.remove()
    return tuple(ordered)


def _layer(name: str, module: nn.Module, output: Tensor, flops: int) -> Layer:
    parameters = list(module.parameters(recurse=False))
    return Layer(
        name=name,
        kind=type(module).__name__,
        output_shape=tuple(output.shape[1:]),
        parameters=sum(parameter.numel() for parameter in parameters),
        parameter_bytes=sum(
            parameter.numel() * parameter.element_size() for parameter in parameters
        ),
        flops=flops or None,
        output_bytes=output.numel() * output.element_size(),
    )
