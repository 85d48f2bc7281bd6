"""How ranks on CUDA devices join, without one."""

import sys

import torch
import torch.distributed as dist

from mnistbench.suite.workloads.ranks import ProcessGroup
from mnistbench.suite.workloads.torchrun import Rank


def test_nccl_gets_a_device_with_an_index(monkeypatch) -> None:
    joined = {}
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: joined.update(current=device))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    # torch.distributed has a function of that name.
    rendezvous = sys.modules["torch.distributed.rendezvous"]
    monkeypatch.setattr(rendezvous, "rendezvous", lambda *_, **__: iter([(dist.HashStore(), 0, 2)]))
    monkeypatch.setattr(
        dist,
        "init_process_group",
        lambda backend, **options: joined.update(options, backend=backend),
    )
    ProcessGroup(Rank(rank=0, world_size=2, local_rank=0, local_world_size=2), torch.device("cuda"))
    assert (joined["current"], joined["backend"]) == (torch.device("cuda"), "nccl")
    assert joined["device_id"] == torch.device("cuda", 0)
