"""One machine's findings -> the sections of its report. Pure: which figures were drawn is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence

from mnistbench.core import units
from mnistbench.core.record import OUTSIDE
from mnistbench.lab.findings import UNTRAINED, CallTime, EpochTime, Findings
from mnistbench.lab.report.claims import Claim, Figure, check
from mnistbench.lab.report.document import Block, Bullets, Document, Paragraph, Picture, Section, Table, cell
from mnistbench.lab.report.explain import Name, Noun, Place, Sentence, best_view, explain, main_place
from mnistbench.lab.report.sheets import Cell, Quantity, Sheet, Sheets, environment_fields, in_a_name
from mnistbench.lab.report.texts import Code, Inline, Text, Texts, number

#: Operations shown of each table; the files have all.
TOP = 10

#: Of the accelerator's fields, those in bytes.
_BYTES = "_memory"
#: Fields that count something.
_COUNTS = ("train_samples", "test_samples", "parameters")


class Citations:
    """The numbers that were cited, in their order, each once."""

    def __init__(self) -> None:
        self._entries: dict[Quantity, int] = {}

    def __call__(self, quantity: Quantity) -> int:
        """Return the entry of a number, from 1; makes one for a new number."""
        return self._entries.setdefault(quantity, len(self._entries) + 1)

    def sheet(self) -> Sheet:
        """Return all numbers with what they were computed from: conditions are JSON, column -> values."""
        return Sheet(
            "tables/numbers.csv",
            ("number", "value", "kind", "shown", "file", "column", "where", "divided_by_file", "divided_by_column",
             "divided_by_where"),
            tuple(
                (entry, quantity.value, quantity.kind, number(quantity), quantity.over.file, quantity.over.column,
                 _conditions(quantity.over.where),
                 *((quantity.under.file, quantity.under.column, _conditions(quantity.under.where)) if quantity.under
                   else (None, None, None)))
                for quantity, entry in self._entries.items()
            ),
        )  # fmt: skip

    def table(self, texts: Texts, caption: str, files: tuple[str, ...]) -> Table:
        """Return them as a table to look them up in."""
        rows = [
            (
                cell(str(entry)),
                cell(number(quantity)),
                cell(Code(quantity.over.file)),
                cell(Code(str(quantity.over))),
                _divided_by(quantity),
            )
            for quantity, entry in self._entries.items()
        ]
        headers = tuple(texts.plain("column", key) for key in ("number", "shown", "file", "cells", "divided_by"))
        return Table(caption, headers, tuple(rows), len(headers), files, first_entry=1)


def _conditions(where: Iterable[tuple[str, tuple[object, ...]]]) -> str:
    return json.dumps({column: list(values) for column, values in where}, ensure_ascii=False)


def _divided_by(quantity: Quantity) -> Text:
    if not quantity.under:
        return ()
    under = quantity.under
    same_file = under.file == quantity.over.file
    return (Code(str(under)),) if same_file else (Code(under.file), ": ", Code(str(under)))


class Chapters:
    """Builds the sections of one machine's report in one language."""

    def __init__(self, findings: Findings, sheets: Sheets, texts: Texts, pictures: Collection[str]) -> None:
        """Take what the report is made of.

        Args:
            findings: what was measured.
            sheets: the tables made of it.
            texts: the wording.
            pictures: names of the figures that were drawn.
        """
        self._findings = findings
        self._sheets = sheets
        self._texts = texts
        self._pictures = pictures
        self._cite = Citations()
        self._sentences = explain(findings, sheets)

    def document(self) -> tuple[Document, Sheet]:
        """Return the report, and the sheet of the numbers that it cites."""
        sections = [
            self._section("aims", self._aims()),
            self._section("environment", self._environment()),
            self._section("graph", self._graph()),
            self._section("training", self._training()),
            self._section("operations", self._operations()),
            self._section("batches", self._batches()),
            self._section("devices", self._devices()),
            self._section("first_calls", self._first_calls()),
            self._section("profiler", self._profiler()),
            self._section("claims", self._claims()),
            self._section("files", self._files()),
        ]
        numbers = self._cite.sheet()
        table = self._cite.table(self._texts, self._texts.plain("section", "sources"), (numbers.file,))
        sections.append(self._section("sources", [self._paragraph("sources"), table]))
        texts = self._texts
        title = texts.plain("report", "title")
        return Document(
            title, texts.plain("report", "tag"), texts.plain("report", "source", files="{files}"), tuple(sections)
        ), numbers

    # ---- Sections ----------------------------------------------------------------------------------------------------

    def _aims(self) -> list[Block]:
        found = self._findings
        aims = self._paragraph(
            "aims",
            dataset=Name(found.settings.dataset),
            train_samples=found.train_samples,
            test_samples=found.test_samples,
            model=Name(found.model.name),
            parameters=found.model.parameters,
        )
        note = [self._paragraph("digits_note")] if found.settings.dataset == "digits" else []
        methods = [self._texts.text("text", f"method_{part}") for part in ("time", "operations", "cold", "sources")]
        return [aims, *note, Bullets(tuple(methods))]

    def _environment(self) -> list[Block]:
        rows = [
            (cell(field_name(self._texts, field)), cell(field_value(field, value)))
            for field, value in environment_fields(self._findings).items()
        ]
        ceilings = [
            (
                cell(ceiling.device),
                cell(_or_missing(ceiling.flops_per_s, units.flops_per_s)),
                cell(_or_missing(ceiling.bytes_per_s, units.bytes_per_s)),
            )
            for ceiling in self._findings.ceilings
        ]
        blocks: list[Block] = [
            self._paragraph("environment"),
            self._table("environment", ("field", "value"), rows, 2, [self._sheets.environment]),
        ]
        if ceilings:
            headers = ("device", "flops_per_s", "bytes_per_s")
            blocks += [self._paragraph("ceilings"), self._table("ceilings", headers, ceilings, 1, [self._sheets.ceilings])]
        return blocks

    def _graph(self) -> list[Block]:
        rows = [
            (
                cell(Code(layer.name)),
                cell(layer.kind),
                cell(" x ".join(map(str, layer.output_shape))),
                cell(units.count(layer.parameters)),
                cell(_or_missing(layer.flops, units.flops)),
                cell(units.size(layer.output_bytes)),
            )
            for layer in self._findings.model.layers
        ]
        headers = ("module", "kind", "output_shape", "parameters", "flops", "output_bytes")
        return [
            self._paragraph("no_graph_tool"),
            *self._picture("graph", [self._sheets.layers]),
            self._table("layers", headers, rows, 3, [self._sheets.layers]),
        ]

    def _training(self) -> list[Block]:
        rows = [
            (
                cell(run.device),
                cell(str(run.batch_size)),
                cell(str(epoch.epoch)),
                cell(_loss(epoch.train_loss)),
                cell(_accuracy(epoch.train_accuracy)),
                cell(_loss(epoch.test_loss)),
                cell(_accuracy(epoch.test_accuracy)),
            )
            for run in self._findings.trainings
            for epoch in run.epochs
        ]
        headers = ("device", "batch_size", "epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy")
        pictures = [
            block
            for device in self._findings.settings.devices
            for block in self._picture(f"curves-{in_a_name(device)}", [self._sheets.curves, self._sheets.training])
        ]
        return [
            self._explained("training"),
            *pictures,
            *([self._table("training", headers, rows, 1, [self._sheets.training])] if rows else []),
        ]

    def _operations(self) -> list[Block]:
        blocks: list[Block] = [self._explained("operations")]
        for phase in ("forward", "step"):
            for device in self._findings.settings.devices:
                name = f"operations-{phase}-{in_a_name(device)}"
                blocks += self._picture(name, self._best_views(phase, device))
                for view in ("host", "device"):
                    blocks += self._operation_table(phase, device, view)
        return blocks

    def _best_views(self, phase: str, device: str) -> list[Sheet]:
        found = (best_view(self._sheets, phase, device, size) for size in self._findings.settings.batch_sizes)
        return [sheet for sheet in found if sheet]

    def _operation_table(self, phase: str, device: str, view: str) -> list[Block]:
        found = {
            size: sheet
            for size in self._findings.settings.batch_sizes
            if (sheet := self._sheets.operations.get((phase, device, view, size)))
        }
        if not found:
            return []
        columns = [OperationColumn(sheet) for sheet in found.values()]
        keys = top_keys(columns)
        rows = [
            (cell(Code(key[0])), cell(key[1] or units.MISSING), cell(key[2] or units.MISSING), *_shares(columns, [key]))
            for key in keys
        ]
        others = {key for column in columns for key in column.times} - set(keys)
        for title, chosen in (("rest", [key for key in others if key[0] != OUTSIDE]),
                              ("outside", [key for key in others if key[0] == OUTSIDE]),
                              ("sum", [*keys, *others])):  # fmt: skip
            rows.append((cell(self._texts.plain("column", title)), (), (), *_shares(columns, chosen)))
        heads = [self._texts.plain("column", key, size=size) for size in found for key in ("time_of", "share_of")]
        headers = (*(self._texts.plain("column", key) for key in ("operation", "phase", "module")), *heads)
        caption = self._texts.plain(
            "caption",
            "operations",
            phase=self._texts.plain("label", phase),
            place=self._texts.place(main_place(self._findings, device), short=True),
            view=Noun(view),
        )
        return [Table(caption, headers, tuple(rows), 3, tuple(sheet.file for sheet in found.values()))]

    def _batches(self) -> list[Block]:
        main = {main_place(self._findings, device) for device in self._findings.settings.devices}
        calls = [row for row in self._findings.call_times if Place(row.device, row.threads) in main]
        epochs = [row for row in self._findings.epoch_times if Place(row.device, row.threads) in main]
        return [
            self._explained("batches"),
            *self._picture("batches", [self._sheets.calls]),
            self._calls_table("calls", calls),
            *self._picture("epochs", [self._sheets.epochs]),
            self._epochs_table("epochs", epochs),
        ]

    def _calls_table(self, caption: str, times: Iterable[CallTime]) -> Table:
        rows = [
            (
                *self._what_was_timed(time),
                cell(units.duration(time.median_ns)),
                cell(_or_missing(time.iqr_ns, units.duration)),
                cell(units.duration(time.median_ns / time.batch_size)),
                cell(units.count(time.calls)),
            )
            for time in times
        ]
        headers = ("place", "measured", "batch_size", "per_batch", "iqr", "per_sample", "timed_calls")
        return self._table(caption, headers, rows, 2, [self._sheets.calls])

    def _epochs_table(self, caption: str, times: Iterable[EpochTime]) -> Table:
        rows = [
            (
                *self._what_was_timed(time),
                cell(units.duration(time.epoch_ns)),
                cell(_or_missing(time.epoch_iqr_ns, units.duration)),
                cell(units.percent(time.samples / time.whole_set)),
                cell(units.count(time.calls)),
            )
            for time in times
        ]
        headers = ("place", "measured", "batch_size", "per_epoch", "iqr", "timed", "timed_calls")
        return self._table(caption, headers, rows, 2, [self._sheets.epochs])

    def _what_was_timed(self, time: CallTime | EpochTime) -> tuple[Text, Text, Text]:
        place = self._texts.place(Place(time.device, time.threads), short=True)
        return cell(place), cell(self._texts.plain("label", time.phase)), cell(str(time.batch_size))

    def _devices(self) -> list[Block]:
        found = self._findings
        if found.settings.accelerator:
            return [
                self._explained("devices"),
                self._calls_table("devices", [row for row in found.call_times if row.phase == "step"]),
                self._epochs_table("devices", found.epoch_times),
            ]
        threads = [row for row in found.call_times if row.device == "cpu"]
        compared = len({row.threads for row in threads}) > 1
        return [self._explained("devices"), *([self._calls_table("threads", threads)] if compared else [])]

    def _first_calls(self) -> list[Block]:
        rows = [
            (
                cell(call.device),
                cell(self._texts.plain("label", call.phase)),
                cell(self._texts.plain("noun", call.weights)),
                cell(str(call.batch_size)),
                cell(units.duration(call.first_ns)),
                cell(_or_missing(call.warm_ns, units.duration)),
                cell(_or_missing(call.first_ns / call.warm_ns if call.warm_ns else None, units.factor)),
            )
            for call in self._findings.first_calls
        ]
        headers = ("device", "measured", "weights", "batch_size", "first", "warm", "times")
        blocks: list[Block] = [self._explained("first_calls"), *self._picture("first-calls", [self._sheets.first_calls])]
        if rows:
            blocks += [self._paragraph("first_calls"), self._table("first_calls", headers, rows, 3, [self._sheets.first_calls])]
        for (phase, device, size, weights), sheet in self._sheets.first_operations.items():
            if (phase, size, weights) == ("forward", 1, UNTRAINED):
                blocks += [self._paragraph("first_operations"), self._first_operations_table(device, sheet)]
        return blocks

    def _first_operations_table(self, device: str, sheet: Sheet) -> Table:
        rows = [
            (
                cell(Code(str(name))),
                cell(str(module) or units.MISSING),
                cell(units.duration(first) if isinstance(first, int) else units.MISSING),
                cell(units.duration(warm) if isinstance(warm, int) else units.MISSING),
                cell(units.duration(extra) if isinstance(extra, int) else units.MISSING),
            )
            for name, _, module, first, warm, extra in sheet.rows[:TOP]
        ]
        headers = tuple(self._texts.plain("column", key) for key in ("operation", "module", "first", "warm", "extra"))
        caption = f"{self._texts.plain('caption', 'first_operations')} ({device})"
        return Table(caption, headers, tuple(rows), 2, (sheet.file,))

    def _profiler(self) -> list[Block]:
        rows = []
        for phase, device, view, size, _, profiled, plain, calls, added, *_ in self._sheets.profiler.rows:
            assert isinstance(profiled, int)
            rows.append(
                (
                    cell(str(device)),
                    cell(self._texts.plain("label", str(phase))),
                    cell(self._texts.plain("noun", str(view))),
                    cell(str(size)),
                    cell(units.duration(profiled)),
                    cell(_or_missing(plain, units.duration)),
                    cell(_or_missing(profiled / plain if isinstance(plain, int) and plain else None, units.factor)),
                    cell(_or_missing(calls, units.count)),
                    cell(_or_missing(added, units.duration)),
                )
            )
        headers = ("device", "measured", "view", "batch_size", "profiled", "untraced", "times", "operation_calls",
                   "added_per_call")  # fmt: skip
        table = self._table("profiler", headers, rows, 3, [self._sheets.profiler])
        return [self._explained("profiler"), *([table] if rows else [])]

    def _claims(self) -> list[Block]:
        rows = [self._claim(claim) for claim in check(self._findings, self._sheets)]
        headers = ("claim", "by_reports", "by_right", "verdict", "why")
        return [self._paragraph("claims"), self._table("claims", headers, rows, 5, [])]

    def _claim(self, claim: Claim) -> tuple[Text, ...]:
        return (
            self._texts.cited("claim", claim.key, claim.words, None),
            self._figures(claim.reports),
            self._figures(claim.right),
            self._texts.text("verdict", claim.verdict),
            self._texts.text("reason", claim.reason),
        )

    def _figures(self, figures: Sequence[Figure]) -> Text:
        pieces: list[Inline] = []
        for position, figure in enumerate(figures):
            pieces += [self._texts.plain("report", "comma")] if position else []
            pieces += self._texts.cited("figures_of_claims", figure.key, {"number": figure.number, **figure.words}, self._cite)
        return tuple(pieces) or (units.MISSING,)

    def _files(self) -> list[Block]:
        found = self._findings
        files = [sheet.file for sheet in self._sheets.all() if sheet.rows] + list(found.traces)
        items: list[Text] = [(Code(file),) for file in ("lab.json", *files, "tables/numbers.csv")]
        blocks: list[Block] = [self._paragraph("files"), Bullets(tuple(items))]
        if any(run.directory for run in found.trainings):
            blocks.append(self._paragraph("tensorboard", directory="tensorboard"))
        if found.traces:
            blocks.append(self._paragraph("traces"))
        if found.notes:
            blocks += [self._paragraph("notes"), Bullets(tuple((note,) for note in found.notes))]
        return blocks

    # ---- Blocks ------------------------------------------------------------------------------------------------------

    def _section(self, name: str, blocks: Iterable[Block]) -> Section:
        return Section(name, self._texts.plain("section", name), tuple(blocks))

    def _paragraph(self, key: str, **values: object) -> Paragraph:
        return Paragraph(self._texts.text("text", key, **values))

    def _explained(self, section: str) -> Bullets:
        return Bullets(tuple(self._said(sentence) for sentence in self._sentences[section]))

    def _said(self, sentence: Sentence) -> Text:
        return self._texts.cited("explain", sentence.key, {**sentence.words, **sentence.numbers}, self._cite)

    def _picture(self, name: str, sheets: Iterable[Sheet]) -> list[Block]:
        if name not in self._pictures:
            return []
        key = name.partition("-")[0] if name != "first-calls" else "first_calls"
        return [Picture(name, self._texts.plain("figure", key), tuple(sheet.file for sheet in sheets))]

    def _table(
        self, caption: str, headers: Iterable[str], rows: Iterable[tuple[Text, ...]], numbers_from: int, sheets: Iterable[Sheet]
    ) -> Table:
        return Table(
            self._texts.plain("caption", caption),
            tuple(self._texts.plain("column", key) for key in headers),
            tuple(rows),
            numbers_from,
            tuple(sheet.file for sheet in sheets),
        )


# ---- Operations side by side -----------------------------------------------------------------------------------------


class OperationColumn:
    """One operation table as a column: self time by (operation, phase, module)."""

    def __init__(self, sheet: Sheet) -> None:
        """Read it from its sheet."""
        self.times = {(str(row[0]), str(row[1]), str(row[2])): int(row[4] or 0) for row in sheet.rows}
        self.whole = sum(self.times.values())

    def share(self, key: tuple[str, str, str]) -> float:
        """Return the operation's part of the whole; 0 where the table has none."""
        return self.times.get(key, 0) / self.whole if self.whole else 0.0


def top_keys(columns: Iterable[OperationColumn]) -> list[tuple[str, str, str]]:
    """Return the operations with the largest share in any column, largest first."""
    listed = list(columns)
    keys = {key for column in listed for key in column.times if key[0] != OUTSIDE}
    return sorted(keys, key=lambda key: (-max(column.share(key) for column in listed), key))[:TOP]


def _shares(columns: Iterable[OperationColumn], keys: Iterable[tuple[str, str, str]]) -> list[Text]:
    cells: list[Text] = []
    chosen = list(keys)
    for column in columns:
        found = [column.times[key] for key in chosen if key in column.times]
        cells += (
            [cell(units.duration(sum(found))), cell(units.percent(sum(found) / column.whole))]
            if found and column.whole
            else [cell(units.MISSING), cell(units.MISSING)]
        )
    return cells


# ---- Cells -----------------------------------------------------------------------------------------------------------


def field_name(texts: Texts, field: str) -> str:
    """Return what a field of the environment is called."""
    if texts.has("field", field):
        return texts.plain("field", field)
    accelerator, _, rest = field.partition("_")
    number_of = accelerator.removeprefix("accelerator")
    return f"{texts.plain('field', 'accelerator')}{' ' + number_of if number_of else ''}: {rest.replace('_', ' ')}"


def field_value(field: str, value: str) -> str:
    """Return a field's value as text: memory in its unit, numbers as everywhere."""
    if not value.isdecimal():
        return value
    return units.size(int(value)) if field.endswith(_BYTES) else units.count(int(value)) if field in _COUNTS else value


def _or_missing(value: Cell, shown: Callable[[float], str]) -> str:
    return shown(value) if isinstance(value, int | float) else units.MISSING


def _loss(value: float | None) -> str:
    return units.MISSING if value is None else f"{value:.4f}"


def _accuracy(value: float | None) -> str:
    return units.MISSING if value is None else units.percent(value / 100)
