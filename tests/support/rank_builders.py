"""Programs that are started as ranks: by torchrun, or directly with its variables."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import forks

#: torchrun with two ranks, which keeps its logs where it runs; a module and its arguments follow.
TORCHRUN = (
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "--log-dir",
    "logs",
    "-m",
)


def plain_environ() -> dict[str, str]:
    """Return this process's environment without variables that change mnistbench's defaults."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MNISTBENCH_", "XDG_", "MALLOC_"))
    }


def environ_of(rank: int, world_size: int, port: int) -> dict[str, str]:
    """Return the environment of a rank on one node.

    Its error file, which torchrun would read, is ``error<rank>.json`` in its working directory.
    """
    ranks = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": world_size,
        "TORCHELASTIC_ERROR_FILE": f"error{rank}.json",
    }
    places = {**ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return plain_environ() | {name: str(value) for name, value in places.items()}


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
    return port


def start(
    world_size: int,
    *arguments: str,
    cwd: Path,
    modules: Sequence[str] = (),
    errors: bool = False,
    **more: str,
) -> list[forks.Fork]:
    """Start a module for each rank on one node; by default mnistbench.

    Without variables that change mnistbench's defaults.

    Args:
        world_size: number of ranks.
        arguments: of every module.
        cwd: working directory.
        modules: of the ranks; with fewer than ``world_size``, the other ranks are not started.
        errors: raise warnings as errors.
        more: environment variables.
    """
    port = free_port()
    return [
        forks.Fork(
            module,
            *arguments,
            cwd=cwd,
            env=environ_of(rank, world_size, port) | more,
            errors=errors,
        )
        for rank, module in enumerate(modules or ("mnistbench",) * world_size)
    ]


def wait(
    ranks: Sequence[forks.Fork], timeout: float = 120
) -> list[subprocess.CompletedProcess[str]]:
    """Return the ranks when all have ended; ``timeout`` in seconds is for each."""
    return [rank.wait(timeout) for rank in ranks]


#: Prints what a command imports of torch.distributed and pytest beside what torch imports.
IMPORTS = """
import json, sys
import torch

def imported():
    return {name for name in sys.modules if name.startswith(("torch.distributed", "pytest"))}

before = imported()
from mnistbench.cli import main
assert main() == 0
print(json.dumps(sorted(imported() - before)))
"""


def imported_without_a_launcher(*arguments: str, cwd: Path, fork: bool) -> list[str]:
    """Run the command in a process that is no rank.

    Return the modules of torch.distributed and pytest that it imports, without those that torch
    imports, and in a fork without those of torch._dynamo, which an optimizer imports.
    """
    (cwd / "imports.py").write_text(IMPORTS)
    environ = {name: value for name, value in os.environ.items() if name != "RANK"}
    if fork:
        done = forks.run("imports", *arguments, cwd=cwd, env=environ)
    else:
        done = subprocess.run(
            [sys.executable, "imports.py", *arguments],
            cwd=cwd,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return names
