"""How long does a batch take until it is on the device? The data do not depend on the model: one workload stands for all."""

import pytest

from mnistbench.data import mnist_available


@pytest.mark.parametrize("bench_workload", ["convnet"])
def test_batch(op_benchmark):
    """Gather resident bytes, normalise."""
    op_benchmark("batch")


@pytest.mark.parametrize("bench_workload", ["convnet"])
def test_dataloader(op_benchmark, request):
    """The same through torchvision's dataset and a DataLoader, as most people run it."""
    if not mnist_available(request.config.getoption("bench_data_dir")):
        pytest.skip("MNIST is not at hand: name its folder with --bench-data-dir or MNISTBENCH_DATA")
    op_benchmark("dataloader")
