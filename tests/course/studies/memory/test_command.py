"""``mnistbench study memory``: its tables, its formats, and the mistakes that a user can make."""

import csv
import io
import json

import pytest

from mnistbench import cli
from mnistbench.course.studies.memory.report import blocks
from mnistbench.course.studies.memory.result import Case, Largest, Layer, Peak, Place, Study, Tried, csv_rows, dumps
from mnistbench.showing.markdown import markdown_report
from mnistbench.showing.table import csv_text
from mnistbench.showing.terminal import draw_report

MEMORY = ("study", "memory")
TINY = (*MEMORY, "--model", "lenet5", "--batch-size", "1", "--phase", "forward")


def study(device="cpu"):
    """A forward pass and two steps, of which the larger one is shown layer by layer, and three largest batches."""
    on_cpu = device == "cpu"
    convolution = Place("conv1", "forward", "aten::convolution")
    library = Place("conv1", "forward", "aten::mkldnn_convolution") if on_cpu else Place()
    update = Place("(optimizer)", "optimizer", "aten::add")
    layers = (
        Layer("conv1", "Conv2d", input=200_704, output=5_537_792, weight=1_280, peak=16_000_000, measured_peak=16_100_000),
        Layer("flatten", "Flatten", input=5_537_792),
    )
    of_step = (
        Layer("fc1", "Linear", 32_768, 2_560, 4_719_104, 4_719_104, 9_438_216, 2_359_296, 50_000_000, 50_000_192),
        Layer("(optimizer)", "", peak=30_000_000, measured_peak=29_000_000),
    )
    if not on_cpu:
        layers, of_step = ([Layer(**{**vars(layer), "measured_peak": None}) for layer in each] for each in (layers, of_step))
    cases = (
        Case(
            "convnet",
            "forward",
            64,
            Peak(16_000_000, 5_000_000, convolution),
            Peak(16_100_000, 5_000_000, library),
            tuple(layers),
        ),
        Case("convnet", "step", 16, Peak(27_000_000, 19_000_000, update), Peak(27_000_012, 19_000_000, Place()), ()),
        Case(
            "convnet", "step", 64, Peak(50_000_000, 20_000_000, update), Peak(50_000_192, 20_000_000, Place()), tuple(of_step)
        ),
    )
    largest = (
        Largest("convnet", "forward", 2**31, 5_600, 2_147_000_000, (Tried(5_600, fits=True, n_bytes=2_146_000_000),)),
        Largest("convnet", "step", 2**31, 3_700, 2_147_000_000, (Tried(3_700, True, 2_147_000_000), Tried(3_885, False, None))),
        Largest("lenet5", "step", 2**40, 15_000_000, 2**40 - 7, reason="21.8 GiB are available"),
    )
    return Study(device, 1, "2.15.0", cases, largest)


def test_the_report(golden):
    golden(draw_report(blocks(study())) + "\n", "study_memory.txt")
    golden(markdown_report(blocks(study()), "memory of a network"), "study_memory.markdown")
    golden(dumps(study()), "study_memory.json")


def test_without_measured_layers_their_column_is_left_out():
    [table, *_] = blocks(study("cuda:1"))[0].tables
    assert "measured" not in table.headers
    assert {len(row) for row in (*table.rows, *table.sums)} == {len(table.headers)}


def test_a_row_of_the_csv_for_each_layer_and_each_case():
    rows = list(csv.DictReader(io.StringIO(csv_text(["a", "b", "c", "name", "kind", *"defghijk"], csv_rows(study())))))
    assert [row["name"] for row in rows] == ["conv1", "flatten", "", "", "fc1", "(optimizer)", ""]


def test_a_network_is_predicted_measured_and_fitted(capsys):
    assert cli.main([*TINY, "--memory", "1M", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    [case], [largest] = found["cases"], found["largest"]
    weights = 61_706 * 4
    assert sum(layer["weight"] for layer in case["layers"]) == weights
    assert case["predicted"]["held"] == case["measured"]["held"] == weights + 28 * 28 * 4
    assert case["predicted"]["n_bytes"] > case["predicted"]["held"]
    assert largest["predicted"] <= largest["memory"] == 2**20
    assert [tried["batch_size"] for tried in largest["tried"]] == [largest["batch_size"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "alexnet"), "--model: 'alexnet' is not known; choose convnet or lenet5"),
        (("--model", "convnet,"), "--model: 'convnet,' has an empty entry"),
        (("--batch-size", "0"), "--batch-size: '0' cannot be used"),
        (("--batch-size", "1000000000"), "--batch-size: 1000000000 needs"),
        (("--phase", "epoch"), "--phase: 'epoch' is not known"),
        (("--device", "gpu"), "device 'gpu' is not known"),
        (("--device", "cpu,cuda"), "--device: 'cpu,cuda' is not one device; give cpu or cuda"),
        (("--device", "auto"), "--device: 'auto' is not one device; give cpu or cuda"),
        (("--threads", "0"), "--threads: '0' cannot be used"),
        (("--memory", "512"), "--memory: '512' is not a size; give a number with its unit, such as 512M or 2G"),
        (("--memory", ""), "--memory: '' is not a size"),
        (("--memory", "0.0000001K"), "--memory: '0.0000001K' is not a size"),
        (("--memory", "-1G"), "--memory: '-1G' is not a size"),
        (("--output", " "), "--output: ' ' is no value"),
        (("--output", "/nowhere/to/be/found.txt"), "/nowhere/to/be/found.txt"),
    ],
)
def test_a_mistake_is_one_line(arguments, said, capsys):
    flag, value = arguments
    assert cli.main([*MEMORY, f"{flag}={value}"]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    assert said in error[0]


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("512M", 512 * 2**20), ("2G", 2**31), ("1.5GiB", 3 * 2**29), ("64 kb", 2**16), ("1T", 2**40)],
)
def test_a_size_has_a_binary_unit(text, n_bytes):
    from mnistbench.course.studies.memory.command import _memory

    assert _memory(text) == n_bytes
