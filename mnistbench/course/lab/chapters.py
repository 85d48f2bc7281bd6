"""Build the sections of one machine's report from its findings. Reads and writes no files."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from mnistbench.core import units
from mnistbench.core.record import NOT_OPERATIONS, OUTSIDE, RUNTIME, UNATTRIBUTED
from mnistbench.course.lab.claims import Claim, Figure, check
from mnistbench.course.lab.document import Block, Bullets, Document, Paragraph, Picture, Section, Table, cell
from mnistbench.course.lab.explain import Name, Noun, Place, best_view, explain, main_place
from mnistbench.course.lab.findings import UNTRAINED, Findings
from mnistbench.course.lab.sheets import Cell, Quantity, Sheet, Sheets, environment_fields, in_a_name, kind_of
from mnistbench.course.lab.texts import Code, Inline, Text, Texts, number, shown

#: Operations shown of each table; the CSV files list all.
TOP = 10

#: Columns of tables. ``heading:column`` where a column of the file has another heading in the report.
_CALLS = ("place", "measured", "batch_size", "per_batch:median_ns", "iqr:iqr_ns", "per_sample:sample_ns", "timed_calls:calls")
_EPOCHS = ("place", "measured", "batch_size", "per_epoch:epoch_ns", "iqr:epoch_iqr_ns", "timed:timed_share", "timed_calls")
_FIRST_CALLS = ("device", "measured", "weights", "batch_size", "first:first_ns", "warm:warm_ns", "times")
_FIRST_OPERATIONS = ("operation", "module", "first:first_self_ns", "warm:warm_self_ns", "extra:extra_ns")
_PROFILER = ("device", "measured", "view", "batch_size", "profiled:profiled_ns", "untraced:untraced_ns", "times",
             "operation_calls", "added_per_call:added_per_call_ns")  # fmt: skip
_TRAINING = ("device", "batch_size", "epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy")

#: Study -> columns, the first column of numbers, and columns of words at the end.
_STUDIES: Mapping[str, tuple[tuple[str, ...], int, int]] = {
    "convolution": (
        ("convolution", "way", "time:seconds", "flops", "moved:n_bytes", "of_ceiling", "algorithm"), 2, 1
    ),
    "locality": (
        ("problem", "order", "l1_misses", "l2_misses", "per_multiply_add:ns_per_multiply_add",
         "in_l1:ns_per_multiply_add_in_l1"),
        2, 0,
    ),
    "memory": (
        ("model", "measured", "batch_size", "weight_bytes", "gradient_bytes", "optimizer_state_bytes",
         "saved_bytes:saved_for_backward_bytes", "predicted_peak:predicted_peak_bytes", "measured_peak:measured_peak_bytes"),
        2, 0,
    ),
    "graph": (
        ("program", "part", "eager_operations", "generated_kernels", "library_kernels", "eager:eager_ns",
         "compiled:compiled_ns", "ratio"),
        2, 0,
    ),
}  # fmt: skip

_Row = Mapping[str, Cell]


class Citations:
    """The numbers that the report cites, in their order, each once."""

    def __init__(self) -> None:
        self._entries: dict[Quantity, int] = {}

    def __call__(self, quantity: Quantity) -> int:
        """Return the entry of a number, from 1; add one for a new number."""
        return self._entries.setdefault(quantity, len(self._entries) + 1)

    def sheet(self) -> Sheet:
        """Return all numbers with the cells that they are computed from; conditions are JSON, column -> values."""
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
        """Return all numbers as a table whose rows are link targets."""
        rows = tuple(
            (cell(str(entry)), cell(number(quantity)), (Code(quantity.over.file),), (Code(str(quantity.over)),),
             _divided_by(quantity))
            for quantity, entry in self._entries.items()
        )  # fmt: skip
        headers = tuple(texts.plain("column", key) for key in ("number", "shown", "file", "cells", "divided_by"))
        return Table(caption, headers, rows, len(headers), files, first_entry=1)


def _conditions(where: Iterable[tuple[str, tuple[object, ...]]]) -> str:
    return json.dumps({column: list(values) for column, values in where}, ensure_ascii=False)


def _divided_by(quantity: Quantity) -> Text:
    under = quantity.under
    if not under:
        return ()
    return (Code(str(under)),) if under.file == quantity.over.file else (Code(under.file), ": ", Code(str(under)))


def document_of(texts: Texts, title: str, sections: Mapping[str, Iterable[Block]]) -> Document:
    """Return a report of sections by their names."""
    built = tuple(Section(name, texts.plain("section", name), tuple(blocks)) for name, blocks in sections.items())
    source = texts.plain("report", "source", files="{files}")
    return Document(texts.plain("report", title), texts.plain("report", "tag"), source, built)


class Chapters:
    """Builds the sections of one machine's report in one language."""

    def __init__(self, findings: Findings, sheets: Sheets, texts: Texts, pictures: Collection[str]) -> None:
        """Prepare the report.

        Args:
            findings: the measurements.
            sheets: their tables.
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
        """Return the report and the table of the numbers that it cites."""
        sections: dict[str, Iterable[Block]] = {
            "aims": self._aims(),
            "environment": self._environment(),
            "graph": [
                self._paragraph("no_graph_tool"),
                *self._picture("graph", [self._sheets.layers]),
                self._table("layers", self._sheets.layers, self._sheets.layers.columns, 3),
            ],
            "training": self._training(),
            "operations": self._operations(),
            "batches": self._batches(),
            "devices": self._devices(),
            "first_calls": self._first_calls(),
            "profiler": [self._explained("profiler"), *self._tables("profiler", self._sheets.profiler, _PROFILER, 3)],
            "claims": self._claims(),
            **({"studies": self._studies()} if self._sheets.studies else {}),
            "files": self._files(),
        }
        numbers = self._cite.sheet()
        table = self._cite.table(self._texts, self._texts.plain("section", "sources"), (numbers.file,))
        sections["sources"] = [self._paragraph("sources"), table]
        return document_of(self._texts, "title", sections), numbers

    # ---- Sections ----------------------------------------------------------------------------------------------------

    def _aims(self) -> list[Block]:
        found = self._findings
        aims = self._paragraph(
            "aims", dataset=Name(found.settings.dataset), train_samples=found.train_samples, test_samples=found.test_samples,
            model=Name(found.model.name), parameters=found.model.parameters,
        )  # fmt: skip
        note = [self._paragraph("digits_note")] if found.settings.dataset == "digits" else []
        methods = [self._texts.text("text", f"method_{part}") for part in ("training", "time", "operations", "cold", "sources")]
        return [aims, *note, Bullets(tuple(methods))]

    def _environment(self) -> list[Block]:
        fields = [
            (cell(field_name(self._texts, field)), cell(field_value(field, value)))
            for field, value in environment_fields(self._findings).items()
        ]
        headers = tuple(self._texts.plain("column", key) for key in ("field", "value"))
        caption = self._texts.plain("caption", "environment")
        table = Table(caption, headers, tuple(fields), 2, (self._sheets.environment.file,))
        ceilings = self._tables("ceilings", self._sheets.ceilings, self._sheets.ceilings.columns, 1)
        return [self._paragraph("environment"), table, *([self._paragraph("ceilings")] if ceilings else []), *ceilings]

    def _training(self) -> list[Block]:
        sheets = self._sheets
        blocks: list[Block] = [self._explained("training")]
        for device in self._findings.settings.devices:
            blocks += self._picture(f"curves-{in_a_name(device)}", [sheets.curves, sheets.training])
        return blocks + self._tables("training", sheets.training, _TRAINING, 1)

    def _operations(self) -> list[Block]:
        blocks: list[Block] = [self._explained("operations")]
        for phase in ("forward", "step"):
            for device in self._findings.settings.devices:
                views = (best_view(self._sheets, phase, device, size) for size in self._findings.settings.batch_sizes)
                blocks += self._picture(f"operations-{phase}-{in_a_name(device)}", [sheet for sheet in views if sheet])
                for view in ("host", "device"):
                    blocks += self._operation_table(phase, device, view)
        return blocks

    def _operation_table(self, phase: str, device: str, view: str) -> list[Block]:
        texts = self._texts
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
            (cell(Code(key[0])), *(cell(part or units.MISSING) for part in key[1:]), *_shares(columns, [key])) for key in keys
        ]
        others = {key for column in columns for key in column.times} - set(keys)
        for title, chosen in (("rest", [key for key in others if key[0] not in NOT_OPERATIONS]),
                              *((_REST[name], [key for key in others if key[0] == name]) for name in _rest_of(others)),
                              ("sum", [*keys, *others])):  # fmt: skip
            rows.append((cell(texts.plain("column", title)), (), (), *_shares(columns, chosen)))
        heads = [texts.plain("column", key, size=size) for size in found for key in ("time_of", "share_of")]
        headers = (*(texts.plain("column", key) for key in ("operation", "phase", "module")), *heads)
        place = texts.place(main_place(self._findings, device), short=True)
        caption = texts.plain("caption", "operations", phase=texts.plain("label", phase), place=place, view=Noun(view))
        return [Table(caption, headers, tuple(rows), 3, tuple(sheet.file for sheet in found.values()))]

    def _batches(self) -> list[Block]:
        main = {main_place(self._findings, device) for device in self._findings.settings.devices}
        calls, epochs = self._sheets.calls, self._sheets.epochs
        return [
            self._explained("batches"),
            *self._picture("batches", [calls]),
            self._table("calls", calls, _CALLS, 2, lambda row: _place(row) in main),
            *self._picture("epochs", [epochs]),
            self._table("epochs", epochs, _EPOCHS, 2, lambda row: _place(row) in main),
        ]

    def _devices(self) -> list[Block]:
        calls = self._sheets.calls
        tables: list[Block] = []
        if self._findings.settings.accelerator:
            tables = [
                self._table("devices", calls, _CALLS, 2, lambda row: row["phase"] == "step"),
                self._table("devices", self._sheets.epochs, _EPOCHS, 2),
            ]
        elif len(set(calls.values("threads", device="cpu"))) > 1:
            tables = [self._table("threads", calls, _CALLS, 2, lambda row: row["device"] == "cpu")]
        return [self._explained("devices"), *tables]

    def _first_calls(self) -> list[Block]:
        sheet = self._sheets.first_calls
        tables = self._tables("first_calls", sheet, _FIRST_CALLS, 3)
        blocks: list[Block] = [self._explained("first_calls"), *self._picture("first-calls", [sheet])]
        blocks += [self._paragraph("first_calls"), *tables] if tables else []
        for (phase, device, size, weights), operations in self._sheets.first_operations.items():
            if (phase, size, weights) == ("forward", 1, UNTRAINED):
                largest = Sheet(operations.file, operations.columns, operations.rows[:TOP])
                table = self._table("first_operations", largest, _FIRST_OPERATIONS, 2, device=device)
                blocks += [self._paragraph("first_operations"), table]
        return blocks

    def _studies(self) -> list[Block]:
        blocks: list[Block] = []
        for name, sheet in self._sheets.studies.items():
            columns, numbers_from, words_after = _STUDIES[name]
            table = self._table(f"study_{name}", sheet, columns, numbers_from, _is_shown, words_after=words_after)
            blocks += [self._paragraph(f"study_{name}"), table]
        return blocks

    def _claims(self) -> list[Block]:
        rows = tuple(self._claim(claim) for claim in check(self._findings, self._sheets))
        headers = tuple(self._texts.plain("column", key) for key in ("claim", "by_reports", "by_right", "verdict", "why"))
        return [self._paragraph("claims"), Table(self._texts.plain("caption", "claims"), headers, rows, 5)]

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
        for figure in figures:
            pieces += [self._texts.plain("report", "comma")] if pieces else []
            pieces += self._texts.cited("figures_of_claims", figure.key, {"number": figure.number, **figure.words}, self._cite)
        return tuple(pieces) or (units.MISSING,)

    def _files(self) -> list[Block]:
        found = self._findings
        files = ["lab.json", *(sheet.file for sheet in self._sheets.all() if sheet.rows), *found.traces, "tables/numbers.csv"]
        blocks: list[Block] = [self._paragraph("files"), Bullets(tuple((Code(file),) for file in files))]
        if any(run.directory for run in found.trainings):
            blocks.append(self._paragraph("tensorboard", directory="tensorboard"))
        if found.traces:
            blocks.append(self._paragraph("traces"))
        if found.notes:
            blocks += [self._paragraph("notes"), Bullets(tuple((note,) for note in found.notes))]
        return blocks

    # ---- Blocks ------------------------------------------------------------------------------------------------------

    def _paragraph(self, key: str, **values: object) -> Paragraph:
        return Paragraph(self._texts.text("text", key, **values))

    def _explained(self, section: str) -> Bullets:
        return Bullets(
            tuple(
                self._texts.cited("explain", sentence.key, {**sentence.words, **sentence.numbers}, self._cite)
                for sentence in self._sentences[section]
            )
        )

    def _picture(self, name: str, sheets: Iterable[Sheet]) -> list[Block]:
        if name not in self._pictures:
            return []
        key = "first_calls" if name == "first-calls" else name.partition("-")[0]
        return [Picture(name, self._texts.plain("figure", key), tuple(sheet.file for sheet in sheets))]

    def _tables(self, caption: str, sheet: Sheet, columns: Iterable[str], numbers_from: int) -> list[Block]:
        return [self._table(caption, sheet, columns, numbers_from)] if sheet.rows else []

    def _table(
        self,
        caption: str,
        sheet: Sheet,
        columns: Iterable[str],
        numbers_from: int,
        keep: Callable[[_Row], bool] = lambda _: True,
        *,
        words_after: int = 0,
        **values: object,
    ) -> Table:
        """Show columns of a sheet, in the rows to keep."""
        named = [(heading, column or heading) for heading, _, column in (each.partition(":") for each in columns)]
        found = [row for row in (dict(zip(sheet.columns, cells, strict=True)) for cells in sheet.rows) if keep(row)]
        rows = tuple(tuple(self._cell(heading, column, row) for heading, column in named) for row in found)
        headers = tuple(self._texts.plain("column", heading) for heading, _ in named)
        title = self._texts.plain("caption", caption, **values)
        return Table(title, headers, rows, numbers_from, (sheet.file,), words_after)

    def _cell(self, heading: str, column: str, row: _Row) -> Text:
        match heading:
            case "place":
                return cell(self._texts.place(_place(row), short=True))
            case "measured":
                return cell(self._texts.plain("label", str(row["phase"])))
            case "weights" | "view":
                return cell(self._texts.plain("noun", str(row[column])))
            case "part":
                return cell(self._texts.plain("label", str(row[column])))
            case "operation" | "way" | "order":
                return (Code(str(row[column])),)
        value = row[column]
        if value is None or isinstance(value, str):
            return cell(value or units.MISSING)
        return cell(shown(value, kind_of(column)))


def _is_shown(row: _Row) -> bool:
    """Whether a row of a study is shown: not those of layers, nor those of parts that do nothing."""
    return row.get("layer") is None and row.get("eager_ns") != 0


def _place(row: _Row) -> Place:
    return Place(str(row["device"]), int(row["threads"] or 0))


# ---- Operations side by side -----------------------------------------------------------------------------------------


class OperationColumn:
    """The self times of one operation table by (operation, phase, module)."""

    def __init__(self, sheet: Sheet) -> None:
        """Read the table from its sheet."""
        self.times = {(str(row[0]), str(row[1]), str(row[2])): int(row[4] or 0) for row in sheet.rows}
        self.whole = sum(self.times.values())

    def share(self, key: tuple[str, str, str]) -> float:
        """Return the operation's share of the whole; 0 if the table does not list it."""
        return self.times.get(key, 0) / self.whole if self.whole else 0.0


#: What is no operation -> its text.
_REST = {OUTSIDE: "outside", RUNTIME: "runtime", UNATTRIBUTED: "unattributed"}


def _rest_of(keys: Collection[tuple[str, str, str]]) -> list[str]:
    """Return what is no operation among the rows of tables; the time outside operations is always shown."""
    return [name for name in _REST if name == OUTSIDE or any(key[0] == name for key in keys)]


def top_keys(columns: Iterable[OperationColumn]) -> list[tuple[str, str, str]]:
    """Return the operations with the largest share in any column, largest first."""
    listed = list(columns)
    keys = {key for column in listed for key in column.times if key[0] not in NOT_OPERATIONS}
    return sorted(keys, key=lambda key: (-max(column.share(key) for column in listed), key))[:TOP]


def _shares(columns: Iterable[OperationColumn], keys: Collection[tuple[str, str, str]]) -> list[Text]:
    cells = []
    for column in columns:
        found = [column.times[key] for key in keys if key in column.times]
        both = (units.duration(sum(found)), units.percent(sum(found) / column.whole)) if found and column.whole else ()
        cells += [cell(text) for text in both or (units.MISSING, units.MISSING)]
    return cells


# ---- Environment -----------------------------------------------------------------------------------------------------


def field_name(texts: Texts, field: str) -> str:
    """Return the name of a field of the environment."""
    if texts.has("field", field):
        return texts.plain("field", field)
    accelerator, _, rest = field.partition("_")
    number_of = accelerator.removeprefix("accelerator")
    return f"{texts.plain('field', 'accelerator')}{' ' + number_of if number_of else ''}: {rest.replace('_', ' ')}"


def field_value(field: str, value: str) -> str:
    """Return the value of a field as text: memory with its unit, counts with separators."""
    if not value.isdecimal():
        return value
    if field.endswith("_memory"):
        return units.size(int(value))
    return units.count(int(value)) if field in ("train_samples", "test_samples", "parameters") else value
