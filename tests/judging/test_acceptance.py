"""Which regressions an ``--accept`` names, and up to which size."""

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.core.errors import UsageError
from mnistbench.judging.acceptance import LARGEST_LIMIT, Acceptance, check_cases


@given(st.sampled_from(["a:b", "step convnet:aten::mm", "*:*", "50%:5%"]), st.integers(1, 10**6))
def test_an_acceptance_is_read_from_its_own_text(pattern, thousandths):
    acceptance = Acceptance(pattern, thousandths / 1_000)
    assert Acceptance.parse(acceptance.text) == acceptance


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conv2", "needs a case, an operation and a limit: CASE:OP:5%"),
        ("case:", "needs a case, an operation and a limit: CASE:OP:5%"),
        (
            "step convnet:aten::mm",
            (
                "has no limit; give the largest slowdown that is intended: "
                "'step convnet:aten::mm:5%'"
            ),
        ),
        ("a:b:0%", "has a limit that allows nothing or everything; give CASE:OP:5%"),
        (
            f"a:b:{100 * LARGEST_LIMIT + 1:.0f}%",
            "has a limit that allows nothing or everything; give CASE:OP:5%",
        ),
    ],
)
def test_an_acceptance_without_a_usable_limit_is_refused(text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Acceptance.parse(text)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("step[b1]:aten::mm", True),
        ("other:fc1", True),
        ("*:*", True),
        ("st*:*mm", True),
        ("step?b1?:aten::mm", False),
        ("step[b1]:aten::m", False),
        ("b1:aten::mm", False),
        ("STEP[b1]:fc1", False),
    ],
)
def test_an_acceptance_matches_any_name_and_star_is_its_only_wildcard(pattern, matched):
    acceptance = Acceptance(pattern, 0.05)
    assert acceptance.matches(["step[b1]", "other"], {"aten::mm", "fc1"}) is matched


def names_of(node_id):
    """The names of a plain test: its title has the file without its folder."""
    return (node_id.rpartition("/")[2], node_id, node_id.rpartition("::")[2])


#: What a report calls each case -> all its names. Two files have ``test_second``.
NAMES = {
    "test_a.py::test_second": names_of("bench/test_a.py::test_second"),
    "test_b.py::test_second": names_of("bench/test_b.py::test_second"),
    "test_b.py::test_x[1]": names_of("bench/test_b.py::test_x[1]"),
    "test_b.py::test_x[2]": names_of("bench/test_b.py::test_x[2]"),
    "x/test_c.py::test_third": names_of("x/test_c.py::test_third"),
    "y/test_c.py::test_third": names_of("y/test_c.py::test_third"),
}


@pytest.mark.parametrize(
    "pattern",
    [
        "test_a.py::test_second:iteration",
        "bench/test_b.py::test_second:*",
        "x/test_c.py::test_third:iteration",
        "test_x[1]:iteration",
        "*test_second:iteration",
        "test_*:iteration",
        "*:*",
        # No name of a case: nothing is accepted, which the report says.
        "test_x:iteration",
        "second:iteration",
    ],
)
def test_a_pattern_names_one_case_or_has_a_wildcard_for_several(pattern):
    check_cases([Acceptance(pattern, 0.1)], NAMES)


@pytest.mark.parametrize(
    ("pattern", "named", "advised"),
    [
        (
            "test_second:iteration",
            "test_a.py::test_second, test_b.py::test_second",
            "test_a.py::test_second:iteration:10%",
        ),
        # A wildcard in the operation is none in the case.
        (
            "test_second:*",
            "test_a.py::test_second, test_b.py::test_second",
            "test_a.py::test_second:*:10%",
        ),
        (
            "test_c.py::test_third:wall",
            "x/test_c.py::test_third, y/test_c.py::test_third",
            "x/test_c.py::test_third:wall:10%",
        ),
    ],
)
def test_a_name_of_several_cases_is_refused(pattern, named, advised):
    accept = Acceptance(pattern, 0.1)
    with pytest.raises(UsageError) as raised:
        check_cases([Acceptance("*:*", 0.1), accept], NAMES)
    assert str(raised.value) == (
        f"--accept: {accept.text!r} names 2 cases: {named}; name one of them, --accept "
        f"{shlex.quote(advised)}, or write * for what differs to accept several"
    )


def test_the_longest_name_that_a_pattern_begins_with_is_its_case():
    names = {"one": ("one", "f"), "two": ("two", "f"), "three": ("three", "f:mul")}
    check_cases([Acceptance("f:mul:iteration", 0.1)], names)
    with pytest.raises(UsageError, match="names 2 cases: one, two"):
        check_cases([Acceptance("f:add:iteration", 0.1)], names)
