"""``mnistbench class rerun``.

Whose code is measured again, the consent, and what a result means.
"""

import io
import json
from pathlib import Path

import pytest
from builders import environment
from class_builders import entry, speedup
from score_builders import score

from mnistbench import cli
from mnistbench.core.errors import UsageError
from mnistbench.core.units import printable
from mnistbench.course.classroom.score import RefusedError
from mnistbench.course.classroom.submission import DOUBTFUL, INCOMPLETE, INCONSISTENT, Flaw
from mnistbench.course.classroom.teacher import rerun_command
from mnistbench.course.classroom.teacher.rerun_command import Settings, chosen

pytestmark = pytest.mark.usefixtures("torch")

HERE = environment(threads=1)
CODE = "def make_step(model):\n    return \x1b[31mmodel\n"


def scored(student, ratio, *, machine=HERE.cpu_model, problems=(), text=CODE, **changes):
    own = score(ratio, text=text, **changes)
    return entry(
        student, machine=machine, problems=problems, score=own, measured_speedup=own.speedup
    )


@pytest.fixture
def measuring(monkeypatch, tmp_path):
    """Replace the submissions and the measurement; return what was measured."""
    measured = []

    def prepare(entries, result):
        def measure(settings, text, here, progress):
            measured.append((settings, text))
            return result(settings)

        monkeypatch.setattr(rerun_command, "gather", lambda folder: (entries, []))
        monkeypatch.setattr("mnistbench.course.classroom.score_command.measure", measure)
        monkeypatch.setattr("mnistbench.suite.measuring.environment.read", lambda threads: HERE)
        return measured

    monkeypatch.chdir(tmp_path)
    return prepare


def rerun(*options):
    return cli.main(["class", "rerun", "submissions", *options])


def result():
    return json.loads(Path("rerun.json").read_text(encoding="utf-8"))["students"]


# ---- Who -----------------------------------------------------------------------------------------


def names(entries, **options):
    return [
        chosen_entry.student
        for chosen_entry in chosen(entries, Settings(submissions=".", **options))
    ]


def test_the_best_by_lower_bound_are_measured():
    entries = [
        entry("a", measured_speedup=speedup(1.9, 1.1, 3.0)),
        entry("b", measured_speedup=speedup(1.5, 1.4, 1.6)),
        entry("c", measured_speedup=speedup(1.3, 1.2, 1.4)),
        entry("d"),
    ]
    assert names(entries, top=2) == ["b", "c"]
    assert names(entries) == ["b", "c", "a"]


def test_the_best_of_each_batch_size_and_number_format_are_measured():
    entries = [
        scored(f"{number}{at}", 1.2 + at + number, dtype=dtype)
        for number, dtype in enumerate(("float32", "bfloat16"))
        for at in range(3)
    ]
    assert sorted(names(entries, top=1)) == ["02", "12"]
    assert sorted(names(entries, top=2)) == ["01", "02", "11", "12"]


@pytest.mark.parametrize("kind", [DOUBTFUL, INCONSISTENT])
def test_doubtful_ones_are_left_out_unless_they_are_named(kind):
    entries = [
        entry(
            "a",
            measured_speedup=speedup(2.0, 1.9, 2.1),
            problems=(Flaw.of_error(kind, "lab", "why"),),
        ),
        entry(
            "b",
            measured_speedup=speedup(1.5, 1.4, 1.6),
            problems=(Flaw.of_error(INCOMPLETE, "lab", "why"),),
        ),
    ]
    assert names(entries) == ["b"]
    assert names(entries, student=("a",)) == ["a"]


def test_a_student_without_a_score_and_a_class_without_scores_are_refused():
    with pytest.raises(UsageError, match=r"--student: 'b' has no score"):
        chosen(
            [entry("b"), entry("a", measured_speedup=speedup(2.0, 1.9, 2.1))],
            Settings(submissions=".", student=("a", "b")),
        )
    with pytest.raises(UsageError, match="no score that counts"):
        chosen([entry("b")], Settings(submissions="."))


# ---- Consent -------------------------------------------------------------------------------------


def test_without_a_terminal_and_yes_nothing_runs(measuring, monkeypatch, capsys):
    measured = measuring([scored("s1", 1.3)], lambda settings: score(1.3))
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert rerun() == 2
    shown = capsys.readouterr()
    assert "--yes: there is no terminal" in shown.err
    assert "s1 (s1.json):" in shown.out
    assert measured == []


@pytest.mark.parametrize(
    ("answer", "runs"),
    [("yes\n", True), (" YES", True), ("y\n", False), ("", False), ("no\n", False)],
)
def test_a_terminal_is_asked_and_shows_the_code_before(
    measuring, monkeypatch, capsys, answer, runs
):
    measured = measuring([scored("s1", 1.3)], lambda settings: score(1.3))
    asked = []

    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def readline(self):
            asked.append(capsys.readouterr().out)
            return super().readline()

    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert rerun() == (0 if runs else 2)
    assert all(printable(line) in asked[0] for line in CODE.splitlines())
    assert "\x1b" not in asked[0]
    assert bool(measured) is runs


# ---- Results -------------------------------------------------------------------------------------


def test_the_same_turns_of_the_text_in_the_score_are_measured(measuring):
    measured = measuring([scored("s1", 1.3)], lambda settings: score(1.3))
    assert rerun("--yes", "--trials", "4", "--seconds", "1") == 0
    [(settings, text)] = measured
    assert (settings.batch_size, settings.dtype, settings.trials, settings.seconds) == (
        64,
        "float32",
        4,
        1.0,
    )
    assert text == CODE


@pytest.mark.parametrize(
    ("here", "machine", "agrees", "code"),
    [
        (1.3, HERE.cpu_model, "yes", 0),
        (1.31, "another", "yes", 0),
        (1.1, HERE.cpu_model, "no", 1),
        (1.1, "another", "no, another CPU", 0),
    ],
)
def test_intervals_that_overlap_agree_and_another_cpu_is_stated(
    measuring, capsys, here, machine, agrees, code
):
    measuring([scored("s1", 1.3, machine=machine)], lambda settings: score(here))
    assert rerun("--yes") == code
    [row] = result()
    assert (row["student"], row["agrees"], row["here"]["ratio"]) == (
        "s1",
        agrees,
        score(here).speedup["ratio"],
    )
    assert f"  {agrees}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (RefusedError("its losses differ"), "refused: its"),
        (UsageError("the step fails"), "failed: the"),
    ],
)
def test_a_step_that_fails_is_a_row_and_the_others_are_measured(measuring, capsys, error, problem):
    results = iter([error, score(1.2)])

    def measure(settings):
        if isinstance(failed_row := next(results), Exception):
            raise failed_row
        return failed_row

    measuring([scored("s1", 1.3), scored("s2", 1.2)], measure)
    assert rerun("--yes") == 1
    first, second = result()
    assert first["problem"].startswith(problem)
    assert (first["here"], second["agrees"]) == (None, "yes")
    assert problem in capsys.readouterr().out


def test_a_batch_size_that_needs_too_much_memory_is_refused_and_not_measured(measuring):
    measured = measuring([scored("s1", 1.3, batch_size=4097)], lambda settings: score(1.3))
    assert rerun("--yes") == 1
    assert result()[0]["problem"] == "refused: its batch size is 4097, more than 4096"
    assert measured == []


def test_a_score_whose_checks_fail_here_is_refused(measuring):
    measuring([scored("s1", 1.3)], lambda settings: score(1.3, floor_ns=10**12))
    assert rerun("--yes") == 1
    assert result()[0]["problem"].startswith("refused: a step took")


def test_an_interruption_keeps_what_was_measured(measuring):
    results = iter([score(1.3)])

    def measure(settings):
        for result_of_run in results:
            return result_of_run
        raise KeyboardInterrupt

    measuring([scored("s1", 1.3), scored("s2", 1.2)], measure)
    assert rerun("--yes") == 2
    assert [row["student"] for row in result()] == ["s1"]


def test_an_output_that_cannot_be_written_is_refused_before_anything_runs(
    measuring, capsys, tmp_path
):
    measured = measuring([scored("s1", 1.3)], lambda settings: score(1.3))
    for path, why in (
        (tmp_path, "Is a directory"),
        (tmp_path / "no" / "file.json", "No such file or directory"),
    ):
        assert rerun("--yes", "-o", str(path)) == 2
        assert (
            f"--output: {path} cannot be written ({why}); name another file"
            in capsys.readouterr().err
        )
    assert measured == []


def test_more_trials_than_a_score_may_have_are_refused_before_anything_runs(measuring, capsys):
    measured = measuring([scored("s1", 1.3)], lambda settings: score(1.3))
    assert rerun("--yes", "--trials", "101") == 2
    assert "--trials: '101'" in capsys.readouterr().err
    assert measured == []
