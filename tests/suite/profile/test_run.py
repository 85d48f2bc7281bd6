"""A small case profiled whole: every part is there and belongs to the same case."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_builders import tiny_params, tiny_workload

from mnistbench.core.errors import UsageError
from mnistbench.events.work.roofline import Ceilings
from mnistbench.suite.measuring import profiling
from mnistbench.suite.profile import ceilings
from mnistbench.suite.profile.run import profile_case


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on a machine whose ceilings are known."""
    monkeypatch.setattr(ceilings, "measured_ceilings", lambda *_: Ceilings(1e9, 1e9, "float32"))


@pytest.mark.versions
def test_every_part_is_of_the_same_case(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    state = torch.get_rng_state()
    trace = tmp_path / "traces" / "t.json"
    case = profile_case(
        tiny_params(phase="step", batch_size=4), tiny_workload(), iterations=2, trace=trace
    )
    (table,) = case.tables
    assert (table.view, table.temperature, len(table.iteration_ns), case.samples) == (
        "host",
        "warm",
        2,
        4,
    )
    assert case.costs.keys() <= {row.key for row in table.rows}
    # The first layer's inputs need no gradient.
    assert case.flops == (2 + 4) * 8 * 3 * 4 + (2 + 2) * 16 * 8 * 4
    assert [layer.name for layer in case.layers][:2] == ["flatten", "hidden"]
    assert case.ceilings == Ceilings(1e9, 1e9, "float32")
    assert case.utilisation is not None
    assert case.busy_ns == ()
    assert len(json.loads(trace.read_text())["traceEvents"]) > 0
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.versions
def test_the_trace_is_written_before_another_profiler_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The next profiler takes the events of an accelerator from the trace of the one before."""
    calls = []
    for name in ("start", "export_chrome_trace"):
        method = getattr(torch.profiler.profile, name)

        def call_and_note(
            profiler: Any, *arguments: Any, name: str = name, method: Any = method
        ) -> None:
            calls.append((name, id(profiler)))
            method(profiler, *arguments)

        monkeypatch.setattr(torch.profiler.profile, name, call_and_note)
    profiling.cost_per_call.cache_clear()
    profile_case(
        tiny_params(phase="step", batch_size=4),
        tiny_workload(),
        iterations=1,
        trace=tmp_path / "t.json",
    )
    exported = [position for position, (name, _) in enumerate(calls) if name != "start"]
    assert len(exported) == 1
    (name, profiler), (_, exported_profiler) = calls[exported[0] - 1 : exported[0] + 1]
    assert (name, profiler) == ("start", exported_profiler)


def test_a_case_is_profiled_without_ceilings_where_their_kernels_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def does_not_fit(*_: object) -> Ceilings:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(ceilings, "measured_ceilings", does_not_fit)
    case = profile_case(tiny_params(phase="step", batch_size=4), tiny_workload(), iterations=1)
    assert case.ceilings is None
    assert case.utilisation is None
    assert case.flops


def test_a_trace_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    trace = tmp_path / "file" / "t.json"
    trace.parent.touch()
    with pytest.raises(
        UsageError,
        match=r"^--trace: .*t\.json cannot be written \(File exists\); name another file$",
    ):
        profile_case(
            tiny_params(phase="step", batch_size=4), tiny_workload(), iterations=1, trace=trace
        )


def test_a_batch_that_does_not_fit_is_one_line() -> None:
    def loss(output: Tensor, targets: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    workload = dataclasses.replace(tiny_workload(), loss=loss)
    with pytest.raises(
        UsageError,
        match=r"^memory of cpu does not suffice for batches of 4: choose a smaller batch size$",
    ):
        profile_case(tiny_params(phase="step", batch_size=4), workload, iterations=1)
