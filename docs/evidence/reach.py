"""Which cases real commits reach, and whether the others are really as fast as before.

    python3.11 docs/evidence/reach.py [--part 1/2] [--budget 75] FOLDER [NAME ...]
    python3.13 docs/evidence/reach.py [--part 2/2] [--budget 75] FOLDER [NAME ...]

Clones each project into FOLDER and takes the newest commits that change its code. Each is surveyed
against its parent, as ``mnistbench gate --base`` does before it measures, and then measured as by
``mnistbench gate --base --all-cases``. A case that is not reached runs the same code on both sides,
so a verdict that it is slower or faster is a false alarm.

Appends a JSON line for each commit and Python to FOLDER/results.jsonl, also if the commit could not
be measured, and keeps the raw samples in FOLDER/samples. The next run measures what is missing in
the file or could not be measured. ``--part 1/2`` measures every second commit of each project,
``--part 2/2`` the others.

Prints a row for each commit of the file, how many cases differ, the rates of false alarms with
exact 95 % intervals, and each false alarm. What a suite needs (PACKAGES) has to be installed beside
mnistbench.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from unittest import mock

from scipy.stats import binomtest

from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.flow import measure, setup_of
from mnistbench.gate.listing import Reach
from mnistbench.gate.options import GateOptions, shard
from mnistbench.gate.processes.starting import GateError
from mnistbench.gate.samples.raw_samples import WHOLE, Shard
from mnistbench.gate.survey.surveying import survey_sides
from mnistbench.gate.words import ALL_CASES, BASE, HEAD, WALL
from mnistbench.judging.kinds import ITERATION
from mnistbench.judging.verdicts import GRAVITY, IMPROVED, REGRESSED
from mnistbench.showing.progress import Progress

#: Commits of each project.
COMMITS = 5

#: Most cases of a commit that are measured, and how many of them are reached. If there are fewer of
#: one kind, more of the other are drawn.
MAX_CASES = 48
MAX_REACHED = 12

#: Smallest slowdown of a case that matters, as a share. A trial of a case then takes
#: 0.1 to 0.2 seconds.
THRESHOLD = 0.05

#: Seconds of a gate.
BUDGET_S = 75.0

#: Most characters of a reason in the table.
REASON = 80

#: Shares of the cases for which a bound is printed.
SHARES = (0.5, 0.9, 1.0)

#: Columns of the table.
COLUMNS = (
    "project",
    "commit",
    "Python",
    "cases",
    "reached",
    "gap",
    "trials",
    "seconds",
    "reached: measured, flagged, slower, faster",
    "not reached: measured, flagged, slower, faster",
    "tests of them",
    "most frequent reason",
)


@dataclass(frozen=True)
class Project:
    """A project with a suite of pytest-benchmark."""

    repository: str  # on GitHub
    newest: str  # commits older than this one, and itself
    code: str  # folder of the package
    part: tuple[str, ...]  # arguments of pytest
    variables: tuple[tuple[str, str], ...] = ()
    least_python: tuple[int, int] = (3, 11)

    @property
    def name(self) -> str:
        return self.repository.rpartition("/")[2]


#: pytest-asyncio warns without a setting, and some projects turn warnings into errors.
NO_ASYNCIO = ("-p", "no:asyncio")

PROJECTS = (
    Project(
        "hgrecco/pint",
        "bbc6b4c6",
        "pint",
        ("pint/testsuite/benchmarks/test_20_quantity.py",),
        least_python=(3, 12),
    ),
    Project(
        "aio-libs/yarl",
        "0b30cb02",
        "yarl",
        ("tests/test_url_benchmarks.py", "tests/test_quoting_benchmarks.py", *NO_ASYNCIO),
        (("YARL_NO_EXTENSIONS", "1"),),
    ),
    Project("python-attrs/cattrs", "02c3ead", "src", ("bench",)),
    Project(
        "graphql-python/graphql-core",
        "a3a267a1",
        "src",
        ("tests/benchmarks", "-k", "not (parallel or from_ast or introspection or sdl or large)"),
    ),
    Project("python-zeroconf/python-zeroconf", "4f3fa73c", "src", ("tests/benchmarks",)),
    Project(
        "aio-libs/multidict",
        "656c4de8",
        "multidict",
        (
            "tests/test_multidict_benchmarks.py",
            "tests/test_views_benchmarks.py",
            "--no-c-extensions",
            *NO_ASYNCIO,
        ),
        (("MULTIDICT_NO_EXTENSIONS", "1"),),
    ),
    Project(
        "aio-libs/propcache",
        "041f7af",
        "src",
        ("tests/test_benchmarks.py", *NO_ASYNCIO),
        (("PROPCACHE_NO_EXTENSIONS", "1"),),
    ),
    Project(
        "Bluetooth-Devices/dbus-fast",
        "8e8b801",
        "src",
        ("tests/benchmarks", "-k", "not (objects_reply or multiple or list_units)", *NO_ASYNCIO),
        (("DBUS_SESSION_BUS_ADDRESS", "unix:path=/none"),),  # else each session starts a daemon
    ),
)

#: What the suites need.
PACKAGES = (
    "flexcache flexparser attrs idna ifaddr multidict orjson propcache pytest-asyncio "
    "pytest-codspeed pytest-cov"
)


# ---- Measure -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """A time of a case that the first stage flagged."""

    case: str
    quantity: str
    verdict: str  # of the fresh trials
    change: float  # that they show, as a share
    is_reached: bool


@dataclass(frozen=True)
class Result:
    """A commit against its parent."""

    project: str
    commit: str
    python: str
    error: str = ""  # why it was not measured; then the rest is missing
    reasons: Mapping[str, Sequence[str]] = field(default_factory=dict)  # reached case -> reasons
    same: Sequence[str] = ()  # cases that are not reached
    gap: int = 0  # changed functions that no case runs
    trials: int = 0  # of the first stage
    seconds: float = 0.0  # of the gate
    tests: Mapping[str, int] = field(default_factory=dict)  # case -> quantities that were tested
    # Case -> slowdown of its median wall time that is ruled out, as a share.
    bounds: Mapping[str, float] = field(default_factory=dict)
    findings: Sequence[Finding] = ()

    def measured_cases(self, *, is_reached: bool) -> list[str]:
        """Return the cases that were measured, of those that are reached or of the others."""
        return [case for case in self.tests if (case in self.reasons) == is_reached]

    def flagged(self, *verdicts: str, is_reached: bool) -> set[str]:
        """Return those of them that the first stage flagged, with such a verdict."""
        return {
            finding.case
            for finding in self.findings
            if finding.is_reached == is_reached and finding.verdict in verdicts
        }

    @property
    def controls(self) -> int:
        """The number of quantities that were tested in cases that are not reached."""
        return sum(self.tests[case] for case in self.measured_cases(is_reached=False))


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout


def cloned(folder: Path, project: Project) -> Path:
    """Return the clone of a project; make it if it is not there."""
    clone = folder / project.name
    if not clone.exists():
        source = os.environ.get("MIRROR", "https://github.com/{}").format(project.repository)
        subprocess.run(["git", "clone", "--quiet", source, str(clone)], check=True)
    return clone


def commits(clone: Path, project: Project) -> list[str]:
    """Return the newest commits that change Python code of the package."""
    code = f"{project.code}/*.py"
    arguments = (f"-{COMMITS}", "--no-merges", "--format=%h", project.newest, "--", code)
    return git(clone, "log", *arguments).split()


def reach_of(clone: Path, options: GateOptions) -> Reach:
    """Survey the checked out commit and its parent, as a gate does before it measures."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        pythons = dict.fromkeys((BASE, HEAD), sys.executable)
        setup = setup_of(options, pythons, clone, folder)
        log = folder / "log"
        header = survey_sides(options, setup, 0.0, clone, 1, log, Progress(None)).header
    return header.reach


def result_of_gate(project: Project, commit: str, reach: Reach, verdict: Verdict) -> Result:
    """Return what the gate over all cases says about those that are reached and the others."""
    decision = verdict.decision
    if not decision.cases:
        raise GateError("; ".join(reason.text for reason in decision.reasons))
    estimates = (*decision.cases, *decision.once, *decision.operations)
    tests = Counter(estimate.quantity.case for estimate in estimates)
    del tests[ALL_CASES]  # the import and the memory are of no case
    findings = tuple(
        Finding(
            case,
            f"{finding.quantity.kind} {finding.quantity.title}",
            finding.verdict,
            round(finding.best.change, 4),
            case in reach.reasons,
        )
        for finding in decision.findings
        if (case := finding.quantity.case) != ALL_CASES
    )
    return Result(
        project.name,
        commit,
        platform.python_version(),
        reasons=reach.reasons,
        same=tuple(reach.same),
        gap=len(reach.uncovered),
        trials=decision.trials,
        seconds=round(verdict.end.elapsed_s, 1),
        tests=dict(tests),
        bounds={
            estimate.quantity.case: round(estimate.high, 4)
            for estimate in decision.cases
            if (estimate.quantity.kind, estimate.quantity.clock) == (ITERATION, WALL)
        },
        findings=findings,
    )


def drawn(reach: Reach, seed: str) -> tuple[str, ...]:
    """Draw the cases to measure."""
    reached = shuffled(reach.reasons, seed)
    same = shuffled(reach.same, seed)
    number = max(MAX_REACHED, MAX_CASES - len(same))
    kept = reached[:number]
    return (*kept, *same[: MAX_CASES - len(kept)])


def shuffled(cases: Iterable[str], seed: str) -> list[str]:
    """Return the cases in a random order that is the same each time."""
    return sorted(cases, key=lambda case: hashlib.sha256(f"{seed} {case}".encode()).digest())


def measured(clone: Path, project: Project, commit: str, options: GateOptions) -> Result:
    """Survey and measure a commit; say why that is impossible."""
    try:
        git(clone, "checkout", "--quiet", "--force", "--detach", commit)
        with mock.patch.dict(os.environ, project.variables), contextlib.chdir(clone):
            reach = reach_of(clone, options)
            with Progress(None) as progress:
                verdict = measure(
                    replace(options, only=drawn(reach, commit)), progress, seed=int(commit, 16)
                )
        return result_of_gate(project, commit, reach, verdict)
    except Exception as error:  # noqa: BLE001  # the other commits are measured in any case
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return Result(project.name, commit, platform.python_version(), error=reason)


def commits_of_part(
    folder: Path, names: Sequence[str], part: Shard
) -> Iterator[tuple[Path, Project, str]]:
    """Yield the clone, the project and the commit of each gate; clone what is missing."""
    for project in PROJECTS:
        if (names and project.name not in names) or sys.version_info < project.least_python:
            continue
        clone = cloned(folder, project)
        for commit in commits(clone, project)[part.number - 1 :: part.of]:
            yield clone, project, commit


# ---- Keep and print ------------------------------------------------------------------------------


def load(file: Path) -> list[Result]:
    """Return the newest result of each commit and Python."""
    lines = file.read_text().splitlines() if file.exists() else []
    newest = {(result.commit, result.python): result for result in map(as_result, lines)}
    order = [project.name for project in PROJECTS]
    return sorted(newest.values(), key=lambda result: order.index(result.project))


def as_result(line: str) -> Result:
    """Return the result of a line of the file."""
    fields = json.loads(line)
    findings = tuple(Finding(**finding) for finding in fields["findings"])
    return Result(**{**fields, "findings": findings})


def table(results: Iterable[Result]) -> Iterator[str]:
    """Yield a row for each commit."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{'---|' * len(COLUMNS)}"
    for result in results:
        python = ".".join(result.python.split(".")[:2])
        cells = [result.project, result.commit, python, *(() if result.error else facts(result))]
        why = (result.error or most_frequent_reason(result)).replace("|", "\\|")
        yield f"| {' | '.join([*cells, why])} |"


def facts(result: Result) -> list[str]:
    """Return the cells of a commit between its Python and the reason."""
    return [
        str(len(result.reasons) + len(result.same)),
        str(len(result.reasons)),
        str(result.gap),
        str(result.trials),
        f"{result.seconds:.0f}",
        counts(result, is_reached=True),
        counts(result, is_reached=False),
        str(result.controls),
    ]


def counts(result: Result, *, is_reached: bool) -> str:
    """Return the numbers of cases that were measured, flagged, found slower and found faster."""
    cases = (
        result.measured_cases(is_reached=is_reached),
        result.flagged(*GRAVITY, is_reached=is_reached),
        result.flagged(REGRESSED, is_reached=is_reached),
        result.flagged(IMPROVED, is_reached=is_reached),
    )
    return ", ".join(str(len(names)) for names in cases)


def most_frequent_reason(result: Result) -> str:
    reasons = Counter(reason for case in result.reasons.values() for reason in case)
    return textwrap.shorten(reasons.most_common(1)[0][0], REASON) if reasons else ""


def totals(results: Iterable[Result]) -> Iterator[str]:
    """Yield how many reached cases differ, the rates of false alarms, and each of these."""
    results = list(results)
    for verdict in (REGRESSED, IMPROVED):
        reached = sum(len(result.flagged(verdict, is_reached=True)) for result in results)
        yield f"{verdict}: {reached} of the reached cases"
    controls = [result for result in results if result.controls]
    flagged = sum(len(result.flagged(*GRAVITY, is_reached=False)) for result in controls)
    yield f"flagged by the first stage: {flagged} of the cases that are not reached"
    bounds = sorted(
        bound
        for result in controls
        for case, bound in result.bounds.items()
        if case not in result.reasons
    )
    for share in SHARES if bounds else ():
        bound = 100 * bounds[math.ceil(share * len(bounds)) - 1]
        yield f"a slowdown of {bound:.1f} % or more is ruled out in {100 * share:.0f} % of them"
    cases = [len(result.flagged(REGRESSED, IMPROVED, is_reached=False)) for result in controls]
    alarms = [
        (result, finding)
        for result in controls
        for finding in result.findings
        if not finding.is_reached and finding.verdict in (REGRESSED, IMPROVED)
    ]
    number_of_cases = sum(len(result.measured_cases(is_reached=False)) for result in controls)
    yield rate("gates", sum(map(bool, cases)), len(controls))
    yield rate("cases", sum(cases), number_of_cases)
    yield rate("tests", len(alarms), sum(result.controls for result in controls))
    for result, finding in alarms:
        yield (
            f"{result.project} {result.commit}, Python {result.python}: {finding.verdict}, "
            f"{100 * finding.change:+.1f} %: {finding.case}: {finding.quantity}"
        )


def rate(what: str, number: int, draws: int) -> str:
    """Return the rate of false alarms with its exact interval."""
    if not draws:
        return f"no {what} without changed code were measured"
    return f"false alarms in {number} of {draws} {what}: {share(number, draws)}"


def share(number: int, draws: int) -> str:
    """Return a share with its exact 95 % interval."""
    limits = binomtest(number, draws).proportion_ci(0.95, method="exact")
    shares = (f"{100 * ratio:.2f} %" for ratio in (number / draws, limits.low, limits.high))
    return "{} ({} to {})".format(*shares)


def main(folder: Path, names: Sequence[str], part: Shard, budget_s: float) -> None:
    file = folder / "results.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    python = platform.python_version()
    known = {(result.commit, result.python) for result in load(file) if not result.error}
    for clone, project, commit in commits_of_part(folder, names, part):
        if (commit, python) in known:
            continue
        options = GateOptions(
            base="HEAD~1",
            all_cases=True,
            case=THRESHOLD,
            budget_s=budget_s,
            storage=folder / "samples",
            pytest=project.part,
        )
        result = measured(clone, project, commit, options)
        with file.open("a") as stream:
            stream.write(json.dumps(asdict(result)) + "\n")
        print(*list(table([result]))[2:], file=sys.stderr, flush=True)
    results = load(file)
    print(*table(results), "", *totals(results), sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=lambda text: Path(text).resolve())
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--part", type=shard, default=WHOLE, metavar="K/N")
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="SECONDS")
    arguments = parser.parse_args()
    main(arguments.folder, arguments.names, arguments.part, arguments.budget)
