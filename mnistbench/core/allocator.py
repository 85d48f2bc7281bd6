"""The thresholds of malloc, the largest cause of differences between runs of the same code.

By default, glibc returns large blocks to the system, and the next step page-faults them in again. With higher thresholds it
keeps them: the spread between processes falls from 8.6 / 6.4 / 4.6 % to 5.5 / 2.7 / 1.3 % (batch 1 / 16 / 64, one thread),
and a step gets faster. glibc reads the thresholds when a process starts, so only the parent process can set them.
"""

from __future__ import annotations

from collections.abc import Mapping

#: The values that ``tox -e bench`` and ``tox -e gpu`` set: blocks below 1 GiB come from the heap, which shrinks only when 1 GiB
#: of it is free and grows by 64 MiB.
PINNED = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_TOP_PAD_": "67108864",
}

_OTHERS = ("GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_ARENA_MAX", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a process that configure its allocators."""
    return {name: environ[name] for name in (*PINNED, *_OTHERS) if environ.get(name)}


def status(environ: Mapping[str, str]) -> str:
    """Return in a few words whether the thresholds are set, and how to set them."""
    found = settings(environ)
    if all(found.get(name) == value for name, value in PINNED.items()):
        return "allocator thresholds pinned"
    if any(name in found for name in PINNED):
        return "allocator thresholds set by hand"
    return "allocator thresholds not set, so two runs differ more: use tox -e bench (README, Noise)"
