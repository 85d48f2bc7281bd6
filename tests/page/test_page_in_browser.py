"""The page in Chromium, by mouse and by keyboard."""

import random
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import builders
import pytest
from browsing import cells, eventually, visit
from builders import saved_file
from page_builders import epoch, shown, step
from shown_numbers import read_back

from mnistbench.core import units
from mnistbench.core.operation import OUTSIDE, operation_cells
from mnistbench.core.record import median_ns
from mnistbench.page.runs_page import runs_page as render

STEP = "step convnet-b16-cpu on digits"
DEVICE = "step convnet-b16-cuda on digits"


def device_case():
    """A case of an accelerator.

    Its kernels rank otherwise than its host times, its first call is seen from the host alone.
    """
    rows = [
        builders.op_row("aten::mm", 10_000, total_cpu_ns=90_000, self_device_ns=700_000),
        builders.op_row("aten::add", 50_000, self_device_ns=1_000),
    ]
    host = builders.op_table(*rows)
    device = builders.op_table(*rows, view="device")
    first = [
        builders.op_row("aten::mm", 4_000_000, total_cpu_ns=9_000_000, iterations=1),
        builders.op_row("aten::empty", 20_000, iterations=1),
    ]
    cold = builders.op_table(*first, temperature="cold", iterations=1, first_of_process=True)
    return step(device="cuda", device_ns=(800_000,), tables=(cold, host, device))


BASE = saved_file(step(), epoch(), datetime="2026-11-20T10:30:00+00:00")
NOW = saved_file(step(1.5), step(1.2, batch_size=64), epoch(), device_case())


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of two runs, as a file."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render([shown(BASE), shown(NOW, BASE, name="0002_now.json")]), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    """The page in a window.

    When the test ends, nothing has gone wrong and nothing was asked for outside the file.
    """
    yield from visit(browser, address)


def case(tab, label):
    return tab.locator("button.open:visible").get_by_text(label, exact=True)


def open_case(tab, label=STEP):
    case(tab, label).click()
    return tab.locator(".panel:visible")


def operations(panel):
    return cells(panel.locator(".operations table"))


def heads(panel):
    return panel.locator(".operations th").evaluate_all(
        "heads => heads.map(head => [head.textContent, head.ariaSort])"
    )


def sorted_by(panel):
    return [(title, order) for title, order in heads(panel) if order != "none"]


# ---- Opening -------------------------------------------------------------------------------------


@pytest.mark.versions
def test_a_case_opens_and_closes_by_mouse(opened):
    assert opened.locator(".operations tr").count() == 0  # nothing is drawn before it is asked for
    assert case(opened, STEP).get_attribute("aria-expanded") == "false"
    panel = open_case(opened)
    assert case(opened, STEP).get_attribute("aria-expanded") == "true"
    eventually(panel.locator(".operations tbody tr")).to_have_count(4)
    eventually(panel.get_by_text("About this case")).to_be_visible()
    # Anywhere in the row.
    opened.locator("tr.case", has=case(opened, STEP)).locator("td").nth(1).click()
    assert case(opened, STEP).get_attribute("aria-expanded") == "false"
    eventually(opened.locator(".panel:visible")).to_have_count(0)


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_case_opens_by_keyboard_and_focus_is_visible(opened, key):
    for _ in range(40):
        opened.keyboard.press("Tab")
        focused = opened.evaluate(
            "[document.activeElement.textContent, "
            "getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert focused[1] != "none", focused
        if focused[0] == STEP:
            break
    opened.keyboard.press(key)
    eventually(opened.locator(".panel:visible .operations tbody tr")).to_have_count(4)


SELECT = "(node) => getSelection().selectAllChildren(node)"


def test_a_case_opens_if_text_is_selected(opened):
    opened.locator("section:visible h2").evaluate(SELECT)
    case(opened, STEP).focus()
    opened.keyboard.press("Enter")
    eventually(opened.locator(".panel:visible .operations tbody tr")).to_have_count(4)
    # Not even a row's own numbers keep its button from working.
    opened.locator("tr.case:visible").first.evaluate(SELECT)
    case(opened, STEP).focus()
    opened.keyboard.press("Enter")
    eventually(opened.locator(".panel:visible")).to_have_count(0)


def test_a_number_of_a_row_is_copied_without_opening_the_case(opened):
    number = opened.locator("tr.case", has=case(opened, STEP)).locator("td.number").first
    box = number.bounding_box()
    opened.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2)
    opened.mouse.down()
    opened.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
    opened.mouse.up()
    assert opened.evaluate("getSelection().toString()").strip() == number.text_content()
    eventually(opened.locator(".panel:visible")).to_have_count(0)


def test_every_control_can_be_reached_by_keyboard(opened):
    panel = open_case(opened)
    reached = set()
    for _ in range(40):
        opened.keyboard.press("Tab")
        reached.add(
            opened.evaluate(
                "(({name, textContent, type}) => name || textContent || "
                "type)(document.activeElement)"
            )
        )
    radios = panel.locator("input[type=radio]:checked").evaluate_all(
        "all => all.map(one => one.name)"
    )
    assert {*radios, "search", "self CPU", "operation"} <= reached
    assert len(radios) == 3


# ---- Sorting and filtering -----------------------------------------------------------------------


#: Columns whose cells all differ: sorted the other way, they have the reverse order.
DISTINCT = {"operation", "self CPU", "share", "IQR of self", "per call", "memory"}


def test_operations_sort_by_any_column_both_ways(opened):
    panel = open_case(opened)
    assert sorted_by(panel) == [("self CPU", "descending")]
    assert [row[0] for row in operations(panel)] == [
        "aten::convolution_backward",
        "(outside operations)",
        "aten::addmm",
        "evaluate_function: X",
    ]
    for place, (title, _) in enumerate(heads(panel)):
        clicked = []
        for _ in range(2):
            panel.locator(".operations th").nth(place).get_by_role("button").click()
            clicked.append(([row[place] for row in operations(panel)], sorted_by(panel)))
        (first, before), (second, after) = clicked
        assert {before[0][1], after[0][1]} == {"ascending", "descending"}, title
        assert before[0][0] == after[0][0] == title
        if title in DISTINCT:
            known = [text for text in first if text != units.MISSING or place < 3]
            reverse = [text for text in second if text != units.MISSING or place < 3]
            assert reverse == known[::-1], title
        assert sorted(first) == sorted(second)
        if place < 3:
            assert first == sorted(first)
        if title in ("self CPU", "share"):
            numbers = [
                float(text.removesuffix(" %")) if title == "share" else read_back(text)
                for text in first
            ]
            assert numbers == sorted(numbers, reverse=True)


def test_numbers_sort_by_value_and_missing_ones_are_last(opened):
    panel = open_case(opened)
    panel.locator(".operations").get_by_role("button", name="memory").click()
    assert [row[-1] for row in operations(panel)] == ["4.00 KiB", "0 B", "0 B", "-64.0 B"]
    for _ in range(2):
        panel.locator(".operations").get_by_role("button", name="per call").click()
        assert [row[0] for row in operations(panel) if row[-2] == units.MISSING] == [
            "(outside operations)"
        ]
        assert operations(panel)[-1][-2] == units.MISSING


def test_operations_are_filtered_by_name_phase_and_module(opened):
    panel = open_case(opened)
    panel.get_by_label("operation", exact=True).fill("ADDMM")
    assert [row[0] for row in operations(panel)] == ["aten::addmm"]
    eventually(panel.get_by_role("status")).to_have_text(re.compile("^1 of 4 rows"))
    panel.get_by_label("operation", exact=True).fill("")
    panel.get_by_label("phase").select_option("backward")
    assert [row[0] for row in operations(panel)] == [
        "aten::convolution_backward",
        "evaluate_function: X",
    ]
    panel.get_by_label("module").select_option(units.MISSING)
    assert [row[0] for row in operations(panel)] == ["evaluate_function: X"]
    panel.get_by_label("operation", exact=True).fill("no such operation")
    assert operations(panel) == []
    eventually(panel.get_by_role("status")).to_have_text(re.compile("^0 of 4 rows"))


def test_the_sum_is_that_of_the_visible_rows(opened):
    panel = open_case(opened)
    (foot,) = cells(panel.locator(".operations table"), "tfoot")
    assert (foot[0], foot[5]) == ("sum of 4 rows", "100.0 %")
    panel.get_by_label("phase").select_option("backward")
    (foot,) = cells(panel.locator(".operations table"), "tfoot")
    assert foot[4] == units.duration(round(1_234_567 * 1.5) + 1_250)


def test_cases_sort_together_with_their_open_panel(opened):
    open_case(opened)
    table = opened.locator("table.cases:visible")
    labels = lambda: table.locator("tr.case .open").all_text_contents()  # noqa: E731
    before = labels()
    table.get_by_role("button", name="median").click()
    assert labels() == [
        "eval convnet-b16-cpu on digits",
        STEP,
        "step convnet-b64-cpu on digits",
        DEVICE,
    ]
    eventually(table.locator("tr.case:has([aria-expanded=true]) + tr")).to_be_visible()
    table.get_by_role("button", name="median").click()
    assert labels() == [
        DEVICE,
        "step convnet-b64-cpu on digits",
        STEP,
        "eval convnet-b16-cpu on digits",
    ]
    table.locator("th button").get_by_text("case", exact=True).click()
    assert labels() == sorted(before)


# ---- Views ---------------------------------------------------------------------------------------


def test_total_time_includes_called_operations(opened):
    panel = open_case(opened)
    assert next(row for row in operations(panel) if row[0] == "aten::addmm")[4] == "150 us"
    panel.get_by_role("radio", name="total").check()
    assert next(row for row in operations(panel) if row[0] == "aten::addmm")[4] == "375 us"
    eventually(panel.get_by_role("status")).to_contain_text("totals do not add up")
    (foot,) = cells(panel.locator(".operations table"), "tfoot")
    assert foot[4:6] == ["", ""]
    panel.get_by_role("radio", name="self").check()
    assert sorted_by(panel) == [("self CPU", "descending")]


def test_the_device_view_sorts_by_device_time(opened):
    panel = open_case(opened, DEVICE)
    assert sorted_by(panel) == [("self device", "descending")]
    assert [row[0] for row in operations(panel)] == ["aten::mm", "aten::add"]
    panel.get_by_role("radio", name="host").check()
    assert [row[0] for row in operations(panel)] == ["aten::add", "aten::mm"]


def radios(panel, state):
    return panel.locator(f".operations input[type=radio]:{state}").evaluate_all(
        "all => all.map(one => one.value)"
    )


def reasons(panel):
    return panel.locator(".operations fieldset label").evaluate_all(
        "all => all.map(one => one.title).filter(Boolean)"
    )


def choose(panel, *values):
    for value in values:
        panel.locator(f".operations input[value={value}]").check()


def columns_of_time(panel):
    titles = [title for title, _ in heads(panel)]
    rows = operations(panel)
    times = [title for title in titles if title.endswith(("CPU", "self device"))]
    return {title: {row[0]: row[titles.index(title)] for row in rows} for title in times}


def test_the_table_shows_the_calls_the_view_and_the_time_that_are_chosen(opened):
    panel = open_case(opened, DEVICE)
    assert radios(panel, "checked") == ["warm", "device", "self"]
    assert radios(panel, "disabled") == ["cold"]
    choose(panel, "total")
    assert columns_of_time(panel) == {
        "self device": {"aten::mm": "700 us", "aten::add": "1.00 us"},
        # 90.0 us in all, more than the sum of what the operations take themselves.
        "total CPU": {"aten::mm": "60.0 us", "aten::add": "50.0 us"},
    }
    choose(panel, "host", "cold", "self")
    assert columns_of_time(panel) == {"self CPU": {"aten::mm": "4.00 ms", "aten::empty": "20.0 us"}}
    assert radios(panel, "disabled") == []


def test_a_view_without_cold_calls_shows_the_warm_ones(opened):
    panel = open_case(opened, DEVICE)
    choose(panel, "host", "cold", "device")
    assert radios(panel, "checked") == ["warm", "device", "self"]
    assert columns_of_time(panel) == {
        "self device": {"aten::mm": "700 us", "aten::add": "1.00 us"},
        "self CPU": {"aten::mm": "10.0 us", "aten::add": "50.0 us"},
    }


def test_a_disabled_first_call_has_the_reason(opened):
    panel = open_case(opened, DEVICE)
    assert reasons(panel) == ["first calls are recorded on the host only"]
    panel.get_by_role("radio", name="device").focus()
    opened.keyboard.press("ArrowLeft")
    assert panel.get_by_role("radio", name="host").is_checked()
    assert panel.get_by_role("radio", name="host").evaluate("one => one === document.activeElement")
    assert reasons(panel) == []


def test_views_that_a_cpu_run_does_not_have_are_disabled(browser, tmp_path):
    path = tmp_path / "cpu.html"
    path.write_text(
        render([shown(saved_file(step(tables=(builders.op_table(),))))]), encoding="utf-8"
    )
    for tab in visit(browser, path.as_uri()):
        panel = open_case(tab)
        assert radios(panel, "checked") == ["warm", "host", "self"]
        assert radios(panel, "disabled") == ["cold", "device"]
        assert reasons(panel) == []


def test_functions_are_a_view_of_the_case_that_has_them(browser, tmp_path):
    functions = builders.op_table(builders.function_row(calls=3), view="functions")
    path = tmp_path / "functions.html"
    path.write_text(
        render([shown(saved_file(step(tables=(builders.op_table(), functions))))]), encoding="utf-8"
    )
    for tab in visit(browser, path.as_uri()):
        panel = open_case(tab)
        assert radios(panel, "checked") == ["warm", "functions", "self"]
        assert [row[:4] for row in operations(panel)] == [
            ["Parser.read", "-", "package.parse", "3"]
        ]
        assert "memory" not in [title for title, _ in heads(panel)]
        eventually(panel).to_contain_text("sum of its functions 100 us")
        choose(panel, "host")
        assert "aten::addmm" in [row[0] for row in operations(panel)]


def test_cold_calls_have_a_table_of_their_own(opened):
    panel = open_case(opened)
    choose(panel, "cold")
    assert [(row[0], row[4]) for row in operations(panel)] == [("aten::addmm", "9.00 ms")]


def test_bars_show_one_measure_at_a_time(opened):
    figures = opened.locator("details.sizes:visible figure.bars")
    assert figures.filter(visible=True).count() == 1
    opened.get_by_role("radio", name="time per sample").check()
    assert figures.filter(visible=True).get_attribute("data-measure") == "time per sample"


def test_the_newest_run_is_visible_and_another_can_be_chosen(opened):
    heading = opened.locator("section:visible h2")
    eventually(heading).to_have_text("2026-11-20 10:31 UTC, commit 1a2b3c4")
    opened.locator("#run").select_option(index=1)
    eventually(heading).to_have_text("2026-11-20 10:30 UTC, commit 1a2b3c4")
    assert opened.get_by_text("What changed").filter(visible=True).count() == 0


# ---- Colours, paper, windows ---------------------------------------------------------------------

BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.mark.parametrize(("scheme", "other_scheme"), [("light", "dark"), ("dark", "light")])
def test_the_theme_is_that_of_the_system_until_the_button_is_used(
    browser, address, scheme, other_scheme
):
    for tab in visit(browser, address, color_scheme=scheme):
        before = tab.evaluate(BACKGROUND)
        tab.get_by_role("button", name=f"{other_scheme} colors").click()
        after = tab.evaluate(BACKGROUND)
        assert {before, after} == {"rgb(255, 255, 255)", "rgb(21, 24, 28)"}
        tab.get_by_role("button", name=f"{scheme} colors").click()
        assert tab.evaluate(BACKGROUND) == before


@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_is_wider_than_the_window(browser, address, width):
    for tab in visit(browser, address, viewport={"width": width, "height": 800}):
        open_case(tab)
        tab.locator("details.ledger summary").first.click()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_print_has_whole_tables_and_no_controls(opened):
    panel = open_case(opened)
    opened.emulate_media(media="print")
    assert panel.locator(".scroll").evaluate("part => part.scrollHeight <= part.clientHeight + 1")
    assert panel.locator(".controls").filter(visible=True).count() == 0
    eventually(opened.get_by_role("button", name="colors")).to_be_hidden()


def test_without_javascript_everything_but_operations_is_visible(browser, address):
    for tab in visit(browser, address, java_script_enabled=False):
        assert tab.locator("h2").filter(visible=True).count() == 2
        assert "need JavaScript" in tab.locator("noscript").inner_text()


# ---- The file is all there is --------------------------------------------------------------------


def test_the_policy_blocks_requests_of_scripts(browser, address):
    hits = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self):
            hits.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments):
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Listener) as server, browser.new_context() as context:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab = context.new_page()
        tab.goto(address)
        blocked = tab.evaluate(
            """async (url) => {
                const blocked = [];
                const both = new Promise((done) => {
                    document.addEventListener("securitypolicyviolation", (event) => {
                        if (blocked.push(event.effectiveDirective) === 2) done();
                    });
                });
                new Image().src = url;
                await fetch(url).catch(() => {});
                await Promise.race([both, new Promise((done) => setTimeout(done, 5000))]);
                return blocked.sort();
            }""",
            f"http://127.0.0.1:{server.server_port}/leak",
        )
        server.shutdown()
    assert blocked == ["connect-src", "img-src"]
    assert hits == []


def test_operations_of_a_hundred_cases_are_drawn_when_opened(browser, tmp_path):
    rows = [
        builders.op_row(f"aten::op{number}", 1_000 * number, module=f"m{number % 9}")
        for number in range(150)
    ]
    tables = (
        builders.op_table(*rows, temperature="cold"),
        builders.op_table(*rows, builders.op_row(OUTSIDE, 5)),
    )
    cases = [
        step(batch_size=size, workload=f"net{number}", tables=tables)
        for number in range(25)
        for size in (1, 4, 16, 64)
    ]
    path = tmp_path / "hundred.html"
    path.write_text(render([shown(saved_file(*cases))]), encoding="utf-8")
    for tab in visit(browser, path.as_uri()):
        eventually(tab.locator("tr.case")).to_have_count(100)
        assert tab.locator(".operations *").count() == 0
        elements = tab.evaluate("document.querySelectorAll('*').length")
        panel = open_case(tab, "step net7-b16-cpu on digits")
        eventually(panel.locator(".operations tbody tr")).to_have_count(151)
        assert (
            tab.locator(".operations *").count()
            == tab.evaluate("document.querySelectorAll('*').length") - elements
        )


# ---- Numbers -------------------------------------------------------------------------------------


def numbers():
    """Ties, neighbours of a power of ten and of a binary unit, and whatever a record can hold."""
    draw = random.Random(1)
    ties = [250, 750, 1_250, 1_750, 50, 150, 999_950, 1_000_050, 2_500_250]
    edges = [
        0,
        1,
        9,
        10,
        49,
        51,
        99,
        100,
        999,
        1_000,
        1_023,
        1_024,
        1_048_575,
        1_048_576,
        1024**3 - 1,
        1024**3,
        2**40,
        2**50,
    ]
    drawn = [draw.randrange(10 ** draw.randrange(1, 16)) for _ in range(2_000)]
    return [sign * number for number in [*ties, *edges, *drawn] for sign in (1, -1)]


def test_numbers_are_formatted_as_by_units(opened):
    whole = numbers()
    for name in ("duration", "percent", "count", "size"):
        values = [*whole, *(number / 1_000 for number in whole), *(number / 16 for number in whole)]
        texts = opened.evaluate(f"given => given.map((number) => units.{name}(number))", values)
        assert texts == [getattr(units, name)(number) for number in values], name
        if name in ("duration", "percent"):
            texts = opened.evaluate(
                f"given => given.map((number) => units.{name}(number, true))", values
            )
            assert texts == [getattr(units, name)(number, signed=True) for number in values], name


def test_cells_have_the_numbers_of_the_record(opened):
    panel = open_case(opened)
    record = step(1.5)
    table = record.table("warm")
    expected = {}
    for row in table.rows:
        self_ns = row.self_ns("cpu")
        expected[operation_cells(*row.key)] = [
            units.count(row.calls),
            units.duration(self_ns),
            units.percent(self_ns / table.total_ns),
            units.duration(row.spread_ns("cpu")),
            units.duration(median_ns(row.self_cpu_ns) / row.calls) if row.calls else units.MISSING,
            units.size(row.memory_bytes),
        ]
    assert {tuple(row[:3]): row[3:] for row in operations(panel)} == expected
