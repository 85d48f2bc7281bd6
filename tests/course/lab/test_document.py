"""The report.

Whole pages of made-up machines, the sources of every number, text from files, both languages.
"""

import csv
import dataclasses
import io
import itertools
import re
import string
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest
from lab_builders import (
    SIZES,
    S,
    cluster,
    epoch_time,
    laptop,
    queued,
    recomputed,
    with_cases,
    with_operations,
    without_device_view,
    without_numbers,
)

from mnistbench.course.lab import sentences as sentences_module
from mnistbench.course.lab.chapters import Chapters
from mnistbench.course.lab.lab_file import DevicePlace
from mnistbench.course.lab.merged import Merged
from mnistbench.course.lab.sentences import explain
from mnistbench.course.lab.sheets import sheets_of
from mnistbench.course.lab.texts import LANGUAGES, Texts, wording
from mnistbench.showing.html import html_document
from mnistbench.showing.markdown import markdown_document
from mnistbench.showing.report import Figure
from mnistbench.showing.table import Table
from mnistbench.showing.text import Code

PICTURES = (
    "graph",
    "curves-cpu",
    "operations-forward-cpu",
    "operations-step-cpu",
    "batches",
    "epochs",
    "first-iterations",
)
PIXEL = b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'


@pytest.fixture
def figures(tmp_path):
    """A directory with a figure of every name."""
    for name in (*PICTURES, "machines"):
        (tmp_path / f"{name}.svg").write_bytes(PIXEL)
    return tmp_path


def report(findings, language="en", pictures=PICTURES):
    return Chapters(findings, sheets_of(findings), Texts(language), pictures).document()


def merged(language="en", **machines):
    return Merged(
        machines or {"laptop": laptop(), "cluster": cluster()}, Texts(language), ("machines",)
    ).document()


def parts_of(document):
    return [part for section in document.sections for part in section.parts]


# ---- Pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [laptop, cluster])
def test_the_report_of_a_machine(golden, machine):
    golden(markdown_document(report(machine())[0]), f"lab_{machine.__name__}_en.md")


def test_the_report_of_several_machines(golden):
    golden(markdown_document(merged()[0]), "lab_merged_en.md")


def form_of(document):
    """The parts without words.

    Figures, tables with their numbers, files, and the numbers that sentences cite.
    """
    forms = []
    for part in parts_of(document):
        match part:
            case Figure():
                forms.append((part.name, part.files))
            case Table():
                numbers = sorted(
                    sorted(re.findall(r"[\d,.]*\d", cell)) for row in part.cells for cell in row
                )
                forms.append((part.files, [column.is_number for column in part.columns], numbers))
            case list():
                forms.append([sorted(map(str, text.cited)) for text in part])
            case text:
                forms.append(sorted(map(str, text.cited)))
    return forms


def test_reports_in_both_languages_have_the_same_numbers_tables_and_figures():
    for findings in (laptop(), cluster()):
        assert form_of(report(findings, "en")[0]) == form_of(report(findings, "zh")[0])
    assert form_of(merged("en")[0]) == form_of(merged("zh")[0])


def test_the_page_has_every_sentence_of_the_markdown(figures):
    document, _ = report(laptop())
    page = text_of(html_document(document, figures))
    sentences = [text for part in parts_of(document) if isinstance(part, list) for text in part]
    assert sentences
    for sentence in sentences:
        assert " ".join(str(sentence).split()) in page


class Reading(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []
        self.text = []
        self.ids = []
        self.skip = False

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.skip = tag == "style"
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        if not self.skip:
            self.text.append(data)


def read_html(page):
    reading = Reading()
    reading.feed(page)
    return reading


def text_of(page):
    return " ".join("".join(read_html(page).text).split())


def test_the_page_needs_no_other_file(figures):
    document, _ = report(laptop())
    page = html_document(document, figures)
    reading = read_html(page)
    assert [attrs["src"][:26] for tag, attrs in reading.tags if tag == "img"] == [
        "data:image/svg+xml;base64,"
    ] * len(PICTURES)
    assert not [tag for tag, _ in reading.tags if tag in ("script", "link", "iframe")]
    assert "http://" not in page
    assert "https://" not in page
    links = [attrs["href"] for tag, attrs in reading.tags if tag == "a"]
    assert all(link.startswith(("#", "tables/", "traces/")) for link in links)
    assert {link[1:] for link in links if link.startswith("#")} <= set(reading.ids)
    assert len(reading.ids) == len(set(reading.ids))
    assert '<html lang="en">' in page
    assert '<html lang="zh-CN">' in html_document(report(laptop(), "zh")[0], figures)


HOSTILE = "`</code><script>alert(1)</script>|\x1b[31m[x](javascript:1)\n**b**"


def hostile():
    findings = with_operations(
        laptop(),
        lambda row, _: dataclasses.replace(row, name=HOSTILE) if "conv" in row.name else row,
    )
    return dataclasses.replace(
        with_cases(
            findings, layers=lambda case: (dataclasses.replace(case.layers[0], kind=HOSTILE),)
        ),
        environment=dataclasses.replace(findings.environment, cpu_model=HOSTILE),
        notes=(HOSTILE,),
    )


def test_text_from_a_file_cannot_become_markup(figures):
    document, _ = report(hostile())
    page = html_document(document, figures)
    text = markdown_document(document)
    assert not [tag for tag, _ in read_html(page).tags if tag == "script"]
    assert "\x1b" not in page
    assert "\x1b" not in text
    outside_code = re.sub(r"``.*?``", "", text)
    assert "<script" not in outside_code
    assert not re.search(r"(?<!\\)\[x(?<!\\)\]\(javascript", outside_code)
    several, _ = merged(**{HOSTILE: hostile(), "other": laptop()})
    assert not [
        tag for tag, _ in read_html(html_document(several, figures)).tags if tag == "script"
    ]


# ---- Every number can be traced ------------------------------------------------------------------


def files_of(findings):
    """Return what is written beside a report, as a reader of the files sees it.

    File -> rows of texts.
    """
    sheets = sheets_of(findings)
    _, numbers = report(findings)
    return {
        sheet.file: list(csv.DictReader(io.StringIO(sheet.csv())))
        for sheet in (*sheets.all(), numbers)
    }


@pytest.mark.parametrize("machine", [laptop, cluster])
def test_every_cited_number_can_be_computed_again_from_the_files(machine):
    files = files_of(machine())
    assert len(files["tables/numbers.csv"]) > 60
    for number in files["tables/numbers.csv"]:
        assert recomputed(number, files.__getitem__) == pytest.approx(
            float(number["value"]), rel=1e-9
        ), number


@pytest.mark.parametrize("machine", [laptop, cluster])
def test_every_cited_number_has_an_entry_with_its_text(machine):
    document, numbers = report(machine())
    shown = {row["number"]: row["shown"] for row in numbers.written}
    links = re.findall(r"\[([^]]*)\]\(#n(\d+)\)", markdown_document(document))
    assert {(int(entry), text) for text, entry in links} == set(shown.items())
    assert [*dict.fromkeys(int(entry) for _, entry in links)] == [*shown]


@pytest.mark.parametrize("machine", [laptop, cluster])
def test_every_sentence_with_a_number_cites_it(machine):
    """No digits stand in a sentence but batch sizes, threads, epochs, names and cited numbers."""
    findings = machine()
    for section_sentences in explain(findings, sheets_of(findings)).values():
        for sentence in section_sentences:
            text = Texts("en").text("explain", sentence.key, **sentence.words, **sentence.numbers)
            plain = "".join(piece for piece in text if isinstance(piece, str))
            allowed = {str(word) for word in sentence.words.values()} | {"8", "2", "1"}
            assert set(re.findall(r"\d+", plain)) <= allowed, sentence.key


@pytest.mark.parametrize("machine", [laptop, cluster])
def test_every_table_and_picture_names_files_that_are_written(machine):
    findings = machine()
    written = {sheet.file for sheet in sheets_of(findings).all() if sheet.rows} | {
        "tables/numbers.csv"
    }
    document, _ = report(
        findings,
        pictures=(*PICTURES, "curves-cuda", "operations-step-cuda", "operations-forward-cuda"),
    )
    for section in document.sections:
        for part in section.parts:
            if isinstance(part, Table | Figure):
                assert set(part.files) <= written
                # Whose numbers are cited one by one.
                assert part.files or section.name == "claims", part


def test_the_tables_of_several_machines_are_written_too():
    document, sheets = merged()
    named = {
        file
        for part in parts_of(document)
        if isinstance(part, Table | Figure)
        for file in part.files
    }
    assert named == {sheet.file for sheet in sheets}


def machine(**settings):
    return laptop(settings=dataclasses.replace(laptop().settings, **settings))


@pytest.mark.parametrize(
    ("sizes", "compared"),
    [
        (((1, 16), (1, 16), (1, 16)), 16),
        (((1, 64), (1, 64), (1, 16)), 1),  # all have it
        (((16, 64), (1, 64), (1, 16)), 64),  # any two of these: the largest
        (((1,), (16,), (16, 64)), 16),  # none that all have
        (((1,), (16,), (64,)), 64),
    ],
)
def test_operations_are_compared_at_the_batch_size_that_most_machines_have(sizes, compared):
    _, sheets = merged(
        **{
            str(number): machine(batch_sizes=batch_sizes)
            for number, batch_sizes in enumerate(sizes)
        }
    )
    assert {sheet.file for sheet in sheets if "operations" in sheet.file} == {
        f"tables/operations-{phase}-b{compared}.csv" for phase in ("forward", "step")
    }


def test_datasets_and_epochs_that_differ_are_named():
    alike = markdown_document(merged(a=machine(epochs=3), b=machine(epochs=3))[0])
    different = markdown_document(
        merged(a=machine(dataset="digits", epochs=1), b=machine(dataset="mnist", epochs=3))[0]
    )
    for difference in (
        "different datasets (digits, mnist)",
        "trained for different numbers of epochs (1, 3)",
    ):
        assert difference not in alike
        assert difference in different


def test_machines_with_other_batch_sizes_and_devices_have_gaps():
    settings = dataclasses.replace(laptop().settings, batch_sizes=(1, 8))
    times = tuple(
        dataclasses.replace(iteration_time, batch_size=min(iteration_time.batch_size, 8))
        for iteration_time in laptop().iteration_times[::2]
    )
    document, sheets = merged(a=laptop(settings=settings, iteration_times=times), b=cluster())
    times = next(sheet for sheet in sheets if sheet.file == "tables/time-per-batch-step.csv")
    assert [column.key for column in times.columns] == ["device", "batch_size", "a", "b"]
    assert [row[:2] for row in times.rows] == [
        ("cpu", "1"),
        ("cpu", "8"),
        ("cpu", "16"),
        ("cpu", "64"),
        ("cuda", "1"),
        ("cuda", "16"),
        ("cuda", "64"),
    ]
    assert times.rows[4][2] is None
    assert "| cuda | 1 | - | 6.00 ms |" in markdown_document(document)


def test_an_accelerator_without_device_times_has_a_host_table_only():
    findings = without_device_view(cluster())
    text = markdown_document(report(findings)[0])
    assert (
        "No table has the operations' own times on `cuda`, so the dominating operation there is "
        "unknown."
    ) in text
    assert "Operations: forward pass, cuda, host only" in text
    _, sheets = merged(a=findings, b=laptop())
    rows = next(sheet for sheet in sheets if sheet.file == "tables/operations-step-b64.csv").rows
    assert {row[3] for row in rows} == {None}


def test_a_lab_without_any_numbers_has_a_report(tmp_path):
    document, _ = report(without_numbers(laptop()), pictures=())
    assert "First iterations were not measured." in markdown_document(document)
    assert html_document(document, tmp_path)


# ---- Languages -----------------------------------------------------------------------------------


def places(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_both_languages_have_the_same_keys_and_places():
    english = wording("en")
    chinese = wording("zh")
    file = tomllib.loads(
        (Path(sentences_module.__file__).parent / "wording" / "en.toml").read_text(encoding="utf-8")
    )
    assert [
        (section, key)
        for section, texts in file.items()
        for key in texts
        if key not in chinese[section]
    ] == []
    sections_with_own_keys = {
        section
        for section, texts in english.items()
        for key in texts
        if key not in file.get(section, {})
    }
    # Words, no sentences.
    assert sections_with_own_keys <= {
        "column",
        "field",
        "label",
        "noun",
        "class",
        "predictions",
        "verdict",
    }
    for section, wordings in english.items():
        for key, text in wordings.items():
            assert places(text) == places(chinese[section][key]), f"{section}.{key}"
            assert text.count("`") == chinese[section][key].count("`"), f"{section}.{key}"


def test_chinese_sentences_are_chinese():
    for section in ("text", "explain", "claim", "reason", "section", "verdict"):
        for key, text in wording("zh")[section].items():
            assert re.search(r"[\u4e00-\u9fff]", text), f"{section}.{key}"
            assert not re.search(r"[\u4e00-\u9fff][,;:!?]|[,;:!?][\u4e00-\u9fff]", text), (
                f"{section}.{key}: half-width mark"
            )


def test_no_two_wordings_are_the_same():
    """Whoever copies a wording to another key leaves a sentence that says the wrong thing."""
    for language in LANGUAGES:
        sentences = list(wording(language)["explain"].values())
        assert {text for text in sentences if sentences.count(text) > 1} == set()


def test_a_space_separates_chinese_and_latin_text():
    text = Texts("zh").plain("explain", "operations_missing", place=DevicePlace("cpu", 2))
    assert text.startswith("没有记录各算子在 2 线程 CPU 上自身时间")
    assert Texts("zh").text("explain", "no_cpu", device=Code("cuda"))[1] == Code("cuda")


def speedups():
    """Yield the keys that are said of accelerators of any speed.

    At several batch sizes, at one, and without times.
    """
    base = cluster()
    for sizes, factors in itertools.product(
        (SIZES, SIZES[-1:]), ((2, 9, 17), (0.9, 3, 17), (0.5, 0.7, 0.9), ())
    ):
        times = [
            epoch_time("train", size, round(ns), threads=8, device=device)
            for size, factor in zip(SIZES, factors, strict=False)
            for device, ns in (("cpu", 10 * S), ("cuda", 10 * S / factor))
        ]
        settings = dataclasses.replace(base.settings, batch_sizes=sizes)
        changed = dataclasses.replace(base, settings=settings, epoch_times=tuple(times))
        yield from (
            s.key
            for s in explain(changed, sheets_of(changed))["devices"]
            if s.key.startswith("speedup_")
        )


def test_every_wording_is_used():
    """A wording that no code asks for is a leftover. Its key is found by a search for it."""
    package = Path(sentences_module.__file__).parent
    code = "".join(
        (package / name).read_text(encoding="utf-8") for name in ("sentences.py", "claims.py")
    )
    english = wording("en")
    assert {key for key in english["explain"] if key.startswith("speedup_")} == set(speedups())
    for section in ("explain", "reason", "figures_of_claims"):
        for key in english[section]:
            assert f'"{key}"' in code, f"{section}.{key}"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_report_of_a_disturbed_machine_begins_with_that(language):
    findings = queued(laptop(), 0.2)
    document, _ = Chapters(findings, sheets_of(findings), Texts(language), ()).document()
    text = markdown_document(document)
    section = text.index("\n## 1. ")
    first = {
        "en": "This lab was measured on a disturbed machine: other programs had the core for",
        "zh": "本实验在受干扰的机器上测得",
    }[language]
    assert text.index(first) - section < 60


#: Causes that no number of a lab supports.
UNMEASURED = (
    "library",
    "import",
    "memory is allocated",
    "other program",
    "something else",
    "busy with",
    "swings",
    "launches",
)


def test_no_sentence_names_a_cause_that_is_not_measured():
    for key, text in wording("en")["explain"].items():
        if key == "disturbed_queue":  # its number was measured
            continue
        assert not [cause for cause in UNMEASURED if cause in text], key
