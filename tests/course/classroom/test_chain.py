"""The chain of a lab.

A line for each file, whatever interrupts the lab, and what a change leaves behind.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_runs import Counting, measure, predict
from strategies import json_values, many

from mnistbench.course.classroom.chain import CHAIN, add_link, changes
from mnistbench.course.classroom.predictions import PREDICTIONS
from mnistbench.course.lab.findings import FILE
from mnistbench.course.lab.run import BEGUN, STEPS

STEP = f"{STEPS}/operations-step-cpu-b64.json"


def texts(directory):
    """The files of a lab that the chain is about."""
    names = [PREDICTIONS, FILE, *(f"{STEPS}/{path.name}" for path in (directory / STEPS).iterdir())]
    return {
        name: (directory / name).read_text(encoding="utf-8")
        for name in names
        if (directory / name).exists()
    }


def found(directory, files=None):
    return list(
        changes(
            (directory / CHAIN).read_text(encoding="utf-8"),
            files or texts(directory),
            BEGUN.as_posix(),
        )
    )


def lines(directory):
    return [
        json.loads(line) for line in (directory / CHAIN).read_text(encoding="utf-8").splitlines()
    ]


@pytest.fixture
def lab(tmp_path):
    predict(tmp_path)
    measure(tmp_path)
    return tmp_path


def test_each_file_of_a_lab_has_a_line_in_the_order_of_writing(lab):
    names = [line["file"] for line in lines(lab)]
    assert names[:2] == [PREDICTIONS, BEGUN.as_posix()]
    assert names[-1] == FILE
    assert len(names) == len(set(names)) == len(texts(lab))
    assert found(lab) == []


def test_the_same_content_gets_no_second_line(lab):
    before = lines(lab)
    measure(lab)
    assert lines(lab) == before


def test_a_lab_that_was_interrupted_and_resumed_is_unchanged(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, Counting(stop_at=("iterations",)))
    measure(tmp_path)
    assert found(tmp_path) == []


def test_an_interruption_between_line_and_file_leaves_nothing_wrong(tmp_path, monkeypatch):
    def stop(path, content):
        if path.name == "iterations.json":
            raise KeyboardInterrupt
        path.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr("mnistbench.course.lab.findings.replace_file", stop)
        with pytest.raises(KeyboardInterrupt):
            measure(tmp_path)
    measure(tmp_path)
    assert found(tmp_path) == []


def test_a_step_that_is_measured_again_gets_another_line(lab):
    (lab / STEP).write_text("{", encoding="utf-8")
    written = {line["file"]: line["time"] for line in lines(lab)}
    assert found(lab) == [
        (
            f"{STEP} was changed after it was written at {written[STEP]}; restore it, or remove "
            "it and measure again"
        )
    ]
    measure(lab)
    assert found(lab) == []


def test_predictions_that_were_edited_before_the_lab_are_right(tmp_path):
    predict(tmp_path)
    path = tmp_path / PREDICTIONS
    path.write_text(path.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    measure(tmp_path)
    assert found(tmp_path) == []


def test_predictions_after_the_lab_are_named(lab):
    predict(lab, answers={})
    assert found(lab) == [
        f"{PREDICTIONS} was written at {lines(lab)[-1]['time']}, after the lab began"
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda lines: lines[:3] + lines[4:],
            f"{CHAIN}: line 4 does not follow from the line before it",
        ),
        (lambda lines: [lines[1], lines[0], *lines[2:]], f"{CHAIN}: line 1 does not follow"),
        (
            lambda lines: [lines[0].replace("T", "t", 1), *lines[1:]],
            f"{CHAIN}: line 2 does not follow",
        ),
        (lambda lines: [*lines[:4], "{", *lines[5:]], f"{CHAIN}: 1 of its lines cannot be read"),
        (lambda lines: lines[:-1], f"without a line in {CHAIN}: {FILE}; nothing shows"),
    ],
)
def test_a_changed_chain_is_named(lab, change, said):
    path = lab / CHAIN
    path.write_text(
        "\n".join(change(path.read_text(encoding="utf-8").splitlines())), encoding="utf-8"
    )
    assert found(lab)[0].startswith(said)
    before = found(lab)
    add_link(lab, "more", b"")
    assert [
        line for line in found(lab) if not line.startswith("missing, but written before: more")
    ] == before


def test_all_files_without_a_line_are_one_line(lab):
    for text in ("", "\n", "{}\n[]\n"):
        (lab / CHAIN).write_text(text, encoding="utf-8")
        [line] = found(lab)
        assert line.startswith(f"{CHAIN} is missing, empty or damaged, ")
    (lab / CHAIN).unlink()
    add_link(lab, BEGUN.as_posix(), (lab / BEGUN).read_bytes())
    [line] = found(lab)
    assert line.startswith(
        f"without a line in {CHAIN}: {PREDICTIONS} and {len(texts(lab)) - 2} more; "
    )


def test_a_missing_file_is_named(lab):
    (lab / STEP).unlink()
    assert found(lab) == [
        f"missing, but written before: {STEP}; restore it, or run mnistbench lab again"
    ]


@many(600)
@given(
    chain=st.text() | st.lists(json_values().map(json.dumps), max_size=4).map("\n".join),
    name=st.text(),
    text=st.text(),
)
def test_any_chain_is_read(chain, name, text):
    assert any(
        line.startswith(CHAIN) or name[:200] in line for line in changes(chain, {name: text}, name)
    )
