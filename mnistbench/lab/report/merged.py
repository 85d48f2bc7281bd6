"""Several machines' findings -> one report with their columns side by side. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mnistbench.core import units
from mnistbench.lab.findings import UNTRAINED, Findings
from mnistbench.lab.report.chapters import OperationColumn, field_name, field_value, top_keys
from mnistbench.lab.report.claims import Claim, check
from mnistbench.lab.report.document import Block, Document, Paragraph, Picture, Section, Table, cell
from mnistbench.lab.report.explain import Name, best_view, main_place
from mnistbench.lab.report.sheets import Cell, Sheet, Sheets, environment_fields, sheets_of
from mnistbench.lab.report.texts import Code, Text, Texts

_T = TypeVar("_T")


@dataclass(frozen=True)
class Machine:
    """One column: a lab and what it is called."""

    name: str
    findings: Findings


@dataclass(frozen=True)
class _Row:
    """One row over all machines: how its cells are shown, and its numbers; None where a machine has none."""

    head: tuple[str, ...]
    numbers: tuple[Cell, ...]


class Merged:
    """Builds the report of several machines in one language."""

    def __init__(self, machines: Sequence[Machine], texts: Texts, pictures: Collection[str]) -> None:
        """Take the machines, the wording and the names of the figures that were drawn."""
        self._machines = machines
        self._texts = texts
        self._pictures = pictures
        self._sheets = [sheets_of(machine.findings) for machine in machines]
        self._written: list[Sheet] = []

    def document(self) -> tuple[Document, tuple[Sheet, ...]]:
        """Return the report, and the tables that its numbers stand in."""
        texts = self._texts
        sections = [
            self._section("aims", self._aims()),
            self._section("environment", [self._environment()]),
            self._section("training", [self._training()]),
            self._section("operations", self._operations()),
            self._section("batches", [*self._picture(), *self._calls(), *self._epochs()]),
            self._section("first_calls", [self._first_calls()]),
            self._section("claims", [self._claims()]),
        ]
        title = texts.plain("report", "merged_title")
        document = Document(
            title, texts.plain("report", "tag"), texts.plain("report", "source", files="{files}"), tuple(sections)
        )
        return document, tuple(self._written)

    # ---- Sections ----------------------------------------------------------------------------------------------------

    def _aims(self) -> list[Block]:
        """Say what the columns are, and which of their numbers do not compare."""
        settings = [machine.findings.settings for machine in self._machines]
        blocks: list[Block] = [Paragraph(self._texts.text("text", key)) for key in ("merged_aims", "machines")]
        for key, values in (
            ("datasets", [each.dataset for each in settings]),
            ("epochs", [str(each.epochs) for each in settings]),
        ):
            different = tuple(dict.fromkeys(values))
            if len(different) > 1:
                listed = self._texts.plain("report", "comma").join(different)
                blocks.append(Paragraph(self._texts.text("text", f"merged_{key}", **{key: listed})))
        return blocks

    def _environment(self) -> Table:
        fields = [environment_fields(machine.findings) for machine in self._machines]
        most_first = sorted(fields, key=len, reverse=True)  # an accelerator's fields stand where its machine has them
        names = list(dict.fromkeys(name for machine in most_first for name in machine))
        rows = [_Row((name,), tuple(machine.get(name) for machine in fields)) for name in names]
        self._write("environment", ("field",), rows)
        shown = [
            (cell(field_name(self._texts, row.head[0])),
             *(cell(field_value(row.head[0], str(value)) if value is not None else units.MISSING) for value in row.numbers))
            for row in rows
        ]  # fmt: skip
        return self._table("machines", ("field",), shown, "environment", words=True)

    def _training(self) -> Table:
        keys = self._union(lambda found: [(run.device, run.batch_size) for run in found.trainings])
        rows = [
            _Row((device, str(size)), tuple(_last_accuracy(machine.findings, device, size) for machine in self._machines))
            for device, size in keys
        ]
        self._write("training", ("device", "batch_size"), rows)
        shown = [self._shown(row, lambda value: units.percent(value / 100)) for row in rows]
        return self._table("merged_training", ("device", "batch_size"), shown, "training")

    def _operations(self) -> list[Block]:
        """Compare at the batch size that the most machines have, the largest of these; each machine by its last device."""
        machines_with = Counter(size for machine in self._machines for size in machine.findings.settings.batch_sizes)
        size = max(machines_with, key=lambda size: (machines_with[size], size))
        blocks: list[Block] = []
        for phase in ("forward", "step"):
            columns = [
                OperationColumn(sheet) if (sheet := self._last_view(number, phase, size)) else None
                for number in range(len(self._machines))
            ]
            rows = [
                _Row(key, tuple(column.share(key) if column and key in column.times else None for column in columns))
                for key in top_keys([column for column in columns if column])
            ]
            if not rows:
                continue
            file = f"operations-{phase}-b{size}"
            self._write(file, ("operation", "phase", "module"), rows)
            shown = [
                (cell(Code(row.head[0])), *map(cell, row.head[1:]), *(_number(value, units.percent) for value in row.numbers))
                for row in rows
            ]
            words: dict[str, object] = {"phase": self._texts.plain("label", phase), "size": size}
            blocks += [
                Paragraph(self._texts.cited("text", "merged_operations", words, None)),
                self._table("merged_operations", ("operation", "phase", "module"), shown, file, values=words),
            ]
        return blocks

    def _last_view(self, number: int, phase: str, size: int) -> Sheet | None:
        device = self._machines[number].findings.settings.devices[-1]
        return best_view(self._sheets[number], phase, device, size)

    def _calls(self) -> Iterable[Block]:
        for phase in ("step", "forward"):
            for caption, column, file in (("merged_calls", "median_ns", "batch"), ("merged_samples", "sample_ns", "sample")):
                yield self._times(caption, phase, column, f"time-per-{file}-{phase}", lambda sheets: sheets.calls)

    def _epochs(self) -> Iterable[Block]:
        for phase in ("train", "eval"):
            yield self._times("merged_epochs", phase, "epoch_ns", f"time-per-epoch-{phase}", lambda sheets: sheets.epochs)

    def _times(self, caption: str, phase: str, column: str, file: str, of: Callable[[Sheets], Sheet]) -> Table:
        keys = self._union(
            lambda found: [(device, size) for device in found.settings.devices for size in found.settings.batch_sizes]
        )
        rows = []
        for device, size in keys:
            numbers = []
            for machine, sheets in zip(self._machines, self._sheets, strict=True):
                place = main_place(machine.findings, device)
                time = of(sheets).total(column, device=device, threads=place.threads, phase=phase, batch_size=size)
                numbers.append(round(time.value) if time else None)
            rows.append(_Row((device, str(size)), tuple(numbers)))
        self._write(file, ("device", "batch_size"), rows)
        shown = [self._shown(row, units.duration) for row in rows]
        return self._table(caption, ("device", "batch_size"), shown, file, values={"phase": self._texts.plain("label", phase)})

    def _first_calls(self) -> Table:
        keys = self._union(
            lambda found: [
                (call.device, call.batch_size)
                for call in found.first_calls
                if call.phase == "forward" and call.weights == UNTRAINED
            ]
        )
        rows = []
        for device, size in keys:
            for column in ("first_ns", "warm_ns"):
                totals = [
                    sheets.first_calls.total(column, device=device, phase="forward", batch_size=size, weights=UNTRAINED)
                    for sheets in self._sheets
                ]
                head = (device, str(size), self._texts.plain("column", column.removesuffix("_ns")))
                rows.append(_Row(head, tuple(round(total.value) if total else None for total in totals)))
        self._write("first-forward", ("device", "batch_size", "call"), rows)
        shown = [self._shown(row, units.duration) for row in rows]
        return self._table("merged_first", ("device", "batch_size", "measured"), shown, "first-forward")

    def _claims(self) -> Table:
        """Give a claim about a device one row, whichever machines have it."""
        checked = [check(machine.findings, sheets) for machine, sheets in zip(self._machines, self._sheets, strict=True)]
        keys = list(dict.fromkeys(_identity(claim) for claims in checked for claim in claims))
        rows, shown = [], []
        for key, device in keys:
            found = [next((c for c in claims if _identity(c) == (key, device)), None) for claims in checked]
            claim = next(c for c in found if c)
            words = {**claim.words, **({"place": Name(device)} if device else {})}
            rows.append(_Row((key, device), tuple(c.verdict if c else None for c in found)))
            verdicts = [self._texts.text("verdict", c.verdict) if c else cell(units.MISSING) for c in found]
            shown.append((self._texts.cited("claim", key, words, None), *verdicts))
        self._write("claims", ("claim", "device"), rows)
        return self._table("merged_claims", ("claim",), shown, "claims", words=True)

    # ---- Parts -------------------------------------------------------------------------------------------------------

    def _union(self, keys: Callable[[Findings], Iterable[_T]]) -> list[_T]:
        """Return what any machine has, sorted."""
        return sorted({key for machine in self._machines for key in keys(machine.findings)})  # type: ignore[type-var]

    def _section(self, name: str, blocks: Iterable[Block]) -> Section:
        return Section(name, self._texts.plain("section", name), tuple(blocks))

    def _picture(self) -> list[Block]:
        if "machines" not in self._pictures:
            return []
        return [Picture("machines", self._texts.plain("figure", "machines"), ("tables/time-per-sample-step.csv",))]

    @staticmethod
    def _shown(row: _Row, shown: Callable[[float], str]) -> tuple[Text, ...]:
        return (*map(cell, row.head), *(_number(value, shown) for value in row.numbers))

    def _write(self, name: str, heads: tuple[str, ...], rows: Iterable[_Row]) -> None:
        columns = (*heads, *(machine.name for machine in self._machines))
        self._written.append(Sheet(f"tables/{name}.csv", columns, tuple((*row.head, *row.numbers) for row in rows)))

    def _table(
        self,
        caption: str,
        heads: tuple[str, ...],
        rows: Iterable[tuple[Text, ...]],
        file: str,
        *,
        words: bool = False,
        values: Mapping[str, object] | None = None,
    ) -> Table:
        headers = (*(self._texts.plain("column", head) for head in heads), *(machine.name for machine in self._machines))
        numbers_from = len(headers) if words else len(heads)
        return Table(
            self._texts.plain("caption", caption, **(values or {})), headers, tuple(rows), numbers_from, (f"tables/{file}.csv",)
        )


def _identity(claim: Claim) -> tuple[str, str]:
    place = claim.words.get("place")
    return claim.key, getattr(place, "device", "")


def _last_accuracy(findings: Findings, device: str, size: int) -> float | None:
    run = next((run for run in findings.trainings if (run.device, run.batch_size) == (device, size)), None)
    return run.epochs[-1].test_accuracy if run and run.epochs else None


def _number(value: Cell, shown: Callable[[float], str]) -> Text:
    return cell(shown(value) if isinstance(value, int | float) else units.MISSING)
