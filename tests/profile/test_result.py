"""What is derived of a profiled case, and its JSON."""

import json

import pytest
from profiled_builders import CEILINGS, CONV, RELU, cold_calls, of_two_ranks, on_accelerator, profiled

from mnistbench.core.roofline import Cost
from mnistbench.profile.report import profile_report
from mnistbench.profile.result import Settings


@pytest.mark.parametrize(
    ("flops", "n_bytes", "attainable"),
    [
        (1_000, 1_000, 20e9),  # 1 FLOP/byte: memory allows 20 GFLOP/s
        (5_000, 1_000, 100e9),  # the ridge
        (90_000, 1_000, 100e9),
        (90_000, 0, 100e9),
    ],
)
def test_the_roof_is_memory_below_the_ridge_and_compute_above(flops, n_bytes, attainable):
    assert CEILINGS.attainable(flops, n_bytes) == attainable


def test_flops_of_a_call_are_those_that_a_formula_counts():
    assert profiled().flops == 21_233_664 + 2_359_296
    assert profiled(costs={RELU: Cost(None, 100)}).flops is None
    assert profiled(costs={}).flops is None


def test_model_flop_utilisation_is_by_the_untraced_call():
    found = profiled(costs={CONV: Cost(50_000_000, 1)}, calls_ns=(1_000_000,))
    assert found.utilisation == pytest.approx(0.5)  # 50 GFLOP/s of 100


@pytest.mark.parametrize("lacking", [{"costs": {}}, {"ceilings": None}, {"calls_ns": ()}])
def test_without_one_of_its_parts_there_is_no_utilisation(lacking):
    assert profiled(**lacking).utilisation is None


def test_idle_time_is_the_time_without_a_kernel():
    assert on_accelerator(calls_ns=(1_000,), busy_ns=(250, 250, 900)).idle == 0.75
    assert on_accelerator(calls_ns=(1_000,), busy_ns=(1_100,)).idle == 0.0  # profiled it took longer
    assert profiled().idle is None


def test_the_json_has_every_case_with_its_operations():
    cases = [profiled(16, cold=cold_calls(), trained_steps=20), on_accelerator(), of_two_ranks()]
    found = json.loads(profile_report(cases, Settings()).json)
    assert (found["schema"], found["report"]) == (1, "profile")
    first, _, of_ranks = found["cases"]
    assert [call["first"] for call in first["cold"]] == [True, False, True]
    assert (first["operations"][0]["operation"], first["operations"][0]["flops"]) == (CONV[0], 21_233_664 * 16)
    assert len(of_ranks["ranks"]["step_ns"]) == 2
    assert of_two_ranks().ranks.exposed_ns == 10_400_000 - 8_300_000


def test_the_table_of_a_view():
    both = on_accelerator()
    assert [both.table(view).view for view in ("host", "device")] == ["host", "device"]
    assert profiled().table("device") is None
