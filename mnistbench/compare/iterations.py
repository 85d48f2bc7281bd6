"""Numbers of iterations in traces without steps, whose times and calls are of the whole trace.

Two such traces may hold different numbers of iterations. If every operation has ten calls in one
for each call in the other, times are compared per call. If most operations have, and others have
not, iterations and one-time costs cannot be separated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mnistbench.core import units
from mnistbench.core.operation import OpKey, operation_name

#: Share of the operations that both sides have above which one factor between their calls shows
#: that the numbers of iterations differ.
SHARE_OF_ONE_FACTOR = 0.5

#: Calls are means over steps, so their ratio is a fraction with a small denominator.
_MAX_DENOMINATOR = 10**6

#: Operations that a sentence names.
_NAMED = 3

#: Calls of each operation of a table, all above 0.
Calls = Mapping[OpKey, float]


@dataclass(frozen=True)
class Iterations:
    """What different numbers of calls show about the numbers of iterations of two sides."""

    # What times and calls of each base run are divided by; none if nothing is divided.
    bases: tuple[int, ...] = ()
    head: int = 1  # the same of the head
    # Why the numbers of iterations cannot be compared: examples of calls; empty if they can.
    unknown: str = ""
    mixed_calls: str = ""  # examples of calls that differ by several factors; nothing is divided

    @property
    def are_divided(self) -> bool:
        """Whether times and calls of a side are divided."""
        return bool(self.bases)


SAME = Iterations()


def iterations_of(bases: Sequence[Calls], head: Calls) -> Iterations:
    """Compare the numbers of calls of the operations of base runs with those of the head.

    The newest base run is the last. Examples of operations are its first ones.
    """
    ratios = [_common_ratio(base, head) for base in bases]
    if all(ratio is not None for ratio in ratios):
        common_ratios = [ratio for ratio in ratios if ratio is not None]
        head_iterations = math.lcm(*(ratio.denominator for ratio in common_ratios))
        base_iterations = tuple(int(ratio * head_iterations) for ratio in common_ratios)
        if set(base_iterations) == {head_iterations}:
            return SAME
        sides = (*zip(bases, base_iterations, strict=True), (head, head_iterations))
        if all(_are_whole_iterations(calls, divisor) for calls, divisor in sides):
            return Iterations(base_iterations, head_iterations)
    counts = _shared_calls(bases[-1], head)
    if not counts:
        return SAME
    [(factor, how_many)] = Counter(_ratio(*calls) for calls in counts.values()).most_common(1)
    examples = _examples(counts)
    if factor != 1 and how_many > SHARE_OF_ONE_FACTOR * len(counts):
        return Iterations(unknown=examples)
    return (
        Iterations(mixed_calls=examples)
        if any(base_calls != head_calls for base_calls, head_calls in counts.values())
        else SAME
    )


def _shared_calls(base: Calls, head: Calls) -> dict[OpKey, tuple[float, float]]:
    return {key: (count, head[key]) for key, count in base.items() if key in head}


def _common_ratio(base: Calls, head: Calls) -> Fraction | None:
    """Return calls in the base / calls in the head; None if the shared operations disagree."""
    ratios = {_ratio(*calls) for calls in _shared_calls(base, head).values()}
    return ratios.pop() if len(ratios) == 1 else None


def _ratio(base: float, head: float) -> Fraction:
    return (Fraction(base) / Fraction(head)).limit_denominator(_MAX_DENOMINATOR)


def _are_whole_iterations(calls: Calls, divisor: int) -> bool:
    """Whether every operation, also one of one side alone, divides into equal iterations."""
    return all(count % divisor == 0 for count in calls.values())


def _examples(counts: Mapping[OpKey, tuple[float, float]]) -> str:
    """Return calls of the first operation of each factor: ``aten::mm 10 -> 1, ...``."""
    text_of_factor: dict[Fraction, str] = {}
    for key, (base, head) in counts.items():
        text = f"{operation_name(key[0], '', '')} {units.count(base)} -> {units.count(head)}"
        text_of_factor.setdefault(_ratio(base, head), text)
    return ", ".join(list(text_of_factor.values())[:_NAMED])
