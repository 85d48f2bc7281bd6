"""Descriptions of calls and what the gate found -> a script, as text.

It needs torch alone. The template ``script.py.jinja`` is the script; this module fills in the
calls of each side and how they are timed.

The script times the calls with ``torch.utils.benchmark``; where other operations run inside them,
or they are too short for a function call in Python, it reads the self time of the row from the
profiler, as the gate does. Its last line of output is JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from mnistbench.core import units
from mnistbench.core.compiled.names import FUSED
from mnistbench.core.errors import RecordError
from mnistbench.core.files import Limit, read_limited
from mnistbench.gate.words import BASE, HEAD

#: Scripts of calls with hundreds of tensors have some 100 kB.
_SCRIPT = Limit(16 * 1024**2, "a reproducer", "name a script that mnistbench gate has written")

#: Longest line of a script that makes tensors or calls, in characters.
_WIDTH = 100

#: Share of the time of a call from which on the call as a whole is timed; below it the profiler
#: times the row alone.
_WHOLE = 0.9

#: Shortest self time of a row that is timed without the profiler, in nanoseconds: calling an
#: operation from Python takes 3 us.
_SHORTEST_NS = 30_000

#: Time that a measurement takes, in nanoseconds.
_MEASUREMENT_NS = 300_000_000
#: Fewest calls that are timed one by one.
_FEWEST = 10
#: Most calls that are timed one by one.
_MOST = 300

#: Most bytes that are used between two calls, more than most caches have.
_MAX_BYTES = 128 * 2**20
#: Time that using one of these bytes takes, in nanoseconds.
_NS_PER_BYTE = 0.1

#: Most time that a script waits, in nanoseconds. A cache that other programs share loses contents
#: with time alone: on a virtual machine, multiplying 4.7 MB took 0.16 ms at once, 0.36 ms after 5
#: ms in which this program used no memory, 0.58 ms after 20 ms, and no longer after 40 ms.
_MAX_NS = 20_000_000
#: Least time that a script waits, in nanoseconds.
_MIN_NS = 100_000

#: Most packages beside torch that a comment of a script names.
_MAX_PACKAGES = 5

#: The comment of a script that holds its :class:`ScriptOrigin`.
_MARK = "# mnistbench: "
#: The version of the JSON in this comment.
SCHEMA: Final = 1

#: Side -> ending of the file of saved values beside a script, a dictionary: ``ROW.CALL.TENSOR``,
#: all numbers -> tensor.
VALUES = {BASE: ".base.pt", HEAD: ".pt"}

#: Fields of a tensor's description that tell its place in memory, and not its values.
_PLACE_IN_MEMORY = ("shape", "stride", "offset", "elements", "dtype", "device")

#: One row of the operation table on one side, as ``capture.CapturedRow.stored`` returns it.
StoredRow = Mapping[str, Any]


@dataclass(frozen=True)
class ScriptOrigin:
    """What the gate found, as a script keeps it.

    Changes are shares (0.05 is 5 % slower), times nanoseconds per iteration.
    """

    title: str  # aten::mm, backward fc1
    case: str
    change: float
    low: float  # simultaneous 95 % bounds of the change
    high: float
    base_ns: float
    head_ns: float
    base: str  # commit or folder
    head: str
    torch: str  # version, or both versions with an arrow
    # Those that differ -> both versions.
    packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Side -> environment variables of it alone.
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    threads: int = 1  # of the case
    # Time of the case if changes are shares of it: only one side makes the calls.
    case_ns: float = 0.0
    # Whether the script has the arguments of the base, too: the sides make different calls.
    has_base: bool = False
    made_share: float = 1.0  # of the time of the head's calls, those that the script makes
    schema: Literal[1] = SCHEMA


def read(script: Path) -> ScriptOrigin:
    """Return what a script says about its origin.

    Raises:
        RecordError: the file cannot be read, or is not a reproducer.
    """
    from mnistbench.core.reading import read_text

    try:
        lines = read_limited(script, _SCRIPT).decode().splitlines()
    except UnicodeDecodeError:
        raise RecordError(f"{script}: cannot be read (it is not text)") from None
    stored = next((line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)), None)
    if stored is None:
        raise RecordError(
            f"{script}: is not a reproducer; name a script that mnistbench gate has written"
        )
    try:
        return read_text(stored, ScriptOrigin)
    except RecordError as error:
        raise RecordError(f"{script}: {error}") from None


def file_name(title: str) -> str:
    """Return the name of a script without its suffix: ``aten_mm-backward-fc1``."""
    words = re.split(r"\W+", re.sub(r"::|(?<=\w)\.(?=\w)", "_", title))
    return "-".join(filter(None, words))[:100] or "operation"


def make_same_calls(base: Sequence[StoredRow], head: Sequence[StoredRow]) -> bool:
    """Return whether the rows of both sides make the same calls, apart from the values of tensors.

    Then a script needs the arguments of one side alone. Values differ a little between two
    processes of the same code, and so does the memory that a tensor takes.
    """
    signatures = [
        [
            [
                (
                    call["name"],
                    call["overload"],
                    _without_values(call["args"]),
                    [(name, _without_values(value)) for name, value in call["kwargs"].items()],
                )
                for call in row["calls"]
            ]
            for row in rows
        ]
        for rows in (base, head)
    ]
    return signatures[0] == signatures[1]


def _without_values(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_without_values(item) for item in argument]
    if isinstance(argument, dict) and "tensor" in argument:
        return [argument["tensor"][name] for name in _PLACE_IN_MEMORY]
    return argument


def script(
    origin: ScriptOrigin, head: Sequence[StoredRow], base: Sequence[StoredRow] | None = None
) -> str:
    """Return the script, which makes the calls of the head.

    Args:
        origin: what the gate found.
        head: rows of the operation table with their calls, at least one.
        base: those of the base if its calls differ, may be empty. Then ``python FILE base`` makes
            them instead.
    """
    # A side of the gate imports this module for VALUES, and may have torch and pytest alone.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(  # noqa: S701  # Python, not HTML
        loader=PackageLoader("mnistbench.suite", "reproducers"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        percent=lambda change: units.percent(change, signed=True),
        duration=units.duration,
        printable=units.printable,
        filled=_filled,
    )
    rows_of_sides = {HEAD: head} if base is None else {BASE: base, HEAD: head}
    packages = [item for item in origin.packages.items() if item[0] != "torch"]
    rows = [row for side_rows in rows_of_sides.values() for row in side_rows]
    tensors = _tensors(rows)
    is_cold = any(_longest_use(side_rows).n_bytes for side_rows in rows_of_sides.values())
    restores = any(call["writes"] for row in rows for call in row["calls"])
    # The operations of a fused kernel are timed together: compiled ones have other names.
    is_fused = origin.title.startswith(FUSED)
    is_profiled = not is_fused and any(map(_needs_profiler, rows_of_sides.values()))
    is_on_cpu = not tensors or any(tensor["device"] == "cpu" for tensor in tensors)
    origin = replace(origin, has_base=base is not None, made_share=round(_made_share(head), 3))
    return environment.get_template("script.py.jinja").render(
        origin=origin,
        origin_line=f"{_MARK}{json.dumps(asdict(origin))}",
        sides=[
            _side_text(side, side_rows, is_fused=is_fused)
            for side, side_rows in rows_of_sides.items()
        ],
        packages=packages[:_MAX_PACKAGES],
        row_names=sorted({row["row"] for row in rows}),
        # A variable that only one side has may set the number of threads.
        has_own_threads=any("OMP_NUM_THREADS" in names for names in origin.variables.values()),
        is_cold=is_cold,
        restores=restores,
        is_profiled=is_profiled,
        is_fused=is_fused,
        prepares=is_profiled or restores or is_on_cpu,
        has_side_without_calls=not all(rows_of_sides.values()),
        repetitions=_repetitions(rows_of_sides.values()),
        measurement_s=_MEASUREMENT_NS / 1e9,
    )


def _filled(line: str, indent: int) -> str:
    """Break a line after commas and before ``for``, which are in brackets; numbers stay together.

    ``indent`` is the number of spaces before the line.
    """
    lines = [""]
    for piece in re.split(r"(?<=,) (?![-\d])| (?=for )", line):
        if lines[-1] and indent + len(lines[-1]) + 1 + len(piece) > _WIDTH:
            lines.append(f"    {piece}")
        else:
            lines[-1] += f" {piece}" if lines[-1] else piece
    return f"\n{' ' * indent}".join(lines)


# ---- How the calls are timed ---------------------------------------------------------------------


def _needs_profiler(rows: Sequence[StoredRow]) -> bool:
    """Return whether a row is only a part of its calls, or too short to be called from Python."""
    is_on_cpu = all(tensor["device"] == "cpu" for tensor in _tensors(rows))
    return is_on_cpu and any(
        row["self_share"] < _WHOLE or _self_ns(row) < _SHORTEST_NS * len(row["calls"])
        for row in rows
    )


def _repetitions(sides: Collection[Sequence[StoredRow]]) -> int:
    """Return how many calls are timed one by one."""
    call_ns = max(
        sum(_self_ns(row) / max(row["self_share"], 0.01) for row in rows) for rows in sides
    )
    preparation_ns = max(
        max(use.n_bytes * _NS_PER_BYTE, use.ns) for use in map(_longest_use, sides)
    )
    # Before each timed call there are two others and two preparations.
    repetitions = int(_MEASUREMENT_NS / max(1.0, 3 * call_ns + 2 * preparation_ns))
    return max(_FEWEST, min(_MOST, repetitions))


def _self_ns(row: StoredRow) -> int:
    return sum(call["self_ns"] for call in row["calls"])


def _made_share(rows: Sequence[StoredRow]) -> float:
    """Return the share of the rows' time in the calls that a script makes."""
    whole_ns = int(sum(row["whole_ns"] for row in rows))
    return min(1.0, sum(map(_self_ns, rows)) / max(1, whole_ns))


# ---- State of the caches -------------------------------------------------------------------------


class _Use(NamedTuple):
    """What the program does between the last use of some memory and the call."""

    n_bytes: int  # of other memory that it uses
    ns: int  # time that passes


def _use(described: Mapping[str, Any], tensors: Iterable[Mapping[str, Any]]) -> _Use:
    """Return the use of memory before a call; nothing on an accelerator.

    Args:
        described: a tensor; or a call, for its result, which the allocator takes from what was
            freed before.
        tensors: those whose devices decide.
    """
    if any(tensor["device"] != "cpu" for tensor in tensors):
        return _Use(0, 0)
    n_bytes, ns = (int(float(f"{described.get(name) or 0:.3g}")) for name in ("since", "since_ns"))
    return _Use(min(_MAX_BYTES, n_bytes), min(_MAX_NS, ns) if ns >= _MIN_NS else 0)


def _longest_use(rows: Sequence[StoredRow]) -> _Use:
    """Return the most bytes and the longest time since memory of a call was last used."""
    uses = [
        *(_use(tensor, [tensor]) for tensor in _tensors(rows)),
        *(_use(call, _tensors_of(call)) for row in rows for call in row["calls"]),
    ]
    return _Use(
        max((use.n_bytes for use in uses), default=0), max((use.ns for use in uses), default=0)
    )


# ---- The function of a side ----------------------------------------------------------------------


@dataclass(frozen=True)
class _SideText:
    """The function that makes the arguments and the calls of one side, as text."""

    name: str  # base or head
    summary: str  # which part of the calls the script makes
    values_suffix: str  # ending of the file with saved values; empty if the side reads none
    tensors: list[str]  # statements that make the tensors
    calls: list[str]  # statements that make the calls
    results: list[str]  # what they compute
    written: list[str]  # the tensors that the calls change
    # "(tensor, bytes, ns)" of its last use before the call, the earliest first. Of a list only the
    # largest tensor is here. The tensor None is the memory of the results.
    used: list[str]


def _side_text(side: str, rows: Sequence[StoredRow], *, is_fused: bool) -> _SideText:
    tensors = list[str]()
    calls = list[str]()
    written = list[str]()
    uses = list[tuple[str, _Use]]()
    result_use = _Use(0, 0)
    n_variables = 0
    for position, row in enumerate(rows):
        for place, call in enumerate(row["calls"]):
            text = _CallText(call, f"{position}.{place}", n_variables)
            n_variables = text.n_variables
            tensors += text.tensors
            calls.append(text.call)
            written += text.written
            uses += text.uses
            result_use = max(result_use, _use(call, _tensors_of(call)))
    if result_use > max((use for _, use in uses), default=_Use(0, 0)):
        uses.append(("None", result_use))
    if len(calls) > 1 or is_fused:
        # A result is kept until the last call, as in most programs: otherwise the next call would
        # use its memory, which is warm.
        calls = [f"y{number} = {call}" for number, call in enumerate(calls, 1)]
    has_saved_values = any("saved" in tensor for tensor in _tensors(rows))
    return _SideText(
        name=side,
        summary=_summary(side, rows),
        values_suffix=VALUES[side] if has_saved_values else "",
        tensors=tensors,
        calls=calls,
        results=[f"y{number}" for number in range(1, len(calls) + 1)],
        written=written,
        used=[
            f"({tensor}, {use.n_bytes}, {use.ns})"
            for tensor, use in sorted(uses, key=lambda item: item[1], reverse=True)
        ],
    )


def _summary(side: str, rows: Sequence[StoredRow]) -> str:
    if not rows:
        return f"no calls in the {side}"
    n_made = sum(len(row["calls"]) for row in rows)
    n_calls = sum(row["number"] for row in rows)
    share = "" if n_made == n_calls else f", {100 * _made_share(rows):.0f} % of their time"
    how = "; python FILE base makes them" if side == BASE else ""
    return f"{n_made} of {n_calls} calls in an iteration of the {side}{share}{how}"


class _CallText:
    """One call as text.

    Args:
        call: as ``capture.CapturedCall.stored`` returns it.
        key: beginning of the keys of its saved values.
        n_variables: number of variables of the calls before.
    """

    def __init__(self, call: Mapping[str, Any], key: str, n_variables: int) -> None:
        self.tensors = list[str]()  # statements that make its tensors
        self.uses = list[tuple[str, _Use]]()  # tensor and its last use before the call
        self.n_variables = n_variables
        self._key = key
        self._names = list[str]()  # of all its tensors
        namespace, _, operation = call["name"].partition("::")
        arguments = [
            *map(self._text, call["args"]),
            *(f"{name}={self._text(value)}" for name, value in call["kwargs"].items()),
        ]
        function = f"torch.ops.{namespace}.{operation}.{call['overload']}"
        self.call = f"{function}({', '.join(arguments)})"
        self.written = [self._names[number] for number in call["writes"]]

    def _text(self, argument: Any) -> str:
        if isinstance(argument, list):
            return self._list(argument)
        if not isinstance(argument, dict):
            return repr(argument)
        [(kind, value)] = argument.items()
        if kind == "tensor":
            name = self._variable()
            self.tensors.append(f"{name} = {_tensor(value, f'{self._key}.{len(self._names)}')}")
            self._names.append(name)
            self.uses.append((name, _use(value, [value])))
            return name
        if kind == "same":
            return self._names[value]
        texts = {
            "float": f'float("{value}")',
            "device": f'torch.device("{value}")',
            "generator": "None",
        }
        return texts.get(kind, f"torch.{value}")

    def _variable(self) -> str:
        self.n_variables += 1
        return f"x{self.n_variables}"

    def _list(self, items: Sequence[Any]) -> str:
        tensors = [item["tensor"] for item in items if isinstance(item, dict) and "tensor" in item]
        kinds = {(tensor["dtype"], tensor["device"]) for tensor in tensors}
        is_alike = len(kinds) == 1 and not any(
            tensor["offset"] or "saved" in tensor for tensor in tensors
        )
        if len(items) < 3 or len(tensors) < len(items) or not is_alike:
            return f"[{', '.join(map(self._text, items))}]"
        # One expression makes all tensors; their values have the distribution of the largest.
        largest, tensor = max(enumerate(tensors), key=lambda item: int(item[1]["elements"]))
        if all(map(_is_contiguous, tensors)):
            shapes = ", ".join(str(tuple(tensor["shape"])) for tensor in tensors)
            items_text = f"{_values(tensor, 'torch.Size(s).numel()')}.view(s) for s in [{shapes}]"
        else:
            places = ", ".join(
                str((tensor["elements"], tuple(tensor["shape"]), tuple(tensor["stride"])))
                for tensor in tensors
            )
            items_text = f"{_values(tensor, 'n')}.as_strided(s, t) for n, s, t in [{places}]"
        name = self._variable()
        self.tensors.append(f"{name} = [{items_text}]")
        self._names += [f"{name}[{number}]" for number in range(len(items))]
        self.uses.append((f"{name}[{largest}]", _use(tensor, [tensor])))
        return name


def _tensors(rows: Iterable[StoredRow]) -> list[dict[str, Any]]:
    return [tensor for row in rows for call in row["calls"] for tensor in _tensors_of(call)]


def _tensors_of(call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    waiting = [*call["args"], *call["kwargs"].values()]
    while waiting:
        argument = waiting.pop(0)
        if isinstance(argument, list):
            waiting = [*argument, *waiting]
        elif isinstance(argument, dict) and "tensor" in argument:
            yield argument["tensor"]


# ---- Tensors -------------------------------------------------------------------------------------


def _tensor(tensor: Mapping[str, Any], key: str) -> str:
    """Return the expression that makes a tensor like another.

    It has the same place in memory and the same distribution of values.
    """
    flat = _values(tensor, str(tensor["elements"]), key)
    shape = tuple(tensor["shape"])
    stride = tuple(tensor["stride"])
    if tensor["offset"]:
        return (
            f"torch.nn.functional.pad({flat}, ({tensor['offset']}, 0)).as_strided({shape}, "
            f"{stride}, {tensor['offset']})"
        )
    if not _is_contiguous(tensor):
        return f"{flat}.as_strided({shape}, {stride})"
    return flat if len(shape) == 1 else f"{flat}.view({shape})"


def _is_contiguous(tensor: Mapping[str, Any]) -> bool:
    expected = 1
    strides = []
    for size in reversed(tensor["shape"]):
        strides.append(expected)
        expected *= size
    relevant = zip(tensor["shape"], tensor["stride"], reversed(strides), strict=True)
    return math.prod(tensor["shape"]) == tensor["elements"] and all(
        size == 1 or stride == contiguous for size, stride, contiguous in relevant
    )


def _values(tensor: Mapping[str, Any], n: str, key: str = "") -> str:
    """Return the expression of a tensor of one dimension with ``n`` elements."""
    dtype = tensor["dtype"]
    elements = tensor["elements"]
    to_device = "" if tensor["device"] == "cpu" else f'.to("{tensor["device"]}")'
    if "saved" in tensor:
        saved = tensor["saved"]["elements"]
        repeated = "" if saved == elements else f".repeat({-(-elements // saved)})[:{n}]"
        return f'saved["{key}"]{repeated}{to_device}'
    text, text_dtype = _distributed(tensor["values"], n, dtype)
    return f"{text}{'' if text_dtype == dtype else f'.to(torch.{dtype})'}{to_device}"


def _distributed(values: Mapping[str, Any], n: str, dtype: str) -> tuple[str, str]:
    """Return an expression with these values, and its dtype."""
    match values["kind"]:
        case "constant":
            return f"torch.full(({n},), {values['value']}, dtype=torch.{dtype})", dtype
        case "booleans":
            return f"(torch.rand({n}) < {values['share']})", "bool"
        case "integers":
            return f"torch.randint({values['least']}, {values['most'] + 1}, ({n},))", "int64"
    if dtype.startswith("complex"):
        return f"torch.randn({n}, dtype=torch.{dtype})", dtype
    mean = values["mean"]
    std = values["std"]
    logarithm = values["kind"] == "lognormal"
    if logarithm:  # the parameters of the normal distribution of the logarithms
        variance = math.log1p((std / mean) ** 2)
        mean, std = (
            float(f"{number:.4g}")
            for number in (math.log(mean) - variance / 2, math.sqrt(variance))
        )
    text = (
        f"torch.randn({n}).mul({std}).add({mean}){'.exp()' if logarithm else ''}.clamp("
        f"{values['least']}, {values['most']})"
    )
    zeros = f".mul(torch.rand({n}) >= {values['zeros']})" if values["zeros"] else ""
    return f"{text}{zeros}", "float32"
