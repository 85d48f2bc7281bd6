"""Which regressions an ``--accept`` names, and up to which size."""

import re
import shlex
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.core.errors import UsageError
from mnistbench.judging.acceptance import LARGEST_LIMIT, Acceptance, Waivers, check_cases


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


# ---- In a configuration file ---------------------------------------------------------------------

ENTRY = {"case": "test_a.py::test_b:iteration:5%", "reason": " exact sums "}


def test_an_entry_of_a_file_has_a_reason_and_perhaps_a_last_day():
    assert Acceptance.from_table(ENTRY) == Acceptance(
        "test_a.py::test_b:iteration", 0.05, "exact sums", is_standing=True
    )
    assert Acceptance.from_table({**ENTRY, "until": date(2026, 12, 31)}).until == date(2026, 12, 31)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reason": None}, "needs a key 'reason', such as {case = "),
        ({"reason": " "}, "needs a text 'reason', such as {case = "),
        ({"case": 5}, "needs a text 'case', such as {case = "),
        ({"case": "test_b"}, "has a key 'case' that needs a case, an operation and a limit"),
        ({"until": "2026-12-31"}, "needs a day 'until' without quotes, such as {case = "),
        ({"until": datetime(2026, 12, 31, tzinfo=UTC)}, "needs a day 'until' without quotes, "),
        ({"till": date(2026, 12, 31)}, "has an unknown key 'till'; choose of case, reason, "),
    ],
    ids=str,
)
def test_a_wrong_entry_names_its_key(changes, message):
    table = {key: value for key, value in {**ENTRY, **changes}.items() if value is not None}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Acceptance.from_table(table)


def test_the_reason_of_the_command_line_is_that_of_its_own_acceptances():
    standing = Acceptance.from_table(ENTRY)
    given_one = Acceptance("*:fc1", 0.1)
    waivers = Waivers(accept=(given_one, standing), reason="smaller")
    assert [acceptance.reason for acceptance in waivers.accept] == ["smaller", "exact sums"]
    assert replace(waivers) == waivers
    with pytest.raises(UsageError, match=r"^--accept: '\*:fc1:10%' needs a reason"):
        Waivers(accept=(given_one, standing))
    with pytest.raises(UsageError, match=r"^--reason: 'smaller' is given without --accept"):
        Waivers(accept=(standing,), reason="smaller")


def test_an_ambiguous_entry_of_a_file_is_named_as_one():
    standing = Acceptance.from_table({**ENTRY, "case": "test_b:iteration:5%"})
    names = {f"test_{file}.py::test_b": {f"test_{file}.py::test_b", "test_b"} for file in "ac"}
    with pytest.raises(UsageError) as error:
        check_cases([standing], names)
    assert str(error.value) == (
        "accept in pyproject.toml: 'test_b:iteration:5%' names 2 cases: test_a.py::test_b, "
        "test_c.py::test_b; name one of them, 'test_a.py::test_b:iteration:5%', or write * for "
        "what differs to accept several"
    )
