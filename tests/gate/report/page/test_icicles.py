"""The call paths of cases as the page has them."""

import pytest
from gate_builders import CASE, LABEL, case_profile
from gate_scenes import OTHER_CASE

from mnistbench.gate.report.page import icicles
from mnistbench.gate.report.page.icicles import Icicles
from mnistbench.gate.samples.case_profile import CaseProfile

PROFILE = case_profile(
    [
        (("small",), (3, 3), (30, 40)),
        (("read",), (1, 1), (500, 600)),
        (("read", "fast"), (0.5, 2), (10, 20)),
        (("read", "slow"), (1, 1), (200, 300)),
        (("read", "slow", "fast"), (0, 7), (0, 50)),
    ],
    {"slow": "changed", "fast": "uses slow (a.py:3 changed)"},
    (9, 9),
)


def paths_of(data, names):
    """Functions of each path -> its calls and its self times in ns, in the order of the page."""
    here = []
    paths = {}
    columns = ("depths", "functions", "base_calls", "head_calls", "base_self", "head_self")
    for depth, function, *numbers in zip(*(data[name] for name in columns), strict=True):
        here[depth:] = [names[function][0]]
        calls = numbers[:2]
        times = [ns * data["unit_ns"] for ns in numbers[2:]]
        paths[tuple(here)] = (*calls, *times)
    return paths


def drawn(profile, operation_rows=0, **others):
    pictures = Icicles({CASE: profile, **others}, operation_rows)
    return paths_of(pictures.data(CASE, LABEL), pictures.names)


def test_paths_are_below_those_that_they_continue_those_of_most_time_first():
    assert [*drawn(PROFILE).items()] == [
        ((LABEL,), (1, 1, 9, 9)),
        ((LABEL, "read"), (1, 1, 500, 600)),
        ((LABEL, "read", "slow"), (1, 1, 200, 300)),
        ((LABEL, "read", "slow", "fast"), (0, 7, 0, 50)),
        ((LABEL, "read", "fast"), (0.5, 2, 10, 20)),
        ((LABEL, "small"), (3, 3, 30, 40)),
    ]


def test_functions_of_several_cases_are_named_once_with_how_they_differ():
    pictures = Icicles({CASE: PROFILE, OTHER_CASE: PROFILE}, 0)
    for case in (CASE, OTHER_CASE):
        pictures.data(case, LABEL)
    assert pictures.names == [
        (LABEL, "", False),
        ("read", "", False),
        ("slow", "changed", True),
        ("fast", "uses slow (a.py:3 changed)", False),
        ("small", "", False),
    ]


def test_times_have_as_many_digits_as_a_picture_needs():
    profile = case_profile([(("f",), (1, 1), (3_141_592_653, 27)), (("g",), (1, 1), (0, 61_803))])
    shown = drawn(profile)
    whole_ns = 3_141_592_653 + 100_000
    for path, base_ns, head_ns in ((("f",), 3_141_592_653, 27), (("g",), 0, 61_803)):
        _, _, *times = shown[LABEL, *path]
        assert times == pytest.approx([base_ns, head_ns], abs=whole_ns / 10**5 / 2)


@pytest.fixture
def room(monkeypatch):
    """Sets how many paths all cases of a page together have room for."""
    for name, characters in (("ROW_CHARACTERS", 3), ("CASE_CHARACTERS", 0), ("PATH_CHARACTERS", 1)):
        monkeypatch.setattr(icicles, name, characters)
    monkeypatch.setattr(icicles, "MIN_PATHS", 2)
    return lambda paths: monkeypatch.setattr(icicles, "MAX_CHARACTERS", paths)


def test_paths_without_room_in_the_page_count_for_those_that_they_continue(room):
    room(8)
    unknown = CaseProfile(why_not="another profiler is active")  # needs no room
    assert drawn(PROFILE, other=PROFILE, unknown=unknown) == {
        (LABEL,): (1, 1, 39, 49),
        (LABEL, "read"): (1, 1, 510, 620),
        (LABEL, "read", "slow"): (1, 1, 200, 300),
        (LABEL, "read", "slow", "fast"): (0, 7, 0, 50),
    }


def test_operations_take_room_but_each_case_keeps_some_paths(room):
    room(10)
    numbers = [len(drawn(PROFILE, operation_rows)) for operation_rows in (0, 1, 2, 3)]
    assert numbers == [len(PROFILE.paths), len(PROFILE.paths), 4, 2]


def test_a_case_without_paths_says_why():
    pictures = Icicles({CASE: CaseProfile(why_not="another profiler is active")}, 0)
    assert pictures.data(CASE, LABEL) is pictures.data(OTHER_CASE, LABEL) is None
    assert pictures.why_not(CASE) == "another profiler is active"
    assert pictures.why_not(OTHER_CASE) == ""
