"""The process and its machine: allocator, memory, cores, children and the garbage collector.

The thresholds of malloc are the largest cause of differences between runs of the same code. By
default, glibc returns large blocks to the system, and the next step page-faults them in again. With
higher thresholds it keeps them: the spread between processes falls from 8.6 / 6.4 / 4.6 % to 5.5 /
2.7 / 1.3 % (batch 1 / 16 / 64, one thread), and a step gets faster. So each process that measures
raises them when it starts, by ``mallopt``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import math
import os
import platform
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def machine_and_python() -> dict[str, Any]:
    """Return the fields of ``record.Environment`` that do not depend on torch, by name."""
    from mnistbench import __version__

    return {
        "mnistbench": __version__,
        "python": platform.python_version(),
        "platform": operating_system(),
        "cpu_model": cpu_model(),
        "cpu_count": usable_cpus(),
        "allocator": allocator_settings(os.environ),
    }


def operating_system() -> str:
    """Return kernel and architecture, with the distribution where it has a name."""
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    try:
        return f"{kernel}, {platform.freedesktop_os_release()['PRETTY_NAME']}"
    except OSError:  # macOS, or a container without the file
        return kernel


# ---- Allocator -----------------------------------------------------------------------------------


#: The thresholds of malloc, by the environment variable that sets each when a process starts: its
#: number in ``mallopt``, and its values in bytes, of which the first that malloc accepts is set.
#: Blocks below 1 GiB come from the heap, which shrinks only when 1 GiB of it is free and grows by
#: 64 MiB. An older glibc accepts at most 32 MiB for the first, as mallopt(3) says.
_THRESHOLDS = {
    "MALLOC_MMAP_THRESHOLD_": (-3, (2**30, 2**25)),
    "MALLOC_TRIM_THRESHOLD_": (-1, (2**30,)),
    "MALLOC_TOP_PAD_": (-2, (2**26,)),
}

#: The environment variables that have this effect in a program that does not call ``mallopt``.
PINNED = {name: str(values[0]) for name, (_, values) in _THRESHOLDS.items()}

#: Fewest bytes of heap that the gate touches before it measures.
MIN_TOUCHED_BYTES = 64 * 2**20
#: Most bytes of heap that the gate touches before it measures, which takes 0.2 s of CPU time:
#: several times those that a step of ConvNet allocates at batch 64.
MAX_TOUCHED_BYTES = 512 * 2**20

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


def has_posix() -> bool:
    """Return whether the system has processes of POSIX, which the commands that measure start."""
    return hasattr(os, "fork")


def _libc() -> ctypes.CDLL | None:
    """Return the C library of the process; None on Windows, where a process has several."""
    return ctypes.CDLL(None) if has_posix() else None


@functools.cache  # once in a process
def pin_allocator() -> Mapping[str, str]:
    """Raise the thresholds of malloc, except those that an environment variable sets.

    Call it when the process starts: a block that was allocated outside of the heap stays there.

    Returns:
        variable -> value of each threshold that was raised; none without glibc.
    """
    mallopt = getattr(_libc(), "mallopt", None)
    raised: dict[str, str] = {}
    if mallopt is None:
        return raised
    for variable, (number, values) in _THRESHOLDS.items():
        if os.environ.get(variable):
            continue
        accepted = next((value for value in values if mallopt(number, value)), None)
        if accepted is not None:
            raised[variable] = str(accepted)
    return raised


def allocator_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the allocators in a process that measures, by environment variable.

    The variables of ``environ``, and the thresholds that :func:`pin_allocator` raises.
    """
    variables = {name: environ[name] for name in (*PINNED, *_OTHERS) if environ.get(name)}
    return {**pin_allocator(), **variables}


def allocator_status(settings: Mapping[str, str]) -> str:
    """Return in a few words whether the thresholds of these settings are raised."""
    if all(settings.get(name, "") in map(str, values) for name, (_, values) in _THRESHOLDS.items()):
        return "allocator pinned"
    if any(name in settings for name in PINNED):
        return "allocator thresholds set by hand"
    return "allocator not pinned, so two runs differ more"


def touch_heap(size: int = MAX_TOUCHED_BYTES) -> None:
    """Allocate a number of bytes, write to each of them, and free them.

    The heap keeps the pages if the thresholds are raised.
    """
    libc = _libc()
    assert libc is not None, "what measures runs on POSIX"
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(size)
    if block:
        ctypes.memset(block, 1, size)
        libc.free(block)


def shorten_waits() -> None:
    """Set SHORT_WAITS, unless the environment has a variable for the same purpose.

    Call it before torch is imported: OpenMP reads its variables then.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        for variable, value in SHORT_WAITS.items():
            os.environ.setdefault(variable, value)


# ---- Memory --------------------------------------------------------------------------------------


def available_bytes() -> float:
    """Return the memory that processes can get without swapping.

    Infinite where the system does not tell.
    """
    limits = []
    with contextlib.suppress(OSError, KeyError, ValueError):
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        limits.append(1024 * int(lines["MemAvailable"].split()[0]))
    with contextlib.suppress(OSError, ValueError):  # the limit of a container; "max" without one
        limit, used = (
            int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current")
        )
        limits.append(limit - used)
    if has_posix():
        import resource  # here and below: Windows has none

        allowed, _ = resource.getrlimit(resource.RLIMIT_AS)  # ulimit -v
        if allowed != resource.RLIM_INFINITY:
            limits.append(max(0, allowed - _status_bytes("VmSize")))
    return min(limits, default=math.inf)


# ---- Cores ---------------------------------------------------------------------------------------


def peak_resident_bytes() -> int:
    """Return the peak resident memory of this process so far, in bytes."""
    import resource

    # ru_maxrss of Linux has that of the process that started this one, too.
    return _status_bytes("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def reset_peak_resident() -> int:
    """Forget the peak of resident memory; return the memory now, in bytes.

    0 where the system does not allow it. Source: proc(5), /proc/PID/clear_refs.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
        return resident_bytes()
    return 0


def resident_bytes() -> int:
    """Return the resident memory of this process, in bytes; 0 where the system does not say it."""
    return _status_bytes("VmRSS")


def _status_bytes(name: str) -> int:
    """Return a field of the process's status; 0 for a system without it.

    Source: proc_pid_status(5).
    """
    with contextlib.suppress(OSError, IndexError):
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition(f"{name}:")[2].split()[0])
    return 0


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


# ---- Child processes -----------------------------------------------------------------------------

#: Numbers of attributes of a process, from linux/prctl.h.
_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36


def running_children() -> frozenset[int]:
    """Return the numbers of the child processes that have not ended.

    None on a system without /proc. Source: proc_pid_task_tid_children(5).
    """
    return frozenset(child for child in all_children() if not _has_ended(child))


def all_children() -> frozenset[int]:
    """Return the numbers of the child processes, also of those that nothing has waited for yet.

    None on a system without /proc. Source: proc_pid_task_tid_children(5).
    """
    children = set[int]()
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/self/task"):  # noqa: PTH208  # a Path costs more
            with contextlib.suppress(OSError):  # a thread has ended meanwhile
                children.update(map(int, _text(f"/proc/self/task/{task}/children").split()))
    return frozenset(children)


def adopt_orphans(adopts: bool) -> None:
    """Choose whether processes that descendants leave behind become children of this process.

    On Linux. Otherwise they are children of init. Source: PR_SET_CHILD_SUBREAPER(2const).
    """
    _prctl(_SET_CHILD_SUBREAPER, int(adopts))


def end_with(parent: int) -> None:
    """Have the system kill this process when its parent ends, also when that is killed; on Linux.

    The parent is the thread that started this process. Source: PR_SET_PDEATHSIG(2const).

    Args:
        parent: the process for which this one runs. If it has ended before this call, this process
            ends at once. It need not be the parent, which may be a script in between.
    """
    if (
        _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        and os.getppid() != parent
        and _has_ended(parent)
    ):
        os.kill(os.getpid(), signal.SIGKILL)


def end_processes_of(folder: Path) -> None:
    """Kill processes whose temporary files or bytecode were to be in a folder; on Linux.

    The variables are those that commands set for what they start. The shell of a user who looks
    into the folder, and what it starts, have others. Source: proc_pid_environ(5).
    """
    variables = rb"(?:^|\0)(?:TMPDIR|PYTHONPYCACHEPREFIX)="
    within = re.compile(variables + re.escape(os.fsencode(folder)) + b"/")
    for entry in Path("/proc").glob("[1-9]*"):
        with contextlib.suppress(OSError):  # of another user, or ended meanwhile
            if entry.name != str(os.getpid()) and within.search((entry / "environ").read_bytes()):
                os.kill(int(entry.name), signal.SIGKILL)


def _prctl(option: int, value: int) -> bool:
    """Set an attribute of this process; return whether the system has it. Source: prctl(2)."""
    prctl = getattr(_libc(), "prctl", None)
    nothing = ctypes.c_ulong(0)
    return prctl is not None and not prctl(option, ctypes.c_ulong(value), nothing, nothing, nothing)


def _has_ended(process: int) -> bool:
    """Whether a process is a zombie (Z in proc_pid_stat(5)), or no longer there."""
    try:
        return _text(f"/proc/{process}/stat").rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123  # a Path costs more
        return file.read()


def ended_children_s() -> float:
    """Return the CPU time of ended children that were waited for, in seconds."""
    import resource

    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


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
