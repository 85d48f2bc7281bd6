"""``mnistbench study locality``: its figure and tables, its formats and its times."""

import csv
import io
import json
import sys

import numpy as np
import pytest

from mnistbench import cli
from mnistbench.course.studies.locality.caches import Cache, Caches
from mnistbench.course.studies.locality.nests import ORDERS, product
from mnistbench.course.studies.locality.study import (
    CacheCounts,
    Computation,
    LocalityStudy,
    NestResult,
    report_of,
)
from mnistbench.showing.output import render

TINY = (
    "study",
    "locality",
    "--size",
    "8",
    "--convolution",
    "chapter",
    "--l1",
    "512:64:2",
    "--l2",
    "4K:64:4",
    "--tile",
    "4",
)


def of(order, ns, in_l1_ns, l1_misses, l2_misses=3_072):
    """A nest whose rounds differ by a hundredth."""
    arrays = {
        "a": CacheCounts(3_153_920, l1_misses // 2, 1_024),
        "b": CacheCounts(3_153_920, l1_misses - l1_misses // 2, l2_misses - 1_024),
    }
    return NestResult(
        order,
        2_097_152,
        arrays,
        tuple(ns * factor for factor in (1.0, 1.01, 0.99)) if ns else (),
        in_l1_ns,
    )


def study(*, timed=True):
    """Products, of which some are slower than their misses let one expect."""
    l1 = Cache(48 * 1024, 64, 12, "/sys/index0")
    l2 = Cache(2 * 1024**2, 64, 16, "--l2")
    nests = (
        of("ijk", 0.66, 0.41, 2_131_472),
        of("kij", 0.08, 0.06, 148_480),
        of("jki", 1.84, 0.38, 4_210_688),
        of("kji", 2.50, 0.38, 4_210_688, l2_misses=1_000_000),
        of("jik", 0.70, 0.40, 133_000),
        of("tiled", 0.07, 0.08, 6_136),
        of("ikj", 0.10, None, 90_000),
    )
    if not timed:
        nests = tuple(NestResult(nest.order, nest.multiply_adds, nest.arrays) for nest in nests)
    computation = Computation(
        "product-128", "product of 128x128 matrices, tiles of 64x64", 196_608, 3_072, nests
    )
    return LocalityStudy(Caches(l1, l2), "0.68.1" if timed else "", (computation,))


@pytest.mark.parametrize(("form", "ending"), [("terminal", "txt"), ("json", "json")])
def test_the_report(form, ending, golden):
    golden(render(report_of(study()), form), f"study_locality.{ending}")


def test_without_times_the_report_says_how_to_get_them(golden):
    golden(render(report_of(study(timed=False)), "terminal"), "study_locality_without_times.txt")


@pytest.mark.usefixtures("torch")
def test_without_numba_misses_are_counted_and_there_are_no_times(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert cli.main([*TINY, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["numba"] is None
    assert [problem["name"] for problem in report["problems"]] == ["product-8", "chapter"]
    assert [nest["order"] for nest in report["nests"]] == list(ORDERS)
    lines = {problem["name"]: problem["lines"] for problem in report["problems"]}
    for nest in report["nests"]:
        assert nest["accesses"] == nest["l1_hits"] + nest["l1_misses"]
        assert nest["l1_misses"] == nest["l2_hits"] + nest["l2_misses"]
        assert nest["l1_misses"] >= lines[nest["problem"]]
        assert nest["l1_misses"] == sum(of["l1_misses"] for of in nest["arrays"].values())
        assert (
            nest["ns_per_multiply_add"]
            is nest["ns_per_multiply_add_in_l1"]
            is nest["rank_by_time"]
            is None
        )


def test_orders_are_timed_where_numba_is_installed(capsys):
    pytest.importorskip("numba", reason="numba is an optional package")
    assert cli.main(["study", "locality", "--size", "8", "--order", "ijk", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["problem"], row["order"]) for row in rows] == [("product-8", "ijk")]
    assert all(
        float(row["ns_per_multiply_add"]) > 0 and float(row["ns_per_multiply_add_in_l1"]) > 0
        for row in rows
    )


def test_compiled_loops_compute_the_product():
    pytest.importorskip("numba", reason="numba is an optional package")
    from mnistbench.course.studies.locality.compiled import arrays_of, call_of, rounds_ns

    nest = product("tiled", 9, 21, 10, 4)
    a, b, c = arrays = arrays_of(nest, 64)
    assert [array.ctypes.data % 64 for array in arrays] == [0, 0, 0]
    assert a.ctypes.data % 4096 == 0
    call_of(nest, arrays)(3)
    np.testing.assert_allclose(c, 3 * (a @ b), rtol=1e-5)
    times = rounds_ns([nest, product("tiled", 4, 4, 4, 2)], 64, 3)
    assert [len(nest_times) for nest_times in times] == [3, 3]
    assert min(min(nest_times) for nest_times in times) > 0


@pytest.mark.usefixtures("torch")
def test_what_takes_too_long_in_python_is_refused(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert cli.main(["study", "locality", "--size", "129"]) == 2
    [error] = capsys.readouterr().err.strip().splitlines()
    assert "product-129: 2,146,689 multiply-adds are too many" in error
    assert "pip install 'mnistbench[fast]'" in error
