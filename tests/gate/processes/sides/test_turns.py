"""Turns of two processes, which are threads here."""

import socket
import threading
import time
from contextlib import closing

import pytest
from gate_builders import both
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.gate.processes.sides.turns import PeerError, Turns
from mnistbench.gate.words import BASE, HEAD


@given(
    st.lists(st.lists(st.sampled_from([BASE, HEAD]), max_size=12), max_size=4),
    st.sampled_from([BASE, HEAD]),
)
def test_two_processes_run_one_at_a_time_in_the_given_order(sequences, first) -> None:
    ran = []
    running = threading.Lock()

    def work(turns, name):
        for sequence in sequences:
            for _ in turns.of(sequence):
                assert running.acquire(blocking=False), "both sides run"
                ran.append(name)
                running.release()

    both(work, first)
    assert ran == [name for sequence in sequences for name in sequence]


def test_a_sequence_ends_for_both_after_its_last_turn() -> None:
    ended = threading.Event()

    def work(turns, name):
        for _ in turns.of([BASE, HEAD]):
            if name == HEAD:
                assert not ended.wait(0.05), "the base went on during the last turn of the head"
        ended.set()

    both(work)


def test_a_function_is_called_after_each_turn() -> None:
    calls = []

    def work(turns, name):
        for _ in turns.of([BASE, HEAD, BASE]):
            pass
        for _ in turns.at_once([BASE, HEAD]):
            pass

    both(work, after_turn=calls.append)
    assert (calls.count(BASE), calls.count(HEAD)) == (4, 3)


def test_both_processes_run_at_once() -> None:
    together = threading.Barrier(2, timeout=10)
    assert both(lambda turns, _: [together.wait() for _ in turns.at_once([BASE, HEAD, HEAD])])


def test_nobody_runs_ahead_of_the_other_process() -> None:
    ran = {BASE: 0, HEAD: 0}

    def work(turns, name):
        for _ in turns.at_once([BASE, HEAD] * 10):
            ran[name] += 1
            assert abs(ran[BASE] - ran[HEAD]) <= 1
            if name == BASE:
                time.sleep(0.001)
        assert ran == {BASE: 20, HEAD: 20}

    both(work)


@pytest.mark.parametrize("first", [BASE, HEAD])
def test_values_reach_the_other_process_however_long_they_are(first) -> None:
    value = ["tests/test_model.py::test_step"] * 100_000
    assert both(lambda turns, name: turns.exchange([name, *value]), first) == [
        [[BASE, *value], [HEAD, *value]],
        [[HEAD, *value], [BASE, *value]],
    ]


def test_both_processes_run_the_same_test() -> None:
    assert (
        both(lambda turns, _: [turns.agree(test) for test in ("t.py::a", "t.py::b", "")])
        == [[None] * 3] * 2
    )


def test_another_test_on_the_other_side_is_an_error() -> None:
    def work(turns, name):
        with pytest.raises(PeerError) as raised:
            turns.agree({BASE: "t.py::a", HEAD: ""}[name])
        return str(raised.value)

    assert both(work) == [
        "the sides run different tests: t.py::a, and none on the other side",
        "the sides run different tests: none, and t.py::a on the other side",
    ]


@pytest.mark.parametrize("name", [BASE, HEAD])
def test_the_end_of_the_other_process_is_noticed(name) -> None:
    mine, other = socket.socketpair()
    with closing(Turns(name, mine, HEAD)) as turns:
        other.close()
        with pytest.raises(PeerError, match="has ended"):
            list(turns.of([BASE, HEAD, BASE]))


@pytest.mark.parametrize("first", [BASE, HEAD])
def test_the_drawn_side_sends_first(first) -> None:
    sent = []

    def work(turns, name):
        send = turns._send  # the order of both sides cannot be seen elsewhere

        def recorded(value):
            sent.append(name)
            send(value)

        turns._send = recorded
        turns.exchange(None)
        for _ in turns.at_once([HEAD, BASE, BASE]):
            pass

    both(work, first)
    assert sent[::2] == [first, HEAD, BASE, BASE, first]
