"""What a gate prints, against files in golden/, and names in it that are anybody's."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import json
import math
import re
from collections import Counter

import gate_builders
import pytest
import scipy.stats
import strategies
from gate_builders import (
    ADD,
    CASE,
    CLONE,
    CONV,
    ENGINE,
    GEMM,
    LABEL,
    MM,
    Measured,
    recorded,
    rendered,
    series,
)
from gate_scenes import (
    BIAS,
    COPY,
    FUSED,
    OTHER_CASE,
    OTHER_LABEL,
    QUIET,
    RELU,
    SCENES,
    concluded,
    passed,
    profile_of,
    slower,
)
from hostile_builders import NAMES, is_clean
from hypothesis import given, settings
from hypothesis import strategies as st
from shown_numbers import agree

from mnistbench.gate.commands.result import result_of
from mnistbench.gate.decide.statistics.quantities import how_replaced
from mnistbench.gate.decide.verdict.decision import Decision
from mnistbench.gate.decide.verdict.findings import GateFinding
from mnistbench.gate.decide.verdict.reasons import bound_reason, bound_reasons
from mnistbench.gate.decide.verdict.verdict import conclude
from mnistbench.gate.explain.texts import Explanation
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.report.outcome import counted_findings, last_line
from mnistbench.gate.report.report import report
from mnistbench.gate.report.rows import FindingRow, Rows
from mnistbench.gate.report.text import WIDTH, finding_lines, forest
from mnistbench.gate.samples.case_names import NODE_IDS
from mnistbench.gate.samples.case_profile import (
    CallPath,
    CaseProfile,
    ProfiledFunction,
)
from mnistbench.gate.samples.raw_samples import End
from mnistbench.gate.words import ALL_CASES, BASE, COLD, CPU, HEAD, WALL
from mnistbench.judging.kinds import ITERATION, MEAN
from mnistbench.judging.verdicts import (
    BROKEN,
    IMPROVED,
    INCONCLUSIVE,
    PASSED,
    REGRESSED,
    UNCONFIRMED,
    Reason,
)
from mnistbench.showing.output import deliver_result, render

SEE_ALL = "to see all: mnistbench judge FILE --verbose"
FORMS = ("terminal", "markdown", "json")


def rounded(text):
    """JSON with six digits of every number: the last ones are the machine's."""
    data = json.loads(text, parse_float=lambda number: float(f"{float(number):.6g}"))
    return json.dumps(data, indent=1) + "\n"


# ---- golden files --------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize(("form", "ending"), [("terminal", "txt"), ("markdown", "markdown")])
def test_a_verdict_is_reported(golden, scenes, scene, form, ending):
    golden(rendered(scenes[scene], form, 3), f"gate_{scene}.{ending}")


def test_a_verdict_is_reported_as_json(golden, scenes):
    """One file has it whole; that of every scene has the schema (tests/test_schema.py)."""
    golden(rounded(rendered(scenes["regressed"], "json", 3)), "gate_regressed.json")


def data_of(verdict):
    return json.loads(rendered(verdict, "json", 3))


def test_json_of_a_gate_that_passed_has_the_slowdown_that_is_ruled_out(scenes):
    data = data_of(scenes["passed"])
    bounds = (data["no_regression_of"], data["no_regression_of_means"])
    assert bounds == pytest.approx((0.00285, 0.00285), rel=0.01)
    assert data["only_head"] == ["bench/test_step.py::test_step[mlp-b1-cpu]"]
    assert (data["findings"], data["reasons"]) == ([], [])


def test_json_of_an_inconclusive_gate_has_the_reasons_and_what_is_not_bounded(scenes):
    data = data_of(scenes["inconclusive"])
    assert [reason["kind"] for reason in data["reasons"]] == ["budget", "noise", "noise"]
    assert {unbounded["case"] for unbounded in data["unbounded"]} == {OTHER_LABEL}
    assert (data["different"], data["elapsed_seconds"]) == ([OTHER_LABEL], 412.0)


def test_json_of_accepted_regressions_has_their_reason(scenes):
    findings = data_of(scenes["accepted"])["findings"]
    assert {(finding["verdict"], finding["accepted"]) for finding in findings} == {
        (REGRESSED, "it is exact now")
    }


@pytest.mark.parametrize(
    ("scene", "outcome"),
    [
        ("passed", PASSED),
        ("regressed", REGRESSED),
        ("inconclusive", INCONCLUSIVE),
        ("accepted", PASSED),
        ("replaced", REGRESSED),
        ("caused", REGRESSED),
    ],
)
def test_the_last_line_is_the_outcome_in_a_sentence(scenes, scene, outcome):
    verdict = scenes[scene]
    assert verdict.outcome == outcome
    assert last_line(verdict).startswith(f"{outcome}: ")
    terminal, markdown, data = (rendered(verdict, form, 3) for form in FORMS)
    assert terminal.splitlines()[-1] == last_line(verdict)
    assert markdown.startswith(f"### mnistbench: {outcome}: ")
    assert (json.loads(data)["outcome"], json.loads(data)["sentence"]) == (
        outcome,
        last_line(verdict),
    )


# ---- the plot ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "low", "high", "expected"),
    [
        # inside
        (0.04, 0.02, 0.06, " " * 15 + "| (-*-)" + " " * 9),
        (-0.04, -0.06, -0.02, " " * 9 + "(-*-) |" + " " * 15),
        (0.15, 0.01, 0.149, " " * 15 + "|(" + "-" * 13 + "*"),
        # clipped at either edge
        (0.10, 0.05, 0.20, " " * 15 + "|    (----*---->"),
        (0.10, 0.05, 0.15, " " * 15 + "|    (----*---->"),
        (-0.10, -0.20, -0.05, "<----*----)    |" + " " * 15),
        (0.01, -0.90, 0.90, "<" + "-" * 14 + "|*" + "-" * 13 + ">"),
        (0.00, -0.90, 0.90, "<" + "-" * 14 + "*" + "-" * 14 + ">"),
        # over no change
        (0.02, -0.03, 0.07, " " * 12 + "(--|-*----)" + " " * 8),
        (0.02, 0.00, 0.04, " " * 15 + "(-*-)" + " " * 11),
        # all in one column
        (0.10, 0.10, 0.10, " " * 15 + "|" + " " * 9 + "*" + " " * 5),
        (0.104, 0.096, 0.101, " " * 15 + "|" + " " * 9 + "*" + " " * 5),
        (0.00, -0.001, 0.001, " " * 15 + "*" + " " * 15),
    ],
)
def test_an_interval_is_drawn_as_text(change, low, high, expected):
    drawn = forest(gate_builders.estimate(change, low, high), 0.15)
    assert drawn == f"[{expected}]"
    assert len(drawn) == WIDTH + 2


@pytest.mark.parametrize("sign", [1, -1])
def test_a_plot_shows_how_far_a_change_may_go_either_way(sign):
    ends = sorted([sign * 0.05, sign * 0.15])
    call = gate_builders.estimate(sign * 0.1, *ends)
    verdict = with_decision(passed(), cases=(call,))
    [row] = [
        line
        for line in rendered(verdict, "terminal", 3).splitlines()
        if line.startswith("case ") and "[" in line
    ]
    plot = row[row.index("[") :]
    assert re.search(r"[(<]-+\*-+[)>]", plot), plot


# ---- sentences -----------------------------------------------------------------------------------


def with_decision(verdict, **changes):
    return dataclasses.replace(verdict, decision=dataclasses.replace(verdict.decision, **changes))


@pytest.mark.parametrize("bound", [0.0149, 0.0194, 0.01949, 0.0101, 0.01])
def test_the_stated_exclusion_is_never_below_the_bound(bound):
    # "No regression of 1.9 % or more" would be more than is known where the bound is 1.94 %.
    verdict = with_decision(passed(), cases=(gate_builders.estimate(0.001, -0.01, bound),))
    said = float(re.search(r"no regression of (\d+\.\d) %", last_line(verdict))[1])
    assert bound * 100 <= said <= bound * 100 + 0.1
    [row] = [
        line
        for line in rendered(verdict, "terminal", 3).splitlines()
        if line.startswith("case ") and "[" in line
    ]
    assert float(row.split("]")[1].split()[0]) == said


def test_a_pass_says_how_rare_a_slowdown_may_be_that_did_not_occur():
    [line] = [
        line
        for line in rendered(passed(), "terminal", 3).splitlines()
        if line.startswith("not ruled out: ")
    ]
    share, trials, rarer, iterations = map(
        float, re.findall(r"([\d.]+) (?:%|trials|iterations|on)", line)
    )
    of_trials, of_iterations = (
        scipy.stats.binomtest(0, int(count), alternative="less").proportion_ci(0.95).high
        for count in (trials, iterations)
    )
    assert share == pytest.approx(100 * of_trials, abs=0.05)
    assert rarer == math.floor(1 / of_iterations)


COSTS = {
    ("import", ALL_CASES): (50_000_000, 1.6),
    ("setup", CASE): (90_000_000, 1.0),
    ("first iteration", CASE): (80_000_000, 1.0),
    ("resident memory", ALL_CASES): (90 * 2**20, 1.0),
    ("shared fixtures", ALL_CASES): (40_000_000, 1.0),
}


def test_what_occurs_once_has_a_table_and_a_sentence():
    text = rendered(concluded(Measured(), 8, once=COSTS), "terminal", 3)
    found = next(
        line for line in text.splitlines() if line.startswith("regressed: import (all cases), +5")
    )
    assert re.search(r", \d\d\.\d ms -> \d\d\.\d ms; confirmed by .* 20\.0 %$", found)
    table = text.partition("once in a process: ")[2].partition("\n\n")[0]
    assert re.search(r"^import +all cases +\d\d\.\d ms -> \d\d\.\d ms +\+5", table, re.MULTILINE)
    assert re.search(
        r"^resident memory +all cases +\d\d\.\d MiB -> \d\d\.\d MiB +", table, re.MULTILINE
    )
    assert len(table.splitlines()) == 3 + len(COSTS)
    # Without what has regressed.
    assert re.search(
        r"^once: no slowdown of \d\.\d % or more in imports, fixtures, setup and first iterations, "
        r"no growth of \d\.\d % or more in memory$",
        text,
        re.MULTILINE,
    )


@pytest.mark.parametrize(
    ("times_s", "once", "note"),
    [
        ((4, 8), {}, "was compiled with an empty cache in 4.00 s -> 8.00 s, timed once and *"),
        ((0, 8), {}, "was compiled in the head alone, in 8.00 s with an empty cache, timed once *"),
        ((8, 0), {}, "was compiled in the base alone, in 8.00 s with an empty cache, timed once *"),
        ((4, 8), {(COLD, CASE): (4_000_000_000, 1.0)}, None),
    ],
)
def test_a_compilation_that_is_not_judged_is_noted(times_s, once, note):
    compile_ns = {CASE: tuple(round(1e9 * time_s) for time_s in times_s)}
    verdict = concluded(Measured(), 8, once=once, compile_ns=compile_ns)
    notes = [
        line.partition(": ")[2]
        for line in rendered(verdict, "terminal", 3).splitlines()
        if "was compiled" in line
    ]
    assert len(notes) == (note is not None)
    assert all(fnmatch.fnmatch(text, note) for text in notes)


def test_without_costs_there_is_no_sentence_about_them(scenes):
    assert "once" not in rendered(scenes["passed"], "terminal", 3)


def test_iterations_that_show_cpu_time_alone_are_not_counted_as_seen():
    build = gate_builders.build(gate_builders.side(block_ns=(4_000_000.0,) * 9))
    verdict = conclude(
        recorded([gate_builders.trial(build)] * 8, labels={CASE: LABEL}), JudgeOptions()
    )
    assert f"({8 * gate_builders.PAIRS} on each side of " in rendered(verdict, "terminal", 3)


def test_a_bound_below_no_change_excludes_any_regression():
    verdict = with_decision(passed(), cases=(gate_builders.estimate(-0.05, -0.06, -0.04),))
    assert last_line(verdict).startswith("passed: no regression in the median time")


def test_improvements_are_counted_in_the_last_line():
    verdict = concluded(slower(1 / 1.3), 8)
    assert {finding.verdict for finding in verdict.decision.findings} == {IMPROVED}
    assert last_line(verdict).endswith("nor in the mean; 1 case and 1 operation improved")


def test_of_many_regressions_three_are_named():
    cases = {f"{CASE}{number}": slower() for number in range(4)}
    sentence = last_line(concluded(cases, 8, labels={case: case for case in cases}))
    assert re.fullmatch(
        r"regressed: 4 cases \((bench/\S+, \+7\.\d %; ){3}\.\.\.\) and 4 operations",
        sentence,
    )


def test_why_it_cannot_be_judged_is_counted_beyond_the_first():
    verdict = concluded(Measured(spread=0.05), end=End("interrupted"))
    assert len(verdict.reasons) > 1
    assert last_line(verdict).startswith(
        f"inconclusive: interrupted (and {len(verdict.reasons) - 1} more)"
    )


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        (["iteration", "mean"], "1 case"),
        (["iteration", "operation"], "1 case and 1 operation"),
        (["operation", "memory", "once"], "1 operation and 2 one-time costs"),
        (["mean", "added", "memory"], "1 case, 1 operation and 1 one-time cost"),
        ([], ""),
    ],
)
def test_the_last_line_counts_cases_operations_and_one_time_costs(kinds, text):
    rows = []
    for kind in kinds:
        estimate = gate_builders.estimate(0.1, 0.08, 0.12, kind=kind)
        finding = GateFinding(estimate, estimate, verdict=REGRESSED)
        rows.append(
            FindingRow(finding, (), "a", estimate, REGRESSED, "", (), (), Explanation(), "", "")
        )
    assert counted_findings(rows) == text


def test_a_slower_case_is_one_reason_whatever_clocks_show_it():
    near_the_limit = Measured(factor=1.021, spread=0.004)
    verdict = concluded({CASE: near_the_limit, OTHER_CASE: Measured()}, 12)
    [reason] = verdict.reasons
    assert len(verdict.decision.findings) > 1
    assert " more)" not in last_line(verdict)
    assert reason.text.startswith(f"{LABEL}: ")
    assert "mean" not in reason.text


def test_a_noisy_case_is_one_reason_whether_its_median_or_its_mean_is_open():
    median = gate_builders.estimate(0.0, -0.05, 0.05, case="a")
    mean = gate_builders.estimate(0.0, -0.09, 0.09, case="a", kind=MEAN)
    other = gate_builders.estimate(0.0, -0.04, 0.04, case="b")
    reasons = bound_reasons([median, mean, other], JudgeOptions(), NODE_IDS)
    assert [reason.text.partition(" cannot")[0] for reason in reasons] == [
        "a: a slowdown of up to 9.0 % of its mean wall time",
        "b: a slowdown of up to 4.0 % of its wall time",
    ]


def test_with_a_case_accepted_the_bound_is_that_of_the_others():
    cases = {CASE: slower(), OTHER_CASE: Measured()}
    sentence = last_line(concluded(cases, 8, accept=["*:*:900%"], reason="it is exact now"))
    assert re.fullmatch(
        r"passed: 1 case and 1 operation accepted \(it is exact now\); no regression of "
        r"0\.\d % or more in the median time of other cases, .*",
        sentence,
    )


def test_too_few_trials_have_no_tables():
    verdict = conclude(recorded(series(count=3), end=End("interrupted")), JudgeOptions())
    for form in ("terminal", "markdown"):
        text = rendered(verdict, form, 3)
        assert "3 trials are too few" in text
        assert "cases: change of" not in text
    data = json.loads(rendered(verdict, "json", 3))
    assert (data["no_regression_of"], data["cases"], data["operations"], data["trials"]) == (
        None,
        [],
        [],
        3,
    )


# ---- findings of one cause -----------------------------------------------------------------------


def test_findings_of_one_change_are_below_their_cause_and_cases_come_first(scenes):
    heading, *lines = finding_lines(Rows(scenes["caused"]))
    assert heading == (
        "likely cause: pkg/model.py:Net.forward (changed): 2 cases, +7.5 to +12.5 %; 2 operations, "
        "+30.0 to +50.2 %"
    )
    words = [line.partition(" (")[0] for line in lines]
    of_case = ["  regressed: wall time", "    all of +800 us in a profiled iteration"]
    of_operations = ["  regressed: aten::mm, forward fc1"] * 2
    assert words[:6] == [*of_case, *of_case, *of_operations]
    assert words[6] == "improved: wall time"
    assert lines[7].startswith("likely cause: pkg/metrics.py:mean (changed): all of -800 us ")


def test_a_cause_that_makes_cases_slower_and_faster_has_both_ranges():
    cases = {CASE: Measured(factor=1.3), OTHER_CASE: Measured(factor=0.8)}
    profiles = {
        CASE: profile_of("a.py:f", 100_000, 900_000),
        OTHER_CASE: profile_of("a.py:f", 900_000, 100_000),
    }
    [group] = Rows(concluded(cases, 8, end=End(profiles=profiles))).groups
    assert re.fullmatch(
        r"likely cause: a.py:f \(changed\): 1 case, \+\d\d\.\d %; 1 case, -\d\d\.\d %",
        group.heading,
    )
    assert [row.verdict for row in group.rows] == [REGRESSED, IMPROVED]


@pytest.mark.parametrize(
    ("suspects", "heading"),
    [
        ("a", "likely cause: a.py:a (changed): "),
        ("ab", "likely cause: a.py:a (changed) or another one: "),
    ],
)
def test_a_heading_says_if_there_are_several_suspects(suspects, heading):
    work = ProfiledFunction("b.py:work", is_of_tree=True)
    changed = [
        ProfiledFunction(f"a.py:{name}", "changed", differs_itself=True) for name in suspects
    ]
    paths = (
        CallPath(-1, 0, 1, 1, 0, 0),
        CallPath(0, 1, 1, 1, 50_000, 1_000_000),
        *(CallPath(0, 2 + number, 1, 1, 9_000, 9_000) for number in range(len(changed))),
    )
    profile = CaseProfile((ProfiledFunction("the case"), work, *changed), paths)
    cases = {CASE: Measured(factor=1.3), OTHER_CASE: Measured(factor=1.3)}
    verdict = concluded(cases, 8, end=End(profiles=dict.fromkeys(cases, profile)))
    [group] = Rows(verdict).groups
    assert group.heading.startswith(heading)
    assert ("likely cause" in last_line(verdict)) == (len(suspects) == 1)
    detail = finding_lines(Rows(verdict))[2]
    assert detail.startswith("    or a.py:b (changed): all of ") == (len(suspects) == 2)


def test_findings_without_a_known_cause_stand_alone(scenes):
    groups = Rows(scenes["regressed"]).groups
    assert [len(group.rows) for group in groups] == [1, 1]
    assert [group.cause for group in groups] == [None, None]


def test_of_many_findings_of_one_cause_the_first_are_shown_and_the_others_counted():
    profiles = dict.fromkeys(NAMES_OF_200, profile_of("a.py:f", 100_000, 900_000))
    verdict = suite(NAMES_OF_200, slower=20)
    verdict = dataclasses.replace(
        verdict, recorded=dataclasses.replace(verdict.recorded, end=End(profiles=profiles))
    )
    heading, *lines = section(shown(verdict), "Found")
    assert heading == "likely cause: a.py:f (changed): 20 cases, +10.0 %"
    assert len(lines) == 2 * 10 + 1
    assert lines[-1] == f"  10 more of this cause; {SEE_ALL}"
    everything = section(shown(verdict, everything=True), "Found")
    assert len(everything) == 1 + 2 * 20


def test_json_has_the_groups_with_the_positions_of_their_findings(scenes):
    data = json.loads(rendered(scenes["caused"], "json", 3))
    changed, alone = data["groups"]
    assert {name: changed[name] for name in ("cause", "path", "line", "is_only")} == {
        "cause": "pkg/model.py:Net.forward (changed)",
        "path": "pkg/model.py",
        "line": 12,
        "is_only": True,
    }
    verdicts = {
        group["cause"]: {data["findings"][position]["verdict"] for position in group["findings"]}
        for group in (changed, alone)
    }
    assert verdicts == {
        "pkg/model.py:Net.forward (changed)": {REGRESSED},
        "pkg/metrics.py:mean (changed)": {IMPROVED},
    }
    positions = [position for group in data["groups"] for position in group["findings"]]
    assert len(positions) == len(set(positions))
    [first, *_] = json.loads(rendered(scenes["regressed"], "json", 3))["groups"]
    assert (first["cause"], first["path"], first["line"]) == (None, None, None)


def test_what_was_flagged_and_not_confirmed_is_told():
    trials = [*series({CASE: slower()}, seed=3), *series({CASE: Measured()}, stage=2, seed=4)]
    verdict = conclude(recorded(trials), JudgeOptions())
    assert {finding.verdict for finding in verdict.decision.findings} == {UNCONFIRMED}
    text = rendered(verdict, "terminal", 3)
    assert (
        f"{LABEL}: aten::mm, forward fc1 was flagged, and 8 fresh trials did not confirm it" in text
    )


@pytest.mark.parametrize("top", [1, 3, 99])
def test_the_largest_operations_are_shown_and_what_was_found_always(top):
    small = {**QUIET, ADD: (100_000, 2.0)}
    verdict = concluded(Measured(factor=1.025, operations=small), 8)
    text = rendered(verdict, "terminal", top)
    table = text[text.index("change of self times") :]
    shown = [line for line in table.splitlines() if "[" in line]
    assert len(shown) == {1: 1, 3: 3}.get(top, 5)
    assert shown[0].startswith("aten::add_, optimizer ")


#: What decides which code runs.
GNU = {"instruction set": "AVX512", "oneDNN": "Intel AVX-512", "OpenMP": "libgomp.so.1"}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"torch": "2.14.0 -> 2.15.0"},
            "measured: 1 case, 8 trials, 160 s, torch 2.14.0 -> 2.15.0",
        ),
        (
            {"base": "3f2a1bc", "base_rule": "the parent of HEAD, a commit of main"},
            "base: 3f2a1bc, the parent of HEAD, a commit of main",
        ),
        (
            {"interpreter": "/p/.venv/bin/python (.venv of the project)"},
            "interpreter: /p/.venv/bin/python (.venv of the project)",
        ),
        ({"variables": {"base": {}, "head": {"A": "1 2", "B": ""}}}, "head with A='1 2' B=''"),
        (
            {"cpu": {"base": GNU, "head": GNU}},
            "cpu: instruction set AVX512; oneDNN Intel AVX-512; OpenMP libgomp.so.1",
        ),
        (
            {
                "cpu": {
                    "base": GNU,
                    "head": {**GNU, "instruction set": "AVX2", "oneDNN": "Intel AVX2"},
                }
            },
            (
                "cpu: instruction set AVX512 -> AVX2; oneDNN Intel AVX-512 -> Intel AVX2; OpenMP "
                "libgomp.so.1"
            ),
        ),
        (
            {"cpu": {"base": {}, "head": {"instruction set": "AVX2"}}},
            "cpu: instruction set none -> AVX2",
        ),
        (
            {"packages": {"torch": ["2.14", "2.15"], "x": ["", "1"]}},
            "packages of other versions: torch 2.14 -> 2.15",
        ),
        ({"packages": {"y": ["2", ""], "x": ["", "1"]}}, "packages only in the base: y"),
        ({"packages": {"y": ["2", ""], "x": ["", "1"]}}, "packages only in the head: x"),
        (
            {"packages": {name: ["", "1"] for name in "abcdefghijkl"}},
            "packages only in the head: 12 (a, b, c, ...)",
        ),
        ({"base": "main (1a2b3c4)", "head": "x"}, "base main (1a2b3c4) -> head x"),
    ],
)
def test_the_head_says_what_was_measured(changes, line):
    assert (
        line
        in rendered(concluded(Measured(), **changes), "terminal", 3).split("\n\n")[0].splitlines()
    )


#: What is known of two cases.
BOTH = {"labels": {CASE: LABEL, OTHER_CASE: "other"}}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"only_base": ["a", "b"]}, "only in the base: a, b"),
        ({"only_head": ["c"]}, "only in the head: c"),
        ({"only_head": [*"abcdefghijkl"]}, "only in the head: 12 (a, b, c, ...)"),
        ({"changed": ["d"]}, "other parameters in the head, so not compared: d"),
        (
            {"generated": ["a/_version.py", "b.so"]},
            "ignored by git, and copied from the working tree: a/_version.py, b.so",
        ),
        (
            {"left_out": {"base": {"t": "is skipped"}, "head": {"t": "is skipped"}}},
            "t: left out: is skipped",
        ),
        (
            {"left_out": {"base": {}, "head": {"t": "xfails: x"}}},
            "t: left out: xfails: x in the head",
        ),
        (
            {"left_out": {"base": {"t": "a"}, "head": {"t": "b"}}},
            "t: left out: a in the base; b in the head",
        ),
        (
            {"left_out": {"base": dict.fromkeys("abcdefgh", "x"), "head": {}}},
            "8 tests (a, b, c, ...): left out: x in the base",
        ),
        ({"unmeasurable": {"t": "its id differs"}}, "t: left out: its id differs"),
        (
            {"remarks": ["the sides declare other dependencies"]},
            "the sides declare other dependencies",
        ),
        (
            {"sources": {CASE: ("t.py",), OTHER_CASE: ("t.py",)}, **BOTH},
            f"{LABEL}, other: other tests or data, from which a difference in time may come: t.py",
        ),
        (
            {"sources": {CASE: ("a", "t.py")}},
            f"{LABEL}: other tests or data, from which a difference in time may come: a, t.py",
        ),
        ({"notes": {CASE: "changes its arguments"}}, f"{LABEL}: changes its arguments"),
        (
            {"returned": {CASE: ("list", "generator")}},
            (
                f"{LABEL}: the base returns list and the head generator, so a difference in time "
                "may come from the result"
            ),
        ),
        (
            {"uncompared": {CASE: "returns object"}},
            f"{LABEL}: returns object, so the results of the sides are not compared",
        ),
        (
            {"uncompared": {CASE: "returns object", OTHER_CASE: "returns a.B"}, **BOTH},
            (
                f"{LABEL}, other: returns object, returns a.B, so the results of the sides are "
                "not compared"
            ),
        ),
    ],
)
def test_what_is_known_of_cases_precedes_the_verdict(changes, line):
    assert line in section(rendered(concluded(Measured(), **changes), "terminal", 3), "Notes")


def test_a_case_that_returns_another_type_is_different_and_not_improved():
    faster = Measured(factor=0.5, operations={})
    verdict = concluded(faster, 8, returned={CASE: ("list", "generator")})
    assert concluded(faster, 8).different == ()
    assert verdict.different == (CASE,)
    assert last_line(concluded(faster, 8)).endswith("; 1 case improved")
    assert last_line(verdict).endswith(f"in the mean; the sides return different types in {LABEL}")


WORKS_ON = "1 thread goes on after the call returns, and its work is not timed"


@pytest.mark.parametrize(
    ("facts", "doubt"),
    [
        ({}, ""),
        (
            {"returned": {CASE: ("list", "Future")}},
            (
                "; but the base returns list and the head Future, so the head may leave work out "
                "or put it off"
            ),
        ),
        (
            {"uncompared": {CASE: "returns Lazy"}},
            (
                "; but the results of the sides are not compared (returns Lazy), so the head may "
                "leave work out or put it off"
            ),
        ),
        ({"outlives": {CASE: ("", WORKS_ON)}}, f"; but in the head {WORKS_ON}"),
        ({"outlives": {CASE: (WORKS_ON, "")}}, ""),
    ],
    ids=["the same", "another type", "not compared", "a thread", "of the base"],
)
def test_an_improvement_says_whether_the_head_may_do_less_in_its_call(facts, doubt):
    faster = Measured(factor=0.5, operations={})
    lines = finding_lines(Rows(concluded(faster, 8, **facts)))
    assert all(line.startswith("improved: ") for line in lines)
    assert all(("; but " in line) == bool(doubt) and line.endswith(doubt) for line in lines)
    slower = finding_lines(Rows(concluded(Measured(factor=2.0, operations={}), 8, **facts)))
    assert not any("; but " in line for line in slower)


@pytest.mark.parametrize(
    ("fresh", "why"),
    [
        (0, "no fresh trial has measured it again, so it is not called improved"),
        (4, "4 fresh trials are too few to call it improved"),
    ],
)
def test_an_improvement_that_too_few_trials_repeat_is_shown_and_is_no_reason(fresh, why):
    verdict = concluded(Measured(factor=0.5, operations={}), fresh)
    assert verdict.outcome == PASSED
    lines = finding_lines(Rows(verdict))
    assert all(line.startswith("unconfirmed: ") for line in lines)
    assert all(line.endswith(f"; {why}") for line in lines)
    assert "did not confirm" not in rendered(verdict, "terminal", 3)


@pytest.mark.parametrize(("of_base", "said"), [("", True), (WORKS_ON, False)])
def test_work_that_the_head_does_after_its_call_is_no_improvement(of_base, said):
    faster = Measured(factor=0.5, operations={})
    verdict = concluded(faster, 8, outlives={CASE: (of_base, WORKS_ON)})
    sentence = last_line(verdict)
    assert "improved" not in sentence
    told = f"in the head work goes on after the call returns in {LABEL}, and is not timed"
    assert (told in sentence) == said
    note = WORKS_ON if of_base else f"in the head: {WORKS_ON}"
    assert f"{LABEL}: {note}" in section(rendered(verdict, "terminal", 3), "Notes")
    assert json.loads(rendered(verdict, "json"))["outlives"] == {LABEL: note}


def test_numbers_that_are_not_finite_precede_the_verdict():
    text = rendered(concluded(Measured(outcomes=(("aa", None), ("aa", None)))), "terminal")
    assert f"{LABEL}: NaN or infinity in the base and in the head; times may depend on it\n" in text


@pytest.mark.parametrize("cpu", [{}, {"base": {}, "head": {}}])
def test_without_torch_the_head_has_no_line_about_the_cpu(cpu):
    assert "cpu:" not in rendered(concluded(Measured(), cpu=cpu), "terminal", 3)


def test_without_torch_the_head_names_no_version():
    text = rendered(concluded(Measured(), torch=""), "terminal", 3)
    assert "measured: 1 case, 8 trials, 160 s\n" in text


def test_no_more_facts_are_shown_than_a_reader_takes():
    keys = [(f"aten::op{number}", "forward", "fc1") for number in range(9)]
    more = {key: {"calls": 2.0} for key in keys}
    case = Measured(operations={**QUIET, **dict.fromkeys(keys, (100_000, 1.0))}, new=more)
    verdict = concluded(case)
    text = rendered(verdict, "terminal", 6)
    assert text.count(": 1 -> 2 calls") == 6
    assert f"{LABEL}: 3 more; {SEE_ALL}" in text
    assert shown(verdict, everything=True).count(": 1 -> 2 calls") == 9
    assert len(json.loads(rendered(verdict, "json", 3))["exact"][LABEL]) == 9


# ---- likely causes -------------------------------------------------------------------------------


def found_line(case, what, word="regressed", **changes):
    """What is said of one finding."""
    return found_lines(case, what, word, **changes)[0]


def found_cause(case, what, **changes):
    """What is said of the cause of one finding."""
    line = found_lines(case, what, **changes)[1]
    return line.removeprefix("likely cause: ") if line.startswith("likely cause: ") else ""


def found_lines(case, what, word="regressed", **changes):
    """The line of a finding and the next one."""
    lines = rendered(concluded(case, 8, **changes), "terminal", 3).splitlines()
    [number] = [n for n, line in enumerate(lines) if line.startswith(f"{word}: {what} (")]
    return lines[number : number + 2]


def test_an_operation_whose_name_has_a_colon_says_what_differs_and_nothing_else():
    case = Measured(
        6_000_000,
        1.1,
        operations={**QUIET, ENGINE: (2_000_000, 1.3)},
        new={ENGINE: {"calls": 2.0}},
    )
    line = found_line(case, "evaluate_function: AddmmBackward0, backward fc1")
    assert line.endswith(" %; 1 -> 2 calls")


# ---- replaced operations -------------------------------------------------------------------------


def test_a_replacement_that_got_slower_says_what_became_what_with_both_sums():
    case = Measured(
        factor=1.25, operations={**QUIET, GEMM: (2_000_000, 1.0)}, only_base=[MM], only_new=[GEMM]
    )
    line = found_line(case, "aten::mm -> aten::_scaled_mm, forward fc1")
    assert re.search(
        (
            r"\), \+(99|10\d)\.\d % \(.*\), 1\.0\d ms -> 2\.\d+ ms; "
            r"\+2\d\.\d % of the case; "
        ),
        line,
    )


def test_a_new_operation_says_what_it_adds_to_the_case():
    case = Measured(factor=1.025, operations={**QUIET, CLONE: (100_000, 1.0)}, only_new=[CLONE])
    line = found_line(case, "nothing -> aten::clone, forward fc1")
    assert re.search(
        r"\), \+2\.\d % of the case \(.*\), 0 ns -> 9\d\.\d us; confirmed by .* 0\.5 %$", line
    )


# ---- base, head and change of a row --------------------------------------------------------------


def at_speed(trial, speed, head_speed):
    """A trial on a machine that is slower by a factor.

    The head takes another factor of the time.
    """

    def slower_side(name, side):
        factor = speed * (head_speed if name == "head" else 1.0)
        return dataclasses.replace(
            side,
            wall_ns=tuple(ns * factor for ns in side.wall_ns),
            cpu_ns=tuple(ns * factor for ns in side.cpu_ns),
            self_ns=tuple(tuple(round(ns * factor) for ns in times) for times in side.self_ns),
        )

    cases = {
        case: [{name: slower_side(name, side) for name, side in build.items()} for build in builds]
        for case, builds in trial.cases.items()
    }
    return dataclasses.replace(trial, cases=cases)


FACTORS = st.floats(0.3, 3.0)


def drifting_verdict(speeds, costs):
    """The verdict about trials whose speed and change are never the same.

    The machine's speed and the head's change.
    """
    more = {GEMM: (900_000, 1.0), BIAS: (250_000, 1.0), FUSED: (400_000, 1.0), COPY: (8_000, 1.0)}
    case = Measured(operations={**QUIET, **more}, only_base=[MM, ADD], only_new=[*more])
    trials = [
        at_speed(trial, *of_trial)
        for stage in (1, 2)
        for trial, of_trial in zip(
            series(case, once=costs, stage=stage, seed=3), speeds, strict=True
        )
    ]
    return conclude(recorded(trials), JudgeOptions(everything=True))


#: What the base takes for a cost that occurs once, and the factor of the head; small and missing
#: costs of times.
SOME_COSTS = st.fixed_dictionaries(
    {
        key: st.tuples(
            st.just(base) if key[0] == "resident memory" else st.sampled_from([base, 6_000_000, 0]),
            FACTORS,
        )
        for key, (base, _) in COSTS.items()
    }
)


@settings(parent=strategies.ANY_SPEED, max_examples=15)
@given(st.lists(st.tuples(FACTORS, FACTORS), min_size=8, max_size=8), SOME_COSTS)
def test_base_and_head_of_each_row_give_its_change(speeds, costs):
    verdict = drifting_verdict(speeds, costs)
    data = json.loads(rendered(verdict, "json"))
    findings = [
        finding[stage]
        for finding in data["findings"]
        for stage in ("screened", "confirmed")
        if finding[stage]
    ]
    rows = [*data["cases"], *data["operations"], *data["once"], *findings]
    assert {"iteration", "mean", "replaced", "added", "memory"} <= {row["kind"] for row in rows}
    for row in rows:
        unit = "bytes" if row["kind"] == "memory" else "ns"
        base = row[f"base_{unit}"]
        head = row[f"head_{unit}"]
        change = row["change"]
        if row["kind"] == "added":
            assert (head - base) * change >= 0
        elif change is None:
            assert base == 0 < head
        else:
            assert head == pytest.approx(base * (1 + change), rel=1e-9, abs=1e-6)
    of_tables = shown_in_tables(verdict)
    assert len(of_tables) >= 2
    for base, head, change in (*of_tables, *shown_in_lines(rendered(verdict, "terminal"))):
        assert agree(base, head, change) or (base, change) == ("0 ns", "new")


def shown_in_tables(verdict):
    """Base, head and change of each row that has them."""
    found = []
    for table in (table for block in report(verdict).blocks for table in block.tables):
        for row in (dict(zip(table.headings, cells, strict=True)) for cells in table.cells):
            if "base -> head" in row:
                found.append((*row["base -> head"].split(" -> "), row["change"]))
            elif "head" in row:
                found.append((row["base"], row["head"], row["change"]))
    return found


def shown_in_lines(text):
    """Base, head and change of each sentence that has them.

    Of an operation that one side has, the change is of the case.
    """
    number = r"[\d.,]+ [A-Za-z]+"
    sentences = re.finditer(rf"([-+]?[\d.,]+ %) \([^()]*\), ({number}) -> ({number})", text)
    return [(found[2], found[3], found[1]) for found in sentences]


def test_a_possible_fusion_of_other_places_names_what_is_gone_there():
    rows = {CLONE: (100_000, 1.0), RELU: (250_000, 1.0)}
    case = Measured(factor=1.0, operations={**QUIET, **rows}, only_base=[RELU], only_new=[CLONE])
    line = found_line(case, "nothing -> aten::clone, forward fc1")
    gone = (
        r"nothing is gone in its place, but elsewhere aten::relu -> nothing, forward conv2 "
        r"\(2\d\d us\): if it replaces them"
    )
    assert re.search(gone, line)


@pytest.mark.parametrize("is_split", [False, True])
def test_small_operations_that_are_fused_are_compared_with_what_replaces_them(
    is_split,
):
    parts = [(f"my::part{number}", "forward", "fc1") for number in range(4)]
    fused_ns = 130_000 if is_split else 60_000  # each time the head is faster
    rows = {**dict.fromkeys(parts, (25_000, 1.0)), CLONE: (fused_ns, 1.0)}
    sides = (
        {"only_base": [CLONE], "only_new": parts}
        if is_split
        else {"only_base": parts, "only_new": [CLONE]}
    )
    verdict = concluded(Measured(operations={**QUIET, **rows}, **sides), 8)
    assert not [finding for finding in verdict.decision.findings if finding.verdict == "regressed"]
    [group] = [one.quantity for one in verdict.decision.operations if one.quantity.replaced]
    assert (how_replaced(group.replaced), set(group.members)) == ("replaced", set(rows))


def section(text, title):
    return text.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines()


def test_of_many_replacements_the_largest_are_shown_and_the_others_counted(scenes):
    lines = section(rendered(scenes["replaced"], "terminal", 1), "Replaced operations")
    assert lines[0].startswith("replaced: aten::add_ -> ")
    assert lines[1:] == [f"1 more; {SEE_ALL}"]


def test_a_report_for_programs_has_every_replaced_operation_with_its_times(scenes):
    data = json.loads(rendered(scenes["replaced"], "json", 1))
    found = {one["title"]: one for one in data["operations"] if one["replaced"]}
    assert set(found) == {
        "aten::mm -> aten::_scaled_mm + aten::add_, forward fc1",
        "aten::add_ -> aten::_fused_adam_, optimizer",
        "nothing -> aten::contiguous, forward conv2",
    }
    split = found["aten::mm -> aten::_scaled_mm + aten::add_, forward fc1"]
    times = {tuple(one["operation"]): (one["base_ns"], one["head_ns"]) for one in split["replaced"]}
    assert {key: (base is None, head is None) for key, (base, head) in times.items()} == {
        MM: (False, True),
        GEMM: (True, False),
        BIAS: (True, False),
    }
    assert times[MM][0] == split["base_ns"]


def test_a_new_operation_is_the_likely_cause_of_a_slower_call():
    case = Measured(factor=1.25, operations={**QUIET, CLONE: (1_000_000, 1.0)}, only_new=[CLONE])
    assert found_cause(case, "wall time") == "aten::clone, forward fc1: new, 1 call"


def test_fewer_calls_are_no_cause_of_a_slowdown():
    case = slower(
        base={ADD: {"calls": 2.0}, CONV: {"calls": 16.0}},
        new={ADD: {"calls": 1.0}, CONV: {"calls": 8.0}},
    )
    assert not found_cause(case, "wall time")


BRGEMM = "matmul brg_matmul:avx512_core"
JIT = "convolution jit:avx512_core"
AVX2 = "convolution jit:avx2"


@pytest.mark.parametrize(
    ("base", "head", "text"),
    [
        ({BRGEMM: 2}, {"matmul ref:any": 2}, f"another path was taken: {BRGEMM} -> matmul ref:any"),
        ({JIT: 2, BRGEMM: 1}, {BRGEMM: 1, AVX2: 2}, f"another path was taken: {JIT} -> {AVX2}"),
        ({JIT: 2}, {JIT: 1, AVX2: 1}, f"another path was taken: {JIT} -> {AVX2} + {JIT}"),
        (
            {BRGEMM: 1, JIT: 1},
            {},
            f"another path was taken: oneDNN {JIT} + {BRGEMM} -> PyTorch's own code",
        ),
        (
            {JIT: 1},
            {BRGEMM: 1, JIT: 1},
            f"another path was taken: PyTorch's own code -> oneDNN {BRGEMM}",
        ),
        (
            {JIT: 1, "reorder": 2},
            {JIT: 1, "reorder": 4},
            "changes of layouts by oneDNN: 2 -> 4 reorders",
        ),
        ({JIT: 1}, {JIT: 1, "reorder": 1}, "changes of layouts by oneDNN: 0 -> 1 reorders"),
    ],
)
def test_another_onednn_implementation_is_an_exact_difference_and_the_first_cause(base, head, text):
    case = slower(new={MM: {"calls": 2.0}})
    changes = {"implementations": {CASE: {"base": base, "head": head}}}
    assert found_cause(case, "wall time", **changes) == text
    assert concluded(case, **changes).exact_differences[CASE][0] == text
    assert json.loads(rendered(concluded(case, **changes), "json", 3))["implementations"] == {
        LABEL: {"base": base, "head": head}
    }


@pytest.mark.parametrize(
    ("base", "head", "differences"),
    [
        ({JIT: 2, "reorder": 1}, {JIT: 3, "reorder": 1}, 0),
        ({}, {}, 0),
        ({JIT: 1, "reorder": 1}, {AVX2: 1, "reorder": 3}, 2),
    ],
)
def test_the_runs_of_an_implementation_do_not_matter_and_those_of_reorders_do(
    base, head, differences
):
    found = concluded(
        Measured(), implementations={CASE: {"base": base, "head": head}}
    ).exact_differences
    assert len(found.get(CASE, ())) == differences


def test_fewer_reorders_are_no_cause_of_a_slowdown():
    fewer = {
        "implementations": {CASE: {"base": {JIT: 1, "reorder": 2}, "head": {JIT: 1, "reorder": 1}}}
    }
    assert "cause" not in found_line(slower(), "wall time", **fewer)


@pytest.mark.parametrize(("factor", "far"), [(1.2, True), (0.8, True), (1.015, False)])
def test_a_trial_that_is_far_from_the_others_is_named(factor, far):
    """Less than the threshold of 2 % does not matter.

    However close together the other trials are.
    """
    trials = series({CASE: Measured(spread=0.002)}, seed=3)
    trials[5] = series({CASE: Measured(factor=factor, spread=0.002)}, seed=3)[5]
    verdict = conclude(recorded(trials, labels={CASE: LABEL}), JudgeOptions())
    lines = [
        line
        for line in rendered(verdict, "terminal", 3).splitlines()
        if line.startswith(f"{LABEL}: 1 of 8 trials far")
    ]
    assert len(lines) == far
    assert len(json.loads(rendered(verdict, "json", 3))["far_trials"]) == far
    if far:
        assert f"by wall time ({100 * (factor - 1):+.0f}" in lines[0]


def test_of_many_trials_far_from_the_others_the_farthest_three_are_shown():
    trials = series({CASE: Measured(spread=0.002)}, seed=3, count=16)
    for number, factor in enumerate((1.1, 1.3, 0.7, 1.2, 1.4)):
        trials[number] = series({CASE: Measured(factor=factor, spread=0.0)}, seed=3)[number]
    verdict = conclude(recorded(trials, labels={CASE: LABEL}), JudgeOptions())
    [line] = [
        line
        for line in rendered(verdict, "terminal", 3).splitlines()
        if line.startswith(f"{LABEL}: 5 of 16 trials far")
    ]
    assert "(-30.0 %, +40.0 %, +30.0 %, ...; median 0.0 %)" in line


def test_without_an_exact_difference_no_cause_is_named():
    assert "cause" not in found_line(slower(), "wall time")
    assert "calls" not in found_line(slower(), "aten::mm, forward fc1")


def test_a_regression_shows_its_confirmed_change_beside_the_limit():
    verdict = concluded(Measured(factor=1.02, spread=0.012), 8)
    [finding] = [one for one in verdict.shown.findings if one.quantity.title == "wall time"]
    assert finding.confirmed.low < finding.least < verdict.options.case < finding.best.change
    line = found_line(Measured(factor=1.02, spread=0.012), "wall time", word="slower")
    estimate = next(
        estimate
        for estimate in verdict.shown.cases
        if estimate.quantity.key == finding.quantity.key
    )
    assert (estimate.trials, finding.confirmed.trials) == (16, 8)
    assert f", {100 * estimate.change:+.1f} % ({100 * estimate.low:+.1f} % to " in line
    assert (
        f"; confirmed by 8 fresh trials, which show {100 * finding.least:+.1f} % or more; " in line
    )
    assert line.endswith("; less or more than the limit of 2.0 %")
    assert last_line(verdict).startswith("inconclusive: ")
    assert "which may be less or more than the limit of 2.0 %; measure" in last_line(verdict)


# ---- names that are anybody's --------------------------------------------------------------------


def hostile(name):
    """A regression in which everything that a file may name is called that."""
    changed = (name, "forward", "fc1")
    other = ("aten::mm", name, "fc2")
    new = (f"{name} new", "forward", name)
    case = Measured(
        factor=1.1,
        operations={**QUIET, changed: (1_000_000, 1.4), other: (500_000, 1.0), new: (20_000, 1.0)},
        only_new=[new],
        new={changed: {"kernels": (name,)}},
        base={changed: {"kernels": (f"{name}1",)}},
        outcomes=(("aa", 1.0), ("bb", 2.0)),
    )
    node_id = f"{name}::test[{name}]"
    return concluded(
        {node_id: case, OTHER_CASE: Measured()},
        8,
        labels={node_id: f"step {name}", OTHER_CASE: OTHER_LABEL},
        base=name,
        head=name,
        torch=name,
        only_base=[name],
        only_head=[f"{name} head"],
        changed=[f"{name} changed"],
        accept=(f"*:{name}:5%", f"{name}:gone:5%"),
        reason=f"because {name}",
        end=End(f"{name} ended"),
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bound", [1e300, float("inf")])
def test_bounds_without_a_limit_are_shown(form, bound):
    estimates = tuple(
        gate_builders.estimate(change, -1.0, bound, kind="operation") for change in (0.0, bound)
    )
    calls = (
        gate_builders.estimate(0.0, -1.0, bound),
        gate_builders.estimate(bound, -1.0, bound, name="cpu"),
    )
    text = rendered(
        with_decision(passed(), cases=calls, operations=estimates, unbounded=estimates), form, 3
    )
    assert "a slowdown of 5.0 % cannot be ruled out for " in text


@pytest.fixture(scope="module")
def plain():
    return hostile("plain")


def line_count(text):
    """The number of lines outside of preformatted tables, in which long names are wrapped."""
    return len(re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL).splitlines())


@pytest.mark.parametrize(
    "name",
    ["line end", "other line ends", "escape", "lone surrogate", "markdown", "html", "format"],
)
def test_names_are_shown_as_text(plain, name):
    """What a format does with them is tested with the formats.

    Here, that each name of the report is handed to one.
    """
    name = NAMES[name]
    verdict = hostile(name)
    assert verdict.outcome == plain.outcome
    # A name that ends a line could write a verdict of its own.
    for form in ("terminal", "markdown"):
        text = rendered(verdict, form, 10)
        assert is_clean(text)
        assert line_count(text) == line_count(rendered(plain, form, 10))
    data = json.loads(rendered(verdict, "json", 10))
    assert (data["base"], data["only_base"], data["frameworks"]["torch"]) == (name, [name], name)
    assert f"step {name}" in {case["case"] for case in data["cases"]}
    assert name in {key[0] for operation in data["operations"] for key in operation["members"]}


# ---- many cases ----------------------------------------------------------------------------------

NAMES_OF_200 = [f"test_{number}" for number in range(200)]
LONG_NAMES = [f"tests/{'folder/' * 26}test_{number:04}" for number in range(500)]


def suite(names, slower=0, noisy=0, **of_header):
    """The verdict over many plain tests.

    The first ones are slower, the next ones too noisy to be judged.
    """
    cases = []
    open_cases = []
    reasons = []
    for number, name in enumerate(names):
        change = 0.10 if number < slower else 0.0
        reach = 0.09 if slower <= number < slower + noisy else 0.01
        cases += [
            gate_builders.estimate(
                change,
                change - reach,
                change + reach,
                case=name,
                kind=kind,
                name=clock,
            )
            for clock in (WALL, CPU)
            for kind in (ITERATION, MEAN)
        ]
        if reach > 0.05:
            open_cases.append(cases[-4])
            reasons.append(bound_reason(cases[-4], JudgeOptions(), NODE_IDS))
    findings = tuple(GateFinding(one, one, 0.09, verdict=REGRESSED) for one in cases if one.change)
    outcome = REGRESSED if slower else INCONCLUSIVE if noisy else PASSED
    decision = Decision(
        outcome,
        tuple(cases),
        operations=(),
        once=(),
        findings=findings,
        reasons=tuple(reasons),
        trials=10,
        fresh=4,
        open_cases=tuple(open_cases),
    )
    nothing = conclude(
        recorded([], labels={name: name for name in names}, **of_header), JudgeOptions()
    )
    return dataclasses.replace(nothing, decision=decision)


def shown(verdict, form="terminal", **options):
    return render(report(dataclasses.replace(verdict, options=JudgeOptions(**options))), form)


def test_a_report_begins_with_what_was_found():
    parts = shown(suite(NAMES_OF_200, slower=2, noisy=3)).split("\n\n")
    assert (
        parts[0].splitlines()[1]
        == "measured: 200 cases, 10 trials and 4 fresh ones, 0 ns, torch 2.15.0"
    )
    assert parts[1].splitlines() == [
        "Found:",
        *(
            f"regressed: wall time (test_{number}), +10.0 % (+9.0 % to +11.0 %), 4.00 ms -> "
            "4.40 ms; CPU time +10.0 %; confirmed by 8 fresh trials, which show +9.0 % or more; "
            "more than the limit of 2.0 %"
            for number in (0, 1)
        ),
    ]
    assert parts[2].splitlines()[:2] == [
        "Not decided:",
        (
            "test_2: a slowdown of up to 9.0 % of its wall time cannot be ruled out; "
            "about 152 trials would settle it"
        ),
    ]


def test_of_many_cases_those_without_a_finding_are_one_line():
    verdict = suite(NAMES_OF_200, slower=2, noisy=3)
    text = shown(verdict)
    bounds = (
        "no regression of 1.0 % or more in the median time of any of them, nor of 1.0 % or more "
        "in the mean"
    )
    assert section(text, "Cases") == [f"195 cases without a finding: {bounds}"]
    assert [line.split()[0] for line in text.splitlines() if "[" in line] == [
        f"test_{number}" for number in range(5)
    ]
    everything = shown(verdict, everything=True)
    assert "without a finding" not in everything
    assert len([line for line in everything.splitlines() if "[" in line]) == 200


def test_a_case_is_one_row_with_all_clocks_and_bounds():
    [row] = [line for line in shown(suite(["test_a"], slower=1)).splitlines() if "[" in line]
    numbers = "4.00 ms 4.40 ms +10.0 % +9.0 % +11.0 % +10.0 % 11.0 % 11.0 %"
    assert re.sub(r"\[.*\]", "", row).split() == ["test_a", *numbers.split(), "regressed"]


@pytest.mark.parametrize(("count", "rows"), [(10, 10), (11, 0)])
def test_of_few_cases_all_are_shown(count, rows):
    text = shown(suite(NAMES_OF_200[:count]))
    assert len([line for line in text.splitlines() if "[" in line]) == rows
    assert (f"{count} cases without a finding: " in text) == (rows == 0)


def test_an_inconclusive_gate_counts_bounded_cases_and_says_what_trials_change():
    verdict = suite([f"test_{number}" for number in range(8)], noisy=2)
    highs = {"test_0": 0.025, "test_1": 0.3}
    cases = tuple(
        dataclasses.replace(one, change=0.0, high=highs.get(one.quantity.case, 0.01))
        for one in verdict.decision.cases
    )
    recorded = dataclasses.replace(
        verdict.recorded, end=dataclasses.replace(verdict.end, elapsed_s=100.0)
    )
    verdict = dataclasses.replace(with_decision(verdict, cases=cases), recorded=recorded)
    # A bound falls with the root of the number of trials: 8 * (log 1.025 / log 1.02)^2 = 12.4.
    said = (
        "; 6 of 8 cases rule out 2.0 %, all of them 30.0 %, and about 13 trials (130 s) would "
        "settle 1 more"
    )
    assert said in last_line(verdict)
    # Of one case the reason says the same.
    alone = tuple(one for one in cases if one.quantity.case == "test_1")
    assert "cases rule out" not in last_line(with_decision(verdict, cases=alone))


def test_every_regressed_case_has_a_row_and_of_noisy_ones_the_first_ten():
    text = shown(suite(NAMES_OF_200, slower=30))
    assert len([line for line in text.splitlines() if "[" in line]) == 30
    assert section(text, "Found")[10:] == [f"20 more; {SEE_ALL}"]
    text = shown(suite(NAMES_OF_200, noisy=60))
    assert len([line for line in text.splitlines() if "[" in line]) == 10
    assert (
        section(text, "Cases")[1]
        == f"50 more cases in which a slowdown is not ruled out; {SEE_ALL}"
    )


def test_of_more_than_ten_noisy_cases_the_number_the_range_and_the_worst_are_said():
    verdict = suite(NAMES_OF_200, noisy=60)
    highs = {f"test_{number}": 0.03 + 0.001 * number for number in range(60)}
    open_cases = tuple(
        dataclasses.replace(estimate, high=highs[estimate.quantity.case])
        for estimate in verdict.decision.open_cases
    )
    reasons = [bound_reason(estimate, verdict.options, verdict.names) for estimate in open_cases]
    interrupted = Reason(BROKEN, "interrupted")
    verdict = with_decision(verdict, open_cases=open_cases, reasons=(interrupted, *reasons))
    lines = section(shown(verdict), "Not decided")
    assert lines[:2] == [
        "interrupted",
        (
            "60 of 200 cases: slowdowns of up to 3.0 % to 8.9 % cannot be ruled out, and about 20 "
            f"trials would settle 2; the worst follow; {SEE_ALL}"
        ),
    ]
    assert [line.partition(":")[0] for line in lines[2:]] == ["test_59", "test_58", "test_57"]
    assert len(section(shown(verdict, everything=True), "Not decided")) == 61
    # Ten cases have a line each.
    few = suite(NAMES_OF_200, noisy=10)
    assert [line.partition(":")[0] for line in section(shown(few), "Not decided")] == [
        f"test_{number}" for number in range(10)
    ]


def test_of_many_noisy_cases_the_next_step_has_its_price():
    verdict = suite(NAMES_OF_200, noisy=60)
    open_cases = tuple(
        dataclasses.replace(estimate, change=0.0, high=0.3 if number else 0.025)
        for number, estimate in enumerate(verdict.decision.open_cases)
    )
    ended = dataclasses.replace(verdict.recorded, end=End(elapsed_s=100.0))
    verdict = dataclasses.replace(with_decision(verdict, open_cases=open_cases), recorded=ended)
    # A bound falls with the root of the number of trials: 8 * (log 1.025 / log 1.02)^2 = 12.4.
    assert ", and about 13 trials (130 s) would settle 1; " in shown(verdict)


def test_trials_far_from_the_others_in_several_cases_are_one_line():
    verdict = suite(NAMES_OF_200[:20])
    far_logs = {"test_3": (0.0,) * 9 + (0.2,), "test_7": (0.0,) * 8 + (-0.4, 0.3)}
    cases = tuple(
        dataclasses.replace(
            estimate,
            quantity=dataclasses.replace(
                estimate.quantity, logs=far_logs.get(estimate.quantity.case, (0.0,) * 10)
            ),
        )
        for estimate in verdict.decision.cases
    )
    verdict = with_decision(verdict, cases=cases)
    [line] = [line for line in shown(verdict).splitlines() if "far from the others" in line]
    assert line.startswith(
        "trials far from the others in 2 cases; the worst is test_7: 2 of 10 trials far from "
        "the others by wall time (-33.0 %, +35.0 %; median 0.0 %)"
    )
    assert shown(verdict, everything=True).count(" of 10 trials far from the others") == 2
    assert len(json.loads(shown(verdict, "json"))["far_trials"]) == 2


def all_of_it(names):
    """As much as a report can say of each of many cases."""
    verdict = suite(
        names,
        noisy=len(names) // 2,
        sources={name: (f"{name}.py",) for name in names},
        notes={
            name: f"asks for one round, and its second call took {number} us"
            for number, name in enumerate(names)
        },
        uncompared={name: f"returns Type{number % 20}" for number, name in enumerate(names)},
        left_out={BASE: {f"{name}x": f"is skipped: {name}" for name in names}, HEAD: {}},
        only_head=[f"{name}_head" for name in names],
        changed=[f"{name}_changed" for name in names],
        packages={name: ["1", "2"] for name in names},
        generated=names,
        only_base=[f"{name}_base" for name in names],
    )
    far = tuple(gate_builders.estimate(0.0, -0.01, 0.01, case=name) for name in names)
    far = tuple(
        dataclasses.replace(
            one, quantity=dataclasses.replace(one.quantity, logs=(0.0,) * 9 + (1.0,))
        )
        for one in far
    )
    costs = tuple(
        gate_builders.estimate(0.0, -0.1, 0.1, case=name, kind="once", name="setup")
        for name in names
    )
    operations = tuple(
        gate_builders.estimate(0.0, -0.1, 0.1, case=name, kind="operation", share=0.05)
        for name in names
    )
    unconfirmed = tuple(GateFinding(one, one, verdict=UNCONFIRMED) for one in operations)
    verdict = with_decision(
        verdict,
        cases=(*far, *verdict.decision.cases),
        once=costs,
        operations=operations,
        findings=unconfirmed,
    )
    return dataclasses.replace(
        verdict,
        exact_differences={
            name: (f"parameters: 1 -> {number}",) for number, name in enumerate(names)
        },
        different=tuple(names),
        not_finite=dict.fromkeys(names, (HEAD,)),
    )


def test_of_many_cases_nothing_is_said_more_than_ten_times():
    text = shown(all_of_it(NAMES_OF_200))
    counted = Counter(
        re.sub(r"test_\d+|[\d.,]+", "N", line) for line in text.splitlines() if "[" not in line
    )
    assert {line: count for line, count in counted.items() if count > 10 and line} == {}
    assert max(map(len, text.splitlines())) < 1_000
    assert (
        "200 cases (test_0, test_1, test_2, ...): 20 types (returns Type0, returns Type1, " in text
    )
    assert len(shown(all_of_it(NAMES_OF_200), everything=True).splitlines()) > 1_000


@functools.cache
def verdict_over_long_names(kind):
    if kind == "everything is said":
        return all_of_it(LONG_NAMES)
    number = len(LONG_NAMES)
    return suite(LONG_NAMES, **{} if kind == "nothing is found" else {kind: number})


@pytest.mark.parametrize("kind", ["slower", "noisy", "everything is said", "nothing is found"])
@pytest.mark.parametrize(("everything", "most"), [(False, 65_536), (True, 2**20)])
def test_markdown_fits_a_comment_and_with_all_a_summary(
    tmp_path, monkeypatch, kind, everything, most
):
    verdict = verdict_over_long_names(kind)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    options = JudgeOptions(everything=everything, format="markdown", output=tmp_path / "report.md")
    verdict = dataclasses.replace(verdict, options=options)
    result = result_of(report(verdict), options, verdict.outcome)
    deliver_result(result, options)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert len(text.encode()) < most
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == f"{text}\n"
    assert text.startswith(f"### mnistbench: {verdict.outcome}: ")
    assert text.splitlines()[-3].startswith(f"- {verdict.outcome}: ")
    for element in ("details", "pre"):
        assert text.count(f"<{element}") == text.count(f"</{element}>")
    if verdict.decision.findings and not everything:
        assert re.search(rf"\d+ more(| lines); {SEE_ALL}\n", text)
