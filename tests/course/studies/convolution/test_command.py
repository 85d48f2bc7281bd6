"""``mnistbench study convolution``: its tables and its formats."""

import json

import pytest

from mnistbench import cli
from mnistbench.course.studies.convolution import measurement
from mnistbench.course.studies.convolution.sizes import GRID
from mnistbench.course.studies.convolution.study import (
    COSTS,
    ConvolutionStudy,
    Settings,
    WayCase,
    WayCost,
    report_of,
)
from mnistbench.events.work.roofline import Ceilings
from mnistbench.showing.output import render


def study():
    """Two ways of one convolution, and one that cannot compute it."""

    def cost(way, flops, n_bytes, seconds, definition=None, **values):
        case = WayCase("chapter", GRID["chapter"], way, "float32")
        return WayCost(
            case,
            Ceilings(150e9, 20e9, "float32"),
            flops,
            definition or flops,
            n_bytes,
            seconds,
            **values,
        )

    costs = (
        cost("fourier", 310_000, 240_000, 53e-6, definition=235_200, error=7.1e-6),
        cost(
            "library",
            235_200,
            19_000,
            70e-6,
            error=6.4e-6,
            bound=3.53e-4,
            algorithm="jit:avx2, 2 reorders",
        ),
        cost("library_backward", 470_400, 38_000, 190e-6, algorithm="PyTorch's own code"),
    )
    refused = (
        (
            "chapter: winograd: cannot compute 1x3x32x32 with 2 filters of 5x5; it needs kernels "
            "of 3x3"
        ),
    )
    return ConvolutionStudy(Settings(), "2.15.0", costs, refused)


@pytest.mark.parametrize(("form", "ending"), [("terminal", "txt"), ("json", "json")])
def test_the_report(form, ending, golden):
    golden(render(report_of(study()), form), f"study_convolution.{ending}")


def test_a_convolution_of_ones_own_is_measured_in_every_way(capsys, monkeypatch):
    monkeypatch.setattr(measurement, "_MEASURED_S", 0.01)
    assert (
        cli.main(
            [
                "study",
                "convolution",
                "--images",
                "1x2x6x6",
                "--filters",
                "3x3x3",
                "--format",
                "json",
            ]
        )
        == 0
    )
    report = json.loads(capsys.readouterr().out)
    costs = {cost["way"]: cost for cost in report["costs"]}
    assert len(costs) == 14
    assert report["refused"] == []
    assert costs["library"]["flops"] == 2 * 3 * 4 * 4 * 2 * 9
    assert costs["winograd"]["flops"] != costs["library"]["flops"]
    assert all(
        cost["error"] <= cost["bound"] for cost in costs.values() if cost["bound"] is not None
    )
    assert all(cost["seconds"] > 0 and cost["of_ceiling"] > 0 for cost in costs.values())
    assert costs["seven_loops"]["seconds"] > costs["library"]["seconds"]


@pytest.mark.parametrize(
    ("flops", "text"), [(1_500, "0.00"), (2_345_000, "2.35"), (4_164_037_904_000, "4,164,038")]
)
def test_large_counts_have_no_decimals(flops, text):
    [column] = [column for column in COSTS if column.heading == "MFLOP"]
    assert column.shown(flops) == text
