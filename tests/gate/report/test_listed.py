"""What ``--list`` says of the cases that a gate would measure."""

import json

import gate_builders as build
from gate_builders import CASE, LABEL

from mnistbench.gate.listing import Reach
from mnistbench.gate.report.listed import ALL_MEASURED, report
from mnistbench.showing.output import render

REASONS = ("runs pkg/a.py:f (changed)", "opens data/x.db (changed)")

SOME = Reach(
    is_known=True,
    reasons={CASE: REASONS},
    same={"bench.py::one": "one"},
    uncovered=("pkg/b.py:g",),
    not_followed={"pkg/c.py:h": "its callers are compiled"},
    unused=("data/y.db",),
    dependencies=("requirements.txt",),
)


def listed(**changes):
    return report(build.header(**changes))


def test_each_case_to_measure_has_its_reasons_and_the_rest_is_named():
    text = render(
        listed(
            reach=SOME, only_head=["bench.py::new"], base_rule="the parent", carried=("bench.py",)
        ),
        "terminal",
    )
    for line in (
        "base: origin/main (1a2b3c4), the parent",
        f"{CASE}: {'; '.join(REASONS)}",
        "bench.py::one",
        "bench.py::new: only in the head",
        "bench.py: measured on both sides as the head has it",
        "pkg/b.py:g: run or used by no case",
        "pkg/c.py:h: its callers are compiled",
        "data/y.db: changed, and not seen in use",
        "requirements.txt: dependencies differ, which the gate does not install",
    ):
        assert f"\n{line}\n" in text
    assert text.splitlines()[-1].startswith(
        "1 of 2 cases would be measured; 1 changed function or name is run or used by no case: "
    )


def test_the_json_has_node_ids_for_other_tools():
    document = json.loads(listed(reach=SOME).json)
    assert document["report"] == "cases"
    assert document["cases"] == [{"node_id": CASE, "label": LABEL, "reasons": [*REASONS]}]
    assert (document["same"], document["uncovered"]) == (["bench.py::one"], ["pkg/b.py:g"])


def test_without_a_look_at_the_code_all_cases_are_measured():
    text = render(listed(), "terminal")
    assert f"\n{CASE}: {ALL_MEASURED}\n" in text
    assert text.splitlines()[-1] == "1 of 1 case would be measured"
    assert render(listed(), "markdown").startswith("### mnistbench: 1 of 1 case would be measured")
