"""The file of predictions.

Both ways, and every mistake in one line with the key, the value and what it needs.
"""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import many

from mnistbench.core.errors import RecordError, UsageError
from mnistbench.course.lab.predict import predictions
from mnistbench.course.lab.predict.predictions import (
    ASKED,
    LAB_FILE,
    LONGEST_TEXT,
    MAX_DOTS,
    OPERATION,
    OPERATIONS,
    PERCENT,
    Predictions,
    check,
    parsed,
    read,
    read_explanations,
    toml,
)

HEAD = {"student": "s1", "made_at": "2026-11-25T07:00:00+00:00", "dataset": "digits", "cores": 2}
NEEDED = "needs [low, best guess, high], from 0 to 1000000, ascending"
NONE = Predictions(**HEAD, answers={})
TEXTS = {key: f"What about {key}?" for key in ASKED}

names = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), min_size=1).filter(
    str.isprintable
)


@st.composite
def answers(draw):
    """Answers to some questions."""
    answers_by_key = {}
    for key in draw(st.sets(st.sampled_from(sorted(ASKED)))):
        if ASKED[key] == OPERATION:
            answers_by_key[key] = tuple(
                draw(st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, unique=True))
            )
        else:
            number = st.floats(0, 100 if ASKED[key] == PERCENT else 1e6)
            answers_by_key[key] = tuple(sorted(draw(st.tuples(number, number, number))))
    return answers_by_key


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("predictions")


def written(folder, text):
    path = folder / "predictions.toml"
    path.write_text(text, encoding="utf-8")
    return path


@many(1500)
@given(student=names, predicted_answers=answers())
def test_a_file_is_read_as_it_was_written(folder, student, predicted_answers):
    predicted = dataclasses.replace(NONE, student=student, answers=predicted_answers)
    assert read(written(folder, toml(predicted, TEXTS))) == predicted


@many(3000)
@given(
    text=st.text()
    | st.builds(
        "[answers]\n{} = {}".format,
        st.sampled_from([*ASKED, "mine"]),
        st.text() | st.floats().map(repr),
    )
    | st.lists(
        st.one_of(st.integers(), st.floats().map(repr), st.just('"relu"'), st.just("[1]")),
        max_size=4,
    ).map(
        lambda row: (
            f"[answers]\nimage = [{', '.join(map(str, row))}]\noperation_small = "
            f"[{', '.join(map(str, row))}]"
        )
    )
)
def test_any_text_is_predictions_or_one_line(folder, text):
    path = folder / "predictions.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        predictions = read(path, HEAD)
    except UsageError as error:
        predictions = NONE
        message = str(error)
    else:
        message = f"{path}: "
    assert message.startswith(f"{path}: ")
    for key, answer in predictions.answers.items():
        check(key, answer)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("answers = 1", "answers: "),
        ("", "answers: is missing"),
        (
            "[answers]\nimages = [1, 2, 3]",
            f"answers.images: is no question; choose of {', '.join(ASKED)}",
        ),
        ("[answers]\nimage = 3", "answers.image: "),
        ("[answers]\nimage = [5, 3, 12]", f"answers.image: {NEEDED}, found [5, 3, 12]"),
        ("[answers]\nimage = [1, 2]", f"answers.image: {NEEDED}, found [1, 2]"),
        (
            "[answers]\naccuracy = [90, 95, 101]",
            (
                "answers.accuracy: needs [low, best guess, high], from 0 to 100, ascending, found "
                "[90, 95, 101]"
            ),
        ),
        ("[answers]\nfirst = [1, nan, 2]", f"answers.first: {NEEDED}, found [1, nan, 2]"),
        (
            "[answers]\noperation_small = []",
            f"answers.operation_small: needs a list of {', '.join(OPERATIONS)}, found []",
        ),
        (
            "[answers]\noperation_small = ['conv']",
            f"answers.operation_small: needs a list of {', '.join(OPERATIONS)}, found ['conv']",
        ),
        (
            "student = 's2'\n[answers]",
            "student: is 's2', not 's1'; their questions are not the same",
        ),
        ("[answers]\nimage = [1, 2", "is not TOML ("),
    ],
)
def test_a_mistake_is_one_line(tmp_path, text, fault):
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as error:
        read(path, HEAD)
    assert str(error.value).startswith(f"{path}: {fault}")


def test_a_file_that_is_missing_or_no_text_is_one_line(tmp_path):
    with pytest.raises(
        UsageError, match=r"predictions\.toml: cannot be read \(No such file or directory\)"
    ):
        read(tmp_path / "predictions.toml")
    (tmp_path / "predictions.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"predictions\.toml: is not TOML"):
        read(tmp_path / "predictions.toml")


def test_a_file_without_an_end_is_one_line(tmp_path):
    path = tmp_path / "predictions.toml"
    path.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match=r"predictions\.toml: is not a file; "):
        read(path)
    path.unlink()
    with path.open("wb") as stream:
        stream.truncate(LAB_FILE.n_bytes + 1)
    with pytest.raises(UsageError, match=r"predictions\.toml: has more than 16\.0 MiB"):
        read(path)


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    assert read(written(tmp_path, "\ufeff" + toml(NONE, TEXTS))) == NONE


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"a{'.a' * MAX_DOTS}.a = 1", "line 1 has more than 100 dots; divide it"),
        (f"\n\n['x'{'. b' * MAX_DOTS}.b]", "line 3 has more than 100 dots; divide it"),
        (f"x = {{a{'.a' * MAX_DOTS}.a=1}}", "line 1 has more than 100 dots; divide it"),
        ("#" * (LONGEST_TEXT + 1), f"has 32769 characters, more than {LONGEST_TEXT}; shorten it"),
    ],
)
def test_a_text_that_takes_long_to_parse_is_refused(tmp_path, text, fault):
    path = written(tmp_path, text)
    for reader in (read, read_explanations):
        with pytest.raises(UsageError) as error:
            reader(path)
        assert str(error.value).startswith(f"{path}: {fault}")


def test_the_time_to_read_grows_with_the_length_and_not_with_its_square():
    """With its square, each of these would take hours."""
    for text in ("\n" * 10**6, " " * 10**6, "a\n" * 10**6, f"image = [{' ' * 10**6}x"):
        assert predictions._plain_numbers(text) == text
    spaces = " " * 10**6
    assert predictions._plain_numbers(f"image = [1{spaces}]") == f"image = [1{spaces}]"


def test_a_question_without_an_answer_is_a_comment(tmp_path):
    text = toml(dataclasses.replace(NONE, answers={"image": (1, 2, 3)}), TEXTS)
    assert "# What about image?\nimage = [1, 2, 3]\n" in text
    assert '# operation_small = ["best guess", "other"]\n' in text
    assert "# backward = [low, best guess, high]\n" in text
    filled = re.sub(r"^# backward = .*$", "backward = [1, 2, 3]", text, flags=re.MULTILINE)
    assert set(read(written(tmp_path, filled)).answers) == {"image", "backward"}


@pytest.mark.parametrize(
    "values",
    [
        "[30 %, 60%, 80.5 %]",
        "['30 %', \"60 %\", 80.5]",
        "[30, 60, 80.5]",
        "[ 30\uff05,60,80.5 ] # %",
    ],
)
def test_a_percentage_in_a_file_may_have_its_unit(tmp_path, values):
    path = written(
        tmp_path,
        f"student = '5 % [1 %]'\n[answers]\nconvolutions = {values}\nimage = [2x, '5', 12]\n",
    )
    predictions = read(path, {**HEAD, "student": "5 % [1 %]"})
    assert predictions.answers == {"convolutions": (30, 60, 80.5), "image": (2, 5, 12)}


@pytest.mark.parametrize(
    ("key", "text", "answer"),
    [
        ("image", "2 5 12", (2.0, 5.0, 12.0)),
        ("image", " 2, 5; 12 ", (2.0, 5.0, 12.0)),
        ("accuracy", "80 % 94% 99\uff05", (80.0, 94.0, 99.0)),
        ("accuracy", "80\uff0c94、99", (80.0, 94.0, 99.0)),
        ("accuracy", "80% 94.5% 99 percent", (80.0, 94.5, 99.0)),
        ("accuracy", "80,5 94,25 99,1 %", (80.5, 94.25, 99.1)),
        ("accuracy", "80%,94%,99%", (80.0, 94.0, 99.0)),
        ("image", "2x 5 x 12\u00d7", (2.0, 5.0, 12.0)),
        ("image", "2倍、5倍、12倍", (2.0, 5.0, 12.0)),
        ("image", "1,000 2,000.5 1,000,000", (1_000.0, 2_000.5, 1_000_000.0)),
        ("image", "0,125 0,5 1", (0.125, 0.5, 1.0)),
        ("operation_small", "addmm, relu addmm", ("addmm", "relu")),
    ],
)
def test_an_answer_of_the_terminal_is_read(key, text, answer):
    assert parsed(key, text) == answer


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("image", ""),
        ("image", "1 2"),
        ("image", "1 2 3 4"),
        ("image", "1 2 x"),
        ("image", "1 2 nan"),
        ("image", "-1 2 3"),
        ("image", "2 % 5 % 12 %"),
        ("accuracy", "2x 5x 12x"),
        ("accuracy", "%"),
        ("accuracy", "1 2 101"),
        ("operation_small", ""),
        ("operation_small", "conv2d"),
    ],
)
def test_an_answer_that_cannot_be_read_is_refused(key, text):
    with pytest.raises((ValueError, RecordError)):
        parsed(key, text)
