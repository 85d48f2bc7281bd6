"""Cores that the process may use."""

import os

import pytest

from mnistbench.core import machine as cores


def test_only_cpus_that_the_process_may_use_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 8}, raising=False)
    assert cores.own_cores() == [3, 5, 8]
    assert cores.usable_cpus() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores.own_cores() == []
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert cores.usable_cpus() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores.usable_cpus() == 1
