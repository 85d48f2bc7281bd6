"""What a search for the first slower release prints, against files in golden/."""

import json
from dataclasses import replace

import gate_builders
import pytest
from gate_builders import CASE, LABEL, MM, Measured, recorded, series

from mnistbench.gate.commands import bisect as bisect_command
from mnistbench.gate.commands.bisect import last_line, report
from mnistbench.gate.commands.bisection import (
    NOT_JUDGED,
    NOT_SLOWER,
    SLOWER,
    USED_UP,
    Bisection,
    Gate,
)
from mnistbench.gate.decide.statistics import permutation
from mnistbench.gate.decide.verdict.verdict import conclude
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.samples.raw_samples import End
from mnistbench.judging.kinds import ADDED, REPLACED
from mnistbench.judging.verdicts import INCONCLUSIVE, PASSED, REGRESSED
from mnistbench.showing.output import render

RELEASES = ("2.11.0", "2.12.0", "2.12.1", "2.13.0", "2.14.0")


def verdict(release, measured, fresh=0):
    trials = [*series(measured, seed=3), *(series(measured, stage=2, seed=4) if fresh else [])]
    differ = {"torch": f"2.11.0 -> {release}", "packages": {"torch": ("2.11.0", release)}}
    measured_gate = recorded(
        trials,
        base="1a2b3c4",
        head="1a2b3c4",
        labels={CASE: LABEL},
        end=End(elapsed_s=200.0),
        **differ,
    )
    return conclude(measured_gate, JudgeOptions(top=3))


@pytest.fixture(scope="module")
def gates():
    """The gates of three releases. All exchanges of sixteen trials are tested.

    Golden files depend on random numbers.
    """
    slower = Measured(factor=1.1, operations={**Measured().operations, MM: (1_000_000, 1.3)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(permutation, "EXCHANGES", 2**16)
        return {
            "2.14.0": Gate(
                "2.14.0",
                SLOWER,
                "",
                verdict("2.14.0", slower, 8),
                ".benchmarks/gate/1.jsonl.gz",
                203.4,
            ),
            "2.13.0": Gate(
                "2.13.0",
                SLOWER,
                "",
                verdict("2.13.0", slower, 8),
                ".benchmarks/gate/3.jsonl.gz",
                200.0,
            ),
            "2.12.1": Gate(
                "2.12.1",
                NOT_SLOWER,
                "",
                verdict("2.12.1", Measured()),
                ".benchmarks/gate/2.jsonl.gz",
                110.0,
            ),
        }


def bisection(*gates_of_search, stopped=""):
    return Bisection("torch", RELEASES, gates_of_search, stopped)


def failed(release):
    return Gate(release, NOT_JUDGED, "head: ImportError: boom", seconds=12.0)


@pytest.fixture(scope="module")
def search(gates):
    return bisection(gates["2.14.0"], gates["2.12.1"], gates["2.13.0"])


@pytest.fixture(scope="module")
def left(gates):
    """What is left if neither release in the middle can be measured."""
    return bisection(gates["2.14.0"], failed("2.12.1"), failed("2.12.0"), gates["2.13.0"])


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_a_search_is_reported(golden, search, form):
    golden(render(report(search), form), f"bisection.{'txt' if form == 'terminal' else form}")


def test_releases_that_are_not_judged_are_reported_with_their_reason(left):
    lines = render(report(left), "terminal").splitlines()
    assert "2.12.1: not judged: head: ImportError: boom" in lines
    assert [line.split()[:3] for line in lines if line.startswith("2.12.0  ")] == [
        ["2.12.0", "not", "judged"]
    ]


def test_the_last_line_names_the_releases_that_are_left(gates, left):
    assert left.outcome == INCONCLUSIVE
    assert last_line(left) == (
        "inconclusive: the first slower release is torch 2.12.0, 2.12.1 or 2.13.0 (2.11.0 is not "
        "slower); 2.12.0 and 2.12.1 could not be judged; measure again, or increase --trials"
    )
    assert last_line(bisection(gates["2.14.0"], stopped=USED_UP)) == (
        "inconclusive: the first slower release is torch 2.12.0, 2.12.1, 2.13.0 or 2.14.0 (2.11.0 "
        "is not slower); the budget is used up; increase --budget"
    )


def test_the_last_line_of_a_search_that_finds_nothing_is_that_of_its_gate(gates):
    passed = gates["2.12.1"]
    assert bisection(Gate("2.14.0", NOT_SLOWER, "", passed.verdict)).outcome == PASSED
    assert last_line(bisection(Gate("2.14.0", NOT_SLOWER, "", passed.verdict))).startswith(
        "no slower release: torch 2.14.0 is not slower than 2.11.0; passed: no regression of "
    )


def test_the_last_line_of_a_search_whose_first_gate_is_open_is_that_of_its_gate(gates):
    sentence = last_line(bisection(Gate("2.14.0", NOT_JUDGED, "noise", gates["2.12.1"].verdict)))
    assert sentence.startswith("torch 2.11.0 -> 2.14.0: passed: no regression of ")


def test_json_has_the_search_and_the_report_of_each_gate(left):
    data = json.loads(report(left).json)
    assert (data["outcome"], data["sentence"], data["stopped"]) == (
        INCONCLUSIVE,
        last_line(left),
        "",
    )
    assert (data["package"], data["releases"]) == ("torch", list(RELEASES))
    assert (data["not_slower"], data["candidates"]) == ("2.11.0", ["2.12.0", "2.12.1", "2.13.0"])
    assert [(gate["release"], gate["result"], gate["seconds"]) for gate in data["gates"]] == [
        ("2.14.0", SLOWER, 203.4),
        ("2.12.1", NOT_JUDGED, 12.0),
        ("2.12.0", NOT_JUDGED, 12.0),
        ("2.13.0", SLOWER, 200.0),
    ]
    assert data["gates"][0]["report"]["outcome"] == REGRESSED
    assert (data["gates"][1]["report"], data["gates"][1]["reason"]) == (
        None,
        "head: ImportError: boom",
    )


@pytest.mark.parametrize(
    ("kind", "suffix"), [(ADDED, " (change as a share of the case)"), (REPLACED, "")]
)
def test_the_change_of_added_operations_is_a_share_of_the_case(search, monkeypatch, kind, suffix):
    finding = search.gates[0].verdict.regressions[0]
    quantity = gate_builders.quantity((0.1,) * 8, kind=kind, name="x", case=CASE)
    added = replace(finding, screened=replace(finding.screened, quantity=quantity))
    monkeypatch.setattr(bisect_command, "largest_regressions", lambda _: {CASE: added})
    [releases] = report(search).blocks[-2].tables
    # "-" is of the release that is not slower.
    assert {row[3] for row in releases.cells} == {f"x{suffix}", "-"}
