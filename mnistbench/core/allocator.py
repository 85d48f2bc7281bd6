"""The allocator's thresholds: what decides most how far two runs of the same code lie apart.

glibc returns large blocks to the system and faults them in again on the next step. With the thresholds raised it keeps
them: the spread between processes falls from 8.6 / 6.4 / 4.6 % to 5.5 / 2.7 / 1.3 % (batch 1 / 16 / 64, one thread),
and the step itself gets faster. They are read when a process starts, so only its parent can set them.
"""

from __future__ import annotations

from collections.abc import Mapping

#: What ``tox -e bench`` and ``tox -e gpu`` set: blocks below 1 GiB come from the heap, which shrinks only when 1 GiB
#: of it is free and grows by 64 MiB.
PINNED = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_TOP_PAD_": "67108864",
}

_OTHERS = ("GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_ARENA_MAX", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process that steer its allocators."""
    return {name: environ[name] for name in (*PINNED, *_OTHERS) if environ.get(name)}


def status(environ: Mapping[str, str]) -> str:
    """Say in a few words whether the thresholds are set, and how to set them."""
    found = settings(environ)
    if all(found.get(name) == value for name, value in PINNED.items()):
        return "allocator thresholds pinned"
    if any(name in found for name in PINNED):
        return "allocator thresholds set by hand"
    return "allocator thresholds not set, so two runs differ more: use tox -e bench (README, Noise)"
