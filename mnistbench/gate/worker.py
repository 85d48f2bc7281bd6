"""The process of a launch: loads both sides, or one of them if another process has the other one, and measures their cases.

The process reads a job (JSON) from the first line of its input, and writes messages (a JSON object per line) to its output:
``ready`` after all imports, then, after a second line of input, ``result`` or ``error``. All other output goes to the log,
which is its standard error. A job with the key ``default`` is a survey of one side, which times nothing.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import socket
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
from mnistbench.gate.samples import BASE, NEW
from mnistbench.gate.sides import ClashError, Side, SideError, added_to_torch, stray_modules, wanted, watch_registrations
from mnistbench.gate.survey import survey
from mnistbench.gate.turns import OneProcess, PeerEndedError, TwoProcesses

#: Builds of each case in a launch. The second has the reverse order of the first, so that effects of the order cancel.
REBUILDS = 2

#: Bytes of heap touched before the measurement: several times those that a step of ConvNet allocates at batch 64.
TOUCHED_BYTES = 512 * 2**20


def main() -> None:
    """Do one job; report errors as messages, too."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of the sides must not be read as a message

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
    except PeerEndedError as error:
        say(alone=str(error))
    except Exception as error:  # noqa: BLE001  # a side's code may raise anything; the log has the traceback
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
        self._names, self._processes = [side.name for side in sides], OneProcess()
        if job["peer"] is not None:
            self._names = [BASE, NEW]
            self._processes = TwoProcesses(sides[0].name, socket.socket(fileno=job["peer"]))
        self._process = ProcessState([side.tree for side in sides])
        self._registered = watch_registrations([side.tree for side in sides])
        for side in self._coin.sample(sides, len(sides)):
            try:
                side.load(job["arguments"], partial(wanted, job))
            except SideError as error:
                if self._registered:  # perhaps because of the other side's operators; separate processes will tell
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
        """Check that the sides can share this process, and that neither has changed its state since loading.

        Raises:
            ClashError: the sides cannot share the process.
        """
        if len(self.sides) > 1:
            now = added_to_torch(self._process.fingerprint(), self._registered, self.sides)
            if found := changes(self._before, now):
                raise ClashError(found[0])

    def measure(self, say: Callable[..., None]) -> dict[str, Any]:
        """Measure the cases that all sides have, in random order; send a message after each case.

        Raises:
            SideError: the code of a side raises.
            ClashError: the sides cannot share this process.
            PeerEndedError: the process of the other side has ended.
        """
        apart = isinstance(self._processes, TwoProcesses)
        [first, *others] = self._processes.exchange([list(side.cases) for side in self.sides])
        common = sorted(set(first[0]).intersection(*first[1:], *(cases for sides in others for cases in sides)))
        found: dict[str, Any] = {}
        seconds: dict[str, float] = {}
        control: list[dict[str, list[int]]] = []
        order = self._coin.sample(self._names, len(self._names))
        sides = {side.name: side for side in self.sides}
        with self.sides[0].active() if apart else contextlib.nullcontext():
            for node_id in self._coin.sample(common, len(common)):
                found[node_id], start = [], time.monotonic()
                for rebuild in range(REBUILDS):
                    in_order = order[:: -1 if rebuild % 2 else 1]
                    own = [sides[name] for name in in_order if name in sides]
                    control.append(measure_control([side.name for side in own], self._coin, self._processes, in_order))
                    side_runs = [
                        SideRun(side.name, side.cases[node_id].build, side.errors_named if apart else side.turn) for side in own
                    ]
                    found[node_id].append(measure(side_runs, self._coin, self._processes, in_order))
                    del side_runs
                    gc.collect()
                seconds[node_id] = time.monotonic() - start
                self._check()  # late imports can clash, too
                say(measured=node_id)
        return {"cases": found, "case_seconds": seconds, "control": control, "order": order}


def _tidy_memory() -> None:
    """Exclude imported objects from later garbage collections, and touch the heap before it is needed.

    The heap keeps its pages, because the allocator's thresholds are raised. But if small allocations have split a freed block,
    it is too small for the next tensor, which then gets untouched pages. Their page faults tripled the time of single
    operations in some launches (docs/studies/page_faults.py).
    """
    gc.collect()
    gc.freeze()
    torch.empty(TOUCHED_BYTES, dtype=torch.uint8).fill_(1)


def _use_cores(coin: random.Random, params: Sequence[Any]) -> None:
    """Restrict the process to as many random cores as a case has threads, so that the choice of cores averages out.

    Not with an accelerator, which torch drives from additional threads.
    """
    if params and hasattr(os, "sched_setaffinity") and all(of_case.device == "cpu" for of_case in params):
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, coin.sample(usable, min(max(of_case.threads for of_case in params), len(usable))))
