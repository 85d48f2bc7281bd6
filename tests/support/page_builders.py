"""Saved runs as the page is given them."""

import json
from pathlib import Path

import builders

from mnistbench.compare.criteria import Criteria
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.core.operation import OUTSIDE
from mnistbench.page.run_view import PageRun
from mnistbench.saved_runs.run import Run
from mnistbench.saved_runs.storage import SavedRun


def shown(document, base=None, criteria=None, name="0001_base.json"):
    """A run as it comes from a file, judged against another document."""
    head = json.loads(json.dumps(document))
    run = Run.from_json(head, name)
    judgement = (
        judge(compare([Run.from_json(base, "base")], run), criteria or Criteria()) if base else None
    )
    return PageRun(SavedRun(Path(name), run), run, judgement)


def step(scale=1.0, batch_size=16, **changes):
    """A training step whose table has a row of each kind."""
    time = lambda nanoseconds: round(nanoseconds * scale)  # noqa: E731
    warm = builders.op_table(
        builders.op_row(
            "aten::convolution_backward",
            time(1_234_567),
            phase="backward",
            module="conv2",
            memory_bytes=4096,
        ),
        builders.op_row(
            "aten::addmm",
            (time(90_000), time(100_000), time(140_000)),
            total_cpu_ns=time(250_000),
            calls=2,
        ),
        builders.op_row(
            "autograd::engine::evaluate_function: X",
            1_250,
            phase="backward",
            module="",
            memory_bytes=-64,
        ),
        builders.op_row(OUTSIDE, 250_000, module="", calls=0),
        profiler_ns=100,
    )
    cold = builders.op_table(
        builders.op_row("aten::addmm", 9_000_000, iterations=1),
        temperature="cold",
        iterations=1,
        first_of_process=True,
    )
    ordinary = {
        "tables": (cold, warm),
        "timing": builders.timing(median_ns=time(2_000_000)),
        "batch_size": batch_size,
    }
    return builders.case_record(**{**ordinary, **changes})


def epoch(**changes):
    """A case without tables of its own."""
    scalars = builders.scalars(
        curves={"timing/ms_per_iteration": ((1, 8.0), (2, 7.5))},
        final={"timing/ms_per_iteration": 7.5},
    )
    ordinary = {
        "phase": "eval",
        "tables": (),
        "tables_in": "forward convnet-b16-cpu",
        "scalars": scalars,
        "first_call_ns": None,
    }
    return builders.case_record(**{**ordinary, **changes})
