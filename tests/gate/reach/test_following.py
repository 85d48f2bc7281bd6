"""What the survey sees a test run and read, in a process of its own."""

from __future__ import annotations

import sys

import pytest

from mnistbench.gate.messages import Followed
from mnistbench.gate.reach.following import Follower

PROJECT = {
    "pytest.ini": "[pytest]\npythonpath = .\n",
    "data.txt": "1",
    "lib.py": """
import threading


def direct():
    return 1


def second_time():
    return 2


def in_thread():
    return 3


def items():
    yield 1


def at_import():
    return []


TABLE = at_import()


class Thing:
    calls = 0

    def __call__(self):
        self.calls += 1
        return direct() if self.calls < 3 else second_time()


def threaded():
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()


def made():
    exec("1 + 1")


def installed():
    import jsonschema  # its modules run exec


def started():
    import subprocess

    subprocess.run(["true"])


def spawned():
    import multiprocessing

    process = multiprocessing.get_context("spawn").Process(target=direct)
    process.start()
    process.join()


def read():
    with open("data.txt") as stream:
        stream.read()
""",
    "bench/conftest.py": """
import lib
import sys

import pytest

from mnistbench.gate.messages import Followed
from mnistbench.gate.reach.following import Follower


@pytest.fixture(scope="session")
def shared():
    return list(lib.items())
""",
    "bench/test_x.py": """
import lib


def test_direct(benchmark):
    benchmark(lib.direct)


def test_again(benchmark):
    benchmark(lib.direct)


def test_later_call(benchmark):
    benchmark(lib.Thing())


def test_thread(benchmark):
    benchmark(lib.threaded)


def test_shared(benchmark, shared):
    benchmark(len, shared)


def test_shared_again(benchmark, shared):
    benchmark(len, shared)


def test_made(benchmark):
    benchmark(lib.made)


def test_installed(benchmark):
    benchmark(lib.installed)


def test_started(benchmark):
    benchmark(lib.started)


def test_spawned(benchmark):
    benchmark(lib.spawned)


def test_read(benchmark):
    benchmark(lib.read)
""",
}


@pytest.fixture(scope="module")
def survey(surveyor):
    return surveyor.surveyed(PROJECT)


@pytest.mark.parametrize(
    ("test", "code"),
    [
        ("test_direct", "lib.py:direct"),
        ("test_again", "lib.py:direct"),
        ("test_later_call", "lib.py:second_time"),
        ("test_thread", "lib.py:in_thread"),
        ("test_shared", "lib.py:items"),
        ("test_shared_again", "lib.py:items"),
        ("test_shared_again", "bench/conftest.py:shared"),
    ],
)
def test_a_case_runs_code(survey, test, code):
    assert code in survey.code_of(f"bench/test_x.py::{test}")


def test_a_case_runs_no_code_of_others(survey):
    ran = survey.code_of("bench/test_x.py::test_again")
    assert ran == {"bench/test_x.py:test_again", "lib.py:direct"}


def test_code_that_ran_at_an_import_has_its_statement(survey):
    line = PROJECT["lib.py"].splitlines().index("TABLE = at_import()") + 1
    places = {
        (survey.followed.code[position].name, path, line)
        for position, path, line in survey.followed.imported
    }
    assert ("at_import", "lib.py", line) in places


def test_what_cannot_be_followed_is_named(survey):
    unfollowed = survey.followed.unfollowed
    assert {node_id.partition("::")[2] for node_id in unfollowed} == {
        "test_made",
        "test_spawned",
        "test_started",
    }


@pytest.mark.skipif(sys.version_info < (3, 12), reason="generic functions came with Python 3.12")
def test_the_definition_of_a_generic_function_does_not_run_it(surveyor):
    files = {
        "pytest.ini": "",
        "bench/test_x.py": """
def f[T](x: T):
    return x


def test_one(benchmark):
    benchmark(len, ())
""",
    }
    names = [code.name for code in surveyor.surveyed(files).followed.code]
    assert names == ["<module>", "test_one"]


def test_processes_of_an_import_are_not_followed(surveyor):
    files = {
        "pytest.ini": "",
        "bench/test_x.py": """
import multiprocessing
import time

process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(10,))
process.start()


def test_one(benchmark):
    benchmark(len, ())
""",
    }
    [reason] = surveyor.surveyed(files).followed.unfollowed.values()
    assert "processes that were started at an import" in reason


def test_a_case_reads_its_own_files(survey):
    read = survey.followed.read
    assert "data.txt" in read["bench/test_x.py::test_read"]
    assert "data.txt" not in read["bench/test_x.py::test_direct"]


def test_code_that_nobody_asks_for_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "addaudithook", lambda _: None)  # it could not be removed
    follower = Follower(tmp_path, str, follows_code=False)
    before = sys.getprofile()
    with follower.importing(is_own=True):
        assert sys.getprofile() == before
    assert follower.followed(()) == Followed()
