"""Time and memory of ``mnistbench trace`` over the size of a trace.

The steps of a real one are repeated.

    python docs/evidence/trace_size.py TRACE [--mb 100,500]

writes a file of each size into a temporary folder, runs ``mnistbench trace`` on it in a process of
its own, and prints the wall time and the peak memory for each MB (10^6 bytes) of the unpacked file.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tabulate import tabulate

#: Arguments that number events. In each repetition they are larger, so that its links are its own.
_NUMBERS = ("External id", "correlation", "Sequence number")


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path, help="trace of torch.profiler, .json or .json.gz")
    parser.add_argument(
        "--mb", default="100,500", help="comma list of sizes in MB (default: 100,500)"
    )
    parsed = parser.parse_args()
    content = parsed.trace.read_bytes()
    document = json.loads(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (0, *map(int, parsed.mb.split(","))):
            path = Path(folder) / "trace.json"
            repetitions = write(path, document, size * 10**6)
            rows.append(measured(path, repetitions))
    headers = ("MB", "repetitions", "events", "seconds", "peak MB", "s per MB", "MB per MB")
    print(
        tabulate(
            rows,
            headers=headers,
            floatfmt=("", "", "", ".1f", ".0f", ".3f", ".1f"),
            disable_numparse=False,
        )
    )


def write(path: Path, document: dict[str, Any], size: int) -> int:
    """Write the document with its events repeated until the file has the size.

    One repetition follows the other in time.
    """
    events = document["traceEvents"]
    times = [event["ts"] for event in events if event.get("ph") == "X"]
    length = (
        max(event["ts"] + event["dur"] for event in events if event.get("ph") == "X")
        - min(times)
        + 1000
    )
    most = (
        max(
            (
                event["args"].get(name, 0)
                for event in events
                for name in _NUMBERS
                if event.get("args")
            ),
            default=0,
        )
        + 1
    )
    head = json.dumps({name: value for name, value in document.items() if name != "traceEvents"})
    repetitions = 0
    with path.open("w", encoding="utf-8") as stream:
        stream.write(f'{head[:-1]}, "traceEvents": [\n')
        while not repetitions or stream.tell() < size:
            text = ",\n".join(shifted(events, repetitions * length, repetitions * most))
            stream.write(text if not repetitions else f",\n{text}")
            repetitions += 1
        stream.write("\n]}\n")
    return repetitions


def shifted(events: list[dict[str, Any]], later: float, larger: int) -> Iterator[str]:
    """Yield the events as JSON, later in time and with larger numbers."""
    for event in events:
        changed = dict(event)
        if "ts" in event:
            changed["ts"] = round(event["ts"] + later, 3)
        if "id" in event:
            changed["id"] = event["id"] + larger
        if event.get("args"):
            numbers = {
                name: event["args"][name] + larger
                for name in _NUMBERS
                if type(event["args"].get(name)) is int
            }
            changed["args"] = {**event["args"], **numbers}
        yield json.dumps(changed)


def measured(path: Path, repetitions: int) -> tuple[Any, ...]:
    """Run the command; return a row of the table.

    Its peak memory is the largest of all children so far: sizes ascend.
    """
    size = path.stat().st_size / 1e6
    start = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "mnistbench",
        "trace",
        str(path),
        "--format",
        "csv",
        "--output",
        "/dev/null",
    ]
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
    events = sum(1 for line in path.open(encoding="utf-8") if '"ph"' in line)
    return (round(size), repetitions, events, seconds, peak, seconds / size, peak / size)


if __name__ == "__main__":
    main()
