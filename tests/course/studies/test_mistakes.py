"""Mistakes in the options of the studies are one line each."""

import pytest

from mnistbench import cli

OWN = "--images 1x2x6x6 --filters 3x3x3"


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("convolution --output /nowhere/x", "--output: /nowhere/x cannot be written"),
        ("convolution --way magic", "--way: 'magic' is not known"),
        (
            "convolution --images 1x3x32x32",
            "--filters is missing; give --images and --filters together",
        ),
        (
            "convolution --images 1x3x32 --filters 2x5x5",
            "--images: '1x3x32' is not of the form BxCxHxW",
        ),
        (
            "convolution --stride 2",
            "--stride: '2' needs a convolution; give --images and --filters, too",
        ),
        (f"convolution {OWN} --size chapter", "--size: 'chapter' cannot be used with --images"),
        (
            f"convolution {OWN} --way fourier --dtype bfloat16",
            "fourier: cannot compute in bfloat16; it needs float32",
        ),
        (
            "graph --workload resnet",
            "--workload: 'resnet' is not known; choose convnet, lenet5, smallnet, or give",
        ),
        ("graph --workload convnet --size 8", "--size: '8' is for x*y + z"),
        ("graph --batch-size 8", "--batch-size: '8' needs a workload"),
        ("graph --write /dev/null/x", "--write: /dev/null is not a directory"),
        ("graph --device tpu9", "device 'tpu9' is not known"),
        (
            "locality --convolution conv1-b1 --order ijk",
            "--convolution is used by none of the orders",
        ),
        ("locality --tile 8 --order ijk", "--tile is used by none of the orders; add tiled"),
        (
            "locality --l1 32K:128:8 --l2 1M:64:16",
            "--l2: a line of 64 bytes is smaller than one of L1",
        ),
        ("memory --device auto", "--device: 'auto' is not one device; give cpu or cuda"),
        (
            "memory --memory 512",
            "--memory: '512' is not a size; give a number with its unit, such as 512M or 2G",
        ),
    ],
)
def test_a_mistake_is_one_line(words, message, capsys):
    assert cli.main(["study", *words.split()]) == 2
    [error] = capsys.readouterr().err.strip().splitlines()
    assert message in error
