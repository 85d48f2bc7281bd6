"""Each sentence is true of the numbers that it cites, whatever the numbers are.

The numbers are drawn on both sides of every bound. The wording of a sentence is in the comment of
its condition where that does not follow from the key.
"""

import dataclasses
import itertools
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_builders import (
    MS,
    SIZES,
    US,
    cluster,
    costs,
    epoch_time,
    first_iterations,
    iteration_time,
    laptop,
    training,
    with_cases,
    with_operations,
)
from strategies import many

from mnistbench.course.lab.claims import UNKNOWN, check
from mnistbench.course.lab.sentences import explain
from mnistbench.course.lab.sheets import sheets_of
from mnistbench.course.lab.texts import LANGUAGES, Texts, wording
from mnistbench.events.work.roofline import Ceilings, Cost


def alike(one, other, within=1.1):
    return max(one, other) <= min(one, other) * within * (1 + 1e-9)


match = partial(alike, within=1.15)


def rises(one, other):
    """The first is more, by 10 % at least."""
    return one > other * 1.1 * (1 - 1e-9)


#: Key of a sentence -> condition on its numbers; the others only cite numbers, or cite none.
TRUE = {
    "dominates": lambda n: n["share"] >= 0.5,
    "leads": lambda n: n["share"] < 0.5,
    "ratio_uncounted": lambda n: n["time"] >= 1,
    "ratio_follows_flops": lambda n: (
        match(n["time"], n["flops"]) and not match(n["time"], n["bytes"])
    ),
    "ratio_follows_bytes": lambda n: (
        match(n["time"], n["bytes"]) and not match(n["time"], n["flops"])
    ),
    "ratio_follows_both": lambda n: match(n["time"], n["flops"]) and match(n["time"], n["bytes"]),
    "ratio_between": lambda n: (
        min(n["flops"], n["bytes"]) < n["time"] < max(n["flops"], n["bytes"])
        and not match(n["time"], n["flops"])
        and not match(n["time"], n["bytes"])
    ),
    "ratio_above_both": lambda n: n["time"] > max(n["flops"], n["bytes"]),
    "ratio_below_both": lambda n: n["time"] < min(n["flops"], n["bytes"]),
    "ceiling_flops": lambda n: n["flops"] >= n["flops_ceiling"] / 2,
    "ceiling_bytes": lambda n: (
        n["bytes"] >= n["bytes_ceiling"] / 2 and n["flops"] < n["flops_ceiling"] / 2
    ),
    "ceiling_neither": lambda n: (
        n["bytes"] < n["bytes_ceiling"] / 2 and n["flops"] < n["flops_ceiling"] / 2
    ),
    "ratio_over_batches_rises": lambda n: (
        rises(n["last"], n["first"]) and n["addmm"] < n["convolution"]
    ),
    "ratio_over_batches_falls": lambda n: (
        rises(n["first"], n["last"]) and n["addmm"] > n["convolution"]
    ),
    "ratio_over_batches_same": lambda n: alike(n["first"], n["last"]),
    "bytes_over_batches_match": lambda n: match(
        n["convolution"] / n["addmm"], n["time_convolution"] / n["time_addmm"]
    ),
    "bytes_over_batches": lambda n: (
        n["convolution"] > n["addmm"]
        and not match(
            n["convolution"] / n["addmm"], n["time_convolution"] / n["time_addmm"] * (1 + 1e-6)
        )
    ),
    "idle": lambda n: n["busy"] < n["step"] / 2,
    "busy": lambda n: n["busy"] >= n["step"] / 2,
    "batch_rises_sample_falls": lambda n: (
        rises(n["batch_ratio"], 1) and rises(n["first"], n["last"])
    ),
    "batch_rises_sample_same": lambda n: (
        rises(n["batch_ratio"], 1) and alike(n["first"], n["last"])
    ),
    "batch_rises_sample_rises": lambda n: (
        rises(n["batch_ratio"], 1) and rises(n["last"], n["first"])
    ),
    "batch_same_sample_falls": lambda n: (
        alike(n["batch_ratio"], 1) and rises(n["first"], n["last"])
    ),
    "batch_same_sample_same": lambda n: alike(n["batch_ratio"], 1) and alike(n["first"], n["last"]),
    "batch_falls_sample_falls": lambda n: (
        rises(1, n["batch_ratio"]) and rises(n["first"], n["last"])
    ),
    "best_at": lambda n: rises(n["worse"], 1),
    "still_improving": lambda n: rises(n["gain"], 1),
    "stops_improving": lambda n: alike(n["gain"], 1),
    "calls_same": lambda n: alike(n["first"], n["last"]),
    "calls_differ": lambda n: n["first"] != n["last"],
    "epoch_falls": lambda n: rises(n["first"], n["last"]),
    "epoch_rises": lambda n: rises(n["last"], n["first"]),
    "epoch_same": lambda n: alike(n["first"], n["last"]),
    "epoch_extrapolated": lambda n: n["part"] < 1,
    "speedup_all": lambda n: min(n.values()) >= 1.1,
    "speedup_none": lambda n: max(n.values()) < 1.1,
    "threads_help": lambda n: rises(n["one"], n["all"]) and n["gain"] > 1.1,
    "threads_hurt": lambda n: rises(n["all"], n["one"]) and n["gain"] > 1.1,
    "threads_same": lambda n: alike(n["one"], n["all"]),
    "first_same": lambda n: alike(n["first"], n["warm"]) and alike(n["times"], 1),
    "first_times": lambda n: not alike(n["first"], n["warm"], 1.1 - 1e-6),
    "spent_on": lambda n: n["extra"] > 0 and n["cost"] >= 0.3 * n["extra"],
    "spent_widely": lambda n: 0 < n["cost"] < 0.3 * n["extra"],
    "spent_outside": lambda n: n["extra"] > 0 and n["cost"] > 0,
    "spent_unknown": lambda n: n["extra"] <= 0,
    "trained_same": lambda n: alike(n["first"], n["after"]) and n["warm"] < min(n.values()) + 1,
    "trained_slow": lambda n: min(n["first"], n["after"]) >= 1.5 * n["warm"],
    "trained_same_free": lambda n: alike(n["first"], n["after"]),
    "trained_differs": lambda n: n["first"] != n["after"],
    "profiler_adds": lambda n: n["times"] > 1.1 and 0.5 <= n["part"] <= 1,
    "profiler_adds_within": lambda n: n["times"] > 1.1 and n["part"] > 1,
    "profiler_adds_more": lambda n: n["times"] > 1.1 and n["part"] < 0.5,
    "profiler_adds_uncounted": lambda n: n["times"] > 1.1,
    "profiler_same": lambda n: alike(n["profiled"], n["plain"]),
    "profiler_quicker": lambda n: n["profiled"] < n["plain"],
    "trained_falls": lambda n: (
        n["best_accuracy"] > n["worst_accuracy"] and n["best_updates"] > n["worst_updates"]
    ),
    "trained_rises": lambda n: (
        n["best_accuracy"] > n["worst_accuracy"] and n["best_updates"] < n["worst_updates"]
    ),
    "trained_to": lambda n: n["best_accuracy"] > n["worst_accuracy"],
}

#: Sentences without a condition: they say that a number is missing, or cite numbers alone.
PLAIN = {
    *(key for key in wording("en")["explain"] if key.endswith("_missing")),
    "not_in_table",
    "disturbed_spread",
    "disturbed_queue",
    "disturbed",
    "one_batch_size",
    "no_accelerator",
    "no_cpu",
    "speedup_some",
    "speedup_one",
    "same_top",
    "other_top",
    "one_thread",
    "first_unknown",
    "trained_one",
    "trained_alike",
}

#: Factors near the bounds 1.05, 1.1, 1.15, 1.5 and 2, and far from them.
FACTORS = (
    st.sampled_from([0.01, 0.3, 0.49, 0.5, 0.51, 0.66, 0.67, 0.86, 0.88, 0.9, 0.91, 0.95, 1.0])
    | st.sampled_from([1.04, 1.06, 1.09, 1.0999, 1.1, 1.11, 1.14, 1.149, 1.16, 1.49, 1.51, 1.99])
    | st.sampled_from([2.01, 3.0, 10.0, 64.0])
    | st.floats(0.4, 2.5)
)


@st.composite
def machines(draw):
    """A quiet machine with any times."""
    factor = partial(draw, FACTORS)
    base = draw(st.sampled_from([laptop, cluster]))()
    threads = base.environment.threads
    sizes = base.settings.batch_sizes

    def times(phase, device, count):
        ns = 5 * MS
        for size in sizes:
            yield iteration_time(phase, size, max(100, round(ns)), device=device, threads=count)
            ns *= factor()

    def passes(phase, device):
        for size in sizes:
            time = epoch_time(phase, size, round(400 * MS * factor()), device=device)
            part = draw(st.sampled_from([1, 8]))
            yield dataclasses.replace(time, threads=threads, samples=time.samples // part)

    places = [*((device, threads) for device in base.settings.devices), ("cpu", 1)]
    by_name = {}

    def operation(row, size):
        key = (row.name, size)
        by_name.setdefault(key, factor())
        ns = max(1, round(row.self_ns("cpu") * by_name[key]))
        return dataclasses.replace(
            row, calls=row.calls * draw(st.sampled_from([1, 1, 2])), self_cpu_ns=(ns,) * 3
        )

    def amounts(case):
        return {
            key: Cost(max(1, round(cost.flops * factor())), max(1, round(cost.n_bytes * factor())))
            for key, cost in costs(case.params.batch_size).items()
        }

    findings = with_operations(with_cases(base, costs=amounts), operation)
    ceilings = Ceilings(200e9 * factor(), 20e9 * factor(), "float32")
    accuracies = draw(st.lists(st.sampled_from([90.0, 95.0, 98.0]), min_size=3, max_size=3))
    return dataclasses.replace(
        with_cases(findings, ceilings=ceilings),
        iteration_times=tuple(
            time
            for phase, (device, count) in itertools.product(("step", "forward"), places)
            for time in times(phase, device, count)
        ),
        epoch_times=tuple(
            time
            for phase, device in itertools.product(("train", "eval"), base.settings.devices)
            for time in passes(phase, device)
        ),
        first_iterations=tuple(
            first_iterations(
                "cpu",
                "forward",
                1,
                first=round(MS * factor()),
                warm=MS,
                trained=round(MS * factor()),
            )
        ),
        trainings=tuple(
            training("cpu", size, accuracy)
            for size, accuracy in zip(SIZES, accuracies, strict=True)
        ),
    )


def test_every_sentence_has_its_condition():
    assert set(TRUE) | PLAIN == set(wording("en")["explain"])
    assert not set(TRUE) & PLAIN


@many(3000)
@given(findings=machines())
def test_a_sentence_is_true_of_its_numbers(findings):
    assert findings.disturbed is None
    for section in explain(findings, sheets_of(findings)).values():
        for sentence in section:
            numbers = {name: number.value for name, number in sentence.numbers.items()}
            assert sentence.key in PLAIN or TRUE[sentence.key](numbers), (sentence.key, numbers)
            for language in LANGUAGES:
                assert Texts(language).text(
                    "explain", sentence.key, **sentence.words, **sentence.numbers
                )


@many(900)
@given(findings=machines())
def test_a_verdict_is_that_of_its_numbers(findings):
    bounds = {"batch_grows": (1.1, 1e9), "sample_falls": (0, 1 / 1.1), "convolution_most": (0.5, 1)}
    for claim in check(findings, sheets_of(findings)):
        values = [figure.numbers["number"].value for figure in claim.right]
        if claim.verdict == UNKNOWN or claim.key.startswith("bug"):
            continue
        if claim.key in bounds:
            low, high = bounds[claim.key]
            inside = [low <= value <= high for value in values]
        elif claim.key == "negligible":
            inside = [value < 0.05 for value in values]
        else:
            low, high = claim.words["low"], claim.words["high"]
            inside = [low - 0.5 <= value < high + 0.5 for value in values]
        expected = "holds" if all(inside) else "partly" if any(inside) else "fails"
        assert claim.verdict == expected


@pytest.mark.parametrize(
    ("factor", "key"),
    [(0.87, "follows"), (1.14, "follows"), (0.86, "below"), (1.16, "above")],
)
def test_a_ratio_matches_another_within_15_percent(factor, key):
    """FLOPs and bytes of convolution are 9 times those of addmm."""
    findings = with_cases(
        laptop(),
        costs=lambda _: {
            ("aten::mkldnn_convolution", "forward", "conv2"): Cost(900, 900),
            ("aten::addmm", "forward", "fc1"): Cost(100, 100),
        },
    )
    ns = {"aten::mkldnn_convolution": round(9_000 * factor) * US, "aten::addmm": 1_000 * US}
    findings = with_operations(
        findings,
        lambda row, _: (
            dataclasses.replace(row, self_cpu_ns=(ns[row.name],) * 3) if row.name in ns else None
        ),
    )
    section = explain(findings, sheets_of(findings))["operations"]
    assert f"ratio_{key}_both" in [sentence.key for sentence in section]
