"""Run the gate on suites of other projects.

On the same code, on slower code, and on commits that claim to be faster.

    python docs/evidence/foreign_suites.py FOLDER [NAME ...]

Clones each project at its commit into FOLDER, makes environments there with uv, and runs the gate
on a part of the suite: of SUITES three times on the same code and once with 5 % added to one
function, of CLAIMS once on the same code and once on a commit and its parent. Writes a JSON report
and the raw samples of each gate to FOLDER; a report that is there is not measured again. Prints a
line for each gate, with its duration in seconds. Nothing else may run: 28 gates take 80 minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
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
    # The only folder that is kept: compiled modules are not built, the installed package is
    # measured.
    kept: str = ""

    @property
    def name(self) -> str:
        return self.project.partition("/")[2]


SUITES = (
    Suite(
        "executablebooks/markdown-it-py",
        "2c3f71e",
        ("mdurl", "linkify-it-py"),
        ("benchmarking/bench_core.py",),
        "markdown_it/main.py",
        "MarkdownIt.parse = _slower(MarkdownIt.parse)",
    ),
    Suite(
        # A call takes 1.6 us, too short for a clock: two passes of an empty loop are 5 to 6 % of
        # it.
        "hgrecco/pint",
        "0.24.4",
        ("flexcache", "flexparser", "typing_extensions"),
        (
            "pint/testsuite/benchmarks/test_10_registry.py",
            "-k",
            "test_parse_units and False and (meter or second)",
        ),
        "pint/facets/plain/registry.py",
        replaced=((PARSE_UNITS, "        for _ in (1, 2):\n            pass\n" + PARSE_UNITS),),
    ),
    Suite(
        "kornia/kornia",
        "b4f5a78",
        ("kornia_rs",),
        ("--optimizer=", "benchmarks/augmentation/2d_intensity_test.py", "-k", "box_blur and 5-3"),
        "kornia/augmentation/_2d/intensity/box_blur.py",
        "RandomBoxBlur.forward = _slower(RandomBoxBlur.forward)",
    ),
    Suite(
        "pytorch/tensordict",
        "a1a061e3d",
        ("tensordict==0.15.3",),
        ("benchmarks/common/common_ops_test.py", "-k", "test_unbind_speed_stack1 or test_chunk"),
        "benchmarks/common/common_ops_test.py",
        "TensorDict.chunk = _slower(TensorDict.chunk)",
        kept="benchmarks",
    ),
    Suite(
        "pydantic/pydantic-core",
        "383eb95",
        ("pydantic-core==2.50.4", "hypothesis"),
        ("tests/benchmarks/test_complete_benchmark.py", "-k", "core_isinstance or core_error"),
        "tests/benchmarks/test_complete_benchmark.py",
        replaced=(
            (
                "    def f():\n        v.isinstance_python",
                "    @_slower\n    def f():\n        v.isinstance_python",
            ),
            ("import json\n", f"import json\n{SLOWER}\n"),
        ),
        kept="tests",
    ),
)


@dataclass(frozen=True)
class Claim:
    """A commit whose message claims that it is faster.

    With the part of the project's suite that measures what it changes.
    """

    project: str  # on GitHub
    commit: str  # compared with its parent
    packages: tuple[str, ...]  # of an environment of its own
    part: tuple[str, ...]  # arguments of pytest
    budget: str = "4m"
    variables: tuple[str, ...] = ()  # NAME=VALUE, of both sides
    core: str = ""  # the only one: the tests share a file, so one trial may run at a time
    # Has compiled modules, so both commits are in folders of their own, built before.
    built: bool = False

    kept = ""

    @property
    def name(self) -> str:
        return self.project.partition("/")[2]


CLAIMS = (
    Claim(
        # Asynchronous: client and server in one event loop, over the loopback interface.
        "aio-libs/aiohttp",
        "452458a95",
        (
            "aiohttp==3.12.0",
            "blockbuster",
            "freezegun",
            "isal",
            "proxy.py",
            "pytest<9",
            "pytest-codspeed",
            "pytest-cov",
            "pytest-mock",
            "pytest-xdist",
            "re-assert",
            "trustme",
            "zlib-ng",
        ),
        (
            "tests/test_benchmarks_client.py",
            "-k",
            "simple_get_requests or simple_post or json_post or 1024",
        ),
        budget="6m",
        variables=("AIOHTTP_NO_EXTENSIONS=1",),
    ),
    Claim(
        # Compiled: C.
        "aio-libs/multidict",
        "9d3c53f2",
        ("objgraph", "pytest<9", "pytest-codspeed", "pytest-cov", "setuptools"),
        (
            "tests/test_multidict_benchmarks.py",
            "tests/test_views_benchmarks.py",
            "-k",
            (
                "c-extension and case-sensitive and (add or extend or update or get_hit or fetch "
                "or keys_view_and)"
            ),
        ),
        built=True,
    ),
    Claim(
        # Asynchronous, with a file of SQLite in the current folder.
        "ormar-orm/ormar",
        "853caad4",
        (
            "ormar==0.25.0",
            "aiosqlite<0.23",
            "fastapi",
            "nest-asyncio",
            "pytest<9",
            "pytest-asyncio<2",
            "pytest-cov",
        ),
        ("benchmarks", "-k", "250 and (iterate or get_all or test_initializing_models)"),
        budget="8m",
        core="0",
    ),
    Claim(
        # Django: the session's fixtures make a database of SQLite in memory.
        "taobojlen/django-zeal",
        "6b15475",
        ("django==4.2.13", "factory-boy==3.3.0", "pytest<9", "pytest-django==4.8.0"),
        ("tests/test_performance.py",),
        budget="10m",
    ),
)


def environment(place: Path, *packages: str) -> Path:
    """Return the interpreter of an environment with these packages; make it if it is not there."""
    python = place / "bin/python"
    if not python.exists():
        subprocess.run(
            ["uv", "venv", "--quiet", str(place), "--python", sys.executable], check=True
        )
        subprocess.run(
            ["uv", "pip", "install", "--quiet", "--python", str(python), *packages], check=True
        )
    return python


def checked_out(folder: Path, suite: Suite | Claim) -> Path:
    """Return a clone of the project at its commit, without changes."""
    repository = folder / suite.name
    if not repository.exists():
        subprocess.run(
            ["git", "clone", "--quiet", f"https://github.com/{suite.project}", str(repository)],
            check=True,
        )
    git = [
        "git",
        "-C",
        str(repository),
        "-c",
        "user.name=study",
        "-c",
        "user.email=study@localhost",
    ]
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


def judge(command: Sequence[str], repository: Path, part: Sequence[str], report: Path) -> str:
    """Run the gate once, unless its report is there; return what it said."""
    began = time.monotonic()
    code = None
    if not report.exists():
        command = [
            *command,
            "--format",
            "json",
            "--output",
            str(report),
            "--storage",
            str(report.with_suffix("")),
            "--",
            *part,
        ]
        code = subprocess.run(
            command, cwd=repository, check=False, stderr=subprocess.DEVNULL
        ).returncode
    taken = "before" if code is None else f"exit {code}, {time.monotonic() - began:.0f} s"
    return (
        f"{taken}, {json.loads(report.read_text())['sentence'] if report.exists() else 'no report'}"
    )


def test_claim(folder: Path, claim: Claim) -> None:
    """Run the gate of a claim, on the same code and on the commit and its parent."""
    python = environment(folder / f"venv-{claim.name}", *claim.packages)
    repository = folder / f"{claim.name}-head" if claim.built else checked_out(folder, claim)
    parent_options = ["--base", "HEAD~"]
    same_options = ["--base", "HEAD"]
    if claim.built:
        parent = folder / f"{claim.name}-base"
        if not all(any(place.rglob("*.so")) for place in (parent, repository)):
            print(
                f"{claim.name}: check out and build {claim.commit} in {repository} and its parent "
                f"in {parent}, for {python}"
            )
            return
        parent_options = ["--base", str(parent)]
        same_options = ["--base", str(repository)]
    command = [
        *(("taskset", "-c", claim.core) if claim.core else ()),
        sys.executable,
        "-P",
        "-m",
        "mnistbench",
        "gate",
        "--all-cases",
        "--budget",
        claim.budget,
        *(f"--{side}-python={python}" for side in ("base", "head")),
        *(f"--{side}-env={variable}" for side in ("base", "head") for variable in claim.variables),
    ]
    for name, base in (("same", same_options), ("claim", parent_options)):
        line = judge(
            [*command, *base], repository, claim.part, folder / f"{claim.name}-{name}.json"
        )
        print(
            f"{claim.name}, {'the same code' if base is same_options else claim.commit}: {line}",
            flush=True,
        )


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[2:]
    for claim in CLAIMS:
        if not wanted or claim.name in wanted:
            test_claim(folder, claim)
    suites = [suite for suite in SUITES if not wanted or suite.name in wanted]
    if not suites:
        return
    python = environment(
        folder / "venv",
        "-e",
        str(ROOT),
        *(package for suite in SUITES for package in suite.packages),
    )
    command = [str(python), "-P", "-m", "mnistbench", "gate", "--all-cases", "--base", "HEAD"]
    command += ["--budget", "3m"]
    for suite in suites:
        repository = checked_out(folder, suite)
        for number in range(SAME):
            line = judge(
                command, repository, suite.part, folder / f"{suite.name}-same{number}.json"
            )
            print(f"{suite.name}, the same code: {line}", flush=True)
        slow_down(repository, suite)
        line = judge(command, repository, suite.part, folder / f"{suite.name}-slower.json")
        print(f"{suite.name}, slower: {line}", flush=True)
        restore(repository)


if __name__ == "__main__":
    main()
