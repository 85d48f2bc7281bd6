"""Options that name what differs between two sides: interpreters, environment variables, versions of packages."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from mnistbench.core.child import Child, ChildError
from mnistbench.core.errors import UsageError
from mnistbench.core.machine import usable_cpus
from mnistbench.core.options import option
from mnistbench.gate.environments.packages import Installed, asked, installed, loose_lines, requirement_lines
from mnistbench.gate.environments.store import Wanted, held
from mnistbench.gate.launcher import THREADS
from mnistbench.gate.verdict.samples import BASE, HEAD, OLDEST_TORCH
from mnistbench.showing.arguments import given

#: What interpreters older than 3.11 print, because they do not have the option ``-P``, with which a launch is started.
_NO_OPTION_P = "Unknown option: -P"

#: Time in which an interpreter has to start, in seconds.
_START_S = 60.0


# ---- Kinds of options ------------------------------------------------------------------------------------------------


def python(text: str) -> str:
    """Return the absolute path of an interpreter, because launches start in another directory."""
    found = shutil.which(text) or text
    try:
        with Child([found, "-P", "-c", ""], os.environ) as child:
            child.ended(_START_S)
            errors = child.errors()
    except ChildError:  # not found, not executable, or a script without a first line that names its interpreter
        raise ValueError("cannot be started; name a Python interpreter") from None
    if _NO_OPTION_P in "".join(errors):
        raise ValueError("is older than Python 3.11, the oldest that the gate runs; name another interpreter")
    return os.path.abspath(found)  # noqa: PTH100  # resolve() would leave a virtual environment


def variable(text: str) -> tuple[str, str]:
    """Return the name and the value of an environment variable."""
    name, equals, value = text.partition("=")
    if not (name and equals) or "\0" in text:
        raise ValueError("is not a variable with a value; give NAME=VALUE")
    if name == "MKL_NUM_THREADS":
        raise ValueError(f"has no effect, because cases set their threads; give {THREADS}={value}")
    if name == THREADS and not re.fullmatch(r"[1-9]\d{0,5}", value, re.ASCII):
        raise ValueError("is not a number of threads; give a whole number, at least 1")
    if name == THREADS and int(value) > usable_cpus():
        raise ValueError(f"is more than the number of cores, {usable_cpus()}; give a smaller number")
    return name, value


def requirement(text: str) -> Requirement:
    """Return a requirement that changes the version of an installed package."""
    try:
        found = Requirement(text)
    except InvalidRequirement:
        raise ValueError("is not a requirement; give NAME==VERSION, such as torch==2.13.0") from None
    if not found.specifier and not found.url:
        raise ValueError(f"names no version; give NAME==VERSION, such as {found.name}==1.0")
    check_can_be_changed(found)
    return found


def check_can_be_changed(wanted: Requirement) -> None:
    """Check that an environment with this requirement can be measured, before one of several GiB is made.

    Raises:
        ValueError: its package is not installed, or it is a torch that the gate cannot measure.
    """
    try:
        metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        raise ValueError(f"names {wanted.name}, which is not installed; name an installed package") from None
    exact = [each.version for each in wanted.specifier if each.operator == "==" and not each.version.endswith(".*")]
    if canonicalize_name(wanted.name) == "torch" and any(Version(version) < Version(OLDEST_TORCH) for version in exact):
        raise ValueError(f"is older than {OLDEST_TORCH}, the oldest torch that the gate measures; give a newer version")


# ---- Options ---------------------------------------------------------------------------------------------------------


_OWN = "environment variable of the {} alone"
_WITH = "version of an installed package for the {}, in a new environment that uv makes"


@dataclass(frozen=True, kw_only=True)
class SideOptions:
    """What differs between the sides beside their code. Commands that run two sides inherit these options."""

    base_python: str | None = option("--base-python", python, None, "Python interpreter for the base", "EXE")
    head_python: str | None = option("--head-python", python, None, "Python interpreter for the head", "EXE")
    base_env: tuple[tuple[str, str], ...] = option("--base-env", variable, None, _OWN.format(BASE), "NAME=VALUE", many=True)
    head_env: tuple[tuple[str, str], ...] = option("--head-env", variable, None, _OWN.format(HEAD), "NAME=VALUE", many=True)
    base_with: tuple[Requirement, ...] = option(
        "--base-with", requirement, None, _WITH.format(BASE), "NAME==VERSION", many=True
    )
    head_with: tuple[Requirement, ...] = option(
        "--head-with", requirement, None, _WITH.format(HEAD), "NAME==VERSION", many=True
    )

    def __post_init__(self) -> None:
        """Refuse options of one side that exclude each other.

        Raises:
            UsageError: names the option.
        """
        for side, requirements in self.changes.items():
            flag = f"--{side}-with"
            if self.pythons[side]:
                raise UsageError(f"{flag}: the new environment has its own interpreter; remove --{side}-python or {flag}")
            names = [canonicalize_name(each.name) for each in requirements]
            for each, name in zip(requirements, names, strict=True):
                if names.count(name) > 1:
                    raise UsageError(f"{flag}: {each.name} is given twice; give one version")

    @property
    def pythons(self) -> dict[str, str | None]:
        """Side -> the interpreter that is named."""
        return {BASE: self.base_python, HEAD: self.head_python}

    @property
    def variables(self) -> dict[str, dict[str, str]]:
        """Side -> its own environment variables."""
        return {BASE: dict(self.base_env), HEAD: dict(self.head_env)}

    @property
    def changes(self) -> dict[str, tuple[Requirement, ...]]:
        """Side with a new environment -> the requirements that differ from what is installed."""
        return {side: found for side, found in ((BASE, self.base_with), (HEAD, self.head_with)) if found}

    @property
    def differ(self) -> bool:
        """Whether any of these options is given."""
        return bool(self.changes or any(self.pythons.values()) or any(self.variables.values()))

    @contextmanager
    def interpreters(self, say: Callable[[str], None]) -> Iterator[dict[str, str]]:
        """Make the environments of the sides that have one; yield the interpreter of each side.

        Args:
            say: receives a line before something that may take long.

        Raises:
            UsageError: an environment cannot be made.
        """
        found = {side: named or sys.executable for side, named in self.pythons.items()}
        packages = installed() if self.changes else []
        size_bytes = sum(package.size_bytes for package in packages if package.line)
        with ExitStack() as environments:
            for side, given_requirements in self.changes.items():
                requirements = sorted(given_requirements, key=lambda each: canonicalize_name(each.name))
                lines, loose = requirement_lines(requirements, packages), loose_lines(requirements, packages)
                environment = held(Wanted(tuple(map(str, requirements)), lines, size_bytes, loose), say)
                found[side] = environments.enter_context(environment).python
            yield found


# ---- Until the commands of the gate have Settings --------------------------------------------------------------------

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
    for side, what in (("base", base), ("head", new)):
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
    options = {"base": ("--base-with", parsed.base_with), "new": ("--head-with", parsed.head_with)}
    for side, (flag, texts) in options.items():
        other = flag.replace("-with", "-python")
        if texts and {"base": parsed.base_python, "new": parsed.head_python}[side] is not None:
            raise UsageError(f"{flag}: the new environment has its own interpreter; remove {other} or {flag}")
    changes = {side: asked(flag, texts, packages) for side, (flag, texts) in options.items() if texts}
    for side, requirements in changes.items():
        refuse_old_torch(options[side][0], requirements)
    return changes


def refuse_old_torch(flag: str, requirements: Sequence[Requirement]) -> None:
    """Check the version of torch that an option gives, before an environment of several GiB is made.

    Raises:
        UsageError: the gate cannot measure it.
    """
    oldest = Version(OLDEST_TORCH)
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
    """Return the environment variables that an option gives."""
    found = {}
    for text in texts or ():
        try:
            name, value = variable(text)
        except ValueError as error:
            raise UsageError(f"{flag}: {text!r} {error}") from None
        found[name] = value
    return found


def interpreter(flag: str, named: str | None) -> str:
    """Return the absolute path of an interpreter; empty if none is named."""
    text = given(flag, named)
    try:
        return python(text) if text else ""
    except ValueError as error:
        raise UsageError(f"{flag}: {text!r} {error}") from None
