"""The releases of a package, as the package index of uv's settings lists them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from mnistbench.core.errors import UsageError
from mnistbench.gate.environments import uv
from mnistbench.gate.environments.packages import check_can_be_changed
from mnistbench.gate.environments.python import Interpreter, of_project

#: What an index may answer: JSON (PEP 691), or HTML (PEP 503) if it knows nothing else.
_ACCEPTED = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"

#: Time in which an index has to answer, in seconds.
_ANSWER_S = 60.0


class Range(NamedTuple):
    """The releases of a package from one to another, both included."""

    name: str
    first: str
    last: str


class _File(NamedTuple):
    """A file of a release."""

    name: str
    requires_python: str
    is_yanked: bool


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
    """Return the releases of a range, the oldest first.

    They have a wheel for the interpreter of the project and this platform. Pre-releases are among
    them only if the first or the last one is a pre-release. Yanked ones are not.

    Raises:
        UsageError: the index cannot be asked, or has no such first or last release.
    """
    name, first, last = wanted
    project = of_project()
    index = _index_of(name, project)
    ends = [Version(first), Version(last)]
    allows_prereleases = any(end.is_prerelease for end in ends)
    installable = sorted(set(_installable(_files_of(name, index), project)))
    for end in ends:
        if end not in installable:
            newest = f"; the newest one that has is {installable[-1]}" if installable else ""
            place = uv.without_credentials(index)
            raise UsageError(
                f"{name} {end} is not available: {place} has no wheel of it for Python "
                f"{project.number} and this platform{newest}"
            )
    return tuple(
        str(version)
        for version in installable
        if ends[0] <= version <= ends[1] and (allows_prereleases or not version.is_prerelease)
    )


def _installable(files: Iterable[_File], project: Interpreter) -> Iterator[Version]:
    """Yield the version of each wheel that an interpreter can install, without its build."""
    major, minor = map(int, project.number.split(".")[:2])
    platforms = list(platform_tags())
    tags: set[Tag] = {
        *cpython_tags((major, minor), platforms=platforms),
        *compatible_tags((major, minor), f"cp{major}{minor}", platforms),
    }
    for file in files:
        try:
            _, version, _, of_wheel = parse_wheel_filename(file.name)
            allows = SpecifierSet(file.requires_python).contains(
                project.number.rstrip("+"), prereleases=True
            )
        except (InvalidWheelFilename, InvalidVersion, InvalidSpecifier):  # a source, an old file
            continue
        if allows and not file.is_yanked and tags & of_wheel:
            yield Version(version.public)


# ---- The index -----------------------------------------------------------------------------------


def _index_of(name: str, project: Interpreter) -> str:
    """Return the URL of the index in which uv finds a package, with the credentials of uv."""
    command = [
        "pip",
        "compile",
        f"--python={project.path}",
        "--no-deps",
        "--no-header",
        "--emit-index-url",
        "--emit-index-annotation",
        "-",
    ]
    output = uv.run(uv.find(), command, text=name)
    found = uv.indexes(output)
    if not found:
        raise UsageError(
            f"uv: found {name} in no package index, and only an index lists releases; name one "
            "with UV_DEFAULT_INDEX"
        )
    return found[0]


def _files_of(name: str, index: str) -> list[_File]:
    """Ask an index for all files of a package.

    Raises:
        UsageError: it does not answer, or not as PEP 503 or PEP 691 specify.
    """
    parts = urlsplit(index)
    page = "index.html" if parts.scheme == "file" else ""
    url = f"{uv.without_credentials(index)}/{canonicalize_name(name)}/{page}"
    # The user's own settings name the index, which may be a folder.
    request = Request(url, headers={"Accept": _ACCEPTED})  # noqa: S310
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_unredirected_header(
            "Authorization", f"Basic {base64.b64encode(user.encode()).decode()}"
        )
    asked = f"the releases of {name} are not known, because {url}"
    try:
        with urlopen(request, timeout=_ANSWER_S) as response:  # noqa: S310
            text = response.read().decode()
            is_json = response.headers.get_content_type().endswith("json")
        return _of_json(json.loads(text)) if is_json else _of_html(text)
    except HTTPError as error:
        advice = (
            "; put the name and the password into the URL of the index, in UV_DEFAULT_INDEX"
            if error.code in (401, 403)
            else ""
        )
        raise UsageError(f"{asked} answers {error.code} {error.reason}{advice}") from None
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise UsageError(f"{asked} does not answer ({reason})") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UsageError(f"{asked} does not answer as a package index does") from None


def _of_json(answer: Any) -> list[_File]:
    return [
        _File(file["filename"], file.get("requires-python") or "", bool(file.get("yanked")))
        for file in answer["files"]
    ]


def _of_html(text: str) -> list[_File]:
    parser = _Links()
    parser.feed(text)
    return parser.files


class _Links(HTMLParser):
    """Reads the links of a page (PEP 503): the URL of each ends with the name of a file."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[_File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and (url := values.get("href")):
            self.files.append(
                _File(
                    unquote(urlsplit(url).path.rpartition("/")[2]),
                    values.get("data-requires-python") or "",
                    "data-yanked" in values,
                )
            )
