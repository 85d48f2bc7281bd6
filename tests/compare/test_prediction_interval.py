"""The prediction interval, against scipy, a published example and simulated runs."""

import math

import numpy as np
import pytest
import scipy.stats

from mnistbench.compare.prediction_interval import prediction_interval


@pytest.mark.versions
@pytest.mark.parametrize("count", [3, 8, 15, 60])
@pytest.mark.parametrize("risk", [0.05, 0.05 / 40, 0.05 / 5_000])
def test_the_interval_is_that_of_students_t_on_logarithms(count, risk):
    values = (
        np.random.default_rng(count).lognormal(mean=13, sigma=0.05, size=count).round().astype(int)
    )
    logs = np.log(values)
    reach = scipy.stats.t.ppf(1 - risk, df=count - 1) * logs.std(ddof=1) * np.sqrt(1 + 1 / count)
    low, high = prediction_interval(values.tolist(), risk)
    assert low == pytest.approx(np.exp(logs.mean() - reach), rel=1e-9)
    assert high == pytest.approx(np.exp(logs.mean() + reach), rel=1e-9)


def test_the_interval_is_that_of_a_published_example():
    # Montgomery and Runger, Applied Statistics and Probability for Engineers, 3rd edition, examples
    # 8-4 and 8-8: load at failure of 22 specimens of an alloy, mean 13.71, s = 3.55; the 95 %
    # prediction interval of the next is 6.16 to 21.26.
    loads = (
        19.8,
        10.1,
        14.9,
        7.5,
        15.4,
        15.4,
        15.4,
        18.5,
        7.9,
        12.7,
        11.9,
        11.4,
        11.4,
        14.1,
        17.6,
        16.7,
        15.8,
        19.5,
        8.8,
        13.6,
        11.9,
        11.4,
    )
    assert (np.mean(loads).round(2), np.std(loads, ddof=1).round(2)) == (13.71, 3.55)
    # Normal there, log-normal here; two-sided there, one-sided here.
    low, high = prediction_interval([math.exp(load) for load in loads], 0.05 / 2)
    assert (math.log(low), math.log(high)) == pytest.approx((6.16, 21.26), abs=0.01)


def test_runs_that_never_differ_leave_no_room():
    assert prediction_interval([1_000] * 8, 0.01) == pytest.approx((1_000, 1_000))


def test_a_limit_too_large_for_a_number_is_infinite():
    low, high = prediction_interval([1, 2**62], 1e-6)
    assert (low, high) == (0.0, math.inf)


@pytest.mark.parametrize(("runs", "risk"), [(8, 0.05), (8, 0.00125), (15, 0.05), (15, 0.00125)])
def test_of_new_times_the_risk_falls_above_the_limit_and_as_much_below(runs, risk):
    """Coverage over many draws of base runs and of one new run each."""
    draws = 20_000
    times = np.random.default_rng(20261120).lognormal(mean=14, sigma=0.08, size=(draws, runs + 1))
    intervals = np.array([prediction_interval(row[:-1], risk) for row in times.tolist()])
    low, high = scipy.stats.binom.interval(1 - 1e-6, draws, risk)
    assert low <= np.sum(times[:, -1] > intervals[:, 1]) <= high
    assert low <= np.sum(times[:, -1] < intervals[:, 0]) <= high
