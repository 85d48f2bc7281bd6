"""Which regressions an ``--accept`` names, and up to which size."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.judging.acceptance import LARGEST_LIMIT, Acceptance


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
                "--accept 'step convnet:aten::mm:5%'"
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
