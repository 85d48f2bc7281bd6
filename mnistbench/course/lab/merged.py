"""Build one report of several machines' findings, with a column per machine. Reads and writes no files."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from mnistbench.core import units
from mnistbench.course.lab.chapters import OperationColumn, document_of, field_name, field_value, top_keys
from mnistbench.course.lab.claims import Claim, check
from mnistbench.course.lab.document import Block, Document, Paragraph, Picture, Table, cell
from mnistbench.course.lab.explain import Name, best_view, main_place
from mnistbench.course.lab.findings import UNTRAINED, Findings
from mnistbench.course.lab.sheets import Cell, Quantity, Sheet, Sheets, environment_fields, sheets_of
from mnistbench.course.lab.texts import Code, Text, Texts, shown

#: Cells at the start of a row, and one cell per machine; None where a machine has no number.
_Row = tuple[tuple[str, ...], tuple[Cell, ...]]


@dataclass(frozen=True)
class Machine:
    """One column: the findings of a lab and its name."""

    name: str
    findings: Findings


class Merged:
    """Builds the report of several machines in one language."""

    def __init__(self, machines: Sequence[Machine], texts: Texts, pictures: Collection[str]) -> None:
        """Take the machines, the wording and the names of the figures that were drawn."""
        self._machines = machines
        self._texts = texts
        self._pictures = pictures
        self._columns = [(machine.findings, sheets_of(machine.findings)) for machine in machines]
        self._sheets: list[Sheet] = []

    def document(self) -> tuple[Document, tuple[Sheet, ...]]:
        """Return the report and the tables of its numbers."""
        sections: dict[str, Iterable[Block]] = {
            "aims": self._aims(),
            "environment": [self._environment()],
            "training": [self._training()],
            "operations": self._operations(),
            "batches": [*self._picture(), *self._times()],
            "first_calls": [self._first_calls()],
            "claims": [self._claims()],
        }
        return document_of(self._texts, "merged_title", sections), tuple(self._sheets)

    # ---- Sections ----------------------------------------------------------------------------------------------------

    def _aims(self) -> list[Block]:
        """Describe the columns and name the numbers that cannot be compared."""
        blocks: list[Block] = [Paragraph(self._texts.text("text", key)) for key in ("merged_aims", "machines")]
        settings = [machine.findings.settings for machine in self._machines]
        for key, values in (("datasets", [each.dataset for each in settings]), ("epochs", [each.epochs for each in settings])):
            different = dict.fromkeys(map(str, values))
            if len(different) > 1:
                listed = self._texts.plain("report", "comma").join(different)
                blocks.append(Paragraph(self._texts.text("text", f"merged_{key}", **{key: listed})))
        return blocks

    def _environment(self) -> Table:
        fields = [environment_fields(machine.findings) for machine in self._machines]
        names = dict.fromkeys(name for machine in sorted(fields, key=len, reverse=True) for name in machine)
        rows: list[_Row] = [((name,), tuple(machine.get(name) for machine in fields)) for name in names]

        def head(names: tuple[str, ...]) -> tuple[Text, ...]:
            return (cell(field_name(self._texts, *names)),)

        return self._table("machines", "environment", ("field",), rows, "field", head)

    def _training(self) -> Table:
        def accuracy(found: Findings, _: Sheets, device: str, size: int) -> float | None:
            runs = [run for run in found.trainings if (run.device, run.batch_size) == (device, size) and run.epochs]
            return runs[0].epochs[-1].test_accuracy if runs else None

        keys = self._union(lambda found: [(run.device, run.batch_size) for run in found.trainings])
        return self._by_size("merged_training", "training", keys, accuracy, "percentage")

    def _operations(self) -> list[Block]:
        """Compare at the batch size that most machines have, the largest of these; each machine by its last device."""
        machines_with = Counter(size for found, _ in self._columns for size in found.settings.batch_sizes)
        size = max(machines_with, key=lambda size: (machines_with[size], size))
        heads = ("operation", "phase", "module")
        blocks: list[Block] = []
        for phase in ("forward", "step"):
            views = [best_view(sheets, phase, found.settings.devices[-1], size) for found, sheets in self._columns]
            columns = [OperationColumn(sheet) if sheet else None for sheet in views]
            rows: list[_Row] = [
                (key, tuple(column.share(key) if column and key in column.times else None for column in columns))
                for key in top_keys(column for column in columns if column)
            ]
            if rows:
                words: dict[str, object] = {"phase": self._texts.plain("label", phase), "size": size}
                blocks += [
                    Paragraph(self._texts.text("text", "merged_operations", **words)),
                    self._table("merged_operations", f"operations-{phase}-b{size}", heads, rows, "share", _operation, **words),
                ]
        return blocks

    def _times(self) -> Iterable[Block]:
        """Compare times per batch, per sample and per pass; each machine with its own number of threads."""
        keys = self._union(lambda found: list(itertools.product(found.settings.devices, found.settings.batch_sizes)))

        def time(column: str, phase: str, found: Findings, sheets: Sheets, device: str, size: int) -> float | None:
            sheet = sheets.epochs if column == "epoch_ns" else sheets.calls
            threads = main_place(found, device).threads
            return _rounded(sheet.total(column, device=device, threads=threads, phase=phase, batch_size=size))

        for name, column, phases in (
            ("batch", "median_ns", ("step", "forward")),
            ("sample", "sample_ns", ("step", "forward")),
            ("epoch", "epoch_ns", ("train", "eval")),
        ):
            for phase in phases:
                number = functools.partial(time, column, phase)
                yield self._by_size(
                    f"merged_{name}", f"time-per-{name}-{phase}", keys, number, "time", phase=self._texts.plain("label", phase)
                )

    def _first_calls(self) -> Table:
        keys = self._union(
            lambda found: [
                (call.device, call.batch_size)
                for call in found.first_calls
                if call.phase == "forward" and call.weights == UNTRAINED
            ]
        )
        rows: list[_Row] = []
        for (device, size), column in itertools.product(keys, ("first_ns", "warm_ns")):
            where: dict[str, Cell] = {"device": device, "phase": "forward", "batch_size": size, "weights": UNTRAINED}
            times = tuple(_rounded(sheets.first_calls.total(column, **where)) for _, sheets in self._columns)
            rows.append(((device, str(size), self._texts.plain("column", column.removesuffix("_ns"))), times))
        return self._table("merged_first", "first-forward", ("device", "batch_size", "measured"), rows, "time")

    def _claims(self) -> Table:
        """Give each claim about a device one row."""
        checked = [{_identity(claim): claim for claim in check(*column)} for column in self._columns]
        wordings = {identity: claim.words for claims in checked for identity, claim in claims.items()}
        rows: list[_Row] = []
        for identity in dict.fromkeys(identity for claims in checked for identity in claims):
            found = [claims.get(identity) for claims in checked]
            rows.append((identity, tuple(claim.verdict if claim else None for claim in found)))

        def head(identity: tuple[str, ...]) -> tuple[Text]:
            key, device = identity
            words = {**wordings[key, device], **({"place": Name(device)} if device else {})}
            return (self._texts.cited("claim", key, words, None),)

        return self._table("merged_claims", "claims", ("claim", "device"), rows, "verdict", head)

    # ---- Parts -------------------------------------------------------------------------------------------------------

    def _union(self, keys: Callable[[Findings], Iterable[tuple[str, int]]]) -> list[tuple[str, int]]:
        """Return the devices and batch sizes that any machine has, sorted."""
        return sorted({key for found, _ in self._columns for key in keys(found)})

    def _picture(self) -> list[Block]:
        if "machines" not in self._pictures:
            return []
        return [Picture("machines", self._texts.plain("figure", "machines"), ("tables/time-per-sample-step.csv",))]

    def _by_size(
        self,
        caption: str,
        name: str,
        keys: Iterable[tuple[str, int]],
        number: Callable[[Findings, Sheets, str, int], float | None],
        kind: str,
        **values: object,
    ) -> Table:
        """Compare a number by device and batch size."""
        rows: list[_Row] = [
            ((device, str(size)), tuple(number(*each, device, size) for each in self._columns)) for device, size in keys
        ]
        return self._table(caption, name, ("device", "batch_size"), rows, kind, None, **values)

    def _table(
        self,
        caption: str,
        name: str,
        heads: tuple[str, ...],
        rows: Sequence[_Row],
        kind: str = "",
        head: Callable[[tuple[str, ...]], tuple[Text, ...]] | None = None,
        **values: object,
    ) -> Table:
        """Keep rows as a CSV table, and return them as a table of the report.

        Args:
            caption: key of its wording.
            name: of the file.
            heads: columns before those of the machines.
            rows: of the file.
            kind: of the numbers; ``verdict`` or ``field`` for cells that are verdicts or fields of the environment.
            head: returns the first cells as the report shows them; by default they are the file's.
            **values: fill in the caption.
        """
        machines = tuple(machine.name for machine in self._machines)
        sheet = Sheet(f"tables/{name}.csv", (*heads, *machines), tuple((*first, *cells) for first, cells in rows))
        self._sheets.append(sheet)
        texts = [
            (*(head(first) if head else map(cell, first)), *(self._cell(first[0], each, kind) for each in cells))
            for first, cells in rows
        ]
        shown_heads = heads[: len(texts[0]) - len(machines)] if texts else heads
        headers = (*(self._texts.plain("column", each) for each in shown_heads), *machines)
        has_numbers = any(isinstance(each, int | float) for _, cells in rows for each in cells)
        numbers_from = len(shown_heads) if has_numbers else len(headers)
        return Table(self._texts.plain("caption", caption, **values), headers, tuple(texts), numbers_from, (sheet.file,))

    def _cell(self, row: str, value: Cell, kind: str) -> Text:
        if isinstance(value, str):
            return self._texts.text("verdict", value) if kind == "verdict" else cell(field_value(row, value))
        return cell(units.MISSING if value is None else shown(value, kind))


def _operation(key: tuple[str, ...]) -> tuple[Text, ...]:
    return ((Code(key[0]),), *map(cell, key[1:]))


def _identity(claim: Claim) -> tuple[str, str]:
    return claim.key, getattr(claim.words.get("place"), "device", "")


def _rounded(time: Quantity | None) -> int | None:
    return round(time.value) if time else None
