"""Any damage to a file that others may have made is one line, or harmless.

Each command ends, with no traceback and no control character on the terminal.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import builders
import gate_builders
import page_builders
import pytest
import trace_builders
from damage import damaged, damaged_bytes
from hypothesis import given
from hypothesis import strategies as st
from strategies import many

from mnistbench import cli
from mnistbench.gate.samples.raw_samples import End

#: Seconds after which a command hangs. Each takes a fraction of one.
HANGS_AFTER_S = 60


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Fail the test, and not the session, if a command does not end."""

    def fail(*_: object) -> None:
        pytest.fail("the command does not end")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(HANGS_AFTER_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(*command: str) -> None:
    """Run a command, which may refuse its files in lines of its own."""
    output = io.StringIO()
    errors = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), ending():
        code = cli.main(list(command))
    assert code in (0, 1, 2)
    assert "\x1b" not in output.getvalue() + errors.getvalue()
    assert all(line.startswith("mnistbench: ") for line in errors.getvalue().splitlines())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


def content_of(data: st.DataObject, document: Any) -> bytes:
    """A damaged document, or a whole one with damaged bytes."""
    if data.draw(st.booleans()):
        return json.dumps(data.draw(damaged(document))).encode()
    return data.draw(damaged_bytes(json.dumps(document).encode()))


# ---- Traces --------------------------------------------------------------------------------------


def a_trace() -> dict[str, Any]:
    """A trace with every kind of event."""
    step = "Optimizer.step#SGD.step"
    matmul = trace_builders.op("aten::mm", 3_010, 30, external=77, sequence=4)
    backward = trace_builders.backward("MmBackward0", 3_100, 40, 4)
    return trace_builders.document(
        [
            *trace_builders.network(steps=3),
            trace_builders.range_(step, 2_900, 400),
            matmul,
            backward,
            *trace_builders.forward_backward(1, matmul, backward),
            trace_builders.launch(3_015, 3, 78),
            trace_builders.kernel("gemm", 3_040, 20, correlation=78, external=77),
            trace_builders.kernel(trace_builders.NCCL, 3_070, 20, correlation=79),
            trace_builders.launch(3_080, 5, 99, name="cudaDeviceSynchronize"),
            trace_builders.event("python_function", "train.py(3): train", 1_600, 1_700),
            trace_builders.event("overhead", "Activity Buffer Request", 1_100, 20),
            trace_builders.memory(1_030, 512),
            trace_builders.memory(1_040, -100, of_host=True),
        ],
        distributedInfo={"rank": 0, "world_size": 2},
        cuda_runtime_version=12_040,
    )


@many(600)
@given(data=st.data())
def test_traces(folder: Path, data: st.DataObject) -> None:
    whole = folder / "whole.json"
    whole.write_text(json.dumps(a_trace()))
    trace = folder / "trace.json.gz"
    content = content_of(data, a_trace())
    trace.write_bytes(gzip.compress(content, 1) if data.draw(st.booleans()) else content)
    check("trace", str(trace))
    check("trace", str(trace), "--format", "json")
    check("compare", str(whole), str(trace), "--op-fail", "10%")
    check("report", str(trace), "-o", str(folder / "page.html"))
    check("export", str(trace))


# ---- Saved runs ----------------------------------------------------------------------------------


def a_saved_run() -> dict[str, Any]:
    """A file of benchmarks with and without records."""
    document: dict[str, Any] = json.loads(
        json.dumps(
            builders.saved_file(
                page_builders.step(),
                page_builders.step(1.2, batch_size=64),
                page_builders.epoch(),
            )
        )
    )
    document["benchmarks"].append(
        {
            "fullname": "test_a.py::test_plain",
            "name": "test_plain",
            "options": {"timer": "perf_counter"},
            "stats": {"median": 1e-3, "iqr": 1e-5, "q1": 1e-3, "rounds": 3, "data": [1e-3] * 3},
            "extra_info": {"a": 1},
        }
    )
    return document


@many(600)
@given(data=st.data())
def test_saved_runs(folder: Path, data: st.DataObject) -> None:
    storage = folder / "storage"
    storage.mkdir(exist_ok=True)
    (storage / "0001_base.json").write_text(json.dumps(a_saved_run()))
    content = content_of(data, a_saved_run())
    head = storage / "0002_head.json"
    head.write_bytes(gzip.compress(content, 1) if data.draw(st.booleans()) else content)
    saved = ("--storage", str(storage))
    check("list", *saved)
    check("compare", "1", "2", *saved, "--op-fail", "10%", "--case-fail", "10%")
    check("compare", "2", "1", *saved, "--format", "json")
    check("report", *saved, "-o", str(folder / "page.html"))
    check("export", "2", *saved)
    check("history", "test_a.py::test_plain", *saved)


def test_a_run_with_the_shortest_time_can_be_shown(folder: Path) -> None:
    """Its rate is infinite."""
    document = a_saved_run()
    document["benchmarks"][0]["stats"]["median"] = 5e-324
    saved = folder / "short.json"
    saved.write_text(json.dumps(document))
    check("report", str(saved), "-o", str(folder / "page.html"))


@pytest.mark.parametrize("samples", [None, ...])
def test_a_table_without_its_samples_is_refused(folder: Path, samples: Any) -> None:
    document = a_saved_run()
    table = document["benchmarks"][0]["extra_info"]["mnistbench"]["tables"][1]
    del table["samples"]
    if samples is None:
        table["samples"] = None
    saved = folder / "without.json"
    saved.write_text(json.dumps(document))
    check("report", str(saved), "-o", str(folder / "page.html"))


# ---- Raw samples of a gate -----------------------------------------------------------------------


def raw_lines() -> list[dict[str, Any]]:
    """The lines of a file of raw samples: a header, trials, the end."""
    lines: Sequence[Any] = (
        gate_builders.header().line(),
        *(gate_builders.line(gate_builders.trial()) for _ in range(3)),
        gate_builders.line(gate_builders.trial(stage=2)),
        End(elapsed_s=60.0, parts_s={"trials": 50.0}).line(),
    )
    return [json.loads(json.dumps(line)) for line in lines]


@many(600)
@given(data=st.data())
def test_raw_samples(folder: Path, data: st.DataObject) -> None:
    lines: Any = raw_lines()
    if is_json := data.draw(st.booleans()):
        lines = data.draw(damaged(lines))
    content = b"".join(
        gzip.compress((json.dumps(line) + "\n").encode(), 1, mtime=0) for line in lines
    )
    path = folder / "gate.jsonl.gz"
    path.write_bytes(content if is_json else data.draw(damaged_bytes(content)))
    check("judge", str(path))
    check("judge", str(path), "--format", "json")
    check("report", str(path), "-o", str(folder / "page.html"))
