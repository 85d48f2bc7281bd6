"""What a comment on a pull request shows before it is unfolded."""

from __future__ import annotations

import dataclasses
import math

import pytest
from gate_builders import CASE, Measured, rendered
from gate_scenes import (
    SCENES,
    caused,
    concluded,
    inconclusive,
    passed,
    profile_of,
    slower,
)

from mnistbench.gate.report.comment import address_of_head, first_screen
from mnistbench.gate.report.rows import Rows
from mnistbench.gate.samples.case_profile import GRAPH, CaseProfile, OtherChange
from mnistbench.gate.samples.raw_samples import End
from mnistbench.showing.text import Link

JOB = {
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "some/project",
    "GITHUB_SHA": f"5d6e7f8{'0' * 33}",
}


def with_head(verdict, head):
    header = dataclasses.replace(verdict.header, head=head)
    return dataclasses.replace(
        verdict, recorded=dataclasses.replace(verdict.recorded, header=header)
    )


def screen(verdict, environ=None):
    outcome, lines = first_screen(Rows(verdict), environ or {})
    return [outcome, *map(str, lines)]


def test_the_first_screen_has_the_outcome_the_slowdowns_and_what_was_not_measured():
    outcome, slowdown, improved, reach = screen(caused())
    assert outcome == (
        "regressed: 2 cases (step lenet5-b1-cpu on digits, +12.5 %; ...) and 2 operations"
    )
    assert slowdown == (
        "step lenet5-b1-cpu on digits, +12.5 % (+12.3 % to +12.8 %), 1 more case and 2 operations; "
        "likely cause: pkg/model.py:12 Net.forward (changed)"
    )
    assert improved == "1 case improved"
    assert reach == (
        "195 cases run the same code on both sides; 3 changed functions or names are used by no "
        "case"
    )


def test_what_restricts_the_result_is_on_the_first_screen():
    assert screen(inconclusive())[-1] == (
        "the sides compute different numbers in step lenet5-b1-cpu on digits"
    )


def test_a_slowdown_that_may_be_within_the_limit_has_its_verdict():
    near_the_limit = concluded(Measured(factor=1.021, operations={}), 12)
    assert screen(near_the_limit)[1].startswith("slower: step convnet-b16-cpu on digits, +2.")


def test_a_pass_counts_improvements_once():
    faster = screen(concluded(slower(1 / 1.3), 8))
    assert faster[0].endswith("; 1 case and 1 operation improved")
    assert not any("improved" in line for line in faster[1:])
    assert screen(passed())[1:] == []


def links(verdict, environ):
    return [
        piece
        for line in first_screen(Rows(verdict), environ)[1]
        for piece in line
        if isinstance(piece, Link)
    ]


def test_in_a_job_of_github_a_cause_is_a_link_to_its_line_in_the_head():
    [link] = links(with_head(caused(), "5d6e7f8"), JOB)
    address = f"https://github.com/some/project/blob/{JOB['GITHUB_SHA']}/pkg/model.py#L12"
    assert (link, link.address) == ("pkg/model.py:12 Net.forward (changed)", address)


def test_a_path_is_quoted_in_its_address():
    strange = profile_of("a b/)>#.py:f", 100_000, 900_000, line=2)
    verdict = concluded(slower(), 8, end=End(profiles={CASE: strange}))
    [link] = links(with_head(verdict, "5d6e7f8"), JOB)
    assert link.address.endswith("/a%20b/%29%3E%23.py#L2")


def test_a_line_of_a_compiled_graph_is_a_link_and_has_its_line_once():
    text = "new graph break at models.py:29 (Tensor.item)"
    graph = OtherChange(GRAPH, "src/models.py:29", text, line=29)
    here = dataclasses.replace(graph, name="models.py:29")
    for cause, path in ((graph, "src/models.py"), (here, "models.py")):
        verdict = concluded(slower(), 8, end=End(profiles={CASE: CaseProfile(others=(cause,))}))
        [link] = links(with_head(verdict, "5d6e7f8"), JOB)
        assert (link, link.address.rpartition("/blob/")[2]) == (
            text,
            f"{JOB['GITHUB_SHA']}/{path}#L29",
        )


def test_what_is_gone_has_no_place_in_the_head():
    profile = profile_of("pkg/a.py:f", 100_000, 900_000)
    [root, function] = profile.functions
    gone = dataclasses.replace(function, change="gone")
    verdict = concluded(
        slower(),
        8,
        end=End(profiles={CASE: dataclasses.replace(profile, functions=(root, gone))}),
    )
    assert links(with_head(verdict, "5d6e7f8"), JOB) == []
    assert screen(verdict, JOB)[1].endswith("likely cause: pkg/a.py:f (gone)")


@pytest.mark.parametrize(
    ("head", "environ", "commit"),
    [
        ("5d6e7f8", JOB, JOB["GITHUB_SHA"]),
        ("1234567", JOB, "1234567"),  # the job has checked out another commit
        ("5d6e7f8 with changes", JOB, JOB["GITHUB_SHA"]),  # what the job has left
        ("/home/somebody/project", JOB, ""),
        ("5d6e7f8", {}, ""),
        ("5d6e7f8", {**JOB, "GITHUB_REPOSITORY": ""}, ""),
    ],
)
def test_the_address_of_the_head_is_that_of_its_commit(head, environ, commit):
    expected = f"https://github.com/some/project/blob/{commit}" if commit else ""
    assert address_of_head(head, environ) == expected


def many_causes(number, name):
    """So many cases, each slower by a change of its own."""
    cases = {f"{name}{n}": slower() for n in range(number)}
    profiles = {
        case: profile_of(f"pkg/m{n}.py:f", 100_000, 900_000) for n, case in enumerate(cases)
    }
    return concluded(cases, 8, labels={case: case for case in cases}, end=End(profiles=profiles))


@pytest.mark.parametrize("name", ["tests/test_a.py::test_of_a_usual_length", "x" * 280])
def test_the_first_screen_fits_a_phone(name):
    verdict = many_causes(6, name)
    outcome, *lines = screen(verdict)
    heights = [math.ceil(len(line) / 38) for line in (outcome, *lines)]
    assert sum(heights) <= 15 or len(lines) == 2  # one slowdown is there whatever its length
    named = sum("; likely cause: " in line for line in lines)
    assert f"{6 - named} more slowdowns in the report" in lines


@pytest.mark.parametrize("scene", SCENES)
def test_everything_else_is_folded(scenes, scene):
    first, _, folded = rendered(scenes[scene], "markdown", 3).partition("<details>")
    assert folded.startswith("<summary>the whole report</summary>\n\n- base ")
    assert folded.endswith("\n\n</details>\n")
    assert first.startswith("### mnistbench: ")
    assert len(first.splitlines()) <= 15
