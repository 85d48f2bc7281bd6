"""Draw the figures of a report with matplotlib, as SVG and PNG.

The colours are Okabe and Ito's, which colour-blind readers can distinguish.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from mnistbench.core import units
from mnistbench.core.operation import operation_name
from mnistbench.course.lab.lab_file import UNTRAINED, Findings
from mnistbench.course.lab.sentences import best_view, main_place
from mnistbench.course.lab.sheets import (
    Sheets,
    in_a_name,
    operation_column,
    samples_seen,
    shape,
)
from mnistbench.course.lab.texts import Texts
from mnistbench.showing.drawing import (
    FancyBboxPatch,
    Figure,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    cycler,
    default_settings,
    font_manager,
)
from mnistbench.showing.side_by_side import SideBySide

#: Okabe and Ito, "Color Universal Design" (2008), without yellow, which is pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
#: Operations with a colour of their own in a stacked bar.
STACKED = 6
_GREY = "#B8BEC5"
#: Shape of an image of digits and of MNIST.
IMAGE_SHAPE = (1, 28, 28)
#: Axes whose lines have a colour and a marker each.
_LINES = {"prop_cycle": cycler(color=COLOURS, marker=[*"osD^vPX"])}
#: Where a legend hides least. If it is not given, matplotlib warns where it takes a second to find
#: it, as on a busy machine.
_FREE_PLACE: Final = "best"

#: matplotlib's own font, which has Latin, Greek and Cyrillic letters.
_DEFAULT_FONT = "DejaVu Sans"
#: Beginnings of the names of font families with simplified Chinese, the preferred first.
_CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans",
    "Noto Sans CJK",
    "WenQuanYi",
    "Microsoft YaHei",
    "PingFang",
    "SimHei",
    "Heiti",
    "Droid Sans Fallback",
)
#: Seed of the ids in an SVG, so that the same numbers give the same file.
_SALT = "mnistbench"


def chinese_font() -> str:
    """Return the preferred installed family of :data:`_CHINESE_FONTS`; empty if there is none."""
    if family := _listed_chinese_font():
        return family
    # matplotlib keeps a list of fonts, which may be older than an installed one.
    listed_files = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in set(font_manager.findSystemFonts()) - listed_files:
        with contextlib.suppress(OSError, RuntimeError):  # FreeType cannot read the font
            font_manager.fontManager.addfont(path)
    return _listed_chinese_font()


def _listed_chinese_font() -> str:
    families = sorted({entry.name for entry in font_manager.fontManager.ttflist})
    preferred = (
        family
        for beginning in _CHINESE_FONTS
        for family in families
        if family.startswith(beginning)
    )
    return next(preferred, "")


class Figures:
    """Draws the figures of one report into its directory."""

    def __init__(self, directory: Path, texts: Texts) -> None:
        """Draw into ``directory``/figures.

        The figures are in the language of the texts, or in English if a Chinese text has no font.
        """
        self._directory = directory / "figures"
        self._chinese_font = "" if texts.language == "en" else chinese_font()
        self.texts = texts if self._chinese_font or texts.language == "en" else Texts("en")
        self.drawn: list[str] = []

    def draw(self, findings: Findings, sheets: Sheets) -> None:
        """Draw all figures for which the findings have numbers."""
        with self._canvas("graph", (6.4, 0.62 * len(findings.layers) + 1.0)) as figure:
            self._graph(figure, findings)
        for device in findings.settings.devices:
            name = in_a_name(device)
            if any(run.device == device and run.curve for run in findings.trainings):
                with self._canvas(f"curves-{name}", (9.6, 3.9)) as figure:
                    self._curves(figure, findings, device)
            for phase in ("forward", "step"):
                self._operations(findings, sheets, phase, device)
        if findings.iteration_times:
            with self._canvas("batches", (9.6, 3.9)) as figure:
                self._batches(figure, findings)
        if findings.epoch_times:
            with self._canvas("epochs", (9.6, 3.6)) as figure:
                self._epochs(figure, findings)
        if any(call.weights == UNTRAINED and call.warm_ns for call in findings.first_iterations):
            with self._canvas("first-iterations", (9.6, 3.6)) as figure:
                self._first_iterations(figure, findings)

    @property
    def _font_families(self) -> list[str]:
        return [*filter(None, [self._chinese_font]), _DEFAULT_FONT]

    @contextmanager
    def _canvas(self, name: str, size: tuple[float, float]) -> Iterator[Figure]:
        """Provide a figure to draw on, and write its files at the end."""
        settings = {
            "svg.hashsalt": _SALT,
            "font.size": 9.5,
            "legend.fontsize": 8,
            "legend.frameon": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.unicode_minus": False,
            "font.family": self._font_families,  # matplotlib takes each glyph of the first one
        }
        with default_settings(settings):
            figure = Figure(figsize=size, layout="constrained")
            yield figure
            self._directory.mkdir(parents=True, exist_ok=True)
            for ending, metadata in (("svg", {"Date": None}), ("png", {})):
                figure.savefig(
                    self._directory / f"{name}.{ending}", dpi=150, metadata=metadata, format=ending
                )
        self.drawn.append(name)

    def _label(self, key: str, **values: object) -> str:
        return self.texts.plain("label", key, **values)

    def _graph(self, figure: Figure, findings: Findings) -> None:
        """Draw a box per layer from top to bottom, with output shapes beside the arrows."""
        layers = findings.layers
        axes = figure.add_subplot()
        axes.set_axis_off()
        axes.set(xlim=(0, 10), ylim=(-len(layers) - 0.5, 1))
        text = f"{self._label('input')} ({shape(IMAGE_SHAPE)})"
        axes.text(3.1, 0.5, text, ha="center", va="center")
        for row, layer in enumerate(layers):
            y = -row - 0.55
            coloured = layer.parameters > 0
            axes.add_patch(
                FancyBboxPatch(
                    (0.6, y - 0.28),
                    5.0,
                    0.56,
                    boxstyle="round,pad=0.02,rounding_size=0.12",
                    facecolor="#DCEBF7" if coloured else "#F1F3F5",
                    edgecolor=COLOURS[0] if coloured else _GREY,
                )
            )
            axes.text(0.85, y, layer.name, va="center", weight="bold" if coloured else "normal")
            axes.text(5.35, y, layer.kind, va="center", ha="right", color="#444B53")
            if coloured:
                axes.text(
                    5.95,
                    y,
                    self._label("parameters", count=units.count(layer.parameters)),
                    va="center",
                )
            axes.annotate(
                "",
                (3.1, y + 0.3),
                (3.1, y + 0.7),
                arrowprops={"arrowstyle": "->", "color": "#57606A"},
            )
            axes.text(
                3.3, y - 0.5, shape(layer.output_shape), va="center", fontsize=8, color="#57606A"
            )

    def _curves(self, figure: Figure, findings: Findings, device: str) -> None:
        loss, accuracy = figure.subplots(1, 2)
        runs = [run for run in findings.trainings if run.device == device]
        for run, colour in zip(runs, itertools.cycle(COLOURS), strict=False):
            name = self._label("batch", size=run.batch_size)
            seen = samples_seen(run.curve)
            ends = [findings.train_samples * epoch.number for epoch in run.epochs]
            for axes, points, tests in (  # None is a gap in a line
                (
                    loss,
                    [point.loss for point in run.curve],
                    [epoch.test_loss for epoch in run.epochs],
                ),
                (
                    accuracy,
                    [point.accuracy for point in run.curve],
                    [epoch.test_accuracy for epoch in run.epochs],
                ),
            ):
                axes.plot(
                    seen,
                    points,
                    color=colour,
                    linewidth=1.1,
                    alpha=0.75,
                    label=f"{name}, {self._label('train')}",
                )
                axes.plot(
                    ends,
                    tests,
                    color=colour,
                    linestyle="--",
                    marker="o",
                    markersize=4,
                    label=f"{name}, {self._label('test')}",
                )
        for axes, key in ((loss, "loss"), (accuracy, "accuracy")):
            axes.set(xlabel=self._label("samples"), ylabel=self._label(key))
            axes.grid(alpha=0.25)
        _logarithmic_values(loss)
        accuracy.set_ylim(top=100.5)
        accuracy.legend(loc="lower right")

    def _operations(self, findings: Findings, sheets: Sheets, phase: str, device: str) -> None:
        columns = {
            size: operation_column(sheet)
            for size in findings.settings.batch_sizes
            if (sheet := best_view(sheets, phase, device, size))
        }
        if not columns:
            return
        keys = SideBySide(list(columns.values())).ranked[:STACKED]
        with self._canvas(
            f"operations-{phase}-{in_a_name(device)}", (9.6, 0.62 * len(columns) + 1.9)
        ) as figure:
            axes = figure.add_subplot()
            names = [self._label("batch", size=size) for size in columns]
            left = [0.0] * len(columns)
            for key, colour in zip(keys, itertools.cycle(COLOURS), strict=False):
                parts = [100 * column.share(key) for column in columns.values()]
                axes.barh(
                    names,
                    parts,
                    left=left,
                    color=colour,
                    edgecolor="white",
                    label=_as_it_is(operation_name(*key)),
                )
                left = [before + part for before, part in zip(left, parts, strict=True)]
            outside = [
                100 * sum(column.rest.values()) / (column.total or 1) for column in columns.values()
            ]
            for widths, label, hatch in (
                ([100 - by - part for by, part in zip(outside, left, strict=True)], "rest", ""),
                (outside, "outside", "//"),
            ):
                axes.barh(
                    names,
                    widths,
                    left=left,
                    color=_GREY,
                    edgecolor="white",
                    hatch=hatch,
                    label=self._label(label),
                )
                left = [before + width for before, width in zip(left, widths, strict=True)]
            axes.invert_yaxis()
            axes.set(xlim=(0, 100), xlabel=self._label("share"))
            axes.set_title(
                (
                    f"{self._label(phase)}, "
                    f"{self.texts.place(main_place(findings, device), short=True)}"
                ),
                fontsize=10,
                loc="left",
            )
            figure.legend(loc="outside lower center", ncols=2)

    def _batches(self, figure: Figure, findings: Findings) -> None:
        batch, sample = figure.subplots(1, 2, subplot_kw=_LINES)
        for place, phase in dict.fromkeys(
            (row.place, row.phase) for row in findings.iteration_times
        ):
            rows = [
                row for row in findings.iteration_times if (row.place, row.phase) == (place, phase)
            ]
            sizes = [row.batch_size for row in rows]
            label = f"{self._label(phase)}, {self.texts.place(place, short=True)}"
            for axes, times in (
                (batch, [row.median_ns / 1e6 for row in rows]),
                (sample, [row.median_ns / row.batch_size / 1e6 for row in rows]),
            ):
                axes.plot(sizes, times, label=label)
        for axes, key in ((batch, "per_batch"), (sample, "per_sample")):
            _logarithmic(axes, findings.settings.batch_sizes)
            axes.set(xlabel=self._label("batch_size"), ylabel=self._label(key))
        handles, labels = batch.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)

    def _epochs(self, figure: Figure, findings: Findings) -> None:
        for axes, phase in zip(figure.subplots(1, 2), ("train", "eval"), strict=True):
            rows = [row for row in findings.epoch_times if row.phase == phase]
            places = list(dict.fromkeys(row.place for row in rows))
            sizes = findings.settings.batch_sizes
            for number, place in enumerate(places):
                times = {row.batch_size: row.whole_ns / 1e9 for row in rows if row.place == place}
                self._bars(
                    axes,
                    number,
                    len(places),
                    [times.get(size) for size in sizes],
                    self.texts.place(place, short=True),
                )
            axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
            axes.set(xlabel=self._label("batch_size"), ylabel=self._label("per_epoch"))
            axes.set_title(self._label(phase), fontsize=10, loc="left")
            if phase == "train":
                axes.legend(loc=_FREE_PLACE)

    def _first_iterations(self, figure: Figure, findings: Findings) -> None:
        calls = [call for call in findings.first_iterations if call.weights == UNTRAINED]
        axes = figure.add_subplot()
        # Points, because a bar on a logarithmic axis has no meaningful length.
        firsts = [call.cold.ns / 1e6 for call in calls]
        warms = [call.warm_ns / 1e6 if call.warm_ns else None for call in calls]
        for times, key, colour in ((firsts, "first", COLOURS[0]), (warms, "warm", COLOURS[1])):
            known = [(place, ms) for place, ms in enumerate(times) if ms is not None]
            axes.plot(*zip(*known, strict=True), "o", color=colour, label=self._label(key))
            for place, ms in known:
                axes.annotate(
                    units.factor(ms), (place, ms), (6, 0), textcoords="offset points", va="center"
                )
        axes.set_xlim(-0.5, len(calls) - 0.3)
        axes.margins(y=0.15)
        axes.grid(axis="y", alpha=0.25)
        names = [f"{self._label(call.phase)}\n{call.device}, b{call.batch_size}" for call in calls]
        axes.set_xticks(range(len(calls)), names, fontsize=8)
        _logarithmic_values(axes)
        axes.set_ylabel(self._label("time"))
        axes.legend(loc=_FREE_PLACE)

    def machines(self, machines: Mapping[str, Findings]) -> None:
        """Draw the time per sample of a training step, with a line per machine and place."""
        with self._canvas("machines", (9.6, 4.2)) as figure:
            axes = figure.subplots(subplot_kw=_LINES)
            for name, findings in machines.items():
                for device in findings.settings.devices:
                    place = main_place(findings, device)
                    rows = [
                        row
                        for row in findings.iteration_times
                        if row.phase == "step" and row.place == place
                    ]
                    times = [row.median_ns / row.batch_size / 1e6 for row in rows]
                    label = f"{_as_it_is(name)}: {self.texts.place(place, short=True)}"
                    axes.plot([row.batch_size for row in rows], times, label=label)
            _logarithmic(
                axes,
                sorted(
                    {
                        size
                        for findings in machines.values()
                        for size in findings.settings.batch_sizes
                    }
                ),
            )
            axes.set(xlabel=self._label("batch_size"), ylabel=self._label("per_sample"))
            figure.legend(loc="outside lower center", ncols=2)

    def speedups(
        self,
        families: Mapping[str, Sequence[tuple[str, float, float, float]]],
        bands: Sequence[float],
    ) -> None:
        """Draw (name, ratio, low, high) of each student, by machine family.

        Each band has a line.
        """
        names = [*families, *(row[0] for rows in families.values() for row in rows)]
        if not "".join(names).isascii():
            self._chinese_font = chinese_font()
        position = itertools.count(0, -1)  # from top to bottom
        with self._canvas(
            "speedups", (9.6, 1.4 + 0.2 * sum(len(rows) + 1 for rows in families.values()))
        ) as figure:
            axes = figure.add_subplot()
            ticks = dict[int, str]()
            axes.set_xscale("log")
            for band in (1, *bands):
                axes.axvline(
                    band,
                    color=_GREY,
                    linewidth=2 if band == 1 else 0.8,
                    linestyle="-" if band == 1 else "--",
                )
            for (name, rows), colour in zip(
                families.items(), itertools.cycle(COLOURS), strict=False
            ):
                places = [next(position) for _ in rows]
                students, *values = zip(*rows, strict=True)
                # One may be forged.
                ratios, lows, highs = (
                    [min(max(0.1, number), 10.0) for number in numbers] for numbers in values
                )
                axes.hlines(places, lows, highs, color=colour, linewidth=1.6)
                axes.plot(
                    ratios, places, "o", color=colour, markersize=5, label=self._literal(name)
                )
                ticks.update(zip(places, map(self._literal, students), strict=True))
                next(position)  # a blank row between families
            axes.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
            axes.set_xticks([1, *bands], [f"{band:g}" for band in (1, *bands)])
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel(self._label("speedup"))
            figure.legend(loc="outside lower center", ncols=2)

    def _literal(self, name: str) -> str:
        """Return a name as :func:`_as_it_is`, with escapes of characters that no font has."""
        fonts = [
            font_manager.get_font(font_manager.findfont(family)) for family in self._font_families
        ]

        def is_drawn(sign: str) -> bool:
            return any(font.get_char_index(ord(sign)) for font in fonts)

        return _as_it_is("".join(sign if is_drawn(sign) else ascii(sign)[1:-1] for sign in name))

    @staticmethod
    def _bars(axes: Any, number: int, of: int, heights: Sequence[float | None], label: str) -> None:
        """Draw one group of bars of a grouped chart, with the values above.

        A missing value has no bar.
        """
        width = 0.8 / of
        places = [position + (number - (of - 1) / 2) * width for position in range(len(heights))]
        drawn = axes.bar(
            places,
            [height or 0 for height in heights],
            width * 0.92,
            color=COLOURS[number % len(COLOURS)],
            label=label,
        )
        texts = [units.MISSING if height is None else units.factor(height) for height in heights]
        axes.bar_label(drawn, texts, fontsize=8, padding=2)
        axes.margins(y=0.12)


def _as_it_is(name: str) -> str:
    """Return a name as literal text for a legend.

    Matplotlib reads $ as a formula and skips labels that begin with _.
    """
    shown = units.printable(name).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def _logarithmic(axes: Any, sizes: Sequence[int]) -> None:
    axes.set_xscale("log")
    _logarithmic_values(axes)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.25)


def _logarithmic_values(axes: Any) -> None:
    """Label 1, 2 and 5 of each decade as plain numbers.

    Within one decade there would be one label, or none.
    """
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
