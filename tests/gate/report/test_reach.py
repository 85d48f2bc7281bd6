"""What a report says of the cases that run changed code, and of those that do not."""

import dataclasses
import json

import gate_builders as build
import pytest
from gate_builders import CASE, LABEL

from mnistbench.gate.decide.verdict.verdict import conclude
from mnistbench.gate.listing import Reach
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.report.outcome import last_line
from mnistbench.gate.report.report import report
from mnistbench.gate.survey.reach.cases import BY_NEW_CASES, IN_COMPILED
from mnistbench.judging.verdicts import INCONCLUSIVE, PASSED, REGRESSED
from mnistbench.showing.output import render

REASON = "runs pkg/a.py:f (changed)"

#: One of three cases runs changed code; one changed function is run by none.
SOME = Reach(
    is_known=True,
    reasons={CASE: (REASON,)},
    same={"bench.py::one": "one", "bench.py::two": "two"},
    looks={"bench.py::one": 1.02},
    uncovered=("pkg/b.py:g",),
)


def judged(reach, *, cases=True, **options):
    """The verdict of quiet trials of a case, or of none, with this reach."""
    recorded = build.recorded(build.series() if cases else [])
    sides = recorded.header.sides if cases else recorded.header.sides.without([CASE])
    header = dataclasses.replace(recorded.header, sides=sides, reach=reach)
    recorded = dataclasses.replace(recorded, header=header)
    return conclude(recorded, JudgeOptions(**{"case": 1.0, "operation": 1.0, **options}))


def shown(verdict, output="terminal"):
    return render(report(verdict), output)


def test_a_pass_holds_for_the_cases_that_run_changed_code():
    verdict = judged(SOME)
    sentence = last_line(verdict)
    assert verdict.outcome == PASSED
    assert " of the 1 affected case, nor" in sentence
    assert (
        "; 2 cases run the same code on both sides; in a quick look 1 of them was not slower "
        "by 30.0 % or more; "
    ) in sentence
    assert sentence.endswith(
        "1 changed function or name is run or used by no case: pkg/b.py:g; this gate says nothing "
        "about it"
    )


def test_a_case_that_a_look_shows_as_slower_is_none_of_those_that_are_not():
    looks = {"bench.py::one": 1.02, "bench.py::two": 1.45}
    sentence = last_line(judged(dataclasses.replace(SOME, looks=looks)))
    assert "in a quick look 1 of them was not slower" in sentence


def test_without_cases_that_run_the_same_code_a_pass_holds_for_any_case():
    everything = dataclasses.replace(SOME, same={}, looks={}, uncovered=())
    assert "of any case" in last_line(judged(everything))
    assert last_line(judged(everything)) == last_line(judged(Reach()))


def test_each_measured_case_has_its_reason_in_the_report():
    lines = shown(judged(SOME)).splitlines()
    start = lines.index("Changed code:")
    assert lines[start + 1 : start + 3] == [
        f"{LABEL}: {REASON}",
        "pkg/b.py:g: run or used by no case",
    ]
    assert any(line.startswith("measured: 1 of 3 cases, ") for line in lines)


def test_with_required_coverage_a_function_that_no_case_runs_is_inconclusive():
    verdict = judged(SOME, require_coverage=True)
    assert verdict.outcome == INCONCLUSIVE
    assert not verdict.is_excusable
    assert "1 changed function or name is run or used by no case: pkg/b.py:g" in last_line(verdict)
    assert judged(dataclasses.replace(SOME, uncovered=()), require_coverage=True).outcome == PASSED


def test_a_function_that_may_be_in_use_does_not_fail_required_coverage():
    why = {"pkg/c.py:f": IN_COMPILED, "pkg/d.py:g": BY_NEW_CASES}
    reach = dataclasses.replace(SOME, uncovered=(), not_followed=why)
    verdict = judged(reach, require_coverage=True)
    assert verdict.outcome == PASSED
    for name, text in why.items():
        assert f"changed, {text}: {name}" in last_line(verdict)
        assert f"{name}: {text}" in shown(verdict).splitlines()


@pytest.mark.parametrize(
    ("same", "expected"),
    [
        ({"a": "a", "b": "b"}, "all 2 cases run the same code on both sides"),
        ({"a": "a"}, "1 case runs the same code on both sides"),
    ],
)
def test_if_no_case_runs_changed_code_nothing_was_measured(same, expected):
    verdict = judged(Reach(is_known=True, same=same), cases=False)
    assert (verdict.outcome, last_line(verdict)) == (
        PASSED,
        f"passed: nothing was measured; {expected}",
    )


def test_a_title_that_another_test_has_names_neither_of_them():
    # The title has the file without its folder. One of both is not measured.
    ids = ("x/test_a.py::test_f", "y/test_a.py::test_f")
    title = "test_a.py::test_f"
    measured = {ids[0]: title, "z.py::test_g": "z.py::test_g"}
    samples = build.recorded(
        build.series(dict.fromkeys(measured, build.Measured())), labels=measured
    )
    reach = Reach(
        is_known=True,
        reasons=dict.fromkeys(measured, (REASON,)),
        same={ids[1]: title, "z.py::test_h": "z.py::test_h"},
    )
    header = dataclasses.replace(samples.header, reach=reach)
    assert [header.names[case] for case in measured] == [ids[0], "z.py::test_g"]
    verdict = conclude(dataclasses.replace(samples, header=header), JudgeOptions())
    assert json.loads(shown(verdict, "json"))["reach"]["same"] == {
        ids[1]: None,
        "z.py::test_h": None,
    }
    assert f"{ids[0]}, z.py::test_g: {REASON}" in shown(verdict)


@pytest.mark.parametrize("of", ["only_base", "only_head", "unmeasurable"])
def test_a_title_of_a_test_that_is_not_compared_names_no_other(of):
    measured, other = "x/test_a.py::test_f", "y/test_a.py::test_f"
    others = {other: "why"} if of == "unmeasurable" else (other,)
    header = build.header(labels={measured: "test_a.py::test_f"}, **{of: others})
    assert header.names[measured] == measured
    assert build.header(labels={measured: "test_a.py::test_f"}).names[measured] == (
        "test_a.py::test_f"
    )


def test_a_name_of_a_megabyte_is_cut_and_stays_a_name_of_its_own():
    ids = [f"test_a.py::test_f[{'x' * 1_000_000}{end}]" for end in "ab"]
    header = build.header(labels={node_id: node_id for node_id in ids})
    names = [header.names[node_id] for node_id in ids]
    assert len({*names}) == 2
    assert all(name.startswith("test_a.py::test_f[xxx") and len(name) < 400 for name in names)


def test_a_changed_file_that_nobody_uses_is_named_and_fails_if_coverage_is_required():
    unused = Reach(is_known=True, same={"a": "a", "b": "b"}, unused=("data/x.db",))
    verdict = judged(unused, cases=False)
    assert verdict.outcome == PASSED
    assert last_line(verdict).endswith("changed, and not seen in use: data/x.db")
    required = judged(unused, cases=False, require_coverage=True)
    assert required.outcome == INCONCLUSIVE
    assert "changed, and not seen in use: data/x.db" in last_line(required)


def test_dependencies_that_differ_alone_are_no_pass():
    reach = Reach(is_known=True, same={"a": "a"}, dependencies=("requirements.txt",))
    verdict = judged(reach, cases=False)
    assert verdict.outcome == INCONCLUSIVE
    assert "dependencies differ (requirements.txt)" in last_line(verdict)
    assert judged(reach, cases=False, allow_missing=True).outcome == PASSED
    # Beside affected cases it is a limitation.
    measured = dataclasses.replace(reach, reasons={CASE: (REASON,)})
    assert judged(measured).outcome == PASSED
    assert "dependencies differ (requirements.txt)" in last_line(judged(measured))


def test_json_has_the_reach():
    data = json.loads(shown(judged(SOME), "json"))
    assert data["reach"] == {
        "is_known": True,
        "cases": {LABEL: [REASON]},
        "same": {"one": 1.02, "two": None},
        "uncovered": ["pkg/b.py:g"],
        "not_followed": {},
        "unused": [],
        "dependencies": [],
    }


def test_samples_are_judged_although_the_reach_says_that_no_case_runs_changed_code():
    # Of a file that was edited or put together.
    every_case = Reach(is_known=True, same={CASE: LABEL, "b": "b"})
    samples = build.recorded(build.series())
    header = dataclasses.replace(samples.header, reach=every_case)
    verdict = conclude(dataclasses.replace(samples, header=header), JudgeOptions())
    assert (verdict.outcome, verdict.decision.trials) == (PASSED, 8)
    assert "nothing was measured" not in last_line(verdict)
    assert shown(verdict)


def test_slower_samples_fail_although_the_reach_says_that_no_case_runs_changed_code():
    slower = build.Measured(factor=1.5)
    trials = [*build.series(slower), *build.series(slower, stage=2, seed=2)]
    samples = build.recorded(trials)
    header = dataclasses.replace(samples.header, reach=Reach(is_known=True, same={"b": "b"}))
    verdict = conclude(dataclasses.replace(samples, header=header), JudgeOptions())
    assert verdict.outcome == REGRESSED
    assert shown(verdict)


def test_cases_without_a_trial_are_inconclusive_whatever_the_reach_says():
    samples = build.recorded([])
    header = dataclasses.replace(samples.header, reach=Reach(is_known=True, same={"b": "b"}))
    verdict = conclude(dataclasses.replace(samples, header=header), JudgeOptions())
    assert verdict.outcome == INCONCLUSIVE
    assert "0 trials are too few" in last_line(verdict)
    assert shown(verdict)
