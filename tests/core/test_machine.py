"""The process and its machine: settings of the allocator, cores, the garbage collector."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import subprocess
import sys

import pytest

from mnistbench.core.machine import (
    PINNED,
    SHORT_WAITS,
    allocator_settings,
    allocator_status,
    gc_paused,
    own_cores,
    peak_resident_bytes,
    restart_pinned,
    usable_cpus,
)

PINNED_STATUS = "allocator thresholds pinned"
BY_HAND_STATUS = "allocator thresholds set by hand"
UNSET_STATUS = (
    "allocator thresholds not set, so two runs differ more: use tox -e bench (README, Noise)"
)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, {}),
        ({"PATH": "/bin", "MALLOC_CHECK_": "3"}, {}),
        ({**PINNED, "PATH": "/bin"}, PINNED),
        ({"MALLOC_TOP_PAD_": ""}, {}),
        ({"LD_PRELOAD": "/lib/libjemalloc.so"}, {"LD_PRELOAD": "/lib/libjemalloc.so"}),
        (
            {"GLIBC_TUNABLES": "glibc.malloc.top_pad=1"},
            {"GLIBC_TUNABLES": "glibc.malloc.top_pad=1"},
        ),
        ({"PYTORCH_ALLOC_CONF": "a:b", "PYTORCH_CUDA_ALLOC_CONF": "c:d", "MALLOC_ARENA_MAX": "1"},)
        * 2,
    ],
)
def test_allocator_settings_are_the_variables_that_configure_an_allocator(
    environ: dict[str, str], found: dict[str, str]
) -> None:
    assert allocator_settings(environ) == found


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({}, UNSET_STATUS),
        ({"LD_PRELOAD": "/lib/libjemalloc.so"}, UNSET_STATUS),
        (PINNED, PINNED_STATUS),
        ({**PINNED, "LD_PRELOAD": "/lib/libjemalloc.so"}, PINNED_STATUS),
        ({"MALLOC_TOP_PAD_": PINNED["MALLOC_TOP_PAD_"]}, BY_HAND_STATUS),
        ({**PINNED, "MALLOC_TRIM_THRESHOLD_": "1"}, BY_HAND_STATUS),
        (dict.fromkeys(PINNED, ""), UNSET_STATUS),
    ],
)
def test_allocator_status_tells_whether_the_thresholds_are_set(
    environ: dict[str, str], status: str
) -> None:
    assert allocator_status(environ) == status


COMMAND = ["python", "-X", "dev", "-m", "mnistbench", "train", "--epochs", "1"]


@pytest.fixture
def restarted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], dict[str, str]]]:
    """Pretend to be a command with glibc and an empty environment.

    The list gets the arguments of every restart.
    """
    found: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: found.append(arguments))
    monkeypatch.setattr(os, "environ", {"PATH": "/bin"})
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(sys, "orig_argv", COMMAND)
    monkeypatch.setattr(sys, "argv", ["mnistbench", *COMMAND[5:]])
    return found


def test_command_restarts_with_pinned_thresholds(
    restarted: list[tuple[str, list[str], dict[str, str]]],
) -> None:
    restart_pinned()
    [(program, arguments, environ)] = restarted
    assert (program, arguments) == (sys.executable, [sys.executable, *COMMAND[1:]])
    assert environ == {**os.environ, **PINNED}


@pytest.mark.parametrize(
    ("variables", "waits"),
    [
        ({}, SHORT_WAITS),
        ({"OMP_WAIT_POLICY": "passive"}, {}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
    ],
)
def test_command_may_restart_with_short_waits_unless_the_environment_says_how_to_wait(
    restarted: list[tuple[str, list[str], dict[str, str]]],
    variables: dict[str, str],
    waits: dict[str, str],
) -> None:
    os.environ.update(variables)
    restart_pinned(short_waits=True)
    [(_, _, environ)] = restarted
    assert environ == {**os.environ, **PINNED, **waits}


@pytest.mark.parametrize("name", [*PINNED, "LOCAL_RANK", "TORCHELASTIC_RUN_ID", "SLURM_PROCID"])
def test_a_set_threshold_or_a_launcher_prevents_the_restart(
    restarted: list[object], name: str
) -> None:
    os.environ[name] = "0"
    restart_pinned()
    assert restarted == []


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (platform, "libc_ver", lambda: ("", "")),  # another C library has no thresholds
        # A program that calls the command.
        (sys, "orig_argv", ["python", "-c", "from multiprocessing.forkserver import main"]),
    ],
)
def test_other_processes_are_not_restarted(
    restarted: list[object],
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    name: str,
    value: object,
) -> None:
    monkeypatch.setattr(module, name, value)
    restart_pinned()
    assert restarted == []


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
