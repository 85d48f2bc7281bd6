"""What the documentation says is what the code does."""

import configparser
import re
import tomllib
from pathlib import Path

import pytest

import mnistbench
from mnistbench import cli
from mnistbench.commands import output
from mnistbench.compare.diff import DIRTY, ELSEWHERE, OTHER_COMMIT
from mnistbench.compare.settings import SETTINGS
from mnistbench.core.allocator import PINNED
from mnistbench.gate.run import FRESH, LAUNCHES
from mnistbench.pytest_plugin import plugin
from mnistbench.pytest_plugin.options import OPTIONS

REPOSITORY = Path(__file__).parent.parent
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
EXAMPLE = REPOSITORY / "tests" / "examples" / "own_model"


def test_readme_lists_every_option_and_no_other():
    assert set(re.findall(r"^\| `(--[a-z-]+)`", README, re.MULTILINE)) == {option.flag for option in (*OPTIONS, *SETTINGS)}


@pytest.mark.parametrize(
    "option", [option for option in (*OPTIONS, *SETTINGS) if option.default], ids=lambda option: option.flag
)
def test_readme_has_the_defaults(option):
    [row] = [line for line in README.splitlines() if line.startswith(f"| `{option.flag}`")]
    assert f"`{option.default}`" in row


def gate_options():
    """The options of ``mnistbench gate``, by their parser: flag -> default."""
    [commands] = [action for action in cli.parser()._actions if isinstance(action.choices, dict)]
    return {
        action.option_strings[-1]: action.default
        for action in commands.choices["gate"]._actions
        if action.option_strings and action.dest != "help"
    }


def test_the_page_on_the_gate_has_every_option_with_its_default_and_no_other():
    page = (REPOSITORY / "docs" / "gate.md").read_text(encoding="utf-8")
    rows = [line for line in page.split("## Options", 1)[1].splitlines() if line.startswith("| `--")]
    described = {flag: row for row in rows for flag in re.findall(r"`(--[a-z-]+)`", row.split("|")[1])}
    options = gate_options()
    assert set(described) == set(options)
    assert f"`{LAUNCHES}`" in described["--launches"] or f"| {LAUNCHES} |" in described["--launches"]
    for flag, default in options.items():
        if isinstance(default, str) and default:
            assert f"`{default}`" in described[flag]
    assert f"in {FRESH} fresh launches" in page


@pytest.mark.parametrize("name", ["conftest.py", "test_forecaster.py"])
def test_readme_shows_the_example_that_the_tests_run(name):
    code = (EXAMPLE / name).read_text(encoding="utf-8")
    assert f"```python\n{code}```" in README


@pytest.mark.parametrize("environment", ["bench", "gpu"])
def test_tox_sets_the_thresholds_that_count_as_pinned(environment):
    tox = configparser.ConfigParser(inline_comment_prefixes=("#",), interpolation=None)
    tox.read(REPOSITORY / "tox.ini")
    settings = tox["testenv:bench"]["set_env"]
    assert {name: value for name, value in re.findall(r"(MALLOC_\w+) = (\d+)", settings)} == PINNED  # noqa: C416
    if environment != "bench":
        assert tox[f"testenv:{environment}"]["set_env"] == "{[testenv:bench]set_env}"


def test_every_dependency_says_why():
    lines = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    start = lines.index("dependencies = [")
    dependencies = lines[start + 1 : lines.index("]", start)]
    assert dependencies
    assert [line for line in dependencies if "#" not in line] == []


def test_the_changelog_has_a_place_for_what_is_new():
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in changelog or f"## [{mnistbench.__version__}]" in changelog


def test_the_oldest_python_is_the_one_that_readme_names():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in README


def test_readme_says_which_settings_stand_on_the_command_line_alone():
    only_there = [setting.flag for setting in SETTINGS if not setting.configurable]
    assert only_there == [setting.flag for setting in SETTINGS][-7:]
    assert "The last seven can be given on the command line only" in README


def test_the_job_to_copy_runs_the_gate_on_a_clone_that_has_the_base():
    job = README.split("```yaml", 1)[1].split("```", 1)[0]
    assert "fetch-depth: 0" in job
    assert "mnistbench gate --base origin/" in job


@pytest.mark.parametrize("page", [README, (REPOSITORY / "docs" / "verdicts.md").read_text(encoding="utf-8")])
def test_the_exit_codes_are_those_of_the_code(page):
    lines = [line for line in page.splitlines() if re.search(r"(\| \d +){4}", line)]
    ours = {line.split("`")[1].split()[0]: [int(cell) for cell in re.findall(r"\| (\d) ", line)] for line in lines}
    assert ours == {
        "mnistbench": [output.PASSED, output.REGRESSED, output.UNJUDGED, output.UNJUDGED],
        "pytest": [pytest.ExitCode.OK, plugin.REGRESSED, plugin.UNJUDGED, pytest.ExitCode.USAGE_ERROR],
    }


@pytest.mark.parametrize(
    "verdict", ["regressed", "improved", "within X %", "suspect", "inconclusive", "incomparable", "missing"]
)
def test_the_page_on_verdicts_has_each(verdict):
    page = (REPOSITORY / "docs" / "verdicts.md").read_text(encoding="utf-8")
    assert f"| `{verdict}`" in page


def test_readme_shows_pictures_that_are_there_and_small():
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert len(shown) == 3
    assert all((REPOSITORY / path).stat().st_size < 100_000 for path in shown)


def test_the_page_on_verdicts_has_every_reason_for_leaving_out_a_base_run():
    reasons = {ELSEWHERE, DIRTY, OTHER_COMMIT}
    page = (REPOSITORY / "docs" / "verdicts.md").read_text(encoding="utf-8")
    [line] = [line for line in page.splitlines() if line.startswith("base runs used: ")]
    assert set(re.findall(r"\(([^)]+)\)", line)) == reasons
