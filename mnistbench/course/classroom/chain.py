"""``chain.jsonl`` of a lab.

A line for each file that was written, with the hashes of the file and of the line before.

To change a file afterwards, all later lines have to be written again. That is work, not a proof:
nothing here is secret.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from mnistbench.core.errors import RecordError
from mnistbench.core.files import replace_file
from mnistbench.core.reading import Reader
from mnistbench.course.classroom.predictions import PREDICTIONS

CHAIN = "chain.jsonl"


@dataclass(frozen=True)
class Link:
    """A line of the chain."""

    file: str  # below the directory of the lab
    sha256: str  # of its content
    time: str  # in UTC, ISO 8601
    previous: str  # SHA-256 of the line before; empty in the first one


def add_link(directory: Path, name: str, content: bytes, time: str = "") -> None:
    """Add a line on a file that is about to be written, or was read.

    None if the file's last line has the same content.

    The line comes first, so that no interruption leaves a file without one. The time is now, if
    none is given.
    """
    path = directory / CHAIN
    before = path.read_bytes().splitlines() if path.exists() else []
    link = Link(
        name,
        _sha256(content),
        time or datetime.now(UTC).isoformat(timespec="seconds"),
        _sha256(*before[-1:]),
    )
    if (known := dict(_links(before)).get(name)) and known.sha256 == link.sha256:
        return
    directory.mkdir(parents=True, exist_ok=True)
    replace_file(
        path, b"".join(line + b"\n" for line in (*before, json.dumps(asdict(link)).encode()))
    )


def changes(chain: str, files: Mapping[str, str], begun: str) -> Iterator[str]:
    """Yield what was changed after it was written: lines of the chain, then files.

    ``begun`` is written when the lab begins.
    """
    lines = chain.encode(errors="replace").splitlines()
    links = list(_links(lines))
    if not links:
        yield (
            f"{CHAIN} is missing, empty or damaged, so nothing shows what was changed; measure "
            "again in a new directory"
        )
        return
    if len(links) < len(lines):
        yield f"{CHAIN}: {len(lines) - len(links)} of its lines cannot be read"
    elif broken := [
        at
        for at, (_, link) in enumerate(links)
        if link.previous != _sha256(*lines[max(0, at - 1) : at])
    ]:
        yield (
            f"{CHAIN}: line {broken[0] + 1} does not follow from the line before it, which was "
            "changed, added or removed"
        )
    last = dict(links)
    if unknown := [name for name in files if name not in last]:
        yield (
            f"without a line in {CHAIN}: {_first(unknown)}; nothing shows when that was written, "
            "so measure it here"
        )
    for name, text in files.items():
        if name in last and last[name].sha256 != _sha256(text.encode(errors="replace")):
            yield (
                f"{name} was changed after it was written at {last[name].time}; restore it, or "
                "remove it and measure again"
            )
    if removed := sorted(set(last) - set(files)):
        yield (
            f"missing, but written before: {_first(removed)}; restore it, or run mnistbench lab "
            "again"
        )
    names = [name for name, _ in links]
    if begun in names and PREDICTIONS in names[names.index(begun) :]:
        yield f"{PREDICTIONS} was written at {last[PREDICTIONS].time}, after the lab began"


def _first(names: list[str]) -> str:
    return f"{names[0][:200]}{f' and {len(names) - 1} more' if names[1:] else ''}"


def _links(lines: list[bytes]) -> Iterator[tuple[str, Link]]:
    for line in lines:
        try:
            link = Reader(json.loads(line)).read(Link)
        except (ValueError, RecursionError, RecordError):
            continue
        yield link.file, link


def _sha256(*content: bytes) -> str:
    return hashlib.sha256(*content).hexdigest() if content else ""
