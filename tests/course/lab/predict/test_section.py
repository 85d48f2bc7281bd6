"""The section on predictions in a lab's report.

The table, the calibration, the student's explanations.
"""

import csv
import dataclasses
import io

import pytest
from lab_builders import laptop, recomputed, without_numbers

from mnistbench.core.errors import UsageError
from mnistbench.course.lab.chapters import Chapters
from mnistbench.course.lab.command import write_report
from mnistbench.course.lab.lab_file import FILE, Findings, stored, write_file
from mnistbench.course.lab.predict.predictions import EXPLANATIONS, Predictions
from mnistbench.course.lab.predict.questions import with_predictions
from mnistbench.course.lab.predict.section import calibration, predictions_section
from mnistbench.course.lab.sheets import sheets_of
from mnistbench.course.lab.texts import LANGUAGES, Texts
from mnistbench.showing.html import html_document
from mnistbench.showing.markdown import markdown_document
from mnistbench.showing.table import Table

#: Of the laptop, 6 of 8 hold; the batch size of the drawn question was not measured.
ANSWERS = {
    "operation_small": ("addmm", "relu"),
    "operation_large": ("relu", "convolution"),
    "image": (2, 5, 12),
    "backward": (1, 2, 3),
    "convolutions": (20, 30, 40),
    "accuracy": (80, 94, 99),
    "first": (2, 5, 50),
    "threads": (1, 1.5, 2),
    "image_drawn": (1, 1.1, 1.2),
}


def predicted(answers=ANSWERS, **changes):
    return laptop(
        predictions=Predictions("s_1", "2026-11-25T07:00:00+00:00", "digits", 2, answers), **changes
    )


def report(directory, findings, language="en"):
    """The document, the numbers that it cites and all tables."""
    sheets = with_predictions(findings, sheets_of(findings))
    texts = Texts(language)
    document, numbers = Chapters(
        findings, sheets, texts, (), predictions_section(directory, findings, sheets, texts)
    ).document()
    return document, numbers, sheets


def chapter(directory, findings, language="en"):
    """The section as Markdown."""
    document, _, _ = report(directory, findings, language)
    [section] = [candidate for candidate in document.sections if candidate.name == "predictions"]
    return markdown_document(dataclasses.replace(document, sections=(section,)))


def test_the_section_follows_the_aims_and_has_each_prediction_beside_the_number(tmp_path):
    document, _, _ = report(tmp_path, predicted())
    assert [section.name for section in document.sections][:3] == [
        "aims",
        "predictions",
        "environment",
    ]
    text = chapter(tmp_path, predicted())
    assert (
        "s\\_1 made these predictions before the lab measured anything (finished at "
        "2026-11-25T07:00:00+00:00)."
    ) in text
    rows = [line.split(" | ")[1:] for line in text.splitlines() if line.startswith("|")]
    assert rows == [
        ["prediction", "range", "measured", "in the range |"],
        ["---", "---", "---", "--- |"],
        ["`addmm`", "`addmm, relu`", "`aten::mkldnn_convolution`", "no |"],
        ["`relu`", "`relu, convolution`", "`aten::mkldnn_convolution`", "yes |"],
        ["5", "2 to 12", "[5.00](#n1)", "yes |"],
        ["2", "1 to 3", "[1.61](#n2)", "yes |"],
        ["30 %", "20 % to 40 %", "[85.8 %](#n3)", "no |"],
        ["94 %", "80 % to 99 %", "[93.4 %](#n4)", "yes |"],
        ["5", "2 to 50", "[20.1](#n5)", "yes |"],
        ["1.5", "1 to 2", "[1.60](#n6)", "yes |"],
        ["1.1", "1 to 1.2", "-", "not measured |"],
    ]


def test_the_calibration_is_a_sentence_whose_numbers_are_cited(tmp_path):
    text = chapter(tmp_path, predicted())
    assert (
        "- [6](#n7) of [8](#n8) ranges contain the measured value; at 80 % it would be 6.4. The "
        "ranges are well calibrated"
    ) in text
    # The mean of 10 over 5, 2 over 1.607, 20 over 85.75, 19 over 93.4, 48 over 20.125 and 1 over
    # 1.6.
    assert (
        "- The width of a range of numbers is [1.12](#n9) times its measured value on average."
        in text
    )


def test_every_cited_number_can_be_computed_again_from_the_files(tmp_path):
    _, numbers, sheets = report(tmp_path, predicted())
    files = {
        sheet.file: list(csv.DictReader(io.StringIO(sheet.csv())))
        for sheet in (*sheets.all(), numbers)
    }
    assert "tables/predictions.csv" in files
    for number in files["tables/numbers.csv"]:
        assert recomputed(number, files.__getitem__) == pytest.approx(
            float(number["value"]), rel=1e-9
        ), number


def test_both_languages_have_the_same_table(tmp_path):
    forms = []
    for language in LANGUAGES:
        document, _, _ = report(tmp_path, predicted(), language)
        [table] = [part for part in document.sections[1].parts if isinstance(part, Table)]
        forms.append([row[3] for row in table.cells])
    assert forms[0] == forms[1]
    text = chapter(tmp_path, predicted(), "zh")
    assert "| 30 % | 20 % 至 40 % | [85.8 %](#n3) | 否 |" in text
    assert "[8](#n7) 个范围中有 [6](#n8) 个包含测量值" in text
    assert "范围校准良好" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_report_without_predictions_has_no_section(tmp_path, language):
    document, _, _ = report(tmp_path, laptop(), language)
    assert "predictions" not in [section.name for section in document.sections]
    assert "predictions" not in markdown_document(document)
    assert list(tmp_path.iterdir()) == []


def test_predictions_of_which_nothing_was_measured_are_not_judged(tmp_path):
    text = chapter(
        tmp_path,
        predicted(
            **{
                name: getattr(without_numbers(laptop()), name)
                for name in (
                    "cases",
                    "iteration_times",
                    "epoch_times",
                    "first_iterations",
                    "trainings",
                    "traces",
                )
            }
        ),
    )
    assert text.count("| - | not measured |") == len(ANSWERS)
    assert "ranges contain" not in text
    assert "failed" not in text


# ---- Calibration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inside", "judged", "key"),
    [
        # P(at most k of 11) at 80 %: 5.0 % for 6, 16 % for 7; P(11 of 11) = 8.6 %, P(10 of 10) =
        # 10.7 %.
        (6, 11, "narrow"),
        (7, 11, "right"),
        (10, 11, "right"),
        (11, 11, "wide"),
        (10, 10, "right"),
        (0, 1, "few"),
        (0, 2, "narrow"),
        (1, 1, "few"),
        (4, 4, "few"),
        (4, 5, "right"),
        (0, 11, "narrow"),
    ],
)
def test_ranges_are_too_narrow_or_too_wide_by_a_binomial_test(inside, judged, key):
    assert calibration(inside, judged) == key


def test_narrow_and_wide_ranges_are_named(tmp_path):
    narrow = dict.fromkeys(("image", "backward", "convolutions", "first"), (0, 0, 0))
    assert (
        "[0](#n5) of [4](#n6) ranges contain the measured value; at 80 % it would be 3.2. The "
        "ranges are too narrow"
    ) in chapter(tmp_path, predicted(narrow))


# ---- Explanations --------------------------------------------------------------------------------


def test_a_failed_prediction_asks_for_two_sentences(tmp_path):
    text = chapter(tmp_path, predicted())
    failed = text.partition("These predictions failed.")[2]
    assert (
        failed.count("Not explained yet; write two sentences in `explanations.toml` under the key")
        == 2
    )
    assert "under the key `operation_small`" in failed
    assert "under the key `convolutions`" in failed
    lines = (tmp_path / EXPLANATIONS).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'operation_small = ""',
        'convolutions = ""',
        'summary = ""',
    ]


@pytest.mark.usefixtures("matplotlib")
def test_a_summary_has_a_place_in_the_report(tmp_path):
    write_report(tmp_path, predicted(), "en")
    report = tmp_path / "report.md"
    request = "This is the place for your own summary: write it in `explanations.toml` under the"
    assert request in report.read_text(encoding="utf-8")
    (tmp_path / EXPLANATIONS).write_text('summary = "Bytes matter *more*."\n', encoding="utf-8")
    write_report(tmp_path, predicted(), "en")
    text = report.read_text(encoding="utf-8")
    assert request not in text
    assert "Summary\n\nBytes matter \\*more\\*.\n" in text
    write_report(tmp_path / "none", laptop(), "en")
    assert "Summary" not in (tmp_path / "none" / "report.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("matplotlib")
def test_the_batch_size_of_the_student_is_explained(tmp_path):
    findings = predicted()
    size = findings.predictions.batch_size
    write_report(tmp_path, findings, "en")
    assert f"Batch size {size} was measured, too, because the last three questions" in (
        tmp_path / "report.md"
    ).read_text(encoding="utf-8")


def test_an_explanation_survives_another_report(tmp_path):
    chapter(tmp_path, predicted())
    written = (
        'operation_small = ""\nconvolutions = """I left out the *backward* pass.\nTable <1> shows '
        'it."""\n'
    )
    (tmp_path / EXPLANATIONS).write_text(written, encoding="utf-8")
    text = chapter(tmp_path, predicted())
    assert "I left out the \\*backward\\* pass. Table &lt;1&gt; shows it." in text
    assert text.count("Not explained yet") == 1
    assert (tmp_path / EXPLANATIONS).read_text(encoding="utf-8") == written


@pytest.mark.parametrize("content", ["image = 3", "= x", "[image]\ntext = 'a'"])
def test_an_explanation_that_cannot_be_read_is_one_line(tmp_path, content):
    (tmp_path / EXPLANATIONS).write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=rf"{EXPLANATIONS}: "):
        chapter(tmp_path, predicted())


# ---- Files ---------------------------------------------------------------------------------------


def test_predictions_are_kept_with_the_findings(tmp_path):
    findings = predicted({key: tuple(answer) for key, answer in ANSWERS.items()})
    write_file(tmp_path / FILE, stored(findings))
    assert Findings.from_directory(tmp_path) == findings
    write_file(
        tmp_path / FILE,
        {key: value for key, value in stored(findings).items() if key != "predictions"},
    )
    assert Findings.from_directory(tmp_path).predictions is None  # of an earlier version


@pytest.mark.usefixtures("matplotlib")
def test_the_report_is_written_with_the_table_of_predictions(tmp_path, monkeypatch):
    assert write_report(tmp_path, predicted(), "en") == []
    assert (
        (tmp_path / "tables" / "predictions.csv")
        .read_text(encoding="utf-8")
        .startswith("question,predicted,measured,judged,")
    )
    assert "In the range" not in (page := (tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "Predictions and measured values" in page
    assert "tables/predictions.csv" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_a_page_has_the_section_and_no_markup_of_a_student(tmp_path):
    changed = dataclasses.replace(predicted().predictions, student="<script>x</script>")
    document, _, _ = report(tmp_path, laptop(predictions=changed))
    assert "<script>x" not in html_document(
        dataclasses.replace(document, sections=document.sections[:2]), tmp_path
    )
