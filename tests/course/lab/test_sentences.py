"""Other numbers, other sentences: what is said of a machine follows from its findings."""

import dataclasses

import pytest
from lab_builders import (
    MS,
    SIZES,
    US,
    S,
    case,
    cluster,
    costs,
    epoch_time,
    faster_gpu,
    first_iterations,
    forward_rows,
    iteration_time,
    laptop,
    queued,
    row,
    table,
    taking,
    times,
    training,
    with_cases,
    with_operations,
    without_device_view,
)

from mnistbench.core.operation import OUTSIDE
from mnistbench.course.lab.lab_file import DevicePlace
from mnistbench.course.lab.sentences import best_view, disturbed, explain
from mnistbench.course.lab.sheets import Word, sheets_of
from mnistbench.course.lab.texts import Texts
from mnistbench.events.work.roofline import Ceilings, Cost
from mnistbench.showing.text import Code


def sentences(findings, section):
    return explain(findings, sheets_of(findings))[section]


def keys(findings, section):
    return [sentence.key for sentence in sentences(findings, section)]


def sentence_of(findings, section, key):
    matching = [sentence for sentence in sentences(findings, section) if sentence.key == key]
    assert matching, f"{key} is not among {keys(findings, section)}"
    return matching[0]


def one_table(conv_ns, addmm_ns, *, small_ns=20 * US, change=lambda row, _: row):
    """A machine with a forward table at batch 64 and nothing else to explain there."""
    only = case(
        "forward",
        64,
        table(forward_rows(conv_ns, addmm_ns, small_ns)),
        ceilings=Ceilings(200e9, 20e9, "float32"),
    )
    return with_operations(with_settings(laptop(cases=(only,)), batch_sizes=(64,)), change)


def with_settings(findings, **changes):
    return dataclasses.replace(findings, settings=dataclasses.replace(findings.settings, **changes))


# ---- Operations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("addmm_us", "key"), [(39, "dominates"), (40, "leads")])
def test_an_operation_with_half_of_the_time_dominates_and_a_smaller_one_leads(addmm_us, key):
    sentence = sentence_of(one_table(100 * US, addmm_us * US, small_ns=20 * US), "operations", key)
    assert sentence.words["operation"] == Code("aten::mkldnn_convolution")
    assert sentence.numbers["share"].value == pytest.approx(100 / (100 + 1 + addmm_us + 3 * 20))


def test_time_outside_operations_never_dominates():
    findings = one_table(
        100 * US,
        90 * US,
        change=lambda row, _: taking(row, row.self_ns("cpu") * 50) if row.name == OUTSIDE else row,
    )
    assert sentence_of(findings, "operations", "leads").words["operation"] == Code(
        "aten::mkldnn_convolution"
    )


def test_the_larger_of_convolution_and_addmm_is_named_first():
    findings = one_table(100 * US, 1000 * US)
    sentence = next(s for s in sentences(findings, "operations") if s.key.startswith("ratio_"))
    assert (sentence.words["larger"], sentence.words["smaller"]) == (
        Word("addmm"),
        Word("convolution"),
    )
    assert sentence.numbers["time"].value == pytest.approx(1000 / 101)
    assert sentence_of(findings, "operations", "dominates").words["operation"] == Code(
        "aten::addmm"
    )


@pytest.mark.parametrize(
    ("conv_us", "key"),
    [
        # At batch 64 the convolution has 9 times the FLOPs of addmm, and 2.68 times its bytes.
        (900, "ratio_follows_flops"),
        (270, "ratio_follows_bytes"),
        (500, "ratio_between"),
        (1500, "ratio_above_both"),
        (140, "ratio_below_both"),
    ],
)
def test_the_ratio_of_times_is_compared_with_those_of_flops_and_bytes(conv_us, key):
    sentence = sentence_of(one_table(conv_us * US, 100 * US), "operations", key)
    assert sentence.numbers["time"].value == pytest.approx(conv_us * 1.01 / 100)
    assert sentence.numbers["flops"].value == pytest.approx(9)
    assert sentence.numbers["bytes"].value == pytest.approx(
        300_000 * 64 / (4_800_000 + 37_000 * 64)
    )


def with_costs(findings, change):
    """The same findings, with the cost of every operation changed.

    The change gets its name, the cost and the batch size.
    """
    return with_cases(
        findings,
        costs=lambda case: {
            key: change(key[0], cost, case.params.batch_size) for key, cost in case.costs.items()
        },
    )


def test_a_ratio_can_match_flops_and_bytes():
    moved = {"aten::addmm": 100, "aten::mkldnn_convolution": 900}
    findings = with_costs(
        one_table(900 * US, 100 * US), lambda name, cost, _: Cost(cost.flops, moved[name])
    )
    assert sentence_of(findings, "operations", "ratio_follows_both")


@pytest.mark.parametrize(
    "change", [{"costs": {}}, {"costs": {key: Cost(None, 1) for key in costs(1)}}]
)
def test_without_counted_work_only_times_are_compared(change):
    findings = with_cases(one_table(900 * US, 100 * US), **change)
    sentence = sentence_of(findings, "operations", "ratio_uncounted")
    assert set(sentence.numbers) == {"time"}
    assert not [key for key in keys(findings, "operations") if key.startswith("ceiling")]


@pytest.mark.parametrize(("name", "noun"), [("aten::addmm", "addmm"), ("conv", "convolution")])
def test_a_missing_operation_is_named(name, noun):
    findings = one_table(
        900 * US, 100 * US, change=lambda row, _: None if name in row.name else row
    )
    assert sentence_of(findings, "operations", "not_in_table").words["what"] == Word(noun)


@pytest.mark.parametrize(
    ("ceilings", "key"),
    [
        # The convolution does 64 x 21.2 MFLOP and moves 64 x 300 kB in 10.1 ms: 134 GFLOP/s and 1.9
        # GB/s.
        (Ceilings(200e9, 20e9, "float32"), "ceiling_flops"),
        (Ceilings(2000e9, 3e9, "float32"), "ceiling_bytes"),
        (Ceilings(2000e9, 20e9, "float32"), "ceiling_neither"),
        (None, "ceiling_missing"),
    ],
)
def test_rates_are_compared_with_the_ceilings(ceilings, key):
    findings = with_cases(one_table(10 * MS, 3 * MS), ceilings=ceilings)
    convolution = [
        s for s in sentences(findings, "operations") if s.words.get("what") == Word("convolution")
    ]
    assert [sentence.key for sentence in convolution] == [key]
    if key != "ceiling_missing":
        assert convolution[0].numbers["flops"].value == pytest.approx(64 * 21_233_664 / 10.1e-3)
        assert convolution[0].numbers["flops"].kind == "flops_per_s"


def test_the_ratio_over_batch_sizes_rises_falls_or_stays():
    rising = sentence_of(laptop(), "operations", "ratio_over_batches_rises").numbers
    assert (
        rising["first"].value,
        rising["convolution"].value,
        rising["addmm"].value,
    ) == pytest.approx((4.04, 24, 6))
    flat = with_operations(laptop(), lambda row, _: taking(row, 100 * US))
    assert "ratio_over_batches_same" in keys(flat, "operations")
    falling = with_operations(
        laptop(),
        lambda row, size: (
            taking(row, row.self_ns("cpu") * size**2) if row.name == "aten::addmm" else row
        ),
    )
    assert "ratio_over_batches_falls" in keys(falling, "operations")


def test_bytes_match_the_times_only_where_they_grow_like_them():
    bytes_ = sentence_of(laptop(), "operations", "bytes_over_batches").numbers
    assert (bytes_["convolution"].value, bytes_["addmm"].value) == pytest.approx(
        (64, (4_800_000 + 37_000 * 64) / 4_837_000)
    )
    likewise = with_costs(
        laptop(),
        lambda name, cost, size: Cost(
            cost.flops, {1: 100, 16: 400, 64: 1600 if "conv" in name else 400}[size]
        ),
    )
    assert sentence_of(likewise, "operations", "bytes_over_batches_match")  # 16 : 4, times 24 : 6
    alike = with_costs(laptop(), lambda _, cost, size: Cost(cost.flops, 300_000 * size))
    for findings in (alike, with_cases(laptop(), costs={})):
        assert "ratio_over_batches_rises" in keys(findings, "operations")
        assert not [key for key in keys(findings, "operations") if key.startswith("bytes_")]


def test_operations_of_an_accelerator_are_compared_by_its_own_clock():
    cuda_sentences = [
        s
        for s in sentences(cluster(), "operations")
        if s.words.get("place") == DevicePlace("cuda", 8)
    ]
    assert (
        cuda_sentences[0].numbers["share"].over.file
        == "tables/operations-forward-cuda-device-b64.csv"
    )
    assert next(s for s in cuda_sentences if s.key.startswith("ratio_")).numbers[
        "time"
    ].value == pytest.approx(151.5 / 20)


def test_host_times_are_not_taken_for_those_of_an_accelerator():
    """An accelerator that the profiler cannot watch, such as mps, has a host table alone."""
    findings = without_device_view(cluster())
    sheets = sheets_of(findings)
    assert best_view(sheets, "step", "cuda", 64) is None
    assert [
        s.key
        for s in sentences(findings, "operations")
        if s.words.get("place") == DevicePlace("cuda", 8)
    ] == ["operations_missing"]
    assert not {"same_top", "other_top"} & set(keys(findings, "devices"))
    for view, clock in (("host", None), ("device", 1)):
        table = sheets_of(cluster()).operations["forward", "cuda", view, 64]
        assert bool(table.total("flops_per_s")) == bool(table.total("bytes_per_s")) == bool(clock)
    assert sheets.operations["forward", "cpu", "host", 64].total("flops_per_s")


# ---- Batch sizes ---------------------------------------------------------------------------------


def stepping(*times, sizes=(1, 16, 64, 256)):
    """A machine whose training step takes these times at batch sizes 1, 16, 64, ..."""
    sizes = sizes[: len(times)]
    step_times = (iteration_time("step", size, ns) for size, ns in zip(sizes, times, strict=True))
    return with_settings(laptop(iteration_times=tuple(step_times)), batch_sizes=sizes)


@pytest.mark.parametrize(
    ("times", "batch", "stops"),
    [
        ((5 * MS, 20 * MS, 64 * MS), "batch_rises_sample_falls", "still_improving"),
        ((5 * MS, 20 * MS, 79 * MS), "batch_rises_sample_falls", "stops_improving"),
        ((5 * MS, 20 * MS, 160 * MS), "batch_rises_sample_falls", "best_at"),
        ((1 * MS, 16 * MS, 64 * MS), "batch_rises_sample_same", "stops_improving"),
        ((1 * MS, 20 * MS, 100 * MS), "batch_rises_sample_rises", "best_at"),
        ((6 * MS, 6 * MS, 6 * MS), "batch_same_sample_falls", "still_improving"),
        ((9 * MS, 7 * MS, 6 * MS), "batch_falls_sample_falls", "still_improving"),
    ],
)
def test_changes_of_time_per_batch_and_per_sample_are_named(times, batch, stops):
    step_sentences = [
        s for s in sentences(stepping(*times), "batches") if s.words.get("phase") == Word("step")
    ]
    assert [sentence.key for sentence in step_sentences] == [batch, stops]
    assert step_sentences[0].numbers["batch_ratio"].value == pytest.approx(times[2] / times[0])
    assert step_sentences[0].numbers["last"].value == round(times[2] / 64)


def test_time_per_sample_stops_improving_at_the_smallest_size_near_the_best():
    assert (
        sentence_of(
            stepping(5 * MS, 20 * MS, 79 * MS, 310 * MS), "batches", "stops_improving"
        ).words["enough"]
        == 16
    )
    assert (
        sentence_of(
            stepping(5 * MS, 80 * MS, 320 * MS, 1280 * MS), "batches", "stops_improving"
        ).words["enough"]
        == 1
    )
    assert (
        sentence_of(stepping(1 * MS, 14 * MS, 70 * MS, 250 * MS), "batches", "best_at").words[
            "best"
        ]
        == 16
    )


@pytest.mark.parametrize(
    ("sizes", "per_sample", "enough", "gain"),
    [
        # Many small improvements count together: 36 is about as good as the best.
        (
            (16, 20, 24, 28, 32, 36, 40),
            [1000 * 0.92**position for position in range(7)],
            36,
            1 / 0.92,
        ),
        # A spike between two sizes is no improvement at the last.
        ((1, 16, 64, 128), (1000, 500, 600, 520), 16, 500 / 520),
    ],
)
def test_the_gain_is_that_from_the_first_size_that_is_near_the_best(
    sizes, per_sample, enough, gain
):
    times = [
        round(size * sample_us * US) for size, sample_us in zip(sizes, per_sample, strict=True)
    ]
    sentence = sentence_of(stepping(*times, sizes=sizes), "batches", "stops_improving")
    assert (sentence.words["enough"], sentence.words["large"]) == (enough, sizes[-1])
    assert sentence.numbers["gain"].value == pytest.approx(gain, rel=1e-3)


def test_any_two_times_at_any_two_batch_sizes_have_a_sentence():
    for sizes in ((1, 2), (20, 21), (100, 101), (1, 1000)):
        for large in (1, 900, 960, 1000, 1040, 1060, 2000, 10**6):
            for sentence in sentences(stepping(1000 * US, large * US, sizes=sizes), "batches"):
                assert Texts("en").text(
                    "explain", sentence.key, **sentence.words, **sentence.numbers
                )


def of_noise(findings):
    return list(disturbed(findings, sheets_of(findings)))


def test_a_wide_spread_of_times_is_a_disturbed_machine():
    def spread(*iqrs):
        times_of_sizes = [(10 * MS,) if iqr is None else times(10 * MS, iqr, 100) for iqr in iqrs]
        return laptop(
            iteration_times=tuple(
                iteration_time("step", size, 0, times_ns=sentence)
                for size, sentence in zip(SIZES, times_of_sizes, strict=True)
            )
        )

    assert of_noise(spread(1 * MS, None, 4_999 * US)) == []
    sentence, consequence = of_noise(spread(5 * MS, 30 * MS, 20 * MS))
    assert (sentence.key, consequence.key) == ("disturbed_spread", "disturbed")
    assert sentence.words == {"place": DevicePlace("cpu", 2), "phase": Word("step"), "size": 16}
    assert (sentence.numbers["iqr"].value, sentence.numbers["median"].value) == (30 * MS, 10 * MS)


def test_a_core_that_other_programs_had_is_a_disturbed_machine():
    assert of_noise(queued(laptop(), 0.099)) == []
    sentence, _ = of_noise(queued(laptop(), 0.11, 0.4))
    assert (sentence.key, sentence.words["size"]) == ("disturbed_queue", 16)
    assert sentence.numbers["part"].value == 0.4


@pytest.mark.parametrize("machine", [laptop, cluster])
def test_what_noise_could_make_is_not_said_of_a_disturbed_machine(machine):
    quiet = explain(machine(), sheets_of(machine()))
    noisy_machine = queued(machine(), 0.2)
    noisy = explain(noisy_machine, sheets_of(noisy_machine))
    assert noisy["training"] == quiet["training"]  # accuracies are no times
    assert {sentence.key for section in noisy.values() for sentence in section} == {
        "trained_falls",
        "calls_same",
        *({"trained_alike"} if machine is cluster else {"no_accelerator"}),
    }


@pytest.mark.parametrize(
    ("at_64", "key"),
    [
        (7_272 * MS, "epoch_falls"),
        (7_273 * MS, "epoch_same"),
        (8_799 * MS, "epoch_same"),
        (8_801 * MS, "epoch_rises"),
    ],
)
def test_times_of_epochs_are_compared_over_batch_sizes(at_64, key):
    findings = laptop(epoch_times=(epoch_time("train", 1, 8 * S), epoch_time("train", 64, at_64)))
    assert key in keys(findings, "batches")


def test_the_time_of_a_part_of_an_epoch_is_extrapolated():
    eighth = dataclasses.replace(epoch_time("train", 1, 1 * S), samples=180, whole_set=1440)
    findings = laptop(epoch_times=(eighth, epoch_time("train", 64, 1 * S)))
    assert sentence_of(findings, "batches", "epoch_falls").numbers["first"].value == 8 * S


def test_calls_of_operations_are_compared_over_batch_sizes():
    assert (
        sentence_of(laptop(), "batches", "calls_same").numbers["last"].value
        == 1 + 1 + 1 + 1 + 1 + 1 + 1 + 2 + 16
    )
    more_calls = with_operations(
        laptop(), lambda row, size: dataclasses.replace(row, calls=row.calls * size)
    )
    assert "calls_differ" in keys(more_calls, "batches")


# ---- Devices -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one_thread", "key"),
    [
        (5_501 * US, "threads_help"),
        (5_499 * US, "threads_same"),
        (4_546 * US, "threads_same"),
        (4_545 * US, "threads_hurt"),
    ],
)
def test_without_an_accelerator_threads_are_compared(one_thread, key):
    times = [
        iteration_time("step", size, ns, threads=n)
        for size in (1, 64)
        for n, ns in ((2, 5 * MS), (1, one_thread))
    ]
    section_sentences = sentences(laptop(iteration_times=tuple(times)), "devices")
    assert [sentence.key for sentence in section_sentences] == ["no_accelerator", key, key]
    if key != "threads_same":
        assert section_sentences[1].numbers["gain"].value == pytest.approx(
            max(5 * MS, one_thread) / min(5 * MS, one_thread)
        )


@pytest.mark.parametrize(
    ("factors", "key"),
    [
        ((1.11, 9, 17), "speedup_all"),
        ((1.09, 3, 17), "speedup_some"),
        ((0.5, 0.7, 1.09), "speedup_none"),
    ],
)
def test_an_accelerator_is_faster_at_all_some_or_no_batch_sizes(factors, key):
    sentence = sentence_of(faster_gpu(*factors), "devices", key)
    assert sentence.numbers["first"].value == pytest.approx(factors[0])
    assert sentence.numbers["last"].value == pytest.approx(factors[2])
    assert keys(faster_gpu(*factors), "devices").count(key) == 2  # training and testing


@pytest.mark.parametrize(
    ("busy", "key"), [(500 * US, "idle"), (5 * MS, "busy"), (None, "idle_missing")]
)
def test_an_accelerator_is_idle_or_busy(busy, key):
    findings = with_cases(
        cluster(),
        tables=lambda case: tuple(
            dataclasses.replace(table, busy_ns=(busy,) if busy and table.view == "device" else ())
            for table in case.tables
        ),
    )
    assert keys(findings, "devices").count(key) == 2  # smallest and largest batch


def test_the_largest_share_may_move_to_another_operation():
    assert "same_top" in keys(cluster(), "devices")
    moved = with_operations(
        cluster(),
        lambda old, _: (
            taking(old, 9 * S) if old.name == "aten::add" and old.self_ns("cpu") < 5 * US else old
        ),
    )  # only on the accelerator is it that quick
    sentence = sentence_of(moved, "devices", "other_top")
    assert (sentence.words["first"], sentence.words["second"]) == (
        Code("aten::convolution_backward"),
        Code("aten::add"),
    )


# ---- First iterations ----------------------------------------------------------------------------


def starting(**times):
    return laptop(first_iterations=tuple(first_iterations("cpu", "forward", 1, **times)))


def test_the_operation_with_most_of_the_extra_time_of_a_first_iteration_is_named():
    findings = starting(first=20 * MS, warm=1 * MS, trained=21 * MS)
    assert keys(findings, "first_iterations") == ["first_times", "spent_on", "trained_same"]
    assert sentence_of(findings, "first_iterations", "first_times").numbers["times"].value == 20
    spent = sentence_of(findings, "first_iterations", "spent_on")
    assert spent.words["operation"] == Code("aten::mkldnn_convolution")
    assert spent.numbers["cost"].value == 13_500 * US
    assert spent.numbers["extra"].value == 19 * MS


def starting_with(first, warm):
    """The same, with these rows in the untrained process: name -> time."""
    untrained, trained = first_iterations(
        "cpu", "forward", 1, first=20 * MS, warm=1 * MS, trained=20 * MS
    )

    def changed(call, times):
        rows = tuple(row(name, round(ns)) for name, ns in times.items())
        return dataclasses.replace(call, table=dataclasses.replace(call.table, rows=rows))

    cold = changed(untrained.cold, first)
    later = changed(untrained.warm, warm)
    return laptop(first_iterations=(dataclasses.replace(untrained, cold=cold, warm=later), trained))


def test_the_extra_time_of_an_operation_is_a_time_and_no_share():
    """Because another operation takes less, it would have 130 %."""
    findings = starting_with(
        {"aten::conv": 14 * MS, "aten::addmm": 0}, {"aten::conv": 1 * MS, "aten::addmm": 3 * MS}
    )
    spent = sentence_of(findings, "first_iterations", "spent_on")
    assert (spent.numbers["cost"].value, spent.numbers["extra"].value) == (13 * MS, 10 * MS)
    assert {number.kind for number in spent.numbers.values()} == {"time"}


def test_first_iterations_with_untrained_and_trained_weights_are_compared():
    """16 ms and 11 ms are both more than the 10 ms of a later call, but 11 ms is hardly more."""
    for first, trained, key in (
        (16, 11, "trained_differs"),
        (16, 24, "trained_slow"),
        (14, 13, "trained_same_free"),
    ):
        assert (
            keys(
                starting(first=first * MS, warm=10 * MS, trained=trained * MS), "first_iterations"
            )[-1]
            == key
        )
    same = sentence_of(
        starting(first=16 * MS, warm=10 * MS, trained=15 * MS), "first_iterations", "trained_same"
    )
    assert [same.numbers[name].value for name in ("first", "after", "warm")] == [
        16 * MS,
        15 * MS,
        10 * MS,
    ]


@pytest.mark.parametrize(
    ("first_shares", "key"),
    [
        ((0.2, 0.1, 0.6), "spent_outside"),
        ((0.29, 0.1, 0.1), "spent_widely"),
        ((0.31, 0.1, 0.1), "spent_on"),
    ],
)
def test_the_cause_of_a_slow_first_iteration_follows_from_its_operations(first_shares, key):
    times = dict(
        zip(("aten::mkldnn_convolution", "aten::addmm", OUTSIDE), first_shares, strict=True)
    )
    times |= {f"aten::op{number}": (1 - sum(first_shares)) / 10 for number in range(10)}
    findings = starting_with({name: share * 19 * MS for name, share in times.items()}, {})
    assert key in keys(findings, "first_iterations")


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (
            {"first": 20 * MS, "warm": 1 * MS, "trained": None},
            ["first_times", "spent_on", "trained_missing"],
        ),
        (
            {"first": 20 * MS, "warm": 1 * MS, "trained": 5 * MS},
            ["first_times", "spent_on", "trained_slow"],
        ),
        ({"first": 20 * MS, "warm": None, "trained": 21 * MS}, ["first_unknown"]),
        ({"first": 20 * MS, "warm": 0, "trained": 21 * MS}, ["first_unknown"]),
        (
            {"first": 1_499 * US, "warm": 1 * MS, "trained": 1 * MS},
            ["first_times", "trained_differs"],
        ),
        (
            {"first": 740 * US, "warm": 1 * MS, "trained": 750 * US},
            ["first_times", "trained_same_free"],
        ),
        (
            {"first": 1_099 * US, "warm": 1 * MS, "trained": 1 * MS},
            ["first_same", "trained_same_free"],
        ),
    ],
)
def test_missing_and_different_first_iterations_are_named(times, expected):
    assert keys(starting(**times), "first_iterations") == expected


# ---- Profiler, training --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("iteration", "added", "key"),
    [
        (12 * MS, 200 * US, "profiler_adds"),  # 25 calls: 5 of 7 ms
        (12 * MS, 280 * US, "profiler_adds"),  # all of it
        (12 * MS, 320 * US, "profiler_adds_within"),  # 8 of 7 ms
        (12 * MS, 4 * US, "profiler_adds_more"),
        (12 * MS, 0, "profiler_adds_uncounted"),
        (5_100 * US, 4 * US, "profiler_same"),
        (4 * MS, 4 * US, "profiler_quicker"),
    ],
)
def test_time_added_by_the_profiler(iteration, added, key):
    findings = with_cases(
        laptop(iteration_times=(iteration_time("step", 1, 5 * MS),)),
        tables=lambda case: tuple(
            dataclasses.replace(table, iteration_ns=(iteration,), profiler_ns=added)
            for table in case.tables
        ),
    )
    assert keys(findings, "profiler") == [key, "profiler_missing"]  # nothing was timed at batch 64
    assert sentences(findings, "profiler")[0].numbers["times"].value == pytest.approx(
        iteration / (5 * MS)
    )


@pytest.mark.parametrize(
    ("accuracies", "key", "best", "worst"),
    [
        ((98.9, 98.3, 96.4), "trained_falls", 1, 64),
        ((98.9, 98.9, 96.4), "trained_to", 1, 64),
        ((96.4, 98.3, 98.9), "trained_rises", 64, 1),
        # The best is no more than another, and no cause is seen.
        ((96.4, 94.2, 96.4), "trained_to", 1, 16),
        ((94.2, 96.4, 96.2), "trained_to", 16, 1),
    ],
)
def test_accuracies_of_the_batch_sizes_are_compared(accuracies, key, best, worst):
    runs = tuple(
        training("cpu", size, accuracy) for size, accuracy in zip(SIZES, accuracies, strict=True)
    )
    for order in (runs, runs[::-1]):
        sentence = sentence_of(laptop(trainings=order), "training", key)
        assert (sentence.words["best"], sentence.words["worst"]) == (best, worst)
        reached = [sentence.numbers[name].value for name in ("best_accuracy", "worst_accuracy")]
        assert reached == [max(accuracies), min(accuracies)]
        if key != "trained_to":  # 4 epochs of 1,437 samples
            updates = {1: 5748, 16: 360, 64: 92}
            assert [sentence.numbers[f"{name}_updates"].value for name in ("best", "worst")] == [
                updates[best],
                updates[worst],
            ]


# ---- What is missing -----------------------------------------------------------------------------


ONE_THREAD = dataclasses.replace(laptop().environment, threads=1)


@pytest.mark.parametrize(
    ("findings", "section", "expected"),
    [
        (with_cases(laptop(), tables=()), "operations", ["operations_missing"]),
        (with_settings(laptop(), batch_sizes=(16,)), "batches", ["one_batch_size"]),
        (
            with_cases(laptop(iteration_times=(), epoch_times=()), tables=()),
            "batches",
            ["batches_missing", "batches_missing", "epochs_missing", "epochs_missing"],
        ),
        (laptop(environment=ONE_THREAD), "devices", ["no_accelerator", "one_thread"]),
        (
            laptop(iteration_times=()),
            "devices",
            ["no_accelerator", "threads_missing", "threads_missing"],
        ),
        (
            with_settings(cluster(), batch_sizes=(64,)),
            "devices",
            ["speedup_one", "speedup_one"],
        ),
        (cluster(epoch_times=()), "devices", ["speedup_missing", "speedup_missing"]),
        (with_settings(cluster(), devices=("cuda",)), "devices", ["no_cpu"]),
        (laptop(first_iterations=()), "first_iterations", ["first_missing"]),
        (cluster(), "training", ["trained_falls", "trained_alike"]),
        (laptop(trainings=laptop().trainings[:1]), "training", ["trained_one"]),
        (laptop(trainings=()), "training", ["training_missing"]),
    ],
)
def test_what_is_missing_or_cannot_be_compared_is_named(findings, section, expected):
    assert keys(findings, section)[: max(2, len(expected))] == expected
