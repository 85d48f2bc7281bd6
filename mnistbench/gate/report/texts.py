"""How a report of a gate writes changes and times."""

from __future__ import annotations

import math

from mnistbench.core import units
from mnistbench.gate.statistics.quantities import Quantity
from mnistbench.gate.verdict.estimates import Estimate
from mnistbench.judging.kinds import ADDED, MEMORY


def signed(change: float) -> str:
    """Return the text of a change; what a base of 0 does not have is ``new``."""
    return "new" if change == math.inf else units.percent(change, signed=True)


def change_text(estimate: Estimate, launches: str = "") -> str:
    """Return the change of a quantity with its interval, its times, and the change of the case."""
    quantity = estimate.quantity
    of_case = " of the case" if quantity.kind == ADDED else ""
    interval = (
        []
        if estimate.change == math.inf
        else [f"{signed(estimate.low)} to {signed(estimate.high)}"]
    )
    beside = "".join(interval) + (launches if interval else launches.removeprefix(", "))
    change = f"{signed(estimate.change)}{of_case}" + (f" ({beside})" if beside else "")
    told = f"{change}, {amounts(quantity)}"
    if not quantity.is_operation or quantity.kind == ADDED:
        return told
    return f"{told}; {signed(estimate.change * quantity.share)} of the case"


def amounts(quantity: Quantity) -> str:
    """Return the times of both sides, or their memory."""
    unit = units.size if quantity.kind == MEMORY else units.duration
    return " -> ".join(map(unit, (quantity.base_ns, quantity.head_ns)))


def table_name(quantity: Quantity) -> str:
    """Return the name of a quantity in a table with its change."""
    return f"{quantity.title}{' (change as a share of the case)' if quantity.kind == ADDED else ''}"
