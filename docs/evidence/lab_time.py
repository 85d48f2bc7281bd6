"""Measure how the wall time and the CPU time of one lab are distributed over its steps.

Run in a checkout, in an environment with the dependencies: ``python docs/evidence/lab_time.py
[arguments of mnistbench lab]``. CPU time includes that of child processes that have ended. The
times are those of one machine; compare the shares.
"""

import os
import sys
import tempfile
import time
from typing import ClassVar

from mnistbench import cli
from mnistbench.course.lab import run


class Clock(run.Progress):
    """A display of progress that keeps the time of each step."""

    rows: ClassVar[list] = []
    what = "imports, data"
    last = (time.perf_counter(), 0.0)

    def step(self, text, **_):
        self.lap(text)

    def __exit__(self, *_):
        if self._total is not None:  # of the steps
            self.lap("report")

    @classmethod
    def lap(cls, following):
        """Note the time since the last lap, and what follows."""
        now = time.perf_counter(), sum(os.times()[:4])
        cls.rows.append((cls.what, now[0] - cls.last[0], now[1] - cls.last[1]))
        cls.what = following
        cls.last = now


def main():
    run.Progress = Clock
    with tempfile.TemporaryDirectory() as folder:
        code = cli.main(["lab", "-o", folder, *sys.argv[1:]])
    Clock.lap("")
    total = ("total", *(sum(row[position] for row in Clock.rows) for position in (1, 2)))
    for what, wall_s, cpu_s in (*Clock.rows, total):
        print(f"{what:44} {wall_s:7.1f} s {cpu_s:7.1f} s CPU")
    return code


if __name__ == "__main__":
    sys.exit(main())
