"""The page of a gate as HTML: its parts, its numbers, names shown as text."""

import dataclasses
import math
import re

import gate_builders
import pytest
from gate_builders import CASE, LABEL, MM, Measured, case_profile
from gate_scenes import OTHER_CASE, OTHER_LABEL, QUIET, SCENES, concluded, passed, slower
from hostile_builders import NAMES, is_clean
from html_tree import check_one_file, check_references, data_of, read, skeleton

from mnistbench.core import units
from mnistbench.gate.decide.verdict.verdict import conclude
from mnistbench.gate.listing import Reach
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.report.outcome import last_line
from mnistbench.gate.report.page.operations import NAMED
from mnistbench.gate.report.page.view import FEW_CASES, NOT_DECIDED, OPEN_LINES, gate_page
from mnistbench.gate.samples.case_profile import (
    CalledBy,
    CallPath,
    CaseProfile,
    ProfiledFunction,
)
from mnistbench.gate.samples.raw_samples import End, Reproducer
from mnistbench.gate.survey.reach.differences import CHANGED
from mnistbench.gate.words import ALL_CASES
from mnistbench.judging.verdicts import IMPROVED, REGRESSED


def page_of(verdict):
    return read(gate_page(verdict))


def with_header(verdict, **changes):
    """The verdict of the same trials with another header."""
    header = dataclasses.replace(verdict.header, **changes)
    return conclude(dataclasses.replace(verdict.recorded, header=header), JudgeOptions())


def table_after(root, anchor):
    """The first table below the heading with an id."""
    elements = root.all()
    [heading] = [element for element in elements if element.attributes.get("id") == anchor]
    after = elements[elements.index(heading) :]
    return next(element for element in after if element.tag == "table")


def cells_of(table):
    """Rows of a table by heading; of a cell with a picture its text alone."""
    head, *bodies = [
        [" ".join(cell.text.split()) for cell in row.children if getattr(cell, "tag", "")]
        for row in table.all("tr")
        if "panel" not in (row.attributes.get("class") or "") and row.within.within is table
    ]
    return [dict(zip(head, body, strict=True)) for body in bodies]


def cases_of(root):
    return {row["case"]: row for row in cells_of(table_after(root, "cases"))}


def lines_of(root):
    [main] = root.all("main")
    return [line.text for line in main.all("p", class_="line")]


def headings(root):
    return [heading.text for heading in root.all("h3")]


# ---- One file ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", SCENES)
def test_the_page_is_one_file_whose_references_lead_somewhere(scenes, scene):
    root = page_of(scenes[scene])
    check_one_file(root)
    check_references(root)


@pytest.mark.versions
@pytest.mark.parametrize("scene", ["regressed", "inconclusive"])
def test_the_page(golden, scenes, scene):
    text = gate_page(scenes[scene])
    golden(text[text.index("<main>") : text.index("</main>")] + "</main>\n", f"gate_{scene}.html")


@pytest.mark.parametrize("scene", SCENES)
def test_the_outcome_and_its_limitations_are_those_of_every_report(scenes, scene):
    root = page_of(scenes[scene])
    sentence = last_line(scenes[scene])
    lines = lines_of(root)
    [outcome] = root.all("h2")
    assert sentence.startswith(outcome.text)
    limitations = sentence.removeprefix(outcome.text).removeprefix("; ")
    assert "; ".join(lines).startswith(limitations)


# ---- Findings ------------------------------------------------------------------------------------


def test_a_finding_has_a_link_to_its_case(scenes):
    root = page_of(scenes["regressed"])
    link = table_after(root, "findings").all("a")[0]
    [case] = [row for row in root.all("tr", class_="case") if LABEL in row.text]
    assert link.attributes["href"] == f"#{case.attributes['id']}"


def test_findings_of_one_change_have_one_heading_and_its_operations_are_folded():
    changed = ProfiledFunction(
        "pkg/model.py:forward", CHANGED, differs_itself=True, is_of_tree=True
    )
    paths = (CallPath(-1, 0, 1.0, 1.0, 0, 0), CallPath(0, 1, 1.0, 1.0, 100_000, 900_000))
    called = (CalledBy(MM, 1, 100_000, 900_000),)
    profile = CaseProfile((ProfiledFunction("the case"), changed), paths, called)
    cases = {CASE: slower(), OTHER_CASE: slower()}
    verdict = concluded(cases, 8, end=End(profiles={CASE: profile, OTHER_CASE: profile}))
    root = page_of(verdict)
    [heading] = root.all("h4", class_="group")
    assert re.fullmatch(
        r"likely cause: pkg/model.py:forward \(changed\): 2 cases, \+7\.\d( to \+7\.\d)? %; "
        r"2 operations, \+\d\d\.\d( to \+\d\d\.\d)? %",
        " ".join(heading.text.split()),
    )
    shown, folded, *_ = root.all("table", class_="findings")
    assert all(row["what"].startswith("wall time step ") for row in cells_of(shown))
    assert len(cells_of(shown)) == len(cells_of(folded)) == 2
    assert "all of +800 us in a profiled iteration" in cells_of(shown)[0]["what"]
    assert "likely cause" not in cells_of(shown)[0]["what"]
    assert "aten::mm" in cells_of(folded)[0]["what"]
    [outcome] = root.all("h2")
    assert outcome.text.startswith("regressed: 2 cases (step ")
    assert outcome.text.endswith(") and 2 operations, likely cause pkg/model.py:forward (changed)")


def test_a_finding_without_a_known_cause_has_no_line_for_it():
    root = page_of(concluded(slower(), 8))
    assert len(cells_of(table_after(root, "findings"))) == 2
    assert root.all("p", class_="cause") == []


def test_the_change_of_what_is_new_is_the_end_of_its_axis():
    costs = {("import", ALL_CASES): (0, 1.0), ("setup", CASE): (90_000_000, 1.0)}
    estimate = gate_builders.estimate(
        math.inf, math.inf, math.inf, kind="once", case=ALL_CASES, base=0.0, head=9e7
    )
    verdict = concluded(Measured(), once=costs)
    verdict = dataclasses.replace(
        verdict, decision=dataclasses.replace(verdict.decision, once=(estimate,))
    )
    [row] = cells_of(table_after(page_of(verdict), "once"))
    assert (row["change"], row["growth below"]) == ("new", units.MISSING)


# ---- Cases ---------------------------------------------------------------------------------------


def test_each_measured_case_is_a_row_whatever_top_is():
    labels = {name: name for name in (f"b.py::test_{n}" for n in range(FEW_CASES + 1))}
    trials = gate_builders.series(dict.fromkeys(labels, Measured()))
    recorded = gate_builders.recorded(trials, labels=labels)
    root = page_of(conclude(recorded, JudgeOptions(top=1)))
    assert cases_of(root).keys() == labels.keys()
    assert [search.attributes["data-filters"] for search in root.all("input", type="search")] == [
        "measured"
    ]


def test_the_cells_of_a_case_are_the_estimates(scenes):
    verdict = scenes["regressed"]
    row = cases_of(page_of(verdict))[LABEL]
    wall, _, cpu, _ = [
        estimate for estimate in verdict.shown.cases if estimate.quantity.case == CASE
    ]
    assert row["base"] == units.duration(wall.quantity.base)
    assert row["head"] == units.duration(wall.quantity.head)
    change, low, high = (
        units.percent(share, signed=True) for share in (wall.change, wall.low, wall.high)
    )
    assert row["change"] == f"{change} {low} to {high}"
    assert row["CPU"] == units.percent(cpu.change, signed=True)
    assert row["slowdown below"] == units.percent_up(max(wall.high, cpu.high))
    assert row["verdict"] == REGRESSED


def test_findings_come_first_then_what_is_not_decided():
    names = ["quiet", "noisy", "slower"]
    cases = {"quiet": Measured(), "noisy": Measured(spread=0.05), "slower": slower()}
    root = page_of(concluded(cases, 8, labels=dict(zip(names, names, strict=True))))
    verdicts = {name: row["verdict"] for name, row in cases_of(root).items()}
    assert [*verdicts.items()] == [("slower", REGRESSED), ("noisy", NOT_DECIDED), ("quiet", "")]
    tones = [plot.attributes["class"] for plot in table_after(root, "cases").all("svg")]
    assert tones[1:] == ["forest worse", "forest undecided", "forest "]


def test_an_improvement_is_told_by_its_colour_and_its_word():
    root = page_of(concluded(slower(1 / 1.3), 8))
    assert cases_of(root)[LABEL]["verdict"] == IMPROVED
    assert root.all("svg", class_="better")


def test_a_case_says_why_it_is_measured_and_others_that_they_are_not():
    reach = Reach(
        is_known=True,
        reasons={CASE: ("runs pkg/a.py:f (changed)", "runs pkg/a.py:g (new)")},
        same={"b.py::two": "two", "b.py::one": "one"},
        uncovered=("pkg/b.py:g",),
    )
    root = page_of(with_header(concluded(Measured()), reach=reach))
    [row] = root.all("tr", class_="case")
    assert row.all("small")[0].text == "runs pkg/a.py:f (changed)"
    facts = [
        (name.text, value.text) for name, value in zip(root.all("dt"), root.all("dd"), strict=True)
    ]
    assert [name for name, _ in facts[:4]] == [
        "wall time",
        "mean wall time",
        "CPU time",
        "mean CPU time",
    ]
    assert facts[4:] == [
        ("test", CASE),
        ("measured because", "runs pkg/a.py:f (changed)"),
        ("measured because", "runs pkg/a.py:g (new)"),
    ]
    [same] = root.all("details", class_="same")
    assert same.all("summary")[0].text.endswith(": 2 cases")
    assert [item.text for item in same.all("li")] == ["one", "two"]
    assert "Changed code that no case runs or uses" in headings(root)
    assert "pkg/b.py:g" in lines_of(root)


def test_a_gate_that_measured_nothing_has_the_cases_that_it_left_out():
    verdict = concluded(Measured())
    verdict = with_header(
        dataclasses.replace(verdict, recorded=dataclasses.replace(verdict.recorded, trials=[])),
        sides=verdict.header.sides.without([CASE]),
        reach=Reach(is_known=True, same={"b.py::one": "one"}),
    )
    root = page_of(verdict)
    assert root.all("h2")[0].text == "passed: nothing was measured"
    assert root.all("table") == []
    assert [item.text for item in root.all("li")] == ["one"]


# ---- Operations ----------------------------------------------------------------------------------


def operations_of(root, label=LABEL):
    """Names of the operations of a case -> the other cells of their rows."""
    [case] = [row for row in root.all("tr", class_="case") if label in row.text]
    data = data_of(root)
    names = [tuple(row) for row in data["operation-names"]]
    return {names[row[0]]: row[1:] for row in data[f"{case.attributes['id']}-data"]}


def test_operations_have_base_and_head_side_by_side(scenes):
    verdict = scenes["regressed"]
    rows = operations_of(page_of(verdict))
    [estimate] = [
        estimate
        for estimate in verdict.shown.operations
        if estimate.quantity.case == CASE and estimate.quantity.members == (MM,)
    ]
    quantity = estimate.quantity
    base_calls, head_calls, *numbers, verdict_text, tone, _, _, _ = rows[
        "aten::mm", "forward", "fc1", ""
    ]
    assert (base_calls, head_calls) == (1, 2)
    assert numbers == pytest.approx(
        [
            quantity.base,
            quantity.head,
            quantity.share,
            estimate.change,
            estimate.low,
            estimate.high,
            estimate.change * quantity.share,
        ],
        rel=1e-5,
    )
    assert (verdict_text, tone) == (REGRESSED, "worse")
    assert len(rows) == len([row for row in verdict.shown.operations if row.quantity.case == CASE])


def test_what_replaces_an_operation_is_one_row_with_the_calls_of_both_sides(scenes):
    rows = operations_of(page_of(scenes["replaced"]))
    [name] = [name for name in rows if "aten::_scaled_mm" in name[0]]
    assert name[1:3] == ("forward", "fc1")
    assert sorted(name[3].split("; ")) == [
        "aten::_scaled_mm, forward fc1",
        "aten::add_, forward fc1",
        "aten::mm, forward fc1",
    ]
    assert rows[name][:2] == [1, 2]


def test_a_group_of_small_operations_names_the_first_of_them():
    small = {
        (f"aten::small{number}", "forward", f"m{number % 2}"): (2_000, 1.0) for number in range(20)
    }
    rows = operations_of(page_of(concluded(Measured(operations={**QUIET, **small}))))
    [name] = [name for name in rows if name[0] == "other"]
    assert name[1:3] == ("forward", units.MISSING)
    assert name[3].count("; ") == NAMED - 1
    assert name[3].endswith(" more")


def test_too_few_trials_have_no_cases_but_their_exact_differences():
    verdict = concluded(slower(new={MM: {"calls": 2.0}}))
    recorded = dataclasses.replace(verdict.recorded, trials=verdict.recorded.trials[:3])
    root = page_of(conclude(recorded, JudgeOptions()))
    assert headings(root) == ["Not decided", "Exact differences"]
    assert f"{LABEL}: aten::mm, forward fc1: 1 -> 2 calls" in lines_of(root)


# ---- Functions -----------------------------------------------------------------------------------


def test_a_case_with_a_profile_has_its_functions_which_the_verdict_does_not_rest_on():
    profile = case_profile([(("pkg/a.py:f",), (1, 2), (1_000, 3_000))])
    verdict = concluded(
        {CASE: slower(), OTHER_CASE: Measured()}, 8, end=End(profiles={CASE: profile})
    )
    root = page_of(verdict)
    check_references(root)
    [case] = [row for row in root.all("tr", class_="case") if LABEL in row.text]
    data = data_of(root)
    assert data["function-names"] == [[LABEL, "", False], ["pkg/a.py:f", "", False]]
    assert [name for name in data if name.endswith("-paths")] == [f"{case.attributes['id']}-paths"]
    assert [title.text for title in root.all("h4")].count("Functions") == 1
    [caption] = [line for line in lines_of(root) if "under a profiler" in line]
    assert "no basis of the verdict" in caption


def test_a_case_whose_functions_are_not_known_says_why():
    profile = CaseProfile(why_not="another profiler is active")
    root = page_of(concluded(slower(), 8, end=End(profiles={CASE: profile})))
    assert "Not known: another profiler is active" in lines_of(root)
    assert "function-names" not in data_of(root)


# ---- The rest ------------------------------------------------------------------------------------


def test_long_lists_are_folded():
    reach = Reach(
        is_known=True, uncovered=tuple(f"pkg/a.py:f{number}" for number in range(OPEN_LINES + 2))
    )
    root = page_of(with_header(concluded(Measured()), reach=reach))
    [folded] = root.all("details")
    assert folded.all("summary")[0].text == "2 more"
    assert [line.text for line in folded.all("p")] == ["pkg/a.py:f10", "pkg/a.py:f11"]


def test_what_occurs_once_has_a_table_with_the_differences_of_the_process():
    costs = {
        ("import", ALL_CASES): (50_000_000, 1.6),
        ("setup", CASE): (90_000_000, 1.0),
        ("resident memory", ALL_CASES): (90 * 2**20, 1.0),
    }
    root = page_of(
        concluded(Measured(), 8, once=costs, resident={"base": 10**6, "head": 2 * 10**6})
    )
    rows = {row["what"]: row for row in cells_of(table_after(root, "once"))}
    assert rows.keys() == {"import", "setup", "resident memory"}
    assert rows["import"]["verdict"] == REGRESSED
    assert rows["resident memory"]["base"].endswith(" MiB")
    assert "exact: peak memory of the process: 1,000,000 -> 2,000,000 bytes (+100.0 %)" in lines_of(
        root
    )
    # The threshold of memory is another one, so its rows have another grid.
    grids = {use.attributes["href"] for use in table_after(root, "once").all("use")}
    assert grids == {"#once0", "#once1"}


def test_parts_without_content_are_left_out():
    assert headings(page_of(passed())) == ["Cases", "Notes"]


def hostile(name):
    node_id = f"{name}::test[{name}]"
    rows = {(name, "forward", name): (900_000, 1.3), (f"{name}2", name, ""): (800_000, 1.0)}
    verdict = concluded(
        {node_id: Measured(factor=1.1, operations=rows), OTHER_CASE: Measured()},
        8,
        labels={node_id: f"step {name}", OTHER_CASE: OTHER_LABEL},
        base=name,
        head=name,
        only_base=[name],
        end=End(
            f"{name} ended",
            reproducers=(Reproducer((node_id, "operation", name), "", f"because {name}"),),
            profiles={
                node_id: case_profile(
                    [((name,), (1, 2), (1_000, 3_000))], {name: f"uses {name} (changed)"}
                ),
                OTHER_CASE: CaseProfile(why_not=f"because {name}"),
            },
        ),
        once={("setup", node_id): (90_000_000, 1.0)},
    )
    reach = Reach(
        is_known=True,
        reasons={node_id: (f"runs {name}",), OTHER_CASE: ("runs f",)},
        same={name: name},
        uncovered=(name,),
    )
    return with_header(verdict, reach=reach)


@pytest.fixture(scope="module")
def plain():
    return gate_page(hostile("plain"))


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_are_shown_as_text(name, plain):
    text = gate_page(hostile(name))
    assert is_clean(text)
    assert skeleton(read(text)) == skeleton(read(plain))
    data = data_of(read(text))
    shown = units.printable(name)
    assert shown in [row[0] for row in data["operation-names"]]
    assert [shown, f"uses {shown} (changed)", False] in data["function-names"]
