"""Survey one side alone in a process, without timing: its cases, its process-wide state and the memory of its cases."""

from __future__ import annotations

import contextlib
import gc
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mnistbench.gate.alternate import SideRun, live_storages, peak_memory, rehearse
from mnistbench.gate.fingerprint import BEFORE, ENDED, IMPORTED, Fingerprint
from mnistbench.gate.process_state import ProcessState
from mnistbench.gate.sides import Side, SideError, TakenCase, added_to_torch, stray_modules, wanted, watch_registrations


def survey(job: dict[str, Any], say: Callable[..., None]) -> None:
    """Send the arguments that select the cases if the job asks for them, then the listing of the side."""
    torch.set_num_threads(1)
    [spec] = job["sides"]
    side = Side(spec["name"], Path(spec["tree"]), Path(spec["directory"]), job["home"])
    if job["default"] is not None:
        job["arguments"], job["phases"] = selection(side, job["arguments"], **job["default"])
        say(selected={"arguments": job["arguments"], "phases": job["phases"]})
    found = _Survey(side, ProcessState([side.tree]))
    side.load(job["arguments"], partial(wanted, job))
    shared = stray_modules(Path(job["repository"]), [side])
    if not shared:
        found.look_at_cases(say)
    say(
        surveyed={
            "torch": torch.__version__,
            "shared": shared,
            "cases": {name: {"label": case.label, "params": dict(vars(case.params))} for name, case in side.cases.items()},
            "files": side.files,
            "stages": {stage: state.json() for stage, state in found.stages.items()},
            "memory": found.memory,
            "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
            "failed": found.failed,
        }
    )


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
    process: ProcessState
    stages: dict[str, Fingerprint] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)  # node id -> bytes
    failed: dict[str, str] = field(default_factory=dict)  # node id -> why it cannot be run

    def __post_init__(self) -> None:
        self._registered = watch_registrations([self.side.tree])
        self._look(BEFORE)

    def look_at_cases(self, say: Callable[..., None]) -> None:
        """Build and run every case, and store failures: they do not matter for a case that the other side does not have."""
        self._look(IMPORTED)
        imported = sum(live_storages().values())
        gc.collect()
        gc.freeze()  # so that the search for tensors skips all imported objects
        for case in list(self.side.cases.values())[:1]:  # torch changes some settings when it is first used
            with contextlib.suppress(SideError):  # reported below
                rehearse(self._side_run(case))
        for name, case in self.side.cases.items():
            try:
                bytes_of_case = peak_memory(self._side_run(case), partial(self._look, f"build {name}"))
            except SideError as error:
                self.failed[name] = str(error)
                continue
            if bytes_of_case is not None:
                on_cpu = case.params.device == "cpu"
                self.memory[name] = bytes_of_case + (imported if on_cpu else 0)
            say(measured=name)
        self._look(ENDED)

    def _side_run(self, case: TakenCase) -> SideRun:
        return SideRun(self.side.name, case.build, self.side.turn)

    def _look(self, stage: str) -> None:
        self.stages[stage] = added_to_torch(self.process.fingerprint(), self._registered, [self.side])
