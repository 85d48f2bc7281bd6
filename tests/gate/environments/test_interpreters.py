"""The environments that are made from the options of both sides."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from mnistbench.core.options import read
from mnistbench.gate.environments import interpreters as module
from mnistbench.gate.environments.interpreters import interpreters
from mnistbench.gate.environments.packages import Installed
from mnistbench.gate.options import SideOptions


def options(**texts):
    """Read the options as they are on the command line: field -> text or texts."""
    return read(SideOptions, texts)


@pytest.fixture
def environments(monkeypatch):
    """What environments are made from; the packages and environments are invented."""
    packages = [
        Installed("numpy", "2.4.6", size_bytes=1 << 20),
        Installed("pygments", "4.70.1", size_bytes=2 << 20),
        Installed("torch", "2.15.0"),
        Installed("own", "1", (), "file:///own", is_editable=True, size_bytes=1),
    ]
    environments = SimpleNamespace(wanted=[], used=0)

    @contextmanager
    def held(wanted, say):
        say(f"making {wanted.asked}")
        environments.wanted.append(wanted)
        environments.used += 1
        yield SimpleNamespace(python=f"/environments/{len(environments.wanted)}/bin/python")
        environments.used -= 1

    monkeypatch.setattr(module, "installed", lambda: packages)
    monkeypatch.setattr(module, "held", held)
    return environments


def test_without_options_both_sides_have_this_interpreter(environments):
    with interpreters(options(), lambda _: None) as pythons:
        assert pythons == {"base": sys.executable, "head": sys.executable}
    assert not options().differ
    assert options().variables == {"base": {}, "head": {}}
    assert environments.wanted == []


def test_each_side_has_an_environment_of_its_own_while_it_is_used(environments):
    messages = []
    sides = options(base_with=["pygments==4.66.2"], head_with=["pygments==4.67", "numpy==2.0"])
    with interpreters(sides, messages.append) as pythons:
        assert pythons == {
            "base": "/environments/1/bin/python",
            "head": "/environments/2/bin/python",
        }
        assert environments.used == 2
    assert environments.used == 0
    base, head = environments.wanted
    assert (base.asked, base.lines, base.size_bytes) == (
        ("pygments==4.66.2",),
        ("numpy==2.4.6", "torch==2.15.0", "pygments==4.66.2"),
        3 << 20,
    )
    assert (head.asked, head.lines) == (
        ("numpy==2.0", "pygments==4.67"),
        ("numpy==2.0", "torch==2.15.0", "pygments==4.67"),
    )
    assert messages == ["making ('pygments==4.66.2',)", "making ('numpy==2.0', 'pygments==4.67')"]


def test_one_side_may_have_an_environment_and_the_other_an_interpreter(environments):
    sides = options(base_python=sys.executable, head_with=["pygments==4.66.2"])
    with interpreters(sides, lambda _: None) as pythons:
        assert pythons == {"base": sys.executable, "head": "/environments/1/bin/python"}
