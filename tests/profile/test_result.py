"""What is derived of a profiled case, and its JSON."""

import json

import pytest
from profiled_builders import CEILINGS, CONV, RELU, cold_calls, of_two_ranks, on_accelerator, profiled

from mnistbench.core.errors import RecordError
from mnistbench.core.record import SCHEMA
from mnistbench.core.roofline import Cost
from mnistbench.profile.result import dumps, loads


@pytest.mark.parametrize(
    ("flops", "n_bytes", "attainable"),
    [
        (1_000, 1_000, 20e9),  # 1 FLOP/byte: memory allows 20 GFLOP/s
        (5_000, 1_000, 100e9),  # the ridge
        (90_000, 1_000, 100e9),
        (90_000, 0, 100e9),
    ],
)
def test_the_roof_is_memory_s_below_the_ridge_and_the_processor_s_above(flops, n_bytes, attainable):
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


def test_an_accelerator_idles_for_what_no_kernel_covers_of_the_untraced_call():
    assert on_accelerator(calls_ns=(1_000,), busy_ns=(250, 250, 900)).idle == 0.75
    assert on_accelerator(calls_ns=(1_000,), busy_ns=(1_100,)).idle == 0.0  # profiled it took longer
    assert profiled().idle is None


def test_only_ranks_have_times_of_ranks():
    cases = json.loads(dumps([profiled(), of_two_ranks()]))["cases"]
    assert "ranks" not in cases[0]
    assert cases[1]["ranks"]["world_size"] == 2
    assert of_two_ranks().ranks.exposed_ns == 10_400_000 - 8_300_000


def test_it_is_read_as_it_was_written():
    cases = [
        profiled(16, cold=cold_calls(), trained_steps=20),
        on_accelerator(),
        profiled(ceilings=None, layers=()),
        of_two_ranks(),
    ]
    assert loads(dumps(cases), "lab.json") == cases


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda data: data.update(schema=SCHEMA + 1), "schema: 2 is newer"),
        (lambda data: data.update(schema="1"), "schema: '1' is not"),
        (lambda data: data["cases"][0].pop("layers"), "cases[0].layers: is missing"),
        (lambda data: data["cases"][0]["costs"][0].pop(), "cases[0].costs[0]: needs operation, phase, module, FLOPs"),
        (
            lambda data: data["cases"][0]["ceilings"].update(flops_per_s=0),
            "cases[0].ceilings.flops_per_s: needs a rate",
        ),
        (lambda data: data["cases"][0].update(calls_ns=[-1]), "cases[0].calls_ns[0]: needs a time of at least 0 ns"),
    ],
)
def test_a_spoiled_file_is_named_with_the_field(spoil, complaint):
    data = json.loads(dumps([profiled()]))
    spoil(data)
    with pytest.raises(RecordError) as error:
        loads(json.dumps(data), "profile.json")
    assert str(error.value).startswith(f"profile.json: {complaint}")


def test_what_is_no_json_is_said():
    with pytest.raises(RecordError, match=r"^p\.json: is not JSON"):
        loads("{", "p.json")


def test_the_table_of_a_view():
    both = on_accelerator()
    assert [both.table(view).view for view in ("host", "device")] == ["host", "device"]
    assert profiled().table("device") is None
