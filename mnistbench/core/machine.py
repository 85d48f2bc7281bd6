"""The process and its machine: the allocator, memory, cores and the garbage collector.

The thresholds of malloc are the largest cause of differences between runs of the same code. By
default, glibc returns large blocks to the system, and the next step page-faults them in again. With
higher thresholds it keeps them: the spread between processes falls from 8.6 / 6.4 / 4.6 % to 5.5 /
2.7 / 1.3 % (batch 1 / 16 / 64, one thread), and a step gets faster. glibc reads the thresholds when
a process starts, so only the parent process can set them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import platform
import re
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# ---- Allocator -----------------------------------------------------------------------------------


#: The values that ``tox -e bench`` and ``tox -e gpu`` set: blocks below 1 GiB come from the heap,
#: which shrinks only when 1 GiB of it is free and grows by 64 MiB.
PINNED = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_TOP_PAD_": "67108864",
}

#: Bytes of heap that the gate touches before it measures: several times those that a step of
#: ConvNet allocates at batch 64.
TOUCHED_BYTES = 512 * 2**20

#: How long a thread of GNU's OpenMP waits for the others before it gives its core to another
#: process: some tens of microseconds instead of milliseconds. A training alone on its cores takes
#: the same time, one that shares them loses less: docs/evidence/training.md.
SHORT_WAITS = {"GOMP_SPINCOUNT": "10000"}

_OTHERS = (
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "MALLOC_ARENA_MAX",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
)


def allocator_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a process that configure its allocators."""
    return {name: environ[name] for name in (*PINNED, *_OTHERS) if environ.get(name)}


def touch_heap() -> None:
    """Allocate TOUCHED_BYTES, write to each of them, and free them.

    The heap keeps the pages if the thresholds are pinned.
    """
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(TOUCHED_BYTES)
    if block:
        ctypes.memset(block, 1, TOUCHED_BYTES)
        libc.free(block)


#: Set by launchers of several processes (torchrun, Slurm, Open MPI), which start and watch their
#: processes themselves.
_LAUNCHED = ("TORCHELASTIC_RUN_ID", "LOCAL_RANK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


def restart_pinned(*, short_waits: bool = False) -> None:
    """Start this command again with pinned thresholds, in place of this process.

    Its number, signals and exit code stay.

    With ``short_waits`` also with SHORT_WAITS, unless the environment has a variable for the same
    purpose. Does nothing without glibc, under a launcher, where a threshold is set already, or if
    Python was started for something else than the command line in ``sys.argv``. Call it first: what
    the process has done is lost.
    """
    given = sys.argv[1:]
    is_command = sys.orig_argv[len(sys.orig_argv) - len(given) :] == given
    if (
        not is_command
        or platform.libc_ver()[0] != "glibc"
        or any(name in os.environ for name in (*PINNED, *_LAUNCHED))
    ):
        return
    waits = SHORT_WAITS if short_waits and "OMP_WAIT_POLICY" not in os.environ else {}
    os.execve(  # noqa: S606  # no shell: the arguments are those of this process
        sys.executable, [sys.executable, *sys.orig_argv[1:]], {**waits, **os.environ, **PINNED}
    )


def allocator_status(environ: Mapping[str, str]) -> str:
    """Return in a few words whether the thresholds are set, and how to set them."""
    found = allocator_settings(environ)
    if all(found.get(name) == value for name, value in PINNED.items()):
        return "allocator thresholds pinned"
    if any(name in found for name in PINNED):
        return "allocator thresholds set by hand"
    return "allocator thresholds not set, so two runs differ more: use tox -e bench (README, Noise)"


# ---- Memory --------------------------------------------------------------------------------------


def available_bytes() -> float:
    """Return the memory that processes can get without swapping.

    Infinite where the system does not tell.
    """
    found = []
    with contextlib.suppress(OSError, KeyError, ValueError):
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(1024 * int(lines["MemAvailable"].split()[0]))
    with contextlib.suppress(OSError, ValueError):  # the limit of a container; "max" without one
        limit, used = (
            int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current")
        )
        found.append(limit - used)
    return min(found, default=math.inf)


# ---- Cores ---------------------------------------------------------------------------------------


def peak_resident_bytes() -> int:
    """Return the peak resident memory of this process so far, in bytes."""
    # ru_maxrss of Linux has that of the process that started this one, too.
    with contextlib.suppress(OSError, IndexError):
        return 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def own_cores() -> list[int]:
    """Return the numbers of the cores; none where the system does not let a process choose."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def usable_cpus() -> int:
    """Return how many cores there are."""
    return len(own_cores()) or os.cpu_count() or 1


def cpu_info() -> Mapping[str, Any]:
    """Return what py-cpuinfo reports about the processor; it takes a second."""
    import cpuinfo  # type: ignore[import-untyped]  # a dependency of pytest-benchmark

    return dict(cpuinfo.get_cpu_info())


def cpu_model() -> str:
    """Return the name of the processor, as py-cpuinfo does."""
    with contextlib.suppress(OSError, IndexError):  # of Linux; py-cpuinfo takes 0.2 s
        return str(
            re.findall(r"^model name\s*: *(.*\S)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[
                0
            ]
        )
    return str(cpu_info().get("brand_raw") or platform.processor() or "unknown")


# ---- Garbage collector ---------------------------------------------------------------------------


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Stop the search for reference cycles.

    It would traverse all parsed objects again and again without finding any.

    Do not use it around measured work: a user's program has the collector enabled.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
