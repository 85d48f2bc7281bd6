"""One iteration of a case -> the calls of rows of its operation table, as JSON.

A ``TorchDispatchMode`` sees each call of an operation below autograd, so also those of a backward
pass. It puts a range with a running number around the call. The tree of the profiler's events then
tells which call encloses an event, and the marks of the measurement give the event its phase and
its module, as in the operation table. Operations that the mode does not see
(``aten::mkldnn_convolution`` inside ``aten::convolution``) are found in the same way: a script
makes the call around them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mnistbench.core.operation import ITERATION, OpKey
from mnistbench.events.from_profiler import trace_of
from mnistbench.events.model import ThreadEvent, Trace
from mnistbench.suite.measuring.profiling import activities_of, has_device_view, started
from mnistbench.suite.reproducers.tensors import (
    HostBlock,
    allocated,
    before_calls,
    description,
    why_not_described,
)

#: Name of the range around a call; its number follows.
_CALL = "mnistbench.call:"

#: Operations of these namespaces belong to torch; a script of torch alone can call them.
_OF_TORCH = ("aten", "mkldnn", "mkl", "prims", "quantized")

#: Beginnings of the names of operations that compare values of floating point. Their time may
#: depend on the order of values, as processors predict branches: without vector instructions,
#: ReLU's backward pass took 2.5 times as long with the same share of zeros in random order.
_ORDERED = (
    "max_pool",
    "adaptive_max_pool",
    "fractional_max_pool",
    "max_unpool",
    "sort",
    "argsort",
    "topk",
    "kthvalue",
    "median",
    "mode",
    "unique",
    "nonzero",
    "searchsorted",
    "bucketize",
    "threshold",
    "relu",
    "leaky_relu",
    "rrelu",
    "prelu",
    "elu",
    "clamp",
    "hardtanh",
    "hardshrink",
    "softshrink",
    "where",
    "max",
    "min",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "aminmax",
    "smooth_l1",
    "huber",
)

#: Beginnings of the names of operations that use no memory, beside those that return a view.
_UNTOUCHING = ("empty", "new_empty", "_unsafe_view", "lift_fresh", "detach")

#: Operations that write to an argument without reading it: repeating them changes nothing.
_OVERWRITING = (
    "copy_",
    "_foreach_copy_",
    "fill_",
    "zero_",
    "_foreach_zero_",
    "normal_",
    "uniform_",
    "bernoulli_",
    "random_",
)

#: Share of the elements of all calls of a row at which a script has enough calls of it. Calls are
#: chosen by number of elements, not by time: one iteration is too noisy, the sides would choose
#: different calls.
ENOUGH = 0.9
#: Most calls of a row that a script makes.
MAX_CALLS = 3


@dataclass
class CapturedCall:
    """One call of an operation, as the mode has seen it."""

    name: str  # aten::add
    overload: str  # Tensor; ``default`` if it has none
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    # Numbers of the tensors that it reads and changes.
    writes: list[int] = field(default_factory=list)
    why_not: str = ""  # why a script cannot make this call
    saved: dict[int, Tensor] = field(default_factory=dict)  # values, by the number of the tensor
    # Bytes and ns, as before_calls returns them, of the memory of its largest new result.
    since: tuple[int, int] = (0, 0)
    # Their descriptions, each once, in order.
    tensors: list[dict[str, Any]] = field(default_factory=list)
    elements: int = 0  # of the tensors that it reads and changes; 0 for a view
    self_ns: int = 0  # of the row that it belongs to
    position: int = 0  # among all calls of the iteration

    def stored(self) -> dict[str, Any]:
        """Return the call as JSON, without the saved values."""
        return {
            "name": self.name,
            "overload": self.overload,
            "args": self.args,
            "kwargs": self.kwargs,
            "writes": self.writes,
            "since": self.since[0],
            "since_ns": self.since[1],
            "self_ns": self.self_ns,
        }


@dataclass(frozen=True)
class CapturedRow:
    """The calls that a row of the operation table consists of."""

    calls: tuple[CapturedCall, ...]  # those that a script makes, in the order of the program
    number: int = 0  # of all calls, in one iteration
    whole_ns: int = 0  # self time of the row in all calls, in the one iteration
    # Of the row in the time of its calls: below 1 if other operations run inside them.
    self_share: float = 1.0
    why_not: str = ""  # why there is no call

    @property
    def elements(self) -> int:
        """Elements of the tensors of its calls."""
        return sum(call.elements for call in self.calls)

    def without(self, positions: Collection[int]) -> CapturedRow:
        """Return the row without the calls at these positions, which another row has."""
        return replace(
            self, calls=tuple(call for call in self.calls if call.position not in positions)
        )

    def stored(self, name: str) -> dict[str, Any]:
        """Return the row as JSON, without the saved values; ``name`` is that of its operation."""
        return {
            "row": name,
            "calls": [call.stored() for call in self.calls],
            "number": self.number,
            "whole_ns": self.whole_ns,
            "self_share": self.self_share,
        }


def capture(
    run: Callable[[], object],
    marks: AbstractContextManager[object],
    wanted: Collection[OpKey],
    device: str = "cpu",
) -> dict[OpKey, CapturedRow]:
    """Run two iterations and return the calls of rows of the case's operation table.

    The first runs under the profiler.

    Descriptions take memory, so that later operations would get other memory than they do in the
    program. Therefore the calls are described in an iteration of their own. ``marks`` is entered
    while the profiler runs.
    """
    view = "device" if has_device_view(device) else "host"
    profiler = torch.profiler.profile(activities=activities_of(device, view), profile_memory=True)
    placing = _Placing()
    describing = _Describing()
    with started(profiler), marks, placing, record_function(ITERATION):
        run()
    with describing:
        run()
    if placing.names != [f"{call.name}.{call.overload}" for call in describing.calls]:
        return {
            key: CapturedRow(
                (), why_not="was not captured, because two iterations make different calls"
            )
            for key in wanted
        }
    trace = trace_of(profiler)
    own_ns = own_times(trace, view)
    total_ns = times_of_calls(trace, own_ns, view)
    allocated_blocks = allocated(profiler, _CALL)
    # What ``empty`` allocates is not used by it, and may have left the cache since its last use.
    used = [
        [*blocks, *allocated_blocks.get(number, ())] if blocks else []
        for number, blocks in enumerate(placing.used)
    ]
    for call, uses in zip(
        describing.calls, before_calls(placing.wanted, used, total_ns), strict=True
    ):
        call.since, *tensor_uses = uses
        # Of a call that cannot be described, some descriptions are missing.
        for tensor, since in zip(call.tensors, tensor_uses, strict=False):
            tensor["since"], tensor["since_ns"] = since
    return rows(trace, describing.calls, wanted, own_ns, total_ns)


def _is_of_the_program(func: Any) -> bool:
    # The type of operations.
    return isinstance(func, torch._ops.OpOverload) and func.namespace != "profiler"  # noqa: SLF001


def _uses_memory(func: Any) -> bool:
    """Whether an operation reads or writes numbers: it does not only make a view or allocate."""
    return not (func.is_view or func.name().partition("::")[2].startswith(_UNTOUCHING))


class _Placing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Puts a range with a running number around each call, and keeps which memory it uses."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []  # of each call, with the overload
        self.used: list[list[HostBlock]] = []  # memory that it reads or writes
        # That of its largest new result, and of each tensor among its arguments.
        self.wanted: list[list[HostBlock | None]] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if not _is_of_the_program(func):
            return func(*args, **kwargs)
        number = len(self.names)
        name, _, overload = func.name().partition(".")
        self.names.append(f"{name}.{overload or 'default'}")
        argument_blocks = {
            _identity(argument, place): HostBlock.of(argument)
            for place, argument in enumerate(tree_leaves((args, kwargs)))
            if _has_memory(argument)
        }
        with record_function(f"{_CALL}{number}"):
            result = func(*args, **kwargs)
        uses_memory = _uses_memory(func)
        results = [
            HostBlock.of(value)
            for value in tree_leaves(result)
            if uses_memory and _has_memory(value)
        ]
        new = [
            block
            for block in results
            if block.address not in {argument.address for argument in argument_blocks.values()}
        ]
        self.used.append(
            [
                HostBlock.of(value)
                for value in tree_leaves((args, kwargs, result))
                if uses_memory and _has_memory(value)
            ]
        )
        self.wanted.append(
            [max(new, key=lambda block: block.n_bytes, default=None), *argument_blocks.values()]
        )
        return result


class _Describing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Describes each call."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[CapturedCall] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if _is_of_the_program(func):
            with torch.no_grad():
                self.calls.append(described(func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def _identity(tensor: Tensor, place: int) -> tuple[Any, ...]:
    """Return what two arguments have in common that are one tensor.

    ``place`` if it has no elements.
    """
    return (
        tensor.data_ptr() if tensor.numel() else place,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
    )


def _has_memory(value: object) -> bool:
    return isinstance(value, Tensor) and not why_not_described(value)


# ---- Arguments -----------------------------------------------------------------------------------


def described(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CapturedCall:
    """Return a call with its arguments as JSON.

    Numbers, texts and None are themselves, lists are lists. Everything else is an object with one
    member that names its kind: ``{"tensor": ...}`` as :func:`tensors.description` returns it;
    ``{"same": 0}`` for one that was described before; ``{"float": "inf"}``, ``{"dtype":
    "float32"}``, ``{"device": "cpu"}``, ``{"layout": "strided"}``, ``{"memory_format":
    "channels_last"}``, ``{"generator": "cpu"}``.
    """
    name, _, overload = func.name().partition(".")
    call = CapturedCall(name, overload or "default")
    if func.namespace not in _OF_TORCH:
        call.why_not = "is not an operation of torch"
        return call
    arguments = _Arguments(call, values_matter=name.partition("::")[2].startswith(_ORDERED))
    # There is no public way to the names of arguments.
    schema = func._schema.arguments  # noqa: SLF001
    overwrites = name.partition("::")[2] in _OVERWRITING
    for value, argument in zip(args, schema, strict=False):
        call.args.append(arguments.stored(value, writes=_is_changed(argument) and not overwrites))
    argument_of = {argument.name: argument for argument in schema}
    for key, value in kwargs.items():
        call.kwargs[key] = arguments.stored(
            value, writes=_is_changed(argument_of[key]) and not overwrites
        )
    if not _uses_memory(func):
        call.elements = 0
    return call


def _is_changed(argument: Any) -> bool:
    """Whether an operation reads and changes an argument.

    A result that ``out=`` names is only written.
    """
    alias = argument.alias_info
    return alias is not None and alias.is_write and not argument.is_out


class _Arguments:
    """Describes the arguments of one call."""

    def __init__(self, call: CapturedCall, *, values_matter: bool) -> None:
        self._call = call
        self._values_matter = values_matter
        self._tensors: dict[tuple[Any, ...], int] = {}

    def stored(self, value: Any, *, writes: bool) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value, writes=writes)
        if isinstance(value, list | tuple):
            return [self.stored(item, writes=writes) for item in value]
        if value is None or isinstance(value, str | bool):
            return value
        if isinstance(value, int | torch.SymInt):
            return int(value)
        if isinstance(value, float | torch.SymFloat):
            number = float(value)
            return number if abs(number) < float("inf") else {"float": str(number)}
        for kind, name in (
            (torch.dtype, "dtype"),
            (torch.layout, "layout"),
            (torch.memory_format, "memory_format"),
        ):
            if isinstance(value, kind):
                return {name: str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, torch.Generator):
            return {"generator": value.device.type}
        self._call.why_not = f"has an argument of the type {type(value).__qualname__}"
        return None

    def _tensor(self, tensor: Tensor, *, writes: bool) -> Any:
        if why_not := why_not_described(tensor):
            self._call.why_not = why_not
            return None
        identity = _identity(tensor, len(self._tensors))
        known = self._tensors.get(identity)
        if known is not None:
            return {"same": known}
        number = self._tensors[identity] = len(self._tensors)
        if writes:
            self._call.writes.append(number)
        stored, saved = description(tensor, values_matter=self._values_matter)
        self._call.tensors.append(stored)
        self._call.elements += stored["elements"]
        if saved is not None:
            stored["saved"] = {"elements": saved.numel()}
            self._call.saved[number] = saved
        return {"tensor": stored}


# ---- Events --------------------------------------------------------------------------------------


def times_of_calls(trace: Trace, own_ns: Mapping[int, int], view: str = "host") -> dict[int, int]:
    """Return the time of each call, in nanoseconds, by its number.

    That of its kernels if the view is ``device``. ``own_ns`` is the result of ``own_times``.
    """
    total_ns: dict[int, int] = {}
    for event in trace.kept_host:
        call = event.enclosing(_CALL)
        if call is None:
            continue
        number = _number_of(call)
        total_ns.setdefault(number, 0)
        if view == "device":
            total_ns[number] += own_ns[id(event)]
        elif event.caller is call:
            total_ns[number] += event.ns
    return total_ns


def own_times(trace: Trace, view: str = "host") -> dict[int, int]:
    """Return the self time of each event of the host, in nanoseconds, by its id.

    That of the kernels that it launched itself if the view is ``device``.
    """
    if view == "host":
        return {id(event): event.self_ns for event in trace.kept_host}
    own_ns = {id(event): 0 for event in trace.kept_host}
    for launched in trace.device:
        if launched.operation is not None:
            own_ns[id(launched.operation)] += launched.ns
    return own_ns


def rows(
    trace: Trace,
    calls: Sequence[CapturedCall],
    wanted: Collection[OpKey],
    own_ns: Mapping[int, int],
    total_ns: Mapping[int, int],
) -> dict[OpKey, CapturedRow]:
    """Return the calls of rows of the operation table.

    The calls are events of one iteration in which the mode was active. ``own_ns`` is the result of
    ``own_times``, ``total_ns`` that of ``times_of_calls``.
    """
    self_ns: dict[OpKey, dict[int, int]] = {key: defaultdict(int) for key in wanted}
    seen: set[OpKey] = set()
    for event in trace.kept_host:
        key = (event.name, *event.scope)
        if key in self_ns:
            seen.add(key)
            call = event.enclosing(_CALL)
            if call is not None:
                self_ns[key][_number_of(call)] += own_ns[id(event)]
    absent = CapturedRow((), why_not="was not called")
    return {
        key: _row(key, self_ns[key], total_ns, calls) if key in seen else absent for key in wanted
    }


def _number_of(call: ThreadEvent) -> int:
    return int(call.name.removeprefix(_CALL))


def _row(
    key: OpKey,
    self_ns: Mapping[int, int],
    total_ns: Mapping[int, int],
    calls: Sequence[CapturedCall],
) -> CapturedRow:
    if not self_ns:
        return CapturedRow((), why_not=f"{key[0]} is not a call of an operation, nor a part of one")
    elements = sum(calls[number].elements for number in self_ns)
    chosen: list[int] = []
    for number in sorted(self_ns, key=lambda number: (-calls[number].elements, number)):
        if (
            len(chosen) == MAX_CALLS
            or sum(calls[number_chosen].elements for number_chosen in chosen)
            >= ENOUGH * elements
            > 0
        ):
            break
        chosen.append(number)
    chosen.sort()
    why_not = next(
        (
            f"{calls[number].name} {calls[number].why_not}"
            for number in chosen
            if calls[number].why_not
        ),
        "",
    )
    if why_not:
        return CapturedRow((), why_not=why_not)
    spent, total = (sum(times.get(number, 0) for number in chosen) for times in (self_ns, total_ns))
    return CapturedRow(
        tuple(
            replace(calls[number], self_ns=self_ns[number], position=number) for number in chosen
        ),
        len(self_ns),
        sum(self_ns.values()),
        min(1.0, spent / total) if total else 1.0,
    )
