"""Hypothesis strategies for whatever a record can hold.

Samples stay below 2^50 ns (13 days) and texts stay short: wide enough for every rule, small enough
to read when one fails.
"""

from __future__ import annotations

import copy
import json
import os
import string
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from mnistbench.core.operation import NO_MODULE, OUTSIDE
from mnistbench.core.params import DTYPES, PHASES, STEPS, Params
from mnistbench.core.record import CaseRecord, Environment, OpRow, OpTable, Scalars, Timing
from mnistbench.suite.workloads.builtin import DATASETS

#: Decorates every test that draws: how long an example takes is not what is tested. Continuous
#: integration draws the same examples each time, so that it judges the commit and not the draw.
ANY_SPEED = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)


def many(examples):
    """Draw so many examples in a thorough run.

    The marker selects it. Any other draws a thirtieth of them.
    """
    drawn = settings(
        ANY_SPEED, max_examples=examples if os.environ.get("THOROUGH") else examples // 30
    )
    return lambda test: pytest.mark.properties(drawn(test))


NANOSECONDS = st.integers(min_value=0, max_value=2**50)

#: Times of pytest-benchmark, with fractions of a nanosecond.
FLOAT_NANOSECONDS = st.integers(min_value=0, max_value=10**15).map(
    lambda picoseconds: picoseconds / 1000
)
BYTES = st.integers(min_value=-(2**40), max_value=2**40)
TEXTS = st.text(max_size=12)
NAMES = st.text(string.ascii_lowercase + string.digits + "_.:-", min_size=1, max_size=12)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)

OPERATION_NAMES = st.sampled_from(
    [
        "aten::addmm",
        "aten::mkldnn_convolution",
        "aten::add_",
        "AddmmBackward0",
        "Optimizer.step#Adadelta.step",
        OUTSIDE,
    ]
)
PHASES_OF_STEP = st.sampled_from(["forward", "loss", "backward", "optimizer"])
MODULES = st.sampled_from(["conv1", "conv2", "features.0", "fc1", NO_MODULE])
DEVICES = st.sampled_from(["cpu", "cuda", "cuda:0", "cuda:1", "mps"])
COMPILE_SETTINGS = st.sampled_from(
    ["", "reduce-overhead", "static", "max-autotune,dynamic,fullgraph", "fullgraph,backend=eager"]
)
TAGS = st.sampled_from(["loss/train", "accuracy/train", "loss/test", "samples_per_second"])


def json_values() -> SearchStrategy[Any]:
    """Whatever JSON can say."""
    leaves = st.none() | st.booleans() | st.integers() | NUMBERS | TEXTS
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=6,
    )


def params() -> SearchStrategy[Params]:
    """The identity of any case that could run somewhere."""
    compiled = st.tuples(st.just(True), COMPILE_SETTINGS)
    return (st.just((False, "")) | compiled).flatmap(_params)


def _params(compiled: tuple[bool, str]) -> SearchStrategy[Params]:
    return st.builds(
        Params,
        workload=NAMES,
        phase=st.sampled_from(PHASES),
        batch_size=st.integers(min_value=1, max_value=4096),
        device=DEVICES,
        dtype=st.sampled_from(DTYPES),
        threads=st.integers(min_value=1, max_value=128),
        compile=st.just(compiled[0]),
        compile_with=st.just(compiled[1]),
        seed=st.integers(min_value=0, max_value=2**32),
        dataset=st.sampled_from(DATASETS) | NAMES,
        step=st.sampled_from(STEPS),
    )


def samples(iterations: int) -> SearchStrategy[tuple[int, ...]]:
    """One time per iteration."""
    return st.tuples(*[NANOSECONDS] * iterations)


def op_rows(iterations: int, *, device_view: bool = False) -> SearchStrategy[OpRow]:
    """One operation; device times only where the device was watched."""
    return st.builds(
        OpRow,
        name=OPERATION_NAMES | TEXTS,
        phase=PHASES_OF_STEP,
        module=MODULES,
        calls=st.integers(1, 9).map(float) | st.floats(min_value=0.1, max_value=1e4),
        self_cpu_ns=samples(iterations),
        total_cpu_ns=samples(iterations),
        self_device_ns=samples(iterations) if device_view else st.just(()),
        memory_bytes=BYTES,
        shapes=st.lists(
            st.sampled_from(["[16, 1, 28, 28]", "[32, 1, 3, 3]", "[]"]), max_size=2, unique=True
        ).map(tuple),
        kernels=st.lists(
            st.sampled_from(["sm90_gemm", "void at::native::add"]), max_size=2, unique=True
        ).map(tuple),
        sources=st.sampled_from([(), ("a.py:1",), ("a.py:1", "a.py:20")]),
        varying=st.sampled_from([(), ("calls",), ("bytes",), ("calls", "bytes")]),
    )


@st.composite
def op_tables(draw: st.DrawFn) -> OpTable:
    """A table whose rows have as many samples as it has iterations, and one key each."""
    temperature = draw(st.sampled_from(["cold", "warm"]))
    view = draw(st.sampled_from(["host", "device", "functions"]))
    iterations = 1 if temperature == "cold" else draw(st.integers(1, 5))
    rows = draw(
        st.lists(
            op_rows(iterations, device_view=view == "device"),
            max_size=4,
            unique_by=lambda row: row.key,
        )
    )
    return OpTable(
        temperature=temperature,
        view=view,
        iteration_ns=draw(samples(iterations)),
        rows=tuple(rows),
        first_of_process=temperature == "cold" and draw(st.booleans()),
        profiler_ns=draw(st.integers(0, 10_000)),
        busy_ns=draw(samples(iterations) | st.just(())) if view == "device" else (),
    )


def scalars() -> SearchStrategy[Scalars]:
    """Curves and final values; a value that was not finite is None."""
    value = st.none() | NUMBERS
    curve = st.lists(st.tuples(st.integers(0, 100_000), value), max_size=4).map(tuple)
    return st.builds(
        Scalars,
        dataset=st.sampled_from(DATASETS),
        curves=st.dictionaries(TAGS, curve, max_size=3),
        final=st.dictionaries(TAGS, value, max_size=3),
        directory=TEXTS,
    )


def timings() -> SearchStrategy[Timing]:
    """Statistics of one benchmark."""
    return st.builds(
        Timing,
        median_ns=FLOAT_NANOSECONDS,
        iqr_ns=FLOAT_NANOSECONDS,
        min_ns=FLOAT_NANOSECONDS,
        mean_ns=FLOAT_NANOSECONDS,
        stddev_ns=FLOAT_NANOSECONDS,
        rounds=st.integers(1, 1_000_000),
    )


def environments() -> SearchStrategy[Environment]:
    """A machine with any software on it."""
    settings_by_name = st.dictionaries(NAMES, TEXTS, max_size=3)
    return st.builds(
        Environment,
        mnistbench=NAMES,
        python=NAMES,
        torch=NAMES,
        torchvision=NAMES,
        platform=TEXTS,
        cpu_model=TEXTS,
        cpu_count=st.integers(1, 512),
        threads=st.integers(1, 512),
        blas=TEXTS,
        allocator=settings_by_name,
        devices=st.lists(settings_by_name, max_size=2).map(tuple),
    )


def case_records() -> SearchStrategy[CaseRecord]:
    """Everything known of one case, parts that a case may lack lacking in some."""
    return st.builds(
        CaseRecord,
        test=TEXTS,
        node_id=TEXTS,
        params=params(),
        parameter_count=st.integers(0, 10**12),
        samples=st.integers(1, 60_000),
        first_call_ns=st.none() | NANOSECONDS,
        device_ns=st.lists(NANOSECONDS, max_size=4).map(tuple),
        rounds_ns=st.lists(FLOAT_NANOSECONDS, max_size=4).map(tuple),
        tables=st.lists(op_tables(), max_size=2).map(tuple),
        tables_in=TEXTS,
        scalars=st.none() | scalars(),
        notes=st.lists(TEXTS, max_size=2).map(tuple),
        attached=st.dictionaries(TEXTS, json_values(), max_size=2),
        op_fail=st.lists(st.sampled_from(["10%", "aten::addmm:5%", "conv2:2.5 %"]), max_size=2).map(
            tuple
        ),
        case_fail=st.sampled_from(["", "5%"]),
        timing=st.none() | timings(),
    )


# ---- documents that somebody spoiled -------------------------------------------------------------

#: A step of a path that goes into a compact JSON string.
OPENED = "(opened)"

#: What no field of ours takes everywhere; the last three are what JSON parsers stumble over.
OTHER_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    "",
    "x",
    "{}",
    "[1]",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    float("nan"),
    float("inf"),
    "NaN",
    10**400,
    "1" * 5000,
    "[" * 100_000,
)


def spoiled(document: Any) -> SearchStrategy[tuple[list[str | int], Any]]:
    """A JSON document with one place deleted or replaced, compact JSON strings included.

    (path to that place, document).
    """
    return st.tuples(
        st.sampled_from(list(_places(document))),
        st.sampled_from(OTHER_VALUES) | json_values(),
        st.booleans(),
    ).map(lambda drawn: (drawn[0], _spoil(document, drawn[0], drawn[1], delete=drawn[2])))


def each_field_spoiled(document: Any) -> Iterator[tuple[list[str | int], Any]]:
    """Yield a path and the document with that field deleted or replaced, for every field and value.

    Lists: first member.
    """
    for path in _places(document):
        if not any(isinstance(step, int) and step > 0 for step in path):
            yield path, _spoil(document, path, None, delete=True)
            for value in OTHER_VALUES:
                yield path, _spoil(document, path, value, delete=False)


def dotted(path: list[str | int]) -> str:
    """A path as messages write it: ``tables[0].rows[1][4]``."""
    steps = [
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in path if step != OPENED
    ]
    return "".join(steps).removeprefix(".")


def _places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[list[str | int]]:
    inner = _inside(value)
    if inner is not None:
        yield from _places(inner, (*path, OPENED))
    members = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, member in members:
        yield [*path, name]
        yield from _places(member, (*path, name))


def _spoil(document: Any, path: list[str | int], value: Any, *, delete: bool) -> Any:
    step, *rest = path
    if step == OPENED:
        return json.dumps(_spoil(_inside(document), rest, value, delete=delete))
    spoiled = copy.copy(document)
    if rest:
        spoiled[step] = _spoil(document[step], rest, value, delete=delete)
    elif delete:
        del spoiled[step]
    else:
        spoiled[step] = value
    return spoiled


def _inside(value: Any) -> Any:
    """The object or list that a compact JSON string holds."""
    if isinstance(value, str) and value.startswith(("{", "[")):
        return json.loads(value)
    return None
