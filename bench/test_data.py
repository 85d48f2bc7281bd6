"""How long does a batch take until it is on the device? The data do not depend on the model: one workload stands for all."""

import pytest

pytestmark = pytest.mark.parametrize("bench_workload", ["convnet"])


def test_batch(op_benchmark):
    """Gather resident bytes, normalise."""
    op_benchmark("batch")


def test_dataloader(op_benchmark):
    """The same through torchvision's dataset and a DataLoader, as most people run it; needs MNIST."""
    op_benchmark("dataloader")
