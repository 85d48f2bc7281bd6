"""Quantities of a gate and the groups of operations that they are of."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import statistics

import gate_builders
import pytest
import strategies
from gate_builders import (
    ADD,
    BETWEEN,
    CASE,
    CLONE,
    CONV,
    ENGINE,
    FORWARD,
    GEMM,
    MM,
    TINY,
    build,
    operation,
    operation_columns,
    side,
    time_columns,
    trial,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from mnistbench.core.operation import OUTSIDE, RUNTIME, UNATTRIBUTED
from mnistbench.gate.decide.statistics.quantities import (
    OperationGroup,
    Replaced,
    groups,
    how_replaced,
    quantities,
)
from mnistbench.gate.processes.sides import steps
from mnistbench.gate.words import ALL_CASES

OTHER_CASE = "bench/test_step.py::test_step[lenet5-b1-cpu]"


# ---- what occurs once ----------------------------------------------------------------------------

MS = 1_000_000


def costs(name, *values, case=None):
    """A trial for each pair of values, in milliseconds."""
    case = case or ALL_CASES
    return [
        trial(once={"base": {name: {case: base * MS}}, "head": {name: {case: head * MS}}})
        for base, head in values
    ]


def once_of(trials, **changes):
    return [quantity for quantity in quantities(trials, **changes) if quantity.is_once]


def test_a_cost_that_occurs_once_has_a_difference_per_trial():
    [cost] = once_of(costs("import", (20, 45), (20, 20), (30, 20)))
    assert (cost.key, cost.clock, cost.share, cost.title) == (
        (ALL_CASES, "once", "import"),
        "cpu",
        0.0,
        "import",
    )
    assert cost.logs == pytest.approx([math.log(50 / 25), 0.0, math.log(25 / 35)])
    assert (cost.base, cost.head) == (
        pytest.approx(70 / 3 * MS),
        pytest.approx(85 / 3 * MS),
    )


def test_a_cost_of_some_trials_has_a_base_that_its_change_can_be_a_share_of():
    [cost] = once_of(costs("first iteration", (50, 50), *[(0, 0)] * 7, case=CASE))
    assert (cost.base, cost.head) == (6.25 * MS, 6.25 * MS)


def test_memory_is_compared_as_it_is():
    [memory] = once_of(costs("resident memory", (20, 40)))
    assert (memory.kind, memory.clock) == ("memory", "none")
    assert memory.logs == pytest.approx([math.log(2)])


def test_a_cost_of_one_side_alone_has_a_difference():
    [cost] = once_of([trial(once={"base": {}, "head": {"shared fixtures": {ALL_CASES: 30 * MS}}})])
    assert cost.logs == pytest.approx([math.log(35 / 5)])


@pytest.mark.parametrize(
    ("values", "count"), [(((4, 5), (5, 4)), 0), (((4, 6), (5, 5)), 1), (((0, 10), (0, 10)), 1)]
)
@pytest.mark.parametrize("exchanged", [*itertools.product([False, True], repeat=2)])
def test_a_cost_counts_from_a_mean_of_both_sides_on_whatever_the_roles(values, count, exchanged):
    trials = costs("import", *values)
    trials = [
        gate_builders.swapped(measured) if is_exchanged else measured
        for measured, is_exchanged in zip(trials, exchanged, strict=True)
    ]
    assert len(once_of(trials)) == count
    assert len(once_of(trials, grouping={})) == 1  # of fresh trials, whatever it takes there


def test_costs_of_a_case_that_was_not_measured_do_not_count():
    [first, *rest] = costs("setup", (20, 30), (20, 30), case=CASE)
    assert [cost.case for cost in once_of([first, *rest])] == [CASE]
    assert once_of([first, trial(cases={OTHER_CASE: [build()]}, once=first.once)]) == []


# ---- quantities of calls -------------------------------------------------------------------------


def calls_of(trials):
    return {
        quantity.clock: quantity for quantity in quantities(trials) if quantity.kind == "iteration"
    }


def test_a_call_has_a_difference_per_trial_and_typical_times():
    slower = [build(side(4_000_000), side(4_000_000 + step)) for step in (0, 40_000, 80_000)]
    call = calls_of([trial(measured) for measured in slower])["wall"]
    assert call.logs == pytest.approx([0, math.log(1.01), math.log(1.02)])
    assert (call.base, call.head, call.share) == (4_000_000, 4_040_000, 1.0)
    assert call.key == (CASE, "iteration", "wall")


def test_several_builds_of_a_trial_are_averaged():
    builds = [build(side(1_000), side(new)) for new in (1_000, 1_210)]
    call = calls_of([trial(*builds), trial(*builds)])["wall"]
    assert call.logs == pytest.approx([math.log(1.1)] * 2)
    assert call.head == 1_105


def test_a_build_that_gave_no_difference_leaves_its_trial_without_one():
    good = build(side(1_000))
    bad = build(side((0, 1_000, 1_000)))
    assert [
        math.isnan(log) for log in calls_of([trial(good, good), trial(good, bad)])["wall"].logs
    ] == [False, True]


def test_clocks_are_those_that_every_build_has():
    host = side(1_000)
    device = side(1_000, times={"wall": (9,), "cpu": (8,), "device": (7, 7)})
    assert list(calls_of([trial(build(host))])) == ["wall", "cpu"]
    assert list(calls_of([trial(build(device))])) == ["wall", "cpu", "device"]
    assert list(calls_of([trial(build(device)), trial(build(device, host))])) == ["wall", "cpu"]
    assert calls_of([trial(build(device))])["device"].base == 7


def on_accelerator(kernel_ns, busy_ns, *, rows=()):
    times = {"wall": (1_500_000,) * 5, "device": (1_500_000,) * 5, "busy": (busy_ns,) * 5}
    return side(operations={MM: kernel_ns, **dict(rows)}, times=times)


def test_the_operations_of_an_accelerator_have_shares_of_its_busy_time():
    rows = {ADD: 10_000}  # at the same time as the product, in another stream
    base, new = (on_accelerator(20_000 * factor, 25_000 * factor, rows=rows) for factor in (1, 2))
    by_title = {quantity.title: quantity for quantity in quantities([trial(build(base, new))] * 2)}
    assert by_title["device busy time"].logs == pytest.approx((math.log(2),) * 2)
    assert by_title["device elapsed time"].logs == (0.0, 0.0)
    assert (by_title["aten::mm, forward fc1"].share, by_title["aten::add_, optimizer"].share) == (
        0.8,
        0.4,
    )


def test_an_accelerator_that_runs_nothing_has_no_busy_time():
    assert list(calls_of([trial(build(on_accelerator(0, 0)))])) == ["wall", "device"]


def test_rows_that_are_no_operations_are_quantities_of_their_own():
    rows = {(name, "", ""): 1_000 for name in (OUTSIDE, RUNTIME, UNATTRIBUTED)}
    all_quantities = quantities([trial(build(side(operations={MM: 1_000_000, **rows})))])
    assert [quantity.name for quantity in all_quantities if quantity.kind == "outside"] == [
        "outside operations",
        "runtime calls",
        "unattributed kernels",
    ]
    gone = quantities([trial(build(side(operations={MM: 1_000_000, **rows}), side()))])
    assert not [quantity for quantity in gone if quantity.kind in ("replaced", "added")]


def test_a_drift_of_the_accelerators_clock_is_no_difference_between_the_sides():
    """The sides take turns in an order that is reversed from pair to pair.

    A clock that slows down hits both alike.
    """
    for seed in range(20):
        times = {"base": [], "head": []}
        for number, name in enumerate(steps.in_pairs(["base", "head"], random.Random(seed), 16)):
            times[name].append(round(1_000_000 * 1.01**number))  # a third slower at the end
        base, new = (
            dataclasses.replace(
                on_accelerator(20_000, 25_000), **time_columns({"device": side_times})
            )
            for side_times in times.values()
        )
        [median, mean] = [
            quantity for quantity in quantities([trial(build(base, new))]) if quantity.is_case
        ]
        assert abs(median.logs[0]) < 0.011  # that of one turn
        assert abs(mean.logs[0]) < 0.003


def test_a_case_that_one_trial_lacks_is_left_out():
    both = trial(cases={CASE: [build()], OTHER_CASE: [build()]})
    assert {quantity.case for quantity in quantities([both, both])} == {CASE, OTHER_CASE}
    assert {quantity.case for quantity in quantities([both, trial()])} == {CASE}
    assert {quantity.case for quantity in quantities([trial(), both])} == {CASE}
    assert quantities([]) == []


# ---- quantities of operations --------------------------------------------------------------------


def builds_of(trials):
    return [build for trial in trials for build in trial.cases[CASE]]


def grouped(*builds):
    """Groups of trials of one build each: (kind, name) -> operations."""
    return {(kind, name): tuple(keys) for kind, name, keys in groups(builds)}


def test_operations_that_matter_stand_alone_and_the_rest_together():
    rows = {CONV: 600_000, MM: 380_000, TINY: 10_000, ADD: 10_000}
    assert grouped(build(side(operations=rows))) == {
        ("operation", "aten::mkldnn_convolution, forward conv2"): (CONV,),
        ("operation", "aten::mm, forward fc1"): (MM,),
        ("other", "other"): (ADD, TINY),
    }


@pytest.mark.parametrize(("small", "kind"), [(29_999, "other"), (30_000, "operation")])
@pytest.mark.parametrize("large_side", [0, 1])
def test_an_operation_matters_from_its_mean_share_of_both_sides_on(small, kind, large_side):
    sides = [side(operations={MM: 1_000_000 - ns, TINY: ns}) for ns in (small, 10_000)]
    keys_of_group = grouped(build(sides[large_side], sides[1 - large_side]))
    assert {keys: key[0] for key, keys in keys_of_group.items()} == {
        (MM,): "operation",
        (TINY,): kind,
    }


@pytest.mark.parametrize("exchanged", list(itertools.product((False, True), repeat=3)))
def test_exchanging_the_roles_of_any_trial_changes_no_group(exchanged):
    # Large on one side in one trial, on the other side in another: the larger side's share depends
    # on which is which.
    sizes = ((60_000, 5_000), (1_000, 30_000), (9_000, 9_000))
    builds = [
        build(
            *(
                side(operations={MM: 1_000_000 - ns, TINY: ns})
                for ns in (sides[::-1] if turned else sides)
            )
        )
        for sides, turned in zip(sizes, exchanged, strict=True)
    ]
    assert ("other", "other") in grouped(*builds)


def test_time_outside_operations_is_one_quantity():
    keys_of_group = grouped(build(side(operations={MM: 1_000, FORWARD: 10, BETWEEN: 20})))
    assert keys_of_group["outside", "outside operations"] == (BETWEEN, FORWARD)


def test_operations_that_came_or_went_are_one_quantity_of_their_place():
    base = side(operations={MM: 500_000, ADD: 10_000, TINY: 9_000, CONV: 500_000})
    new = side(operations={GEMM: 300_000, CLONE: 5_000, TINY: 9_000, ADD: 10_000, CONV: 500_000})
    keys_of_group = grouped(build(base, new))
    assert keys_of_group["replaced", "new and gone operations, forward fc1"] == (GEMM, CLONE, MM)
    assert keys_of_group == grouped(build(new, base))


def only_of_kind(kind, base, new):
    """The only quantity of this kind in a case with these operations."""
    [quantity] = [
        quantity
        for quantity in quantities([trial(build(side(operations=base), side(operations=new)))])
        if quantity.kind == kind
    ]
    return quantity


def added(base, new):
    return only_of_kind("added", base, new)


def replaced(base, new):
    return only_of_kind("replaced", base, new)


MOVED = ("aten::mm", "forward", "linear1")
ADD_IN_FC1 = ("aten::add_", "forward", "fc1")


def test_replaced_operations_are_one_quantity_whose_sums_are_compared():
    quantity = replaced(
        {MM: 200_000, CONV: 800_000, TINY: 9},
        {GEMM: 160_000, ADD_IN_FC1: 60_000, CONV: 800_000, TINY: 9},
    )
    assert quantity.title == "aten::mm -> aten::_scaled_mm + aten::add_, forward fc1"
    assert (quantity.base, quantity.head) == (200_000, 220_000)
    assert quantity.logs == pytest.approx([math.log(1.1)])
    assert quantity.share == quantity.weight == pytest.approx(200_000 / 1_000_009)
    assert quantity.replaced == (
        Replaced(GEMM, None, 160_000),
        Replaced(ADD_IN_FC1, None, 60_000),
        Replaced(MM, 200_000, None),
    )


@pytest.mark.parametrize(("small", "kind"), [(19_999, "added"), (20_000, "replaced")])
@pytest.mark.parametrize("exchanged", [False, True])
def test_sums_are_compared_if_both_take_as_much_as_an_operation_that_stands_alone(
    small, kind, exchanged
):
    sides = [
        side(operations={key: ns, CONV: 1_000_000 - ns})
        for key, ns in ((MM, 30_000), (GEMM, small))
    ]
    stays = {("aten::t", "forward", "fc1"): operation(0)}
    sides = [
        dataclasses.replace(sample, **operation_columns({**sample.operations, **stays}))
        for sample in sides
    ]
    assert (kind, "new and gone operations, forward fc1") in grouped(
        build(*sides[:: -1 if exchanged else 1])
    )


@pytest.mark.parametrize("exchanged", list(itertools.product((False, True), repeat=3)))
def test_exchanging_roles_does_not_change_how_a_replacement_is_judged(exchanged):
    sizes = ((60_000, 5_000), (5_000, 40_000), (40_000, 60_000))
    builds = [
        build(
            *(
                side(operations={key: ns, CONV: 1_000_000 - ns, TINY: 9})
                for key, ns in list(zip((MM, GEMM), sums, strict=True))[:: -1 if turned else 1]
            )
        )
        for sums, turned in zip(sizes, exchanged, strict=True)
    ]
    # The smaller sums are 1.7 % on average.
    assert ("added", "new and gone operations, forward fc1") in grouped(*builds)


def test_an_irregular_operation_has_no_logarithm_and_is_judged_by_what_it_adds():
    with_clone, without = ({MM: 500_000, **more} for more in ({CLONE: 500_000}, {}))
    builds = [
        build(side(operations=with_clone)),
        build(side(operations=with_clone), side(operations=without)),
    ]
    [irregular] = [
        quantity
        for quantity in quantities([trial(measured) for measured in builds])
        if quantity.kind == "added"
    ]
    assert irregular.title == "aten::clone (not in every trial), forward fc1"
    assert (how_replaced(irregular.replaced), irregular.members) == ("irregular", (CLONE,))
    assert all(map(math.isfinite, irregular.logs))


@pytest.mark.parametrize(
    ("base", "new", "log"),
    [
        # All of it came from the remaining one.
        ({MM: 100_000, TINY: 50_000}, {GEMM: 120_000, TINY: 30_000}, 0.0),
        # The remaining one grew as well.
        ({MM: 100_000, TINY: 50_000}, {GEMM: 120_000, TINY: 60_000}, math.log(1.2)),
        ({MM: 100_000, TINY: 50_000}, {GEMM: 80_000, TINY: 70_000}, 0.0),
        # Half of it.
        ({MM: 100_000, TINY: 50_000}, {GEMM: 120_000, TINY: 40_000}, math.log(1.2) / 2),
        ({MM: 150_000}, {MOVED: 150_000}, 0.0),  # a renamed module
    ],
)
def test_work_that_moves_between_a_replaced_and_a_remaining_operation_is_no_change(base, new, log):
    assert replaced({CONV: 850_000, **base}, {CONV: 850_000, **new}).logs == pytest.approx(
        [log], rel=0.01
    )


@pytest.mark.parametrize(
    ("base", "new", "place", "log"),
    [
        # Work that moved there.
        (
            {MM: 500_000, TINY: 2_000},
            {MM: 400_000, TINY: 2_000, CLONE: 100_000},
            "forward fc1",
            0.0,
        ),
        (
            {MM: 900_000, CONV: 100_000},
            {MM: 900_000, CONV: 100_000, CLONE: 20_000},
            "forward fc1",
            math.log(1.02),
        ),
        # What went is set against what came.
        (
            {MM: 10_000, CONV: 990_000},
            {GEMM: 19_000, CONV: 990_000},
            "forward fc1",
            math.log(1.009),
        ),
        (
            {MM: 10_000, CONV: 990_000},
            {MOVED: 19_000, CONV: 990_000},
            "new and gone modules",
            math.log(1.009),
        ),
    ],
)
def test_new_operations_add_their_time_to_the_case(base, new, place, log):
    quantity = added(base, new)
    assert quantity.name == f"new and gone operations, {place}"
    assert set(quantity.members) == base.keys() ^ new.keys()
    assert quantity.logs == pytest.approx([log])
    assert quantity.weight == 1.0
    assert quantity.share == pytest.approx(max(quantity.base, quantity.head) / sum(base.values()))


@pytest.mark.parametrize(
    ("base", "new", "title", "how"),
    [
        ({MM: 9}, {GEMM: 9}, "aten::mm -> aten::_scaled_mm, forward fc1", "replaced"),
        (
            {MM: 9},
            {GEMM: 2, CLONE: 7},
            "aten::mm -> aten::clone + aten::_scaled_mm, forward fc1",
            "replaced",
        ),
        ({}, {CLONE: 9}, "nothing -> aten::clone, forward fc1", "new"),
        ({CLONE: 9}, {}, "aten::clone -> nothing, forward fc1", "gone"),
        ({}, {("x", "forward", "fc2"): 9}, "nothing -> x, forward fc2", "new"),
        (
            {("x", "forward", "fc2"): 9, ("y", "backward", "fc2"): 99},
            {
                ("x", "forward", "head"): 9,
                ("y", "backward", "head"): 3,
                ("z", "backward", "head"): 3,
            },
            "fc2 backward + fc2 forward -> head forward + head backward",
            "replaced",
        ),
        (
            {
                ("a", "forward", "fc1"): 1,
                ("b", "forward", "fc1"): 2,
                ("c", "forward", "fc1"): 3,
                ("d", "forward", "fc1"): 4,
            },
            {(name, "forward", "fc1"): 1 for name in "xyzvw"},
            "d + c + 2 others -> v + w + 3 others, forward fc1",
            "replaced",
        ),
        (
            {ENGINE: 9},
            {("x", *ENGINE[1:]): 9},
            "evaluate_function: AddmmBackward0 -> x, backward fc1",
            "replaced",
        ),
    ],
)
def test_a_replacement_is_named_by_its_largest_operations(base, new, title, how):
    stay = {CONV: 99, TINY: 1, ("y", "backward", "fc1"): 1}
    [quantity] = [
        quantity
        for quantity in quantities(
            [trial(build(side(operations={**stay, **base}), side(operations={**stay, **new})))]
        )
        if quantity.replaced
    ]
    assert (quantity.title, how_replaced(quantity.replaced)) == (title, how)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (("x", "forward", ""), "new and gone operations, forward"),
        (("x", "", ""), "new and gone operations, no module"),
    ],
)
def test_a_place_has_a_name_also_without_a_module(key, name):
    stays = ("y", *key[1:])
    assert ("added", name) in grouped(
        build(side(operations={stays: 9}), side(operations={stays: 9, key: 9}))
    )


def test_operations_that_took_no_time_anywhere_are_no_quantity():
    assert {quantity.kind for quantity in quantities([trial(build(side(operations={MM: 0})))])} == {
        "iteration",
        "mean",
    }


def case_changes(base, new):
    """The change of a case by each clock, from one build."""
    return {
        (quantity.kind, quantity.name): math.exp(quantity.logs[0])
        for quantity in quantities([trial(build(base, new))])
        if quantity.is_case
    }


def test_operations_are_compared_by_their_time_and_by_their_share_of_the_iteration():
    # The head's profiled iterations ran at half the speed; its blocks show that it takes 10 %
    # longer.
    turns = (100, 25, 400)
    base = side(
        operations={MM: 100, ADD: 300}, times={"wall": turns, "cpu": turns}, block_ns=(100,) * 3
    )
    new = side(
        operations={MM: 200, ADD: 600},
        times={"wall": turns[::-1], "cpu": turns[::-1]},
        block_ns=(110,) * 3,
    )
    [log] = [
        quantity.logs[0]
        for quantity in quantities([trial(build(base, new))])
        if quantity.name.startswith(MM[0])
    ]
    direct = math.log(2)
    share_and_case = math.log(1.1)
    assert log == pytest.approx((direct + share_and_case) / 2)


@pytest.mark.parametrize(
    ("calls", "blocks", "by_share"),
    [
        (2.0, (100,) * 3, True),  # more calls have a larger overhead of the profiler
        (1.0, (), True),  # without blocks the change of the iteration is not known better
        (1.0, (100,) * 3, False),  # the profiler's ranges are a large part of a short call
    ],
)
def test_their_share_does_not_count_where_it_shows_something_else(calls, blocks, by_share):
    base = side(100, {MM: 100, ADD: 300}, block_ns=blocks, by_share=by_share)
    new = side(100, {MM: operation(200, calls=calls), ADD: 600}, block_ns=blocks, by_share=by_share)
    [log] = [
        quantity.logs[0]
        for quantity in quantities([trial(build(base, new))])
        if quantity.name.startswith(MM[0])
    ]
    assert log == pytest.approx(math.log(2))


def test_cpu_time_is_compared_over_blocks_if_pairs_vary_more():
    base = side(times={"wall": (110, 440, 27.5), "cpu": (100, 400, 25)}, block_ns=(100, 100, 100))
    new = side(times={"wall": (220, 55, 440), "cpu": (200, 50, 400)}, block_ns=(104, 104, 104))
    changes = case_changes(base, new)
    # Wall time is 1.1 times the CPU time on both sides.
    assert list(changes.values()) == pytest.approx([1.04] * 4)


def test_blocks_and_pairs_count_by_the_inverse_squares_of_their_errors():
    # The same spread, and half of it.
    turns = (98, 102, 100, 104, 96)
    blocks = (1.00, 1.02, 1.04, 1.06, 1.08)
    base = side(times={"wall": (100,) * 5, "cpu": (100,) * 5}, block_ns=(100,) * 5)
    pairs_alone, blocks_alone = (
        case_changes(base, side(times={"wall": new, "cpu": new}, block_ns=()))["iteration", "cpu"]
        for new in ((100, 102, 104, 106, 108), turns)
    )
    new = side(
        times={"wall": turns, "cpu": turns}, block_ns=tuple(100 * factor for factor in blocks)
    )
    variances = [
        statistics.variance(map(math.log, of)) for of in (blocks, [ns / 100 for ns in turns])
    ]
    expected = (math.log(pairs_alone) / variances[0] + math.log(blocks_alone) / variances[1]) / sum(
        1 / v for v in variances
    )
    assert math.log(case_changes(base, new)["iteration", "cpu"]) == pytest.approx(expected)
    # Exchanging the sides only changes the sign.
    assert case_changes(new, base)["iteration", "cpu"] == pytest.approx(
        1 / case_changes(base, new)["iteration", "cpu"]
    )


def test_blocks_count_alone_without_usable_pairs():
    times = {"wall": (110,) * 3, "cpu": (0, 100, 0)}  # a coarse clock
    changes = case_changes(
        side(times=times, block_ns=(100,) * 3), side(times=times, block_ns=(104,) * 3)
    )
    assert changes["mean", "cpu"] == pytest.approx(1.04)


def test_a_side_that_sleeps_is_slower_by_wall_time_alone():
    base = side(times={"wall": (101, 101, 202), "cpu": (100, 100, 200)}, block_ns=(90,) * 3)
    new = side(times={"wall": (121, 120, 242), "cpu": (100, 100, 200)}, block_ns=(90,) * 3)
    changes = case_changes(base, new)
    assert changes["iteration", "cpu"] == changes["mean", "cpu"] == 1.0
    assert changes["iteration", "wall"] == pytest.approx(1.21 / 1.01)
    assert changes["mean", "wall"] == pytest.approx((1.21 + 1.20 + 1.21) / (3 * 1.01))


def test_blocks_of_one_side_alone_are_not_compared():
    times = {"wall": (100,) * 3, "cpu": (100,) * 3}
    assert set(case_changes(side(times=times, block_ns=(50,) * 3), side(times=times)).values()) == {
        1.0
    }


def test_blocks_need_usable_times():
    times = {"wall": (100,) * 3, "cpu": (100,) * 3}
    logs = {
        quantity.name: quantity.logs[0]
        for quantity in quantities([trial(build(side(times=times, block_ns=(0,) * 3)))])
        if quantity.kind == "iteration"
    }
    assert all(map(math.isnan, logs.values()))


def test_an_iteration_without_cpu_time_has_no_wall_time_either():
    base = side(times={"wall": (100,) * 5, "cpu": (100, 0, 100, 100, 100)}, block_ns=(100,) * 3)
    assert case_changes(base, base)["iteration", "wall"] == 1.0


def test_operations_are_summed_iteration_by_iteration():
    large = operation((9_000_000,) * 3)
    base = side(operations={CONV: large, TINY: operation((1, 2, 3)), ADD: operation((30, 20, 10))})
    new = side(operations={CONV: large, TINY: operation((2, 4, 6)), ADD: operation((60, 40, 20))})
    [rest] = [
        quantity for quantity in quantities([trial(build(base, new))]) if quantity.kind == "other"
    ]
    assert rest.logs == pytest.approx([math.log(2)])
    assert (rest.base, rest.head) == (22, 44)
    assert rest.share == pytest.approx(22 / 9_000_022)


def test_fresh_trials_hold_what_the_first_ones_held():
    first = [trial(build(side(operations={CONV: 9_000, TINY: 100})))] * 2
    fresh = [trial(build(side(operations={CONV: 9_000, TINY: 5_000, CLONE: 10})), stage=2)] * 2
    grouping = {CASE: groups(builds_of(first))}
    assert [quantity.key for quantity in quantities(fresh, grouping)] == [
        quantity.key for quantity in quantities(first)
    ]
    assert [quantity.key for quantity in quantities(fresh, {})] == [
        quantity.key for quantity in quantities(fresh)
    ]


def test_what_one_side_of_fresh_trials_lacks_has_no_difference_there():
    grouping = {CASE: [OperationGroup("operation", "aten::clone, forward fc1", (CLONE,))]}
    lacking = build(side(operations={MM: 9}), side(operations={MM: 9, CLONE: 9}))
    [quantity] = [
        quantity
        for quantity in quantities([trial(lacking)], grouping)
        if quantity.kind == "operation"
    ]
    assert math.isnan(quantity.logs[0])


KEYS = st.sampled_from([MM, CONV, ADD, CLONE, GEMM, TINY, FORWARD, BETWEEN])
TIMES = st.integers(0, 10_000) | st.integers(1, 2**40)


@st.composite
def any_trials(draw):
    """Some trials of one case, every build with operations of its own.

    And as many pairs as it likes.
    """
    builds = draw(st.integers(1, 2))

    def drawn():
        times = {
            clock: tuple(draw(st.lists(TIMES, max_size=3)))
            for clock in draw(st.sets(st.sampled_from(["wall", "device", "busy"])))
        }
        iterations = draw(st.integers(1, 2))
        rows = {
            key: operation(draw(st.tuples(*[TIMES] * iterations)))
            for key in draw(st.lists(KEYS, max_size=4, unique=True))
        }
        return side(times=times, operations=rows)

    return [
        trial(*(build(drawn(), drawn()) for _ in range(builds)))
        for _ in range(draw(st.integers(1, 3)))
    ]


@settings(parent=strategies.ANY_SPEED, max_examples=60)
@given(any_trials())
def test_which_side_is_which_changes_the_signs_and_nothing_else(trials):
    swapped = [gate_builders.swapped(measured) for measured in trials]
    assert groups(builds_of(swapped)) == groups(builds_of(trials))
    straight = quantities(trials)
    mirrored = quantities(swapped)
    assert [quantity.members for quantity in mirrored] == [
        quantity.members for quantity in straight
    ]
    assert [(quantity.key, quantity.base, quantity.head) for quantity in mirrored] == [
        (quantity.key, quantity.head, quantity.base) for quantity in straight
    ]
    for quantity, mirror in zip(straight, mirrored, strict=True):
        assert mirror.replaced == tuple(
            Replaced(key, head_ns, base_ns) for key, base_ns, head_ns in quantity.replaced
        )
        assert mirror.logs == pytest.approx([-log for log in quantity.logs], abs=1e-12, nan_ok=True)


@settings(parent=strategies.ANY_SPEED, max_examples=60)
@given(any_trials())
def test_every_operation_is_held_once_or_with_its_place(trials):
    builds = builds_of(trials)
    sides = [sample for measured in builds for sample in measured.values()]
    checked = [
        key for kind, _, keys in groups(builds) for key in keys if kind not in ("replaced", "added")
    ]
    places = {
        key for kind, _, keys in groups(builds) for key in keys if kind in ("replaced", "added")
    }
    assert len(checked) == len(set(checked))
    if all(sample.operations for sample in sides):
        assert set(checked) | places == {key for sample in sides for key in sample.operations}
