"""The process and its machine: settings of the allocator, cores, the garbage collector."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mnistbench.core import machine
from mnistbench.core.machine import (
    PINNED,
    SHORT_WAITS,
    allocator_settings,
    allocator_status,
    gc_paused,
    own_cores,
    peak_resident_bytes,
    pin_allocator,
    shorten_waits,
    usable_cpus,
)

#: What mallopt is called with, in the order of the variables.
RAISED = [(-3, 2**30), (-1, 2**30), (-2, 2**26)]


class Libc:
    """A C library whose malloc accepts no value above ``most`` for the first threshold."""

    def __init__(self, most: int = 2**30) -> None:
        self.calls: list[tuple[int, int]] = []
        self._most = most

    def mallopt(self, number: int, value: int) -> int:
        self.calls.append((number, value))
        return int(number != -3 or value <= self._most)


@pytest.fixture
def pin(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], Mapping[str, str]]:
    """Pin the allocator of a C library in a process without variables."""
    for name in PINNED:
        monkeypatch.delenv(name, raising=False)

    def pin(libc: object) -> Mapping[str, str]:
        monkeypatch.setattr(ctypes, "CDLL", lambda _: libc)
        return pin_allocator.__wrapped__()

    return pin


def test_thresholds_are_raised_as_by_the_variables(
    pin: Callable[[object], Mapping[str, str]],
) -> None:
    libc = Libc()
    assert pin(libc) == PINNED
    assert libc.calls == RAISED


def test_an_older_glibc_gets_the_largest_threshold_that_it_accepts(
    pin: Callable[[object], Mapping[str, str]],
) -> None:
    libc = Libc(most=2**25)
    raised = pin(libc)
    assert raised == {**PINNED, "MALLOC_MMAP_THRESHOLD_": str(2**25)}
    assert libc.calls == [RAISED[0], (-3, 2**25), *RAISED[1:]]
    assert allocator_status(raised) == "allocator pinned"


def test_a_threshold_of_the_environment_stays(
    pin: Callable[[object], Mapping[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    libc = Libc()
    raised = pin(libc)
    assert libc.calls == [RAISED[0], RAISED[2]]
    assert allocator_status({**raised, **os.environ}) == "allocator thresholds set by hand"


def test_another_c_library_is_not_pinned(pin: Callable[[object], Mapping[str, str]]) -> None:
    raised = pin(object())
    assert raised == {}
    assert allocator_status(raised).startswith("allocator not pinned")


#: Allocates 64 MiB at a time, after a first one, and prints how many pages that faulted.
ALLOCATING = """
import ctypes, resource, sys
from mnistbench.core.machine import pin_allocator, touch_heap

if sys.argv[1] == "pinned":
    pin_allocator()
touch_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    block = libc.malloc(ctypes.c_size_t(64 * 2**20))
    ctypes.memset(block, 1, 64 * 2**20)
    libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
@pytest.mark.parametrize(("how", "faults"), [("pinned", False), ("default", True)])
def test_a_pinned_heap_keeps_its_pages(how: str, faults: bool) -> None:
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "GLIBC"))
    }
    done = subprocess.run(
        [sys.executable, "-c", ALLOCATING, how],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (int(done.stdout) > 100) == faults


@pytest.mark.parametrize(
    ("environ", "settings"),
    [
        ({"PATH": "/bin", "MALLOC_CHECK_": "3", "MALLOC_ARENA_MAX": ""}, {}),
        ({"MALLOC_TOP_PAD_": "1"}, {"MALLOC_TOP_PAD_": "1"}),
        ({"LD_PRELOAD": "/lib/libjemalloc.so"}, {"LD_PRELOAD": "/lib/libjemalloc.so"}),
        (
            {"GLIBC_TUNABLES": "glibc.malloc.top_pad=1"},
            {"GLIBC_TUNABLES": "glibc.malloc.top_pad=1"},
        ),
        ({"PYTORCH_ALLOC_CONF": "a:b", "PYTORCH_CUDA_ALLOC_CONF": "c:d", "MALLOC_ARENA_MAX": "1"},)
        * 2,
    ],
)
def test_settings_are_the_raised_thresholds_and_the_variables_of_an_allocator(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], settings: dict[str, str]
) -> None:
    monkeypatch.setattr(machine, "pin_allocator", lambda: PINNED)
    assert allocator_settings(environ) == {**PINNED, **settings}


@pytest.mark.parametrize(
    ("variables", "waits"),
    [
        ({}, SHORT_WAITS),
        ({"OMP_WAIT_POLICY": "passive"}, {}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
    ],
)
def test_waits_are_short_unless_the_environment_says_how_to_wait(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], waits: dict[str, str]
) -> None:
    environ = dict(variables)
    monkeypatch.setattr(os, "environ", environ)
    shorten_waits()
    assert environ == {**variables, **waits}


def test_only_cores_that_the_process_may_use_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 8}, raising=False)
    assert (own_cores(), usable_cpus()) == ([3, 5, 8], 3)
    monkeypatch.delattr(os, "sched_getaffinity")
    for count, cores in ((6, 6), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        assert (own_cores(), usable_cpus()) == ([], cores)


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collector_is_paused_and_then_as_before(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with contextlib.suppress(KeyError), gc_paused():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.skipif(platform.system() != "Linux", reason="needs /proc")
def test_peak_memory_is_that_of_this_process_without_the_one_that_started_it() -> None:
    large = bytearray(b"x") * (300 * 2**20)
    program = (
        "from mnistbench.core.machine import peak_resident_bytes; print(peak_resident_bytes())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert 2**20 < int(done.stdout) < len(large) < peak_resident_bytes()


#: Starts a process that ends with it, and prints that this one is ready.
STARTING = """
import os, subprocess, sys
program = (
    "import sys; from mnistbench.core.machine import end_with; end_with(int(sys.argv[1])); "
    "print('ready', flush=True); sys.stdin.read()"
)
subprocess.Popen([sys.executable, "-c", program, str(os.getpid())]).wait()
"""


@pytest.mark.skipif(platform.system() != "Linux", reason="needs prctl")
def test_a_process_ends_with_the_one_that_started_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        process.wait()
        assert process.stdout.read() == b""  # the other one has closed it
    # Or at once, if the first had ended before.
    program = f"from mnistbench.core.machine import end_with; end_with({process.pid}); print('on')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


@pytest.mark.parametrize(
    ("of_linux", "info", "processor", "model"),
    [
        (
            "flags\t: fpu\nmodel name\t: AMD EPYC 9R14 \nmodel name\t: another\n",
            {"brand_raw": "wrong"},
            "x86_64",
            "AMD EPYC 9R14",
        ),
        ("processor\t: 0\n", {"brand_raw": "Neoverse-V2"}, "aarch64", "Neoverse-V2"),
        ("", {}, "x86_64", "x86_64"),
        (None, {"brand_raw": ""}, "arm", "arm"),
        (None, {}, "", "unknown"),
    ],
)
def test_cpu_model_is_the_most_precise_name(
    monkeypatch: pytest.MonkeyPatch,
    of_linux: str | None,
    info: dict[str, str],
    processor: str,
    model: str,
) -> None:
    def read_text(path: Path) -> str:
        if of_linux is None:
            raise FileNotFoundError(path)
        return of_linux

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr("cpuinfo.get_cpu_info", lambda: info)
    monkeypatch.setattr(platform, "processor", lambda: processor)
    assert machine.cpu_model() == model


def test_the_limit_of_the_address_space_counts_as_memory():
    program = (
        "import resource; from mnistbench.core.machine import available_bytes; "
        "resource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9)); print(available_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert 0 < float(done.stdout) < 10**9


def test_the_operating_system_has_the_name_of_its_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"PRETTY_NAME": "Debian 12"})
    assert machine.operating_system().endswith(f" {platform.machine()}, Debian 12")

    def missing() -> None:
        raise OSError

    monkeypatch.setattr(platform, "freedesktop_os_release", missing)
    assert machine.operating_system().endswith(f" {platform.machine()}")
