"""Make a project of many tests from a seed, and measure it with the gate.

One function is slower in its working tree.

    python docs/evidence/suite_of_200.py FOLDER [--tests 200] [--slower 10] [--gates 1]
        [-- GATE OPTIONS]

FOLDER/project is a repository of pure Python functions that take 1 us to 50 ms (log-uniform), and a
pytest-benchmark test of each, in files of 20 with fixtures of the session and of the file. For each
gate one test is drawn whose function takes SLOWER percent longer in the working tree, by more
passes of its loop; with --slower 0 both sides are equal. A line of JSON for each gate is appended
to FOLDER/gates.jsonl: duration, outcome, the slower test, the tests that were found.

    python docs/evidence/suite_of_200.py --rates RAW_SAMPLES... [--without TEST]
        [--first 20] [--gates 100] [--threshold 5]

draws gates from trials of the same code, 32 or more, with new roles, as ``mnistbench gate
--qualify`` does: without a change, and with 5 and 10 % added to one test, drawn for each gate.
--without leaves a test out, such as one that was slower in a file. Prints how many regressed, and
how many found and named the slower test, with 95 % intervals.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

#: Kinds of work: the statement of a pass, and about how many nanoseconds a pass takes.
KINDS = {
    "integers": ("found = (found * 31 + number) & 0xFFFF", 45),
    "words": ("found += len(words[number % 97].upper())", 75),
    "table": ("found += table.get(number % 131, 0)", 55),
    "floats": ("found += int(math.sqrt(number) * 0.5)", 90),
    "slices": ("found += len(items[number % 50 : number % 50 + 20])", 85),
    "sorting": ("found += sorted(items[:24])[0]", 420),
    "text": ("found += len(','.join(words[:12]).split(','))", 480),
    "objects": ("found += Point(number, 1).norm()", 260),
    "matching": ("found += bool(PATTERN.match(words[number % 97]))", 190),
    "json": ("found += len(json.dumps({'a': number, 'b': [1, 2, 3]}))", 2_300),
}

HEAD = '''"""Functions of one kind or another."""

import json
import math
import re

PATTERN = re.compile(r"w(\\d+)x")
words = [f"w{number}x" for number in range(97)]
table = {number: number for number in range(131)}
items = [(number * 7_919) % 101 for number in range(101)]


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def norm(self):
        return (self.x * self.x + self.y * self.y) & 0xFF
'''

FUNCTION = """

def function_{number}(passes={passes}):
    found = 0
    for number in range(passes):
        {statement}
    return found
"""

TESTS = """import pytest

from suite import functions


@pytest.fixture(scope="module")
def prepared():
    return [functions.function_{first}() for _ in range(3)]
"""

TEST = """

def test_{number}(benchmark, settings, prepared):
    benchmark(functions.function_{number})
"""

CONFTEST = """import pytest


@pytest.fixture(scope="session")
def settings():
    return {"text": ",".join(map(str, range(20_000))).split(",")}
"""


def functions(tests: int, seed: int, slower: dict[int, float]) -> str:
    """Return the module of the functions.

    ``slower`` has the share by which a function has more passes.
    """
    draw = random.Random(seed)
    text = HEAD
    for number in range(tests):
        statement, pass_ns = KINDS[draw.choice(list(KINDS))]
        nanoseconds = math.exp(draw.uniform(math.log(1e3), math.log(50e6)))
        passes = max(1, round(nanoseconds / pass_ns))
        # A short function has few passes, so it gets a multiple of them on both sides.
        passes = (
            passes
            if number not in slower
            else max(passes + 1, round(passes * (1 + slower[number])))
        )
        text += FUNCTION.format(number=number, passes=passes, statement=statement)
    return text


def make(folder: Path, tests: int, seed: int) -> None:
    """Make the repository."""
    for name, content in {
        "suite/__init__.py": "",
        "suite/functions.py": functions(tests, seed, {}),
        "benchmarks/conftest.py": CONFTEST,
        "pyproject.toml": (
            "[project]\nname = 'suite'\nversion = '1'\n[tool.pytest.ini_options]\npythonpath = "
            "'.'\n"
        ),
        **{
            f"benchmarks/test_{first // 20}.py": TESTS.format(first=first)
            + "".join(TEST.format(number=number) for number in range(first, min(first + 20, tests)))
            for first in range(0, tests, 20)
        },
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    git = ["git", "-C", str(folder), "-c", "user.name=suite", "-c", "user.email=suite@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "The suite"]):
        subprocess.run([*git, *command], check=True)


def passes_of(text: str, number: int) -> int:
    """Return the passes of a function."""
    return int(text.partition(f"def function_{number}(passes=")[2].partition(")")[0])


def drawn(
    paths: list[Path],
    without: str,
    first: int,
    threshold: float,
    change: float,
    gates: int,
    seed: int,
) -> list[tuple[bool, bool, str]]:
    """Return of each drawn gate.

    Whether the slower test was found, whether another one was, and the outcome.
    """
    from mnistbench.gate.decide.statistics import quantities
    from mnistbench.gate.options import Thresholds
    from mnistbench.gate.qualification.resampling import Pool, is_found
    from mnistbench.gate.samples import raw_samples
    from mnistbench.judging.verdicts import REGRESSED

    trials = [
        trial for path in paths for trial in raw_samples.load(path).trials if trial.stage == 1
    ]
    pool = Pool(
        [
            quantity
            for quantity in quantities.quantities(trials)
            if not without or not quantity.case.endswith(without)
        ],
        seed,
    )
    limits = Thresholds(case=threshold, operation=threshold, once=0.2)
    draw = random.Random(seed)
    drawn_gates = []
    tests = [
        quantity
        for quantity in pool.quantities
        if (quantity.kind, quantity.clock) == ("iteration", "wall")
    ]
    for _ in range(gates):
        hit = draw.choice(tests)
        _, decision = pool.gate(limits, hit if change else None, change, trials=first)
        other_cases = {
            finding.quantity.case for finding in decision.findings if finding.verdict == REGRESSED
        } - {hit.case}
        drawn_gates.append((is_found(decision, hit), bool(other_cases), decision.outcome))
    return drawn_gates


def rates(paths: list[Path], without: str, first: int, threshold: float, gates: int) -> None:
    """Print the rates of drawn gates."""
    from mnistbench.gate.qualification.resampling import share

    for change in (0.0, 0.05, 0.10):
        with ProcessPoolExecutor(2) as processes:
            run = partial(drawn, paths, without, first, threshold, change, gates // 2)
            drawn_gates = [drawn_gate for part in processes.map(run, (1, 2)) for drawn_gate in part]
        count = len(drawn_gates)
        outcomes = [outcome for _, _, outcome in drawn_gates]
        print(
            f"{change:+.0%}: found {share(sum(hit for hit, _, _ in drawn_gates), count)}, "
            "another test regressed "
            f"{share(sum(has_other for _, has_other, _ in drawn_gates), count)}, regressed "
            f"{outcomes.count('regressed')}, inconclusive {outcomes.count('inconclusive')} of "
            f"{count}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rates", type=Path, nargs="+")
    parser.add_argument("--without", default="")
    parser.add_argument("--first", type=int, default=20)
    parser.add_argument("--threshold", type=float, default=5.0, help="percent")
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--slower", type=float, default=10.0, help="percent")
    parser.add_argument("--gates", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:at])
    gate_options = sys.argv[at + 1 :]
    if options.rates:
        rates(options.rates, options.without, options.first, options.threshold / 100, options.gates)
        return
    project = (options.folder / "project").resolve()
    draw = random.Random()
    if not project.exists():
        make(project, options.tests, options.seed)
    code = project / "suite" / "functions.py"
    same = functions(options.tests, options.seed, {})
    # A function with few passes cannot have a few percent more.
    able = [
        number for number in range(options.tests) if passes_of(same, number) * options.slower >= 100
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for _ in range(options.gates):
        hit = draw.choice(able) if options.slower else None
        code.write_text(
            functions(
                options.tests, options.seed, {} if hit is None else {hit: options.slower / 100}
            )
        )
        began = time.monotonic()
        command = [
            sys.executable,
            "-m",
            "mnistbench",
            "gate",
            "--all-cases",
            "--base",
            "HEAD",
            "--format",
            "json",
            *gate_options,
            "--",
            "benchmarks",
        ]
        done = subprocess.run(
            command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True, check=False
        )
        code.write_text(same)
        report = json.loads(done.stdout or "{}")
        regressed = sorted(
            {
                finding["screened"]["case"]
                for finding in report.get("findings", ())
                if finding["verdict"] == "regressed"
            }
        )
        line = {
            "seconds": round(time.monotonic() - began, 1),
            "exit": done.returncode,
            "slower": options.slower,
            "hit": hit,
            "found": regressed,
            "outcome": report.get("outcome"),
            "rules_out": report.get("no_regression_of"),
            "trials": [report.get("trials"), report.get("fresh_trials")],
            "options": gate_options,
            "sentence": report.get("sentence"),
        }
        with (options.folder / "gates.jsonl").open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
