"""Packages that most of mnistbench works without, and what to install where one is missing."""

from __future__ import annotations

import importlib.util
import sys

from mnistbench.core import units
from mnistbench.core.errors import UsageError

#: Package -> the extra of mnistbench that brings it.
EXTRAS = {
    "torch": "torch",
    "tensorboard": "torch",
    "matplotlib": "torch",
    "torchvision": "all",
    "numba": "fast",
}


def has(package: str) -> bool:
    """Return whether a package is installed. Imports nothing.

    A folder of that name without code, which may be where Python was started, is no package.
    """
    if package in sys.modules:
        return sys.modules[package] is not None
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


def install(package: str) -> str:
    """Return the command that installs a package with its extra."""
    return f"pip install 'mnistbench[{EXTRAS[package]}]'"


def require(user: str, *packages: str) -> None:
    """Check that packages are installed, before anything is measured.

    Args:
        user: the command, option or fixture that needs them, for the message.
        packages: of EXTRAS.

    Raises:
        UsageError: some are missing.
    """
    missing = [package for package in packages if not has(package)]
    if not missing:
        return
    commands = " and ".join(dict.fromkeys(map(install, missing)))
    are = "are" if len(missing) > 1 else "is"
    raise UsageError(f"{user} needs {units.joined(missing)}, which {are} not installed: {commands}")
