"""The releases of a package between two of them, as uv finds them for this interpreter with the user's own settings.

uv has no command that lists releases. It is asked for the newest one of a range again and again, without those found so far.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from mnistbench.core.errors import UsageError
from mnistbench.gate.environments import uv
from mnistbench.gate.environments.packages import Installed


class Range(NamedTuple):
    """The releases of a package from one to another, both included."""

    name: str
    first: str
    last: str


def asked_range(flag: str, text: str, packages: Iterable[Installed]) -> Range:
    """Return the range that an option gives.

    Args:
        flag: the option, for errors.
        text: its value: ``NAME==FIRST..LAST``.
        packages: what is installed now.

    Raises:
        UsageError: the text is not a range of releases, or its package is not installed.
    """
    wrong = f"{flag}: {text!r} is not a range of releases; give NAME==FIRST..LAST, such as torch==2.13.0..2.15.0"
    match = re.fullmatch(r"([^=]+)==(.+?)\.\.(.+)", text)
    if not match:
        raise UsageError(wrong)
    try:
        requirement = Requirement(match[1])
        first, last = Version(match[2]), Version(match[3])
    except (InvalidRequirement, InvalidVersion):
        raise UsageError(wrong) from None
    if str(requirement) != requirement.name:  # extras, a marker, another version
        raise UsageError(wrong)
    for version in (first, last):
        if version.local:
            raise UsageError(
                f"{flag}: {version} names a build; give {version.public}, and select the build with uv's settings, "
                "such as UV_TORCH_BACKEND"
            )
    if first >= last:
        raise UsageError(f"{flag}: {first} is not older than {last}; give NAME==FIRST..LAST with the older release first")
    if canonicalize_name(requirement.name) not in {package.key for package in packages}:
        raise UsageError(f"{flag}: {requirement.name} is not installed; name an installed package")
    return Range(requirement.name, str(first), str(last))


def releases(flag: str, wanted: Range) -> tuple[str, ...]:
    """Return the releases of a range that have a wheel for this interpreter and platform, the oldest first.

    Pre-releases are among them only if the first or the last one is a pre-release. Yanked ones are not.

    Raises:
        UsageError: the first or the last one is not available, or uv fails.
    """
    name, first, last = wanted
    program = uv.find()
    command = [
        "pip", "compile", "--python", sys.executable, "--no-deps", "--resolution", "highest", "--only-binary", name,
        "--prerelease", "allow" if any(Version(end).is_prerelease for end in (first, last)) else "disallow",
        "--no-header", "--no-annotate", "-",
    ]  # fmt: skip

    def newest(versions: str) -> str:
        output = uv.run(program, command, text=f"{name}{versions}")
        match = re.search(r"^[\w.-]+==([^\s;\\]+)", output, re.MULTILINE)
        if not match:
            raise UsageError(f"uv: printed no release of {name}; remove settings of uv that change its output")
        return match[1]

    def available(version: str) -> str:
        try:
            return newest(f"=={version}")
        except UsageError as error:
            raise UsageError(f"{flag}: {name} {version} is not available: {error}") from None

    oldest, found = available(first), [available(last)]
    while found[-1] != oldest:
        others = "".join(f",!={Version(release).public}" for release in found)
        found.append(newest(f">={first},<={last}{others}"))
    return tuple(reversed(found))
