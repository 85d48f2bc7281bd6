"""Quantiles and probabilities, against scipy and published values."""

import math

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.judging.distributions import (
    binomial_at_most,
    binomial_interval,
    incomplete_beta,
    student_quantile,
)


@pytest.mark.parametrize(
    ("risk", "freedom", "value"),
    [(0.25, 1, 1.0), (0.05, 1, 6.314), (0.025, 10, 2.228), (0.005, 30, 2.750), (0.0005, 7, 5.408)],
)
def test_quantiles_of_students_table(risk, freedom, value):
    assert student_quantile(risk, freedom) == pytest.approx(value, abs=5e-4)


@given(st.floats(-9, math.log10(0.5)), st.integers(1, 500))
def test_quantiles_are_those_of_scipy(exponent, freedom):
    risk = 10**exponent
    expected = scipy.stats.t.isf(risk, freedom)
    assert student_quantile(risk, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_the_median_is_0():
    assert student_quantile(0.5, 9) == pytest.approx(0, abs=1e-7)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_intervals_of_shares_are_those_of_scipy(counts):
    hits, trials = counts
    expected = scipy.stats.binomtest(hits, trials).proportion_ci(0.95)
    low, high = binomial_interval(hits, trials)
    assert low == pytest.approx(expected.low, abs=1e-10)
    assert high == pytest.approx(expected.high, abs=1e-10)


@given(
    st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.floats(0.01, 0.99),
)
def test_probabilities_are_those_of_scipy(counts, share):
    hits, trials = counts
    expected = scipy.stats.binom.cdf(hits, trials, share)
    assert binomial_at_most(hits, trials, share) == pytest.approx(expected, abs=1e-12)


@given(st.floats(0, 1), st.floats(0.5, 5000), st.floats(0.5, 5000))
def test_the_beta_function_is_that_of_scipy(x, a, b):
    expected = scipy.special.betainc(a, b, x)
    assert incomplete_beta(x, a, b) == pytest.approx(expected, abs=1e-11)
