"""The quick look: whether what runs the same code on both sides takes another time or memory.

The survey times a few calls of each case on each side. That of one side may be disturbed, so what
it shows counts only if another survey, in fresh processes, shows it again, and a time only if a
trial shows it, too, in which both sides take turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from mnistbench.core import units
from mnistbench.gate.listing import Listings
from mnistbench.gate.samples.raw_samples import Trial
from mnistbench.gate.words import ALL_CASES, BASE, HEAD, IMPORT, WALL

#: A case that takes so many times as long, or is so many times as fast, is measured, whatever runs.
LOOK_RATIO = 1.3
#: Shortest difference of a call that counts, in nanoseconds: what a function call takes.
_MIN_DIFFERENCE_NS = 50

#: Smallest growth of the import that counts, in seconds.
_MIN_IMPORT_S = 0.01
#: Growth of memory that counts: as a ratio and in bytes.
_MEMORY_RATIO = 1.1
_MIN_BYTES = 16 * 2**20


def look_ratio(sides: Listings, case: str) -> float:
    """Return the time of the head / that of the base in the survey; 0 if one is not known.

    The two processes run at the same time, and one core may be slower than the other one. So the
    times count that are divided by those of a loop, if both sides have them.
    """
    base = sides.base.cases[case]
    head = sides.head.cases[case]
    if not (base.look_ns and head.look_ns):
        return 0.0
    if base.look_loops and head.look_loops:
        return head.look_loops / base.look_loops
    return head.look_ns / base.look_ns


def look(sides: Listings, case: str) -> str:
    """Return what the survey shows of a case that runs the same code; "" if nothing."""
    base, head = (sides[side].cases[case] for side in (BASE, HEAD))
    time, memory = _changes(sides, case)
    if time:
        ratio = look_ratio(sides, case)
        return f"runs the same code, but took {ratio:.3g} times as long in a quick look"
    if memory:
        sizes = (units.size(side.peak_bytes) for side in (base, head))
        return f"runs the same code, but needed {' -> '.join(sizes)} of memory in a quick look"
    return ""


def process_look(sides: Listings) -> str:
    """Return how the processes of the sides differ before their first case; "" if they do not."""
    time, memory = _process_changes(sides)
    if time:
        times = (units.duration(1e9 * seconds) for seconds in _import_times(sides))
        return f"stands for the import, which took {' -> '.join(times)} in a quick look"
    if memory:
        sizes = (units.size(sides[side].loaded_bytes) for side in (BASE, HEAD))
        return f"stands for the process, whose memory was {' -> '.join(sizes)} in a quick look"
    return ""


def is_repeated(first: Listings, again: Listings, case: str) -> bool:
    """Whether a second survey shows a change of a case that the first one has shown.

    A survey that could not run the case counts as well.
    """
    could_run = all(case in again[side].cases for side in (BASE, HEAD))
    return not could_run or _is_repeated(_changes(first, case), _changes(again, case))


def is_process_repeated(first: Listings, again: Listings) -> bool:
    """Whether a second survey shows a change of the processes that the first one has shown."""
    return _is_repeated(_process_changes(first), _process_changes(again))


def is_confirmed(trial: Trial, first: Listings, case: str) -> bool:
    """Whether a trial shows a change of a case, which a survey has shown.

    Of memory, which nothing disturbs, or of a case that it does not measure, it needs to show none.
    """
    time, memory = _changes(first, case)
    if memory or not trial_ratio(trial, case):
        return True
    base_ns = _shortest_ns(trial, case, BASE)
    head_ns = _shortest_ns(trial, case, HEAD)
    return _change(base_ns, head_ns, LOOK_RATIO, _MIN_DIFFERENCE_NS) == time


def trial_ratio(trial: Trial, case: str) -> float:
    """Return the time of the head / that of the base in a trial; 0 if one is not known."""
    base_ns = _shortest_ns(trial, case, BASE)
    return _shortest_ns(trial, case, HEAD) / base_ns if base_ns else 0.0


def _shortest_ns(trial: Trial, case: str, side: str) -> float:
    """Return the shortest wall time of a case on a side, in nanoseconds; 0 if it is not known."""
    builds = trial.cases.get(case, ())
    return min((ns for build in builds for ns in build[side].times[WALL]), default=0.0)


def is_process_confirmed(trial: Trial, first: Listings) -> bool:
    """Whether a trial shows a change of the import, too; of memory it needs to show none."""
    time, memory = _process_changes(first)
    base_s, head_s = (
        trial.once.get(side, {}).get(IMPORT, {}).get(ALL_CASES, 0) / 1e9 for side in (BASE, HEAD)
    )
    return bool(memory) or _change(base_s, head_s, LOOK_RATIO, _MIN_IMPORT_S) == time


def _is_repeated(first: Sequence[int], again: Sequence[int]) -> bool:
    return any(change and change == other for change, other in zip(first, again, strict=True))


def _changes(sides: Listings, case: str) -> tuple[int, int]:
    """Return the changes of the time and of the memory of a case."""
    base, head = (sides[side].cases[case] for side in (BASE, HEAD))
    relative_ns = look_ratio(sides, case) * base.look_ns  # of the head
    return (
        _change(base.look_ns, relative_ns, LOOK_RATIO, _MIN_DIFFERENCE_NS) if relative_ns else 0,
        _change(base.peak_bytes, head.peak_bytes, LOOK_RATIO, _MIN_BYTES),
    )


def _import_times(sides: Listings) -> tuple[float, float]:
    """Return the time of the import on each side, in seconds.

    A framework that both sides import is left out: a trial imports it before, too.
    """
    base, head = sides.base, sides.head
    if base.frameworks.keys() != head.frameworks.keys():
        return base.importing_s, head.importing_s
    return base.importing_s - base.framework_s, head.importing_s - head.framework_s


def _process_changes(sides: Listings) -> tuple[int, int]:
    """Return the changes of the time of the import and of the memory before the first case."""
    base, head = sides.base, sides.head
    base_s, head_s = _import_times(sides)
    return (
        _change(base_s, head_s, LOOK_RATIO, _MIN_IMPORT_S),
        _change(base.loaded_bytes, head.loaded_bytes, _MEMORY_RATIO, _MIN_BYTES),
    )


def _change(base: float, head: float, ratio: float, least: float) -> int:
    """Return 1 if the head has more, by a factor and by an amount, -1 if it has less, else 0."""
    if abs(head - base) <= least or max(base, head) <= ratio * min(base, head):
        return 0
    return 1 if head > base else -1
