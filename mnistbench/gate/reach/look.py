"""The quick look: whether a case or a process that runs the same code takes another time or memory."""

from __future__ import annotations

from mnistbench.core import units
from mnistbench.gate.listing import Listings
from mnistbench.gate.words import BASE, HEAD

#: A case that takes so many times as long, or is so many times as fast, is measured, whatever runs.
LOOK_RATIO = 1.3
#: Shortest difference of a call that counts in a quick look, in nanoseconds: the clock's own.
_LEAST_LOOK_NS = 100
#: Fewest blocks of memory that count.
_LEAST_BLOCKS = 100
#: Growth of the process before its first case that counts, as ratios and at least.
_LEAST_IMPORT_S = 0.02
_MEMORY_RATIO = 1.1
_LEAST_BYTES = 16 * 2**20


def look_ratio(sides: Listings, case: str) -> float:
    """Return the time of the head / that of the base in the quick look; 0 if one is not known."""
    base_ns, head_ns = (sides[side].cases[case].look_ns for side in (BASE, HEAD))
    return head_ns / base_ns if base_ns and head_ns else 0.0


def look(sides: Listings, case: str) -> str:
    """Return what the quick look shows of a case that runs the same code; "" if nothing."""
    base, head = (sides[side].cases[case] for side in (BASE, HEAD))
    ratio = look_ratio(sides, case)
    if abs(head.look_ns - base.look_ns) > _LEAST_LOOK_NS and not (
        1 / LOOK_RATIO < ratio < LOOK_RATIO
    ):
        return f"runs the same code, but took {ratio:.3g} times as long in a quick look"
    if _differ(base.blocks, head.blocks, LOOK_RATIO, _LEAST_BLOCKS):
        return (
            f"runs the same code, but left {head.blocks:,} blocks of memory in place of "
            f"{base.blocks:,} in a quick look"
        )
    return ""


def process_look(sides: Listings) -> str:
    """Return how the processes of the sides differ before their first case; "" if they do not."""
    base, head = sides.base, sides.head
    if _differ(base.importing_s, head.importing_s, LOOK_RATIO, _LEAST_IMPORT_S):
        times = (units.duration(1e9 * side.importing_s) for side in (base, head))
        return f"stands for the import, which took {' -> '.join(times)} in a quick look"
    if _differ(base.loaded_bytes, head.loaded_bytes, _MEMORY_RATIO, _LEAST_BYTES):
        sizes = (units.size(side.loaded_bytes) for side in (base, head))
        return f"stands for the process, whose memory was {' -> '.join(sizes)} in a quick look"
    return ""


def _differ(base: float, head: float, ratio: float, least: float) -> bool:
    """Whether two numbers differ by a factor and by an amount."""
    return abs(head - base) > least and max(base, head) > ratio * min(base, head)
