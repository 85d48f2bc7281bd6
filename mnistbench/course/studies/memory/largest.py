"""Search for the largest batch that fits a memory. Does not import torch."""

from __future__ import annotations

from collections.abc import Callable

#: The largest batch size that is tried.
MOST_SAMPLES = 2**31 - 1


def largest_batch(bytes_of: Callable[[int], int], memory: int, most: int = MOST_SAMPLES) -> int:
    """Return the largest batch size whose bytes are at most ``memory``; 0 if even one sample needs more.

    Bytes are mostly affine in the batch size, so of three guesses the first is on the line between the sizes around the result,
    and the second is next to the largest size that fits. The third is the middle, which bounds the number of guesses.

    Args:
        bytes_of: bytes of a batch size, never fewer for a larger one.
        memory: bytes.
        most: the largest batch size.
    """
    known = {1: bytes_of(1)}
    if known[1] > memory:
        return 0
    low, high = 1, 2
    while True:  # low fits
        if low == most:
            return low
        high = min(high, most)
        known[high] = bytes_of(high)
        if known[high] > memory:
            break
        low, high = high, 8 * high
    guesses = 0
    while high - low > 1:
        guesses += 1
        line = low + (memory - known[low]) * (high - low) // (known[high] - known[low])
        guess = (low + high) // 2 if guesses % 3 == 0 else low + 1 if guesses % 3 == 2 else line
        guess = min(max(guess, low + 1), high - 1)
        known[guess] = bytes_of(guess)
        if known[guess] <= memory:
            low = guess
        else:
            high = guess
    return low
