"""The interpreter in which the sides run if no option names one, and what an interpreter needs.

That is the interpreter of the gate, unless the gate has an environment of its own, as a runner of
tools makes it (uvx, pipx): one with nothing but mnistbench and what it requires. Then it is that
of the environment of the project.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import site
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from mnistbench.core.child import Child, ChildError
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.reading import read_text

#: The oldest Python and pytest of a side.
OLDEST_PYTHON = (3, 11)
OLDEST_PYTEST = "8.1"

#: Installs packages, so it says nothing about what an environment is for.
_INSTALLERS = frozenset({"pip", "setuptools", "uv", "wheel"})

#: Name of this distribution.
DISTRIBUTION = "mnistbench"

#: Names that conda gives to the environment that it activates in each new shell.
_BASES_OF_CONDA = ("base", "root")

#: Kind of an environment that a variable names.
_ACTIVE = "active environment"

#: Why a runner of tools may have chosen the interpreter.
_NO_OTHER = "that of mnistbench, because no environment is active and the project has no .venv"

#: How to name other interpreters.
_OPTIONS = "--base-python and --head-python"

#: Time in which an interpreter has to start, in seconds.
_START_S = 60.0

#: Prints what is known of an interpreter, of any version. ``-c`` puts the current folder on the
#: path, where a project may have modules with names of the standard library. pytest 8.1 needs a
#: pluggy that has hooks of this kind.
_PROBE = """
import sys
sys.path[:] = [path for path in sys.path if path]
import json
fault = installed = ""
try:
    import pytest
    installed = pytest.__version__
    pytest.hookimpl(wrapper=True)
except Exception as error:
    fault = "%s: %s" % (type(error).__name__, error)
try:
    from importlib.util import find_spec
    has_pip = find_spec("pip") is not None
except Exception:
    has_pip = False
print(json.dumps({
    "version": sys.version, "numbers": list(sys.version_info[:3]), "path": sys.path,
    "pytest": installed, "fault": fault, "has_pip": has_pip,
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter that can run a side."""

    path: str  # absolute
    version: str  # its ``sys.version``
    search_path: tuple[str, ...]  # its ``sys.path``
    why: str = ""  # how it was found; empty for the one of this process, if that is no surprise

    @property
    def number(self) -> str:
        """Its version, such as 3.13.0."""
        return self.version.split()[0]

    @property
    def markers(self) -> dict[str, str]:
        """The variables of markers of requirements that depend on the version."""
        number = self.number.rstrip("+")
        return {"python_full_version": number, "python_version": ".".join(number.split(".")[:2])}

    @classmethod
    def own(cls) -> Interpreter:
        """Return the interpreter of this process."""
        return cls(sys.executable, sys.version, tuple(sys.path))

    def distributions(self, name: str | None = None) -> Iterable[importlib.metadata.Distribution]:
        """Return what is installed for it; with a name only the distributions that have it."""
        return importlib.metadata.distributions(name=name, path=list(self.search_path))


@dataclass(frozen=True)
class _Facts:
    """What an interpreter says of itself."""

    version: str
    numbers: tuple[int, ...]
    path: tuple[str, ...]
    pytest: str  # version; empty if it cannot be imported
    fault: str  # the error of its import, or of what it lacks; empty if it can be used
    has_pip: bool


# ---- One interpreter -----------------------------------------------------------------------------


def checked(name: str, otherwise: str = "name another interpreter") -> Interpreter:
    """Return an interpreter that can run a side.

    Its path is absolute, because trials start in another directory.

    Args:
        name: a path or a program on PATH.
        otherwise: what to do if it cannot, for the message.

    Raises:
        ValueError: it cannot; the message says why, without a subject.
    """
    executable = shutil.which(name) or name
    try:
        with Child([executable, "-c", _PROBE], os.environ) as child:
            printed = child.output(_START_S)
        line = next(line for line in reversed(printed.splitlines()) if line.startswith("{"))
        facts = read_text(line, _Facts)
    # Not found, not executable, a script without a first line that names its interpreter, or no
    # Python at all.
    except (ChildError, RecordError, StopIteration):
        raise ValueError(f"cannot be started as Python; {otherwise}") from None
    path = os.path.abspath(executable)  # noqa: PTH100  # resolve() would leave a virtual environment
    if facts.numbers < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise ValueError(
            f"is Python {facts.version.split()[0]}, and the gate needs Python {oldest} or newer; "
            f"{otherwise}"
        )
    if facts.fault:
        raise ValueError(f"{_fault_of_pytest(facts)}; {_installing(path, facts)}")
    return Interpreter(path, facts.version, facts.path)


def _fault_of_pytest(facts: _Facts) -> str:
    if facts.pytest:
        return f"has pytest {facts.pytest}, and the gate needs {OLDEST_PYTEST} or newer"
    if facts.fault.startswith("ModuleNotFoundError"):
        return "has no pytest"
    return f"cannot import its pytest ({facts.fault.splitlines()[0]})"


def _installing(path: str, facts: _Facts) -> str:
    """Return what installs pytest for an interpreter; environments that uv makes have no pip."""
    python = shlex.quote(path)
    installer = f"{python} -m pip install" if facts.has_pip else f"uv pip install -p {python}"
    return f"install it there with: {installer} 'pytest>={OLDEST_PYTEST}'"


# ---- The one of the project ----------------------------------------------------------------------


class _Environment(NamedTuple):
    """An environment that may be that of the project."""

    folder: Path
    kind: str


def of_project() -> Interpreter:
    """Return the interpreter in which the sides run if no option names one.

    Raises:
        UsageError: the environment of the project cannot run a side.
    """
    own = Interpreter.own()
    if Path(sys.prefix).is_relative_to(_folders_of_project(Path.cwd())[-1]):
        return own  # the project has it, by whatever name
    environments = list(_environments(Path.cwd(), os.environ))
    if any(_is_own(environment.folder) for environment in environments):
        return own
    if not environments:
        is_tool = sys.prefix != sys.base_prefix and is_own_environment()
        return replace(own, why=_NO_OTHER) if is_tool else own
    folder, kind = environments[0]
    if not is_own_environment():
        reason = "that of mnistbench, which is installed among other packages"
        return replace(own, why=f"{reason}; for the {kind} {folder} give {_OPTIONS}")
    python = folder / "bin" / "python"
    try:
        return replace(checked(str(python), f"name interpreters with {_OPTIONS}"), why=kind)
    except ValueError as fault:
        raise UsageError(f"{python} ({kind}) {fault}") from None


def _environments(here: Path, variables: Mapping[str, str]) -> Iterator[_Environment]:
    """Yield the environments that may be that of the project, the likeliest first."""
    conda = variables.get("CONDA_PREFIX", "")
    is_base = variables.get("CONDA_DEFAULT_ENV") in _BASES_OF_CONDA
    environments = []
    if active := variables.get("VIRTUAL_ENV", ""):
        environments.append(_Environment(Path(active), _ACTIVE))
    if conda and not is_base:
        environments.append(_Environment(Path(conda), _ACTIVE))
    folders = _folders_of_project(here)
    environments += [_Environment(folder / ".venv", ".venv of the project") for folder in folders]
    if conda and is_base:
        environments.append(_Environment(Path(conda), _ACTIVE))
    for environment in environments:
        if os.access(environment.folder / "bin" / "python", os.X_OK):  # not removed meanwhile
            yield environment


def _folders_of_project(here: Path) -> Sequence[Path]:
    """Return the current folder and those above it, up to the root of the repository."""
    folders = (here, *here.parents)
    top = next((folder for folder in folders if (folder / ".git").exists()), here)
    return folders[: folders.index(top) + 1]


def _is_own(folder: Path) -> bool:
    return folder.resolve() == Path(sys.prefix).resolve()


def is_own_environment() -> bool:
    """Whether this environment has nothing but mnistbench and what it requires, with any extra."""
    folders = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    installed = {
        str(canonicalize_name(name)): distribution
        for distribution in importlib.metadata.distributions(path=folders)
        if (name := name_of(distribution))
    }
    if DISTRIBUTION not in installed:
        return False
    extras = installed[DISTRIBUTION].metadata.get_all("Provides-Extra") or ()
    required = {DISTRIBUTION: {"", *extras}}  # name -> its extras
    waiting = [DISTRIBUTION]
    while waiting:
        name = waiting.pop()
        for need in _needs(installed[name], required[name]):
            needed = str(canonicalize_name(need.name))
            wanted = {"", *need.extras, *required.get(needed, ())}
            if needed in installed and wanted != required.get(needed):
                required[needed] = wanted
                waiting.append(needed)
    return installed.keys() <= required.keys() | _INSTALLERS


def name_of(distribution: importlib.metadata.Distribution) -> str:
    """Return the name of a package; empty for what an interrupted installation has left."""
    metadata = distribution.metadata
    return metadata["Name"] if "Name" in metadata else ""  # noqa: SIM401  # mypy knows no get


def _needs(
    distribution: importlib.metadata.Distribution, extras: Iterable[str]
) -> Iterator[Requirement]:
    """Yield the requirements of a distribution that apply here."""
    for text in distribution.requires or ():
        try:
            need = Requirement(text)
        except InvalidRequirement:  # in metadata of old packages
            continue
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras):
            yield need
