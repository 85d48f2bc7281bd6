"""Whether the gate names the function that got slower.

    python3.13 docs/evidence/causes.py [--commits | --rankings] FOLDER [PROJECT ...]

Clones each project into FOLDER. For each slowdown of injections.toml it changes the working tree on
top of the project's commit, and runs ``mnistbench gate --base HEAD`` on one benchmark. With
``--commits`` it runs the gate on commits of the projects themselves, each against its parent, and
on benchmarks that a commit makes faster or slower.

Appends a JSON line for each gate to FOLDER/injections.jsonl or FOLDER/commits.jsonl, also if the
gate failed; the next run measures what is missing in the file or failed. What the suites need
(PACKAGES of reach.py, and markdown-it-py's requirements) has to be installed beside mnistbench.

Prints a row for each injection, with the first cause that the gate names and the place of the
injected function among its causes, and how often it is the first one and among the first three,
with exact 95 % intervals. Of a commit it prints its subject, the functions that it changes, and the
causes.

With ``--rankings`` it measures no times: it surveys both sides of all injections and commits,
collects the call paths of the cases once, keeps them in FOLDER/profiles.jsonl, and prints how often
each of three methods has the right function as the first one: the attribution of the gate; the
functions that differ, in the order in which their total time changed; and the same without the time
of other functions that differ. It prints the cases in which they do not agree.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import reach
from reach import NO_ASYNCIO, Project, cloned, git, share

from mnistbench.core.reading import read_text
from mnistbench.core.units import and_more, duration, percent
from mnistbench.gate.explain.attribution import MIN_SHARE, causes
from mnistbench.gate.explain.other_changes import with_others
from mnistbench.gate.explain.profiles import measure_profiles
from mnistbench.gate.flow import setup_of
from mnistbench.gate.options import GateOptions
from mnistbench.gate.samples.case_profile import CaseProfile, total_times
from mnistbench.gate.survey.reach.source import read
from mnistbench.gate.survey.surveying import survey_sides
from mnistbench.gate.words import BASE, HEAD
from mnistbench.judging.verdicts import IMPROVED, REGRESSED
from mnistbench.showing.progress import Progress

INJECTIONS = Path(__file__).with_name("injections.toml")

#: Stands in a replacement for the text that is replaced.
OLD = "<old>"

OPTIONS = ("--threshold", "5%", "--budget", "120s")

#: Of all random decisions while call paths are collected.
SEED = 1

#: Among so many causes the injected function should be.
FEW = 3

#: Least change of a profiled iteration of a commit whose call paths are ranked, as a share.
MIN_CHANGE = 0.05

#: Most changed functions of a commit that are printed.
MAX_CHANGES = 8

PROJECTS = {
    project.name: project
    for project in (
        *reach.PROJECTS,
        Project(
            "executablebooks/markdown-it-py",
            "2c3f71e",
            "markdown_it",
            ("benchmarking/bench_core.py",),
        ),
    )
}

#: Options of pytest that a suite needs beside the node IDs of its cases.
SUITE_OPTIONS = {
    "dbus-fast": NO_ASYNCIO,
    "yarl": NO_ASYNCIO,
}


@dataclass(frozen=True)
class Injection:
    """A slowdown of one function, and the case that it makes slower."""

    project: str
    kind: str
    case: str
    functions: Sequence[str]  # names that are right
    edits: Sequence[tuple[str, str, str]]  # path, text that is there once, replacement
    distractor: str = ""  # another function that is changed without harm

    @property
    def key(self) -> str:
        """What identifies a measurement of it."""
        text = json.dumps([self.project, self.case, self.edits])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def apply(self, clone: Path) -> None:
        """Change the working tree."""
        for name, old, new in self.edits:
            path = clone / name
            text = path.read_text()
            if text.count(old) != 1:
                raise ValueError(f"{name} has {old!r} {text.count(old)} times")
            path.write_text(text.replace(old, new.replace(OLD, old)))


@dataclass(frozen=True)
class Commit:
    """A commit, and the benchmarks that it makes faster or slower."""

    project: str
    revision: str
    part: Sequence[str]  # arguments of pytest

    @property
    def key(self) -> str:
        """What identifies a measurement of it."""
        return " ".join((self.revision, *self.part))


COMMITS = (
    Commit("dbus-fast", "3625810", ("tests/benchmarks/test_dispatch.py",)),
    Commit("dbus-fast", "5be18bd", ("tests/benchmarks/test_dispatch.py",)),
    Commit("dbus-fast", "9368c90", ("tests/benchmarks/test_unpack.py",)),
    Commit(
        "graphql-core",
        "bfbb0163",
        ("tests/benchmarks/test_async_iterable.py::test_execute_async_iterable_list_field",),
    ),
    Commit("graphql-core", "629b763a", ("tests/benchmarks/test_parser.py",)),
    Commit(
        "pint",
        "2dcab3a3",
        (
            "pint/testsuite/benchmarks/test_10_registry.py",
            *("-k", "test_parse_units and True and (ms or angstrom)"),
        ),
    ),
    Commit("python-zeroconf", "868f28f8", ("tests/benchmarks/test_ipaddress.py", "-k", "hash")),
    Commit("yarl", "3bf614a5", ("tests/test_url_benchmarks.py", "-k", "parse_query_uncached")),
    Commit(
        "yarl",
        "558e4b0a",
        ("tests/test_url_benchmarks.py", "-k", "empty_path_uncached or raw_path_qs_uncached"),
    ),
    Commit("yarl", "8e445f4b", ("tests/test_url_benchmarks.py", "-k", "parent")),
    Commit("yarl", "96649e78", ("tests/test_url_benchmarks.py", "-k", "update_query_none")),
    Commit("yarl", "0608fdd7", ("tests/test_url_benchmarks.py", "-k", "with_name")),
    Commit("yarl", "fcb8d7c8", ("tests/test_url_benchmarks.py", "-k", "with_host or with_port")),
)


# ---- Measure -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cause:
    """A function that the gate names."""

    function: str  # path:qualified name
    how: str
    change_ns: float  # in an iteration with a profiler
    calls: tuple[float, float]  # in an iteration, of the base and of the head


@dataclass(frozen=True)
class Finding:
    """A case that got slower or faster, and why."""

    case: str
    verdict: str
    change: float  # of its time, as a share
    profiled_change_ns: float | None = None  # of an iteration; None if it was not profiled
    causes: Sequence[Cause] = ()

    @property
    def no_cause(self) -> str:
        """Say why there is no cause."""
        return "not profiled" if self.profiled_change_ns is None else "no cause"

    def rank(self, functions: Iterable[str]) -> int:
        """Return the place of the first of these functions among the causes; 0 if it has none."""
        names = set(functions)
        for place, cause in enumerate(self.causes, 1):
            if around(cause.function) in names:
                return place
        return 0


@dataclass(frozen=True)
class Result:
    """What a gate said."""

    key: str
    sentence: str = ""
    seconds: float = 0.0
    error: str = ""  # why there is no report
    findings: Sequence[Finding] = field(default=())


def around(function: str) -> str:
    """Return the name of the function of a lambda or of a generator expression."""
    while function.endswith(">"):
        function = function.rpartition(".<locals>.")[0]
    return function


def measured(key: str, clone: Path, project: Project, base: str, part: Sequence[str]) -> Result:
    """Run the gate on the working tree."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.json"
        command = [sys.executable, "-P", "-m", "mnistbench", "gate", "--base", base, *OPTIONS]
        command += ["--format", "json", "--output", str(report), "--storage", temporary]
        command += ["--", *part, *SUITE_OPTIONS.get(project.name, ())]
        variables = {**os.environ, **dict(project.variables)}
        done = subprocess.run(
            command, cwd=clone, env=variables, check=False, capture_output=True, text=True
        )
        seconds = round(time.monotonic() - start, 1)
        if not report.exists():
            return Result(key, seconds=seconds, error=" ".join(done.stderr.split()[-40:]))
        content = json.loads(report.read_text())
    return Result(key, content["sentence"], seconds, findings=tuple(findings_of(content)))


def findings_of(report: dict[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each case whose iterations got slower or faster.

    The causes are of the case, whichever of its times was found slower.
    """
    findings: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for finding in report["findings"]:
        if finding["verdict"] in (REGRESSED, IMPROVED) and finding["screened"]["kind"] != "once":
            findings[finding["screened"]["case"]].append(finding)
    for case, findings_of_case in findings.items():
        first = findings_of_case[0]
        explained = max(findings_of_case, key=lambda finding: len(finding.get("causes", ())))
        yield Finding(
            case,
            first["verdict"],
            round((first["confirmed"] or first["screened"])["change"], 4),
            explained.get("profiled_change_ns"),
            tuple(as_cause(cause) for cause in explained.get("causes", ())),
        )


def as_cause(fields: dict[str, Any]) -> Cause:
    base, head = fields["calls"]
    return Cause(fields["function"], fields["how"], fields["change_ns"], (base, head))


def changed_functions(clone: Path, commit: Commit, code: str) -> Iterator[str]:
    """Yield the functions of the package that a commit changes, adds or removes."""
    difference = git(clone, "diff", "--name-only", f"{commit.revision}~1", commit.revision)
    for name in difference.splitlines():
        if not (name.startswith(f"{code}/") and name.endswith(".py")) or "test" in name:
            continue
        sides = [contents(clone, f"{commit.revision}{parent}:{name}") for parent in ("~1", "")]
        for function in sorted({function for function, _ in sides[0] ^ sides[1]}):
            yield f"{name}:{function}"


def contents(clone: Path, file: str) -> set[tuple[str, str]]:
    """Return the functions of a file with their contents; none if the commit has no such file."""
    try:
        source = read(git(clone, "show", file))
    except subprocess.CalledProcessError:
        return set()
    return {(function.name, function.content) for function in source.functions}


# ---- Keep and print ------------------------------------------------------------------------------


def load_injections() -> list[Injection]:
    """Return the injections of the file."""
    tables = tomllib.loads(INJECTIONS.read_text())["injection"]
    return [Injection(**table) for table in tables]


def load(file: Path) -> dict[str, Result]:
    """Return the newest result of each measurement."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {result.key: result for result in map(as_result, lines)}


def as_result(line: str) -> Result:
    """Return the result of a line of the file."""
    fields = json.loads(line)
    findings = tuple(
        Finding(**{**finding, "causes": tuple(map(as_cause, finding["causes"]))})
        for finding in fields["findings"]
    )
    return Result(**{**fields, "findings": findings})


def keep(file: Path, result: Result | Profiled) -> None:
    with file.open("a") as stream:
        stream.write(json.dumps(asdict(result)) + "\n")


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def injection_row(injection: Injection, result: Result) -> str:
    """Return the row of an injection."""
    name = injection.functions[0].rpartition(":")[2]
    cells = [injection.project, injection.kind, f"`{name}`", injection.distractor and "yes"]
    if not result.findings:
        return row(*cells, result.error or result.sentence, "", "")
    finding = result.findings[0]
    return row(
        *cells,
        percent(finding.change, signed=True),
        cause_text(finding.causes[0]) if finding.causes else finding.no_cause,
        str(finding.rank(injection.functions) or "none"),
    )


def cause_text(cause: Cause) -> str:
    base, head = (f"{calls:g}" for calls in cause.calls)
    calls = base if base == head else f"{base} -> {head}"
    name = cause.function.rpartition(":")[2]
    how = f" ({cause.how})" if cause.how else ""
    return f"`{name}`{how}, {duration(cause.change_ns, signed=True)}, calls {calls}"


def summary(measured_injections: Sequence[tuple[Injection, Result]]) -> Iterator[str]:
    """Yield how often the injected function is named, of all and of those with a distractor."""
    groups = {
        "injections": measured_injections,
        "with a distractor": [
            (injection, result) for injection, result in measured_injections if injection.distractor
        ],
    }
    for title, members in groups.items():
        ranks = [
            result.findings[0].rank(injection.functions)
            for injection, result in members
            if result.findings
        ]
        yield f"{title}: {len(ranks)} of {len(members)} found slower or faster"
        if ranks:
            first = sum(rank == 1 for rank in ranks)
            among = sum(1 <= rank <= FEW for rank in ranks)
            yield f"{title}: first cause in {first} of {len(ranks)}: {share(first, len(ranks))}"
            yield (
                f"{title}: among the first {FEW} in {among} of {len(ranks)}: "
                f"{share(among, len(ranks))}"
            )


def measure_injections(folder: Path, names: Sequence[str]) -> None:
    file = folder / "injections.jsonl"
    results = load(file)
    injections = [
        injection for injection in load_injections() if not names or injection.project in names
    ]
    for injection in injections:
        if injection.key in results and not results[injection.key].error:
            continue
        project = PROJECTS[injection.project]
        clone = cloned(folder, project)
        git(clone, "checkout", "--quiet", "--force", "--detach", project.newest)
        injection.apply(clone)
        result = measured(injection.key, clone, project, "HEAD", [injection.case])
        git(clone, "checkout", "--quiet", "--force", "HEAD")
        keep(file, result)
        results[injection.key] = result
        print(injection_row(injection, result), file=sys.stderr, flush=True)
    columns = ("project", "kind", "function", "distractor", "slowdown", "first cause", "rank")
    print(row(*columns), f"|{'---|' * len(columns)}", sep="\n")
    pairs = [(injection, results[injection.key]) for injection in injections]
    print(*(injection_row(*pair) for pair in pairs), "", *summary(pairs), sep="\n")


def measure_commits(folder: Path, names: Sequence[str]) -> None:
    file = folder / "commits.jsonl"
    results = load(file)
    for commit in COMMITS:
        if names and commit.project not in names:
            continue
        project = PROJECTS[commit.project]
        clone = cloned(folder, project)
        if commit.key not in results or results[commit.key].error:
            git(clone, "checkout", "--quiet", "--force", "--detach", commit.revision)
            results[commit.key] = measured(commit.key, clone, project, "HEAD~1", commit.part)
            keep(file, results[commit.key])
        print(*commit_lines(clone, commit, results[commit.key]), "", sep="\n", flush=True)


def commit_lines(clone: Path, commit: Commit, result: Result) -> Iterator[str]:
    """Yield what the author, the change itself and the gate say of a commit."""
    subject = git(clone, "log", "-1", "--format=%s", commit.revision).strip()
    yield f"{commit.project} {commit.revision}: {subject}"
    changes = list(changed_functions(clone, commit, PROJECTS[commit.project].code))
    yield f"changes {and_more(changes, MAX_CHANGES)}"
    if not result.findings:
        yield f"gate: {result.error or result.sentence}"
    for finding in result.findings:
        yield f"{finding.verdict}, {percent(finding.change, signed=True)}: {finding.case}"
        for place, cause in enumerate(finding.causes[:FEW], 1):
            yield f"  {place}. {cause_text(cause)}"
        if not finding.causes:
            yield f"  {finding.no_cause}"


# ---- Compare two methods -------------------------------------------------------------------------


@dataclass(frozen=True)
class Profiled:
    """The call paths of the affected cases of an injection or a commit."""

    key: str
    profiles: Mapping[str, CaseProfile]


def profiled(key: str, clone: Path, project: Project, base: str, part: Sequence[str]) -> Profiled:
    """Survey both sides as the gate does, and collect the call paths of the cases once."""
    arguments = (*part, *SUITE_OPTIONS.get(project.name, ()))
    with (
        mock.patch.dict(os.environ, project.variables),
        contextlib.chdir(clone),
        tempfile.TemporaryDirectory() as temporary,
    ):
        folder = Path(temporary).resolve()
        options = GateOptions(base=base, pytest=arguments)
        pythons = dict.fromkeys((BASE, HEAD), sys.executable)
        setup = setup_of(options, pythons, clone, folder)
        log = folder / "log"
        with Progress(None) as progress:
            sides = survey_sides(options, setup, 0.0, clone, SEED, log, progress)
        code = sides.code
        header = sides.header
        profiles = measure_profiles(sides.plan, SEED, list(header.labels), log, code)
        return Profiled(
            key,
            {case: with_others(profile, case, header, code) for case, profile in profiles.items()},
        )


def collect_profiles(folder: Path, names: Sequence[str]) -> dict[str, Profiled]:
    """Collect the call paths of the injections and the commits that the file does not have."""
    file = folder / "profiles.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    known = {one.key: one for one in (read_text(line, Profiled) for line in lines)}
    for measurement in (*load_injections(), *COMMITS):
        if (names and measurement.project not in names) or measurement.key in known:
            continue
        project = PROJECTS[measurement.project]
        clone = cloned(folder, project)
        if isinstance(measurement, Injection):
            git(clone, "checkout", "--quiet", "--force", "--detach", project.newest)
            measurement.apply(clone)
            one = profiled(measurement.key, clone, project, "HEAD", [measurement.case])
            git(clone, "checkout", "--quiet", "--force", "HEAD")
        else:
            git(clone, "checkout", "--quiet", "--force", "--detach", measurement.revision)
            one = profiled(measurement.key, clone, project, "HEAD~1", measurement.part)
        keep(file, one)
        known[one.key] = one
        print(f"profiled: {measurement.project} {measurement.key}", file=sys.stderr, flush=True)
    return known


def by_attribution(profile: CaseProfile) -> list[str]:
    """Return the causes of the gate."""
    return [cause.function for cause in causes(profile, only_tree=True).functions]


def by_total_time(profile: CaseProfile) -> list[str]:
    """Return the functions that differ, those whose total time changed most first."""
    paths = profile.paths
    changes_ns = total_times(
        [path.head_self_ns - path.base_self_ns for path in paths], [path.parent for path in paths]
    )
    parts_ns: dict[int, float] = defaultdict(float)
    above: list[frozenset[int]] = []  # the functions of each path
    for path, row in enumerate(paths):
        functions = above[row.parent] if row.parent >= 0 else frozenset[int]()
        if row.function not in functions:  # the time of recursive calls is that of the first one
            parts_ns[row.function] += changes_ns[path]
        above.append(functions | {row.function})
    return differing(profile, parts_ns)


def by_time_below(profile: CaseProfile) -> list[str]:
    """Do as ``by_total_time``, but without the time of other functions that differ, and below."""
    parts_ns: dict[int, float] = defaultdict(float)
    blamed: list[int] = []  # for each path the last function that differs; -1 if there is none
    for row in profile.paths:
        outer = blamed[row.parent] if row.parent >= 0 else -1
        blamed.append(row.function if profile.functions[row.function].change else outer)
        parts_ns[blamed[-1]] += row.head_self_ns - row.base_self_ns
    parts_ns.pop(-1, None)
    return differing(profile, parts_ns)


def differing(profile: CaseProfile, parts_ns: Mapping[int, float]) -> list[str]:
    """Return the functions that differ and explain enough to be named, the largest part first."""
    change_ns = sum(path.head_self_ns - path.base_self_ns for path in profile.paths)
    shares = {
        function: part_ns / change_ns
        for function, part_ns in parts_ns.items()
        if profile.functions[function].change
    }
    ranked = sorted(shares, key=lambda function: -shares[function])
    return [
        profile.functions[function].name for function in ranked if shares[function] >= MIN_SHARE
    ]


METHODS: Mapping[str, Callable[[CaseProfile], list[str]]] = {
    "the attribution": by_attribution,
    "total time of the functions that differ": by_total_time,
    "their time without others that differ": by_time_below,
}


@dataclass(frozen=True)
class Ranked:
    """What each method makes of a case."""

    what: str
    ranks: Sequence[int]  # of the right function; 0 if it is not named
    firsts: Sequence[str]
    has_distractor: bool = False


def ranked(what: str, profile: CaseProfile, right: Iterable[str], distractor: str = "") -> Ranked:
    names = [method(profile) for method in METHODS.values()]
    right = set(right)
    ranks = [
        next((place for place, name in enumerate(one, 1) if around(name) in right), 0)
        for one in names
    ]
    return Ranked(what, ranks, [one[0] if one else "none" for one in names], bool(distractor))


def compare_rankings(folder: Path, names: Sequence[str]) -> None:
    known = collect_profiles(folder, names)
    injected = [
        ranked(f"{one.project}, {one.kind}", profile, one.functions, one.distractor)
        for one in load_injections()
        if one.key in known
        for profile in known[one.key].profiles.values()
    ]
    of_commits = []
    for commit in COMMITS:
        if commit.key not in known:
            continue
        clone = cloned(folder, PROJECTS[commit.project])
        right = set(changed_functions(clone, commit, PROJECTS[commit.project].code))
        for case, profile in known[commit.key].profiles.items():
            if abs(profiled_change(profile)) >= MIN_CHANGE:
                what = f"{commit.project} {commit.revision}, {case.rpartition('::')[2]}"
                of_commits.append(ranked(what, profile, right))
    groups = {
        "injections: first": [[rank == 1 for rank in one.ranks] for one in injected],
        f"among the first {FEW}": [[1 <= rank <= FEW for rank in one.ranks] for one in injected],
        "with a distractor: first": [
            [rank == 1 for rank in one.ranks] for one in injected if one.has_distractor
        ],
        "cases of commits: first": [[rank == 1 for rank in one.ranks] for one in of_commits],
    }
    print(row("ranked by", *groups), f"|{'---|' * (1 + len(groups))}", sep="\n")
    for number, method in enumerate(METHODS):
        cells = (f"{sum(hits[number] for hits in rows)} of {len(rows)}" for rows in groups.values())
        print(row(method, *cells))
    print()
    for one in (*injected, *of_commits):
        if len(set(one.ranks)) > 1 or len(set(one.firsts)) > 1:
            texts = (
                f"{rank or 'none'} (first `{first.rpartition(':')[2]}`)"
                for rank, first in zip(one.ranks, one.firsts, strict=True)
            )
            print(row(one.what, *texts))


def profiled_change(profile: CaseProfile) -> float:
    """Return the change of a profiled iteration, as a share."""
    base_ns, head_ns = (
        sum(getattr(path, f"{side}_self_ns") for path in profile.paths) for side in (BASE, HEAD)
    )
    return head_ns / base_ns - 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=lambda text: Path(text).resolve())
    parser.add_argument("names", nargs="*", metavar="PROJECT")
    parser.add_argument("--commits", action="store_true")
    parser.add_argument("--rankings", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.rankings:
        measure = compare_rankings
    else:
        measure = measure_commits if arguments.commits else measure_injections
    measure(arguments.folder, arguments.names)
