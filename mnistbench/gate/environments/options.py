"""Options that name what differs between two sides.

Interpreters, environment variables, versions of packages.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mnistbench.core.child import Child, ChildError
from mnistbench.core.errors import UsageError
from mnistbench.core.machine import usable_cpus
from mnistbench.core.options import option
from mnistbench.gate.environments.packages import installed, requirement, wanted
from mnistbench.gate.environments.store import held
from mnistbench.gate.launcher import THREADS
from mnistbench.gate.words import BASE, HEAD

#: What interpreters older than 3.11 print, because they do not have the option ``-P``, with which a
#: launch is started.
_NO_OPTION_P = "Unknown option: -P"

#: Fails where there is no pytest, or one with a pluggy older than 1.2, which has no hooks of this
#: kind.
_NEEDS_PYTEST = "import pytest; pytest.hookimpl(wrapper=True)"

#: Time in which an interpreter has to start, in seconds.
_START_S = 60.0


# ---- Kinds of options ----------------------------------------------------------------------------


def python(text: str) -> str:
    """Return the absolute path of an interpreter, because launches start in another directory."""
    found = shutil.which(text) or text
    try:
        with Child([found, "-P", "-c", _NEEDS_PYTEST], os.environ) as child:
            code = child.ended(_START_S)
            errors = child.errors()
    # Not found, not executable, or a script without a first line that names its interpreter.
    except ChildError:
        raise ValueError("cannot be started; name a Python interpreter") from None
    if _NO_OPTION_P in "".join(errors):
        raise ValueError(
            "is older than Python 3.11, the oldest that the gate runs; name another interpreter"
        )
    if code == 1:
        raise ValueError(
            "has no pytest, or an old one; install pytest 8.1 or newer there, or name another "
            "interpreter"
        )
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
        raise ValueError(
            f"is more than the number of cores, {usable_cpus()}; give a smaller number"
        )
    return name, value


# ---- Options -------------------------------------------------------------------------------------


_OWN = "environment variable of the {} alone"
_WITH = "version of an installed package for the {}, in a new environment that uv makes"


@dataclass(frozen=True, kw_only=True)
class SideOptions:
    """What differs between the sides beside their code.

    Commands that run two sides inherit these options.
    """

    base_python: str | None = option(
        "--base-python", python, None, "Python interpreter for the base", "EXE"
    )
    head_python: str | None = option(
        "--head-python", python, None, "Python interpreter for the head", "EXE"
    )
    base_env: tuple[tuple[str, str], ...] = option(
        "--base-env", variable, None, _OWN.format(BASE), "NAME=VALUE", many=True
    )
    head_env: tuple[tuple[str, str], ...] = option(
        "--head-env", variable, None, _OWN.format(HEAD), "NAME=VALUE", many=True
    )
    base_with: tuple[Requirement, ...] = option(
        "--base-with", requirement, None, _WITH.format(BASE), "NAME==VERSION", many=True
    )
    head_with: tuple[Requirement, ...] = option(
        "--head-with", requirement, None, _WITH.format(HEAD), "NAME==VERSION", many=True
    )

    def __post_init__(self) -> None:
        """Refuse options of one side that exclude each other."""
        for side, requirements in self.changes.items():
            flag = f"--{side}-with"
            if self.pythons[side]:
                raise UsageError(
                    f"{flag}: the new environment has its own interpreter; remove --{side}-python "
                    f"or {flag}"
                )
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
        return {
            side: found for side, found in ((BASE, self.base_with), (HEAD, self.head_with)) if found
        }

    @property
    def differ(self) -> bool:
        """Whether any of these options is given."""
        return bool(self.changes or any(self.pythons.values()) or any(self.variables.values()))

    @contextmanager
    def interpreters(self, say: Callable[[str], None]) -> Iterator[dict[str, str]]:
        """Make the environments of the sides that have one; yield the interpreter of each side."""
        found = {side: named or sys.executable for side, named in self.pythons.items()}
        packages = installed() if self.changes else []
        with ExitStack() as environments:
            for side, changes in self.changes.items():
                found[side] = environments.enter_context(
                    held(wanted(changes, packages), say)
                ).python
            yield found
