"""The claims of the field's reports against made-up machines that bear them out, refute them, or cannot say."""

import dataclasses

import pytest
from lab_builders import (
    MS,
    SIZES,
    US,
    S,
    call_time,
    cluster,
    epoch_time,
    first_calls,
    laptop,
    with_operations,
    without_device_view,
)

from mnistbench.course.lab.claims import FAILS, HOLDS, PARTLY, UNKNOWN, check
from mnistbench.course.lab.explain import Place
from mnistbench.course.lab.sheets import sheets_of
from mnistbench.course.lab.texts import LANGUAGES, Texts


def claims(findings):
    return check(findings, sheets_of(findings))


def claim(findings, key, device=""):
    found = [c for c in claims(findings) if c.key == key and device in ("", getattr(c.words.get("place"), "device", ""))]
    assert len(found) == 1
    return found[0]


def values(figures):
    return [figure.number.value for figure in figures]


def times_at(factors, name):
    """Change an operation's self time by a factor per batch size."""
    return lambda row, size: dataclasses.replace(row, self_ns=round(row.self_ns * factors[size])) if row.name == name else row


def test_every_claim_of_the_field_is_checked_on_each_machine():
    assert [c.key for c in claims(laptop())] == [
        "convolution_most", "ratio_gpu", "ratio_cpu", "negligible", "batch_grows", "sample_falls", "speedup_train",
        "speedup_test", "bug_of_the_cluster",
    ]  # fmt: skip
    devices = [c.words["place"].device for c in claims(cluster()) if "place" in c.words]
    assert devices.count("cpu") == devices.count("cuda") == 5


def test_a_claim_about_a_gpu_cannot_be_checked_without_one():
    for key in ("ratio_gpu", "speedup_train", "speedup_test"):
        found = claim(laptop(), key)
        assert (found.verdict, found.reason, found.reports, found.right) == (UNKNOWN, "no_accelerator", (), ())


def test_a_claim_about_a_cpu_cannot_be_checked_without_one():
    alone = cluster(settings=dataclasses.replace(cluster().settings, devices=("cuda",)))
    for key in ("ratio_cpu", "speedup_train", "speedup_test"):
        assert (claim(alone, key).verdict, claim(alone, key).reason) == (UNKNOWN, "no_cpu")


def test_convolution_is_most_everywhere_somewhere_or_nowhere():
    checked = claim(laptop(), "convolution_most")
    assert checked.verdict == HOLDS
    assert values(checked.reports) == pytest.approx([0.7])  # one image, first call
    assert values(checked.right) == pytest.approx([404 / 564, 2424 / 3114, 9696 / 12096])
    addmm = "aten::addmm"
    assert claim(with_operations(laptop(), times_at({1: 9, 16: 1, 64: 1}, addmm)), "convolution_most").verdict == PARTLY
    assert claim(with_operations(laptop(), times_at({1: 9, 16: 90, 64: 90}, addmm)), "convolution_most").verdict == FAILS


def test_convolution_over_addmm_is_held_against_the_bounds_of_the_reports():
    found = claim(laptop(), "ratio_cpu")
    assert found.verdict == PARTLY  # 4.04, 10.1, 16.2
    assert values(found.reports) == pytest.approx([7.0])
    assert values(found.right) == pytest.approx([4.04, 10.1, 16.16])
    gpu = claim(cluster(), "ratio_gpu")
    assert (gpu.verdict, values(gpu.right)) == (HOLDS, pytest.approx([30.3 / 4, 60.6 / 8, 151.5 / 20]))
    assert all("cuda-device" in figure.number.over.file for figure in gpu.right)
    slow = with_operations(laptop(), times_at(dict.fromkeys(SIZES, 0.01), "aten::addmm"))
    assert claim(slow, "ratio_cpu").verdict == FAILS


def test_a_host_s_table_says_nothing_about_an_accelerator():
    found = without_device_view(cluster())
    for key in ("convolution_most", "ratio_gpu", "negligible"):
        checked = claim(found, key, "" if key == "ratio_gpu" else "cuda")
        assert (checked.verdict, checked.reason, checked.right) == (UNKNOWN, "not_measured", ())


@pytest.mark.parametrize(("factor", "verdict"), [(3.49, HOLDS), (2.49, FAILS), (4.49, HOLDS), (4.51, FAILS)])
def test_a_figure_that_rounds_into_the_bounds_is_within(factor, verdict):
    def exact(row, _):
        if "conv" in row.name:
            return dataclasses.replace(row, self_ns=round(factor * MS)) if row.name != "aten::conv2d" else None
        return dataclasses.replace(row, self_ns=1 * MS) if row.name == "aten::addmm" else row

    assert claim(with_operations(laptop(), exact), "ratio_cpu").verdict == verdict


def test_small_layers_are_measured_where_dropout_works():
    found = claim(laptop(), "negligible")
    assert found.verdict == FAILS
    # relu1, pool and dropout1, of the forward part of a step; the backward part does not count.
    assert values(found.right)[0] == pytest.approx(60 / (400 + 4 + 100 + 4 * 20))
    assert values(found.reports) == pytest.approx([0.05])  # in inference, the first call on one image
    tiny = with_operations(
        laptop(),
        lambda row, _: dataclasses.replace(row, self_ns=US) if row.module in ("relu1", "pool", "dropout1") else row,
    )
    assert claim(tiny, "negligible").verdict == HOLDS


def stepping(*times):
    return laptop(call_times=tuple(call_time("step", size, ns) for size, ns in zip(SIZES, times, strict=True)))


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


def test_times_over_batch_sizes_by_first_calls_too():
    found = claim(laptop(), "batch_grows")
    firsts = [20 * MS + size * MS // 8 for size in SIZES]
    assert values(found.reports) == pytest.approx([firsts[1] / firsts[0], firsts[2] / firsts[1]])
    assert values(claim(laptop(), "sample_falls").reports)[0] == pytest.approx(firsts[1] / 16 / firsts[0], rel=1e-4)


def test_one_batch_size_cannot_show_how_times_move():
    one = laptop(settings=dataclasses.replace(laptop().settings, batch_sizes=(16,)))
    assert (claim(one, "batch_grows").verdict, claim(one, "batch_grows").reason) == (UNKNOWN, "not_measured")


@pytest.mark.parametrize(("factors", "verdict"), [((15, 17, 20), HOLDS), ((0.9, 3, 17), PARTLY), ((2, 3, 60), FAILS)])
def test_how_much_faster_an_accelerator_is(factors, verdict):
    times = [
        epoch_time(phase, size, round(ns), threads=8, device=device)
        for size, factor in zip(SIZES, factors, strict=True)
        for phase in ("train", "eval")
        for device, ns in (("cpu", 10 * S), ("cuda", 10 * S / factor))
    ]
    found = cluster(epoch_times=tuple(times))
    for key in ("speedup_train", "speedup_test"):
        assert claim(found, key).verdict == verdict
        assert values(claim(found, key).right) == pytest.approx(list(factors))
    first = claim(found, "speedup_test").reports[0]
    assert first.number.value == pytest.approx((20 * MS + MS // 8) / (900 * MS))  # the first call: CUDA is initialised


@pytest.mark.parametrize(
    ("times", "verdict", "reason"),
    [
        ({"first": 20 * MS, "warm": 1 * MS, "trained": 22 * MS}, FAILS, "bug_of_the_cluster_process"),
        ({"first": 20 * MS, "warm": 1 * MS, "trained": 4 * MS}, UNKNOWN, "bug_of_the_cluster_unlike"),
        ({"first": 20 * MS, "warm": 1 * MS, "trained": 30 * MS}, UNKNOWN, "bug_of_the_cluster_unlike"),
        ({"first": 16 * MS, "warm": 10 * MS, "trained": 11 * MS}, UNKNOWN, "bug_of_the_cluster_unlike"),
        ({"first": 20 * MS, "warm": 1 * MS, "trained": None}, UNKNOWN, "bug_of_the_cluster_half"),
        ({"first": 1_200 * US, "warm": 1 * MS, "trained": 1 * MS}, FAILS, "bug_of_the_cluster_nothing"),
        ({"first": 20 * MS, "warm": None, "trained": 22 * MS}, UNKNOWN, "not_measured"),
    ],
)
def test_whether_the_profile_before_training_is_a_bug(times, verdict, reason):
    found = claim(laptop(first_calls=tuple(first_calls("cpu", "forward", 1, **times))), "bug_of_the_cluster")
    assert (found.verdict, found.reason) == (verdict, reason)
    assert values(found.reports) == [times["first"]]


def test_without_numbers_no_verdict_is_given():
    empty = laptop(operations=(), call_times=(), epoch_times=(), first_calls=(), ceilings=())
    assert {c.verdict for c in claims(empty)} == {UNKNOWN}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_claim_verdict_reason_and_figure_has_a_wording(language):
    texts = Texts(language)
    for found in (laptop(), cluster(), laptop(operations=(), first_calls=(), call_times=())):
        for checked in claims(found):
            assert texts.cited("claim", checked.key, checked.words, None)
            assert texts.plain("verdict", checked.verdict)
            assert texts.plain("reason", checked.reason)
            for figure in (*checked.reports, *checked.right):
                assert texts.cited("figures_of_claims", figure.key, {"number": figure.number, **figure.words}, None)
    for key in ("convolution_most", "ratio_gpu", "ratio_cpu", "negligible", "batch_grows", "sample_falls", "speedup_train",
                "speedup_test"):  # fmt: skip
        for verdict in (HOLDS, PARTLY, FAILS):
            assert texts.plain("reason", f"{key}_{verdict}")


def test_places_say_where_a_claim_was_checked():
    assert claim(cluster(), "negligible", "cuda").words["place"] == Place("cuda", 8)
