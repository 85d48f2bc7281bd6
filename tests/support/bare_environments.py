"""Environments with a few packages and what these require.

Of the current environment, or installed by uv.
"""

import importlib.metadata
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mnistbench.core.errors import UsageError
from mnistbench.gate.environments.uv import find


def linked_environment(folder, *names):
    """Make an environment whose packages are links to the installed ones.

    Return its interpreter.
    """
    venv.create(folder, symlinks=True)
    [site_packages] = folder.glob("lib/python*/site-packages")
    for distribution in _with_requirements(names):
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            link = site_packages / name
            if not link.is_symlink():
                link.symlink_to(Path(str(distribution.locate_file(name))).absolute())
    return str(folder / "bin" / "python")


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
