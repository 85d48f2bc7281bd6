"""What ``mnistbench profile`` prints, against files in golden/, and the arithmetic behind it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from builders import op_row, op_table
from profiled_builders import (
    CEILINGS,
    CONV,
    FC,
    LAYERS,
    RELU,
    cold_calls,
    of_two_ranks,
    on_accelerator,
    profiled,
    table,
)

from mnistbench.events.work.roofline import Cost, OperationSum
from mnistbench.showing.terminal import draw_report
from mnistbench.suite.profile.report import blocks, profile_report, rows_of, side_by_side
from mnistbench.suite.profile.result import Settings


@pytest.mark.parametrize(
    ("name", "cases", "shown"),
    [
        # In any order: the smallest batch comes first.
        ("cpu", [profiled(16), profiled(1)], Settings()),
        ("accelerator", [on_accelerator()], Settings()),
        ("cold", [profiled(cold=cold_calls(), trained_steps=20)], Settings()),
        (
            "by_module",
            [profiled(1), profiled(16)],
            Settings(by="module", sort="total", memory=True),
        ),
        ("by_op_top_2", [profiled(1)], Settings(by="op", top=2, shapes=True)),
        ("ranks", [of_two_ranks()], Settings()),
        (
            "unknown",
            [profiled(ceilings=None, costs={}, layers=())],
            Settings(sort="calls", min_share=0.0),
        ),
    ],
)
def test_a_report(golden, name, cases, shown):
    golden(draw_report(blocks(cases, shown)) + "\n", f"profile_{name}.txt")


def test_csv_has_every_operation_and_leaves_out_what_is_not_known():
    text = profile_report([profiled(16), on_accelerator()], Settings()).table.csv()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["device"], row["view"]) for row in rows] == [("cpu", "host")] * 4 + [
        ("cuda", "host")
    ] * 2 + [("cuda", "device")] * 2
    conv = rows[0]
    assert (conv["operation"], conv["self_cpu_ns"], conv["flops"]) == (
        CONV[0],
        "12800000",
        str(21_233_664 * 16),
    )
    assert (conv["self_device_ns"], rows[-1]["self_device_ns"]) == ("", "20000")
    # Launching work is not doing it.
    assert [bool(row["of_roof"]) for row in rows[4:]] == [False, False, True, True]
    assert rows[3]["operation"] == "aten::view"
    assert (rows[3]["flops"], rows[3]["bytes"], rows[3]["of_roof"]) == ("", "", "")


@pytest.mark.parametrize(
    ("cost", "ns", "share"),
    [
        (Cost(50_000_000, 1_000_000), 1_000_000, 0.5),  # 50 FLOP/byte, 50 of 100 GFLOP/s
        # 1 FLOP/byte: 10 of the 20 GFLOP/s that memory allows.
        (Cost(1_000_000, 1_000_000), 100_000, 0.5),
        (Cost(5_000_000, 1_000_000), 100_000, 0.5),  # 5 FLOP/byte, the ridge: 50 of 100 GFLOP/s
        (Cost(50_000_000, 0), 1_000_000, 0.5),
        (Cost(None, 20_000_000), 2_000_000, 0.5),  # 10 of 20 GB/s
        (Cost(None, 20_000_000), 500_000, 2.0),  # from a cache
        (Cost(1, 1), 0, None),
        (None, 1_000, None),
    ],
)
def test_of_roof(cost, ns, share):
    times = {"self_cpu_ns": ns, "total_cpu_ns": ns, "self_device_ns": None}
    of_roof = OperationSum(key=CONV, calls=1, **times, cost=cost, ceilings=CEILINGS).of_roof
    assert of_roof == (None if share is None else pytest.approx(share))


def plots(case):
    return [block.drawing for block in blocks([case], Settings()) if block.drawing]


def test_a_roofline_needs_ceilings_flops_and_work_of_the_device():
    host = on_accelerator().tables[0]  # it launches the work only
    for case in (
        profiled(ceilings=None),
        profiled(costs={RELU: Cost(None, 5)}),
        on_accelerator(tables=(host,)),
    ):
        assert plots(case) == []
    assert len(plots(on_accelerator())) == 1


def test_a_point_of_the_roofline_is_below_the_roof():
    lines = plots(profiled())[0].split("\n")
    drawn = [line.partition("|")[2] for line in lines if "|" in line]
    column = {mark: next(line.index(mark) for line in drawn if mark in line) for mark in "ab"}
    height = {mark: next(row for row, line in enumerate(drawn) if mark in line) for mark in "ab"}
    assert column["a"] > column["b"]  # the convolution has more FLOPs per byte
    roof = next(row for row, line in enumerate(drawn) if "-" in line)
    assert roof < height["a"] < height["b"]  # 26.5 and 18.9 GFLOP/s, below 100
    assert "compute limit" in next(line for line in lines if line.startswith("a "))
    assert "memory limit" in next(line for line in lines if line.startswith("b "))


def test_modules_sum_their_operations_and_their_costs():
    case = profiled()
    module_rows, op_rows, op_module_rows = (
        rows_of(case, case.tables[0], by) for by in ("module", "op", "op,module")
    )
    assert module_rows["", "forward", "fc1"].cost == case.costs[FC]
    assert op_rows[CONV[0], "", ""].self_cpu_ns == 800_000
    assert op_module_rows[CONV].total_cpu_ns == 820_000
    # Operations of a module call each other, so its total is the sum of self times.
    assert module_rows["", "forward", "conv2"].total_cpu_ns == 800_000


def test_an_operation_that_a_batch_size_lacks_is_missing_not_zero():
    lacking = profiled(16, tables=(replace(table(16), rows=table(16).rows[1:]),))
    drawn = side_by_side([profiled(1), lacking], "host", Settings())
    conv = next(row for row in drawn.cells if row[0] == CONV[0])
    assert conv[-2:] == ["-", "-"]


def test_names_of_modules_are_printable():
    evil = profiled(layers=(replace(LAYERS[0], name="a\x1b[31m\nb"),))
    assert "\x1b" not in draw_report(blocks([evil], Settings()))


def test_operations_at_one_point_of_the_roofline_are_listed_together():
    costs = {key: Cost(21_233_664, 240_000) for key in (CONV, FC)}
    case = profiled(
        costs=costs, tables=(op_table(*(op_row(key[0], 800_000, module=key[2]) for key in costs)),)
    )
    drawn = plots(case)[0].split("\n")
    assert any("ab" in line for line in drawn if "|" in line)


def test_flops_of_a_call_are_those_that_a_formula_counts():
    assert profiled().flops == 21_233_664 + 2_359_296
    assert profiled(costs={RELU: Cost(None, 100)}).flops is None
    assert profiled(costs={}).flops is None


def test_model_flop_utilisation_is_by_the_untraced_call():
    profiled_case = profiled(costs={CONV: Cost(50_000_000, 1)}, calls_ns=(1_000_000,))
    assert profiled_case.utilisation == pytest.approx(0.5)  # 50 GFLOP/s of 100


@pytest.mark.parametrize("lacking", [{"costs": {}}, {"ceilings": None}, {"calls_ns": ()}])
def test_without_one_of_its_parts_there_is_no_utilisation(lacking):
    assert profiled(**lacking).utilisation is None


def test_idle_time_is_the_time_without_a_kernel():
    assert on_accelerator(calls_ns=(1_000,), busy_ns=(250, 250, 900)).idle == 0.75
    # Profiled it took longer.
    assert on_accelerator(calls_ns=(1_000,), busy_ns=(1_100,)).idle == 0.0
    assert profiled().idle is None


def test_the_json_has_every_case_with_its_operations():
    cases = [profiled(16, cold=cold_calls(), trained_steps=20), on_accelerator(), of_two_ranks()]
    report = json.loads(profile_report(cases, Settings()).json)
    assert (report["schema"], report["report"]) == (1, "profile")
    first, _, distributed = report["cases"]
    assert [call["first"] for call in first["cold"]] == [True, False, True]
    assert (first["operations"][0]["operation"], first["operations"][0]["flops"]) == (
        CONV[0],
        21_233_664 * 16,
    )
    assert len(distributed["ranks"]["step_ns"]) == 2
    assert of_two_ranks().ranks.exposed_ns == 10_400_000 - 8_300_000
