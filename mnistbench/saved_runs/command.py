"""``mnistbench list``, ``history`` and ``export``.

The settings of each and what it does with saved runs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mnistbench.core import options
from mnistbench.core.errors import UsageError
from mnistbench.saved_runs.references import OR_TRACE, all_runs, find, is_trace
from mnistbench.saved_runs.report import history_table, list_table, run_csv
from mnistbench.showing.output import EXIT_PASSED, deliver_text
from mnistbench.showing.terminal import draw, line_width


@dataclass(frozen=True, kw_only=True)
class List:
    """The options of ``list``."""

    storage: Path = options.storage()

    def run(self) -> int:
        """Print the saved runs, oldest first; return 0."""
        table = list_table(all_runs(self.storage, "cases"))
        print(draw(table, width=line_width(sys.stdout)))
        return EXIT_PASSED


@dataclass(frozen=True, kw_only=True)
class History:
    """The options of ``history``."""

    case: str = options.argument("CASE", str, "title of the case in a table, or its pytest id")
    op: str = options.option(
        "--op", str, "", "show this operation or function of the case: aten::addmm", "NAME"
    )
    module: str = options.option("--module", str, "", "show this module of the case: conv2", "NAME")
    storage: Path = options.storage()

    def run(self) -> int:
        """Print the time of the case, of an operation or of a module in every saved run."""
        if is_trace(self.case):
            raise UsageError(
                f"{self.case!r} is a trace, not a case of saved runs; compare two traces with: "
                "mnistbench compare"
            )
        runs = all_runs(self.storage, "medians" if self.op or self.module else "cases")
        table = history_table(runs, self.case, self.op, self.module)
        print(draw(table, width=line_width(sys.stdout)))
        return EXIT_PASSED


@dataclass(frozen=True, kw_only=True)
class Export:
    """The options of ``export``."""

    which: str | None = options.argument(
        "RUN", str, f"{OR_TRACE} (default: latest)", required=False
    )
    output: Path | None = options.output()
    storage: Path = options.storage()

    def run(self) -> int:
        """Write the cases and operations of a run as CSV; return 0."""
        [matching_runs] = find(self.storage, self.which or "latest")
        deliver_text(run_csv(matching_runs[-1].run), self.output)
        return EXIT_PASSED
