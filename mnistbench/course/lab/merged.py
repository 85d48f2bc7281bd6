"""Build the report of several machines side by side. Reads and writes no files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

from mnistbench.core import units
from mnistbench.course.lab.chapters import document_of, field_name, field_value, sections_of
from mnistbench.course.lab.claims import Claim, check
from mnistbench.course.lab.lab_file import UNTRAINED, Findings
from mnistbench.course.lab.sentences import best_view, main_place
from mnistbench.course.lab.sheets import (
    KINDS,
    TOP,
    Cell,
    Label,
    Sheet,
    Sheets,
    environment_fields,
    operation_column,
    sheets_of,
)
from mnistbench.course.lab.texts import Texts
from mnistbench.showing.report import Document, Figure, Part
from mnistbench.showing.side_by_side import OperationColumn, SideBySide
from mnistbench.showing.table import Column, Table
from mnistbench.showing.text import Code, Text

#: A cell as the report shows it.
Shown = str | Text


@dataclass(frozen=True)
class MachineRow:
    """A row of a table with a column per machine."""

    head: Mapping[str, str]  # what the row is about: column of the file -> cell
    values: tuple[Cell, ...]  # of each machine; None where it has none
    shown_head: Mapping[str, Shown]  # column of the report -> cell
    shown_values: tuple[Shown, ...]


def number_row(
    head: Mapping[str, str],
    values: Sequence[float | None],
    kind: str,
    shown_head: Mapping[str, Shown] | None = None,
) -> MachineRow:
    """Return a row of numbers of one of KINDS; its head is shown as it is by default."""
    shown = (units.MISSING if value is None else KINDS[kind](value) for value in values)
    return MachineRow(head, tuple(values), shown_head or head, tuple(shown))


class Merged:
    """Builds the report of several machines in one language, with a column per machine."""

    def __init__(
        self, machines: Mapping[str, Findings], texts: Texts, pictures: Collection[str]
    ) -> None:
        self._machines = machines
        self._texts = texts
        self._pictures = pictures
        self._labs = [(findings, sheets_of(findings)) for findings in machines.values()]
        self._sheets: list[Sheet] = []

    def document(self) -> tuple[Document, tuple[Sheet, ...]]:
        """Return the report and the tables of its numbers."""
        figure = Figure(
            "machines",
            self._texts.plain("figure", "machines"),
            ("tables/time-per-sample-step.csv",),
        )
        parts: dict[str, Iterable[Part]] = {
            "aims": self._aims(),
            "environment": [self._environment()],
            "training": [self._training()],
            "operations": self._operations(),
            "batches": [*([figure] if figure.name in self._pictures else []), *self._times()],
            "first_iterations": [self._first_iterations()],
            "claims": [self._claims()],
        }
        sections = sections_of(self._texts, parts)
        datasets = [findings.settings.dataset for findings in self._machines.values()]
        document = document_of(self._texts, "merged_title", sections, datasets)
        return document, tuple(self._sheets)

    def _aims(self) -> list[Part]:
        """Describe the columns and name the numbers that cannot be compared."""
        parts: list[Part] = [self._texts.text("text", key) for key in ("merged_aims", "machines")]
        settings = [findings.settings for findings in self._machines.values()]
        for key, word, values in (
            ("merged_datasets", "datasets", [lab.dataset for lab in settings]),
            ("merged_epochs", "epochs", [lab.epochs for lab in settings]),
        ):
            different = dict.fromkeys(map(str, values))
            if len(different) > 1:
                listed = self._texts.plain("report", "comma").join(different)
                parts.append(self._texts.text("text", key, **{word: listed}))
        if noisy := [name for name, findings in self._machines.items() if findings.disturbed]:
            listed = self._texts.plain("report", "comma").join(noisy)
            parts.append(self._texts.text("text", "merged_disturbed", labs=listed))
        return parts

    def _environment(self) -> Table:
        machines = [environment_fields(findings) for findings in self._machines.values()]
        most_fields_first = sorted(machines, key=len, reverse=True)
        names = dict.fromkeys(name for machine in most_fields_first for name in machine)
        rows = []
        for name in names:
            values = tuple(machine.get(name) for machine in machines)
            shown = tuple(
                units.MISSING if value is None else field_value(name, value) for value in values
            )
            shown_head = {"field": field_name(self._texts, name)}
            rows.append(MachineRow({"field": name}, values, shown_head, shown))
        return self._table("machines", "environment", ("field",), rows)

    def _training(self) -> Table:
        """Compare the accuracy after the last epoch."""
        rows = self._by_case(
            "training",
            "test_accuracy",
            "percentage",
            lambda findings, _: {"epoch": findings.settings.epochs},
        )
        return self._table("merged_training", "training", ("device", "batch_size"), rows)

    def _operations(self) -> list[Part]:
        """Compare at the batch size that most machines have, the largest of these.

        A machine is represented by its last device.
        """
        machines_with = Counter(
            size for findings, _ in self._labs for size in findings.settings.batch_sizes
        )
        size = max(machines_with, key=lambda size: (machines_with[size], size))
        parts: list[Part] = []
        for phase in ("forward", "step"):
            rows = self._operation_rows(phase, size)
            if rows:
                words: dict[str, Any] = {"phase": Label(phase), "size": size}
                file = f"operations-{phase}-b{size}"
                columns = ("operation", "phase", "module")
                parts.append(self._texts.text("text", "merged_operations", **words))
                parts.append(self._table("merged_operations", file, columns, rows, **words))
        return parts

    def _operation_rows(self, phase: str, size: int) -> list[MachineRow]:
        """Return the shares of the largest operations."""
        columns = []
        for findings, sheets in self._labs:
            sheet = best_view(sheets, phase, findings.settings.devices[-1], size)
            columns.append(operation_column(sheet) if sheet else OperationColumn({}, {}, 0))
        rows = []
        for key in SideBySide(columns).ranked[:TOP]:
            name, phase_of_operation, module = key
            head = {"operation": name, "phase": phase_of_operation, "module": module}
            shares = [column.share(key) if key in column.values else None for column in columns]
            shown_head: dict[str, Shown] = {**head, "operation": Text([Code(name)])}
            rows.append(number_row(head, shares, "share", shown_head))
        return rows

    def _times(self) -> Iterable[Part]:
        """Compare times per batch, per sample and per pass.

        Each machine has its own number of threads.
        """
        for caption, name, sheet, column, phases in (
            ("merged_batch", "batch", "iterations", "median_ns", ("step", "forward")),
            ("merged_sample", "sample", "iterations", "sample_ns", ("step", "forward")),
            ("merged_epoch", "epoch", "epochs", "epoch_ns", ("train", "eval")),
        ):
            for phase in phases:
                rows = self._by_case(
                    sheet,
                    column,
                    "time",
                    lambda findings, device: asdict(main_place(findings, device)),
                    phase=phase,
                )
                file = f"time-per-{name}-{phase}"
                columns = ("device", "batch_size")
                yield self._table(caption, file, columns, rows, phase=Label(phase))

    def _first_iterations(self) -> Table:
        """Compare the first iteration of a case with a warm one, which follows it."""
        rows: list[MachineRow] = []
        for column in ("first_ns", "warm_ns"):
            measured = self._texts.plain("column", column.removesuffix("_ns"))
            cases = self._by_case(
                "first_iterations", column, "time", phase="forward", weights=UNTRAINED
            )
            for row in cases:
                head = {**row.head, "measured": measured}
                rows.append(MachineRow(head, row.values, head, row.shown_values))
        rows.sort(key=lambda row: (row.head["device"], int(row.head["batch_size"])))  # stable
        columns = ("device", "batch_size", "measured")
        return self._table("merged_first", "first-forward", columns, rows)

    def _claims(self) -> Table:
        """Give each claim about a device one row."""

        def identity(claim: Claim) -> tuple[str, str]:
            return claim.key, getattr(claim.words.get("place"), "device", "")

        checked = [{identity(claim): claim for claim in check(*lab)} for lab in self._labs]
        words = {key: claim.words for claims in checked for key, claim in claims.items()}
        rows = []
        for (name, device), claim_words in words.items():
            claims = [machine.get((name, device)) for machine in checked]
            place = {"place": Code(device)} if device else {}
            claim_text = self._texts.text("claim", name, **claim_words | place)
            rows.append(
                MachineRow(
                    head={"claim": name, "device": device},
                    values=tuple(claim.verdict if claim else None for claim in claims),
                    shown_head={"claim": claim_text},
                    shown_values=tuple(
                        self._texts.text("verdict", claim.verdict) if claim else units.MISSING
                        for claim in claims
                    ),
                )
            )
        return self._table("merged_claims", "claims", ("claim", "device"), rows)

    def _by_case(
        self,
        name: str,
        column: str,
        kind: str,
        conditions_of: Callable[[Findings, str], Mapping[str, Cell]] = lambda *_: {},
        **where: Cell,
    ) -> list[MachineRow]:
        """Return a column of a table by the devices and batch sizes that any machine has.

        ``conditions_of`` returns further conditions of a machine and a device.
        """
        tables = [getattr(sheets, name) for _, sheets in self._labs]
        cases: set[tuple[str, int]] = set()
        for table in tables:
            devices, sizes = (table.values(key, **where) for key in ("device", "batch_size"))
            cases.update(zip(devices, sizes, strict=True))

        def number(lab: tuple[Findings, Sheets], device: str, size: int) -> float | None:
            findings, sheets = lab
            case: dict[str, Cell] = {"device": device, "batch_size": size}
            conditions = {**case, **where, **conditions_of(findings, device)}
            sheet: Sheet = getattr(sheets, name)
            total = sheet.total(column, **conditions)
            if not total:
                return None
            return round(total.value) if total.kind == "time" else total.value

        return [
            number_row(
                {"device": device, "batch_size": str(size)},
                [number(lab, device, size) for lab in self._labs],
                kind,
            )
            for device, size in sorted(cases)
        ]

    def _table(
        self,
        caption: str,
        name: str,
        columns: Sequence[str],
        rows: Sequence[MachineRow],
        **words: object,
    ) -> Table:
        """Keep rows as the CSV file of a name, and return them as a table of the report.

        ``columns`` are those of the file before the machines.
        """
        keys = (*columns, *self._machines)
        file = Sheet(
            f"tables/{name}.csv",
            [Column[Any](None, itemgetter(position), key=key) for position, key in enumerate(keys)],
            [(*row.head.values(), *row.values) for row in rows],
        )
        self._sheets.append(file)
        shown_columns = [*rows[0].shown_head] if rows else columns
        headings = [*(self._texts.plain("column", key) for key in shown_columns), *self._machines]
        has_numbers = any(isinstance(value, int | float) for row in rows for value in row.values)
        return self._texts.rows(
            self._texts.plain("caption", caption, **words),
            headings,
            [(*row.shown_head.values(), *row.shown_values) for row in rows],
            (file.file,),
            numbers=len(self._machines) if has_numbers else 0,
        )
