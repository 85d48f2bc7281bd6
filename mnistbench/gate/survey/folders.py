"""Find the folders whose cases are measured if neither a user nor the project names any."""

from __future__ import annotations

import re
from pathlib import Path

from mnistbench.gate.words import DEFAULT_FOLDERS

#: A function that gets one of the fixtures. A folder of another tool, such as asv, has none.
_USES_FIXTURE = re.compile(rb"\bdef \w+\([^)]*\b(op_)?benchmark\b[^)]*\)")


def folders_with_cases(base: Path, head: Path) -> tuple[str, ...]:
    """Return those of DEFAULT_FOLDERS in which a function gets ``benchmark`` or ``op_benchmark``.

    Without any, pytest collects what the project's configuration says. So it does if the base has
    none: its cases are elsewhere, and a first case of the head in such a folder must not hide them.
    """
    return _with_cases(head) if _with_cases(base) else ()


def _with_cases(directory: Path) -> tuple[str, ...]:
    return tuple(
        name
        for name in DEFAULT_FOLDERS
        if any(
            path.is_file() and _USES_FIXTURE.search(path.read_bytes())
            for path in (directory / name).rglob("*.py")
        )
    )
