"""Ids of tests that another process does not find again, or that belong to other parameters there."""

import pytest

from mnistbench.gate.ids_of_tests import OTHER_ID, OTHER_PARAMETERS, moved, unstable, without_counterpart

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


def test_equal_parameters_do_not_move():
    alike = dict.fromkeys(["t[x0]", "t[x1]", "t[x2]"], "same")
    assert moved(alike, alike) == set()


def test_an_id_is_missing_or_has_moved():
    now = {**IDS, "t.py::t[x1]": "one"}
    del now["t.py::plain"]
    assert unstable(IDS, IDS, now) == {"t.py::t[x1]": OTHER_PARAMETERS, "t.py::plain": OTHER_ID}
    assert unstable(["t.py::plain"], IDS, IDS) == {}
    assert unstable(["t.py::plain"], {}, {"t.py::plain": "a"}) == {}  # nothing is known of before


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        (["t[a]", "u"], ["t[b]", "u"], {"t[a]", "t[b]"}),
        (["t[a]"], ["t[a]", "t[b]"], set()),
        (["t[a]"], ["u[b]"], set()),
        (["t"], ["t[b]"], set()),
        (["t[a]", "t[c]"], ["t[b]", "t[c]"], {"t[a]", "t[b]"}),
    ],
)
def test_ids_without_a_counterpart_are_of_tests_that_both_sides_have(base, head, expected):
    assert without_counterpart(base, head) == expected
