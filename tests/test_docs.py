"""What the documentation says is what the code does."""

import configparser
import re
import tomllib
from pathlib import Path

import pytest

import mnistbench
from mnistbench.allocator import PINNED
from mnistbench.options import OPTIONS

REPOSITORY = Path(__file__).parent.parent
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
EXAMPLE = REPOSITORY / "tests" / "examples" / "own_model"


def test_readme_lists_every_option_and_no_other():
    assert set(re.findall(r"^\| `(--[a-z-]+)`", README, re.MULTILINE)) == {option.flag for option in OPTIONS}


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.default], ids=lambda option: option.dest)
def test_readme_has_the_defaults(option):
    [row] = [line for line in README.splitlines() if line.startswith(f"| `{option.flag}`")]
    assert f"`{option.default}`" in row


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
