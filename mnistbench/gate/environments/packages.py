"""The packages of the project, and the requirements that change the version of some of them."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from mnistbench.gate.environments.python import DISTRIBUTION, name_of, of_project
from mnistbench.measuring.provider import PROVIDERS


@dataclass(frozen=True)
class Installed:
    """An installed distribution."""

    name: str
    version: str
    requires: tuple[str, ...] = ()  # its requirements, with markers
    url: str = ""  # where it was installed from, as in ``name @ url``; empty: from a package index
    is_editable: bool = False

    @property
    def key(self) -> str:
        """The name as package indexes compare it: ``Jinja2`` is ``jinja2``."""
        return canonicalize_name(self.name)

    @property
    def is_copied(self) -> bool:
        """Whether the gate copies it itself: an editable project, or mnistbench.

        A new environment may have a torch that is too old for the latter.
        """
        return self.is_editable or self.key == DISTRIBUTION

    @property
    def requirement(self) -> str:
        """The requirement of this package, in any version; of one with a URL, this one."""
        if self.url:
            return f"{self.name} @ {self.url}"
        # uv chooses a pre-release only of a package whose requirement names one.
        return f"{self.name}>=0.dev0" if _is_prerelease(self.version) else self.name


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
        )
        packages.setdefault(package.key, package)
    return [packages[key] for key in sorted(packages)]


def _source(text: str) -> tuple[str, bool]:
    """Return the URL that a distribution was installed from, and whether it is editable.

    The text is that of ``direct_url.json``, PEP 610.
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


def _is_prerelease(version: str) -> bool:
    try:
        return Version(version).is_prerelease
    except InvalidVersion:  # of an old package
        return False


# ---- Requirements --------------------------------------------------------------------------------


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

    The check comes first because an environment may have several GiB.

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
    name = canonicalize_name(change.name)
    oldest = PROVIDERS[name].oldest if name in PROVIDERS else ""
    if oldest and any(Version(version) < Version(oldest) for version in exact):
        raise ValueError(
            f"is older than {oldest}, the oldest {name} that the gate measures; give a newer "
            "version"
        )


def requirements(
    changes: Sequence[Requirement], packages: Sequence[Installed], markers: Mapping[str, str]
) -> list[str]:
    """Return the requirements of an environment with these packages, some of them changed.

    Only those of the changes have a version. A package that the installed version of a changed one
    requires in a single version (``==``) is left out, because another version may require another
    package in its place, with files of the same names: torch 2.8 has ``nvidia-cudnn-cu12``, torch
    2.15 ``nvidia-cudnn-cu13``. It comes back as a dependency.

    Args:
        changes: the requirements that the user has given.
        packages: those of the project.
        markers: variables of its interpreter.
    """
    changed = {str(canonicalize_name(change.name)) for change in changes}
    pinned = {
        name for package in packages if package.key in changed for name in _pinned(package, markers)
    }
    kept = [
        package
        for package in packages
        if not package.is_copied and package.key not in changed | pinned
    ]
    return [*map(str, changes), *(package.requirement for package in kept)]


def _pinned(package: Installed, markers: Mapping[str, str]) -> Iterator[str]:
    """Yield the packages that a package requires in a single version."""
    for text in package.requires:
        try:
            need = Requirement(text)
        except InvalidRequirement:  # in metadata of old packages; uv has its own way with them
            continue
        is_pinned = any(clause.operator in ("==", "===") for clause in need.specifier)
        if is_pinned and (need.marker is None or need.marker.evaluate({**markers, "extra": ""})):
            yield canonicalize_name(need.name)
