"""The message of an error of any class in one line."""

import pytest

from mnistbench.core.errors import first_line


class BrokenError(Exception):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("boom"), "boom"),
        (ValueError("\n  boom\nmore"), "boom"),
        (ValueError(), "no message"),
        (BrokenError("boom"), "no message"),
    ],
)
def test_the_first_line_of_a_message(error, line):
    assert first_line(error) == line
