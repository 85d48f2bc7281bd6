"""Find uv, run it, and ask it for the releases of a package.

Find the reason in its output when it fails.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from mnistbench.core import units
from mnistbench.core.child import Child, ChildError, without_job_variables
from mnistbench.core.errors import UsageError
from mnistbench.core.files import scratch
from mnistbench.gate.environments.packages import check_can_be_changed
from mnistbench.gate.environments.python import of_project
from mnistbench.gate.trees import contents_of

#: What uv and its error reports (miette) draw at the beginning of a line.
_DRAWN = "\u00d7│├╰─▶╞ \t"

#: The longest reason to show, in characters.
_LONGEST = 400

#: Variables that may change what uv installs: not its own folders, the network, what it prints,
#: passwords.
_SETTING = (
    r"UV_(?!(.*_DIR|CONCURRENT_.*|HTTP_.*|.*_(PASSWORD|TOKEN|USERNAME)|LINK_MODE|NO_CACHE|"
    r"NO_PROGRESS|RUN_.*|SYSTEM_PYTHON)$).*"
)


def settings() -> list[Any]:
    """Return what decides, beside requirements, what uv installs.

    Its variables, files that they name, and configuration.

    Source of the places: https://docs.astral.sh/uv/concepts/configuration-files/
    """
    variables = {
        name: value for name, value in sorted(os.environ.items()) if re.fullmatch(_SETTING, name)
    }
    folders = [
        Path.cwd(),
        *Path.cwd().parents,
        Path("/etc/uv"),
        Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "uv"),
    ]
    files = [Path(part) for value in variables.values() for part in value.split()]
    contents: list[Any] = [variables, *(contents_of(path) for path in files)]
    for folder in folders:
        contents.append(contents_of(folder.expanduser() / "uv.toml"))
        # uv itself says what is wrong with it.
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            contents.append(
                repr(
                    tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
                        "uv"
                    ]
                )
            )
    return contents


def find() -> str:
    """Return the path of uv: beside the interpreter, as the package ``uv`` names it, or on PATH."""
    beside = Path(sys.prefix, "bin", "uv")
    if os.access(beside, os.X_OK):
        return str(beside)
    try:
        # An import statement would make mypy ask for uv.
        return str(import_module("uv").find_uv_bin())
    except (ImportError, FileNotFoundError):
        pass
    if program := shutil.which("uv"):
        return program
    raise UsageError(
        "uv makes the environments, and it is not installed; install it with: pip install uv"
    )


def run(uv: str, arguments: Sequence[str], lock: int | None = None, text: str = "") -> str:
    """Run uv, wait for it, and return its output.

    Args:
        uv: its path.
        arguments: its command line.
        lock: file descriptor of a locked file. uv inherits it, so the lock is held until uv has
            ended, also if this process is killed before.
        text: its input.

    Raises:
        UsageError: uv failed; the message has its reason.
    """
    # uv builds packages, which runs their code.
    environ = {**without_job_variables(os.environ), "NO_COLOR": "1"}
    environ.pop("UV_SYSTEM_PYTHON", None)
    with scratch("uv") as folder:
        log = folder / "log"
        try:
            with Child(
                [uv, *arguments], environ, log=log, pass_fds=() if lock is None else (lock,)
            ) as child:
                if text:
                    child.tell(text)
                return child.output(math.inf)  # a download may take hours
        except ChildError as error:
            raise UsageError(
                f"uv: {reason(log.read_text(encoding='utf-8', errors='replace')) or error}"
            ) from None


def reason(text: str) -> str:
    """Return the reason that uv gives for a failure as one line; empty if there is none.

    uv prints a headline (after ``error:``, or after a cross) and then its causes, the last of which
    is the most exact.
    """
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if re.match(r"\s*(error:|\u00d7)", line)]
    causes: list[str] = []
    for line in lines[heads[-1] :] if heads else [line for line in lines if line.strip()][-1:]:
        if line.lstrip(_DRAWN).startswith(("hint:", "help:")) or (
            causes and not line.strip(_DRAWN)
        ):
            break
        begins = re.match(r"\s*(error:|cause:|Caused by:|\u00d7|[├╰]─▶)", line)
        words = re.sub(r"^(error|cause|Caused by):\s*", "", line.strip(_DRAWN))
        if begins or not causes:
            causes.append(words)
        else:
            causes[-1] += f" {words}"
    why = [cause for cause in causes if cause.startswith("Because")] or list(
        dict.fromkeys([*causes[:1], *causes[-1:]])
    )
    return units.cut(": ".join(cause.rstrip(":") for cause in why), _LONGEST)


# ---- Releases ------------------------------------------------------------------------------------


class Range(NamedTuple):
    """The releases of a package from one to another, both included."""

    name: str
    first: str
    last: str


def release_range(text: str) -> Range:
    """Return the range of releases of an installed package in a text.

    Such as ``torch==2.13.0..2.15.0``.
    """
    wrong = "is not a range of releases; give NAME==FIRST..LAST, such as torch==2.13.0..2.15.0"
    match = re.fullmatch(r"([^=]+)==(.+?)\.\.(.+)", text)
    if not match:
        raise ValueError(wrong)
    try:
        package = Requirement(match[1])
        first = Version(match[2])
        last = Version(match[3])
    except (InvalidRequirement, InvalidVersion):
        raise ValueError(wrong) from None
    if str(package) != package.name:  # extras, a marker, another version
        raise ValueError(wrong)
    for version in (first, last):
        if version.local:
            raise ValueError(
                f"names a build, {version}; give {version.public}, and select the build with uv's "
                "settings, such as UV_TORCH_BACKEND"
            )
    if first >= last:
        raise ValueError(
            f"has {first}, which is not older than {last}; give NAME==FIRST..LAST with the older "
            "release first"
        )
    check_can_be_changed(Requirement(f"{package.name}=={first}"))
    return Range(package.name, str(first), str(last))


def releases(wanted: Range) -> tuple[str, ...]:
    """Return the releases of a range that have a wheel for this interpreter and platform.

    The oldest first.

    uv finds them with the user's own settings. It has no command that lists releases, so it is
    asked for the newest one of the range again and again, without those found so far. Pre-releases
    are among them only if the first or the last one is a pre-release. Yanked ones are not.
    """
    name, first, last = wanted
    program = find()
    command = [
        "pip",
        "compile",
        "--python",
        of_project().path,
        "--no-deps",
        "--resolution",
        "highest",
        "--only-binary",
        name,
        "--prerelease",
        "allow" if any(Version(end).is_prerelease for end in (first, last)) else "disallow",
        "--no-header",
        "--no-annotate",
        "-",
    ]

    def newest(versions: str) -> str:
        output = run(program, command, text=f"{name}{versions}")
        match = re.search(r"^[\w.-]+==([^\s;\\]+)", output, re.MULTILINE)
        if not match:
            raise UsageError(
                f"uv: printed no release of {name}; remove settings of uv that change its output"
            )
        return match[1]

    ends = []
    for end in (first, last):
        try:
            ends.append(newest(f"=={end}"))
        except UsageError as error:
            raise UsageError(f"{name} {end} is not available: {error}") from None
    oldest = ends[0]
    newest_first = ends[1:]
    while newest_first[-1] != oldest:
        known = "".join(f",!={Version(release).public}" for release in newest_first)
        newest_first.append(newest(f">={first},<={last}{known}"))
    return tuple(reversed(newest_first))
