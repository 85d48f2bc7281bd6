"""Survey one side without timing: its cases, and the memory of each."""

from __future__ import annotations

import gc
import importlib.metadata
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mnistbench import __version__
from mnistbench.gate.alternate import SideRun, live_storages, peak_memory, rehearse
from mnistbench.gate.side import Side, SideError, TakenCase, stray_modules


def survey(job: dict[str, Any], say: Callable[..., None]) -> None:
    """Send the arguments that select the cases if the job asks for them, then the listing of the side."""
    torch.set_num_threads(1)
    installed = packages()  # before setuptools, if a test imports it, adds its own copies of packages to sys.path
    side = Side(job["side"], Path(job["tree"]), Path(job["directory"]), job["home"], job["threads"])
    if job["default"] is not None:
        job["arguments"], job["phases"] = selection(side, job["arguments"], **job["default"])
        say(selected={"arguments": job["arguments"], "phases": job["phases"]})
    taken = _Survey(side, Path(job["repository"]), job["phases"], say)
    only = job["only"]
    side.run(
        job["arguments"], lambda found: found if only is None else [node_id for node_id in found if node_id in only], taken.take
    )
    say(
        surveyed={
            "torch": torch.__version__,
            "packages": installed,
            "shared": taken.shared,
            "cases": {name: {"label": case.label, "params": dict(vars(case.params))} for name, case in taken.cases.items()},
            "files": side.files,
            "memory": taken.memory,
            "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
            "failed": taken.failed,
        }
    )


def packages() -> dict[str, str]:
    """Return the versions of the installed distributions. Of two with one name, Python imports the first.

    mnistbench has its own version where it is not installed, because its copy is used there.
    """
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        if distribution.name:
            found.setdefault(distribution.name, distribution.version)
    return {"mnistbench": __version__, **found}


def selection(side: Side, arguments: list[str], folder: str, phase: str) -> tuple[list[str], list[str]]:
    """Return pytest's arguments and the phases to measure: the user's if they contain a path, else the default ones.

    Args:
        side: its pytest decides which arguments are paths.
        arguments: the user's arguments for pytest.
        folder: measured by default; empty if it does not exist.
        phase: measured by default.
    """
    default = [folder] if folder else []
    whole = [*default, *arguments]
    paths = side.paths_among(whole) if arguments else default
    if paths is None and default:  # perhaps because of the conftest.py of the default folder
        paths = [*default, *(side.paths_among(arguments) or ())]
    return (whole, [phase]) if paths is None or paths == default else (arguments, [])


@dataclass
class _Survey:
    side: Side
    repository: Path
    phases: list[str]
    say: Callable[..., None]
    shared: dict[str, str] = field(default_factory=dict)  # modules of the project that are not from the tree
    cases: dict[str, TakenCase] = field(default_factory=dict)  # by node id, as the following ones
    memory: dict[str, int] = field(default_factory=dict)  # bytes
    failed: dict[str, str] = field(default_factory=dict)  # why it cannot be run
    _imported_bytes: int = 0  # of tensors, before the first case was built

    def take(self, case: TakenCase) -> None:
        """Build and run a case, and store a failure: it does not matter for a case that the other side does not have."""
        if self.phases and case.params.phase not in self.phases:
            return
        first = not self.cases
        self.cases[case.node_id] = case
        self.shared = self.shared or stray_modules(self.repository, self.side)
        if self.shared:
            return
        try:
            if first:
                self._imported_bytes = sum(live_storages().values())
                gc.collect()
                gc.freeze()  # so that the search for tensors skips all imported objects
                rehearse(SideRun(self.side, case.build))
            bytes_of_case = peak_memory(SideRun(self.side, case.build))
        except SideError as error:
            self.failed[case.node_id] = str(error)
            return
        if bytes_of_case is not None:
            imported = self._imported_bytes if case.params.device == "cpu" else 0
            self.memory[case.node_id] = bytes_of_case + imported
        self.say(measured=case.node_id)
