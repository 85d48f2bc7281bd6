"""Measure where the time of the default suite goes: timing, profiling, training curves, the rest.

Run in a checkout, in an environment with the dependencies: ``python docs/evidence/suite_time.py
[pytest arguments]``. Where other processes run, wall times are theirs too: compare the CPU times.
"""

import functools
import sys
import time
from collections import defaultdict

import pytest


class Clock:
    """Sums wall and CPU time spent in functions.

    What a function spends in another one of them counts for that one alone.
    """

    def __init__(self):
        self.seconds = defaultdict(lambda: [0.0, 0.0])
        self._running = []

    def wrap(self, owner, name, what):
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*args, **kwargs):
            start = now()
            self._running.append([0.0, 0.0])
            try:
                return function(*args, **kwargs)
            finally:
                elapsed = minus(now(), start)
                self.seconds[what] = plus(self.seconds[what], minus(elapsed, self._running.pop()))
                if self._running:
                    self._running[-1] = plus(self._running[-1], elapsed)

        setattr(owner, name, timed)


def now():
    return [time.perf_counter(), time.process_time()]


def plus(first, second):
    return [a + b for a, b in zip(first, second, strict=True)]


def minus(first, second):
    return [a - b for a, b in zip(first, second, strict=True)]


def main():
    clock = Clock()
    start = now()

    class Study:
        def pytest_collection_finish(self):
            from mnistbench.suite.measuring import tensorboard as tracking
            from mnistbench.suite.op_benchmark import fixture

            clock.wrap(fixture, "build", "building cases")
            clock.wrap(fixture, "profile_first_call", "profiling, cold")
            clock.wrap(fixture, "time_case", "timing")
            clock.wrap(fixture, "profile", "profiling, warm")
            clock.wrap(tracking.Tracker, "training", "training curves")
            clock.wrap(tracking.Tracker, "rounds", "scalars of rounds")
            clock.seconds["imports and collection"] = minus(now(), start)

    code = pytest.main(["bench", *sys.argv[1:]], plugins=[Study()])
    total = minus(now(), start)
    clock.seconds["everything else"] = functools.reduce(minus, clock.seconds.values(), total)
    print(f"{'':24}{'wall':>10}{'CPU':>18}")
    for what, seconds in sorted(clock.seconds.items(), key=lambda item: -item[1][0]):
        shares = [
            f"{part:8.1f} s {part / whole:6.1%}" for part, whole in zip(seconds, total, strict=True)
        ]
        print(f"{what:24}{''.join(shares)}")
    print(
        f"{'all but timing':24}"
        f"{''.join(f'{part:8.1f} s       ' for part in minus(total, clock.seconds['timing']))}"
    )
    print(f"{'total':24}{''.join(f'{part:8.1f} s       ' for part in total)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
