"""``mnistbench judge``: by which thresholds, and the page. test_gate.py has its verdicts."""

from pathlib import Path

import gate_builders
import pytest

from mnistbench.showing.output import EXIT_INCONCLUSIVE, EXIT_PASSED, EXIT_REGRESSED

#: Thresholds of a gate by which a case that got 3 % slower passes.
GENEROUS = {"case": 0.5, "operation": 0.5, "once": 1.0}


@pytest.fixture
def judge(run, tmp_path, monkeypatch):
    """Judge the raw samples of a gate whose case got 3 % slower, with these options."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    measured = gate_builders.Measured(factor=1.03)
    first = gate_builders.series(measured)
    fresh = gate_builders.series(measured, stage=2, count=8, seed=4)

    def judged(*options, **changes):
        gate_builders.write(Path("gate.jsonl.gz"), [*first, *fresh], **changes)
        code, out, err = run("judge", "gate.jsonl.gz", *options)
        assert err == ""
        return code, out

    return judged


def test_the_thresholds_of_the_gate_hold_where_none_is_given(judge):
    assert judge()[0] == EXIT_REGRESSED
    assert judge(thresholds=GENEROUS)[0] == EXIT_PASSED
    assert judge("--op-threshold=60%", thresholds=GENEROUS)[0] == EXIT_PASSED
    code, out = judge("--threshold=1%", thresholds=GENEROUS)
    assert (code, "more than the limit of 1.0 %" in out) == (EXIT_REGRESSED, True)


def test_the_floor_of_the_gate_holds_whatever_the_project_says(judge):
    # The case takes 30 ms, and 0.9 ms more in the head.
    floor = {"floor_ns": 5e6}
    code, out = judge("--op-threshold=60%", thresholds=floor)
    assert (code, "less than the floor of 5.00 ms" in out) == (EXIT_PASSED, True)
    Path("pyproject.toml").write_text('[tool.mnistbench.gate]\nfloor = "9ms"\n', encoding="utf-8")
    assert judge()[0] == EXIT_REGRESSED
    assert judge("--floor=0", thresholds=floor)[0] == EXIT_REGRESSED


def test_an_entry_of_the_project_accepts_until_its_last_day(judge):
    entry = '{{case = "*:*:50%", reason = "exact sums", until = {}}}'
    for until, code, part in (
        ("9999-12-31", EXIT_PASSED, "accepted (exact sums)"),
        (
            "2001-02-03",
            EXIT_REGRESSED,
            (
                "accept in pyproject.toml: '*:*:50%' held until 2001-02-03 and does not any longer "
                "(exact sums); remove it, or give another date"
            ),
        ),
    ):
        table = f"[tool.mnistbench.gate]\naccept = [{entry.format(until)}]\n"
        Path("pyproject.toml").write_text(table, encoding="utf-8")
        exit_code, out = judge()
        assert (exit_code, part in out) == (code, True), out


@pytest.mark.parametrize("case_fail", ["5%", ""])
def test_the_threshold_of_a_tests_own_mark_comes_before_that_of_the_gate(judge, case_fail):
    of_operations = (("50%",), ("50%",))
    marks = {
        "case_fail": {gate_builders.CASE: ("1%", case_fail)},
        "op_fail": {gate_builders.CASE: of_operations},
    }
    code, out = judge("--threshold=2%", **marks)
    assert code == (EXIT_PASSED if case_fail else EXIT_REGRESSED)
    differing = "5.0 % of the time, 50.0 % of operations" if case_fail else "50.0 % of operations"
    assert f"its mark opgate has other thresholds than the gate: {differing}" in out


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({"case_fail": "5"}, "is not a threshold for an iteration; give 10%"),
        (
            {"case_fail": "0.01%"},
            "0.01% is below 0.1%, three times the difference that the same code may show; give ",
        ),
        ({"op_fail": (("x:",), ("x:",))}, "is not a threshold; give 10%, or"),
    ],
    ids=["no share", "too small", "no operation"],
)
def test_a_wrong_threshold_of_a_mark_is_one_line(run, tmp_path, monkeypatch, facts, fault):
    monkeypatch.chdir(tmp_path)
    trials = gate_builders.series(gate_builders.Measured())
    of_case = {name: {gate_builders.CASE: value} for name, value in facts.items()}
    gate_builders.write(Path("gate.jsonl.gz"), trials, **of_case)
    code, _, err = run("judge", "gate.jsonl.gz")
    assert code == EXIT_INCONCLUSIVE
    assert f"opgate of {gate_builders.CASE}: {fault}" in err


@pytest.mark.parametrize(
    ("options", "thresholds", "sentence"),
    [
        ((), {}, '<span class="worse">regressed</span>: '),
        ((), GENEROUS, '<span class="better">passed</span>: no regression'),
        (
            ("--accept=*:iteration:10%", "--reason=it is exact now", "--op-threshold=50%"),
            {},
            '<span class="better">passed</span>: ',
        ),
    ],
    ids=["default", "of the gate", "accepted"],
)
def test_the_page_shows_the_verdict(judge, options, thresholds, sentence):
    judge("--format=html", "--output=gate.html", *options, thresholds=thresholds)
    page = Path("gate.html").read_text(encoding="utf-8")
    assert page.partition('<h2 class="sentence">')[2].startswith(sentence)
    assert ("accepted (it is exact now)" in page) is bool(options)
