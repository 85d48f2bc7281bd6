"""The operations of each case with base and head side by side, for ``page.js``."""

from __future__ import annotations

import math
from typing import Any

from mnistbench.core import units
from mnistbench.core.operation import OpKey, operation_cells, operation_name
from mnistbench.gate.decide.statistics.quantities import Quantity
from mnistbench.gate.report.page.forest import ForestPlot, six_digits, tone
from mnistbench.gate.report.rows import EstimateRow, Rows, table_name
from mnistbench.gate.samples.raw_samples import FIRST_STAGE, Build
from mnistbench.gate.words import BASE, HEAD

#: Change, bounds and effect of what the base does not have.
_NEW = (math.inf,) * 4

#: Operations of a group that its row names.
NAMED = 12


class OperationTables:
    """The rows of the tables of all cases."""

    def __init__(self, rows: Rows) -> None:
        self.plot = ForestPlot("operations", rows.shown.operations, rows.verdict.options)
        self._rows = rows.operations
        # The last trial of the first stage, as exact differences have it.
        self._builds: dict[str, Build] = {
            case: builds[0]
            for trial in rows.verdict.recorded.trials
            if trial.stage == FIRST_STAGE
            for case, builds in trial.cases.items()
        }
        self._positions: dict[tuple[str, ...], int] = {}

    @property
    def names(self) -> list[tuple[str, ...]]:
        """Operation, phase, module and members of the rows so far, which have a position in it.

        Most cases have the same ones.
        """
        return list(self._positions)

    def rows(self, case: str) -> list[list[Any]]:
        """Return the rows of a case; ``comparedOperations`` of ``page.js`` names their cells.

        Times are in ns, changes are shares; a cell is null if its number is infinite.
        """
        return [self._cells(row) for row in self._rows.get(case, ())]

    def _cells(self, row: EstimateRow) -> list[Any]:
        estimate = row.estimate
        quantity = estimate.quantity
        drawn = self.plot.drawn(estimate)
        effect = estimate.change * quantity.weight
        shares = (estimate.change, estimate.low, estimate.high, effect)
        return [
            self._number(quantity),
            *(self._calls(quantity, side) for side in (BASE, HEAD)),
            *map(six_digits, (quantity.base, quantity.head, quantity.share)),
            *map(six_digits, shares if estimate.change < math.inf else _NEW),
            row.verdict,
            tone(row.verdict),
            self.plot.grid(estimate),
            drawn.path,
            drawn.x,
        ]

    def _number(self, quantity: Quantity) -> int:
        """Return the position of its names."""
        names = tuple(map(units.printable, _names(quantity)))
        return self._positions.setdefault(names, len(self._positions))

    def _calls(self, quantity: Quantity, side: str) -> float | None:
        """Return the calls per iteration on a side; None if it has none of the operations."""
        operations = self._builds[quantity.case][side].operations
        calls = [operations[key].calls for key in quantity.members if key in operations]
        return sum(calls) if calls else None


def _names(quantity: Quantity) -> tuple[str, str, str, str]:
    """Return operation, phase, module, and of a group its members."""
    if len(quantity.members) == 1 and not quantity.replaced:
        return (*operation_cells(*quantity.members[0]), "")
    members = [operation_name(*key) for key in quantity.members]
    phase, module = (_common(quantity.members, place) for place in (1, 2))
    return table_name(quantity), phase, module, units.and_more(members, NAMED, "; ", " and ")


def _common(members: tuple[OpKey, ...], place: int) -> str:
    """Return the phase or the module of a group; ``-`` if its operations have several."""
    values = {key[place] for key in members}
    return (values.pop() if len(values) == 1 else "") or units.MISSING
