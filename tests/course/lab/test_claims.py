"""Common claims against made-up machines on which they hold, fail, or cannot be checked."""

import dataclasses

import pytest
from lab_builders import (
    MS,
    SIZES,
    US,
    cluster,
    faster_gpu,
    first_iterations,
    iteration_time,
    laptop,
    queued,
    taking,
    with_operations,
    without_device_view,
    without_numbers,
)

from mnistbench.course.lab.claims import FAILS, HOLDS, PARTLY, UNKNOWN, check
from mnistbench.course.lab.lab_file import DevicePlace
from mnistbench.course.lab.sheets import sheets_of
from mnistbench.course.lab.texts import wording


def claims(findings):
    return tuple(check(findings, sheets_of(findings)))


def claim(findings, key, device=""):
    matching_claims = [
        c
        for c in claims(findings)
        if c.key == key and device in ("", getattr(c.words.get("place"), "device", ""))
    ]
    assert len(matching_claims) == 1
    return matching_claims[0]


def values(figures):
    return [figure.numbers["number"].value for figure in figures]


def times_at(factors, name):
    """Change an operation's self time by a factor per batch size."""
    return lambda row, size: (
        taking(row, row.self_ns("cpu") * factors[size]) if row.name == name else row
    )


def test_every_claim_is_checked_on_each_machine():
    assert [c.key for c in claims(laptop())] == [
        "convolution_most",
        "ratio_gpu",
        "ratio_cpu",
        "negligible",
        "batch_grows",
        "sample_falls",
        "speedup_train",
        "speedup_test",
        "bug_of_the_cluster",
    ]
    devices = [c.words["place"].device for c in claims(cluster()) if "place" in c.words]
    assert devices.count("cpu") == devices.count("cuda") == 5


@pytest.mark.parametrize(
    ("devices", "reason", "keys"),
    [
        (("cpu",), "no_accelerator", ("ratio_gpu", "speedup_train", "speedup_test")),
        (("cuda",), "no_cpu", ("ratio_cpu", "speedup_train", "speedup_test")),
    ],
)
def test_a_claim_about_a_device_that_was_not_measured_is_unknown(devices, reason, keys):
    alone = cluster(settings=dataclasses.replace(cluster().settings, devices=devices))
    for key in keys:
        checked_claim = claim(alone, key)
        assert (
            checked_claim.verdict,
            checked_claim.reason,
            checked_claim.reports,
            checked_claim.right,
        ) == (
            UNKNOWN,
            reason,
            (),
            (),
        )


def test_convolution_has_most_of_the_time_at_all_some_or_no_batch_sizes():
    checked = claim(laptop(), "convolution_most")
    assert checked.verdict == HOLDS
    assert values(checked.reports) == pytest.approx([0.7])  # one image, first call
    assert values(checked.right) == pytest.approx([404 / 564, 2424 / 3114, 9696 / 12096])
    addmm = "aten::addmm"
    assert (
        claim(
            with_operations(laptop(), times_at({1: 9, 16: 1, 64: 1}, addmm)), "convolution_most"
        ).verdict
        == PARTLY
    )
    assert (
        claim(
            with_operations(laptop(), times_at({1: 9, 16: 90, 64: 90}, addmm)), "convolution_most"
        ).verdict
        == FAILS
    )


def test_the_ratio_of_convolution_to_addmm_is_compared_with_published_bounds():
    checked_claim = claim(laptop(), "ratio_cpu")
    assert checked_claim.verdict == PARTLY  # 4.04, 10.1, 16.2
    assert values(checked_claim.reports) == pytest.approx([7.0])
    assert values(checked_claim.right) == pytest.approx([4.04, 10.1, 16.16])
    gpu = claim(cluster(), "ratio_gpu")
    assert (gpu.verdict, values(gpu.right)) == (
        HOLDS,
        pytest.approx([30.3 / 4, 60.6 / 8, 151.5 / 20]),
    )
    assert all("cuda-device" in figure.numbers["number"].over.file for figure in gpu.right)
    slow = with_operations(laptop(), times_at(dict.fromkeys(SIZES, 0.01), "aten::addmm"))
    assert claim(slow, "ratio_cpu").verdict == FAILS


def test_host_times_do_not_decide_a_claim_about_an_accelerator():
    findings = without_device_view(cluster())
    for key in ("convolution_most", "ratio_gpu", "negligible"):
        checked = claim(findings, key, "" if key == "ratio_gpu" else "cuda")
        assert (checked.verdict, checked.reason, checked.right) == (UNKNOWN, "not_measured", ())


@pytest.mark.parametrize(
    ("factor", "verdict"), [(3.49, HOLDS), (2.49, FAILS), (4.49, HOLDS), (4.51, FAILS)]
)
def test_a_figure_that_rounds_into_the_bounds_is_within(factor, verdict):
    def exact(old, _):
        if "conv" in old.name:
            return taking(old, factor * MS) if old.name != "aten::conv2d" else None
        return taking(old, 1 * MS) if old.name == "aten::addmm" else old

    assert claim(with_operations(laptop(), exact), "ratio_cpu").verdict == verdict


def test_small_layers_are_measured_in_training_where_dropout_works():
    checked_claim = claim(laptop(), "negligible")
    assert checked_claim.verdict == FAILS
    # relu1, pool and dropout1, of the forward part of a step; the backward part does not count.
    assert values(checked_claim.right)[0] == pytest.approx(60 / (400 + 4 + 100 + 4 * 20))
    # In inference, the first call on one image.
    assert values(checked_claim.reports) == pytest.approx([0.05])
    small = ("relu1", "pool", "dropout1")
    tiny = with_operations(laptop(), lambda row, _: taking(row, US) if row.module in small else row)
    assert claim(tiny, "negligible").verdict == HOLDS


def stepping(*times):
    return laptop(
        iteration_times=tuple(
            iteration_time("step", size, ns) for size, ns in zip(SIZES, times, strict=True)
        )
    )


@pytest.mark.parametrize(
    ("times", "batch", "sample"),
    [
        ((5 * MS, 20 * MS, 64 * MS), HOLDS, HOLDS),
        ((5 * MS, 5 * MS, 64 * MS), PARTLY, PARTLY),
        ((5 * MS, 5 * MS, 5 * MS), FAILS, HOLDS),
        ((1 * MS, 17 * MS, 80 * MS), HOLDS, FAILS),
        ((1 * MS, 20 * MS, 20 * MS), PARTLY, PARTLY),
    ],
)
def test_times_over_batch_sizes(times, batch, sample):
    assert claim(stepping(*times), "batch_grows").verdict == batch
    assert claim(stepping(*times), "sample_falls").verdict == sample


def test_times_over_batch_sizes_by_first_iterations():
    checked_claim = claim(laptop(), "batch_grows")
    firsts = [20 * MS + size * MS // 8 for size in SIZES]
    assert values(checked_claim.reports) == pytest.approx(
        [firsts[1] / firsts[0], firsts[2] / firsts[1]]
    )
    assert values(claim(laptop(), "sample_falls").reports)[0] == pytest.approx(
        firsts[1] / 16 / firsts[0], rel=1e-4
    )


def test_one_batch_size_gives_no_verdict_over_batch_sizes():
    single_size = laptop(settings=dataclasses.replace(laptop().settings, batch_sizes=(16,)))
    assert (
        claim(single_size, "batch_grows").verdict,
        claim(single_size, "batch_grows").reason,
    ) == (
        UNKNOWN,
        "not_measured",
    )


@pytest.mark.parametrize(
    ("factors", "verdict"), [((15, 17, 20), HOLDS), ((0.9, 3, 17), PARTLY), ((2, 3, 60), FAILS)]
)
def test_the_speedup_of_an_accelerator_is_compared_with_the_bounds_of_the_reports(factors, verdict):
    findings = faster_gpu(*factors)
    for key in ("speedup_train", "speedup_test"):
        assert claim(findings, key).verdict == verdict
        assert values(claim(findings, key).right) == pytest.approx(list(factors))
    [first] = values(claim(findings, "speedup_test").reports)
    # The first call: CUDA is initialised.
    assert first == pytest.approx((20 * MS + MS // 8) / (900 * MS))


@pytest.mark.parametrize(
    ("times", "verdict", "reason"),
    [
        (
            {"first": 20 * MS, "warm": 1 * MS, "trained": 22 * MS},
            FAILS,
            "bug_of_the_cluster_process",
        ),
        (
            {"first": 20 * MS, "warm": 1 * MS, "trained": 4 * MS},
            UNKNOWN,
            "bug_of_the_cluster_unlike",
        ),
        (
            {"first": 20 * MS, "warm": 1 * MS, "trained": 30 * MS},
            UNKNOWN,
            "bug_of_the_cluster_unlike",
        ),
        (
            {"first": 16 * MS, "warm": 10 * MS, "trained": 11 * MS},
            UNKNOWN,
            "bug_of_the_cluster_unlike",
        ),
        ({"first": 20 * MS, "warm": 1 * MS, "trained": None}, UNKNOWN, "bug_of_the_cluster_half"),
        (
            {"first": 1_200 * US, "warm": 1 * MS, "trained": 1 * MS},
            FAILS,
            "bug_of_the_cluster_nothing",
        ),
        ({"first": 20 * MS, "warm": None, "trained": 22 * MS}, UNKNOWN, "not_measured"),
    ],
)
def test_the_slow_first_profile_is_a_fault_only_if_trained_weights_change_it(
    times, verdict, reason
):
    checked_claim = claim(
        laptop(first_iterations=tuple(first_iterations("cpu", "forward", 1, **times))),
        "bug_of_the_cluster",
    )
    assert (checked_claim.verdict, checked_claim.reason) == (verdict, reason)
    assert reason in wording("en")["reason"]
    assert values(checked_claim.reports) == [times["first"]]


def test_a_disturbed_machine_cannot_tell_whether_a_claim_holds():
    quiet = claims(cluster())
    noisy = claims(queued(cluster(), 0.2))
    assert {c.verdict for c in quiet} >= {HOLDS, PARTLY, FAILS}
    assert {(c.verdict, c.reason) for c in noisy} == {(UNKNOWN, "disturbed")}
    assert [(c.reports, c.right) for c in noisy] == [(c.reports, c.right) for c in quiet]


def test_without_numbers_no_verdict_is_given():
    assert {c.verdict for c in claims(without_numbers(laptop()))} == {UNKNOWN}


def test_every_claim_has_a_wording_of_its_reason_for_every_verdict():
    # More than verdicts.
    keys = {claim.key for claim in claims(cluster()) if "low" not in claim.words} - {
        "bug_of_the_cluster"
    }
    keys.add("bounds")
    assert {f"{key}_{verdict}" for key in keys for verdict in (HOLDS, PARTLY, FAILS)} <= set(
        wording("en")["reason"]
    )


def test_a_claim_names_the_place_where_it_was_checked():
    assert claim(cluster(), "negligible", "cuda").words["place"] == DevicePlace("cuda", 8)
