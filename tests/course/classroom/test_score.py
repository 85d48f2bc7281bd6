"""The judgement of a score and its file: made-up samples in, a ratio, a refusal or an error out."""

import dataclasses
import hashlib
import json
import re

import pytest
from builders import environment
from hypothesis import given
from score_builders import TRIALS, TURNS, score, trial
from strategies import many, spoiled

from mnistbench.core.errors import RecordError
from mnistbench.course.classroom.score import TOLERANCES, Answer, RefusedError, error_of, read_score
from mnistbench.course.lab.lab_file import SCORE, write_file

# ---- The ratio -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "tie", "band"),
    [
        (1.0, True, None),
        (1.004, True, None),
        (1.03, False, None),
        (1.055, False, None),
        (1.07, False, 1.05),
        (1.27, False, 1.25),
        (1.9, False, 1.5),
        (2.1, False, 2.0),
        (9.0, False, 3.0),
        (0.8, False, None),
    ],
)
def test_the_lower_bound_decides_the_band_and_an_interval_with_1_is_a_tie(ratio, tie, band):
    speedup = score(ratio).speedup
    assert speedup["ratio"] == pytest.approx(ratio, rel=0.002)
    assert speedup["low"] < speedup["ratio"] < speedup["high"] < 1.02 * speedup["low"]
    assert (speedup["tie"], speedup["band"]) == (tie, band)


def test_a_slow_turn_does_not_count_and_a_slow_trial_widens_the_interval():
    assert score().speedup["high"] < 1.33
    odd = trial(0.5)
    assert score(trials=(*score().trials[1:], odd)).speedup["low"] < 1.05


def test_the_sentence_has_the_interval_and_the_band():
    assert re.fullmatch(
        r"step\.py: 1\.30 times as fast as the reference \(95 % interval 1\.29 to 1\.31, 8 "
        r"trials\); band: at least 1\.25 times",
        score().sentence,
    )
    assert score(1.0).sentence.startswith("step.py: tie, 1.00 times as fast")
    assert score(0.8).sentence.endswith("band: none, the first is 1.05 times")


def test_few_samples_have_no_ratio():
    for trials in (
        score().trials[:1],
        (trial(1.3, reference_ns=(1, 1), student_ns=(1, 1)), *score().trials),
    ):
        with pytest.raises(RefusedError, match="it has too few trials or turns"):
            _ = score(trials=trials).speedup


# ---- What no single turn shows -------------------------------------------------------------------


def with_cpu(student=1.0, idle=0.0, ratio=1.3):
    """A score in which the CPU time of the student is this share of its wall time."""
    trials = [trial(ratio * noise) for noise in TRIALS]
    return score(
        trials=tuple(
            dataclasses.replace(
                trial_times,
                cpu_ns=(
                    sum(trial_times.reference_ns),
                    round(student * sum(trial_times.student_ns)),
                    round(idle * sum(trial_times.reference_ns)),
                ),
            )
            for trial_times in trials
        )
    )


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (score(accuracies=(0.9, 0.84)), "its accuracy after an epoch is 84.0 %, not 90.0 %"),
        (
            score(9.0, floor_ns=12_000_000),
            "a step took 8.98 ms, but its forward pass takes 12.0 ms at the core's peak rate",
        ),
        # Two threads.
        (with_cpu(student=1.9), "1.30 times as fast by wall time and 0.68 times by CPU time"),
        # Another process computes.
        (with_cpu(student=0.02), "1.30 times as fast by wall time and 65.0 times by CPU time"),
        (with_cpu(idle=0.08), "it computed during 8.0 % of the reference's time"),
    ],
)
def test_a_score_is_refused(refused, reason):
    with pytest.raises(RefusedError, match=re.escape(reason)):
        refused.check()


@pytest.mark.parametrize(
    "accepted",
    [
        score(),
        score(0.5),
        score(accuracies=(0.9, 0.86)),
        score(accuracies=(0.9, 1.0)),
        with_cpu(student=1.1, idle=0.04),
        score(trials=tuple(trial(1.3, cpu_ns=None) for _ in TRIALS)),
    ],
)
def test_a_score_is_accepted(accepted):
    accepted.check()


# ---- A turn --------------------------------------------------------------------------------------

REFERENCE = Answer(
    (0.5, 0.4),
    {"weight": (1.0, 2.0, 3.0), "bias": (0.1, 0.1)},
    {"weight": (0.9, 2.1, 3.1), "bias": (0.0, 0.1)},
)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, 0.0),
        ({"losses": (0.5, 0.44)}, 0.1),
        ({"values": {"weight": (1.0, 2.0, 3.0), "bias": (0.1, 0.13)}}, 0.3),
    ],
)
def test_the_error_of_a_turn_is_the_largest_of_losses_and_changes(changes, error):
    assert error_of(dataclasses.replace(REFERENCE, **changes), REFERENCE, 0.4) == pytest.approx(
        error
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"losses": (0.5, 0.2)}, "the loss of step 2 differs from the reference's by 50.0 %"),
        (
            {"values": REFERENCE.start},
            "the change of weight in 2 steps differs from the reference's by 100.0 %",
        ),
        ({"losses": (0.5,)}, "its process sent another answer than was asked for"),
        (
            {"values": {"weight": (1.0, 2.0, 3.0)}},
            "its process sent another answer than was asked for",
        ),
        (
            {"values": {"weight": (1.0, 2.0), "bias": (0.1, 0.1)}},
            "its process sent another answer than was asked for",
        ),
        (
            {"values": {"weight": (1.0, 2.0, 3.0), "other": (0.1, 0.1)}},
            "its process sent another answer than was asked for",
        ),
    ],
)
def test_a_wrong_turn_is_refused(changes, reason):
    with pytest.raises(RefusedError, match=re.escape(reason)):
        error_of(dataclasses.replace(REFERENCE, **changes), REFERENCE, 0.4)


def test_what_rounding_changes_is_no_error():
    """A well classified sample has a loss near 0 and moves weights less than their rounding."""
    still = Answer((1e-7,), {"weight": (1.0, 2.0)}, {"weight": (1.0, 2.0)})
    assert (
        error_of(Answer((3e-7,), {"weight": (1.0 + 1e-8, 2.0)}, still.start), still, 0.4)
        < TOLERANCES["float32"][1]
    )


# ---- The file ------------------------------------------------------------------------------------

WRITTEN = {"schema": 1, **json.loads(json.dumps(score().content))}


def read(folder, content, machine=None):
    path = folder / SCORE
    path.write_text(json.dumps(content), encoding="utf-8")
    return read_score(path, machine or environment())


def test_a_score_is_read_as_it_was_written(tmp_path):
    for written in (score(), score(trials=tuple(trial(1.0, cpu_ns=None) for _ in TRIALS))):
        write_file(tmp_path / SCORE, written.content)
        assert read_score(tmp_path / SCORE, environment()) == written
    content = json.loads((tmp_path / SCORE).read_text(encoding="utf-8"))
    assert content["sha256"] == hashlib.sha256(written.text.encode()).hexdigest()
    assert len(content["trials"][0]["student_ns"]) == len(TURNS)


def edited(**changes):
    """The file with changes, and with a digest that fits to them."""
    content = {
        name: value
        for name, value in {**WRITTEN, **changes}.items()
        if name not in ("schema", "digest")
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return {"schema": 1, **content, "digest": digest}


@pytest.mark.parametrize(
    "content",
    [
        {**WRITTEN, "text": "def make_step(model): return faster\n"},
        {**WRITTEN, "grade": "A"},
        edited(speedup={**WRITTEN["speedup"], "ratio": 9.0}),  # the samples say something else
        edited(text="def make_step(model): return faster\n"),  # so does the hash of the text
    ],
)
def test_an_edited_file_is_refused(tmp_path, content):
    assert read(tmp_path, edited()) == score()
    with pytest.raises(RefusedError, match="the file was edited; measure it again"):
        read(tmp_path, content)


def test_a_score_of_another_machine_is_refused(tmp_path):
    with pytest.raises(
        RefusedError,
        match=r"measured on another machine or .* \(cpu model .* -> Other CPU\); measure it here",
    ):
        read(tmp_path, WRITTEN, environment(cpu_model="Other CPU"))
    process_environment = environment(threads=7, allocator={"MALLOC_TRIM_THRESHOLD_": "1"})
    assert read(tmp_path, WRITTEN, process_environment) == score()


def test_a_file_is_checked_again(tmp_path):
    with pytest.raises(RefusedError, match="its accuracy"):
        read(tmp_path, edited(accuracies=[0.9, 0.1]))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"trials": [{**WRITTEN["trials"][0], "student_ns": [0, 0, 0, 0]}]},
            "trials[0].student_ns[0]: ",
        ),
        ({"trials": []}, "trials: "),
        ({"dtype": "float8"}, "dtype: "),
        ({"schema": 2}, "schema: needs 1"),
    ],
)
def test_a_wrong_field_is_named(tmp_path, changes, fault):
    with pytest.raises(RecordError, match=re.escape(fault)):
        read(tmp_path, {**WRITTEN, **changes})


def test_a_file_that_is_no_score_is_an_error(tmp_path):
    for text in (b"{", b"\xff", b"[1]"):
        (tmp_path / SCORE).write_bytes(text)
        with pytest.raises(RecordError):
            read_score(tmp_path / SCORE, environment())


@many(1_500)
@given(spoiled(WRITTEN))
def test_a_spoiled_file_is_refused_or_the_same(tmp_path_factory, drawn):
    path, content = drawn
    try:
        kept_score = read(tmp_path_factory.getbasetemp(), content)
    except (RefusedError, RecordError):
        return
    assert kept_score == score(), path
