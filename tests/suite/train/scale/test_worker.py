"""The steps that a rank times, in this process.

And the gradients of ranks with and without communication.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from rank_builders import start, wait
from scale_builders import SETTINGS as SCALE
from torch import nn

from mnistbench.suite.measuring.case import fork_random
from mnistbench.suite.measuring.passes import BLOCK_STEPS, WARMUP_ITERATIONS_OF_RANKS
from mnistbench.suite.train.scale import worker
from mnistbench.suite.workloads.ranks import OneProcess

CPU = torch.device("cpu")
SETTINGS = dataclasses.replace(SCALE, model="lenet5", batch_size=8, iterations=13)


class Recorded(OneProcess):
    """Looks like the first of two ranks; notes when steps begin and what they communicate."""

    world_size = 2

    def __init__(self) -> None:
        self.began: list[tuple[bool, list[torch.Tensor]]] = []  # with communication; weights
        self._synced = True
        self._model: nn.Module | None = None

    def model(self, model: nn.Module) -> nn.Module:
        self._model = model
        return model

    @contextmanager
    def no_sync(self, model: nn.Module) -> Iterator[None]:
        assert model is self._model
        self._synced = False
        yield
        self._synced = True

    def part(self, indices: torch.Tensor) -> torch.Tensor:
        return indices.tensor_split(2)[0]

    def barrier(self) -> None:
        if self._model is not None:  # of a step; not of loading the dataset
            self.began.append(
                (self._synced, [weights.detach().clone() for weights in self._model.parameters()])
            )


def test_blocks_of_both_kinds_alternate_from_the_same_weights_on_the_same_batches() -> None:
    ranks = Recorded()
    with fork_random(CPU):
        samples, step_ns, no_sync_ns = worker.measure(SETTINGS, CPU, ranks)
    assert (samples, len(step_ns), len(no_sync_ns)) == (4, 13, 13)
    long = WARMUP_ITERATIONS_OF_RANKS + BLOCK_STEPS
    short = WARMUP_ITERATIONS_OF_RANKS + 3
    assert [synced for synced, _ in ranks.began] == [True] * long + [False] * long + [
        False
    ] * short + [True] * short
    weights = [weights for _, weights in ranks.began]
    for first in (long, 2 * long, 2 * long + short):
        for step in range(short):
            torch.testing.assert_close(weights[first + step], weights[step], rtol=0, atol=0)
    assert not torch.equal(weights[0][0], weights[1][0])  # they train


def test_one_rank_has_steps_of_one_kind() -> None:
    with fork_random(CPU):
        samples, step_ns, no_sync_ns = worker.measure(SETTINGS, CPU, OneProcess())
    assert (samples, len(step_ns), no_sync_ns) == (8, 13, ())


GRADIENTS = """
import gc, os, pathlib, weakref, torch
from mnistbench.suite.workloads.torchrun import own_rank
from mnistbench.suite.workloads.ranks import ProcessGroup

rank = own_rank(os.environ)
gc.disable()

def train(ranks):
    ranks.part(torch.arange(2))
    plain = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(plain.weight)
    model = ranks.model(plain)
    plain.cycle = [model]  # PyTorch 2.11 makes such a reference cycle with the first model
    gradients = []
    for synced in (True, False, True):
        plain.weight.grad = None
        ranks.barrier()
        inputs = torch.full((1, 1), float(rank.rank + 1))
        if synced:
            model(inputs).sum().backward()
        else:
            with ranks.no_sync(model):
                model(inputs).sum().backward()
        gradients.append(plain.weight.grad.item())
    return gradients, weakref.ref(model)

ranks = ProcessGroup(rank, torch.device("cpu"))
gradients, model = train(ranks)
values = ranks.gather(gradients)
ranks.end()
assert model() is None, "a model that outlives the process group can block the process at its end"
threads = [(thread / "comm").read_text() for thread in pathlib.Path("/proc/self/task").iterdir()]
of_gloo = [name for name in threads if "gloo" in name]
assert not of_gloo, "such a thread can abort the process at its end"
if values:
    print(values)
"""


@pytest.mark.versions
def test_ranks_add_no_gradients_without_synchronization(tmp_path: Path) -> None:
    (tmp_path / "gradients.py").write_text(GRADIENTS)
    ranks = wait(start(2, cwd=tmp_path, modules=("gradients", "gradients")))
    assert [(rank.returncode, rank.stderr) for rank in ranks] == [(0, "")] * 2
    assert json.loads(ranks[0].stdout) == [[1.5, 1.0, 1.5], [1.5, 2.0, 1.5]]
    assert ranks[1].stdout == ""
