"""A side: errors of its code, what it has imported, and its costs that occur once."""

from __future__ import annotations

import resource
import subprocess
import sys
from types import ModuleType

import pytest

from mnistbench.gate.processes.sides.side import CaseError, Side, SideError


@pytest.fixture
def side(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    return Side("base", tree, tree, "/nowhere")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("a reason"), "base: ValueError: a reason"),
        (ValueError("\nfirst\nsecond"), "base: ValueError: first"),
        (KeyError(), "base: KeyError: no message"),
    ],
    ids=["one line", "lines", "no message"],
)
def test_what_a_sides_code_raises_is_one_line_with_its_name(side, error, message):
    with pytest.raises(SideError) as raised, side.errors_named():
        raise error
    assert str(raised.value).partition(" (")[0] == message
    side.running = "t.py::t"
    with pytest.raises(CaseError) as raised, side.errors_named():
        raise error
    assert str(raised.value).partition(" (")[0] == message.replace("base:", "base: t.py::t fails:")
    assert f"({__file__}:" in str(raised.value)  # no line of the tree leads to it


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_goes_on(side, error):
    with pytest.raises(error), side.errors_named():
        raise error


def test_a_tree_whose_name_begins_like_the_sides_is_another(side, monkeypatch):
    foreign = ModuleType("gate_test_other")
    foreign.__file__ = str(side.tree.with_name("tree2") / "other.py")
    monkeypatch.setitem(sys.modules, "gate_test_other", foreign)
    assert side.imports().files == {}


def test_the_time_of_ended_child_processes_belongs_to_a_cost(tmp_path):
    side = Side("head", tmp_path, tmp_path, "")

    def seconds_of_children():
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime

    with side.counted("setup", "t.py::t"):
        before_s = seconds_of_children()
        subprocess.run([sys.executable, "-c", "sum(range(1_000_000))"], check=True)
        spent_s = seconds_of_children() - before_s
    assert side.once["setup"]["t.py::t"] >= round(spent_s * 1e9) > 0
