"""The quick look: whether what runs the same code on both sides takes another time or memory.

The survey times a few calls of each case on each side. That of one side may be disturbed, so what
it shows is repeated in a launch, in which both sides take turns, before it counts.
"""

from __future__ import annotations

from mnistbench.core import units
from mnistbench.gate.listing import Listings
from mnistbench.gate.statistics.raw_samples import Launch
from mnistbench.gate.words import ALL_CASES, BASE, HEAD, IMPORT, RESIDENT, WALL

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
    ratio = look_ratio(sides, case)
    if _differ(base.look_ns, ratio * base.look_ns, LOOK_RATIO, _MIN_DIFFERENCE_NS):
        return f"runs the same code, but took {ratio:.3g} times as long in a quick look"
    if _differ(base.peak_bytes, head.peak_bytes, LOOK_RATIO, _MIN_BYTES):
        sizes = (units.size(one.peak_bytes) for one in (base, head))
        return f"runs the same code, but needed {' -> '.join(sizes)} of memory in a quick look"
    return ""


def is_confirmed(launch: Launch, case: str, ratio: float) -> bool:
    """Whether a launch shows another time of a case, too, in the direction of a ratio."""

    def shortest_ns(side: str) -> float:
        builds = launch.cases.get(case, ())
        return min((time for build in builds for time in build[side].times[WALL]), default=0.0)

    base_ns, head_ns = shortest_ns(BASE), shortest_ns(HEAD)
    if not (base_ns and head_ns):
        return True
    is_same_direction = (head_ns > base_ns) == (ratio > 1)
    return is_same_direction and _differ(base_ns, head_ns, LOOK_RATIO, _MIN_DIFFERENCE_NS)


def process_look(sides: Listings) -> str:
    """Return how the processes of the sides differ before their first case; "" if they do not."""
    base, head = sides.base, sides.head
    if _differ(base.importing_s, head.importing_s, LOOK_RATIO, _MIN_IMPORT_S):
        times = (units.duration(1e9 * side.importing_s) for side in (base, head))
        return f"stands for the import, which took {' -> '.join(times)} in a quick look"
    if _differ(base.loaded_bytes, head.loaded_bytes, _MEMORY_RATIO, _MIN_BYTES):
        sizes = (units.size(side.loaded_bytes) for side in (base, head))
        return f"stands for the process, whose memory was {' -> '.join(sizes)} in a quick look"
    return ""


def is_process_confirmed(launch: Launch) -> bool:
    """Whether a launch shows that the processes differ, too."""

    def cost(side: str, name: str) -> int:
        return launch.once.get(side, {}).get(name, {}).get(ALL_CASES, 0)

    return _differ(
        cost(BASE, IMPORT), cost(HEAD, IMPORT), LOOK_RATIO, 1e9 * _MIN_IMPORT_S
    ) or _differ(cost(BASE, RESIDENT), cost(HEAD, RESIDENT), _MEMORY_RATIO, _MIN_BYTES)


def _differ(base: float, head: float, ratio: float, least: float) -> bool:
    """Whether two numbers differ by a factor and by an amount."""
    return abs(head - base) > least and max(base, head) > ratio * min(base, head)
