"""What it costs to follow the code of a survey.

    python docs/evidence/survey_cost.py [FOLDER ARGUMENT ...]

Surveys a project on both sides, with and without following which code runs, in turn, and prints the
ratio of the CPU times of the surveys' processes. The project is that of FOLDER, with arguments of
pytest, or one of 100 plain tests: each call of a benchmark makes so many calls of a Python function
that takes 0.1 us. Takes about a minute.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
from pathlib import Path

from mnistbench.gate.copies import trees
from mnistbench.gate.options import GateOptions
from mnistbench.gate.processes.starting import Setup, stage_home
from mnistbench.gate.survey.surveying import survey_sides
from mnistbench.gate.words import BASE, HEAD
from mnistbench.showing.progress import Progress

#: Surveys with following, and as many without.
PAIRS = 5

#: Calls of a Python function by each call of a benchmark.
CALLS = (700, 21_000)

MODULE = """
def work(calls):
    total = 0
    for number in range(calls):
        total = add(total, number)
    return total


def add(total, number):
    parts = [total, number]
    return sum(parts) % 1000
"""

TESTS = """
import pytest
from pkg.work import work


@pytest.mark.parametrize("number", range(100))
def test_work(benchmark, number):
    benchmark(work, {calls})
"""


def survey_cpu_s(tree: Path, arguments: tuple[str, ...], *, follows_code: bool) -> float:
    """Return the CPU seconds of the survey processes of both sides."""
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary).resolve()
        setup = Setup(
            trees={side: trees.copy_working_tree(tree, scratch / side) for side in (BASE, HEAD)},
            pythons=dict.fromkeys((BASE, HEAD), sys.executable),
            variables={BASE: {}, HEAD: {}},
            home=stage_home(scratch),
            repository=tree,
        )
        options = GateOptions(base="HEAD", pytest=arguments, all_cases=not follows_code)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        survey_sides(options, setup, 0.0, tree, 1, scratch / "log", Progress(None))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(name: str, tree: Path, arguments: tuple[str, ...]) -> None:
    """Print the cost for a project."""
    without = []
    following = []
    for _ in range(PAIRS):
        without.append(survey_cpu_s(tree, arguments, follows_code=False))
        following.append(survey_cpu_s(tree, arguments, follows_code=True))
    ratios = [with_s / without_s for with_s, without_s in zip(following, without, strict=True)]
    print(
        f"| {sys.version.partition(' ')[0]} | {name} | {statistics.median(without):.2f} s | "
        f"{statistics.median(following):.2f} s | {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}) |",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    print("| Python | project | without | with | ratio |\n|---|---|---|---|---|")
    if arguments:
        folder, *of_pytest = arguments
        compare(Path(folder).name, Path(folder).resolve(), tuple(of_pytest))
        return
    for calls in CALLS:
        with tempfile.TemporaryDirectory() as temporary:
            tree = Path(temporary).resolve() / "project"
            files = {
                "pytest.ini": "[pytest]\npythonpath = .\n",
                "pkg/__init__.py": "",
                "pkg/work.py": MODULE,
                "bench/test_work.py": TESTS.format(calls=calls),
            }
            for name, text in files.items():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_text(text)
            compare(f"{calls} calls", tree, ("bench",))


if __name__ == "__main__":
    main(sys.argv[1:])
