"""Markdown as GitHub shows it: cells and lists are Markdown, a <summary> is HTML."""

import html
import re
from dataclasses import dataclass, replace

import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.core.units import printable
from mnistbench.showing.markdown import (
    escaped,
    in_html,
    markdown_document,
    markdown_report,
)
from mnistbench.showing.report import Block, Document, Figure, Section
from mnistbench.showing.table import text_table
from mnistbench.showing.text import Cited, Code, Link, Text

COMMENT = "<!-- -->"

#: Signs that mean something in Markdown, HTML or to GitHub, and some that mean nothing.
SPECIAL = st.text("\\`*_{}[]()|~!$<>&#@:/w.+-1a \n\x1b\u202e", max_size=30)


def shown_html(text):
    """What a browser shows of text inside an element."""
    return html.unescape(text.replace(COMMENT, ""))


def shown(text):
    """What GitHub shows of a cell or of a line."""
    return html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text.replace(COMMENT, "")))


# ---- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("aten::add_", r"aten::add\_"),
        ("*bold* _italic_ ~~struck~~ `code`", r"\*bold\* \_italic\_ \~\~struck\~\~ \`code\`"),
        ("a \\| b", r"a \\\| b"),  # the backslash itself shows, and the cell does not end
        ("\\", r"\\"),
        ("[text](target)", r"\[text\]\(target\)"),
        ("$E=mc^2$ {x}", r"\$E=mc^2\$ \{x\}"),
        ("</summary></details>", "&lt;/summary&gt;&lt;/details&gt;"),
        ("<!-- x", r"&lt;\!-- x"),
        ("&lt;", "&amp;lt;"),
        ("a -> b", "a -&gt; b"),
        # GitHub makes links of these by itself, wherever they stand.
        ("@octocat", f"@{COMMENT}octocat"),
        ("#1 and x/y#2", f"#{COMMENT}1 and x/y#{COMMENT}2"),
        ("https://x.org", f"https:{COMMENT}//x.org"),
        ("www.x.org", f"w{COMMENT}ww.x.org"),
        # What a terminal may not get, a comment does not get either.
        ("a\r\n\r\n# b", rf"a\\r\\n\\r\\n#{COMMENT} b"),
        ("\x1b[31m", r"\\x1b\[31m"),
        ("µs, größer", "µs, größer"),
    ],
)
def test_text_is_literal_in_a_paragraph_or_a_cell(text, expected):
    assert escaped(text) == expected
    assert shown(escaped(text)) == printable(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        # Nothing of this means anything in HTML.
        ("a_b *c* | `d` [e](f) \\", "a_b *c* | `d` [e](f) \\"),
        ("</summary>", "&lt;/summary&gt;"),
        ("@a #1 http://x www.x", f"@{COMMENT}a #{COMMENT}1 http:{COMMENT}//x w{COMMENT}ww.x"),
        ("a\n\nb", r"a\n\nb"),  # an empty line would end the element
    ],
)
def test_text_is_literal_inside_an_element(text, expected):
    assert in_html(text) == expected
    assert shown_html(in_html(text)) == printable(text)


@given(SPECIAL | strategies.TEXTS)
def test_any_text_is_literal(text):
    assert shown(escaped(text)) == shown_html(in_html(text)) == printable(text)


@given(SPECIAL | strategies.TEXTS)
def test_no_text_becomes_markup(text):
    bare = escaped(text).replace(COMMENT, "\N{REPLACEMENT CHARACTER}")
    assert not re.search(r"[<>\r\n]", bare)
    # Whatever is not behind a backslash means nothing.
    assert not re.search(r"[`*_{}\[\]()|~!$]", re.sub(r"\\[!-/:-@\[-`{-~]", "", bare))
    for drawn in (bare, in_html(text).replace(COMMENT, "\N{REPLACEMENT CHARACTER}")):
        assert not re.search(
            r"[<>\r\n]|[@#](?!\N{REPLACEMENT CHARACTER})|:/|www|&(?!amp;|lt;|gt;)", drawn
        )


# ---- a report ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "heading", "drawn"),
    [
        ([], "thresholds: passed", "### mnistbench: thresholds: passed\n"),
        ([], "<x> a_b", "### mnistbench: &lt;x&gt; a\\_b\n"),
        (
            [Block("A_b", ("one", "two *"))],
            "x",
            "### mnistbench: x\n\n**A\\_b**\n\n- one\n- two \\*\n",
        ),
        ([Block("", ("one",))], "x", "### mnistbench: x\n\n- one\n"),
        (
            [Block("", ("one", "  below", "    below that", "two"))],
            "x",
            "### mnistbench: x\n\n- one\n  - below\n    - below that\n- two\n",
        ),
        # Numbered by itself.
        (
            [Block("Look at", ("1. a", "2. b"))],
            "x",
            "### mnistbench: x\n\n**Look at**\n\n1. a\n2. b\n",
        ),
        (
            [Block("Plot", drawing="<a>\n b")],
            "x",
            "### mnistbench: x\n\n**Plot**\n\n\n<pre>\n&lt;a&gt;\n b\n</pre>\n",
        ),
    ],
)
def test_blocks_are_lists_and_plots_below_their_titles(blocks, heading, drawn):
    assert markdown_report(blocks, heading) == drawn


def test_a_report_is_folded_below_its_first_lines():
    link = Link("a_b (changed)", "https://example.org/a%20b#L3")
    assert markdown_report(
        [Block("Found", ("one",))], "x", first_lines=[Text(["a*: ", link]), Text(["two"])]
    ) == (
        "### mnistbench: x\n\n"
        "- a\\*: [a\\_b \\(changed\\)](<https://example.org/a%20b#L3>)\n- two\n\n"
        "<details><summary>the whole report</summary>\n\n"
        "**Found**\n\n- one\n\n"
        "</details>\n"
    )


def test_a_folded_table_has_a_title_in_html_and_cells_in_markdown():
    rows = (("a_b | <c>", "1.0", "within"), ("b", "2.0", "regressed"))
    table = text_table(
        "a_b | <c>",
        ("a_b", "us", "verdict"),
        rows,
        sums=(("sum", "3.0", ""),),
        lines=("by phase: x_y", "exact: 1"),
        words_after=1,
    )
    assert markdown_report([Block("Cases", tables=(table,))], "x") == (
        "### mnistbench: x\n"
        "\n"
        "<details><summary>a_b | &lt;c&gt;</summary>\n"
        "\n"
        "| a\\_b | us | verdict |\n"
        "| --- | ---: | --- |\n"
        "| a\\_b \\| &lt;c&gt; | 1.0 | within |\n"
        "| b | 2.0 | regressed |\n"
        "| sum | 3.0 |  |\n"
        "\n"
        "- by phase: x\\_y\n"
        "- exact: 1\n"
        "\n"
        "</details>\n"
    )


# ---- a limit -------------------------------------------------------------------------------------


def lines_of(count):
    return tuple(f"line {number}" for number in range(count))


def test_the_longest_parts_of_a_report_are_cut_to_one_length_and_say_what_is_missing():
    table = text_table("cases", ("case", "us"), [(line, "1.0") for line in lines_of(200)])
    blocks = [
        Block("Few", lines_of(5)),
        Block("Many", lines_of(300)),
        Block("", tables=(table,)),
        Block("", ("the end",)),
    ]
    whole = markdown_report(blocks, "x", drawn=True)
    assert markdown_report(blocks, "x", drawn=True, limit=(len(whole.encode()), "")) == whole
    parts = markdown_report(blocks, "x", drawn=True, limit=(2_000, "ask")).split("\n\n")
    assert sum(len(part) + 2 for part in parts) <= 2_000
    few = parts[1:3]
    many = parts[3:5]
    drawn = parts[5]
    end = parts[6]
    assert few[1].splitlines()[-1] == "- line 4"
    assert re.fullmatch(r"- \d{3} more lines; ask", many[1].splitlines()[-1])
    missing = int(re.search(r"(\d+) more", many[1])[1])
    assert len(many[1].splitlines()) - 1 + missing == 300
    assert re.search(r"\n\d{3} more lines; ask\n</pre>\n</details>$", drawn)
    assert abs(len(many[1]) - len(drawn)) < 100
    assert end == "- the end\n"


# ---- A document ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number(Cited):
    """A number that a document cites."""

    value: str

    def __str__(self):
        return self.value


def code_of(span):
    """Return the content of a code span and what follows it, by CommonMark 0.31.2, section 6.1."""
    fence = re.match("`+", span)[0]
    end = re.search(f"(?<!`){fence}(?!`)", span[len(fence) :])
    content = span[len(fence) :][: end.start()]
    if content[:1] == content[-1:] == " " and content.strip(" "):
        content = content[1:-1]
    return content, span[len(fence) + end.end() :]


@given(st.text("`` a|<", min_size=1).filter(lambda code: code.strip(" ")))
def test_code_is_a_span_whatever_is_in_it(code):
    sections = (Section("one", "First", ([Text([Code(code), "end"])],)),)
    lines = markdown_document(Document("A title", "en", "", sections)).splitlines()
    assert code_of(lines[-1].removeprefix("- ")) == (code, "end")


def test_a_document_has_numbered_sections_figures_and_sources():
    entries = replace(text_table("entries", ["n"], [["1"]]), anchors_from=1)
    parts = (
        Text(["plain ", Code("a`b|c"), " and ", Number("4.2")]),
        [Text(["one"]), Text([Code("two")])],
        Figure("graph", "what it shows", ("tables/layers.csv",)),
        replace(text_table("cap", ["word", "n"], [[Code("x|y"), "1"]]), files=("tables/a_b.csv",)),
        entries,
    )
    document = Document("A *title*", "en", " (source: {files})", (Section("one", "First", parts),))
    assert markdown_document(document) == (
        "# A \\*title\\*\n\n## 1. First\n\nplain `` a`b|c `` and [4.2](#n1)\n\n- one\n- `two`\n\n"
        "![what it shows](figures/graph.svg)\n\n*what it shows* (source: "
        "[tables/layers.csv](tables/layers.csv))\n\n"
        "**cap** (source: [tables/a\\_b.csv](tables/a_b.csv))\n\n| word | n |\n| --- | ---: |\n| "
        "`x\\|y` | 1 |\n\n"
        '**entries**\n\n| n |\n| --- |\n| <a id="n1"></a>1 |\n'
    )


def test_cited_numbers_are_numbered_as_a_reader_meets_them_and_equal_ones_once():
    first = Section("s", "S", (Text([Number("b"), Number("a")]), [Text([Number("b")])]))
    table_of_c = text_table("", ["n"], [[Text([Number("c")])]])
    second = Section("t", "T", (table_of_c, Text([Number("a")])))
    document = Document("", "en", "", (first, second))
    assert document.entries == {Number("b"): 1, Number("a"): 2, Number("c"): 3}
