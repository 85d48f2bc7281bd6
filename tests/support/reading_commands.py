"""The commands that only read files and show them, and files for them."""

import json
from pathlib import Path

import builders
import gate_builders
import trace_builders

#: Command -> its arguments. They can run one after the other.
READING = {
    "list": [],
    "history": ["step convnet-b16-cpu on digits"],
    "compare": ["1", "2"],
    "report": ["1", "--output", "page.html"],
    "export": ["1"],
    "trace": ["trace.json.gz"],
    "judge": ["samples.jsonl.gz"],
}


def write_files():
    """Write saved runs, a trace and raw samples in the current folder."""
    folder = Path(".benchmarks/machine")
    folder.mkdir(parents=True)
    for number in (1, 2):
        saved = builders.saved_file(
            builders.case_record(), datetime=f"2026-11-20T10:0{number}:00+00:00"
        )
        (folder / f"{number:04}_x.json").write_text(json.dumps(saved), encoding="utf-8")
    trace_builders.trace_file(Path(), trace_builders.network(), name="trace.json.gz")
    gate_builders.write(Path("samples.jsonl.gz"), gate_builders.series())
