"""The page of a gate in Chromium, by mouse and by keyboard."""

import dataclasses

import gate_builders
import pytest
from browsing import cells, colour, contrast, eventually, open_case, visit
from gate_builders import CASE, LABEL, MM, Measured, case_profile
from gate_scenes import OTHER_CASE, OTHER_LABEL, QUIET, concluded, slower
from html_tree import data_of, read

from mnistbench.core import units
from mnistbench.gate.decide.verdict.verdict import conclude
from mnistbench.gate.listing import Reach
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.report.page.view import FEW_CASES, gate_page
from mnistbench.gate.samples.raw_samples import End

#: Quiet cases beside the two of the gate, so that there is a field that filters them.
QUIET_CASES = [f"bench/test_b.py::test_quiet[{number}]" for number in range(FEW_CASES)]

#: Most characters of a page of 500 cases.
MOST = 3_000_000


@pytest.fixture(scope="module")
def verdict():
    """A gate that found a case and one of its operations slower, and calls a function twice."""
    cases = {
        **{case: Measured() for case in QUIET_CASES},
        OTHER_CASE: Measured(900_000),
        CASE: slower(new={MM: {"calls": 2.0}}),
    }
    labels = {CASE: LABEL, OTHER_CASE: OTHER_LABEL, **{case: case for case in QUIET_CASES}}
    return concluded(cases, 8, labels=labels)


@pytest.fixture(scope="module")
def address(tmp_path_factory, verdict):
    """The page as a file."""
    path = tmp_path_factory.mktemp("page") / "gate.html"
    path.write_text(gate_page(verdict), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    """The page in a window."""
    yield from visit(browser, address)


def names(tab):
    return tab.locator("tr.case:visible .open").all_text_contents()


def sort_cases(tab, heading):
    tab.locator("table.cases > thead").get_by_role("button", name=heading, exact=True).click()


# ---- Cases ---------------------------------------------------------------------------------------


def test_a_case_opens_by_keyboard_and_shows_both_sides_of_its_operations(opened, verdict):
    assert opened.locator(".operations tr").count() == 0  # nothing is drawn before it is asked for
    opened.locator("button.open").get_by_text(LABEL, exact=True).focus()
    opened.keyboard.press("Enter")
    table = opened.locator(".panel:visible .operations table")
    rows = cells(table)
    [estimate] = [
        estimate
        for estimate in verdict.shown.operations
        if estimate.quantity.case == CASE and estimate.quantity.members == (MM,)
    ]
    quantity = estimate.quantity
    assert rows[0][:8] == [
        "aten::mm",
        "forward",
        "fc1",
        "1 -> 2",
        units.duration(quantity.base),
        units.duration(quantity.head),
        units.percent(quantity.share),
        units.percent(estimate.change, signed=True),
    ]
    assert rows[0][9:] == [
        units.percent(estimate.change * quantity.share, signed=True),
        "regressed",
    ]
    interval = [units.percent(bound, signed=True) for bound in (estimate.low, estimate.high)]
    eventually(table.locator("tbody .plot").first).to_have_text(" to ".join(interval))
    assert len(rows) == len(QUIET)


def test_operations_are_sorted_and_filtered(opened):
    panel = open_case(opened)
    operations = panel.locator(".operations")
    eventually(operations.locator("th[aria-sort=descending]")).to_have_text("of the case")
    operations.get_by_role("button", name="share").click()
    assert cells(operations.locator("table"))[0][0] == "aten::mkldnn_convolution"
    panel.get_by_label("phase").select_option("optimizer")
    assert [row[0] for row in cells(operations.locator("table"))] == ["aten::add_"]


def test_cases_are_sorted_by_their_numbers(opened):
    assert names(opened)[0] == LABEL
    sort_cases(opened, "base")
    assert names(opened)[-1] == OTHER_LABEL
    sort_cases(opened, "case")
    assert names(opened) == sorted(names(opened))


def test_cases_are_filtered_by_name(opened):
    opened.get_by_label("case", exact=True).fill("QUIET[1")
    assert names(opened) == [case for case in names(opened) if "quiet[1" in case]
    eventually(opened.locator(".controls [role=status]").first).to_have_text("1 of 12")
    opened.get_by_label("case", exact=True).fill("")
    assert len(names(opened)) == len(QUIET_CASES) + 2


def test_a_finding_leads_to_its_case_even_if_that_is_filtered_out(opened):
    opened.get_by_label("case", exact=True).fill("quiet")
    link = opened.locator("#findings + .wide a").first
    for _ in range(2):  # the address does not change the second time
        link.click()
        panel = opened.locator(".panel:visible")
        eventually(panel.get_by_text("aten::mm, forward fc1: 1 -> 2 calls")).to_be_visible()
        opened.locator("button.open").get_by_text(LABEL, exact=True).click()
        eventually(opened.locator(".panel:visible")).to_have_count(0)


def test_an_address_with_a_case_opens_it(browser, address, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(f'<iframe src="{address}#case0" width="900" height="700"></iframe>')
    with browser.new_context() as context:
        tab = context.new_page()
        tab.goto(page.as_uri())
        frame = tab.frame_locator("iframe")
        frame.locator(".panel:visible .operations table").wait_for()
        eventually(frame.locator("tr.case:has([aria-expanded=true]) .open")).to_have_text(LABEL)


# ---- Pictures ------------------------------------------------------------------------------------


def test_each_interval_is_drawn_around_its_change_and_right_of_no_change_if_slower(opened):
    row = opened.locator("tr.case").first
    boxes = [row.locator(part).bounding_box() for part in ("svg > path", "circle", "use")]
    left = boxes[0]["x"]
    right = left + boxes[0]["width"]
    middle, zero = (box["x"] + box["width"] / 2 for box in boxes[1:])
    assert zero < left <= middle <= right


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_verdicts_have_contrast_in_both_themes(browser, address, scheme):
    # WCAG 2.2, 1.4.3: at least 4.5 for text.
    for tab in visit(browser, address, color_scheme=scheme):
        text = colour(tab.locator("td.verdict.worse").first, "color")
        assert contrast(text, colour(tab.locator("body"), "backgroundColor")) >= 4.5


# ---- Windows, paper, no script -------------------------------------------------------------------


@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_is_wider_than_the_window(browser, address, width):
    for tab in visit(browser, address, viewport={"width": width, "height": 800}):
        open_case(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_desktop_window_shows_all_columns_without_scrolling(browser, address):
    for tab in visit(browser, address, viewport={"width": 1400, "height": 800}):
        panel = open_case(tab)
        tables = [tab.locator(".wide:has(> .cases)"), panel.locator(".scroll")]
        for table in tables:
            assert table.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_without_javascript_everything_but_operations_is_visible(browser, address):
    for tab in visit(browser, address, java_script_enabled=False):
        eventually(tab.locator("dd").get_by_text(CASE, exact=True)).to_be_visible()
        eventually(tab.get_by_label("case", exact=True)).to_be_hidden()
        assert "need JavaScript" in tab.locator("noscript").inner_text()


# ---- Many cases ----------------------------------------------------------------------------------


def page_of_500(operations, profile=None):
    """The page of 500 cases with these operations each; every tenth has the profile."""
    few = gate_builders.series(Measured(operations=operations))
    cases = [f"bench/test_library_{n % 9}.py::test_case[{n}]" for n in range(500)]
    labels = dict(zip(cases, cases, strict=True))
    of_a_case = conclude(gate_builders.recorded(few), JudgeOptions())

    def for_all(estimates):
        return tuple(
            dataclasses.replace(
                estimate, quantity=dataclasses.replace(estimate.quantity, case=case)
            )
            for case in cases
            for estimate in estimates
        )

    trials = [
        dataclasses.replace(trial, cases=dict.fromkeys(cases, trial.cases[CASE])) for trial in few
    ]
    recorded = gate_builders.recorded(
        trials,
        labels=labels,
        reach=Reach(is_known=True, reasons=dict.fromkeys(cases, ("runs pkg/a.py:f (changed)",))),
        end=End(profiles=dict.fromkeys(cases[::10], profile) if profile else {}),
    )
    decision = dataclasses.replace(
        of_a_case.decision,
        cases=for_all(of_a_case.decision.cases),
        operations=for_all(of_a_case.decision.operations),
    )
    return gate_page(dataclasses.replace(of_a_case, recorded=recorded, decision=decision))


OPERATIONS = {(f"aten::op{n}", "forward", f"layer{n % 7}"): (50_000, 1.0) for n in range(20)}


def test_the_page_of_500_cases_is_small_and_draws_operations_when_they_are_opened(
    browser, tmp_path
):
    text = page_of_500(OPERATIONS)
    assert len(text) < MOST
    path = tmp_path / "many.html"
    path.write_text(text, encoding="utf-8")
    for tab in visit(browser, path.as_uri()):
        eventually(tab.locator("tr.case")).to_have_count(500)
        assert tab.locator(".operations *").count() == 0
        panel = open_case(tab, "bench/test_library_4.py::test_case[400]")
        eventually(panel.locator(".operations tbody tr")).to_have_count(len(OPERATIONS))


def test_the_page_of_500_cases_is_small_with_the_most_call_paths_of_fifty():
    callers = [f"library/part_{n % 9}.py:Class.method_{n}" for n in range(40)]
    called = [(caller, f"{caller}_{n}") for caller in callers for n in range(49)]
    paths = [*((caller,) for caller in callers), *called][:1_999]  # and the case itself
    profile = case_profile(
        [(path, (n % 90, n % 90), (4_000 + n, 5_000 + n)) for n, path in enumerate(paths)]
    )
    text = page_of_500({}, profile)
    assert len(text) < MOST
    drawn = [value for name, value in data_of(read(text)).items() if name.endswith("-paths")]
    assert [len(paths["depths"]) for paths in drawn] == [len(profile.paths)] * 50
