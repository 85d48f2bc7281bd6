"""Annotations and outputs of a job on GitHub."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from gate_builders import CASE, Measured, case_profile
from gate_scenes import SCENES, concluded, passed, regressed, slower
from hostile_builders import NAMES

from mnistbench.gate.commands.result import result_of_verdict
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.report.annotations import (
    MAX_ANNOTATIONS,
    Place,
    annotation_lines,
    outputs,
    workflow_command,
)
from mnistbench.gate.report.rows import Rows
from mnistbench.gate.samples.raw_samples import End, Shard
from mnistbench.showing.output import deliver_result

#: A workflow command as the runner reads it: level, properties, message.
COMMAND = re.compile(r"::(error|warning) ((?:[a-z]+=[^:,]*,?)+)::(.*)")

TEST = "tests/test_parse.py::TestParser::test_clean[big]"
SLOW = Measured(factor=1.3, operations={})


def read(command):
    """Return level, properties and message of a command, as the runner does."""
    assert "\n" not in command
    level, properties, message = COMMAND.fullmatch(command).groups()
    values = dict(pair.split("=", 1) for pair in properties.split(","))
    return level, {name: unescaped(value) for name, value in values.items()}, unescaped(message)


def unescaped(text):
    for code, character in (
        ("%2C", ","),
        ("%3A", ":"),
        ("%0A", "\n"),
        ("%0D", "\r"),
        ("%25", "%"),
    ):
        text = text.replace(code, character)
    return text


def scene(cause="", **changes):
    """A regression of one plain test, with the function that explains it."""
    rows = [((cause,), (1, 1), (100_000, 90_000_000))] if cause else []
    profiles = {TEST: case_profile(rows, {cause: "changed"})} if cause else {}
    return concluded({TEST: SLOW}, 8, end=End(profiles=profiles), labels={TEST: TEST}, **changes)


def lines_of(verdict, root):
    return [read(command) for command in annotation_lines(Rows(verdict), root)]


def test_a_regression_is_an_error_at_its_likely_cause(tmp_path):
    (tmp_path / "pkg").mkdir()
    source = "LIMIT = 3\n\n\nclass Parser:\n    @property\n    def clean(self):\n        return 1\n"
    (tmp_path / "pkg" / "parse.py").write_text(source)
    verdict = scene("pkg/parse.py:Parser.clean")
    [(level, properties, message)] = lines_of(verdict, tmp_path)
    assert (level, properties["title"]) == ("error", "mnistbench: regressed")
    assert properties["file"] == "pkg/parse.py"
    assert source.splitlines()[int(properties["line"]) - 1].strip() in (
        "@property",
        "def clean(self):",
    )
    assert message.startswith(f"regressed: wall time ({TEST}), +")
    assert "likely cause: pkg/parse.py:Parser.clean (changed)" in message


@pytest.mark.parametrize("content", [None, "def other(): pass\n", "def broken(:\n", "\0"])
def test_a_cause_without_a_known_line_is_named_by_its_file(tmp_path, content):
    if content is not None:
        (tmp_path / "parse.py").write_text(content)
    [(_, properties, _)] = lines_of(scene("parse.py:clean"), tmp_path)
    assert properties == {"file": "parse.py", "title": "mnistbench: regressed"}


def test_a_line_that_the_survey_recorded_needs_no_file(tmp_path):
    verdict = scene("pkg/parse.py:Parser.clean")
    profile = verdict.recorded.end.profiles[TEST]
    functions = tuple(replace(function, line=6) for function in profile.functions)
    profiles = {TEST: replace(profile, functions=functions)}
    end = replace(verdict.recorded.end, profiles=profiles)
    verdict = replace(verdict, recorded=replace(verdict.recorded, end=end))
    [(_, properties, _)] = lines_of(verdict, tmp_path)
    assert (properties["file"], properties["line"]) == ("pkg/parse.py", "6")


def test_without_a_cause_it_is_at_the_test_below_the_root_of_the_repository(tmp_path):
    file = tmp_path / "python" / "tests" / "test_parse.py"
    file.parent.mkdir(parents=True)
    file.write_text("class TestParser:\n    def test_clean(self, benchmark):\n        pass\n")
    sources = {TEST: ["python/conftest.py", "python/tests/test_parse.py"]}
    [(_, properties, _)] = lines_of(scene(sources=sources), tmp_path)
    assert properties["file"] == "python/tests/test_parse.py"
    assert properties["line"] == "2"


def test_findings_at_one_place_are_one_annotation_and_there_are_at_most_ten(tmp_path):
    cases = [f"test_a.py::test_a[{number}]" for number in range(3)]
    verdict = concluded(dict.fromkeys(cases, SLOW), 8, labels={case: case for case in cases})
    [(_, properties, message)] = lines_of(verdict, tmp_path)
    assert properties["file"] == "test_a.py"
    assert all(f"({case})" in message for case in cases)
    cases = [f"test_{number}.py::test_a" for number in range(MAX_ANNOTATIONS + 2)]
    verdict = concluded(dict.fromkeys(cases, SLOW), 12, labels={case: case for case in cases})
    assert len(lines_of(verdict, tmp_path)) == MAX_ANNOTATIONS


def test_what_is_not_decided_is_a_warning_and_noise_alone_is_none(tmp_path):
    unconfirmed = concluded({TEST: SLOW}, labels={TEST: TEST}, end=End("stopped", broken_off=True))
    [(level, properties, message)] = lines_of(unconfirmed, tmp_path)
    assert (level, properties["title"]) == ("warning", "mnistbench")
    assert message.startswith("inconclusive: ")
    noisy = concluded({TEST: Measured(spread=0.05, operations={})}, labels={TEST: TEST})
    assert noisy.outcome == "inconclusive"
    assert lines_of(noisy, tmp_path) == []
    broken_off = concluded(
        {TEST: SLOW}, 8, labels={TEST: TEST}, end=End("stopped", broken_off=True)
    )
    assert [level for level, _, _ in lines_of(broken_off, tmp_path)] == ["warning"]


def test_what_passes_or_is_accepted_has_no_annotation(tmp_path):
    accepted = concluded(
        {TEST: SLOW}, 8, labels={TEST: TEST}, accept=["*:*:90%"], reason="it is exact now"
    )
    assert accepted.outcome == "passed"
    assert lines_of(accepted, tmp_path) == lines_of(passed(), tmp_path) == []


def test_a_shard_leaves_annotations_to_the_job_that_judges_all(tmp_path):
    assert lines_of(scene(shard=Shard(1, 2, (TEST, "test_b.py::test_b"))), tmp_path) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_name_cannot_begin_another_command(name):
    command = workflow_command("error", Place(f"{name}.py", 3), name, [f"1 {name}", "2"])
    level, properties, message = read(command)
    assert (level, properties["line"]) == ("error", "3")
    assert message.splitlines()[-1] == "2"


@pytest.mark.parametrize(
    ("name", "verdict", "found"),
    [
        ("passed", "passed", "false"),
        ("regressed", "regressed", "true"),
        ("inconclusive", "inconclusive", "false"),
        ("accepted", "passed", "true"),
    ],
)
def test_outputs_of_the_step(name, verdict, found):
    made = outputs(Rows(SCENES[name]()))
    assert (made["verdict"], made["found"]) == (verdict, found)
    assert json.loads(made["regressed"]) == ([CASE] if verdict == "regressed" else [])


def test_an_improvement_and_an_open_slowdown_are_found():
    faster = concluded({TEST: Measured(factor=0.7, operations={})}, 8, labels={TEST: TEST})
    assert outputs(Rows(faster)) == {"verdict": "passed", "regressed": "[]", "found": "true"}
    unconfirmed = concluded(slower(), 0)
    made = outputs(Rows(unconfirmed))
    assert made["verdict"] == "inconclusive"
    assert made["found"] == str(bool(Rows(unconfirmed).findings)).lower()


def test_a_job_gets_them_and_a_terminal_does_not(tmp_path, monkeypatch, capfd):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))
    tests = tmp_path / "bench"
    (tests / "sub").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tests / "test_step.py").write_text("def test_step(): pass\n")
    monkeypatch.chdir(tests / "sub")
    settings = JudgeOptions(output=tmp_path / "report", top=3)
    result = result_of_verdict(regressed(), settings)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    deliver_result(result, settings)
    assert not (tmp_path / "outputs").exists()
    assert "::error" not in capfd.readouterr().err
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert deliver_result(result, settings) == 1
    assert (tmp_path / "outputs").read_text().splitlines()[:2] == [
        "verdict=regressed",
        f"regressed={json.dumps([CASE])}",
    ]
    out, err = capfd.readouterr()
    assert (out, err.count("::error file=bench/test_step.py,line=1,")) == ("", 1)
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path))
    deliver_result(result, settings)
    assert f"GITHUB_OUTPUT: {tmp_path} cannot be written" in capfd.readouterr().err
