"""Run the operator studies for the appendix of a report: each is a command of its own that can be ended."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from mnistbench.core.child import measuring_environment
from mnistbench.core.units import printable
from mnistbench.course.lab.findings import Study

#: Study -> arguments of ``mnistbench study``: a part of it that takes less than a minute.
STUDIES = {
    "convolution": ("--size", "chapter,conv2-b1"),
    "locality": (),
    "memory": (),
    "graph": (),
}

#: Time limit of all studies of a lab, in seconds.
LIMIT_S = 180.0


def study(name: str, limit_s: float) -> tuple[tuple[Study, ...], tuple[str, ...]]:
    """Run a study in a process; return its table, or a note if it failed or reached the time limit.

    Args:
        name: one of STUDIES.
        limit_s: time limit, in seconds.
    """
    with tempfile.TemporaryDirectory(prefix="mnistbench-") as folder:
        output = Path(folder) / "study.csv"
        command = [sys.executable, "-P", "-m", "mnistbench", "study", name, *STUDIES[name], "--format", "csv"]
        child = subprocess.Popen(
            [*command, "--output", str(output)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
            env=measuring_environment(os.environ, Path(folder) / "pycache"), start_new_session=True,
        )  # fmt: skip
        try:
            _, errors = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            over = f"the study of {name} was ended by the time limit of all studies, {LIMIT_S:.0f} s"
            return (), (f"{over}; run mnistbench study {name}",)
        finally:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)  # also the processes that it has started
            child.communicate()
        if child.returncode:
            last = [line for line in errors.splitlines() if line.strip()][-1:]
            return (), (f"the study of {name} failed: {printable(''.join(last)) or f'exit code {child.returncode}'}",)
        with output.open(encoding="utf-8", newline="") as stream:
            columns, *rows = csv.reader(stream)
    return (Study(name, tuple(columns), tuple(map(tuple, rows))),), ()
