"""Operations of several cases beside each other: a column pair per case, of a value and its share.

Rows are ranked by the largest share in any case, so that an operation that matters in one of them
is among the first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mnistbench.core import units
from mnistbench.core.operation import OUTSIDE, RUNTIME, UNATTRIBUTED, OpKey
from mnistbench.core.record import OpTable


@dataclass(frozen=True)
class OperationColumn:
    """The values of one case, such as times in nanoseconds."""

    values: Mapping[OpKey, float]  # of operations
    rest: Mapping[str, float]  # of what is no operation, by name
    total: float  # of which each value has a share

    @classmethod
    def from_table(cls, table: OpTable) -> OperationColumn:
        """Return the self times of a table, by its own clock."""
        values = {row.key: row.self_ns(table.clock) for row in table.rows if row.is_operation}
        return cls(values, table.rest_ns(table.clock), table.total_ns)

    def sum(self, keys: Iterable[OpKey]) -> float | None:
        """Return the sum over the operations that the case has; None if it has none of them."""
        present = [self.values[key] for key in keys if key in self.values]
        return sum(present) if present else None

    def share(self, key: OpKey) -> float:
        """Return the share of the operation; 0 if the case does not have it."""
        return abs(self.values.get(key, 0)) / self.total if self.total else 0.0


class SideBySide:
    """Columns of cases, and the rows of operations over them."""

    def __init__(
        self, columns: Sequence[OperationColumn], shown: Callable[[Any], str] = units.duration
    ) -> None:
        """Show values by the function ``shown``."""
        self._columns = columns
        self._shown = shown

    @functools.cached_property
    def ranked(self) -> list[OpKey]:
        """All operations by their largest share in any column."""
        keys = {key for column in self._columns for key in column.values}
        return sorted(keys, key=lambda key: (-self.largest_share(key), key))

    def largest_share(self, key: OpKey) -> float:
        """Return the largest share of an operation in any column."""
        return max(column.share(key) for column in self._columns)

    @property
    def rest_names(self) -> list[str]:
        """The names of what is no operation in any column, in the order of tables."""
        names = {name for column in self._columns for name in column.rest}
        return [name for name in (OUTSIDE, RUNTIME, UNATTRIBUTED) if name in names]

    def cells(self, values: Iterable[float | None]) -> list[str]:
        """Return the cells of a row: of each column a value and its share."""
        cells = []
        for column, value in zip(self._columns, values, strict=True):
            if value is None:
                cells += [units.MISSING, units.MISSING]
                continue
            share = units.percent(abs(value) / column.total) if column.total else units.MISSING
            cells += [self._shown(value), share]
        return cells

    def summed_cells(self, keys: Sequence[OpKey]) -> list[str]:
        """Return the cells of a sum over operations; no number where a case has none of them."""
        return self.cells(column.sum(keys) for column in self._columns)
