"""Tables and reports in every format: columns over values, sums, JSON, CSV.

Files that are written whole or not at all.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from mnistbench import __version__
from mnistbench.core import units
from mnistbench.core.errors import UsageError
from mnistbench.showing import output
from mnistbench.showing.output import (
    append_to_step_summary,
    check,
    check_directory,
    deliver,
    deliver_text,
    print_error,
    render,
)
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table, csv_text, text_table
from mnistbench.showing.terminal import draw, draw_report


@dataclass(frozen=True)
class Layer:
    name: str
    saved: int | None
    note: str = ""


COLUMNS = (
    Column[Layer]("layer", lambda layer: layer.name, key="layer"),
    Column[Layer]("saved KiB", lambda layer: layer.saved, units.kibibytes, key="saved_bytes"),
    Column[Layer]("note", lambda layer: layer.note),
    Column[Layer](None, lambda layer: len(layer.name), key="length"),
)
TABLE = Table(
    "Layers",
    COLUMNS,
    (Layer("conv1", 2048), Layer("fc", None, "=1+1")),
    (Layer("sum", 2048),),
    ("One line.",),
)
REPORT = Report(
    "memory",
    [Block("Model", ("LeNet",), (TABLE,))],
    document("memory", rows=TABLE.records()),
    TABLE,
)

TERMINAL = """\
Model:
LeNet

Layers
layer      saved KiB  note
-------  -----------  ------
conv1            2.0
fc                 -  =1+1
-------  -----------  ------
sum              2.0
One line.
"""
CSV = "layer,saved_bytes,length\nconv1,2048,5\nfc,,2\nsum,2048,3\n"
RECORDS = [
    {"layer": "conv1", "saved_bytes": 2048, "length": 5},
    {"layer": "fc", "saved_bytes": None, "length": 2},
]


def without_spaces_at_ends(text):
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def test_each_format_draws_the_same_columns():
    assert without_spaces_at_ends(render(REPORT, "terminal")) == TERMINAL
    assert "| layer | saved KiB | note |\n| --- | ---: | --- |\n| conv1 | 2.0 |  |\n" in render(
        REPORT, "markdown"
    )
    assert render(REPORT, "csv") == CSV
    assert json.loads(render(REPORT, "json")) == {
        "schema": 1,
        "report": "memory",
        "mnistbench": __version__,
        "rows": RECORDS,
    }


def test_a_table_of_finished_texts_has_words_numbers_words():
    table = text_table(
        "t", ("op", "b1 us", "b16 us", "verdict"), [("mm", "1,234.50", "2", "ok")], words_after=1
    )
    assert [column.is_number for column in table.columns] == [False, True, True, False]
    assert draw(table).splitlines()[-1] == "mm    1,234.50         2  ok"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-x", "'-x"),
        ("@SUM(1)", "'@SUM(1)"),
        ("a\nb", "a\\nb"),
        (-1.5, "-1.5"),
        (None, ""),
    ],
)
def test_csv_has_no_formulas_and_no_line_ends_in_cells(value, cell):
    assert csv_text(["name"], [[value]]).splitlines()[1:] == [cell or '""']


@pytest.mark.parametrize(
    ("verdict", "colour"),
    [("regressed", "31"), ("improved", "32"), ("missing", "33"), ("within", "")],
)
def test_verdicts_have_colours_on_a_terminal(verdict, colour):
    table = text_table("", ("op", "verdict"), [("mm", verdict)], words_after=1)
    drawn = draw(table, colour=True)
    assert (f"\x1b[{colour}m{verdict}\x1b[0m" in drawn) == bool(colour)
    assert "\x1b" not in draw(table)


def test_blocks_are_separated_by_empty_lines_and_control_characters_are_escaped():
    blocks = [Block("", ("a\x1bb",)), Block("Plot", drawing=" |x\n +-"), Block("Empty")]
    assert draw_report(blocks) == "a\\x1bb\n\nPlot:\n |x\n +-"


# ---- Output --------------------------------------------------------------------------------------


def test_a_report_is_printed_or_written(tmp_path, capsys):
    deliver(REPORT, "csv", None)
    assert capsys.readouterr().out == CSV
    deliver(REPORT, "csv", tmp_path / "report.csv")
    assert (tmp_path / "report.csv").read_text(encoding="utf-8") == CSV
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gone/report", "No such file or directory"),
        (".", "Is a directory"),
        ("file/report", "Not a directory"),
        ("n" * 300, "File name too long"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_and_after_measuring(
    tmp_path, monkeypatch, name, why
):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("kept", encoding="utf-8")
    for attempt in (check, lambda path: deliver_text("text", path)):
        with pytest.raises(UsageError) as error:
            attempt(Path(name))
        assert str(error.value) == f"--output: {name} cannot be written ({why}); name another file"
    assert [path.name for path in Path().iterdir()] == ["file"]


def test_a_folder_without_permission_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(output.os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(UsageError, match="Permission denied"):
        check(tmp_path / "report")


def test_a_device_is_written_to_directly():
    deliver_text("text", Path(os.devnull))
    assert not Path(os.devnull).is_file()


def test_what_can_be_written_is_checked_and_left_as_it_is(tmp_path):
    (tmp_path / "old").write_text("old", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    for path in (*(tmp_path / name for name in ("old", "new", "pipe", "link")), Path(os.devnull)):
        check(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "old", "pipe"]
    assert (tmp_path / "old").read_text(encoding="utf-8") == "old"


def test_an_error_is_one_printable_line(capsys):
    print_error(UsageError("--by: 'a\nb' is not known"))
    assert capsys.readouterr().err == "mnistbench: --by: 'a\\nb' is not known\n"


def test_step_summary_of_github_is_appended_to(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    assert [append_to_step_summary(lambda: REPORT) for _ in range(2)] == ["", ""]
    text = render(REPORT, "markdown")
    assert (tmp_path / "summary").read_text(encoding="utf-8") == f"{text}\n{text}\n"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert (
        append_to_step_summary(lambda: REPORT)
        == f"GITHUB_STEP_SUMMARY: {tmp_path} cannot be written (Is a directory)"
    )


def test_a_directory_with_other_contents_is_refused_unless_they_may_be_replaced(tmp_path):
    (tmp_path / "thesis.tex").touch()
    check_directory(tmp_path)
    check_directory(tmp_path, own=("labs.json", "thesis.tex"))
    check_directory(tmp_path / "new" / "folder", own=())
    for own in ((), ("labs.json",)):
        with pytest.raises(
            UsageError,
            match=r"^DIR: .* contains files of something else; name a new or an empty directory$",
        ):
            check_directory(tmp_path, "DIR", own=own)
    with pytest.raises(
        UsageError, match=r"^--write: .*thesis\.tex is not a directory; name another directory$"
    ):
        check_directory(tmp_path / "thesis.tex" / "below", "--write")


def test_an_error_that_quotes_a_long_text_is_one_short_line(capsys):
    print_error(UsageError("x" * 10_000_000))
    assert len(capsys.readouterr().err) < 5_000


@pytest.mark.parametrize("format_name", ["terminal", "markdown"])
def test_a_long_name_does_not_widen_all_rows(format_name):
    table = text_table("names", ["name", "n"], [["x" * 1_000_000, "1"], ["y", "2"]])
    text = render(Report("names", (Block("", tables=(table,)),)), format_name)
    assert max(map(len, text.splitlines())) < 400
