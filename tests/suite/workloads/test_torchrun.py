"""The rank of a process from the variables of its launcher."""

from __future__ import annotations

import pytest

from mnistbench.core.errors import UsageError
from mnistbench.suite.workloads.torchrun import Rank, own_rank

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "1",
}


def test_torchrun_sets_the_variables() -> None:
    assert own_rank(TORCHRUN) == Rank(
        rank=3, world_size=4, local_rank=1, local_world_size=2, restarts=1
    )


@pytest.mark.parametrize(
    "environ", [{}, {"RANK": "0"}, {"WORLD_SIZE": "4"}, {"RANK": "", "WORLD_SIZE": ""}]
)
def test_a_process_by_itself(environ: dict[str, str]) -> None:
    assert own_rank(environ) == Rank(rank=0, world_size=1)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"WORLD_SIZE": "many"}, "WORLD_SIZE is 'many'"),
        ({"LOCAL_RANK": ""}, "LOCAL_RANK is not set"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not"),
        ({"MASTER_PORT": ""}, "MASTER_PORT is not set"),
    ],
)
def test_error_names_the_missing_variable(changes: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=f"{problem}.*torchrun"):
        own_rank(TORCHRUN | changes)
