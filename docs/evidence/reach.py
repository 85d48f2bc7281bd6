"""Which cases real commits reach, in suites of other projects.

    python docs/evidence/reach.py FOLDER [NAME ...]

Clones each project into FOLDER and surveys its newest commits that change its code, each against
its parent, as ``mnistbench gate --base`` does before it measures. Prints a line for each commit:
the cases, those that run changed code, changed functions that no case runs, and the seconds of both
surveys. What a suite needs (PACKAGES) has to be installed beside mnistbench. Takes a few minutes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mnistbench.core.errors import MnistbenchError
from mnistbench.gate import trees
from mnistbench.gate.launcher import Plan, stage_home
from mnistbench.gate.options import GateOptions
from mnistbench.gate.statistics.raw_samples import GateHeader
from mnistbench.gate.surveying import survey_sides
from mnistbench.gate.words import BASE, HEAD

#: Commits of each project.
COMMITS = 8


@dataclass(frozen=True)
class Project:
    """A project with a suite of pytest-benchmark."""

    repository: str  # on GitHub
    code: str  # folder of the package
    part: tuple[str, ...]  # arguments of pytest
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return self.repository.rpartition("/")[2]


PROJECTS = (
    Project("hgrecco/pint", "pint", ("pint/testsuite/benchmarks",)),
    Project(
        "aio-libs/yarl",
        "yarl",
        ("tests/test_url_benchmarks.py", "tests/test_quoting_benchmarks.py"),
        (("YARL_NO_EXTENSIONS", "1"),),
    ),
    Project("python-attrs/cattrs", "src", ("bench",)),
)

#: What the suites need.
PACKAGES = "flexcache flexparser attrs idna propcache multidict orjson pytest-codspeed pytest-cov"


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout


def commits(clone: Path, project: Project) -> list[str]:
    """Return the newest commits that change Python code of the package."""
    paths = f"{project.code}/*.py"
    return git(
        clone, "log", f"-{COMMITS}", "--no-merges", "--format=%h", "HEAD", "--", paths
    ).split()


@contextlib.contextmanager
def surveyed(clone: Path, project: Project) -> Iterator[tuple[GateHeader, float]]:
    """Yield the header of a gate of the checked out commit, and the seconds of its surveys."""
    options = GateOptions(base="HEAD~1", pytest=project.part)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        plan = Plan(
            trees={
                BASE: trees.of_revision(clone, "HEAD~1", folder / BASE),
                HEAD: trees.of_working_tree(clone, folder / HEAD),
            },
            pythons=dict.fromkeys((BASE, HEAD), sys.executable),
            variables={BASE: {}, HEAD: {}},
            home=stage_home(folder),
            repository=clone,
            arguments=project.part,
            phases=(),
        )
        began = time.monotonic()
        _, header = survey_sides(options, plan, clone, 1, folder / "log", lambda _: None)
        yield header, time.monotonic() - began


def main(folder: Path, names: list[str]) -> None:
    print("| project | commit | cases | reached | gap | seconds | most frequent reason |")
    print("|---|---|---|---|---|---|---|")
    for project in PROJECTS:
        if names and project.name not in names:
            continue
        os.environ.update(project.variables)
        clone = folder / project.name
        if not clone.exists():
            source = os.environ.get("MIRROR", "https://github.com/{}").format(project.repository)
            subprocess.run(["git", "clone", "--quiet", source, str(clone)], check=True)
        git(clone, "checkout", "--quiet", "--detach", "origin/HEAD")
        for commit in commits(clone, project):
            git(clone, "checkout", "--quiet", "--detach", commit)
            try:
                with surveyed(clone, project) as (header, seconds):
                    reach = header.reach
                    cases = len(reach.reasons) + len(reach.same)
                    reasons = Counter(why for own in reach.reasons.values() for why in own)
                    reason = reasons.most_common(1)[0][0] if reasons else ""
                    print(
                        f"| {project.name} | {commit} | {cases} | {len(reach.reasons)} | "
                        f"{len(reach.gap)} | {seconds:.1f} | {reason} |",
                        flush=True,
                    )
            except MnistbenchError as error:
                print(f"| {project.name} | {commit} | {error} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
