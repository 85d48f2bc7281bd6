"""The length of the union of spans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.core.operation import covered


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=12))
def test_what_several_spans_cover_is_counted_once(found):
    spans = [(start, start + length) for start, length in found]
    assert covered(spans) == len({point for start, end in spans for point in range(start, end)})


@pytest.mark.parametrize(("spans", "length"), [([], 0), ([(5, 3)], 0), ([(0.5, 2.0), (1.0, 2.5), (4.0, 4.0)], 2.0)])
def test_a_span_that_ends_before_it_starts_is_empty(spans, length):
    assert covered(spans) == length
