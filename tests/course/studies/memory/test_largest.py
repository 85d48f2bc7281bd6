"""The search for the largest batch size finds what trying all would find, in few guesses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.course.studies.memory.largest import largest_batch

MOST = 60


@given(st.lists(st.integers(0, 50), min_size=MOST, max_size=MOST), st.integers(0, 3_000), st.integers(1, MOST))
def test_it_is_the_one_that_trying_all_finds(growth, memory, most):
    sums = [sum(growth[: size + 1]) for size in range(MOST)]

    def bytes_of(size):
        assert 1 <= size <= most
        return sums[size - 1]

    fitting = [size for size in range(1, most + 1) if bytes_of(size) <= memory]
    assert largest_batch(bytes_of, memory, most) == max(fitting, default=0)


@pytest.mark.parametrize(
    ("bytes_of", "most_guesses"),
    [
        (lambda size: 4_800_000 + 394_240 * size, 12),
        (lambda size: max(28_000_000, 19_000_000 + 561_000 * size), 20),
        (lambda size: size**2, 60),
    ],
)
def test_a_size_in_millions_takes_few_guesses(bytes_of, most_guesses):
    guesses = []

    def counted(size):
        guesses.append(size)
        return bytes_of(size)

    found = largest_batch(counted, 10**12)
    assert bytes_of(found) <= 10**12 < bytes_of(found + 1)
    assert len(guesses) <= most_guesses
