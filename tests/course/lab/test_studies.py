"""The studies of a lab's appendix: each is a process that can fail and can be ended."""

import pytest
from mnistbench.course.lab.studies import study
from mnistbench.course.studies.command import STUDIES

from mnistbench import cli
from mnistbench.course.lab import studies

TINY = ("--images", "1x1x4x4", "--filters", "1x3x3", "--way", "im2col")


def test_a_lab_has_every_study():
    assert list(studies.STUDIES) == list(STUDIES)
    for name, arguments in studies.STUDIES.items():
        assert cli.parser("study").parse_args(["study", name, *arguments, "--format", "csv"]).format == "csv"


def test_the_table_of_a_study_is_that_of_the_command(monkeypatch):
    monkeypatch.setitem(studies.STUDIES, "convolution", TINY)
    [found], notes = study("convolution", 120)
    assert notes == ()
    assert found.name == "convolution"
    [row] = found.rows
    assert dict(zip(found.columns, row, strict=True))["way"] == "im2col"


@pytest.mark.parametrize(
    ("arguments", "limit_s", "said"),
    [
        (
            TINY,
            0.01,
            "the study of convolution was ended by the time limit of all studies, 180 s; run mnistbench study convolution",
        ),
        (("--size", "conv9"), 120, "the study of convolution failed: mnistbench: --size: 'conv9' is not known"),
    ],
)
def test_a_study_without_a_table_has_a_note(arguments, limit_s, said, monkeypatch):
    monkeypatch.setitem(studies.STUDIES, "convolution", arguments)
    found, [note] = study("convolution", limit_s)
    assert found == ()
    assert note.startswith(said)
