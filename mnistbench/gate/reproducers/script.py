"""Descriptions of calls and what the gate found -> a script, as text.

It needs torch alone and has at most 40 lines.

The script times the calls with ``torch.utils.benchmark``; where other operations run inside them,
or they are too short for a function call in Python, it reads the self time of the row from the
profiler, as the gate does. Its last line of output is JSON.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from mnistbench.core import units
from mnistbench.core.errors import RecordError
from mnistbench.core.reading import Reader, Within
from mnistbench.gate.words import BASE, HEAD

#: Most lines of a script.
MOST_LINES = 40

#: Longest line, where there is room for more lines.
_WIDTH = 120

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
_MOST_BYTES = 128 * 2**20
#: Time that using one of these bytes takes, in nanoseconds.
_NS_PER_BYTE = 0.1

#: Most time that a script waits, in nanoseconds. A cache that other programs share loses contents
#: with time alone: on a virtual machine, multiplying 4.7 MB took 0.16 ms at once, 0.36 ms after 5
#: ms in which this program used no memory, 0.58 ms after 20 ms, and no longer after 40 ms.
_MOST_NS = 20_000_000
#: Least time that a script waits, in nanoseconds.
_LEAST_NS = 100_000

#: The comment of a script that holds its :class:`ScriptOrigin`.
_MARK = "# mnistbench: "
#: The version of the JSON in this comment.
SCHEMA = 1

#: Side -> ending of the file of saved values beside a script, a dictionary: ``ROW.CALL.TENSOR``,
#: all numbers -> tensor.
VALUES = {BASE: ".base.pt", HEAD: ".pt"}

#: The program's use of memory between the last use of a tensor and the call: bytes, and
#: nanoseconds.
_Use = tuple[int, int]

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
    schema: Annotated[int, Within(SCHEMA, SCHEMA, "the version of this mnistbench")] = SCHEMA


def read(script: Path) -> ScriptOrigin:
    """Return what a script says about its origin.

    Raises:
        RecordError: the file cannot be read, or is not a reproducer.
    """
    try:
        lines = script.read_text(encoding="utf-8").splitlines()
        found = next((line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)), "")
        return Reader(json.loads(found)).read(ScriptOrigin)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise RecordError(f"{script}: cannot be read ({reason})") from None
    except RecordError as error:
        raise RecordError(f"{script}: {error}") from None
    except ValueError:  # no such line, or no JSON
        raise RecordError(
            f"{script}: is not a reproducer; name a script that mnistbench gate has written"
        ) from None


def file_name(title: str) -> str:
    """Return the name of a script without its suffix: ``aten_mm-backward-fc1``."""
    words = re.split(r"\W+", re.sub(r"::|(?<=\w)\.(?=\w)", "_", title))
    return "-".join(filter(None, words))[:100] or "operation"


def differ(base: Sequence[StoredRow], head: Sequence[StoredRow]) -> bool:
    """Whether a script needs the arguments of both sides.

    They make other calls, or with clearly other values.
    """
    if [_without_values(row) for row in base] != [_without_values(row) for row in head]:
        return True
    return any(
        _are_far(one["values"], other["values"])
        for one, other in zip(_tensors(base), _tensors(head), strict=True)
    )


def script(
    origin: ScriptOrigin, head: Sequence[StoredRow], base: Sequence[StoredRow] | None = None
) -> str:
    """Return the script, which makes the calls of rows of the head, the most important first.

    ``base`` has those of the base if its calls differ; it may have none. Then ``python FILE base``
    makes them instead.
    """
    sides = {side: _ranked(rows) for side, rows in ((BASE, base), (HEAD, head)) if rows is not None}
    if base is not None:
        _make_alike(sides[BASE], sides[HEAD])
    most_calls = max(len(row["calls"]) for row in head)
    most_rows = max(map(len, sides.values()))
    names = sorted({row["row"] for rows in sides.values() for row in rows})
    origin = replace(origin, has_base=base is not None)
    while True:
        for width, joins in ((_WIDTH, False), (None, False), (None, True)):
            lines = list(
                _Program(origin, sides, names).lines(
                    width=width, joins=joins, most_calls=most_calls
                )
            )
            for kept in (lines, list(filter(None, lines))):  # with blank lines, if there is room
                if len(kept) <= MOST_LINES:
                    return "\n".join(kept) + "\n"
        if most_calls > 1:
            most_calls -= 1
        elif most_rows > 1:
            most_rows -= 1
            sides = {side: rows[:most_rows] for side, rows in sides.items()}
        else:
            return "\n".join(kept) + "\n"


def _ranked(rows: Sequence[StoredRow]) -> Sequence[StoredRow]:
    """Return copies of rows whose calls have their place in the row, and ``rank_ns``.

    The calls with the highest are made.
    """
    found = copy.deepcopy(list(rows))
    for row in found:
        for place, call in enumerate(row["calls"]):
            call |= {"place": place, "rank_ns": call["self_ns"]}
    return found


def _make_alike(base: Sequence[StoredRow], head: Sequence[StoredRow]) -> None:
    """Remove differences of chance between ranked rows of both sides.

    Each side was captured in one iteration of one process. Which memory a result takes, when it was
    used before, and which of several similar calls takes the longest differ between processes of
    the same code. So the memory of the base is as cold as that of the same calls of the head, and
    if the sides make the same calls, the same ones are the longest.
    """
    of_head = {row["row"]: row["calls"] for row in head}
    for row in base:
        calls = row["calls"]
        others = of_head.get(row["row"], ())
        for call, other in zip(calls, others, strict=False):
            used, uses = ([one, *_tensors_of(one)] for one in (call, other))
            if call["name"] == other["name"] and len(used) == len(uses):
                for here, there in zip(used, uses, strict=True):
                    here |= {name: there[name] for name in ("since", "since_ns") if name in there}
        if [call["name"] for call in calls] == [call["name"] for call in others]:
            for call, other in zip(calls, others, strict=True):
                call["rank_ns"] = other["rank_ns"] = call["self_ns"] + other["self_ns"]


# ---- The program ---------------------------------------------------------------------------------


class _Program:
    """Writes the lines of a script.

    Args:
        origin: what the gate found.
        sides: side -> rows.
        names: of the operations of all rows, also of those that are left out: one may run in the
            call of another.
    """

    def __init__(
        self, origin: ScriptOrigin, sides: Mapping[str, Sequence[StoredRow]], names: Sequence[str]
    ) -> None:
        self._origin = origin
        self._sides = sides
        self._names = names
        devices = {tensor["device"] for rows in sides.values() for tensor in _tensors(rows)}
        self._is_on_cpu = not devices or "cpu" in devices
        self._is_profiled = any(map(_needs_profiler, sides.values()))
        self._writes = any(
            call["writes"] for rows in sides.values() for row in rows for call in row["calls"]
        )
        # The state of the caches matters on a CPU, if tensors were not used just before.
        self._is_cold = any(_longest_use(rows)[0] for rows in sides.values())
        # A variable that only one side has may set the number of threads.
        by_variable = any("OMP_NUM_THREADS" in found for found in origin.variables.values())
        self._threads = (
            'int(os.environ.get("OMP_NUM_THREADS", "1"))' if by_variable else str(origin.threads)
        )
        # The timer's default is 1.
        self._timer_threads = "torch.get_num_threads()" if by_variable else str(origin.threads)

    def lines(self, *, width: int | None, joins: bool, most_calls: int) -> Iterator[str]:
        """Yield the lines.

        Args:
            width: of the longest line; None: any.
            joins: write statements that belong together, such as all tensors of a call, in one
                line.
            most_calls: of a row.
        """
        yield from self._comments(most_calls)
        modules = ["json", *([] if self._threads.isdecimal() else ["os"]), "statistics", "sys"]
        modules += [*(["time"] if self._is_cold else []), "torch"]
        yield from (
            [f"import {', '.join(modules)}"]
            if joins
            else [f"import {module}" for module in modules]
        )
        yield from [] if self._is_profiled else ["from torch.utils.benchmark import Timer"]
        settings = ("torch.manual_seed(0)", f"torch.set_num_threads({self._threads})")
        yield from ("", "; ".join(settings)) if joins else ("", *settings)
        for side, rows in self._sides.items():
            if not rows:
                yield from ("", f"def {side}(): return (lambda: None), [], []")
                continue
            yield from ("", f"def {side}():")
            for line in _side(
                side, [{**row, "calls": _longest(row, most_calls)} for row in rows], joins=joins
            ):
                yield from _wrapped(f"    {line}", width)
        chosen = '(base if "base" in sys.argv else head)()' if BASE in self._sides else "head()"
        yield from ("", f"call, written, used = {chosen}")
        if self._writes:
            yield "kept = [one.clone() for one in written]"
        if self._is_cold:
            yield (
                "other = torch.zeros(max((since for _, since, _ in used), default=0), "
                "dtype=torch.uint8)"
            )
        if self._is_profiled or self._writes or self._is_on_cpu:
            yield from self._preparation()
        yield from self._profiled() if self._is_profiled else self._timed()
        yield ""
        yield (
            'for _ in sys.stdin if "--turns" in sys.argv else range(1):  # mnistbench reproduce '
            "lets two processes take turns"
        )
        yield "    seconds = measure()"
        yield '    print(f"{1e6 * seconds:,.1f} us")'
        yield '    print(json.dumps({"seconds": seconds}), flush=True)'

    def _comments(self, most_calls: int) -> Iterator[str]:
        found = self._origin
        change, low, high = (
            units.percent(value, signed=True) for value in (found.change, found.low, found.high)
        )
        base, head = (units.duration(ns) for ns in (found.base_ns, found.head_ns))
        of = " of the case" if found.case_ns else ""
        yield (
            f"# {found.title} is slower: {change}{of} ({low} to {high}), {base} -> {head} in each "
            f"iteration of {found.case}"
        )
        packages = [
            f"{name} {' -> '.join(versions)}"
            for name, versions in found.packages.items()
            if name != "torch"
        ]
        variables = [
            f"{side} with {' '.join(f'{name}={value}' for name, value in of_side.items())}"
            for side, of_side in found.variables.items()
            if of_side
        ]
        yield ", ".join(
            [
                f"# base {found.base} -> head {found.head}",
                f"torch {found.torch}",
                *packages[:5],
                *variables,
            ]
        )
        made_share = 1.0
        for side, rows in self._sides.items():  # the head is the last one
            if not rows:
                yield f"# no calls in the {side}"
                continue
            made = [call for row in rows for call in _longest(row, most_calls)]
            number = sum(row["number"] for row in rows)
            made_share = min(
                1.0,
                sum(call["self_ns"] for call in made)
                / max(1, sum(row["whole_ns"] for row in rows)),
            )
            part = (
                ""
                if len(made) == number
                else f", {made_share:.0%} of their time".replace("%", " %")
            )
            of_side = f"{len(made)} of {number} calls in an iteration of the {side}{part}"
            yield f"# {of_side}{'; python FILE base makes them' if side == BASE else ''}"
        yield f"{_MARK}{json.dumps(asdict(replace(found, made_share=round(made_share, 3))))}"

    def _preparation(self) -> Iterator[str]:
        """Yield the function that runs before each timed call."""
        yield "def prepare():  # not timed"
        if self._writes:
            yield (
                "    for one, values in zip(written, kept): one.copy_(values)  # the call changes "
                "these tensors"
            )
        if self._is_cold:
            yield (
                "    for (one, since, ns), (_, next_since, next_ns) in zip(used, [*used[1:], "
                "(None, 0, 0)]):"
            )
            yield "        if one is not None: one.sum()"
            why = "wait as long as the program does after using this tensor"
            yield f"        end = time.perf_counter_ns() + ns - next_ns  # {why}"
            yield "        other[next_since:since].add_(1)  # and use as many bytes of other memory"
            yield "        while time.perf_counter_ns() < end: pass"
        if not (self._writes or self._is_cold):
            yield "    pass"

    def _timed(self) -> Iterator[str]:
        threads = self._timer_threads
        if not (self._writes or self._is_on_cpu):
            yield f'timer = Timer("call()", globals={{"call": call}}, num_threads={threads})'
            yield (
                "def measure():  # median time of the calls, in seconds; repeated, as a kernel "
                "may end before the next starts"
            )
            yield f"    return timer.blocked_autorange(min_run_time={_MEASUREMENT_NS / 1e9}).median"
            return
        yield (
            'timer = Timer("call()", "prepare()", globals={"call": call, "prepare": prepare}, '
            f"num_threads={threads})"
        )
        yield "def measure():  # median time of the calls, in seconds"
        yield (
            "    return statistics.median(timer.timeit(1).median for _ in "
            f"range({self._repetitions()}))"
        )

    def _profiled(self) -> Iterator[str]:
        times = self._repetitions()
        names = self._names
        yield "def is_timed(event):"
        yield (
            '    return event is not None and (event.name == "timed" or is_timed(event.cpu_parent))'
        )
        yield (
            f"def measure():  # median over repetitions of the self time of {' or '.join(names)}, "
            "in seconds"
        )
        yield (
            "    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as "
            "profiler:"
        )
        yield f"        for _ in range({times}):"
        yield "            prepare()"
        yield '            with torch.profiler.record_function("timed"): call()'
        chosen = f'== "{names[0]}"' if len(names) == 1 else f"in {names}"
        condition = f"event.name {chosen} and is_timed(event)"
        yield (
            f"    times = [event.self_cpu_time_total for event in profiler.events() if {condition}]"
        )
        yield f"    each = max(1, len(times) // {times})  # events of this name in a repetition"
        nothing = "" if all(self._sides.values()) else " or [1e-3]"
        yield (
            "    return statistics.median([sum(times[i : i + each]) for i in range(0, "
            f"len(times), each)]{nothing}) / 1e6"
        )

    def _repetitions(self) -> int:
        """Return how many calls are timed one by one."""
        ns = max(
            sum(_self_ns(row) / max(row["self_share"], 0.01) for row in rows)
            for rows in self._sides.values()
        )
        of_preparation = max(
            max(n_bytes * _NS_PER_BYTE, wait)
            for n_bytes, wait in map(_longest_use, self._sides.values())
        )
        # Before each timed call there are two others and two preparations.
        return max(
            _FEWEST, min(_MOST, int(_MEASUREMENT_NS / max(1.0, 3 * ns + 2 * of_preparation)))
        )


def _needs_profiler(rows: Sequence[StoredRow]) -> bool:
    """Whether the row is only a part of its calls, or too short to be called from Python."""
    on_cpu = all(tensor["device"] == "cpu" for tensor in _tensors(rows))
    return on_cpu and any(
        row["self_share"] < _WHOLE or _self_ns(row) < _SHORTEST_NS * len(row["calls"])
        for row in rows
    )


def _longest(row: StoredRow, most: int) -> list[Mapping[str, Any]]:
    """Return the calls of a row that take the longest, in the order of the program.

    At most so many.
    """
    return sorted(
        sorted(row["calls"], key=lambda call: -call["rank_ns"])[:most],
        key=lambda call: call["place"],
    )


def _self_ns(row: StoredRow) -> int:
    return sum(call["self_ns"] for call in row["calls"])


def _longest_use(rows: Sequence[StoredRow]) -> _Use:
    """Return the most bytes and the longest time since a call's memory was last used."""
    calls = [call for row in rows for call in row["calls"]]
    uses = [
        *(_use(tensor, [tensor]) for tensor in _tensors(rows)),
        *(_use(call, _tensors_of(call)) for call in calls),
    ]
    return max((n_bytes for n_bytes, _ in uses), default=0), max((ns for _, ns in uses), default=0)


def _use(used: Mapping[str, Any], tensors: Iterable[Mapping[str, Any]]) -> _Use:
    """Return the bytes and the time between the last use of memory and the call.

    Zero on an accelerator.

    Args:
        used: the description of a tensor; that of a call for its result, which the allocator takes
            from what was freed before.
        tensors: whose devices decide.
    """
    if any(tensor["device"] != "cpu" for tensor in tensors):
        return 0, 0
    n_bytes, ns = (int(float(f"{used.get(name) or 0:.3g}")) for name in ("since", "since_ns"))
    return min(_MOST_BYTES, n_bytes), min(_MOST_NS, ns) if ns >= _LEAST_NS else 0


# ---- Arguments -----------------------------------------------------------------------------------


def _side(side: str, rows: Sequence[StoredRow], *, joins: bool) -> Iterator[str]:
    """Yield the body of the function that makes the arguments of one side.

    It returns the calls, the tensors that they change, and all tensors, each with the bytes that
    the program uses and the time that it takes between its last use and the call, the earliest
    first. Of a list only the largest tensor is among these. None is the memory of the results,
    which the call before has used.
    """
    if any("saved" in tensor for tensor in _tensors(rows)):
        yield f'saved = torch.load(__file__.removesuffix(".py") + "{VALUES[side]}")'
    calls = []
    written = []
    used = list[tuple[str, _Use]]()
    numbered = 0
    of_results = (0, 0)
    for position, row in enumerate(rows):
        for call in row["calls"]:
            made = _CallText(call, f"{position}.{call['place']}", numbered)
            yield from filter(None, ["; ".join(made.lines)]) if joins else made.lines
            numbered = made.numbered
            calls.append(made.text)
            written += made.written
            used += made.used
            of_results = max(of_results, _use(call, _tensors_of(call)))
    if of_results > max((use for _, use in used), default=(0, 0)):
        used.append(("None", of_results))
    yield "def call():"
    # A result is kept until the last call, as in most programs: otherwise the next call would use
    # its memory, which is warm.
    yield from (
        [f"    {calls[0]}"]
        if len(calls) == 1
        else (f"    y{number} = {call}" for number, call in enumerate(calls, 1))
    )
    in_order = sorted(used, key=lambda item: item[1], reverse=True)
    uses = [f"({name}, {n_bytes}, {ns})" for name, (n_bytes, ns) in in_order]
    yield f"return call, [{', '.join(written)}], [{', '.join(uses)}]"


class _CallText:
    """One call as text: the lines that make its tensors, and the line that makes the call."""

    def __init__(self, call: Mapping[str, Any], key: str, numbered: int) -> None:
        self.lines: list[str] = []
        self.numbered = numbered
        # Tensor, and the program's use of memory between its last use and the call.
        self.used: list[tuple[str, _Use]] = []
        self._key = key
        self._names = list[str]()
        namespace, _, name = call["name"].partition("::")
        arguments = [
            *map(self._text, call["args"]),
            *(f"{name}={self._text(value)}" for name, value in call["kwargs"].items()),
        ]
        self.text = f"torch.ops.{namespace}.{name}.{call['overload']}({', '.join(arguments)})"
        self.written = [self._names[number] for number in call["writes"]]

    def _text(self, value: Any) -> str:
        if isinstance(value, list):
            return self._list(value)
        if not isinstance(value, dict):
            return repr(value)
        [(kind, found)] = value.items()
        if kind == "tensor":
            name = self._variable()
            self.lines.append(f"{name} = {_tensor(found, f'{self._key}.{len(self._names)}')}")
            self._names.append(name)
            self.used.append((name, _use(found, [found])))
            return name
        if kind == "same":
            return self._names[found]
        texts = {
            "float": f'float("{found}")',
            "device": f'torch.device("{found}")',
            "generator": "None",
        }
        return texts.get(kind, f"torch.{found}")

    def _variable(self) -> str:
        self.numbered += 1
        return f"x{self.numbered}"

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
            shapes = ", ".join(str(tuple(one["shape"])) for one in tensors)
            made = f"{_values(tensor, 'torch.Size(s).numel()')}.view(s) for s in [{shapes}]"
        else:
            places = ", ".join(
                str((one["elements"], tuple(one["shape"]), tuple(one["stride"]))) for one in tensors
            )
            made = f"{_values(tensor, 'n')}.as_strided(s, t) for n, s, t in [{places}]"
        name = self._variable()
        self.lines.append(f"{name} = [{made}]")
        self._names += [f"{name}[{number}]" for number in range(len(items))]
        self.used.append((f"{name}[{largest}]", _use(tensor, [tensor])))
        return name


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
        size == 1 or own == one for size, own, one in relevant
    )


def _values(tensor: Mapping[str, Any], n: str, key: str = "") -> str:
    """Return the expression of a tensor of one dimension with ``n`` elements."""
    dtype = tensor["dtype"]
    elements = tensor["elements"]
    on_device = "" if tensor["device"] == "cpu" else f'.to("{tensor["device"]}")'
    if "saved" in tensor:
        saved = tensor["saved"]["elements"]
        repeated = "" if saved == elements else f".repeat({-(-elements // saved)})[:{n}]"
        return f'saved["{key}"]{repeated}{on_device}'
    text, own = _distributed(tensor["values"], n, dtype)
    return f"{text}{'' if own == dtype else f'.to(torch.{dtype})'}{on_device}"


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


def _wrapped(line: str, width: int | None) -> Iterator[str]:
    """Break a line after commas, all of which are in brackets."""
    if width is None or len(line) <= width:
        yield line
        return
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    pieces = line.split(", ")
    current = pieces[0]
    for piece in pieces[1:]:
        if len(current) + len(piece) + 3 > width:
            yield f"{current},"
            current = f"{indent}{piece}"
        else:
            current = f"{current}, {piece}"
    yield current


# ---- Comparison of the sides ---------------------------------------------------------------------

#: From this difference of the means on, as a part of the standard deviation, the values of the
#: sides count as others.
_FAR_MEAN = 0.2
#: From this difference of the shares of zeros on, the values of the sides count as others.
_FAR_ZEROS = 0.05
#: From this difference of the standard deviations on, as a part of one, the values of the sides
#: count as others.
_FAR_STD = 0.2


def _tensors(rows: Iterable[StoredRow]) -> list[dict[str, Any]]:
    return [tensor for row in rows for call in row["calls"] for tensor in _tensors_of(call)]


def _tensors_of(call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    waiting = [*call["args"], *call["kwargs"].values()]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, list):
            waiting = [*value, *waiting]
        elif isinstance(value, dict) and "tensor" in value:
            yield value["tensor"]


def _without_values(row: StoredRow) -> Any:
    """Return the calls of a row without values and times."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, dict) and "tensor" in value:
            left_out = ("values", "saved", "since", "since_ns")
            return {name: item for name, item in value["tensor"].items() if name not in left_out}
        return value

    return [
        (
            call["name"],
            call["overload"],
            plain(call["args"]),
            {name: plain(value) for name, value in call["kwargs"].items()},
        )
        for call in row["calls"]
    ]


def _are_far(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two distributions differ clearly."""
    if one["kind"] != other["kind"] or "std" not in one:
        return bool(one["kind"] != other["kind"])
    spread = max(one["std"], other["std"])
    return bool(
        abs(one["mean"] - other["mean"]) > _FAR_MEAN * spread
        or abs(one["std"] - other["std"]) > _FAR_STD * spread
        or abs(one["zeros"] - other["zeros"]) > _FAR_ZEROS
    )
