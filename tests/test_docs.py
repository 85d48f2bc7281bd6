"""The documentation agrees with the code, and the commands that it shows run.

Commands that measure or train only run until they would begin with it, and ``pytest`` collects.
The tests of each command and tests/integration run them in full.
"""

import configparser
import importlib.util
import itertools
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import builders
import gate_builders
import pytest
import reproducer_builders
import trace_builders
from projects import git

from mnistbench import cli
from mnistbench.compare.criteria import Criteria
from mnistbench.compare.pairing import DIRTY, ELSEWHERE, OTHER_COMMIT
from mnistbench.core.options import options_of
from mnistbench.core.params import STEPS
from mnistbench.gate.decide.verdict.findings import CHECKPOINTS, CHECKPOINTS_BELOW_FULL
from mnistbench.gate.measure.budget import (
    MAX_TRIALS,
    MAX_TRIALS_BELOW_FULL,
    MIN_TRIALS_BELOW_FULL,
)
from mnistbench.gate.options import FULL_CASE, TRIALS
from mnistbench.gate.samples import raw_samples
from mnistbench.pytest_plugin import plugin
from mnistbench.suite.reproducers.script import script

#: Exit code of ``mnistbench``: passed or done.
EXIT_PASSED = 0
#: Exit code of ``mnistbench``: regressed.
EXIT_REGRESSED = 1
#: Exit code of ``mnistbench``: undecided, wrong usage or failed.
EXIT_INCONCLUSIVE = 2

REPOSITORY = Path(__file__).parent.parent
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8")
    for path in (
        REPOSITORY / "README.md",
        REPOSITORY / "CONTRIBUTING.md",
        REPOSITORY / "SECURITY.md",
        *sorted((REPOSITORY / "docs").glob("*.md")),
    )
}
README = PAGES["README.md"]
COMPARING = PAGES["docs/comparing.md"]
GATE = PAGES["docs/gate.md"]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
EXAMPLE = REPOSITORY / "tests" / "examples" / "own_model"


def tox():
    parser = configparser.ConfigParser(inline_comment_prefixes=("#",), interpolation=None)
    parser.read(REPOSITORY / "tox.ini")
    return parser


# ---- Commands ------------------------------------------------------------------------------------


def lines_of_commands(page):
    """Return the lines of fenced blocks without a language.

    And the commands of tables that list commands.
    """
    blocks = [
        text
        for language, text in re.findall(r"^```(.*)\n((?:.*\n)*?)```$", page, re.MULTILINE)
        if not language
    ]
    tables = re.findall(r"^\|.*\bcommand\b.*\n((?:\|.*\n)*)", page, re.MULTILINE | re.IGNORECASE)
    cells = re.findall(r"`((?:python -m tox|tox|mnistbench|pytest)\b[^`]*)`", "".join(tables))
    return [*"".join(blocks).replace("\\\n", " ").splitlines(), *cells]


def commands(page):
    """Return each command of a page as a list of words; loops and chains are taken apart."""
    commands_of_page = []
    for line in lines_of_commands(page):
        for part in re.split(r"\s*(?:&&|;)\s*", line):
            words = shlex.split(part.removeprefix("do "), comments=True)
            if words and words[0] not in ("for", "done", "."):
                commands_of_page.append(words)
    return commands_of_page


ALL = {tuple(words): name for name, page in PAGES.items() for words in commands(page)}


def first(*start):
    """Return the commands that begin with these words, without them."""
    return [list(words[len(start) :]) for words in ALL if words[: len(start)] == start]


OURS = first("mnistbench") + first("git", "bisect", "run", "mnistbench")
TOX = first("python", "-m", "tox") + first("tox")
PYTEST = first("pytest") + [
    words[words.index("--") + 1 :]
    for words in TOX
    if words[:2] == ["-e", "bench"] and "--" in words
]


def named(words):
    return " ".join(words) or "(nothing)"


@pytest.fixture(scope="module")
def saved_runs(tmp_path_factory):
    """A git repository with the branches main and work, and a saved run of each."""
    folder = tmp_path_factory.mktemp("saved")
    git(folder, "init", "--quiet")
    storage = folder / ".benchmarks" / "machine"
    storage.mkdir(parents=True)
    for number, branch in enumerate(("main", "work"), start=1):
        git(folder, "checkout", "--quiet", "-B", branch)
        git(folder, "commit", "--quiet", "--allow-empty", "--message", branch)
        table = builders.op_table(builders.op_row("aten::mm", number * 1_000_000, phase="backward"))
        document = builders.saved_file(
            *(
                builders.case_record(tables=(table,), params=builders.params(step=step))
                for step in STEPS
            ),
            commit_info={"id": git(folder, "rev-parse", "HEAD"), "dirty": False, "branch": branch},
            datetime=f"2026-11-20T10:0{number}:00+00:00",
        )
        for path in (
            storage / f"000{number}_{branch}.json",
            folder / ("before.json", "after.json")[number - 1],
        ):
            path.write_text(json.dumps(document), encoding="utf-8")
    return folder


class WouldMeasureError(Exception):
    """Raised in place of a measurement of minutes."""


def measure(*_, **__):
    """Stand for whatever measures, as soon as a command comes to it."""
    raise WouldMeasureError


#: Command -> what is replaced by ``measure``: where it measures, trains, or reads what that leaves.
MEASUREMENTS = {
    "bisect": ("gate.commands.bisect.measure",),
    "class": (
        "course.classroom.submission.pack",
        "course.classroom.teacher.merge_command.gather",
        "course.classroom.teacher.rerun_command.gather",
    ),
    "gate": (
        "gate.copies.base.base_of",
        "gate.commands.gate.measure",
        "gate.qualification.measurement.qualify",
    ),
    "lab": (
        "course.lab.command._measure",
        "course.lab.command._merge",
        "course.lab.predict.command.answered",
        "course.classroom.score_command.measure",
        "course.classroom.check_command.read",
    ),
    "profile": ("suite.profile.run.profile_case",),
    "reproduce": (
        "suite.reproducers.command.interpreters",  # would download PyTorch
        "suite.reproducers.command.measure",
    ),
    "scale": ("suite.train.scale.command.measured",),
    "study": tuple(
        f"course.studies.{name}.measurement.study"
        for name in ("convolution", "graph", "locality", "memory")
    ),
    "train": ("suite.train.run.run",),
}

#: Commands that need no saved runs and write into the current folder.
IN_EMPTY_FOLDER = ("lab", "profile", "train")

#: Options of a training that takes a second.
SHORT = ["--dataset=digits", "--model=lenet5", "--batch-size=512", "--no-accel"]


def name_small_dataset(words, _):
    """Train with a dataset that need not be downloaded; begin a run that the command continues."""
    if "--resume" not in words:
        return [*words, "--dataset=digits"]
    begun = words[words.index("--resume") + 1]
    assert cli.main(["train", *SHORT, "--epochs=1", "--output", begun]) == EXIT_PASSED
    return [*words, "--epochs=2"]


def list_two_releases(words, monkeypatch):
    """Let the releases be those that the command names, without a look at the package index."""
    monkeypatch.setattr(
        "mnistbench.gate.commands.bisect.releases", lambda wanted: (wanted.first, wanted.last)
    )
    return words


def write_reproducer(words, _):
    path = Path(words[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    row = reproducer_builders.row()
    path.write_text(script(reproducer_builders.header(), [row], [row]), encoding="utf-8")
    return words


def write_shards(words, _):
    """Write the files of eight shards and name them as a shell does, or the file of one gate."""
    if "*" not in words[1]:
        Path(words[1]).parent.mkdir(parents=True, exist_ok=True)
        gate_builders.write(Path(words[1]), gate_builders.series())
        return words
    tests = tuple(f"t.py::test_{number}" for number in range(8))
    for shard in (raw_samples.Shard(number, 8, tests) for number in range(1, 9)):
        [case] = shard.own()
        path = Path(words[1].replace("shard-*-of-8_*", f"{shard.prefix}20261124_103105"))
        trials = gate_builders.series({case: gate_builders.Measured()}, count=10)
        gate_builders.write(path, trials, labels={case: case}, shard=shard)
    return ["judge", *map(str, Path().glob(words[1])), *words[2:]]


#: Command -> what prepares the files that it names, and returns its words.
PREPARATIONS = {
    "bisect": list_two_releases,
    "judge": write_shards,
    "reproduce": write_reproducer,
    "train": name_small_dataset,
}


def write_traces(words):
    """Write the traces that a command names: files, or the folder of the ranks of a run.

    And an empty step of a student.
    """
    for word in words:
        if word == "my_step.py":
            Path(word).touch()
        if word.endswith(".json.gz"):
            trace_builders.trace_file(Path(), trace_builders.network(), name=word)
        elif word == "traces/":
            Path(word).mkdir(exist_ok=True)
            info = {"rank": 0, "world_size": 1}
            trace_builders.trace_file(Path(word), trace_builders.network(), distributedInfo=info)


@pytest.fixture
def run_shown(saved_runs, tmp_path, monkeypatch, capsys):
    """Run a command beside the files that it names; return its exit code and what it prints."""

    def run(words):
        name = words[0]
        monkeypatch.chdir(tmp_path if name in IN_EMPTY_FOLDER else saved_runs)
        monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
        if name in PREPARATIONS:
            words = PREPARATIONS[name](words, monkeypatch)
        write_traces(words)
        capsys.readouterr()
        for where in MEASUREMENTS.get(name, ()):
            monkeypatch.setattr(f"mnistbench.{where}", measure)
        code = cli.main([*words[: words.index("--")], "--"] if "--" in words else words)
        return code, capsys.readouterr()

    return run


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    "words", [words for words in OURS if words and words[0] in MEASUREMENTS], ids=named
)
def test_a_shown_command_is_accepted_until_it_would_measure(run_shown, words):
    _, shown = run_shown(words)
    assert "WouldMeasureError" in shown.err


@pytest.mark.parametrize(
    "words", [words for words in OURS if not words or words[0] not in MEASUREMENTS], ids=named
)
def test_a_shown_command_that_measures_nothing_runs(run_shown, words):
    code, shown = run_shown(words)
    assert code in (EXIT_PASSED, EXIT_REGRESSED), shown.err
    assert shown.out or {"--output", "-o"} & {*words}
    assert shown.err == ""


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("words", first("torchrun"), ids=named)
def test_a_shown_launch_has_options_of_torchrun_and_ours(words):
    from torch.distributed.run import get_args_parser

    launch = get_args_parser().parse_args(words)
    assert (launch.module, launch.training_script) == (True, "mnistbench")
    command, *_ = launch.training_script_args
    assert cli.parser(command).parse_args(launch.training_script_args)


COLLECT = """
import json, sys, pytest
ignored = "ignore::pytest_benchmark.logger.PytestBenchmarkWarning"
ours = ["--collect-only", "-q", "-p", "no:cacheprovider", "-W", ignored]
ours += ["--benchmark-storage", sys.argv[2]]
print([int(pytest.main([*words, *ours])) for words in json.loads(sys.argv[1])])
"""


@pytest.mark.usefixtures("torch")
def test_shown_pytest_commands_collect_tests(tmp_path):
    bench_words = (words if not words[0].startswith("-") else ["bench", *words] for words in PYTEST)
    different = dict.fromkeys(tuple(words) for words in bench_words)
    shown_commands = [words for words in different if words != ("tests",)]
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, json.dumps(shown_commands), tmp_path],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    codes = json.loads(done.stdout.splitlines()[-1])
    assert len(codes) == len(shown_commands) > 0
    # Thresholds judge nothing where nothing was measured.
    collected = (pytest.ExitCode.OK, plugin.PYTEST_EXIT_INCONCLUSIVE)
    assert [
        words for words, code in zip(shown_commands, codes, strict=True) if code not in collected
    ] == [], done.stdout + done.stderr


def test_shown_tox_environments_exist():
    environments = {name.removeprefix("testenv:") for name in tox().sections()}
    assert {words[1] for words in TOX if words} <= environments
    assert all(words[0] == "-e" for words in TOX if words)


def test_shown_pip_commands_name_dependency_groups_and_extras_that_exist():
    pip_commands = first("python", "-m", "pip") + first("pip")
    pairs = [pair for words in pip_commands for pair in itertools.pairwise(words)]
    groups = {group for option, group in pairs if option == "--group"}
    assert groups
    assert groups <= set(PROJECT["dependency-groups"])
    ours = re.compile(r"(?:mnistbench|\.)\[(.+)\]")
    listed = [ours.fullmatch(word) for words in pip_commands for word in words]
    extras = {extra for match in listed if match for extra in match[1].split(",")}
    assert extras
    assert extras <= set(PROJECT["project"]["optional-dependencies"])


@pytest.mark.parametrize("page", PAGES)
def test_scripts_and_subcommands_that_a_page_names_exist(page):
    text = PAGES[page]
    assert [
        path
        for path in re.findall(r"docs/\w+(?:/\w+)*\.(?:py|json\.gz)", text)
        if not (REPOSITORY / path).is_file()
    ] == []
    for subcommand in set(re.findall(r"`mnistbench ([a-z]+)", text)):
        with pytest.raises(SystemExit, match=r"\b0\b"):
            cli.main([subcommand, "--help"])


EVIDENCE = sorted((REPOSITORY / "docs" / "evidence").glob("*.md"))


@pytest.mark.parametrize("name", [*PAGES, *(f"docs/evidence/{path.name}" for path in EVIDENCE)])
def test_modules_and_tests_that_a_page_names_exist(name):
    # The pages on evidence name tests of other projects, too, in folders that are not here.
    folders = "|".join(path.name for path in (REPOSITORY / "tests").iterdir() if path.is_dir())
    named = re.findall(
        rf"(?<![\w/])(?:mnistbench|tests/(?:{folders}))/[\w/]+\.py\b",
        (REPOSITORY / name).read_text(encoding="utf-8"),
    )
    assert [path for path in named if not (REPOSITORY / path).is_file()] == []


# ---- What pages state ----------------------------------------------------------------------------


def test_readme_is_short():
    assert len(README.encode()) < 12_000


def test_the_page_on_the_gate_has_the_numbers_of_trials():
    text = " ".join(GATE.split())
    assert f"By default there are {TRIALS}, and up to {MAX_TRIALS} if" in text
    least, most = CHECKPOINTS
    assert f"in {least} or {most} fresh trials" in text
    fewest, many = MIN_TRIALS_BELOW_FULL, MAX_TRIALS_BELOW_FULL
    assert f"With a threshold below {100 * FULL_CASE:g} %, it makes {fewest} to {many}," in text
    assert "({} or {} with such".format(*CHECKPOINTS_BELOW_FULL) in text


@pytest.mark.parametrize("name", ["conftest.py", "test_forecaster.py"])
def test_readme_shows_the_example_that_the_tests_run(name):
    code = (EXAMPLE / name).read_text(encoding="utf-8")
    assert f"```python\n{code}```" in README


def test_every_dependency_says_why():
    lines = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    start = lines.index("dependencies = [")
    dependencies = lines[start + 1 : lines.index("]", start)]
    assert dependencies
    assert [line for line in dependencies if "#" not in line] == []


def test_the_oldest_python_is_the_one_that_readme_names():
    assert f"Python {PROJECT['project']['requires-python'].removeprefix('>=')} or newer" in README


def test_the_page_on_comparing_lists_the_options_that_need_the_command_line():
    [sentence] = re.findall(r"can only be given on the command line: ([^.]*)\.", COMPARING)
    assert re.findall(r"`(--[a-z-]+)`", sentence) == [
        option.name for option in options_of(Criteria).values() if not option.configurable
    ]


def test_the_exit_codes_are_those_of_the_code():
    lines = [line for line in COMPARING.splitlines() if re.search(r"(\| \d +){4}", line)]
    ours = {
        line.split("`")[1].split()[0]: [int(cell) for cell in re.findall(r"\| (\d) ", line)]
        for line in lines
    }
    assert ours == {
        "mnistbench": [EXIT_PASSED, EXIT_REGRESSED, EXIT_INCONCLUSIVE, EXIT_INCONCLUSIVE],
        "pytest": [
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
            plugin.PYTEST_EXIT_INCONCLUSIVE,
            pytest.ExitCode.USAGE_ERROR,
        ],
    }


def test_the_page_on_comparing_has_each_verdict():
    for verdict in (
        "regressed",
        "improved",
        "within X %",
        "suspect",
        "inconclusive",
        "incomparable",
        "missing",
    ):
        assert f"| `{verdict}`" in COMPARING


def test_the_page_on_comparing_has_every_reason_for_leaving_out_a_base_run():
    [line] = [line for line in COMPARING.splitlines() if line.startswith("base runs used: ")]
    assert set(re.findall(r"\(([^)]+)\)", line)) == {ELSEWHERE, DIRTY, OTHER_COMMIT}


def test_every_schema_is_linked_and_every_link_to_a_schema_has_its_file():
    linked = {
        name
        for page in PAGES.values()
        for name in re.findall(r"\]\((?:docs/)?schema/([^)]+)\)", page)
    }
    assert linked == {path.name for path in (REPOSITORY / "docs" / "schema").iterdir()}


def test_no_page_links_to_the_evidence_which_the_site_does_not_have():
    assert not [name for name, page in PAGES.items() if "](evidence/" in page]


def test_pictures_are_small_and_all_are_shown():
    pictures = {
        path.name: path.stat().st_size for path in (REPOSITORY / "docs" / "images").iterdir()
    }
    shown = {
        Path(path).name
        for page in PAGES.values()
        for path in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page)
    }
    assert shown == set(pictures)
    assert all(size < 150_000 for size in pictures.values())


def test_the_reference_is_current():
    spec = importlib.util.spec_from_file_location(
        "make_reference", REPOSITORY / "docs" / "make_reference.py"
    )
    make_reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_reference)
    assert PAGES["docs/reference.md"] == make_reference.reference(), (
        "run: python docs/make_reference.py"
    )


# ---- The site ------------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation_of_the_site():
    listed = set(re.findall(r"^([a-z-]+)$", PAGES["docs/index.md"], re.MULTILINE))
    assert listed == {Path(name).stem for name in PAGES if name.startswith("docs/")} - {"index"}
