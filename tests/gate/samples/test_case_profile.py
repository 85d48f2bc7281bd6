"""The call paths of a case, which a file may have of any shape."""

import pytest

from mnistbench.gate.samples.case_profile import (
    CalledBy,
    CallPath,
    CaseProfile,
    ProfiledFunction,
)

FUNCTIONS = (ProfiledFunction("the case"), ProfiledFunction("f"))
FIRST = CallPath(-1, 0, 1.0, 1.0, 0, 0)


def test_a_path_follows_the_one_that_it_continues():
    profile = CaseProfile(FUNCTIONS, (FIRST, CallPath(0, 1, 1.0, 2.0, 10, 20)))
    assert len(profile.paths) == 2


@pytest.mark.parametrize(
    "path",
    [
        CallPath(1, 1, 1.0, 1.0, 0, 0),  # itself
        CallPath(2, 1, 1.0, 1.0, 0, 0),
        CallPath(-1, 1, 1.0, 1.0, 0, 0),
        CallPath(0, 2, 1.0, 1.0, 0, 0),
        CallPath(0, -1, 1.0, 1.0, 0, 0),
        CallPath(0, 1, 1.0, 1.0, -1, 0),
        CallPath(0, 1, 1.0, -1.0, 0, 0),
    ],
)
def test_a_position_or_a_time_that_is_none_is_refused(path):
    with pytest.raises(ValueError, match=r"^paths\[1\] "):
        CaseProfile(FUNCTIONS, (FIRST, path))


@pytest.mark.parametrize(("function", "base_ns"), [(2, 0), (-1, 0), (None, -1)])
def test_an_operation_of_no_function_or_time_is_refused(function, base_ns):
    with pytest.raises(ValueError, match=r"^operations\[0\] "):
        CaseProfile(FUNCTIONS, (FIRST,), (CalledBy(("aten::mm", "", ""), function, base_ns, 0),))
