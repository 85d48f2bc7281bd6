"""Which of the allocator's settings a process has, and what is said of them."""

from __future__ import annotations

import pytest

from mnistbench.core.allocator import PINNED, settings, status

PINNED_STATUS = "allocator thresholds pinned"
BY_HAND_STATUS = "allocator thresholds set by hand"
UNSET_STATUS = "allocator thresholds not set, so two runs differ more: use tox -e bench (README, Noise)"


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, {}),
        ({"PATH": "/bin", "MALLOC_CHECK_": "3"}, {}),
        ({**PINNED, "PATH": "/bin"}, PINNED),
        ({"MALLOC_TOP_PAD_": ""}, {}),
        ({"LD_PRELOAD": "/lib/libjemalloc.so"}, {"LD_PRELOAD": "/lib/libjemalloc.so"}),
        ({"GLIBC_TUNABLES": "glibc.malloc.top_pad=1"}, {"GLIBC_TUNABLES": "glibc.malloc.top_pad=1"}),
        ({"PYTORCH_ALLOC_CONF": "a:b", "PYTORCH_CUDA_ALLOC_CONF": "c:d", "MALLOC_ARENA_MAX": "1"},) * 2,
    ],
)
def test_settings_are_the_variables_that_steer_an_allocator(environ: dict[str, str], found: dict[str, str]) -> None:
    assert settings(environ) == found


@pytest.mark.parametrize(
    ("environ", "said"),
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
def test_status_says_whether_the_thresholds_are_set(environ: dict[str, str], said: str) -> None:
    assert status(environ) == said


def test_pinned_thresholds_are_a_gibibyte_a_gibibyte_and_64_mebibytes() -> None:
    assert list(map(int, PINNED.values())) == [2**30, 2**30, 64 * 2**20]
