"""Measure where the wall time of the default suite goes: timing, profiling, training curves, the rest.

Run in a checkout, in an environment with the dependencies: ``python docs/studies/suite_time.py [pytest arguments]``.
The seconds are those of one machine; compare the shares.
"""

import functools
import sys
import time
from collections import defaultdict

import pytest


class Clock:
    """Sums the time spent in functions; what a function spends in another one of them counts for that one alone."""

    def __init__(self, now=time.perf_counter):
        self.now = now
        self.seconds = defaultdict(float)
        self._running = []

    def wrap(self, owner, name, what):
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*args, **kwargs):
            start = self.now()
            self._running.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                elapsed = self.now() - start
                self.seconds[what] += elapsed - self._running.pop()
                if self._running:
                    self._running[-1] += elapsed

        setattr(owner, name, timed)


def main():
    clock = Clock()
    start = time.perf_counter()

    class Study:
        def pytest_collection_finish(self):
            from mnistbench.measuring import tensorboard as tracking
            from mnistbench.measuring import timing as measurement
            from mnistbench.pytest_plugin import attachments, fixture

            clock.wrap(measurement, "profile_first_call", "profiling, cold")
            clock.wrap(fixture, "measure", "timing")
            clock.wrap(attachments, "profile", "profiling, warm")
            clock.wrap(tracking.Tracker, "training", "training curves")
            clock.wrap(tracking.Tracker, "rounds", "scalars of rounds")
            clock.seconds["imports and collection"] = time.perf_counter() - start

    code = pytest.main(["bench", *sys.argv[1:]], plugins=[Study()])
    total = time.perf_counter() - start
    clock.seconds["everything else"] = total - sum(clock.seconds.values())
    for what, seconds in sorted(clock.seconds.items(), key=lambda item: -item[1]):
        print(f"{what:24}{seconds:8.1f} s {seconds / total:7.1%}")
    print(f"{'total':24}{total:8.1f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
