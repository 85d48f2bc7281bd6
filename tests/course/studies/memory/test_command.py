"""``mnistbench study memory``: its tables and its formats."""

import csv
import io
import json
from dataclasses import replace

import pytest

from mnistbench import cli
from mnistbench.course.studies.memory.study import (
    LargestBatch,
    LayerMemory,
    MemoryCase,
    MemoryStudy,
    Peak,
    Settings,
    Site,
    report_of,
    size,
)
from mnistbench.showing.output import render

MEMORY = ("study", "memory")
TINY = (*MEMORY, "--model", "lenet5", "--batch-size", "1", "--phase", "forward")


def study():
    """A forward pass and two steps, and three largest batches.

    The larger step is shown layer by layer.
    """
    convolution = Site("conv1", "forward", "aten::convolution")
    library = Site("conv1", "forward", "aten::mkldnn_convolution")
    update = Site("(optimizer)", "optimizer", "aten::add")
    layers = (
        LayerMemory(
            "conv1",
            "Conv2d",
            input=200_704,
            output=5_537_792,
            weight=1_280,
            peak=16_000_000,
            measured_peak=16_100_000,
        ),
        LayerMemory("flatten", "Flatten", input=5_537_792),
    )
    step_layers = (
        LayerMemory(
            "fc1",
            "Linear",
            32_768,
            2_560,
            4_719_104,
            4_719_104,
            9_438_216,
            2_359_296,
            50_000_000,
            50_000_192,
        ),
        LayerMemory("(optimizer)", "", peak=30_000_000, measured_peak=29_000_000),
    )

    def case(phase, batch_size, predicted, measured, held, sites, layers):
        peaks = (
            Peak(n_bytes, held, site)
            for n_bytes, site in zip((predicted, measured), sites, strict=True)
        )
        return MemoryCase("convnet", phase, batch_size, *peaks, layers)

    cases = (
        case("forward", 64, 16_000_000, 16_100_000, 5_000_000, (convolution, library), layers),
        case("step", 16, 27_000_000, 27_000_012, 19_000_000, (update, Site()), ()),
        case("step", 64, 50_000_000, 50_000_192, 20_000_000, (update, Site()), step_layers),
    )
    forward, step = (
        LargestBatch("convnet", phase, 2**31, size, 2_147_000_000)
        for phase, size in (("forward", 5_600), ("step", 3_700))
    )
    largest = (
        replace(forward, tried=5_600, measured=2_146_000_000),
        replace(step, tried=3_700, measured=2_147_000_000),
        replace(step, tried=3_885),
        LargestBatch(
            "lenet5", "step", 2**40, 15_000_000, 2**40 - 7, reason="21.8 GiB are available"
        ),
    )
    return MemoryStudy(Settings(), "2.15.0", cases, largest)


@pytest.mark.parametrize(("form", "ending"), [("terminal", "txt"), ("json", "json")])
def test_the_report(form, ending, golden):
    golden(render(report_of(study()), form), f"study_memory.{ending}")


def test_without_measured_layers_their_column_is_left_out():
    first, *_ = study().cases
    unmeasured = replace(
        first, layers=tuple(replace(layer, measured_peak=None) for layer in first.layers)
    )
    [table, *_] = report_of(replace(study(), cases=(unmeasured,))).blocks[0].tables
    assert "live peak, predicted" in table.headings
    assert "measured" not in table.headings


def test_a_row_of_the_csv_for_each_layer_and_each_case():
    rows = list(csv.DictReader(io.StringIO(render(report_of(study()), "csv"))))
    layers = ["conv1", "flatten", "all layers", "all layers", "fc1", "(optimizer)", "all layers"]
    assert [row["layer"] for row in rows] == layers
    assert [row["measured_peak_bytes"] for row in rows if row["layer"] == "all layers"] == [
        "16100000",
        "27000012",
        "50000192",
    ]


@pytest.mark.usefixtures("torch")
def test_a_network_is_predicted_measured_and_fitted(capsys):
    assert cli.main([*TINY, "--memory", "1M", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    [case] = report["cases"]
    [largest] = report["largest"]
    weights = 61_706 * 4
    assert [
        layer["weight_bytes"] for layer in report["layers"] if layer["layer"] == "all layers"
    ] == [weights]
    assert case["held_bytes"] == weights + 28 * 28 * 4
    assert case["predicted_peak_bytes"] > case["held_bytes"]
    assert largest["predicted_peak_bytes"] <= largest["memory_bytes"] == 2**20
    assert largest["tried_batch_size"] == largest["largest_batch_size"]


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("512M", 512 * 2**20), ("2G", 2**31), ("1.5GiB", 3 * 2**29), ("64 kb", 2**16), ("1T", 2**40)],
)
def test_a_size_has_a_binary_unit(text, n_bytes):
    assert size(text) == n_bytes


@pytest.mark.parametrize("text", ["0.0000001K", "-1G", "G"])
def test_a_size_is_at_least_one_byte(text):
    with pytest.raises(ValueError, match="is not a size"):
        size(text)
