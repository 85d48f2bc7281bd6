"""The models as workloads of the suite."""

import functools

import pytest
import torch
from models import ConvNet, Gated, LeNet5, Transformer
from torch.nn import functional

from mnistbench import Workload

# mnistbench has a convnet and a lenet5 of its own, with datasets.
MODELS = {
    "conv": (ConvNet, (1, 28, 28)),
    "lenet": (LeNet5, (1, 28, 28)),
    "transformer": (Transformer, (32, 16)),
    "gated": (Gated, (32, 16)),
}


def make_batch(shape, batch_size, device, generator):
    inputs = torch.randn(batch_size, *shape, generator=generator)
    targets = torch.randint(10, (batch_size,), generator=generator)
    return inputs.to(device), targets.to(device)


@pytest.hookimpl(optionalhook=True)
def pytest_mnistbench_workloads(config):
    return [
        Workload(
            name=name,
            make_model=model,
            make_batch=functools.partial(make_batch, shape),
            loss=functional.nll_loss,
            make_optimizer=functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9),
        )
        for name, (model, shape) in MODELS.items()
    ]
