"""``mnistbench lab check``: lines, files, points and exit codes."""

import json
from pathlib import Path

import pytest
from builders import environment
from jsonschema import Draft202012Validator
from lab_runs import measure, predict, quiet, whole_lab, write
from score_builders import score

from mnistbench import cli
from mnistbench.course.classroom import check_command
from mnistbench.course.classroom.check_command import CLASSROOM50
from mnistbench.course.classroom.score import BANDS, REFERENCE_STEP, read_score
from mnistbench.course.classroom.submission import CHECKS, pack, read
from mnistbench.course.lab.lab_file import FILE, QUIET, SCORE, SUBMISSION, write_file
from mnistbench.course.lab.predict.predictions import EXPLANATIONS, PREDICTIONS

DATA = Path(__file__).parents[2] / "data"
#: What is published of the formats of two graders.
GRADESCOPE, CLASSROOM_50 = (
    Draft202012Validator(json.loads((DATA / name).read_text(encoding="utf-8")))
    for name in ("gradescope_results.json", "classroom50_result.json")
)


@pytest.fixture
def tested(monkeypatch):
    """The texts of the steps that a made-up self-test got; the machine is that of the labs."""
    texts = []
    results = [quiet()]

    def made_up(settings, text, *_):
        texts.append((settings.trials, text))
        return results[0]

    monkeypatch.setattr(check_command, "measure", made_up)
    monkeypatch.setattr(
        "mnistbench.suite.measuring.environment.read", lambda threads: environment(threads=threads)
    )
    return texts, results


def check(*words):
    return cli.main(["lab", "check", *map(str, words)])


def valid(path, schema):
    """Return what a grader reads from a file, which is as the grader expects it."""
    content = json.loads(path.read_text(encoding="utf-8"))
    schema.validate(content)
    return content


def test_a_lab_that_is_right_is_packed(lab, capsys):
    assert check(lab) == 0
    shown = capsys.readouterr()
    assert [line.split() for line in shown.out.splitlines()[:-1]] == [
        ["OK", name] for name in CHECKS
    ]
    assert shown.out.splitlines()[-1] == f"{lab / SUBMISSION}: complete, hand it in"
    assert shown.err == ""
    assert read(lab / SUBMISSION) == pack(lab)
    assert check(lab / SUBMISSION) == 0


def test_what_is_missing_is_named_and_the_submission_is_written(tmp_path, lab, capsys):
    (lab / SCORE).unlink()
    write(lab, EXPLANATIONS, "")
    output = tmp_path / "mine.json"
    assert check(lab, "--submission", output) == 1
    lines = capsys.readouterr().out.splitlines()
    assert (
        sum(line.startswith("INCOMPLETE    explanations: predictions failed: ") for line in lines)
        == 1
    )
    assert sum(line.startswith("INCOMPLETE    score: score.json is missing") for line in lines) == 1
    assert lines[-1] == f"{output}: solve the problems above, then run this again"
    assert read(output).student == "s001"
    assert not (lab / SUBMISSION).exists()


@pytest.mark.parametrize(
    ("option", "name"),
    [("--submission", FILE), ("--submission", "steps/new.json"), ("--gradescope", SUBMISSION)],
)
def test_an_output_replaces_no_file_of_the_lab_and_no_other_output(lab, capsys, option, name):
    before = {path: path.read_bytes() for path in lab.rglob("*") if path.is_file()}
    assert check(lab, option, lab / name) == 2
    problem = (
        f"{option}: {lab / name} is the input, a file of the lab, or another output; name another "
        "file"
    )
    assert capsys.readouterr().err == f"mnistbench: {problem}\n"
    assert {path: path.read_bytes() for path in lab.rglob("*") if path.is_file()} == before


def test_a_submission_is_not_replaced_by_its_points(lab, capsys):
    assert check(lab) == 0
    before = (lab / SUBMISSION).read_bytes()
    assert check(lab / SUBMISSION, "--gradescope", lab / SUBMISSION) == 2
    assert (lab / SUBMISSION).read_bytes() == before


def test_a_grader_gets_the_reason_why_a_submission_cannot_be_read(tmp_path, capsys):
    (tmp_path / "bad.json").write_text("hi", encoding="utf-8")
    assert (
        check(
            tmp_path / "bad.json",
            "--gradescope",
            tmp_path / "results.json",
            "--submission",
            tmp_path / "new.json",
        )
        == 1
    )
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "new.json").exists()
    tests = valid(tmp_path / "results.json", GRADESCOPE)["tests"]
    assert {test["score"] for test in tests} == {0}
    assert "is not JSON" in tests[0]["output"]
    assert check(tmp_path / "bad.json") == 2


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("names", [(), ("notes.txt", SUBMISSION, SCORE)])
def test_nothing_is_written_into_a_directory_that_is_no_lab(tmp_path, tested, capsys, names):
    (folder := tmp_path / "folder").mkdir()
    for name in names:
        (folder / name).touch()
    assert check(folder) == check(folder, "--submission", tmp_path / "mine.json") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert (
        shown.err
        == 2 * f"mnistbench: {folder} is not the directory of a lab; name one, or a submission\n"
    )
    assert (
        check(
            folder,
            "--gradescope",
            tmp_path / "results.json",
            "--submission",
            tmp_path / "mine.json",
        )
        == 1
    )
    tests = valid(tmp_path / "results.json", GRADESCOPE)["tests"]
    assert "is not the directory of a lab" in tests[0]["output"]
    assert {path.name for path in folder.iterdir()} == set(names)
    assert not (tmp_path / "mine.json").exists()
    assert tested[0] == []


@pytest.mark.usefixtures("torch")
def test_predictions_can_be_checked_before_the_lab(tmp_path, tested, capsys):
    predict(tmp_path)
    assert check(tmp_path) == 1
    assert tested[0] == []
    assert (
        f"INCOMPLETE    lab: lab.json is missing; run mnistbench lab -o {tmp_path}"
        in capsys.readouterr().out.splitlines()
    )
    measure(tmp_path)  # the files of the check do not prevent a lab
    assert (tmp_path / FILE).exists()


# ---- Self-test -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("torch")
def test_a_self_test_compares_the_reference_with_itself_once(lab, tested):
    (lab / QUIET).unlink()
    assert check(lab) == 0
    assert tested[0] == [(5, REFERENCE_STEP)]
    assert read_score(lab / QUIET, None) == quiet()
    assert check(lab) == 0
    assert len(tested[0]) == 1


@pytest.mark.usefixtures("torch")
def test_a_self_test_on_a_loud_machine_is_doubtful_and_repeated(lab, tested, capsys):
    (lab / QUIET).unlink()
    tested[1][0] = quiet(1.1)
    assert check(lab) == 1
    shown = capsys.readouterr()
    [line] = [line for line in shown.out.splitlines() if line.startswith("DOUBTFUL")]
    assert "machine: equal code was not equally fast in the self-test: its ratio is 1.1" in line
    assert "close other programs" in line
    assert "load average" in shown.err
    tested[1][0] = quiet()
    assert check(lab) == 0
    assert len(tested[0]) == 2


@pytest.mark.parametrize(
    ("name", "missing", "reason"),
    [
        ("has", lambda _: False, "torch is not installed: pip install"),
        ("has_posix", lambda: False, "it needs Linux or macOS"),
    ],
    ids=["torch", "Windows"],
)
@pytest.mark.usefixtures("torch")
def test_without_what_times_a_step_there_is_no_self_test(
    tmp_path, tested, capsys, monkeypatch, name, missing, reason
):
    monkeypatch.setattr(f"mnistbench.course.classroom.check_command.{name}", missing)
    lab = whole_lab(tmp_path / "lab")
    (lab / QUIET).unlink(missing_ok=True)
    assert check(lab) == 1
    assert tested[0] == []
    assert f"no self-test, because {reason}" in capsys.readouterr().err


@pytest.mark.usefixtures("torch")
def test_a_lab_of_another_machine_has_no_self_test(tmp_path, tested, capsys):
    lab = whole_lab(tmp_path / "lab", cpu_count=64)
    assert check(lab) == 0
    (lab / QUIET).unlink()
    assert check(lab) == 1
    assert tested[0] == []
    assert (
        "no self-test, because the lab is of another machine (cpu count 64 -> 2)"
        in capsys.readouterr().err
    )


@pytest.mark.thorough
def test_a_whole_self_test(lab, monkeypatch):
    monkeypatch.setattr(check_command, "TRIAL_S", 0.1)
    for module in ("check_command", "score"):
        monkeypatch.setattr(f"mnistbench.course.classroom.{module}.other_machine", lambda *_: "")
    (lab / QUIET).unlink()
    code = check(lab)
    self_test = read_score(lab / QUIET, None, is_quiet=True)
    assert self_test.text == REFERENCE_STEP
    assert len(self_test.trials) == check_command.TRIALS
    assert code == (1 if self_test.disturbed else 0)


# ---- Points --------------------------------------------------------------------------------------


@pytest.fixture
def runner(monkeypatch):
    for name in CLASSROOM50:
        monkeypatch.setenv(name, f"submit/{name.lower()}")


def test_points_of_checks_and_bands_are_written_for_two_graders(lab, tmp_path, runner):
    write(lab, EXPLANATIONS, "")
    gradescope = tmp_path / "results.json"
    classroom50 = tmp_path / "result.json"
    assert check(lab, "--gradescope", gradescope, "--classroom50", classroom50) == 1
    tests = valid(gradescope, GRADESCOPE)["tests"]
    assert len(tests) == len(CHECKS) + len(BANDS)
    assert {test["max_score"] for test in tests} == {1}
    [output] = [test["output"] for test in tests if test["name"] == "explanations"]
    assert output.startswith("predictions failed: ")
    assert [test["name"] for test in tests if test["status"] == "failed"] == [
        "explanations",
        "step at least 1.5 times as fast",
        "step at least 2 times as fast",
        "step at least 3 times as fast",
    ]
    assert [test["score"] for test in tests] == [1, 1, 0, 1, 1, 1, 1, 0, 0, 0]
    result = valid(classroom50, CLASSROOM_50)
    assert (result["schema"], result["classroom"], result["score"], result["max-score"]) == (
        "classroom50/result/v1",
        "submit/classroom",
        6,
        10,
    )
    assert [(test["test-name"], test["passed"]) for test in result["tests"]] == [
        (test["name"], test["status"] == "passed") for test in tests
    ]


@pytest.mark.parametrize(
    "results",
    [
        pytest.param({"score": 44.0, "tests": []}, id="a score of all tests"),
        pytest.param(
            {
                "tests": [
                    {"name": "Compilation check", "status": "passed"},
                    {"name": "Test 3", "score": 5, "max_score": 10, "status": "passed"},
                ],
                "stdout_visibility": "after_published",
            },
            id="a test that is not scored",
        ),
    ],
)
def test_what_the_specification_allows_is_valid(results):
    GRADESCOPE.validate(results)


@pytest.mark.parametrize(
    ("option", "schema", "key", "value"),
    [
        ("--gradescope", GRADESCOPE, "status", "ok"),
        ("--gradescope", GRADESCOPE, "score", "1"),
        ("--gradescope", GRADESCOPE, "max-score", 1),
        ("--gradescope", GRADESCOPE, "output", None),
        ("--classroom50", CLASSROOM_50, "passed", 1),
        ("--classroom50", CLASSROOM_50, "score", 0.5),
        ("--classroom50", CLASSROOM_50, "test-name", ""),
    ],
)
def test_points_with_a_wrong_field_are_not_valid(lab, tmp_path, runner, option, schema, key, value):
    check(lab, option, tmp_path / "points.json")
    points = valid(tmp_path / "points.json", schema)
    first, *others = points["tests"]
    assert not schema.is_valid({**points, "tests": [{**first, key: value}, *others]})


def test_an_inconsistent_submission_reaches_no_band(lab, tmp_path):
    def points_of_bands():
        check(lab, "--gradescope", tmp_path / "results.json")
        tests = valid(tmp_path / "results.json", GRADESCOPE)["tests"]
        return [test["score"] for test in tests[-len(BANDS) :]]

    write_file(lab / SCORE, score(4.0).content)
    assert points_of_bands() == [1] * len(BANDS)
    predictions = (lab / PREDICTIONS).read_text(encoding="utf-8")
    write(lab, PREDICTIONS, predictions.replace("image = [0, 0, 0]", "image = [1, 1, 1]"))
    assert points_of_bands() == [0] * len(BANDS)


# ---- Mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "LAB"),
        (["nowhere"], "nowhere: does not exist; name the directory of a lab, or a submission"),
        (
            [".", "--submission", "."],
            "--submission: . cannot be written (Is a directory); name another file",
        ),
        (
            [".", "--gradescope", "a.txt/b"],
            "--gradescope: a.txt/b cannot be written (Not a directory); name another file",
        ),
        ([".", "--classroom50", "result.json"], "--classroom50: needs CLASSROOM, ASSIGNMENT"),
    ],
)
def test_a_mistake_is_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    for name in CLASSROOM50:
        monkeypatch.delenv(name, raising=False)
    assert check(*words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
