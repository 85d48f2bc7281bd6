"""Environments with a few packages and what these require.

Of the current environment, or installed by uv.
"""

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mnistbench.core.errors import UsageError
from mnistbench.gate.environments.uv import find


def linked_environment(folder, *names, python=None):
    """Make an environment whose packages are links to the installed ones.

    Return its interpreter. With ``python`` it is another version, for packages in Python alone.
    """
    if python:
        subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    else:
        venv.create(folder, symlinks=True)
    [site_packages] = folder.glob("lib/python*/site-packages")
    for distribution in _with_requirements(names):
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            link = site_packages / name
            if not link.is_symlink():
                link.symlink_to(Path(str(distribution.locate_file(name))).absolute())
    return str(folder / "bin" / "python")


def other_python(version):
    """Return the interpreter of a version on this machine, or skip the test."""
    # That of pyenv on PATH may be a program that only says how to choose a version.
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    programs = [shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python")]
    with contextlib.suppress(UsageError):
        command = [find(), "python", "find", "--no-python-downloads", version]
        programs.append(_output(command))
    for program in filter(None, programs):
        if _output([program, "-c", _VERSION]) == version:
            return str(program)
    return pytest.skip(f"Python {version} is not installed")


_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def _output(command):
    """Return what a command prints; empty if it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return "" if done.returncode else done.stdout.strip()


def _with_requirements(names):
    distributions = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in distributions:
            continue
        distributions[name] = importlib.metadata.distribution(name)
        needs = map(Requirement, distributions[name].requires or ())
        waiting += [
            need.name for need in needs if not need.marker or need.marker.evaluate({"extra": ""})
        ]
    return distributions.values()


def installed_environment(folder, *requirements):
    """Make an environment with these packages from the package index.

    Return its interpreter, or skip the test.
    """
    python = str(folder / "bin" / "python")
    commands = (
        ["venv", "--python", sys.executable, str(folder)],
        ["pip", "install", "--python", python, *requirements],
    )
    try:
        for arguments in commands:
            subprocess.run([find(), *arguments], check=True, capture_output=True, timeout=600)
    except (UsageError, subprocess.SubprocessError) as error:
        pytest.skip(f"uv makes no environment with {', '.join(requirements)}: {error}")
    return python
