"""A pause of Python's garbage collector, for work that makes many objects and drops none."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Stop the search for reference cycles: it would traverse all parsed objects again and again without finding any.

    Do not use it around measured work: a user's program has the collector enabled.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
