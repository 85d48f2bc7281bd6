"""Run a reproducer on both sides and compare what it shows with what the gate found.

Does not import torch.

A trial starts the script in two processes, one for each side, on the same core (or cores, if the
calls have threads). They take turns, as the sides of the gate do: each measures while the other one
waits for a line of input, so both see the same speed of the machine. Two trials run at the same
time, on different cores. The pairs of a trial give the median of log(head / base), the trials
their median.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from mnistbench.core import units
from mnistbench.core.child import Child, ChildError, measuring_environment
from mnistbench.core.errors import MnistbenchError
from mnistbench.core.files import scratch
from mnistbench.core.machine import PINNED, own_cores
from mnistbench.gate.processes.sides.turns import in_pairs
from mnistbench.gate.words import BASE, HEAD
from mnistbench.showing.progress import Progress
from mnistbench.suite.reproducers.script import ScriptOrigin

#: Trials. Where the tensors of a process are in memory may change its times by a third, so there
#: are many.
TRIALS = 10
#: Pairs of measurements in each trial. A measurement takes 0.3 s.
PAIRS = 5

#: Most trials at the same time, each with cores of its own, as many as the gate runs: what runs
#: beside an operation takes a part of the cache and of the memory's bandwidth.
MAX_AT_ONCE = 2

#: How far a change may be outside the gate's interval and still be the same, as a share: the script
#: measures another process.
TOLERANCE = 0.05

#: Share of the time in the calls that a script makes, below which those that it leaves out may be
#: the reason why it shows another change.
MIN_SHARE = 0.5

#: Largest probability, if the sides were equally fast, of as many trials with a slower head as a
#: reproduced change needs.
LEVEL = 0.05

#: Longest time of a measurement, in seconds; the first one also loads torch and makes the
#: arguments.
_PATIENCE_S = 600.0


class _Children:
    """The processes of trials that run at the same time; the end of the body stops them all.

    No process starts after it, which a thread would otherwise do while others are being stopped.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True
        self._stack.close()

    def start(self, command: Sequence[str], environ: Mapping[str, str]) -> Child:
        """Start a process.

        Raises:
            ChildError: it cannot be started.
        """
        with self._lock:
            if self._is_over:
                raise ChildError("was not started, because another trial failed")
            return self._stack.enter_context(Child(command, environ))


def measure(
    script: Path,
    origin: ScriptOrigin,
    pythons: Mapping[str, str],
    variables: Mapping[str, Mapping[str, str]],
    *,
    trials: int,
    progress: Progress,
    pairs: int = PAIRS,
    seed: int | None = None,
) -> list[float]:
    """Run a script on both sides.

    Return the change of each trial, a share of the calls' time or of their case.

    Args:
        script: path of the script.
        origin: what the script says about its origin.
        pythons: side -> interpreter.
        variables: side -> environment variables of it alone, beside those of the gate.
        trials: number of trials, at least 1.
        progress: of the trials.
        pairs: measurements of each side in a trial, at least 1.
        seed: of the order of the sides; random if not given.

    Raises:
        MnistbenchError: the script fails on a side.
    """
    coin = random.Random(seed)  # noqa: S311  # no secret
    cores = own_cores()
    changes = list[float]()
    at_once = max(1, min(MAX_AT_ONCE, len(cores) // origin.threads))
    with scratch("reproduce") as folder:
        # A script is a program of its own, which does not pin its allocator.
        shared = {**measuring_environment(os.environ, folder), **PINNED}
        commands = {side: [pythons[side], str(script), side, "--turns"] for side in (BASE, HEAD)}
        environs = {
            side: {**shared, **origin.variables.get(side, {}), **variables[side]}
            for side in (BASE, HEAD)
        }
        while len(changes) < trials:
            progress.step(f"trial {len(changes) + 1} of {trials}")
            coin.shuffle(cores)
            # An interruption, or a script that fails, ends the processes of this round, and so its
            # threads.
            with ThreadPoolExecutor() as pool, _Children() as children:
                running = [
                    pool.submit(
                        _trial,
                        children,
                        commands,
                        environs,
                        pairs,
                        cores[slot::at_once][: origin.threads],
                        random.Random(coin.random()),  # noqa: S311  # no secret
                    )
                    for slot in range(min(at_once, trials - len(changes)))
                ]
                for trial in as_completed(running):
                    trial.result()  # the first error, at once
                pairs_of_trials = [list(zip(*trial.result(), strict=True)) for trial in running]
            for seconds in pairs_of_trials:
                if origin.case_ns:
                    changes.append(
                        statistics.median(
                            1e9 * (head - base) / origin.case_ns for base, head in seconds
                        )
                    )
                else:
                    changes.append(
                        math.expm1(
                            statistics.median(math.log(head / base) for base, head in seconds)
                        )
                    )
    return changes


def _trial(
    children: _Children,
    commands: Mapping[str, Sequence[str]],
    environs: Mapping[str, Mapping[str, str]],
    pairs: int,
    cores: Sequence[int],
    coin: random.Random,
) -> tuple[list[float], list[float]]:
    """Return the seconds of the measurements of the base and of the head."""
    if cores:
        # Of this thread, which ends with its round of trials; its processes inherit them.
        os.sched_setaffinity(0, cores)
    seconds: dict[str, list[float]] = {BASE: [], HEAD: []}
    order = coin.sample([BASE, HEAD], 2)
    child_of_side = {}
    for side in order:
        try:
            child_of_side[side] = children.start(commands[side], environs[side])
        except ChildError as error:
            raise MnistbenchError(f"{side}: {error}; name a Python interpreter") from None
    for side in order:
        # The first one is not counted: memory is allocated, pages are touched.
        _seconds(side, child_of_side[side])
    for side in in_pairs(order, coin, pairs):
        seconds[side].append(_seconds(side, child_of_side[side]))
    return seconds[BASE], seconds[HEAD]


def _seconds(side: str, child: Child) -> float:
    """Let a script measure and return the seconds that it prints."""
    child.tell("")
    try:
        while not (line := child.next_line(_PATIENCE_S)).startswith("{"):
            pass
        seconds = float(json.loads(line)["seconds"])
    except ChildError as error:
        raise MnistbenchError(f"{side}: the script {error}") from None
    except (ValueError, KeyError, TypeError):
        raise MnistbenchError(
            f"{side}: the script printed {line[:60]!r} instead of its seconds"
        ) from None
    if not 0 < seconds < math.inf:
        raise MnistbenchError(
            f"{side}: the script measured {seconds} s; its operation may not have run"
        )
    return seconds


# ---- What is said about it -----------------------------------------------------------------------


def overall(changes: Sequence[float]) -> float:
    """Return the median over trials."""
    return math.expm1(statistics.median(map(math.log1p, changes)))


def sentence(changes: Sequence[float], origin: ScriptOrigin) -> str:
    """Return what a script shows, in one sentence.

    It shows the change that the gate found if it is inside the gate's interval, widened by
    TOLERANCE, and at least half of the smallest change in it. If the change is a share of the case,
    it may be smaller than TOLERANCE, so the interval is widened by this share of the change. The
    head has to be slower in so many trials that a sign test has a p-value of LEVEL at most.
    """
    change = overall(changes)
    slower = sum(trial_change > 0 for trial_change in changes)
    p = sum(
        math.comb(len(changes), number) for number in range(slower, len(changes) + 1)
    ) / 2 ** len(changes)
    tolerance = TOLERANCE * (abs(origin.change) if origin.case_ns else 1.0)
    shown, gate, low, high = (
        units.percent(value, signed=True)
        for value in (change, origin.change, origin.low, origin.high)
    )
    result = (
        f"{shown}{' of the case' if origin.case_ns else ''} (the gate: {gate}, {low} to {high})"
    )
    least = max(origin.low - tolerance, origin.low / 2)
    if least <= change <= origin.high + tolerance and change > 0:
        if p > LEVEL:
            return (
                f"unclear: {result}; the head is slower in {slower} of {len(changes)} trials; "
                "give more --trials"
            )
        return f"reproduced: {result}"
    surroundings = "(layout of its input, allocator, cache)"
    if origin.low / 2 <= change < origin.low and p <= LEVEL:
        shows = "smaller"
        why = f"the rest needs the program around the operation {surroundings}"
    elif change <= origin.high:
        shows = "does not show"
        why = f"the cause is in its surroundings {surroundings}"
    else:
        shows = "larger"
        why = "the surroundings hide a part of it (cache, other operations of the program)"
    if origin.made_share < MIN_SHARE:
        why = (
            f"the script makes only the largest calls, with {units.percent(origin.made_share)} of "
            "the time"
        )
    return f"{shows} by itself: {result}; {why}"
