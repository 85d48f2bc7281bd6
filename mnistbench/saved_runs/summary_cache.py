"""Summaries of saved runs in one file beside them, so that a thousand saved runs are parsed once and not in every command.

A summary is found by the hash of the content of its file: it cannot be that of an earlier content, and it is still found where
saved runs were copied or restored. The cache is never needed: a run that it does not have is read from its own file, and so
are all runs if it is damaged, is of another version or cannot be written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from mnistbench import __version__
from mnistbench.core.document import Reader
from mnistbench.core.files import replace_file
from mnistbench.core.params import Params
from mnistbench.saved_runs.summary import CaseSummary, RunSummary, Shared, TableSummary

#: Folder of the cache in a folder of saved runs. pytest-benchmark and git ignore it.
FOLDER = ".mnistbench_cache"

#: Fewer runs than these are parsed in a tenth of a second: they are not worth a file.
FEWEST = 32

#: Version of the file. Raise it with every change of what a summary contains or how it is made from a saved run.
_FORMAT = 2

#: Environments, params, texts of counts, and the rows of the runs.
_EMPTY: tuple[Any, ...] = ([], [], [], {})

_CASE_FIELDS = tuple(field.name for field in fields(CaseSummary))


class SummaryCache:
    """The cached summaries of the saved runs below one folder."""

    def __init__(self, root: Path, shared: Shared) -> None:
        self._shared = shared
        self._file = root / FOLDER / "summaries"
        self._stored = _Stored(self._read(), shared)
        self._runs: dict[str, RunSummary] = {}  # by hash: those that were asked for or added
        self._fresh = 0

    def get(self, content: bytes, source: str) -> RunSummary | None:
        """Return the summary of a file; None if it is not cached."""
        key = _key(content)
        if key not in self._stored.rows:
            return None
        self._runs[key] = found = self._stored.run(key, source)
        return found

    def add(self, content: bytes, run: RunSummary) -> None:
        """Add the summary of a file."""
        self._runs[_key(content)] = run
        self._fresh += 1

    def save(self) -> None:
        """Write the file if enough summaries were added; do nothing if it cannot be written."""
        if self._fresh < FEWEST:
            return
        for key, (source, *_) in self._stored.rows.items():
            if key not in self._runs and Path(source).exists():
                self._runs[key] = self._stored.run(key, source)
        payload = json.dumps(_Writer(self._shared).content(self._runs), separators=(",", ":")).encode()
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(exist_ok=True)
            (self._file.parent / ".gitignore").write_text("*\n", encoding="utf-8")
            replace_file(self._file, _header(payload) + payload)
        self._fresh = 0

    def _read(self) -> Any:
        try:
            header, _, payload = self._file.read_bytes().partition(b"\n")
        except OSError:
            return _EMPTY
        return json.loads(payload) if header + b"\n" == _header(payload) else _EMPTY


def _key(content: bytes) -> str:
    return hashlib.sha256(content, usedforsecurity=False).hexdigest()


def _header(payload: bytes) -> bytes:
    """Return the first line: of another version or of a damaged file, it differs."""
    return f"mnistbench {__version__} summaries {_FORMAT} {zlib.crc32(payload):08x}\n".encode()


class _Stored:
    """The runs of a cache file. What runs have in common is stored once; rows name it by its position."""

    def __init__(self, content: Sequence[Any], shared: Shared) -> None:
        environments, params, operations, self.rows = content
        self._environments = list(map(shared.environment_of, map(_as_read, environments)))
        self._params = list(map(shared.params_of, map(Reader, params)))
        self._counted = [shared.counted_of(Reader({"operations": text})) for text in operations]

    def run(self, key: str, source: str) -> RunSummary:
        """Return a run of the file."""
        _, environment, cases, saved_at, commit, dirty, branch, plain = self.rows[key]
        cases = tuple(map(self._case, cases))
        return RunSummary(self._environments[environment], cases, saved_at, commit, dirty, branch, plain, source)

    def _case(self, row: Sequence[Any]) -> CaseSummary:
        fields = dict(zip(_CASE_FIELDS, row, strict=True))
        fields["params"] = None if fields["params"] is None else self._params[fields["params"]]
        fields["tables"] = {view: self._table(*columns) for view, *columns in fields["tables"]}
        for name in ("device_ns", "op_fail"):
            fields[name] = tuple(fields[name])
        return CaseSummary(**fields)

    def _table(self, profiler_ns: int, operations: int, self_ns: list[int], spread_ns: list[int], busy_ns: int) -> TableSummary:
        return TableSummary(profiler_ns, self._counted[operations], tuple(self_ns), tuple(spread_ns), busy_ns)


def _as_read(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment as records have it: JSON has no tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in environment.items()}


class _Writer:
    """Runs as the JSON that ``_Stored`` reads."""

    def __init__(self, shared: Shared) -> None:
        self._pools: tuple[list[Any], ...] = ([], [], [])  # as in _EMPTY
        self._positions: dict[int, int] = {}  # id of an object that runs share -> its position in its pool
        self._texts = {id(counted): text for text, counted in shared.counted.items()}

    def content(self, runs: Mapping[str, RunSummary]) -> list[Any]:
        """Return the content of the file."""
        rows = {key: self._row(run) for key, run in runs.items()}
        return [*self._pools, rows]

    def _row(self, run: RunSummary) -> list[Any]:
        cases = [[self._cell(name, value) for name, value in vars(case).items()] for case in run.cases]
        environment = self._position(0, run.environment, run.environment)
        return [run.source, environment, cases, run.saved_at, run.commit, run.dirty, run.branch, run.plain]

    def _cell(self, name: str, value: Any) -> Any:
        if name == "params":
            return value and self._position(1, value, value)
        if name == "tables":
            return [
                (view, table.profiler_ns, self._position(2, table.counted, self._texts[id(table.counted)]), *table[2:])
                for view, table in value.items()
            ]
        return value

    def _position(self, pool: int, shared: object, stored: Any) -> int:
        position = self._positions.setdefault(id(shared), len(self._pools[pool]))
        if position == len(self._pools[pool]):
            self._pools[pool].append(asdict(stored) if isinstance(stored, Params) else stored)
        return position
