"""One launch: a fresh process that holds both sides (a twin), or one of them (split), and measures their cases.

A job with the key ``default`` is a survey of one side instead: nothing is timed.

Reads a job (JSON) from its first line of input, writes messages (a JSON object a line) to its output: ``ready`` when
everything is imported, then, once a second line of input has come, ``result`` or ``error``. Whatever else is printed goes to
the log, which is its standard error.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mnistbench.gate.alternate import SideRun, measure, measure_control, rehearse
from mnistbench.gate.fingerprint import changes
from mnistbench.gate.process_state import ProcessState
from mnistbench.gate.sides import ClashError, Side, SideError, added_to_torch, stray_modules, wanted, watch_registrations
from mnistbench.gate.survey import survey

#: Builds of each case in a launch. The second reverses the order of the first, so that what the order does cancels.
REBUILDS = 2

#: Of heap that is touched before anything is measured: several times what ConvNet's step allocates at batch 64.
TOUCHED_BYTES = 512 * 2**20


def main() -> None:
    """Do one job; what goes wrong is a message, too."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the sides print must not be taken for a message

    def say(**message: Any) -> None:
        out.write(json.dumps(message, separators=(",", ":")) + "\n")
        out.flush()

    try:
        job = json.loads(sys.stdin.readline())
        if "default" in job:
            survey(job, say)
            return
        launch = Launch(job)
        say(ready={"shared": launch.shared})
        if sys.stdin.readline().strip() != "go":
            return
        start = time.monotonic()
        say(result={**launch.measure(say), "seconds": time.monotonic() - start})
    except SideError as error:
        say(error=str(error))
    except ClashError as error:
        say(clash=str(error))
    except Exception as error:  # noqa: BLE001  # whatever a side's code raises; the log has the traceback
        traceback.print_exc()
        say(error=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}")


class Launch:
    """The sides of a job, loaded."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._coin = random.Random(job["seed"])  # noqa: S311  # a coin, not a secret
        torch.set_num_threads(1)
        sides = [Side(side["name"], Path(side["tree"]), Path(side["directory"]), job["home"]) for side in job["sides"]]
        self.sides = sides
        self._process = ProcessState([side.tree for side in sides])
        self._registered = watch_registrations([side.tree for side in sides])
        for side in self._coin.sample(sides, len(sides)):
            try:
                side.load(job["arguments"], partial(wanted, job))
            except SideError as error:
                if self._registered:  # the other side's operators may be in the way: apart, it will show
                    raise ClashError(f"the sides add operators registered with torch, and then {error}") from None
                raise
        self.shared = stray_modules(Path(job["repository"]), sides)
        _use_cores(self._coin, [case.params for side in sides for case in side.cases.values()])
        for side in self._coin.sample(sides, len(sides)):
            for case in list(side.cases.values())[:1]:
                rehearse(SideRun(side.name, case.build, side.turn))
        self._before = self._process.fingerprint()
        self._check()
        _tidy_memory()

    def _check(self) -> None:
        """Make sure that two sides can share this process, and that neither has changed it since it was loaded.

        Raises:
            ClashError: they cannot.
        """
        if len(self.sides) > 1:
            now = added_to_torch(self._process.fingerprint(), self._registered, self.sides)
            if found := changes(self._before, now):
                raise ClashError(found[0])

    def measure(self, say: Callable[..., None]) -> dict[str, Any]:
        """Measure every case that all sides have, in an order of this launch's own; say each that is done."""
        common = [node_id for node_id in self.sides[0].cases if all(node_id in side.cases for side in self.sides)]
        found: dict[str, Any] = {}
        seconds: dict[str, float] = {}
        control: list[dict[str, list[int]]] = []
        order = self._coin.sample(self.sides, len(self.sides))
        names = [side.name for side in order]
        for node_id in self._coin.sample(common, len(common)):
            found[node_id], start = [], time.monotonic()
            for rebuild in range(REBUILDS):
                step = -1 if rebuild % 2 else 1
                control.append(measure_control(names[::step], self._coin))
                side_runs = [SideRun(side.name, side.cases[node_id].build, side.turn) for side in order[::step]]
                found[node_id].append(measure(side_runs, self._coin))
                del side_runs
                gc.collect()
            seconds[node_id] = time.monotonic() - start
            self._check()  # what is imported late can clash late
            say(measured=node_id)
        return {"cases": found, "case_seconds": seconds, "control": control, "order": names}


def _tidy_memory() -> None:
    """Let later collections look at what the cases make, not at all that was imported; touch memory before it is needed.

    With the allocator's thresholds raised the heap keeps its pages, but a freed block that small allocations have split is too
    small for the next tensor, which then gets pages that nobody has touched. Their faults tripled the time of single
    operations, in some launches and not in others (docs/studies/page_faults.py).
    """
    gc.collect()
    gc.freeze()
    torch.empty(TOUCHED_BYTES, dtype=torch.uint8).fill_(1)


def _use_cores(coin: random.Random, params: Sequence[Any]) -> None:
    """Stay on as many cores as a case has threads, other ones in every launch: none of them may decide.

    Not with an accelerator: torch drives it from threads of its own.
    """
    if params and hasattr(os, "sched_setaffinity") and all(of_case.device == "cpu" for of_case in params):
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, coin.sample(usable, min(max(of_case.threads for of_case in params), len(usable))))
