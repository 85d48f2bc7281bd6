"""Python's garbage collector, kept away from work that makes much and drops nothing."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Keep Python from looking for cycles: what a parser makes is no garbage yet, and is gone through again and again.

    Not for measured work: a user's program collects, too.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
