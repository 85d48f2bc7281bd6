"""Which files with dependencies differ."""

from __future__ import annotations

import pytest
from surveyed import write

from mnistbench.gate.copies.trees import Tree
from mnistbench.gate.survey.reach.dependencies import differing_dependencies
from mnistbench.gate.words import BASE, HEAD


@pytest.fixture
def differing(tmp_path):
    """Return which of the files of two trees have other dependencies."""

    def found(base, head):
        sides = {
            name: Tree(write(tmp_path / name, files), tmp_path / name, name)
            for name, files in ((BASE, base), (HEAD, head))
        }
        return differing_dependencies(sorted({*base, *head}), sides)

    return found


@pytest.mark.parametrize(
    ("path", "is_found"),
    [
        ("requirements.txt", True),
        ("ci/dev-requirements.in", True),
        ("requirements/base.txt", True),
        ("requirements/README.md", False),
        ("constraints-3.11.txt", True),
        ("environment.dev.yaml", True),
        ("uv.lock", True),
        ("pylock.toml", True),
        ("Pipfile", True),
        ("data/requirements.json", False),
        ("pkg/a.py", False),
    ],
)
def test_a_file_has_dependencies(differing, path, is_found):
    assert differing({path: "1"}, {path: "2"}) == (path,) * is_found


PYPROJECT = """
[project]
name = "a"
version = "1"
dependencies = ["numpy"]
[project.optional-dependencies]
x = ["scipy"]
[dependency-groups]
dev = ["pytest"]
[tool.ruff]
line-length = 100
"""


@pytest.mark.parametrize(
    ("old", "new", "is_found"),
    [
        ("numpy", "numpy>2", True),
        ("scipy", "scipy>2", True),
        ("pytest", "pytest>2", True),
        ('version = "1"', 'version = "2"', False),
        ('version = "1"', 'requires-python = ">3"', True),
        ("100", "90", False),
        ("[tool.ruff]", "[tool.poetry.dependencies]", True),
        ("[project]", "[project", True),
    ],
)
def test_the_tables_of_pyproject_toml_are_compared(differing, old, new, is_found):
    files = ({"pyproject.toml": PYPROJECT}, {"pyproject.toml": PYPROJECT.replace(old, new)})
    assert differing(*files) == ("pyproject.toml",) * is_found


def test_a_new_pyproject_toml_without_dependencies_has_the_same(differing):
    assert differing({}, {"pyproject.toml": "[tool.ruff]\n"}) == ()
