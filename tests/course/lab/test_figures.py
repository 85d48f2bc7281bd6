"""Figures: drawn from any findings, in Chinese only where a font is installed."""

import dataclasses
import itertools
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import matplotlib.legend
import pytest
from drawing_elsewhere import drawn_alike
from lab_builders import S, cluster, laptop, without_device_view, without_numbers
from matplotlib import font_manager
from matplotlib.figure import Figure

from mnistbench.course.lab import figures
from mnistbench.course.lab.figures import Figures, chinese_font
from mnistbench.course.lab.sheets import sheets_of
from mnistbench.course.lab.texts import Texts


@pytest.fixture
def saved_figures(monkeypatch):
    """Figures by the names of their files, as soon as these are written."""
    figures_by_name = {}
    savefig = Figure.savefig

    def keep(figure, path, **options):
        figures_by_name[path.stem] = figure
        savefig(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures_by_name


@pytest.fixture
def _unwritten(monkeypatch):
    """Figures are drawn into no file, where their names and lines are of interest alone."""
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)


#: Draws a figure with a dollar sign in a label, in a process that has not imported matplotlib.
PROGRAM = """
from pathlib import Path

from mnistbench.course.lab.figures import Figures
from mnistbench.course.lab.texts import Texts

Figures(Path(), Texts("en")).speedups({"a$x$": [("s001", 1.2, 1.1, 1.3)]}, (1.05,))
"""


@pytest.mark.versions
@pytest.mark.parametrize(
    "content", [b"text.usetex: True\nsavefig.format: pdf\n", b"font.size: 3\n", b"\xff\n"]
)
def test_a_matplotlibrc_of_the_current_directory_decides_nothing(tmp_path, content):
    assert drawn_alike(tmp_path, PROGRAM, "figures/speedups.svg", content)


@pytest.mark.versions
def test_numbers_and_time_outside_operations_are_labelled(tmp_path, saved_figures):
    """A time above 1,000 s has no exponent."""
    slow = tuple(
        dataclasses.replace(time, times_ns=(1_540 * S,) * 3) for time in laptop().epoch_times
    )
    findings = laptop(epoch_times=slow)
    Figures(tmp_path, Texts("en")).draw(findings, sheets_of(findings))
    texts = [text.get_text() for text in saved_figures["epochs"].axes[0].texts]
    assert set(texts) == {"1,540"}
    [legend] = saved_figures["operations-forward-cpu"].legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels[-2:] == ["other operations", "time outside operations"]
    axes = saved_figures["operations-forward-cpu"].axes[0]
    widths = [bars.datavalues[0] for bars in axes.containers]
    assert sum(widths) == pytest.approx(100)
    assert widths[-1] == pytest.approx(100 * 20 / (400 + 4 + 100 + 3 * 20))
    graph = saved_figures["graph"].axes[0]
    assert "input (1 x 28 x 28)" in [text.get_text() for text in graph.texts]
    assert not saved_figures["first-iterations"].axes[0].containers  # no bars on a logarithmic axis


@pytest.mark.versions
def test_every_figure_is_drawn_as_svg_and_png(tmp_path):
    drawing = Figures(tmp_path, Texts("en"))
    findings = cluster()
    drawing.draw(findings, sheets_of(findings))
    devices = findings.settings.devices
    assert set(drawing.drawn) == {
        "graph",
        "batches",
        "epochs",
        "first-iterations",
        *(
            f"{kind}-{device}"
            for device in devices
            for kind in ("curves", "operations-forward", "operations-step")
        ),
    }
    for name in drawing.drawn:
        assert ET.parse(tmp_path / "figures" / f"{name}.svg").getroot().tag.endswith("svg")
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_machine_that_takes_seconds_for_a_legend_draws_without_a_warning(tmp_path, monkeypatch):
    clock = SimpleNamespace(perf_counter=itertools.count(0, 10).__next__)
    monkeypatch.setattr(matplotlib.legend, "time", clock)
    findings = laptop()
    Figures(tmp_path, Texts("en")).draw(findings, sheets_of(findings))


@pytest.mark.versions
def test_the_same_findings_give_the_same_figures(tmp_path):
    for name in ("a", "b"):
        drawing = Figures(tmp_path / name, Texts("en"))
        drawing.machines({"laptop": laptop(), "cluster": cluster()})
    first, second = (
        (tmp_path / name / "figures" / "machines.svg").read_bytes() for name in ("a", "b")
    )
    assert first == second


def test_machines_of_any_name_stand_in_the_legend(tmp_path, saved_figures):
    Figures(tmp_path, Texts("en")).machines(dict.fromkeys(["_spare", "$x$", "a\x1bb"], laptop()))
    [legend] = saved_figures["machines"].legends
    assert [text.get_text() for text in legend.get_texts()] == [
        " _spare: CPU, 2 threads",
        r"\$x\$: CPU, 2 threads",
        r"a\x1bb: CPU, 2 threads",
    ]


def test_what_is_missing_is_not_drawn(tmp_path):
    empty = without_numbers(laptop())
    drawing = Figures(tmp_path, Texts("en"))
    drawing.draw(empty, sheets_of(empty))
    assert drawing.drawn == ["graph"]
    broken = dataclasses.replace(
        laptop().trainings[0],
        curve=(dataclasses.replace(laptop().trainings[0].curve[0], loss=None),),
    )
    # A loss that is not finite is a gap.
    drawing.draw(dataclasses.replace(empty, trainings=(broken,)), sheets_of(empty))


@pytest.mark.usefixtures("_unwritten")
def test_a_host_s_table_is_no_picture_of_an_accelerator(tmp_path):
    drawing = Figures(tmp_path, Texts("en"))
    findings = without_device_view(cluster())
    drawing.draw(findings, sheets_of(findings))
    assert [name for name in drawing.drawn if name.startswith("operations-step")] == [
        "operations-step-cpu"
    ]


def install(monkeypatch, *families, of_system=()):
    """Let matplotlib know these font families only, and the system have other files of fonts."""
    known = font_manager.fontManager.ttflist[0]
    entries = [dataclasses.replace(known, name=family) for family in families]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(path) for path in of_system])


@pytest.mark.parametrize(
    ("families", "font"),
    [
        (["DejaVu Sans", "Last Resort High-Efficiency"], ""),
        (["DejaVu Sans", "WenQuanYi Zen Hei"], "WenQuanYi Zen Hei"),
        (["WenQuanYi Zen Hei", "Noto Sans CJK JP", "Noto Sans CJK SC"], "Noto Sans CJK SC"),
    ],
)
def test_labels_are_chinese_only_where_a_chinese_font_is_installed(
    monkeypatch, tmp_path, families, font
):
    install(monkeypatch, *families)
    assert chinese_font() == font
    assert Figures(tmp_path, Texts("zh")).texts.language == ("zh" if font else "en")


def test_a_font_that_was_installed_since_is_found(monkeypatch, tmp_path):
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    dejavu = font_manager.findfont("DejaVu Sans")
    install(monkeypatch, of_system=[tmp_path / "broken.ttf", dejavu])
    monkeypatch.setattr(figures, "_CHINESE_FONTS", ("DejaVu Sans",))
    assert chinese_font() == "DejaVu Sans"


@pytest.mark.usefixtures("_unwritten")
def test_the_numbers_of_a_figure_are_those_of_the_findings(tmp_path, saved_figures):
    """The graph's texts are drawn as paths; what went in is read off the axes instead."""
    findings = laptop()
    Figures(tmp_path, Texts("en")).draw(findings, sheets_of(findings))
    batch, sample = saved_figures["batches"].axes
    lines = {line.get_label(): list(line.get_ydata()) for line in batch.lines}
    assert lines["training step, CPU, 2 threads"] == pytest.approx([5.0, 20.0, 64.0])
    assert list(sample.lines[0].get_ydata()) == pytest.approx([5.0, 1.25, 1.0])
    curves = saved_figures["curves-cpu"].axes[0].lines
    assert [line.get_label() for line in curves][:2] == [
        "batch 1, training",
        "batch 1, test",
    ]
    colours = {line.get_color() for line in curves}
    assert len(colours) == 3  # one for each batch size


def test_any_name_of_a_student_and_any_speedup_can_be_drawn(tmp_path, monkeypatch):
    ticks = []
    savefig = Figure.savefig

    def keep(figure, *arguments, **options):
        ticks.extend(label.get_text() for label in figure.axes[0].get_yticklabels())
        savefig(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    monkeypatch.setattr(figures, "chinese_font", lambda: "")
    rows = {
        "_CPU $x$": [("_s1", 1.2, 1.1, 1e300), ("Zo\u00eb \u5b66", 1e-9, 0.0, 1.0)],
        "": [("$y", 1.0, 1.0, 1.0)],
    }
    drawing = Figures(tmp_path, Texts("en"))
    drawing.speedups(rows, (1.05, 2.0))
    assert drawing.drawn == ["speedups"]
    assert set(ticks) == {" _s1", "Zo\u00eb \\u5b66", r"\$y"}
    assert "nan" not in (tmp_path / "figures" / "speedups.svg").read_text(encoding="utf-8").lower()
