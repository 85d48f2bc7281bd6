"""What a call starts and does not wait for is found."""

import functools
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mnistbench.gate.processes.following import outliving
from mnistbench.gate.processes.following.outliving import Watch
from mnistbench.gate.processes.sides.case import PlainCase
from mnistbench.measuring.calls import Call


def case(function, *args, **more):
    plain_case = PlainCase(Call(function, args, **more), threads=1)
    plain_case.build()
    return plain_case


def busy(seconds=0.1):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


ONE_THREAD = "1 thread goes on after the call returns, and its work is not timed"


class TestWorkThatOutlivesACall:
    """The second call of a survey, whose threads and processes should end with it."""

    @pytest.fixture(autouse=True)
    def _ended(self, monkeypatch):
        """End what a test has started.

        A thread gets its core for a part of each tenth of a second, also on a busy machine.
        """
        monkeypatch.setattr(outliving, "_FIRST_TURN_S", 0.1)
        monkeypatch.setattr(outliving, "_WATCHED_S", 0.1)
        self.release = threading.Event()
        self.started = []
        yield
        self.release.set()
        for started in self.started:
            if isinstance(started, subprocess.Popen):
                started.kill()
                started.wait()
            else:
                started.join()

    def start(self, work, count=1):
        for _ in range(count):
            self.started.append(threading.Thread(target=work))
            self.started[-1].start()

    def outlives(self, function, *args, **more):
        plain_case = case(function, *args, **more)
        plain_case.result(Watch())
        return plain_case.outlives

    def test_a_thread_that_was_not_waited_for_is_named(self):
        assert self.outlives(lambda: self.start(self.release.wait)) == ONE_THREAD

    def test_all_of_several_are_counted(self):
        def call():
            self.start(self.release.wait, 2)
            self.started.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1))

        assert self.outlives(call) == (
            "2 threads and 1 process go on after the call returns, and their work is not timed"
        )

    def test_a_teardown_that_waits_for_it_is_not_timed_either(self):
        def teardown():
            self.release.set()

        call = functools.partial(self.start, self.release.wait)
        assert self.outlives(call, teardown=teardown) == ONE_THREAD

    def test_a_thread_of_a_pool_that_works_on_is_named(self):
        for seconds in (1.0, 0.002):  # the time in which it may keep the interpreter is 5 ms
            with ThreadPoolExecutor(1) as pool:
                pool.submit(int).result()  # its thread is there before the call
                work = functools.partial(pool.submit, busy, seconds)
                assert self.outlives(work) == ONE_THREAD

    def test_what_the_call_waits_for_is_timed(self):
        def in_a_thread():
            self.start(int)
            self.started[-1].join()

        def in_a_process():
            subprocess.run([sys.executable, "-c", ""], check=True)

        for call in (in_a_thread, in_a_process, int):
            assert self.outlives(call) == ""
        with ThreadPoolExecutor(1) as pool:
            pool.submit(int).result()  # its thread is there before the call
            assert self.outlives(lambda: pool.submit(busy, 0.01).result()) == ""

    def test_what_works_before_the_call_is_not_of_it(self):
        self.start(lambda: busy(1.0))
        self.start(self.release.wait)
        assert self.outlives(int) == ""

    def test_a_process_that_has_ended_does_no_work(self):
        def call():
            process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
            self.started.append(process)
            process.stdout.read()  # until its end, and it stays a zombie
            time.sleep(0.05)

        assert self.outlives(call) == ""

    def test_only_a_survey_looks(self):
        plain_case = case(lambda: self.start(self.release.wait))
        plain_case.result()
        assert plain_case.outlives == ""


class TestWaiting:
    """A survey has thousands of calls, so it waits only for what may go on."""

    @pytest.fixture(autouse=True)
    def waits(self, monkeypatch):
        waits = []
        monkeypatch.setattr(outliving.time, "sleep", waits.append)
        return waits

    def test_there_is_nothing_to_wait_for_without_other_threads_and_processes(
        self, waits, monkeypatch
    ):
        monkeypatch.setattr(outliving, "_threads", frozenset)  # plug-ins of pytest have some
        monkeypatch.setattr(outliving, "running_children", frozenset)
        case(int).result(Watch())
        assert waits == []

    def test_a_thread_that_had_no_turn_since_the_last_call_does_not_work(self, waits):
        release = threading.Event()
        thread = threading.Thread(target=release.wait)
        thread.start()
        watch = Watch()
        release.wait(0.1)  # until the thread waits, too
        case(int).result(watch)
        waits.clear()
        for _ in range(3):
            case(int).result(watch)
        release.set()
        thread.join()
        assert waits == [outliving._FIRST_TURN_S] * 3
