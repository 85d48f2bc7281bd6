"""Build the report of one machine's findings, in sections. Reads and writes no files."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from mnistbench.core import units
from mnistbench.core.operation import NOT_OPERATIONS, OUTSIDE, RUNTIME, UNATTRIBUTED
from mnistbench.course.lab.claims import check
from mnistbench.course.lab.lab_file import UNTRAINED, Findings
from mnistbench.course.lab.sentences import Sentence, best_view, disturbed, explain, main_place
from mnistbench.course.lab.sheets import (
    TOP,
    Cells,
    CitedNumber,
    Label,
    Sheet,
    Sheets,
    Word,
    environment_fields,
    in_a_name,
    operation_column,
)
from mnistbench.course.lab.texts import Texts
from mnistbench.showing.report import Document, Figure, Part, Section, entries_of
from mnistbench.showing.side_by_side import SideBySide
from mnistbench.showing.table import Column, Table
from mnistbench.showing.text import Cited, Code, Text

#: What is no operation -> its text.
_REST = {OUTSIDE: "outside", RUNTIME: "runtime", UNATTRIBUTED: "unattributed"}

#: Study -> key of its text and of the caption of its table.
_STUDIES = {
    "convolution": "study_convolution",
    "locality": "study_locality",
    "memory": "study_memory",
    "graph": "study_graph",
}


def document_of(
    texts: Texts, title: str, sections: Sequence[Section], datasets: Iterable[str] = ()
) -> Document:
    """Return a report of these sections, whose title may name the datasets."""
    listed = texts.plain("report", "comma").join(
        texts.plain("noun", dataset) if texts.has("noun", dataset) else dataset
        for dataset in dict.fromkeys(datasets)
    )
    return Document(
        title=texts.plain("report", title, data=listed),
        language=texts.plain("report", "tag"),
        source=texts.plain("report", "source", files="{files}"),
        sections=tuple(sections),
    )


def sections_of(texts: Texts, parts: Mapping[str, Iterable[Part]]) -> list[Section]:
    """Return sections of their parts, by their names in the wording, without empty lists."""
    return [
        Section(
            name, texts.plain("section", name), tuple(part for part in section_parts if part != [])
        )
        for name, section_parts in parts.items()
    ]


def _divided_by(number: CitedNumber) -> Text:
    under = number.under
    if not under:
        return Text()
    if under.file == number.over.file:
        return Text([Code(under)])
    return Text([Code(under.file), ": ", Code(under)])


def _conditions(cells: Cells | None) -> str | None:
    return (
        json.dumps({column: list(values) for column, values in cells.where}, ensure_ascii=False)
        if cells
        else None
    )


#: Of a number and its entry: the number with the cells that it is computed from; conditions are
#: JSON, column -> values.
_NUMBERS: tuple[Column[tuple[CitedNumber, int]], ...] = (
    Column("number", itemgetter(1), key="number"),
    Column(None, lambda row: row[0].value, key="value"),
    Column(None, lambda row: row[0].kind, key="kind"),
    Column("shown", lambda row: str(row[0]), key="shown"),
    Column("file", lambda row: Code(row[0].over.file), key="file"),
    Column(None, lambda row: row[0].over.column, key="column"),
    Column(None, lambda row: _conditions(row[0].over), key="where"),
    Column("cells", lambda row: Code(row[0].over)),
    Column("divided_by", lambda row: _divided_by(row[0])),
    Column(None, lambda row: row[0].under.file if row[0].under else None, key="divided_by_file"),
    Column(
        None, lambda row: row[0].under.column if row[0].under else None, key="divided_by_column"
    ),
    Column(None, lambda row: _conditions(row[0].under), key="divided_by_where"),
)


class Chapters:
    """Builds the sections of one machine's report in one language.

    ``pictures`` are the figures that were drawn; ``predictions`` and ``summary`` are the parts of
    their sections, which are left out if empty.
    """

    def __init__(
        self,
        findings: Findings,
        sheets: Sheets,
        texts: Texts,
        pictures: Collection[str],
        predictions: Sequence[Part] = (),
        summary: Sequence[Part] = (),
    ) -> None:
        self._findings = findings
        self._sheets = sheets
        self._texts = texts
        self._pictures = pictures
        self._predictions = predictions
        self._summary = summary
        self._sentences = explain(findings, sheets)

    def document(self) -> tuple[Document, Sheet]:
        """Return the report and the table of the numbers that it cites."""
        sheets = self._sheets
        texts = self._texts
        parts: dict[str, Iterable[Part]] = {
            "aims": self._aims(),
            **({"predictions": self._predictions} if self._predictions else {}),
            "environment": self._environment(),
            "graph": [
                texts.text("text", "layers"),
                *self._picture("graph", [sheets.layers]),
                texts.table("layers", sheets.layers),
            ],
            "training": self._training(),
            "operations": self._operations(),
            "batches": self._batches(),
            "devices": self._devices(),
            "first_iterations": self._first_iterations(),
            "profiler": [self._explained("profiler"), *self._table("profiler", sheets.profiler)],
            "claims": self._claims(),
            **({"summary": self._summary} if self._summary else {}),
            **({"studies": self._studies()} if sheets.studies else {}),
            "files": self._files(),
        }
        if not self._findings.settings.accelerator:  # the section compares threads
            parts = {"threads" if name == "devices" else name: part for name, part in parts.items()}
        sections = sections_of(texts, parts)
        entries = entries_of(sections)
        numbers = Sheet("tables/numbers.csv", _NUMBERS, tuple(entries.items()))
        table = replace(texts.table("sources", numbers), anchors_from=1)
        sections += sections_of(texts, {"sources": [texts.text("text", "sources"), table]})
        dataset = self._findings.settings.dataset
        return document_of(texts, "title", sections, [dataset]), numbers

    def _aims(self) -> list[Part]:
        findings = self._findings
        texts = self._texts
        aims = texts.text(
            "text",
            "aims",
            dataset=Code(findings.settings.dataset),
            train_samples=findings.train_samples,
            test_samples=findings.test_samples,
            model=Code(findings.settings.model),
            parameters=findings.cases[0].parameter_count,
        )
        note: list[Part] = (
            [texts.text("text", "digits_note")] if findings.settings.dataset == "digits" else []
        )
        if findings.predictions:
            size = findings.predictions.batch_size
            note.append(texts.text("text", "drawn_size", size=size))
        methods = [
            texts.text("text", key)
            for key in (
                "method_training",
                "method_time",
                "method_operations",
                "method_cold",
                "method_sources",
            )
        ]
        noise = [self._explanation(sentence) for sentence in disturbed(findings, self._sheets)]
        return [*([noise] if noise else []), aims, *note, list(methods)]

    def _environment(self) -> list[Part]:
        texts = self._texts
        sheets = self._sheets
        fields = [
            (field_name(texts, field), field_value(field, value))
            for field, value in environment_fields(self._findings).items()
        ]
        heads = [texts.plain("column", key) for key in ("field", "value")]
        table = texts.rows(
            texts.plain("caption", "environment"), heads, fields, (sheets.environment.file,)
        )
        parts: list[Part] = [texts.text("text", "environment"), table]
        if sheets.ceilings.rows:
            parts += [texts.text("text", "ceilings"), texts.table("ceilings", sheets.ceilings)]
        return parts

    def _training(self) -> list[Part]:
        sheets = self._sheets
        parts: list[Part] = [self._explained("training")]
        for device in self._findings.settings.devices:
            parts += self._picture(f"curves-{in_a_name(device)}", [sheets.curves, sheets.training])
        return parts + self._table("training", sheets.training)

    def _operations(self) -> list[Part]:
        parts: list[Part] = [self._explained("operations")]
        for phase in ("forward", "step"):
            for device in self._findings.settings.devices:
                views = (
                    best_view(self._sheets, phase, device, size)
                    for size in self._findings.settings.batch_sizes
                )
                parts += self._picture(
                    f"operations-{phase}-{in_a_name(device)}", [sheet for sheet in views if sheet]
                )
                for view in ("host", "device"):
                    parts += self._operation_table(phase, device, view)
        return parts

    def _operation_table(self, phase: str, device: str, view: str) -> list[Part]:
        """Return the operations of all batch sizes side by side, and what is left of each table."""
        texts = self._texts
        tables = {
            size: sheet
            for size in self._findings.settings.batch_sizes
            if (sheet := self._sheets.operations.get((phase, device, view, size)))
        }
        if not tables:
            return []
        columns = [operation_column(sheet) for sheet in tables.values()]
        sizes = SideBySide(columns)
        rows: list[list[str]] = [
            [
                Code(key[0]),
                *(part or units.MISSING for part in key[1:]),
                *sizes.summed_cells([key]),
            ]
            for key in sizes.ranked[:TOP]
        ]
        sums = {"rest": sizes.summed_cells(sizes.ranked[TOP:])}
        for name in dict.fromkeys([OUTSIDE, *sizes.rest_names]):
            sums[_REST[name]] = sizes.cells(column.rest.get(name) for column in columns)
        sums["sum"] = sizes.cells(column.total for column in columns)
        rows += [[texts.plain("column", key), "", "", *cells] for key, cells in sums.items()]
        heads = [texts.plain("column", key) for key in ("operation", "phase", "module")]
        heads += [
            texts.plain("column", key, size=size)
            for size in tables
            for key in ("time_of", "share_of")
        ]
        place = texts.place(main_place(self._findings, device), short=True)
        caption = texts.plain(
            "caption", "operations", phase=Label(phase), place=place, view=Word(view)
        )
        files = tuple(sheet.file for sheet in tables.values())
        parts: list[Part] = [texts.rows(caption, heads, rows, files, numbers=2 * len(tables))]
        if view == "host":  # total times are those of the host
            size = max(tables)
            parts.append(self._calls(tables[size], phase=Label(phase), size=size, place=place))
        return parts

    def _calls(self, sheet: Sheet, **words: object) -> Table:
        """Return calls and total times of the most expensive operations of one batch size."""
        texts = self._texts
        rows = list[Sequence[str]]()
        for row in sheet.written:
            calls = float(row["calls"] or 0)
            total_ns = float(row["total_ns"] or 0)
            if row["operation"] in NOT_OPERATIONS or not calls or len(rows) == TOP:
                continue
            names = (str(row[key] or units.MISSING) for key in ("phase", "module"))
            times = (float(row["self_ns"] or 0), total_ns, total_ns / calls)
            cells = (units.count(calls), *map(units.duration, times))
            rows.append((Code(row["operation"]), *names, *cells))
        keys = ("operation", "phase", "module", "calls", "self_time", "total_time", "per_call")
        heads = [texts.plain("column", key) for key in keys]
        return texts.rows(
            texts.plain("caption", "calls", **words), heads, rows, (sheet.file,), numbers=4
        )

    def _batches(self) -> list[Part]:
        findings = self._findings
        texts = self._texts
        main = [main_place(findings, device) for device in findings.settings.devices]
        parts: list[Part] = [self._explained("batches")]
        for picture, caption, sheet in (
            ("batches", "iterations", self._sheets.iterations),
            ("epochs", "epochs", self._sheets.epochs),
        ):
            parts += self._picture(picture, [sheet])
            rows = [time for time in sheet.rows if time.place in main]
            parts.append(texts.table(caption, sheet, rows))
        return parts

    def _devices(self) -> list[Part]:
        sheets = self._sheets
        texts = self._texts
        parts: list[Part] = [self._explained("devices")]
        if self._findings.settings.accelerator:
            steps = [time for time in sheets.iterations.rows if time.phase == "step"]
            parts += [
                texts.table("devices", sheets.iterations, steps),
                texts.table("devices", sheets.epochs),
            ]
        elif len(set(sheets.iterations.values("threads", device="cpu"))) > 1:
            cpu_times = [time for time in sheets.iterations.rows if time.device == "cpu"]
            parts.append(texts.table("threads", sheets.iterations, cpu_times))
        return parts

    def _first_iterations(self) -> list[Part]:
        sheets = self._sheets
        texts = self._texts
        sheet = sheets.first_iterations
        parts: list[Part] = [
            self._explained("first_iterations"),
            *self._picture("first-iterations", [sheet]),
        ]
        if sheet.rows:
            parts += [
                texts.text("text", "first_iterations"),
                texts.table("first_iterations", sheet),
            ]
        for (phase, device, size, weights), operations in sheets.first_operations.items():
            if (phase, size, weights) == ("forward", 1, UNTRAINED):
                table = texts.table(
                    "first_operations", operations, operations.rows[:TOP], device=device
                )
                parts += [texts.text("text", "first_operations"), table]
        return parts

    def _claims(self) -> list[Part]:
        texts = self._texts
        rows = [
            (
                texts.text("claim", claim.key, **claim.words),
                self._figures(claim.reports),
                self._figures(claim.right),
                texts.text("verdict", claim.verdict),
                texts.text("reason", claim.reason),
            )
            for claim in check(self._findings, self._sheets)
        ]
        heads = [
            texts.plain("column", key)
            for key in ("claim", "by_reports", "by_right", "verdict", "why")
        ]
        return [
            texts.text("text", "claims"),
            texts.rows(texts.plain("caption", "claims"), heads, rows),
        ]

    def _figures(self, figures: Sequence[Sentence]) -> Text:
        pieces: list[str | Cited] = []
        for figure in figures:
            pieces += [self._texts.plain("report", "comma")] if pieces else []
            pieces += self._texts.text(
                "figures_of_claims", figure.key, **figure.words, **figure.numbers
            )
        return Text(pieces or [units.MISSING])

    def _studies(self) -> list[Part]:
        """Show the tables of the studies without the rows of layers and of idle parts."""
        parts: list[Part] = []
        for name, sheet in self._sheets.studies.items():
            rows = [
                row
                for row in sheet.rows
                if row.get("layer") in (None, "all layers") and row.get("eager_ns") != 0
            ]
            parts += [
                self._texts.text("text", _STUDIES[name]),
                self._texts.table(_STUDIES[name], sheet, rows),
            ]
        return parts

    def _files(self) -> list[Part]:
        findings = self._findings
        texts = self._texts
        files = [
            "lab.json",
            *(sheet.file for sheet in self._sheets.all() if sheet.rows),
            *findings.traces,
            "tables/numbers.csv",
        ]
        parts: list[Part] = [texts.text("text", "files"), [Text([Code(file)]) for file in files]]
        if any(run.directory for run in findings.trainings):
            parts.append(texts.text("text", "tensorboard", directory="tensorboard"))
        if findings.traces:
            parts.append(texts.text("text", "traces"))
        if findings.notes:
            parts += [texts.text("text", "notes"), [Text([note]) for note in findings.notes]]
        return parts

    def _explained(self, section: str) -> list[Text]:
        return [self._explanation(sentence) for sentence in self._sentences[section]]

    def _explanation(self, sentence: Sentence) -> Text:
        return self._texts.text("explain", sentence.key, **sentence.words, **sentence.numbers)

    def _picture(self, name: str, sheets: Iterable[Sheet]) -> list[Figure]:
        if name not in self._pictures:
            return []
        key = "first_iterations" if name == "first-iterations" else name.partition("-")[0]
        files = tuple(sheet.file for sheet in sheets)
        return [Figure(name, self._texts.plain("figure", key), files)]

    def _table(self, caption: str, sheet: Sheet) -> list[Table]:
        return [self._texts.table(caption, sheet)] if sheet.rows else []


def field_name(texts: Texts, field: str) -> str:
    """Return the name of a field of the environment."""
    if texts.has("field", field):
        return texts.plain("field", field)
    accelerator, _, rest = field.partition("_")
    number_of = accelerator.removeprefix("accelerator")
    return (
        f"{texts.plain('field', 'accelerator')}{' ' + number_of if number_of else ''}: "
        f"{rest.replace('_', ' ')}"
    )


def field_value(field: str, value: str) -> str:
    """Return the value of a field as text: memory with its unit, counts with separators."""
    if not value.isdecimal():
        return value
    if field.endswith("_memory"):
        return units.size(int(value))
    return (
        units.count(int(value))
        if field in ("train_samples", "test_samples", "parameters")
        else value
    )
