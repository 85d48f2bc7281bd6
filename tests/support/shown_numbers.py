"""What a reader takes numbers in a report for."""

from __future__ import annotations

from fractions import Fraction

FACTORS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


def read_back(text: str) -> Fraction:
    """The nanoseconds or bytes of a text with a unit; 0 needs none."""
    number, _, unit = text.partition(" ")
    return Fraction(number.replace(",", "")) * (FACTORS[unit] if unit else 1)


def half_a_last_digit(text: str) -> Fraction:
    """How far rounding may take a text from its value.

    With a little for the division in floating point.
    """
    number, _, unit = text.partition(" ")
    last_digit = Fraction(1, 10 ** len(number.partition(".")[2]))
    return Fraction("0.5000001") * last_digit * (FACTORS[unit] if unit else 1)


def agree(base: str, head: str, change: str) -> bool:
    """Whether two times or sizes give a change in percent, as far as their digits show it."""
    sides = [
        (read_back(text) - half_a_last_digit(text), read_back(text) + half_a_last_digit(text))
        for text in (base, head)
    ]
    base_sides, (head_low, head_high) = sides
    share = Fraction(change.removesuffix(" %").replace(",", "")) / 100
    half = Fraction("0.0005000001")
    # A time without the profiler's overhead may be below 0.
    heads = [(1 + share + rest) * side for rest in (-half, half) for side in base_sides]
    return max(heads) >= head_low and min(heads) <= head_high
