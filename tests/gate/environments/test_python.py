"""The interpreter in which the sides run if no option names one."""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

import pytest
from bare_environments import linked_environment

from mnistbench.core.errors import UsageError
from mnistbench.gate.environments import python
from mnistbench.gate.environments.python import checked, is_own_environment, of_project


def write_distribution(folder, name, *lines):
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    headers = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *lines]
    (info / "METADATA").write_text("\n".join(headers) + "\n", encoding="utf-8")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """The folder of the packages of this environment, with mnistbench and what it requires."""
    folder = tmp_path / "site-packages"
    write_distribution(
        folder,
        "mnistbench",
        "Requires-Dist: pytest >=8.1",
        "Requires-Dist: Loops[quick]; extra == 'fast'",
        "Requires-Dist: windows-only; sys_platform == 'nowhere'",
        "Provides-Extra: fast",
    )
    write_distribution(folder, "pytest", "Requires-Dist: pluggy", "Requires-Dist: not valid !")
    write_distribution(folder, "pluggy", "Requires-Dist: pytest")
    write_distribution(folder, "loops", "Requires-Dist: compiler; extra == 'quick'")
    write_distribution(folder, "compiler")
    write_distribution(folder, "pip")
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(folder)])
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)
    return folder


def test_a_runner_of_tools_installs_mnistbench_and_what_it_requires(packages):
    assert is_own_environment()


@pytest.mark.parametrize("other", ["project", "windows-only"])
def test_an_environment_with_another_package_is_not_that_of_the_gate_alone(packages, other):
    write_distribution(packages, other)
    assert not is_own_environment()


def test_packages_of_the_user_count_if_they_can_be_imported(packages, tmp_path, monkeypatch):
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path / "user"))
    write_distribution(tmp_path / "user", "project")
    assert is_own_environment()
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    assert not is_own_environment()


def test_a_package_on_pythonpath_is_none_of_the_environment(packages, tmp_path, monkeypatch):
    write_distribution(tmp_path / "src", "project")
    monkeypatch.syspath_prepend(tmp_path / "src")
    assert is_own_environment()


def test_an_environment_without_mnistbench_is_not_its_own(packages):
    (packages / "mnistbench-1.0.dist-info" / "METADATA").unlink()
    assert not is_own_environment()


# ---- Which interpreter ---------------------------------------------------------------------------


@pytest.fixture
def own(monkeypatch):
    """The gate has an environment of its own."""
    monkeypatch.setattr(python, "is_own_environment", lambda: True)
    monkeypatch.setattr(sys, "base_prefix", "/usr")


@pytest.fixture
def among_others(monkeypatch):
    """The gate is installed among other packages."""
    monkeypatch.setattr(python, "is_own_environment", lambda: False)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    """No environment is active."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The folder of a project, where the gate runs."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write_environment(folder):
    """Make an environment whose interpreter is this one; return the interpreter's path."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "python"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program)


def found():
    interpreter = of_project()
    return interpreter.path, interpreter.why


OF_GATE = (
    sys.executable,
    "that of mnistbench, because no environment is active and the project has no .venv",
)


def test_without_another_environment_it_is_that_of_the_gate(own, project, monkeypatch):
    assert found() == OF_GATE
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)  # as in a container
    assert found() == (sys.executable, "")


def test_a_gate_among_other_packages_needs_no_other_environment(among_others, project):
    assert found() == (sys.executable, "")


def test_the_active_environment_comes_before_that_of_the_project(
    own, project, tmp_path, monkeypatch
):
    in_project = write_environment(project / ".venv")
    assert found() == (in_project, ".venv of the project")
    conda = write_environment(tmp_path / "conda")
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "mine")
    assert found() == (conda, "active environment")
    active = write_environment(tmp_path / "active")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    assert found() == (active, "active environment")


def test_conda_activates_its_base_in_each_shell_so_it_comes_last(
    own, project, tmp_path, monkeypatch
):
    conda = write_environment(tmp_path / "conda")
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "base")
    assert found() == (conda, "active environment")
    in_project = write_environment(project / ".venv")
    assert found() == (in_project, ".venv of the project")


def test_the_environment_of_the_project_may_be_above_up_to_its_repository(
    own, project, monkeypatch
):
    below = project / "packages" / "one"
    below.mkdir(parents=True)
    (project / ".git").touch()  # as in a worktree
    write_environment(project.parent / ".venv")  # of something else
    monkeypatch.chdir(below)
    assert found() == OF_GATE
    at_top = write_environment(project / ".venv")
    assert found() == (at_top, ".venv of the project")
    nearest = write_environment(project / "packages" / ".venv")
    assert found() == (nearest, ".venv of the project")


def test_outside_a_repository_only_the_folder_of_the_gate_is_looked_at(own, project, monkeypatch):
    write_environment(project / ".venv")
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")
    assert found() == OF_GATE


def test_an_active_environment_that_was_removed_does_not_count(own, project, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", "/nowhere")
    assert found() == OF_GATE
    in_project = write_environment(project / ".venv")
    assert found() == (in_project, ".venv of the project")


def test_nothing_changes_if_the_gate_is_in_the_project_by_any_name(
    own, project, tmp_path, monkeypatch
):
    write_environment(tmp_path / "active")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    monkeypatch.setattr(sys, "prefix", str(project / "venv"))
    assert found() == (sys.executable, "")


@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_nothing_changes_if_the_environment_of_the_gate_is_active(own, project, monkeypatch, name):
    write_environment(project / ".venv")
    monkeypatch.setenv(name, sys.prefix)
    assert found() == (sys.executable, "")


def test_nothing_changes_if_the_gate_is_in_the_environment_of_the_project(
    own, project, tmp_path, monkeypatch
):
    write_environment(tmp_path / "active")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    (project / ".venv").symlink_to(sys.prefix)
    assert found() == (sys.executable, "")


def test_a_gate_among_other_packages_says_that_the_active_environment_is_not_used(
    among_others, project, tmp_path, monkeypatch
):
    write_environment(tmp_path / "active")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    assert found() == (
        sys.executable,
        (
            "that of mnistbench, which is installed among other packages; for the active "
            f"environment {tmp_path / 'active'} give --base-python and --head-python"
        ),
    )


# ---- An interpreter that cannot be used ----------------------------------------------------------


def test_the_environment_of_the_project_without_pytest_is_named(own, project, tmp_path):
    program = linked_environment(project / ".venv")
    with pytest.raises(UsageError) as refused:
        of_project()
    assert str(refused.value) == (
        f"{program} (.venv of the project) has no pytest; install it there with: "
        f"uv pip install -p {program} 'pytest>=8.1'"
    )


def test_an_environment_that_cannot_be_started_is_named(own, project, monkeypatch):
    program = Path(write_environment(project / ".venv"))
    program.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        of_project()
    assert str(refused.value) == (
        f"{program} (.venv of the project) cannot be started as Python; name interpreters with "
        "--base-python and --head-python"
    )


def test_modules_of_the_project_do_not_stand_in_for_those_of_the_interpreter(project):
    (project / "json.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    (project / "pytest.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    interpreter = checked(sys.executable)
    assert (interpreter.path, interpreter.version) == (sys.executable, sys.version)


def test_distributions_are_those_of_the_interpreter(tmp_path):
    interpreter = checked(linked_environment(tmp_path / "bare", "pytest"))
    names = {distribution.name for distribution in interpreter.distributions()}
    assert {"pytest", "pluggy"} <= names
    assert "numpy" not in names
    assert [found.name for found in interpreter.distributions("pluggy")] == ["pluggy"]
    assert not list(interpreter.distributions("numpy"))


def test_an_interpreter_is_found_on_the_path(monkeypatch):
    folder = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join((folder, os.environ["PATH"])))
    assert checked(Path(sys.executable).name).path == sys.executable
