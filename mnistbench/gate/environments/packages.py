"""The packages of a new environment: those of the current one, with some requirements changed.

A changed package and its neighbors are often pinned to each other: torchvision requires one version
of torch, and torch one version of triton. Such neighbors are left to uv. All other packages keep
their versions.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from mnistbench.gate.environments.python import Interpreter, name_of, of_project
from mnistbench.gate.words import OLDEST_TORCH

#: Operators that allow one version, or the releases of one series.
_PINNING = {"==", "===", "~="}

#: Operators that exclude newer versions.
_LIMITING = {*_PINNING, "<", "<="}

#: This package is not installed in a new environment, which may have a torch that is too old for
#: it: the gate's launches have a copy of their own.
_OURS = "mnistbench"


@dataclass(frozen=True)
class Installed:
    """An installed distribution."""

    name: str
    version: str
    requires: tuple[str, ...] = ()  # its requirements, with markers
    url: str = ""  # where it was installed from, as in ``name @ url``; empty: from a package index
    is_editable: bool = False
    size_bytes: int = 0  # of its files

    @property
    def key(self) -> str:
        """The name as package indexes compare it: ``Jinja2`` is ``jinja2``."""
        return canonicalize_name(self.name)

    @property
    def line(self) -> str:
        """The requirement that installs it again.

        Empty for mnistbench and editable projects, which the gate copies itself.
        """
        if self.is_editable or self.key == _OURS:
            return ""
        return f"{self.name} @ {self.url}" if self.url else f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Wanted:
    """What an environment is made from."""

    asked: tuple[str, ...]  # requirements that the user has given
    lines: tuple[str, ...]  # all requirements
    size_bytes: int  # expected
    # Of these requirements those whose versions may change if others exclude them.
    loose: tuple[str, ...] = ()
    # The interpreter whose packages the others are, and which the environment has as well.
    interpreter: Interpreter = field(default_factory=Interpreter.own)


def installed(distributions: Iterable[importlib.metadata.Distribution]) -> list[Installed]:
    """Return distributions by name; of two with one name, Python imports the first."""
    packages: dict[str, Installed] = {}
    for distribution in distributions:
        if not name_of(distribution):  # what an interrupted installation has left
            continue
        url, is_editable = _source(distribution.read_text("direct_url.json") or "{}")
        package = Installed(
            distribution.name,
            distribution.version,
            tuple(distribution.requires or ()),
            url,
            is_editable,
            sum(file.size or 0 for file in distribution.files or ()),
        )
        packages.setdefault(package.key, package)
    return [packages[key] for key in sorted(packages)]


def _source(text: str) -> tuple[str, bool]:
    """Return the URL that a distribution was installed from, and whether it is editable.

    From ``direct_url.json``, PEP 610.
    """
    try:
        record = json.loads(text)
        url = str(record.get("url", ""))
        details: Mapping[str, str] = record.get("vcs_info") or {}
        if details:
            url = f"{details['vcs']}+{url}@{details['commit_id']}"
        if record.get("subdirectory"):
            url += f"#subdirectory={record['subdirectory']}"
        return url, bool((record.get("dir_info") or {}).get("editable"))
    # Not as specified: as if it came from an index.
    except (ValueError, AttributeError, KeyError, TypeError):
        return "", False


def requirement(text: str) -> Requirement:
    """Return a requirement that changes the version of an installed package."""
    try:
        change = Requirement(text)
    except InvalidRequirement:
        raise ValueError(
            "is not a requirement; give NAME==VERSION, such as torch==2.13.0"
        ) from None
    if not change.specifier and not change.url:
        raise ValueError(f"names no version; give NAME==VERSION, such as {change.name}==1.0")
    check_can_be_changed(change)
    return change


def check_can_be_changed(change: Requirement) -> None:
    """Check that an environment with this requirement can be measured.

    Before one of several GiB is made.

    Raises:
        ValueError: its package is not installed, or it is a torch that the gate cannot measure.
    """
    if not any(of_project().distributions(name=change.name)):
        raise ValueError(f"names {change.name}, which is not installed; name an installed package")
    exact = [
        clause.version
        for clause in change.specifier
        if clause.operator == "==" and not clause.version.endswith(".*")
    ]
    if canonicalize_name(change.name) == "torch" and any(
        Version(version) < Version(OLDEST_TORCH) for version in exact
    ):
        raise ValueError(
            f"is older than {OLDEST_TORCH}, the oldest torch that the gate measures; give a newer "
            "version"
        )


def wanted(
    changes: Iterable[Requirement],
    packages: Sequence[Installed],
    interpreter: Interpreter | None = None,
) -> Wanted:
    """Return what an environment with the packages given and some of them changed is made from.

    A package without a version, or one that is missing although it is installed now, is left to uv:

    - a package that pins a changed one (``==``, ``~=``), or that does not allow its new version,
      has no version;
    - a package that a changed one pins is missing, and so is one that only changed packages
      require, below some version. It comes back as a dependency.

    Both rules also apply to packages that are changed by them. A requirement that the installed
    version meets changes nothing.

    The versions of packages that a changed one requires, also through others, are loose: what its
    new version requires is not known here. torch 2.15 requires ``sympy>=1.13.3``, and torch 2.6
    ``sympy==1.13.1``.
    """
    asked_for = sorted(changes, key=lambda change: canonicalize_name(change.name))
    interpreter = interpreter or Interpreter.own()
    resolution = _Resolution(asked_for, packages, interpreter.markers)
    size_bytes = sum(package.size_bytes for package in packages if package.line)
    return Wanted(
        tuple(map(str, asked_for)),
        resolution.lines(),
        size_bytes,
        resolution.loose(),
        interpreter,
    )


class _Resolution:
    """Finds which packages have to change with others, from the metadata of installed ones.

    ``uv pip compile`` could choose all versions, but it needs the network, and its answer changes
    when a package has a new release. The key of an environment is a hash of its requirements, and a
    gate has to know it without the network: it may have the environment already. uv resolves what
    is left open here when it makes an environment.
    """

    def __init__(
        self,
        changes: Iterable[Requirement],
        packages: Iterable[Installed],
        markers: Mapping[str, str],
    ) -> None:
        self._markers = markers
        self._packages = {package.key: package for package in packages}
        self._asked: dict[str, Requirement] = {
            canonicalize_name(change.name): change for change in changes
        }
        self._changes = {
            key: change for key, change in self._asked.items() if not self._is_met(key, change)
        }
        self._unpinned: set[str] = set()
        self._dropped: set[str] = set()
        self._extras: dict[str, set[str]] = {
            key: set(change.extras) for key, change in self._asked.items()
        }
        while self._step():
            pass

    def lines(self) -> tuple[str, ...]:
        lines = {str(requirement) for requirement in self._asked.values()}
        for key, package in self._packages.items():
            if key in self._unpinned:
                lines.add(package.name)
            elif not self._moves(key) and package.line:
                lines.add(package.line)
        return tuple(sorted(lines, key=lambda line: (line.lower(), line)))

    def loose(self) -> tuple[str, ...]:
        required: set[str] = set()
        waiting = [key for key in self._packages if self._moves(key)]
        while waiting:
            needed = {
                canonicalize_name(need.name) for need in self._needs(waiting.pop())
            } & self._packages.keys() - required
            waiting += needed
            required |= needed
        kept = [
            self._packages[key] for key in required - self._asked.keys() if not self._moves(key)
        ]
        return tuple(sorted(package.line for package in kept if package.line and not package.url))

    def _is_met(self, key: str, change: Requirement) -> bool:
        package = self._packages[key]
        return (
            not change.url
            and not package.url
            and change.specifier.contains(package.version, prereleases=True)
        )

    def _moves(self, key: str) -> bool:
        return key in self._changes or key in self._unpinned or key in self._dropped

    def _step(self) -> bool:
        """Find further packages that change; return whether there are any."""
        before = len(self._unpinned), len(self._dropped), sum(map(len, self._extras.values()))
        for key, package in self._packages.items():
            if not self._moves(key):
                if (
                    package.line
                    and not package.url
                    and any(self._is_bound(need) for need in self._needs(key))
                ):
                    self._unpinned.add(key)
                continue
            for need in self._needs(key):
                needed = canonicalize_name(need.name)
                self._extras.setdefault(needed, set()).update(need.extras)
                if (
                    needed in self._packages
                    and not self._moves(needed)
                    and self._is_of_changed(needed, need)
                ):
                    self._dropped.add(needed)
        return before != (
            len(self._unpinned),
            len(self._dropped),
            sum(map(len, self._extras.values())),
        )

    def _is_bound(self, need: Requirement) -> bool:
        """Whether a requirement forces its package to change with the one that it names."""
        key = canonicalize_name(need.name)
        if not self._moves(key):
            return False
        versions = (
            [clause.version for clause in self._changes[key].specifier if clause.operator == "=="]
            if key in self._changes
            else []
        )
        excludes = any(
            "*" not in version and not need.specifier.contains(version, prereleases=True)
            for version in versions
        )
        return excludes or _has(need, _PINNING)

    def _is_of_changed(self, key: str, need: Requirement) -> bool:
        """Whether a package has to change with one that requires it."""
        if self._packages[key].url:
            return False
        dependents = (
            dependent
            for dependent in self._packages
            if any(
                canonicalize_name(dependency.name) == key for dependency in self._needs(dependent)
            )
        )
        return _has(need, _PINNING) or (_has(need, _LIMITING) and all(map(self._moves, dependents)))

    def _needs(self, key: str) -> list[Requirement]:
        """Return the requirements of a package that apply here.

        With the extras that changed packages ask for.
        """
        needs = []
        for text in self._packages[key].requires:
            try:
                need = Requirement(text)
            except InvalidRequirement:  # in metadata of old packages; uv has its own way with them
                continue
            extras = {"", *self._extras.get(key, ())}
            if not need.marker or any(
                need.marker.evaluate({**self._markers, "extra": extra}) for extra in extras
            ):
                needs.append(need)
        return needs


def _has(need: Requirement, operators: set[str]) -> bool:
    return any(clause.operator in operators for clause in need.specifier)
