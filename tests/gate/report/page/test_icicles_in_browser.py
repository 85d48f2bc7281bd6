"""The call paths of a case in Chromium: picture and table, by mouse and by keyboard."""

import dataclasses
import re

import pytest
from browsing import cells, colour, contrast, eventually, open_case, visit
from gate_builders import CASE, LABEL, Measured, case_profile
from gate_scenes import OTHER_CASE, OTHER_LABEL, concluded

from mnistbench.core import units
from mnistbench.gate.report.page.view import gate_page
from mnistbench.gate.samples.raw_samples import End

READ = "pkg/parse.py:Parser.read"
SPLIT = "pkg/parse.py:split"
NORMAL = "pkg/parse.py:normal"
CACHED = "pkg/parse.py:cached"

#: One function got slower, one takes over, one is not called any more, one is much faster.
SLOWER = case_profile(
    [
        ((READ,), (1, 1), (300_000, 300_000)),
        ((READ, SPLIT), (20, 41), (900_000, 1_900_000)),
        ((READ, SPLIT, "len"), (20, 41), (20_000, 40_000)),
        ((READ, SPLIT, SPLIT), (2, 2), (100_000, 100_000)),
        ((READ, NORMAL), (0, 60), (0, 700_000)),
        ((READ, NORMAL, "str.lower"), (0, 60), (0, 300_000)),
        ((READ, CACHED), (10, 0), (400_000, 0)),
        ((READ, "sorted"), (5, 5), (500_000, 40_000)),
    ],
    {SPLIT: "changed", NORMAL: "new", CACHED: "gone", READ: "uses LIMIT (pkg/parse.py:12 changed)"},
)

#: A thousand functions of very different times, each with a call of a thousandth of its time.
MANY = case_profile(
    [
        (path, (1, 1), (ns, 2 * ns))
        for number in range(1_000)
        for path, ns in (((f"f{number}",), 1_000 * number**3), ((f"f{number}", "g"), number**3))
    ]
)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of a gate with two cases that got slower, as a file."""
    measured = Measured(factor=1.3, operations={})
    profiles = {CASE: SLOWER, OTHER_CASE: MANY}
    verdict = concluded(
        {CASE: measured, OTHER_CASE: dataclasses.replace(measured, ns=900_000)},
        8,
        end=End(profiles=profiles),
    )
    path = tmp_path_factory.mktemp("page") / "gate.html"
    path.write_text(gate_page(verdict), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    """The page in a window."""
    yield from visit(browser, address, viewport={"width": 1200, "height": 900})


@pytest.fixture
def panel(opened):
    """The panel of the case whose paths are few."""
    return open_case(opened)


def boxes(panel):
    return panel.get_by_role("treeitem")


def box(panel, name):
    """The first box of a function."""
    return panel.locator(f'.boxes .box[aria-label^="{name}"]').first


def place(panel, name):
    return box(panel, name).bounding_box()


def width(panel, name):
    """The share of the picture's width."""
    return place(panel, name)["width"] / panel.get_by_role("tree").bounding_box()["width"]


def focused(tab):
    """The function of the box that has the focus."""
    return tab.evaluate("document.activeElement.ariaLabel").split("; ")[0].split(" ")[0]


# ---- The picture ---------------------------------------------------------------------------------


def test_the_picture_is_drawn_when_its_case_is_opened(opened):
    assert opened.locator(".functions *").count() == 0
    panel = open_case(opened)
    eventually(boxes(panel)).to_have_count(9)
    eventually(panel.get_by_text("no basis of the verdict")).to_be_visible()


def test_a_path_is_below_the_one_that_it_continues(panel):
    caller = place(panel, READ)
    called = place(panel, SPLIT)
    assert called["y"] >= caller["y"] + caller["height"]
    assert caller["x"] <= called["x"]
    assert called["x"] + called["width"] <= caller["x"] + caller["width"] + 1


HEAD_NS = 100_000 + 300_000 + 1_900_000 + 40_000 + 100_000 + 1_000_000 + 40_000
GONE_NS = 400_000


def test_a_box_is_as_wide_as_its_time_in_the_head_or_in_the_base_if_it_is_gone(panel):
    whole_ns = HEAD_NS + GONE_NS
    assert width(panel, SPLIT) == pytest.approx(2_040_000 / whole_ns, abs=0.002)
    assert width(panel, CACHED) == pytest.approx(GONE_NS / whole_ns, abs=0.002)
    assert width(panel, "sorted") == pytest.approx(40_000 / whole_ns, abs=0.002)


def test_the_widths_of_the_base_can_be_chosen(panel):
    whole_ns = 100_000 + 300_000 + 900_000 + 20_000 + 100_000 + GONE_NS + 500_000
    new_ns = 1_000_000
    panel.get_by_role("radio", name="base").check()
    assert width(panel, "sorted") == pytest.approx(500_000 / (whole_ns + new_ns), abs=0.002)
    assert width(panel, NORMAL) == pytest.approx(new_ns / (whole_ns + new_ns), abs=0.002)


def redness(panel, name):
    red, _, blue = colour(box(panel, name), "backgroundColor")
    return red - blue


def test_red_grew_and_blue_shrank_by_the_self_time_or_by_the_total_time(panel):
    assert redness(panel, SPLIT) > redness(panel, NORMAL) > 0.1
    assert redness(panel, "sorted") < -0.1
    assert abs(redness(panel, READ)) < 0.05
    eventually(panel.get_by_text("self time shrank by 1.00 ms")).to_be_visible()
    panel.get_by_role("radio", name="total").check()
    assert redness(panel, READ) > 0.1
    eventually(panel.get_by_text("total time shrank by 1.16 ms")).to_be_visible()


def test_new_paths_and_paths_that_are_gone_have_a_word_and_a_pattern(panel):
    eventually(box(panel, NORMAL)).to_have_text(f"new: {NORMAL}")
    eventually(box(panel, CACHED)).to_have_text("gone: cached")  # the file has no room
    # A path that continues a new one is new; one word is enough.
    eventually(box(panel, "str.lower")).to_have_text("str.lower")
    patterns = [
        box(panel, name).evaluate("box => getComputedStyle(box).backgroundImage")
        for name in (NORMAL, "str.lower", CACHED, SPLIT)
    ]
    assert patterns[0] == patterns[1]
    assert patterns[3] == "none"
    assert len(set(patterns)) == 3


def test_functions_whose_code_differs_are_bold(panel):
    weights = {
        name: box(panel, name).evaluate("box => getComputedStyle(box).fontWeight")
        for name in (SPLIT, NORMAL, READ, "str.lower")
    }
    assert weights == {SPLIT: "700", NORMAL: "700", READ: "400", "str.lower": "400"}


def test_a_box_tells_its_numbers(panel):
    box(panel, SPLIT).hover()
    detail = panel.locator(".detail")
    eventually(detail.locator("strong")).to_have_text(f"{SPLIT} (changed)")
    text = detail.text_content()
    assert "calls 20 -> 41" in text
    assert "total 1.02 ms -> 2.04 ms (+1.02 ms, +100.0 %)" in text
    assert "self 900 us -> 1.90 ms (+1.00 ms, +111.1 %)" in text
    box(panel, NORMAL).hover()
    eventually(detail.locator("strong")).to_have_text(f"{NORMAL} (new) [new path]")
    assert box(panel, SPLIT).get_attribute("aria-label").startswith(f"{SPLIT} (changed); calls 20")


def test_paths_of_less_than_half_a_pixel_are_not_drawn_until_they_are_zoomed_to(opened):
    panel = open_case(opened, OTHER_LABEL)
    widths = boxes(panel).evaluate_all("all => all.map(box => box.getBoundingClientRect().width)")
    assert 100 < len(widths) < len(MANY.paths) / 2
    assert min(widths) >= 0.45
    eventually(box(panel, "g;")).to_have_count(0)
    box(panel, "f999").click()
    assert width(panel, "g;") < 0.002


# ---- Zoom ----------------------------------------------------------------------------------------


def test_a_click_zooms_in_and_the_keyboard_out(opened, panel):
    box(panel, SPLIT).click()
    assert width(panel, SPLIT) == width(panel, READ) == pytest.approx(1, abs=0.002)
    eventually(box(panel, NORMAL)).to_have_count(0)
    assert focused(opened) == SPLIT
    opened.keyboard.press("Backspace")
    assert width(panel, READ) == pytest.approx(1, abs=0.002)
    assert width(panel, SPLIT) < 0.7
    opened.keyboard.press("Backspace")
    assert width(panel, READ) < 0.99
    opened.keyboard.press("Backspace")  # nowhere to go
    eventually(boxes(panel)).to_have_count(9)


def test_enter_zooms_in_and_escape_to_the_whole_case(opened, panel):
    box(panel, NORMAL).focus()
    opened.keyboard.press("Enter")
    assert width(panel, NORMAL) == pytest.approx(1, abs=0.002)
    opened.keyboard.press("Escape")
    eventually(boxes(panel)).to_have_count(9)
    assert width(panel, NORMAL) < 0.5


def test_a_button_shows_the_whole_case(panel):
    box(panel, SPLIT).click()
    panel.get_by_role("button", name="whole case").click()
    eventually(boxes(panel)).to_have_count(9)


def test_what_is_zoomed_to_stays_if_widths_and_colours_change(panel):
    box(panel, CACHED).click()
    panel.get_by_role("radio", name="base").check()
    panel.get_by_role("radio", name="total").check()
    assert width(panel, CACHED) == pytest.approx(1, abs=0.002)


# ---- Keyboard ------------------------------------------------------------------------------------


def test_arrow_keys_go_to_callers_to_calls_and_along_a_row(opened, panel):
    boxes(panel).first.focus()
    steps = [
        ("ArrowDown", READ),
        ("ArrowDown", SPLIT),
        ("ArrowRight", NORMAL),
        ("ArrowDown", "str.lower"),
        ("ArrowDown", "str.lower"),  # it calls nothing
        ("ArrowLeft", "len"),  # of another caller
        ("ArrowUp", SPLIT),
        ("ArrowLeft", SPLIT),  # the first of its row
        ("ArrowUp", READ),
    ]
    for key, name in steps:
        opened.keyboard.press(key)
        assert focused(opened) == name
    eventually(panel.locator(".detail strong")).to_have_text(re.compile(f"^{re.escape(READ)}"))


def test_the_picture_is_one_stop_of_the_tab_key_with_a_visible_focus(opened, panel):
    panel.get_by_label("function", exact=True).focus()
    opened.keyboard.press("Tab")
    assert focused(opened) == LABEL.split(" ")[0]
    opened.keyboard.press("ArrowDown")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert opened.evaluate(outline) == "solid"
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.ariaLabel") == "functions"
    opened.keyboard.press("Shift+Tab")
    assert focused(opened) == READ


# ---- Search --------------------------------------------------------------------------------------


def test_a_search_marks_boxes_tells_their_time_and_filters_the_table(panel):
    panel.get_by_label("function", exact=True).fill("SPLIT")
    marked = panel.locator(".boxes .match")
    assert {label.split(" ")[0] for label in labels(marked)} == {SPLIT}
    eventually(marked).to_have_count(2)
    opacity = [
        box(panel, name).evaluate("box => Number(getComputedStyle(box).opacity)")
        for name in (SPLIT, READ)
    ]
    assert opacity[0] == 1 > opacity[1]
    # The inner call is a part of the outer one.
    base = 1_020_000 / 2_320_000
    head = 2_040_000 / HEAD_NS
    assert panel.locator("p[role=status]").text_content() == (
        f"1 of 8 rows; 2 paths have {units.percent(base)} of the time of the base "
        f"and {units.percent(head)} of the time of the head"
    )
    assert [row[0] for row in cells(panel.locator("table"))] == [SPLIT]
    box(panel, READ).click()
    eventually(marked).to_have_count(2)
    panel.get_by_label("function", exact=True).fill("")
    eventually(marked).to_have_count(0)
    assert box(panel, SPLIT).evaluate("box => getComputedStyle(box).opacity") == "1"


def labels(locator):
    return locator.evaluate_all("all => all.map(box => box.ariaLabel)")


# ---- The table -----------------------------------------------------------------------------------


def test_functions_have_base_and_head_side_by_side_the_cause_first(panel):
    rows = cells(panel.locator("table"))
    assert rows[0] == [
        SPLIT,
        "changed",
        "22 -> 43",
        "1.00 ms",
        "2.00 ms",
        "+1.00 ms",
        "1.02 ms",  # the call of itself is in it once
        "2.04 ms",
        "+1.02 ms",
    ]
    assert rows[1][:6] == [NORMAL, "new", "0 -> 60", "0 ns", "700 us", "+700 us"]
    assert rows[-1][0] == "sorted"
    [sums] = cells(panel.locator("table"), "tfoot")
    assert sums[3:6] == ["2.32 ms", "3.48 ms", "+1.16 ms"]


def test_functions_are_sorted(panel):
    panel.get_by_role("button", name="total head").click()
    assert [row[0] for row in cells(panel.locator("table"))][:3] == [LABEL, READ, SPLIT]


def test_what_got_faster_has_the_largest_gain_first(browser, tmp_path):
    profile = case_profile([(("f",), (1, 1), (9_000, 9_500)), (("g",), (2, 1), (90_000, 20_000))])
    verdict = concluded(Measured(factor=0.7), 8, end=End(profiles={CASE: profile}))
    path = tmp_path / "gate.html"
    path.write_text(gate_page(verdict), encoding="utf-8")
    for tab in visit(browser, path.as_uri()):
        panel = open_case(tab)
        # The operations of the case stay as they are.
        assert cells(panel.locator(".operations table"))
        assert [row[0] for row in cells(panel.locator(".functions table"))] == ["g", LABEL, "f"]


# ---- Windows, themes, paper ----------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_have_contrast_on_every_colour(browser, address, scheme):
    for tab in visit(browser, address, color_scheme=scheme):
        panel = open_case(tab)
        for name in (SPLIT, "sorted", READ):  # full red, blue, neither
            text = colour(box(panel, name), "color")
            assert contrast(text, colour(box(panel, name), "backgroundColor")) >= 4.5


@pytest.mark.parametrize("pixels", [360, 1400])
def test_nothing_is_wider_than_the_window(browser, address, pixels):
    for tab in visit(browser, address, viewport={"width": pixels, "height": 800}):
        panel = open_case(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= pixels
        scroll = panel.locator(".icicle .scroll")
        assert scroll.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_a_deep_picture_scrolls_in_a_window_and_is_whole_on_paper(browser, tmp_path):
    path = tuple(f"f{depth}" for depth in range(60))
    profile = case_profile(
        [(path[: depth + 1], (1, 1), (1_000, 2_000)) for depth in range(len(path))]
    )
    verdict = concluded(Measured(factor=1.3), 8, end=End(profiles={CASE: profile}))
    file = tmp_path / "gate.html"
    file.write_text(gate_page(verdict), encoding="utf-8")
    for tab in visit(browser, file.as_uri()):
        panel = open_case(tab)
        hidden = "box => box.scrollHeight - box.clientHeight"
        assert panel.locator(".icicle .scroll").evaluate(hidden) > 0
        tab.emulate_media(media="print")
        assert panel.locator(".icicle .scroll").evaluate(hidden) == 0
        assert place(panel, "f59")["y"] < panel.locator(".detail").bounding_box()["y"]
