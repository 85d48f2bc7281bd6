"""Questions of a student, their answers in made-up findings, and predictions beside them."""

import dataclasses

import pytest
from lab_builders import (
    MS,
    US,
    case,
    cluster,
    forward_rows,
    iteration_time,
    laptop,
    queued,
    step_rows,
    table,
    without_numbers,
)

from mnistbench.course.lab.predict.predictions import ASKED, Predictions
from mnistbench.course.lab.predict.questions import Outcome, answer, questions, with_predictions
from mnistbench.course.lab.sheets import CitedNumber, sheets_of

PREDICTED = Predictions("s123", "2026-11-25T07:00:00+00:00", "digits", 2, {})


def measured_too(findings, size):
    """The same machine with a batch size more: twice the time per image of batch size 64."""
    cases = [
        case(phase, size, table(rows(4000 * US, 3000 * US, 200 * US)))
        for phase, rows in (("forward", forward_rows), ("step", step_rows))
    ]
    times = [iteration_time(phase, size, 2 * size * MS) for phase in ("forward", "step")]
    return dataclasses.replace(
        findings,
        cases=(*findings.cases, *cases),
        iteration_times=(*findings.iteration_times, *times),
    )


def answers(findings, student="s123", cores=2):
    sheets = sheets_of(findings)
    return {
        question.key: answer(question, findings, sheets)
        for question in questions(student, "digits", cores)
    }


def test_noise_fails_no_prediction_of_times():
    """The accuracy is none."""
    wrong = {key: ("dropout",) if "operation" in key else (0, 0, 0) for key in ASKED}
    predicted = dataclasses.replace(PREDICTED, answers=wrong)
    size = PREDICTED.batch_size
    for noise, outcomes in ((0.0, {False}), (0.2, {None})):
        findings = queued(measured_too(laptop(predictions=predicted), size), noise)
        rows = with_predictions(findings, sheets_of(findings)).predictions.rows
        times = [row for row in rows if row.measured and row.question.key != "accuracy"]
        assert {row.inside for row in times} == outcomes
        assert [row.inside for row in rows if row.question.key == "accuracy"] == [False]


# ---- Questions -----------------------------------------------------------------------------------


def test_every_question_is_asked_and_a_student_gets_the_same_ones_again():
    assert [question.key for question in questions("s123", "digits", 2)] == list(ASKED)
    assert questions("s123", "digits", 2) == questions("s123", "digits", 2)


def test_the_drawn_questions_are_the_same_on_every_machine():
    *_, operation, image, layer = questions("s123", "digits", 2)
    assert (operation.phase, operation.size, operation.what) == ("step", 41, "second")
    assert (image.phase, image.size, layer.size, layer.what) == ("forward", 41, 41, "relu2")


def test_two_students_get_different_questions():
    drawn = [questions(f"student {number}", "digits", 2)[-3:] for number in range(100)]
    assert len(set(drawn)) > 95
    sizes = {question.size for asked in drawn for question in asked}
    assert len(sizes) > 30
    assert sizes <= set(range(17, 62))
    assert all(len({question.size for question in asked}) == 1 for asked in drawn)
    fixed = {questions(f"student {number}", "digits", 2)[:-3] for number in range(10)}
    assert len(fixed) == 1


def test_a_machine_with_one_core_has_no_question_about_threads():
    assert [question.key for question in questions("s123", "digits", 1)] == [
        key for key in ASKED if key != "threads"
    ]


def test_the_batch_size_of_predictions_is_that_of_the_questions():
    assert PREDICTED.batch_size == questions("s123", "digits", 2)[-1].size


# ---- Answers -------------------------------------------------------------------------------------


def test_the_run_answers_the_questions():
    measured = answers(laptop())
    assert (measured["operation_small"], measured["operation_large"]) == (
        "aten::mkldnn_convolution",
    ) * 2
    numbers = {
        key: number.value for key, number in measured.items() if isinstance(number, CitedNumber)
    }
    conv = 9600
    addmm = 600
    small = 600
    whole = conv + conv // 100 + addmm + 3 * small + small + 2 * conv + 2 * addmm + small
    assert numbers == pytest.approx(
        {
            "image": 5.0,  # 5 ms for one image, 64 ms for 64
            "backward": (2 * conv + 2 * addmm) / (conv + conv // 100 + addmm + 4 * small),
            "convolutions": (3 * conv + conv // 100) / whole,
            "accuracy": 96.4 - 4 + 1,
            "first": 20.125,
            "threads": 1.6,
        }
    )
    assert [key for key, value in measured.items() if value is None] == [
        "operation_drawn",
        "image_drawn",
        "layer_drawn",
    ]


def test_the_run_answers_the_drawn_questions_if_it_measured_their_batch_size():
    measured = answers(measured_too(laptop(), 41))
    # A step: convolution_backward 8 ms, mm 6 ms, mkldnn_convolution 4 ms.
    assert measured["operation_drawn"] == "aten::mm"
    assert measured["image_drawn"].value == pytest.approx(2 * 64 / 13, rel=1e-3)
    assert measured["layer_drawn"] is None  # relu2: the made-up network has one relu
    measured = answers(measured_too(laptop(), PREDICTED.batch_size), "s123")
    assert {measured[key] is None for key in ("operation_drawn", "image_drawn")} == {False}


def test_what_was_not_measured_has_no_answer():
    assert set(answers(without_numbers(laptop())).values()) == {None}
    times = tuple(
        time for time in cluster().iteration_times if time.threads > 1
    )  # with an accelerator, the lab measures no others
    assert answers(cluster(iteration_times=times))["threads"] is None
    one_core = laptop(environment=dataclasses.replace(laptop().environment, threads=1))
    assert answers(one_core)["threads"] is None
    mnist = laptop(settings=dataclasses.replace(laptop().settings, dataset="mnist"))
    assert answers(mnist)["accuracy"] is None


# ---- Outcomes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("aten::mkldnn_convolution", "convolution"),
        ("aten::convolution_backward", "convolution_backward"),
        ("aten::conv2d", "convolution"),
        ("aten::addmm", "addmm"),
        ("aten::mm", "mm"),
        ("aten::clamp_min", "relu"),
        ("aten::threshold_backward", "relu"),
        ("aten::max_pool2d_with_indices", "max_pool2d"),
        ("aten::_log_softmax", "log_softmax"),
        ("aten::bernoulli_", "dropout"),
        ("aten::copy_", "other"),
    ],
)
def test_an_operation_is_among_the_possible_ones_by_its_short_name(operation, name):
    question = questions("s123", "digits", 2)[0]
    assert Outcome(question, ("log_softmax", name), operation).inside
    wrong = tuple(
        wrong_name
        for wrong_name in ("convolution", "addmm", "mm", "relu", "other")
        if wrong_name != name
    )
    assert Outcome(question, wrong, operation).inside is False


@pytest.mark.parametrize(
    ("key", "predicted", "inside", "width"),
    [
        ("image", (2, 5, 12), True, 2.0),
        ("image", (5.0, 5, 12), True, 1.4),
        ("image", (1, 2, 4.9), False, 0.78),
        ("image", (5.1, 6, 7), False, 0.38),
        ("accuracy", (93, 94, 95), True, 2 / 93.4),
    ],
)
def test_a_range_contains_the_number_or_not(key, predicted, inside, width):
    findings = laptop(predictions=dataclasses.replace(PREDICTED, answers={key: predicted}))
    [row] = with_predictions(findings, sheets_of(findings)).predictions.written
    assert (row["question"], row["judged"], row["inside"], row["with_width"]) == (
        key,
        1,
        int(inside),
        1,
    )
    assert row["relative_width"] == pytest.approx(width)


def test_a_share_is_compared_in_percent():
    findings = laptop(
        predictions=dataclasses.replace(PREDICTED, answers={"convolutions": (80, 85, 90)})
    )
    [row] = with_predictions(findings, sheets_of(findings)).predictions.written
    assert row["measured"] == pytest.approx(85.755, abs=1e-3)
    assert row["inside"] == 1


def test_a_question_without_a_value_is_not_judged():
    findings = laptop(
        predictions=dataclasses.replace(PREDICTED, answers={"image_drawn": (1, 2, 3)})
    )
    [row] = with_predictions(findings, sheets_of(findings)).predictions.written
    assert (row["measured"], row["judged"], row["inside"], row["relative_width"]) == (
        None,
        0,
        None,
        None,
    )


def test_without_predictions_there_is_no_table():
    sheets = sheets_of(laptop())
    assert with_predictions(laptop(), sheets) is sheets
    assert sheets.predictions.rows == ()
