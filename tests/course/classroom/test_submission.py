"""Submissions: packed, written and read again; what is wrong with one.

Files that somebody made up.
"""

import dataclasses
import json
import os

import pytest
from builders import environment
from hypothesis import given
from hypothesis import strategies as st
from lab_builders import MS, laptop, without_numbers
from lab_runs import ANSWERS, Counting, measure, predict, quiet, write
from score_builders import score, trial
from strategies import many, spoiled

from mnistbench.core.errors import RecordError
from mnistbench.course.classroom import submission as submissions
from mnistbench.course.classroom.score import RefusedError
from mnistbench.course.classroom.submission import (
    CHECKS,
    DISTURBED,
    DOUBTFUL,
    INCOMPLETE,
    INCONSISTENT,
    LARGEST,
    Submission,
    pack,
    problems,
    read,
)
from mnistbench.course.lab.lab_file import (
    FILE,
    QUIET,
    SCORE,
    SUBMISSION,
    Findings,
    LabSettings,
    write_file,
)
from mnistbench.course.lab.predict.predictions import EXPLANATIONS, PREDICTIONS
from mnistbench.course.lab.run import BEGUN, STEPS, Lab

STEP = f"{STEPS}/operations-step-cpu-b64.json"


@pytest.fixture(scope="module")
def packed(original):
    return pack(original)


def wrong(directory):
    """The kind and the check of each problem."""
    return [(flaw.kind, flaw.check) for flaw in problems(pack(directory))]


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


# ---- One that is right ---------------------------------------------------------------------------


def test_a_submission_has_the_files_of_the_lab_and_nothing_else(lab, packed):
    (lab / "steps" / "notes.txt").touch()
    (lab / "private.json").touch()
    submission = pack(lab)
    assert submission == packed
    assert {PREDICTIONS, EXPLANATIONS, FILE, SCORE, QUIET, BEGUN.as_posix(), STEP} < set(
        submission.files
    )
    assert submission.student == "s001"
    assert problems(submission) == ()


def test_a_submission_is_read_as_it_was_written(packed, original, tmp_path):
    submissions.write(tmp_path / SUBMISSION, packed)
    submission = read(tmp_path / SUBMISSION)
    assert submission == packed
    assert submission.findings == Findings.from_directory(original)
    assert (submission.score, submission.quiet) == (score(), quiet())
    assert submission.predictions.answers == submission.findings.predictions.answers
    assert set(submission.explanations) == {"image"}
    assert [outcome.inside for outcome in submission.outcomes].count(False) == 1
    assert problems(submission) == ()


def test_a_directory_without_a_file_of_a_lab_is_refused(tmp_path):
    (tmp_path / "steps").mkdir()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RecordError, match="is not the directory of a lab"):
        pack(tmp_path)


def test_a_submission_without_files_lacks_everything():
    submission = Submission("", {})
    assert (
        submission.findings,
        submission.score,
        submission.quiet,
        submission.predictions,
        submission.explanations,
    ) == (
        None,
        None,
        None,
        None,
        {},
    )
    assert {(flaw.kind, flaw.check) for flaw in problems(submission)} == {
        (INCOMPLETE, check) for check in CHECKS if check != "explanations"
    }


# ---- Problems ------------------------------------------------------------------------------------


def test_an_edited_lab_does_not_follow_from_its_steps(lab):
    path = lab / FILE
    content = json.loads(path.read_text(encoding="utf-8"))
    content["iteration_times"][0]["times_ns"][0] += 1
    path.write_text(json.dumps(content), encoding="utf-8")
    assert wrong(lab) == [(INCONSISTENT, "lab")]


def test_a_lab_without_a_step_that_it_measured_does_not_follow_from_its_steps(lab):
    path = lab / FILE
    content = json.loads(path.read_text(encoding="utf-8"))
    content["first_iterations"] = []
    path.write_text(json.dumps(content), encoding="utf-8")
    assert (INCONSISTENT, "lab") in wrong(lab)


def test_predictions_that_were_changed_after_the_lab_are_inconsistent(lab):
    edit(lab / PREDICTIONS, "image = [0, 0, 0]", "image = [1, 1, 1]")
    assert wrong(lab) == [(INCONSISTENT, "predictions")]


def test_predictions_that_were_written_after_the_lab_are_inconsistent(tmp_path):
    measure(tmp_path)
    predict(tmp_path)
    assert (INCONSISTENT, "predictions") in wrong(tmp_path)


def test_predictions_changed_in_the_lab_too_do_not_follow_from_its_beginning(lab):
    edit(lab / PREDICTIONS, "image = [0, 0, 0]", "image = [1, 1, 1]")
    content = json.loads((lab / FILE).read_text(encoding="utf-8"))
    content["predictions"]["answers"]["image"] = [1, 1, 1]
    write(lab, FILE, json.dumps(content))
    assert wrong(lab) == [(INCONSISTENT, "lab")]
    (lab / BEGUN).unlink()
    assert wrong(lab) == [(INCONSISTENT, "lab")]


def test_predictions_of_another_student_are_inconsistent(packed):
    assert [flaw.check for flaw in problems(dataclasses.replace(packed, student="s002"))] == [
        "predictions"
    ]


def test_a_question_without_an_answer_is_named(tmp_path):
    predict(
        tmp_path,
        answers={key: item for key, item in ANSWERS.items() if key not in ("image", "first")},
    )
    [flaw] = [item for item in problems(pack(tmp_path)) if item.check == "predictions"]
    assert (flaw.kind, flaw.text) == (INCOMPLETE, f"{PREDICTIONS} has no answer to first, image")


@pytest.mark.parametrize(
    ("text", "is_enough"),
    [
        ("", False),
        ("It is slow.", False),
        ("It takes 1.5 ms", False),
        ("...", False),
        ("I expected 2. It is 5.", True),
        ("Why? No idea", True),
        ("我以为是两倍。其实是五倍。", True),
        ("只有一句。", False),
    ],
)
def test_a_failed_prediction_needs_two_sentences(lab, text, is_enough):
    write(lab, EXPLANATIONS, f'image = "{text}"\n')
    assert wrong(lab) == ([] if is_enough else [(INCOMPLETE, "explanations")])


def test_the_time_to_count_sentences_grows_with_the_length_and_not_with_its_square():
    """With its square, this would take hours."""
    assert len(submissions._SENTENCE_END.split("." * 10**6 + "x" + "." * 10**6)) == 2


def test_a_text_that_takes_long_to_parse_is_a_problem_of_its_file(packed):
    files = {**packed.files, EXPLANATIONS: f"a{'.a' * 10_000} = 1"}
    assert [
        (flaw.check, flaw.text[:49]) for flaw in problems(dataclasses.replace(packed, files=files))
    ] == [("explanations", f"{EXPLANATIONS}: line 1 has more than 100 dots;")]


def test_a_score_of_another_machine_or_that_was_edited_does_not_count(lab):
    write_file(lab / SCORE, score(environment=environment(cpu_count=64)).content)
    assert wrong(lab) == [(INCONSISTENT, "score")]
    with pytest.raises(RecordError, match="another machine"):
        _ = pack(lab).score
    write(lab, SCORE, json.dumps({"schema": 1, **score().content, "batch_size": 65}))
    assert wrong(lab) == [(INCONSISTENT, "score")]


def turns(reference_ns, student_ns, **changes):
    """A score in which every turn takes these times."""
    same = trial(1.0, reference_ns=(reference_ns,) * 4, student_ns=(student_ns,) * 4, cpu_ns=None)
    return score(floor_ns=1, trials=(same,) * 8, **changes)


@pytest.mark.parametrize(
    ("made_up", "fault"),
    [
        # On the machine of the lab a core does at most 400 GFLOP/s, twice its measured peak, and a
        # step at batch size 64 takes 64 ms with one thread: turns have five steps.
        (turns(400 * MS, 5 * 60), "a step took 60.0 ns, but its forward pass takes at least 3.84"),
        (turns(400 * MS, 19 * MS), "a step took 3.80 ms"),
        (turns(400 * MS, 20 * MS), ""),
        (turns(400 * MS, 2 * MS, dtype="bfloat16"), ""),
        (turns(400 * MS, MS, dtype="bfloat16"), "a step took 200 us"),
        (turns(1_601 * MS, 400 * MS), "a step of the reference took 320 ms, but 64.0 ms in the"),
        (turns(1_600 * MS, 400 * MS), ""),
        (turns(64 * MS, 64 * MS), ""),
        (turns(63 * MS, 63 * MS), "a step of the reference took 12.6 ms"),
        # Of a batch size that the lab has not measured.
        (turns(6_400 * MS, 6_400 * MS, batch_size=256), ""),
        (turns(6_500 * MS, 6_500 * MS, batch_size=256), "a step of the reference took 1.30 s"),
    ],
)
def test_a_score_that_is_not_possible_on_the_machine_of_the_lab_does_not_count(
    packed, made_up, fault
):
    content = json.dumps({"schema": 1, **made_up.content})
    flaws = problems(dataclasses.replace(packed, files={**packed.files, SCORE: content}))
    assert [(flaw.kind, flaw.check) for flaw in flaws] == [(INCONSISTENT, "score")] * bool(fault)
    assert fault in "".join(flaw.text for flaw in flaws)


def test_without_a_lab_on_the_cpu_the_rate_of_a_core_has_a_bound():
    nothing = without_numbers(laptop())
    turns(400 * MS, MS).check_machine(nothing)
    with pytest.raises(RefusedError, match="but its forward pass takes at least 154 us"):
        turns(400 * MS, 5 * 60).check_machine(nothing)


@pytest.mark.parametrize(
    ("self_test", "kinds"),
    [
        (quiet(), []),
        (quiet(trials=tuple(trial(ratio) for ratio in (1.009, 1.01, 1.011, 1.01))), []),
        (quiet(1.1), [DOUBTFUL]),
        (quiet(0.9), [DOUBTFUL]),
        (quiet(trials=tuple(trial(ratio) for ratio in (1, 1.06, 1, 0.98, 1))), [DOUBTFUL]),
        (
            quiet(trials=tuple(trial(1.0, cpu_ns=(10**9, 10**9, 10**9)) for _ in range(5))),
            [DOUBTFUL],
        ),
        (quiet(environment=environment(cpu_count=64)), [INCONSISTENT]),
        (score(1.0), [INCONSISTENT]),
    ],
)
def test_the_self_test_needs_equal_code_and_a_quiet_machine(lab, self_test, kinds):
    write_file(lab / QUIET, self_test.content)
    assert wrong(lab) == [(kind, "machine") for kind in kinds]


def test_files_that_are_missing_are_named(lab):
    for name in (SCORE, QUIET):
        (lab / name).unlink()
    assert wrong(lab) == [(INCOMPLETE, "score"), (INCOMPLETE, "machine")]


def test_a_score_without_a_self_test_is_doubtful(lab):
    (lab / QUIET).unlink()
    assert wrong(lab) == [(DOUBTFUL, "machine")]


def test_a_lab_without_the_batch_size_of_its_student_is_of_another_one(packed):
    content = json.loads(packed.files[FILE])
    content["settings"]["batch_sizes"] = [1, 16, 64]
    changed = dataclasses.replace(packed, files={**packed.files, FILE: json.dumps(content)})
    assert [flaw.text for flaw in problems(changed) if flaw.check == "lab"] == [
        (
            f"{FILE} has no batch size {changed.predictions.batch_size}, which is that of 's001'; "
            "run your own lab"
        )
    ]


def test_more_batch_sizes_than_steps_take_no_time(packed):
    content = json.loads(packed.files[FILE])
    content["settings"]["batch_sizes"] = list(range(1, 100_000))
    files = {**packed.files, FILE: json.dumps(content)}
    assert INCONSISTENT in {
        flaw.kind for flaw in problems(Submission("s001", files)) if flaw.check == "lab"
    }


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"batch_sizes": (1, 2)}, "batch size 64 was not measured; run the lab again with --batch"),
        ({"batch_sizes": (16,)}, "batch size 1, 64 was not measured; run the lab again with --b"),
        ({"devices": ("cuda",)}, "the CPU was not measured; add --device cpu, in a new directory"),
        ({"dataset": "mnist"}, "it is of mnist, the predictions are of digits; give both commands"),
    ],
)
def test_a_lab_that_does_not_answer_all_questions_is_incomplete(tmp_path, changes, what):
    """Else a prediction that would fail could be left out."""
    predict(tmp_path)
    settings = LabSettings("digits", (1, 16, 64), ("cpu",), 3, "convnet", 1)
    settings = dataclasses.replace(settings, **changes)
    Lab(tmp_path, settings, environment(threads=2), Counting()).run(None)
    [flaw] = [flaw for flaw in problems(pack(tmp_path)) if flaw.check == "lab"]
    assert flaw.kind == INCOMPLETE
    assert flaw.text.startswith(f"{FILE} does not answer all questions: {what}")


def test_what_to_do_next_names_the_directory(tmp_path):
    directory = tmp_path / "my lab"
    predict(directory)
    texts = [flaw.text for flaw in problems(pack(directory))]
    assert f"{FILE} is missing; run mnistbench lab -o '{directory}'" in texts
    assert f"{SCORE} is missing; run mnistbench lab score my_step.py -o '{directory}'" in texts


class Noisy(Counting):
    """On this machine, other programs had the core for a part of the time."""

    def iterations(self, wanted, advance):
        return tuple(
            dataclasses.replace(time, queued_share=0.15)
            for time in super().iterations(wanted, advance)
        )


def test_a_lab_of_a_disturbed_machine_has_a_state_of_its_own(tmp_path):
    predict(tmp_path)
    measure(tmp_path, Noisy())
    for name, of_step in ((SCORE, score()), (QUIET, quiet())):
        write_file(tmp_path / name, of_step.content)
    [flaw] = problems(pack(tmp_path))
    assert (flaw.kind, flaw.check) == (DISTURBED, "lab")
    assert flaw.text == (
        "measured on a disturbed machine: other programs had the core for 15.0 % of the time "
        "(a training step at batch size 1 on the CPU with 2 threads); close other programs, plug "
        "in the power supply, and run the lab again in a new directory (-o)"
    )


def test_a_check_that_made_up_numbers_break_is_a_problem(packed, monkeypatch):
    monkeypatch.setattr(submissions, "unlike_steps", lambda *_: 1 / 0)
    assert [(flaw.kind, flaw.check, flaw.text) for flaw in problems(packed)] == [
        (INCONSISTENT, "lab", "cannot be evaluated (ZeroDivisionError: division by zero)")
    ]


def test_answers_in_a_lab_are_of_their_kind(packed):
    """Else they could not be compared with what was measured."""
    content = json.loads(packed.files[FILE])
    content["predictions"]["answers"]["image"] = ["a", "b", "c"]
    files = {**packed.files, FILE: json.dumps(content)}
    submission = dataclasses.replace(packed, files=files)
    for flaw in problems(submission):
        assert f"{FILE}: predictions.answers.image: needs [low, best guess, high]" in flaw.text


# ---- Hostile files -------------------------------------------------------------------------------


def document(files, student="s001"):
    return {"schema": 1, "student": student, "files": files}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"schema": ' + b"1" * 5000 + b"}", "is not JSON"),
        (b'{"schema": 1, "schema": 1}', "a name occurs twice"),
        (b'{"schema": 2}', "schema: needs 1"),
        (b'{"schema": 1, "student": "s001"}', "files: is missing"),
        (document({"../../etc/passwd": ""}), "files.'../../etc/passwd': is no file of a lab"),
        (document({"steps/../x.json": ""}), "is no file of a lab"),
        (document({"steps/x.json\n": ""}), "is no file of a lab"),
        (document({"steps/" + "x" * 300 + ".json": ""}), "is no file of a lab"),
        (document({"report.html": ""}), "is no file of a lab"),
        (document({FILE: 1}), "files[...]: "),
        (document({FILE: "\0"}), "is no text"),
        (document({FILE: "\ud800"}), "is no text"),
        (document({}, "a\nb"), "student: needs"),
        (document({}, "s" * 201), "student: needs"),
    ],
)
def test_a_file_that_is_no_submission_is_one_line(tmp_path, content, fault):
    path = tmp_path / SUBMISSION
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(RecordError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")
    assert fault in str(error.value)
    assert str(error.value).isprintable()


def test_what_is_not_a_regular_file_is_not_read(tmp_path, original):
    path = tmp_path / SUBMISSION
    with pytest.raises(RecordError, match="does not exist; name the directory of a lab"):
        read(path)
    path.symlink_to(original / FILE)
    os.mkfifo(tmp_path / "pipe")
    for special_file in (path, tmp_path / "pipe", tmp_path, os.devnull):
        with pytest.raises(RecordError, match="is not a regular file"):
            read(type(path)(special_file))
    large = tmp_path / "large"
    with large.open("wb") as stream:
        stream.truncate(LARGEST + 1)
    with pytest.raises(RecordError, match=f"has {LARGEST + 1} bytes, more than {LARGEST}"):
        read(large)


@pytest.mark.parametrize("name", [FILE, PREDICTIONS, STEP])
def test_a_link_in_a_lab_is_not_followed(lab, tmp_path, name):
    (lab / name).unlink()
    (lab / name).symlink_to(tmp_path / "secret")
    with pytest.raises(RecordError, match="is not a regular file"):
        pack(lab)


def test_a_lab_whose_steps_are_a_link_is_refused(lab, tmp_path):
    (lab / STEPS).rename(tmp_path / "elsewhere")
    (lab / STEPS).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match="is not the directory of a lab"):
        pack(lab)


def test_a_file_in_another_encoding_is_one_line(lab):
    (lab / EXPLANATIONS).write_bytes('image = "因为。"'.encode("gbk"))
    with pytest.raises(
        RecordError, match=r"explanations\.toml: is not UTF-8 text; save it as UTF-8"
    ):
        pack(lab)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("spoiled")


@many(300)
@given(data=st.data())
def test_a_spoiled_submission_is_read_or_one_line(data, packed, folder):
    small = {name: packed.files[name] for name in (EXPLANATIONS, BEGUN.as_posix())}
    _, content = data.draw(spoiled(document(small)))
    path = folder / SUBMISSION
    path.write_text(json.dumps(content), encoding="utf-8")
    message = f"{path}: "
    flaws = ()
    try:
        flaws = problems(read(path))
    except RecordError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")
    assert all(flaw.kind in (INCOMPLETE, INCONSISTENT, DOUBTFUL) for flaw in flaws)


@many(300)
@given(data=st.data())
def test_spoiled_files_of_a_submission_are_problems(data, packed):
    name = data.draw(st.sampled_from([FILE, SCORE, QUIET, STEP, f"{STEPS}/iterations.json"]))
    original = json.loads(packed.files[name])
    _, content = data.draw(spoiled(original))
    flaws = problems(dataclasses.replace(packed, files={**packed.files, name: json.dumps(content)}))
    assert {flaw.kind for flaw in flaws} <= {INCOMPLETE, INCONSISTENT, DOUBTFUL}
    assert {flaw.check for flaw in flaws} <= set(CHECKS)
    # Of the other files, some values change nothing that is checked. A drawn value may also be
    # equal to the one that it replaces.
    if name in (SCORE, QUIET) and content != original:
        assert INCONSISTENT in {flaw.kind for flaw in flaws}
