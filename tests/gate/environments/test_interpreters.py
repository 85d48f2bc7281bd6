"""The environments that are made from the options of both sides."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from mnistbench.core.options import read
from mnistbench.gate.environments import interpreters as module
from mnistbench.gate.environments.interpreters import interpreters
from mnistbench.gate.environments.python import Interpreter
from mnistbench.gate.options import SideOptions


def options(**texts):
    """Read the options as they are on the command line: field -> text or texts."""
    return read(SideOptions, texts)


@pytest.fixture
def environments(monkeypatch):
    """What environments are made from; none is made."""
    environments = SimpleNamespace(changes=[], projects=[])

    def environment(changes, project):
        environments.changes.append([str(change) for change in changes])
        environments.projects.append(project)
        return f"/environments/{len(environments.changes)}/bin/python"

    monkeypatch.setattr("mnistbench.gate.environments.made.environment", environment)
    return environments


@pytest.fixture
def project(monkeypatch):
    """The gate has an environment of its own, the project another one."""
    interpreter = Interpreter("/p/bin/python", "3.13.0 (main)", (), ".venv of the project")
    monkeypatch.setattr(module.python, "of_project", lambda: interpreter)
    return interpreter


def test_without_options_both_sides_have_this_interpreter(environments):
    said = []
    found = interpreters(options(), said.append)
    assert found.paths == {"base": sys.executable, "head": sys.executable}
    assert found.chosen == ""
    assert said == []
    assert not options().differ
    assert options().variables == {"base": {}, "head": {}}
    assert environments.changes == []


def test_the_interpreter_of_the_project_is_said(environments, project):
    said = []
    found = interpreters(options(head_python=sys.executable), said.append)
    assert found.paths == {"base": "/p/bin/python", "head": sys.executable}
    assert found.chosen == "/p/bin/python (.venv of the project)"
    assert said == [f"interpreter: {found.chosen}"]


def test_the_environment_of_the_project_does_not_matter_if_both_sides_name_one(
    environments, monkeypatch
):
    monkeypatch.setattr(module.python, "of_project", lambda: pytest.fail("asked for"))
    sides = options(base_python=sys.executable, head_python=sys.executable)
    found = interpreters(sides, lambda _: None)
    assert found.chosen == ""


def test_a_new_environment_has_the_interpreter_of_the_project(environments, project):
    interpreters(options(head_with=["pygments==4.67"]), lambda _: None)
    assert environments.projects == [project]


def test_each_side_has_an_environment_of_its_own(environments):
    messages = []
    sides = options(base_with=["pygments==4.66.2"], head_with=["pygments==4.67", "numpy==2.0"])
    found = interpreters(sides, messages.append)
    assert found.paths == {
        "base": "/environments/1/bin/python",
        "head": "/environments/2/bin/python",
    }
    assert environments.changes == [["pygments==4.66.2"], ["pygments==4.67", "numpy==2.0"]]
    needed = "uv downloads what it does not have in its cache"
    assert messages == [
        f"making an environment with pygments==4.66.2; {needed}",
        f"making an environment with pygments==4.67, numpy==2.0; {needed}",
    ]


def test_one_side_may_have_an_environment_and_the_other_an_interpreter(environments):
    sides = options(base_python=sys.executable, head_with=["pygments==4.66.2"])
    found = interpreters(sides, lambda _: None)
    assert found.paths == {"base": sys.executable, "head": "/environments/1/bin/python"}
