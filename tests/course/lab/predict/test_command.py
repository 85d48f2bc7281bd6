"""``mnistbench lab predict``.

The questions in a terminal, answers from a file, and when predictions are refused.
"""

import datetime as dt
import os
import sys
import tomllib

import pytest

from mnistbench import cli
from mnistbench.core.errors import UsageError
from mnistbench.course.lab.lab_file import LabSettings
from mnistbench.course.lab.predict import command as predict_command
from mnistbench.course.lab.predict.predictions import ASKED, OPERATION, PERCENT, PREDICTIONS, read
from mnistbench.course.lab.run import BEGUN, _begin

LINE = {OPERATION: "convolution addmm", PERCENT: "20 35 60"}
GIVEN = [LINE.get(kind, "2 5 12") for kind in ASKED.values()]


class Terminal:
    """Types lines; Ctrl-C where a line is None, and Ctrl-D after the last one."""

    def __init__(self, *lines):
        self.lines = list(lines)
        self.prompts = []

    def __call__(self, prompt):
        self.prompts.append(prompt)
        if not self.lines:
            raise EOFError
        if (line := self.lines.pop(0)) is None:
            raise KeyboardInterrupt
        return line


@pytest.fixture
def typed(tmp_path, monkeypatch):
    """Return a function that runs the command in an empty directory.

    With these lines typed in a terminal.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(predict_command, "usable_cpus", lambda: 2)

    def run(*lines, options=("--student", "s1")):
        terminal = Terminal(*lines)
        monkeypatch.setattr("builtins.input", terminal)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        return cli.main(["lab", "predict", *options]), terminal

    return run


def test_every_question_is_asked_and_the_answers_are_kept(typed, tmp_path, capsys):
    before = dt.datetime.now(dt.UTC).replace(microsecond=0)
    code, terminal = typed(*GIVEN)
    assert (code, terminal.lines) == (0, [])
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert [line for line in lines if line.startswith("[1/11] ")] == [
        (
            "[1/11] On the CPU, which operation has the largest share of the self time of a "
            "forward pass at batch size 1?"
        )
    ]
    assert lines[-1] == (
        "mnistbench-lab/predictions.toml: 11 of 11 questions are answered. Next, run: mnistbench "
        "lab"
    )
    predictions = read(tmp_path / "mnistbench-lab" / PREDICTIONS)
    assert (predictions.student, predictions.dataset, predictions.cores) == ("s1", "digits", 2)
    assert dt.datetime.fromisoformat(predictions.made_at) >= before
    assert predictions.answers["image"] == (2, 5, 12)
    assert predictions.answers["operation_drawn"] == ("convolution", "addmm")
    assert list(predictions.answers) == list(ASKED)


def test_questions_are_asked_in_chinese(typed, capsys):
    assert typed(*GIVEN, options=("--student", "小明", "--lang", "zh", "-o", "here"))[0] == 0
    shown = capsys.readouterr().out
    assert "前向传播的自身时间中占比最多的是哪个算子" in shown
    assert "11 个问题中已回答 11 个" in shown.splitlines()[-1]
    assert shown.endswith("mnistbench lab -o here\n")


def test_the_next_command_has_the_directory_and_the_dataset(typed, capsys):
    options = ("--student", "s1", "--dataset", "mnist", "-o", "my lab")
    assert typed(*GIVEN, options=options)[0] == 0
    assert capsys.readouterr().out.endswith(
        "Next, run: mnistbench lab --dataset mnist -o 'my lab'\n"
    )


def test_each_answer_is_echoed(typed, capsys):
    assert typed(*GIVEN)[0] == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(("Best guess ", "Range "))][:5] == [
        "Best guess convolution; possible: convolution, addmm.",
        "Best guess convolution; possible: convolution, addmm.",
        "Range 2 to 12, best guess 5.",
        "Range 2 to 12, best guess 5.",
        "Range 20 % to 60 %, best guess 35 %.",
    ]


def test_an_order_that_does_not_ascend_is_asked_again(typed, tmp_path, capsys):
    assert typed("relu", "addmm", "2 12 5", *GIVEN[2:])[0] == 0
    assert "\n2 12 5 is not in ascending order. Three ratios: the low" in capsys.readouterr().out
    assert read(tmp_path / "mnistbench-lab" / PREDICTIONS).answers["image"] == (2, 5, 12)


@pytest.mark.parametrize(
    ("typed_again", "kept"), [("", (0.2, 0.5, 0.8)), ("20 50 80", (20, 50, 80))]
)
def test_shares_of_1_in_place_of_percentages_are_asked_back(
    typed, tmp_path, capsys, typed_again, kept
):
    code, terminal = typed(*GIVEN[:4], "0.2 0.5 0.8", typed_again, *GIVEN[5:])
    assert (code, terminal.prompts[5]) == (0, "[0.2 0.5 0.8] > ")
    assert "The numbers are percentages: 0.2 means 0.2 %, not 20 %." in capsys.readouterr().out
    assert read(tmp_path / "mnistbench-lab" / PREDICTIONS).answers["convolutions"] == kept


def test_an_answer_that_cannot_be_read_is_asked_again(typed, capsys):
    code, terminal = typed("conv2d", "", *GIVEN)
    assert (code, len(terminal.prompts)) == (0, 13)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "cannot be read" in line] == [
        f"{answer} cannot be read. Your best guess, then others that you consider possible, of: "
        "convolution_backward, convolution, addmm, mm, relu, max_pool2d, log_softmax, dropout, "
        "other"
        for answer in ("conv2d", "")
    ]


@pytest.mark.parametrize("end", [(None,), ()], ids=["Ctrl-C", "Ctrl-D"])
def test_an_interrupted_session_goes_on_with_its_answers(typed, tmp_path, capsys, end):
    code, _ = typed("relu", "addmm", "2 5 12", *end)
    assert code == 130
    assert capsys.readouterr().err == (
        "mnistbench: interrupted; your answers are kept in mnistbench-lab/predictions.toml; "
        "run the same command again to go on\n"
    )
    assert len(read(tmp_path / "mnistbench-lab" / PREDICTIONS).answers) == 3
    code, terminal = typed("", "mm", "", *GIVEN[3:])
    assert code == 0
    assert terminal.prompts[:4] == ["[relu] > ", "[addmm] > ", "[2 5 12] > ", "> "]
    kept_answers = read(tmp_path / "mnistbench-lab" / PREDICTIONS).answers
    assert (
        kept_answers["operation_small"],
        kept_answers["operation_large"],
        kept_answers["image"],
    ) == (
        ("relu",),
        ("mm",),
        (2, 5, 12),
    )
    assert len(kept_answers) == 11


def test_a_machine_with_one_core_has_ten_questions(typed, monkeypatch, capsys):
    monkeypatch.setattr(predict_command, "usable_cpus", lambda: 1)
    assert (
        typed(*[line for line, key in zip(GIVEN, ASKED, strict=True) if key != "threads"])[0] == 0
    )
    assert "[10/10]" in capsys.readouterr().out


# ---- Files ---------------------------------------------------------------------------------------


@pytest.fixture
def run_predict(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command without a terminal.

    It gives its exit code and what it prints.
    """
    monkeypatch.chdir(tmp_path)

    def run(*options):
        code = cli.main(["lab", "predict", *options])
        shown = capsys.readouterr()
        return code, shown.err or shown.out

    return run


def test_without_a_terminal_one_line_names_the_option(run_predict, tmp_path):
    assert run_predict("--student", "s1") == (
        2,
        (
            "mnistbench: --from: there is no terminal to ask in; name a file of answers, or a new "
            "file for the questions\n"
        ),
    )
    assert read(tmp_path / "mnistbench-lab" / PREDICTIONS).answers == {}


@pytest.mark.parametrize(
    "options",
    [("--from", "new.toml"), ("--from", "wrong.toml"), ()],
    ids=["new", "wrong", "no terminal"],
)
def test_a_lab_does_not_begin_after_a_command_that_failed(run_predict, tmp_path, options):
    (tmp_path / "wrong.toml").write_text("[answers]\nimage = 3\n", encoding="utf-8")
    assert run_predict("--student", "s 1", *options)[0] == 2
    lab = tmp_path / "mnistbench-lab"
    with pytest.raises(UsageError) as raised:
        _begin(lab, LabSettings(), None)
    assert str(raised.value) == (
        f"{lab / PREDICTIONS}: has no answers, and predictions count only before the lab has "
        f"begun; answer the questions: mnistbench lab predict --student 's 1' -o {lab}; or remove "
        "the file, to measure without predictions"
    )
    assert not (lab / BEGUN).exists()
    (tmp_path / "mine.toml").write_text("[answers]\nimage = [2, 5, 12]\n", encoding="utf-8")
    # A file without answers belongs to no student.
    assert run_predict("--student", "s2", "--from", "mine.toml")[0] == 0
    assert read(lab / PREDICTIONS).student == "s2"


def test_after_an_interrupt_before_the_first_answer_the_lab_does_not_begin(typed, tmp_path):
    assert typed(None)[0] == 130
    with pytest.raises(UsageError, match="has no answers"):
        _begin(tmp_path / "mnistbench-lab", LabSettings(), None)
    assert typed(*GIVEN)[0] == 0


def test_a_new_file_gets_the_questions_and_then_answers_them(run_predict, tmp_path):
    assert run_predict("--student", "s1", "--from", "mine.toml") == (
        2,
        (
            "mnistbench: --from: mine.toml did not exist; your questions are there now: answer "
            "them and run the command again\n"
        ),
    )
    path = tmp_path / "mine.toml"
    text = path.read_text(encoding="utf-8")
    assert "# image = [low, best guess, high]\n" in text
    assert "# convolutions = [low, best guess, high]  # percent\n" in text
    path.write_text(
        text.replace("# image = [low, best guess, high]", "image = [2, 5, 12]"), encoding="utf-8"
    )
    code, line = run_predict("--student", "s1", "--from", "mine.toml", "-o", "here")
    assert code == 0
    assert line.startswith("here/predictions.toml: 1 of ")
    assert read(tmp_path / "here" / PREDICTIONS).answers == {"image": (2, 5, 12)}


def test_a_file_adds_to_the_kept_answers_of_the_same_student(run_predict, tmp_path):
    (tmp_path / "mine.toml").write_text("[answers]\nimage = [2, 5, 12]\n", encoding="utf-8")
    (tmp_path / "blank.toml").write_text("[answers]\n", encoding="utf-8")
    for name in ("mine.toml", "blank.toml"):
        assert run_predict("--student", "s1", "--from", name)[0] == 0
    kept = tmp_path / "mnistbench-lab" / PREDICTIONS
    assert read(kept).answers == {"image": (2, 5, 12)}
    assert run_predict("--student", "s2", "--from", "blank.toml")[0] == 2
    assert read(kept).student == "s1"


def test_a_name_that_no_submission_may_have_is_refused_before_the_lab(run_predict, tmp_path):
    assert run_predict("--student", "n" * 201, "--from", "mine.toml")[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_the_time_is_that_of_the_command_not_of_the_file(run_predict, tmp_path):
    (tmp_path / "mine.toml").write_text(
        'made_at = "1999-01-01"\n[answers]\nimage = [2, 5, 12]\n', encoding="utf-8"
    )
    assert run_predict("--student", "s1", "--from", "mine.toml")[0] == 0
    time_of_file = tomllib.loads(
        (tmp_path / "mnistbench-lab" / PREDICTIONS).read_text(encoding="utf-8")
    )["made_at"]
    assert time_of_file > "2026"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            (),
            "--student: is missing; give your name or number: --student s001",
        ),
        (("--student", "s1", "--lang", "de"), "--lang: 'de' is not known; choose en or zh"),
        (
            ("--student", "s1", "--from", "wrong.toml"),
            "wrong.toml: answers.image: ",
        ),
        (
            ("--student", "s1", "-o", "taken"),
            "--output: taken contains files that are not a lab's; name a new or an empty directory",
        ),
        (
            ("--student", "s1", "--merge"),
            "'--merge' is not known; see: mnistbench lab predict --help",
        ),
    ],
)
def test_an_option_that_cannot_be_used_is_one_line(run_predict, tmp_path, options, line):
    (tmp_path / "wrong.toml").write_text("[answers]\nimage = 3\n", encoding="utf-8")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    code, err = run_predict(*options)
    assert code == 2
    assert err.startswith(f"mnistbench: {line}")
    assert len(err.splitlines()) == 1
    lab = tmp_path / "mnistbench-lab"
    assert [
        path for path in sorted(tmp_path.rglob("*")) if lab not in (path, path.parent)
    ] == before
    assert all(read(file).answers == {} for file in lab.glob(PREDICTIONS))


def test_predictions_are_refused_once_the_lab_has_begun(run_predict, tmp_path):
    (tmp_path / "mnistbench-lab" / BEGUN.parent).mkdir(parents=True)
    (tmp_path / "mnistbench-lab" / BEGUN).write_text("{}", encoding="utf-8")
    assert run_predict("--student", "s1", "--from", os.devnull) == (
        2,
        (
            "mnistbench: --output: the lab in mnistbench-lab has begun, too late for predictions; "
            "name another directory\n"
        ),
    )
    assert not (tmp_path / "mnistbench-lab" / PREDICTIONS).exists()


# ---- The command of two words --------------------------------------------------------------------


def test_lab_and_lab_predict_are_two_commands(capsys):
    for words, usage in (
        (["lab"], "usage: mnistbench lab ["),
        (["lab", "predict"], "usage: mnistbench lab predict ["),
    ):
        with pytest.raises(SystemExit, match=r"\b0\b"):
            cli.main([*words, "--help"])
        assert capsys.readouterr().out.startswith(usage)
