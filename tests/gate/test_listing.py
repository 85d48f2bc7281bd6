"""What follows from two surveys.

Ids of tests that another process does not find again, or that belong to other parameters there; the
heap that a trial touches.
"""

import pytest

from mnistbench.gate.listing import (
    NOT_AGAIN,
    OTHER_ID,
    OTHER_PARAMETERS,
    moved,
    name_of_test,
    unstable,
    without_counterpart,
)
from mnistbench.gate.survey.side_surveys import touched_bytes

IDS = {"t.py::t[x0]": "one", "t.py::t[x1]": "two", "t.py::other[x0]": "three", "t.py::plain": ""}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({}, set()),
        ({"t.py::t[x0]": "two", "t.py::t[x1]": "one"}, {"t.py::t[x0]", "t.py::t[x1]"}),
        ({"t.py::t[x0]": "two"}, {"t.py::t[x0]"}),  # the other one has gone
        ({"t.py::t[x0]": "new"}, set()),  # a changed or random value
        ({"t.py::t[x0]": "three"}, set()),  # that of another test
        ({"t.py::t[x0]": ""}, set()),  # not known
        ({"t.py::t[x2]": "two"}, set()),  # a new test
    ],
)
def test_parameters_that_belonged_to_another_id_of_the_test_have_moved(now, expected):
    assert moved(IDS, {**IDS, **now}) == expected


@pytest.mark.parametrize(
    ("node_id", "name"),
    [
        ("t.py::t", "t.py::t"),
        ("t.py::T::t[a::b[c]]", "t.py::T::t"),
        ("a[b]/t.py::t[1]", "a[b]/t.py::t"),
    ],
)
def test_the_name_of_a_test_has_no_parameters(node_id, name):
    assert name_of_test(node_id) == name


def test_equal_parameters_do_not_move():
    alike = dict.fromkeys(["f::t[x0]", "f::t[x1]", "f::t[x2]"], "same")
    assert moved(alike, alike) == set()


def test_an_id_is_missing_or_has_moved():
    now = {**IDS, "t.py::t[x1]": "one"}
    del now["t.py::plain"]
    assert unstable(IDS, IDS, now) == {"t.py::t[x1]": OTHER_PARAMETERS, "t.py::plain": NOT_AGAIN}
    assert unstable(["t.py::t[y]"], {}, {}) == {"t.py::t[y]": OTHER_ID}
    assert unstable(["t.py::plain"], IDS, IDS) == {}
    assert unstable(["t.py::plain"], {}, {"t.py::plain": "a"}) == {}  # nothing is known of before


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        (["f::t[a]", "f::u"], ["f::t[b]", "f::u"], {"f::t[a]", "f::t[b]"}),
        (["f::t[a]"], ["f::t[a]", "f::t[b]"], set()),
        (["f::t[a]"], ["f::u[b]"], set()),
        (["f::t"], ["f::t[b]"], set()),
        (["f::t[a]", "f::t[c]"], ["f::t[b]", "f::t[c]"], {"f::t[a]", "f::t[b]"}),
    ],
)
def test_ids_without_a_counterpart_are_of_tests_that_both_sides_have(base, head, expected):
    assert without_counterpart(base, head) == expected


@pytest.mark.parametrize(
    ("base", "head", "touched"),
    [(0, 0, 64), (16, 15, 64), (16, 17, 68), (50, 16, 200), (10_000, 0, 512)],
)
def test_a_trial_touches_four_times_what_the_cases_took_in_the_survey(base, head, touched):
    assert touched_bytes(base * 2**20, head * 2**20) == touched * 2**20
