"""Run the gate on suites of other projects: three times on the same code, once with 5 % added to one function.

    python docs/evidence/foreign_suites.py FOLDER [NAME ...]

Clones each project at its commit into FOLDER, makes an environment there with uv, and runs ``mnistbench gate --base HEAD
--budget 3m`` on a part of the suite. Writes a JSON report and the raw samples of each gate to FOLDER; a report that is there is
not measured again. Prints a line for each gate, with its duration in seconds. Nothing else may run: 20 gates take 40 minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gate_live import ROOT, replace, restore

SAME = 3  # gates of the same code

#: What is added to a file whose function is made slower.
SLOWER = '''

def _slower(function):
    """Add 5 % of CPU time to a function."""
    import time

    def slower(*args, **kwargs):
        began = time.thread_time_ns()
        result = function(*args, **kwargs)
        until = began + 1.05 * (time.thread_time_ns() - began)
        while time.thread_time_ns() < until:
            pass
        return result

    return slower
'''


#: The end of pint's function.
PARSE_UNITS = "        return self.Unit(\n            self.parse_units_as"


@dataclass(frozen=True)
class Suite:
    """A part of a project's suite, and how a function of it is made slower."""

    project: str  # on GitHub
    commit: str
    packages: tuple[str, ...]  # that it needs
    part: tuple[str, ...]  # arguments of pytest
    file: str  # with the function
    added: str = ""  # at its end, after SLOWER
    replaced: tuple[tuple[str, str], ...] = ()
    kept: str = ""  # the only folder that is kept: compiled modules are not built, the installed package is measured

    @property
    def name(self) -> str:
        return self.project.partition("/")[2]


SUITES = (
    Suite(
        "executablebooks/markdown-it-py", "2c3f71e", ("mdurl", "linkify-it-py"), ("benchmarking/bench_core.py",),
        "markdown_it/main.py", "MarkdownIt.parse = _slower(MarkdownIt.parse)",
    ),
    Suite(
        # A call takes 1.6 us, too short for a clock: two passes of an empty loop are 5 to 6 % of it.
        "hgrecco/pint", "0.24.4", ("flexcache", "flexparser", "typing_extensions"),
        ("pint/testsuite/benchmarks/test_10_registry.py", "-k", "test_parse_units and False and (meter or second)"),
        "pint/facets/plain/registry.py",
        replaced=((PARSE_UNITS, "        for _ in (1, 2):\n            pass\n" + PARSE_UNITS),),
    ),
    Suite(
        "kornia/kornia", "b4f5a78", ("kornia_rs",),
        ("--optimizer=", "benchmarks/augmentation/2d_intensity_test.py", "-k", "box_blur and 5-3"),
        "kornia/augmentation/_2d/intensity/box_blur.py", "RandomBoxBlur.forward = _slower(RandomBoxBlur.forward)",
    ),
    Suite(
        "pytorch/tensordict", "a1a061e3d", ("tensordict==0.15.3",),
        ("benchmarks/common/common_ops_test.py", "-k", "test_unbind_speed_stack1 or test_chunk"),
        "benchmarks/common/common_ops_test.py", "TensorDict.chunk = _slower(TensorDict.chunk)", kept="benchmarks",
    ),
    Suite(
        "pydantic/pydantic-core", "383eb95", ("pydantic-core==2.50.4", "hypothesis"),
        ("tests/benchmarks/test_complete_benchmark.py", "-k", "core_isinstance or core_error"),
        "tests/benchmarks/test_complete_benchmark.py",
        replaced=(
            ("    def f():\n        v.isinstance_python", "    @_slower\n    def f():\n        v.isinstance_python"),
            ("import json\n", f"import json\n{SLOWER}\n"),
        ),
        kept="tests",
    ),
)  # fmt: skip


def environment(folder: Path) -> Path:
    """Return the interpreter of an environment with mnistbench and what the suites need; make it if it is not there."""
    python = folder / "venv/bin/python"
    if not python.exists():
        subprocess.run(["uv", "venv", "--quiet", str(folder / "venv"), "--python", sys.executable], check=True)
        packages = [package for suite in SUITES for package in suite.packages]
        subprocess.run(["uv", "pip", "install", "--quiet", "--python", str(python), "-e", str(ROOT), *packages], check=True)
    return python


def checked_out(folder: Path, suite: Suite) -> Path:
    """Return a clone of the project at its commit, without changes."""
    repository = folder / suite.name
    if not repository.exists():
        subprocess.run(["git", "clone", "--quiet", f"https://github.com/{suite.project}", str(repository)], check=True)
    git = ["git", "-C", str(repository), "-c", "user.name=study", "-c", "user.email=study@localhost"]
    subprocess.run([*git, "checkout", "--quiet", "--force", suite.commit], check=True)
    if suite.kept:
        subprocess.run([*git, "rm", "-r", "--quiet", "."], check=True)
        subprocess.run([*git, "checkout", "--quiet", suite.commit, "--", suite.kept], check=True)
        subprocess.run([*git, "commit", "--quiet", "--message", f"{suite.kept} alone"], check=True)
    return repository


def slow_down(repository: Path, suite: Suite) -> None:
    """Change the working tree: 5 % are added to one function."""
    path = repository / suite.file
    replace(path, *suite.replaced)
    if suite.added:
        path.write_text(f"{path.read_text()}{SLOWER}\n\n{suite.added}\n")


def judge(python: Path, repository: Path, suite: Suite, report: Path) -> str:
    """Run the gate once, unless its report is there; return what it said."""
    began, code = time.monotonic(), None
    if not report.exists():
        command = [
            str(python), "-P", "-m", "mnistbench", "gate", "--base", "HEAD", "--budget", "3m", "--format", "json",
            "--output", str(report), "--storage", str(report.with_suffix("")), "--", *suite.part,
        ]  # fmt: skip
        code = subprocess.run(command, cwd=repository, check=False, stderr=subprocess.DEVNULL).returncode
    taken = "before" if code is None else f"exit {code}, {time.monotonic() - began:.0f} s"
    return f"{taken}, {json.loads(report.read_text())['sentence'] if report.exists() else 'no report'}"


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    python = environment(folder)
    for suite in SUITES:
        if sys.argv[2:] and suite.name not in sys.argv[2:]:
            continue
        repository = checked_out(folder, suite)
        for number in range(SAME):
            line = judge(python, repository, suite, folder / f"{suite.name}-same{number}.json")
            print(f"{suite.name}, the same code: {line}", flush=True)
        slow_down(repository, suite)
        print(f"{suite.name}, slower: {judge(python, repository, suite, folder / f'{suite.name}-slower.json')}", flush=True)
        restore(repository)


if __name__ == "__main__":
    main()
