"""The Markdown report, by what GitHub makes of it: cells and lists are Markdown, what stands in <summary> is HTML."""

import html
import re

import builders
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.compare.output import rendered
from mnistbench.compare.thresholds import Acceptance, Criteria, Threshold
from mnistbench.core.record import OUTSIDE
from mnistbench.core.units import printable
from mnistbench.saved_runs.summary import RunSummary
from mnistbench.showing.markdown import escaped, in_html, markdown_report
from mnistbench.showing.report import Block
from mnistbench.showing.table import text_table

COMMENT = "<!-- -->"

#: Signs that mean something in Markdown, HTML or to GitHub, and some that mean nothing.
SPECIAL = st.text("\\`*_{}[]()|~!$<>&#@:/w.+-1a \n\x1b\u202e", max_size=30)


def shown_html(text):
    """What a browser shows of text inside an element."""
    return html.unescape(text.replace(COMMENT, ""))


def shown(text):
    """What GitHub shows of a cell or of a line."""
    return html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text.replace(COMMENT, "")))


# ---- text ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("aten::addmm, forward fc1", "aten::addmm, forward fc1"),
        ("aten::add_", r"aten::add\_"),
        ("*bold* _italic_ ~~struck~~ `code`", r"\*bold\* \_italic\_ \~\~struck\~\~ \`code\`"),
        ("a | b", r"a \| b"),
        ("a \\| b", r"a \\\| b"),  # the backslash itself shows, and the cell does not end
        ("\\", r"\\"),
        ("[text](target)", r"\[text\]\(target\)"),
        ("![image](x)", r"\!\[image\]\(x\)"),
        ("$E=mc^2$ {x}", r"\$E=mc^2\$ \{x\}"),
        ("<b>", "&lt;b&gt;"),
        ("</summary></details>", "&lt;/summary&gt;&lt;/details&gt;"),
        ("<!-- x", r"&lt;\!-- x"),
        ("&lt;", "&amp;lt;"),
        ("a -> b", "a -&gt; b"),
        # GitHub makes links of these by itself, wherever they stand.
        ("@octocat", f"@{COMMENT}octocat"),
        ("a@b.org", f"a@{COMMENT}b.org"),
        ("#1 and x/y#2", f"#{COMMENT}1 and x/y#{COMMENT}2"),
        ("https://x.org", f"https:{COMMENT}//x.org"),
        ("www.x.org", f"w{COMMENT}ww.x.org"),
        # What a terminal may not get, a comment does not get either.
        ("a\nb", r"a\\nb"),
        ("a\r\n\r\n# b", rf"a\\r\\n\\r\\n#{COMMENT} b"),
        ("\x1b[31m", r"\\x1b\[31m"),
        ("a\u202eb", r"a\\u202eb"),
        ("µs, größer", "µs, größer"),
    ],
)
def test_text_shows_as_it_is_in_a_paragraph_or_a_cell(text, expected):
    assert escaped(text) == expected
    assert shown(escaped(text)) == printable(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("step convnet-b16-cpu on digits", "step convnet-b16-cpu on digits"),
        ("a_b *c* | `d` [e](f) \\", "a_b *c* | `d` [e](f) \\"),  # nothing of this means anything in HTML
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("</summary>", "&lt;/summary&gt;"),
        ("@a #1 http://x www.x", f"@{COMMENT}a #{COMMENT}1 http:{COMMENT}//x w{COMMENT}ww.x"),
        ("a\n\nb", r"a\n\nb"),  # an empty line would end the element
    ],
)
def test_text_shows_as_it_is_inside_an_element(text, expected):
    assert in_html(text) == expected
    assert shown_html(in_html(text)) == printable(text)


@given(SPECIAL | strategies.TEXTS)
def test_any_text_shows_as_it_is(text):
    assert shown(escaped(text)) == shown_html(in_html(text)) == printable(text)


@given(SPECIAL | strategies.TEXTS)
def test_no_text_becomes_markup(text):
    bare = escaped(text).replace(COMMENT, "\N{REPLACEMENT CHARACTER}")
    assert not re.search(r"[<>\r\n]", bare)
    # Whatever is not behind a backslash means nothing.
    assert not re.search(r"[`*_{}\[\]()|~!$]", re.sub(r"\\[!-/:-@\[-`{-~]", "", bare))
    for drawn in (bare, in_html(text).replace(COMMENT, "\N{REPLACEMENT CHARACTER}")):
        assert not re.search(r"[<>\r\n]|[@#](?!\N{REPLACEMENT CHARACTER})|:/|www|&(?!amp;|lt;|gt;)", drawn)


# ---- a report -----------------------------------------------------------------------------------------------------------


def table(**changes):
    ordinary = {
        "title": "a title",
        "headings": ("name", "us", "verdict"),
        "rows": (("a", "1.0", "within"), ("b", "2.0", "regressed")),
        "sums": (("sum", "3.0", ""),),
        "numbers_from": 1,
        "words_after": 1,
        "lines": (),
    }
    return text_table(**{**ordinary, **changes})


def test_the_outcome_is_the_heading():
    assert markdown_report([], "thresholds: passed") == "### mnistbench: thresholds: passed\n"
    assert markdown_report([], "<x> a_b") == "### mnistbench: &lt;x&gt; a\\_b\n"


def test_sentences_are_a_list_below_their_title():
    assert markdown_report([Block("A_b", ("one", "two *"))], "x") == (
        "### mnistbench: x\n\n**A\\_b**\n\n- one\n- two \\*\n"
    )  # fmt: skip
    assert markdown_report([Block("", ("one",))], "x") == "### mnistbench: x\n\n- one\n"


def test_ranks_are_the_numbers_of_a_list():
    assert markdown_report([Block("Look first at", ("1. a", "2. b"))], "x").endswith("**Look first at**\n\n1. a\n2. b\n")


def test_a_table_is_folded_with_an_empty_line_around_it():
    assert markdown_report([Block("Cases", tables=(table(),))], "x") == (
        "### mnistbench: x\n"
        "\n"
        "<details><summary>a title</summary>\n"
        "\n"
        "| name | us | verdict |\n"
        "| --- | ---: | --- |\n"
        "| a | 1.0 | within |\n"
        "| b | 2.0 | regressed |\n"
        "| sum | 3.0 |  |\n"
        "\n"
        "</details>\n"
    )


def test_sentences_of_a_table_are_a_list_below_it():
    [drawn] = markdown_report([Block("", tables=(table(lines=("by phase: x_y", "exact: 1")),))], "x").split("</details>")[:1]
    assert drawn.endswith("| sum | 3.0 |  |\n\n- by phase: x\\_y\n- exact: 1\n\n")


def test_columns_of_numbers_stand_right_and_words_left():
    plain = table(
        headings=("name", "where", "us", "share"), rows=(("a", "b", "1", "2"),), sums=(), numbers_from=2, words_after=0
    )
    assert "\n| --- | --- | ---: | ---: |\n" in markdown_report([Block("", tables=(plain,))], "x")


def test_a_title_is_html_and_a_cell_is_markdown():
    drawn = markdown_report([Block("", tables=(table(title="a_b | <c>", rows=(("a_b | <c>", "1", ""),)),))], "x")
    assert "<summary>a_b | &lt;c&gt;</summary>" in drawn
    assert "\n| a\\_b \\| &lt;c&gt; | 1 |  |\n" in drawn


HOSTILE = "</summary>\n\n| <img src=x> | @all #1 `*_[x](http://www.x)"


def hostile(ns, **changes):
    """A run whose every text that a file can hold tries to become markup."""
    rows = [
        builders.op_row(f"aten::{HOSTILE}", ns, module=HOSTILE, shapes=[f"[{ns}] {HOSTILE}"]),
        builders.op_row(f"{HOSTILE}{ns}", 900_000, module="fc2"),
        builders.op_row(OUTSIDE, 100, module="", calls=0),
        builders.op_row("aten::tiny", 100, phase=HOSTILE, module="", calls=ns / 1e6),
    ]
    return builders.summary(
        builders.case_record(
            tables=(builders.op_table(*rows),),
            scalars=builders.scalars(final={f"{HOSTILE}/loss": ns / 1e6}),
            workload=HOSTILE,
            dataset=HOSTILE,
        ),
        builders.case_record(test=HOSTILE, node_id=f"{HOSTILE}[x]", tables=(), tables_in=HOSTILE, phase="train"),
        *changes.pop("more", ()),
        commit=HOSTILE,
        **changes,
    )


def plain(median):
    """A benchmark that pytest-benchmark saved without us, with a name of that kind."""
    stats = {"min": median, "max": median, "mean": median, "stddev": 0, "median": median, "iqr": 0.0, "rounds": 5}
    benchmark = {"name": HOSTILE, "fullname": HOSTILE, "extra_info": {}, "stats": stats}
    return RunSummary.from_json({"benchmarks": [benchmark], "machine_info": {}, "commit_info": {}}, "plain.json")


def report_of(bases, now, **criteria):
    limits = Criteria(
        op_fail=(Threshold.parse("10%"), Threshold(HOSTILE + "x", 0.2)), case_fail=Threshold.parse("5%"), **criteria
    )
    return rendered(judge(compare(bases, now, by=limits.by), limits), "markdown", 1)


ACCEPTED = (Acceptance(f"*:{HOSTILE}", 5.0), Acceptance("*:aten*", 5.0))


def more_cases(*sizes):
    return [builders.case_record(batch_size=size, node_id=f"{HOSTILE}{size}") for size in sizes]


REPORTS = {
    "regressed": lambda: report_of([hostile(1_000_000)], hostile(3_000_000)),
    "accepted": lambda: report_of([hostile(1_000_000)], hostile(3_000_000), accept=ACCEPTED, reason=HOSTILE),
    "by runs": lambda: report_of([hostile(1_000_000 + number) for number in range(8)], hostile(1_000_001)),
    "unjudged": lambda: report_of(
        [hostile(1_000_000, more=more_cases(1), environment=builders.environment(cpu_model=HOSTILE))],
        hostile(1_000_000, more=more_cases(2)),
    ),
    "without a base": lambda: report_of([], hostile(1_000_000)),
    "by module": lambda: report_of([hostile(1_000_000)], hostile(3_000_000), by="module"),
    "plain": lambda: report_of([plain(0.5)], plain(0.75)),
}


def cells(line):
    """The cells of a row as GitHub divides it: at every bar that no backslash stands before."""
    assert line.startswith("| ")
    assert line.endswith(" |")
    return re.sub(r"\\.", "", line).count("|") - 1


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_has_the_structure_that_it_was_drawn_with(name):
    drawn = REPORTS[name]()
    lines = drawn.split("\n")
    assert drawn.endswith("\n")
    assert not drawn.endswith("\n\n")
    assert "\n\n\n" not in drawn
    assert [line for line in lines if line.startswith("#")] == [lines[0]]
    assert lines[0].startswith("### mnistbench: thresholds: ")
    for number, line in enumerate(lines):
        if line.startswith("<details>"):
            assert re.fullmatch(r"<details><summary>[^\n]*</summary>", line)
            assert lines[number - 1] == lines[number + 1] == ""  # Markdown starts after an empty line
            assert lines[number + 2].startswith("| ")
        if line.startswith("</"):
            assert line == "</details>"
            assert lines[number - 1] == lines[number + 1] == ""
        if line.startswith("|"):
            assert lines[number - 1].startswith("|") or lines[number - 1] == ""
            assert lines[number + 1].startswith("|") or lines[number + 1] == ""
        else:
            assert line == "" or re.match(r"### |\*\*[A-Z][a-z ]+\*\*$|- \S|\d\. \S|</?details>", line)
        if line.startswith(("- ", "1. ", "**")):
            assert lines[number - 1] == "" or lines[number - 1].startswith("- ")
    assert lines.count("</details>") == sum(line.startswith("<details>") for line in lines)


@pytest.mark.parametrize("name", REPORTS)
def test_each_row_of_a_table_has_as_many_cells_as_its_head(name):
    for drawn in re.findall(r"(?:^\|.*\n)+", REPORTS[name](), flags=re.MULTILINE):
        head, rule, *rows = drawn.splitlines()
        assert re.fullmatch(r"\|( -{3}:? \|)+", rule)
        assert rows
        assert {cells(line) for line in (rule, *rows)} == {cells(head)}


@pytest.mark.parametrize("name", REPORTS)
def test_nothing_that_a_file_says_becomes_markup(name):
    drawn = REPORTS[name]()
    tags = re.findall(r"<[^>]*>", drawn.replace(COMMENT, ""))
    assert set(tags) <= {"<details>", "<summary>", "</summary>", "</details>"}
    assert not re.search(rf"[@#](?!{COMMENT})|:/|www", drawn.removeprefix("###"))
    assert name == "without a base" or "&lt;/summary&gt;" in drawn


def test_every_kind_of_text_is_in_the_reports():
    """So that the tests above see what they are there for."""
    drawn = {name: shown(report()) for name, report in REPORTS.items()}
    text = printable(HOSTILE)
    assert "is no operation or module of any case" in drawn["regressed"]
    assert f"final {text}/loss: 1 -> 3" in drawn["regressed"]
    assert f"input shapes [1000000] {text} -> [3000000] {text}" in drawn["regressed"]
    assert f"{text}1000000, forward fc2: is now {text}3000000" in drawn["regressed"]
    assert f"commit {text[:7]}" in drawn["regressed"]
    assert f"reason: {text}" in drawn["accepted"]
    assert "judged by runs" in drawn["by runs"]
    assert f"different cpu model: {text} -> AMD EPYC 9R14" in drawn["unjudged"]
    assert f"in the base but not in this run: {text}1" in drawn["unjudged"]
    assert f"new, not compared: {text}2" in drawn["unjudged"]
    assert f"| {text} | - |" in drawn["plain"]
