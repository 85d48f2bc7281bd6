"""Measure what a table of functions costs beside cProfile itself.

``python docs/evidence/functions_cost.py`` takes calls of the standard library between 1 us and some
milliseconds. Of each it prints the CPU time of a call without a profiler, of a call under cProfile
alone, and of a call in the pass that ``pytest --op-benchmarks`` adds (10 iterations and the table);
then the ratio of the last two. Each number is the smallest of several passes, in turn: disturbances
only add time.
"""

import cProfile
import difflib
import json.decoder
import json.scanner
import textwrap
import time
from pathlib import Path

from mnistbench.measuring.calls import Call
from mnistbench.measuring.functions import profile_functions

#: Samples of a table, the default of ``--op-iterations``.
ITERATIONS = 10
PASSES = 7

TEXT = "the quick brown fox jumps over the lazy dog " * 40
DOCUMENT = json.dumps([{"name": "x" * 10, "values": [number, 2, 3]} for number in range(100)])


class PythonDecoder(json.JSONDecoder):
    """The decoder without its part in C."""

    def __init__(self):
        super().__init__()
        self.parse_string = json.decoder.py_scanstring
        self.scan_once = json.scanner.py_make_scanner(self)


CALLS = {
    "str.upper": Call(TEXT.upper),
    "textwrap.shorten": Call(textwrap.shorten, (TEXT[:80], 20)),
    "textwrap.wrap": Call(textwrap.wrap, (TEXT,)),
    "json in Python": Call(PythonDecoder().decode, (DOCUMENT,)),
    "difflib.ndiff": Call(lambda: list(difflib.ndiff(TEXT.split()[:60], TEXT.split()[3:63]))),
}


def alone(call, count):
    """Return the CPU time of a call without a profiler, in nanoseconds."""
    start = time.process_time_ns()
    for _ in range(count):
        call.function(*call.args)
    return (time.process_time_ns() - start) / count


def with_cprofile(call, count):
    """Return the CPU time of a call under cProfile alone, in nanoseconds."""
    profiler = cProfile.Profile()
    start = time.process_time_ns()
    profiler.enable()
    for _ in range(count):
        call.function(*call.args)
    profiler.disable()
    return (time.process_time_ns() - start) / count


def with_table(call, duration_ns):
    """Return the CPU time of a call in the pass of a table, in nanoseconds."""
    start = time.process_time_ns()
    table = profile_functions(
        call, iterations=ITERATIONS, duration_ns=duration_ns, project=Path.cwd()
    )
    assert table is not None, "it has functions"
    return (time.process_time_ns() - start) / (ITERATIONS * call.repetitions(duration_ns))


def main():
    print(f"{'call':<18}{'alone':>12}{'cProfile':>12}{'table':>12}{'ratio':>8}")
    for name, call in CALLS.items():
        alone_ns = min(alone(call, 200) for _ in range(PASSES))
        count = ITERATIONS * call.repetitions(alone_ns)
        pairs = [(with_cprofile(call, count), with_table(call, alone_ns)) for _ in range(PASSES)]
        cprofile_ns, table_ns = (min(pair[side] for pair in pairs) for side in (0, 1))
        times = "".join(f"{ns / 1e3:>9.2f} us" for ns in (alone_ns, cprofile_ns, table_ns))
        print(f"{name:<18}{times}{table_ns / cprofile_ns:>8.2f}")


if __name__ == "__main__":
    main()
