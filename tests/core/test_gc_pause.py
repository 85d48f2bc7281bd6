"""The collector rests while something is parsed, and is then as it was."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import pytest

from mnistbench.core.machine import gc_paused


@pytest.fixture(autouse=True)
def collector_as_before() -> Iterator[None]:
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
def test_it_rests_inside_and_is_as_before_outside(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    with contextlib.suppress(KeyError), gc_paused():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled() == enabled
