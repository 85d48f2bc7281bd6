"""Measure how the wall time and the CPU time of one lab are distributed over its steps.

Run in a checkout, in an environment with the dependencies: ``python docs/evidence/lab_time.py [arguments of mnistbench lab]``.
CPU time includes that of child processes that have ended. The times are those of one machine; compare the shares.
"""

import os
import sys
import tempfile
import time

from mnistbench import cli
from mnistbench.course.lab import progress


class Clock:
    """A progress display that keeps the time of each step."""

    def __init__(self, *_):
        self.rows = []
        self.last = (time.perf_counter(), 0.0)

    def lap(self, what):
        now = time.perf_counter(), sum(os.times()[:4])
        self.rows.append((what, now[0] - self.last[0], now[1] - self.last[1]))
        self.last = now

    def begin(self, *_):
        self.lap("imports, data")

    def step(self, what, _):
        self.what = what
        return lambda _: None

    def done(self, **_):
        self.lap(self.what)

    def note(self, text):
        print(text, file=sys.stderr)

    def close(self):
        pass


def main():
    clock = Clock()
    progress.Bar = progress.Lines = lambda _: clock
    with tempfile.TemporaryDirectory() as folder:
        code = cli.main(["lab", "-o", folder, *sys.argv[1:]])
    clock.lap("report")
    clock.rows.append(("total", sum(row[1] for row in clock.rows), sum(row[2] for row in clock.rows)))
    for what, wall_s, cpu_s in clock.rows:
        print(f"{what:44} {wall_s:7.1f} s {cpu_s:7.1f} s CPU")
    return code


if __name__ == "__main__":
    sys.exit(main())
