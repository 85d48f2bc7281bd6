"""Options that name what differs between two sides: interpreters, environment variables, versions of packages."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from mnistbench.core.errors import UsageError
from mnistbench.core.machine import usable_cpus
from mnistbench.gate.environments.packages import Installed, asked, loose_lines, requirement_lines
from mnistbench.gate.environments.store import Wanted
from mnistbench.gate.launcher import THREADS
from mnistbench.gate.verdict import samples
from mnistbench.showing.arguments import given

#: Side, ``base`` or ``new`` -> the requirements that its environment changes.
Changes = Mapping[str, Sequence[Requirement]]


def add_sides(parser: argparse.ArgumentParser, base: str, new: str) -> None:
    """Declare the options.

    Args:
        parser: of the command.
        base: what the base is, in a help.
        new: what the other side is.
    """
    parser.add_argument("--base-python", metavar="EXE", help=f"Python interpreter for {base}")
    parser.add_argument("--head-python", metavar="EXE", help=f"Python interpreter for {new}")
    for side, what in (("base", base), ("new", new)):
        parser.add_argument(
            f"--{side}-env", metavar="NAME=VALUE", action="append", help=f"environment variable of {what} alone; repeatable"
        )
        parser.add_argument(
            f"--{side}-with", metavar="NAME==VERSION", action="append",
            help=f"version of an installed package for {what}, in a new environment that uv makes; repeatable",
        )  # fmt: skip


def changed(parsed: argparse.Namespace, packages: Sequence[Installed]) -> Changes:
    """Return the requirements of each side that has a new environment.

    Raises:
        UsageError: an option cannot be used.
    """
    options = {side: (f"--{side}-with", getattr(parsed, f"{side}_with")) for side in ("base", "new")}
    for side, (flag, texts) in options.items():
        if texts and getattr(parsed, f"{side}_python") is not None:
            raise UsageError(f"{flag}: the new environment has its own interpreter; remove --{side}-python or {flag}")
    changes = {side: asked(flag, texts, packages) for side, (flag, texts) in options.items() if texts}
    for side, requirements in changes.items():
        refuse_old_torch(options[side][0], requirements)
    return changes


def refuse_old_torch(flag: str, requirements: Sequence[Requirement]) -> None:
    """Check the version of torch that an option gives, before an environment of several GiB is made.

    Raises:
        UsageError: the gate cannot measure it.
    """
    oldest = Version(samples.OLDEST_TORCH)
    for requirement in requirements:
        exact = [each.version for each in requirement.specifier if each.operator == "==" and not each.version.endswith(".*")]
        if canonicalize_name(requirement.name) == "torch" and any(Version(version) < oldest for version in exact):
            raise UsageError(
                f"{flag}: {requirement} is older than {oldest}, the oldest torch that the gate measures; give a newer version"
            )


def wanted(requirements: Sequence[Requirement], packages: Sequence[Installed]) -> Wanted:
    """Return what an environment with these requirements is made from.

    Args:
        requirements: those that differ from what is installed.
        packages: what is installed now.
    """
    lines = requirement_lines(requirements, packages)
    size_bytes = sum(package.size_bytes for package in packages if package.line)
    return Wanted(tuple(map(str, requirements)), lines, size_bytes, loose_lines(requirements, packages))


def variables(flag: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Return the environment variables that an option gives.

    Raises:
        UsageError: a text is not NAME=VALUE, or the variable cannot be set.
    """
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals) or "\0" in text:
            raise UsageError(f"{flag}: {text!r} is not a variable with a value; give NAME=VALUE")
        if name == "MKL_NUM_THREADS":
            raise UsageError(f"{flag}: {text!r} has no effect, because cases set their threads; give {THREADS}={value}")
        if name == THREADS:
            _check_threads(flag, text, value)
        found[name] = value
    return found


def _check_threads(flag: str, text: str, value: str) -> None:
    if not re.fullmatch(r"[1-9]\d{0,5}", value, re.ASCII):
        raise UsageError(f"{flag}: {text!r} is not a number of threads; give a whole number, at least 1")
    if int(value) > usable_cpus():
        raise UsageError(f"{flag}: {text!r} is more than the number of cores, {usable_cpus()}; give a smaller number")


#: What interpreters older than 3.11 print, because they do not have the option ``-P``, with which a launch is started.
_NO_OPTION_P = b"Unknown option: -P"


def interpreter(flag: str, named: str | None) -> str:
    """Return the absolute path of an interpreter, because launches start in another directory; empty if none is named.

    Raises:
        UsageError: it cannot be started, or is too old.
    """
    text = given(flag, named)
    if not text:
        return ""
    found = shutil.which(text) or text
    try:
        tried = subprocess.run([found, "-P", "-c", ""], capture_output=True, check=False)
    except OSError:  # not found, not executable, or a script without a first line that names its interpreter
        raise UsageError(f"{flag}: {text!r} cannot be started; name a Python interpreter") from None
    if _NO_OPTION_P in tried.stderr:
        raise UsageError(f"{flag}: {text!r} is older than Python 3.11, the oldest that the gate runs; name another interpreter")
    return os.path.abspath(found)  # noqa: PTH100  # resolve() would leave a virtual environment
