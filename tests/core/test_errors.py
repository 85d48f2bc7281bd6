"""What a message quotes of another error."""

import pytest

from mnistbench.core.errors import LONGEST_ERROR, first_line


class UnreadableError(Exception):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("a\nb"), "a"),
        (ValueError(), "no message"),
        (UnreadableError(), "no message"),
        (ValueError("x" * 10_000_000), "x" * (LONGEST_ERROR - 3) + "..."),
    ],
    ids=["lines", "none", "unreadable", "long"],
)
def test_the_first_line_is_quoted_and_short(error, line):
    assert first_line(error) == line
