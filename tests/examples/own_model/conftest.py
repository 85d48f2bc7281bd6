"""A project that measures its own model with an installed mnistbench."""

import pytest
import torch
from torch import nn

from mnistbench import Workload


class Forecaster(nn.Module):
    """Predicts the next value of a noisy sine from the 32 before it."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(input_size=1, hidden_size=24, batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, series):
        states, _ = self.encoder(series)
        return self.head(states[:, -1])


def make_batch(batch_size, device, generator):
    phase = torch.rand(batch_size, 1, generator=generator) * 6.28
    series = torch.sin(phase + torch.arange(33) * 0.3) + 0.05 * torch.randn(
        batch_size, 33, generator=generator
    )
    return series[:, :32, None].to(device), series[:, 32:].to(device)


@pytest.hookimpl(optionalhook=True)  # so that pytest -p no:mnistbench still runs
def pytest_mnistbench_workloads(config):
    return [
        Workload(
            name="forecaster",
            make_model=Forecaster,
            make_batch=make_batch,
            loss=nn.functional.mse_loss,
            make_optimizer=torch.optim.Adam,
            dataset="sine",
        )
    ]
