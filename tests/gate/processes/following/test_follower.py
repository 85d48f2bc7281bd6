"""What the survey sees a test run and open, in a process of its own."""

from __future__ import annotations

import sys

import pytest

from mnistbench.gate.processes.following.follower import Follower
from mnistbench.gate.processes.messages import OUTSIDE

PROJECT = {
    "pytest.ini": "[pytest]\npythonpath = .\n",
    "data.txt": "1",
    "at_import.txt": "1",
    "unread.txt": "1",
    "template.py": "x = 1\n",
    "lib.py": """
import _thread
import ctypes
import linecache
import pkgutil
import runpy
import sqlite3
import threading
import tokenize

LIBC = ctypes.CDLL(None)
LIBC.fopen.restype = ctypes.c_void_p
LIBC.fclose.argtypes = [ctypes.c_void_p]

with open("at_import.txt") as stream:
    stream.read()


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


class WithHook:
    def __init_subclass__(cls):
        pass


class Kid(WithHook):
    pass


class WithMeta(metaclass=type("Meta", (type,), {})):
    class Inner:
        pass


def threaded():
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()


def made():
    names = {}
    exec("def made_here():\\n    return 1", names)
    names["made_here"]()


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


def read_in_c():
    LIBC.fclose(LIBC.fopen(b"data.txt", b"r"))


def attached():
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("attach database 'data.txt' as x")
    except sqlite3.DatabaseError:
        pass
    connection.close()


def read_by_child():
    import subprocess

    subprocess.run(["cat", "data.txt"], stdout=subprocess.DEVNULL)


def lines():
    linecache.clearcache()
    linecache.getlines("template.py")


def tokens():
    with tokenize.open("template.py") as stream:
        stream.read()


def package_data():
    import bench_data

    pkgutil.get_data("bench_data", "module.py")


def run_path():
    runpy.run_path("template.py")


def listed():
    import os

    os.listdir("bench_data")
""",
    "bench_data/__init__.py": "",
    "bench_data/module.py": "x = 1\n",
    "bench/conftest.py": """
import lib

import pytest


@pytest.fixture(scope="session")
def shared():
    return list(lib.items())


@pytest.fixture
def opened():
    lib.read()
""",
    "bench/test_x.py": """
import lib

import pytest


def test_shared(benchmark, shared):
    benchmark(len, shared)


def test_shared_again(benchmark, shared):
    benchmark(len, shared)


def test_opened(benchmark, opened):
    benchmark(lib.direct)


def test_later_call(benchmark):
    benchmark(lib.Thing())


@pytest.mark.parametrize(
    "name",
    [
        "direct",
        "threaded",
        "made",
        "installed",
        "started",
        "read",
        "read_in_c",
        "attached",
        "read_by_child",
        "lines",
        "tokens",
        "package_data",
        "run_path",
        "listed",
        "spawned",  # a process of it lives on
    ],
)
def test_call(benchmark, name):
    benchmark(getattr(lib, name))
""",
}

DIFFERING = (
    "at_import.txt",
    "bench/conftest.py",
    "bench/test_x.py",
    "bench_data/module.py",
    "data.txt",
    "lib.py",
    "template.py",
    "unread.txt",
)


@pytest.fixture(scope="module")
def survey(surveyor):
    return surveyor.survey(surveyor.write(PROJECT), DIFFERING)


@pytest.mark.parametrize(
    ("test", "code"),
    [
        ("test_call[direct]", "lib.py:direct"),
        ("test_opened", "lib.py:direct"),
        ("test_later_call", "lib.py:second_time"),
        ("test_call[threaded]", "lib.py:in_thread"),
        ("test_shared", "lib.py:items"),
        ("test_shared_again", "lib.py:items"),
        ("test_shared_again", "bench/conftest.py:shared"),
    ],
)
def test_a_case_runs_code(survey, test, code):
    assert code in survey.code_of(f"bench/test_x.py::{test}")


def test_a_case_runs_no_code_of_others(survey):
    ran = survey.code_of("bench/test_x.py::test_call[direct]")
    assert {name for name in ran if not name.startswith(":")} == {
        "bench/test_x.py:test_call",
        "lib.py:direct",
    }


def test_a_case_runs_code_that_the_program_has_made(survey):
    ran = survey.code_of("bench/test_x.py::test_call[made]")
    assert any(name.startswith(":made_here ") for name in ran)


def test_made_code_is_known_by_what_it_does(surveyor):
    def hash_of(text):
        files = {
            "pytest.ini": "",
            "bench/test_x.py": f"""
def test_one(benchmark):
    names = {{}}
    exec({text!r}, names)
    benchmark(names["made"])
""",
        }
        code = surveyor.surveyed(files).followed.code
        [name] = [one.name for one in code if one.name.startswith("made ")]
        return name

    assert hash_of("def made(): return 1") == hash_of("\n\ndef made():\n    return 1")
    assert hash_of("def made(): return 1") != hash_of("def made(): return 2")


# ---- Outside of tests ----------------------------------------------------------------------------


def test_imports_and_what_they_call_run_outside(survey):
    assert survey.outside == {
        "bench/conftest.py:<module>",
        "bench/test_x.py:<module>",
        "bench_data/__init__.py:<module>",  # a later test may use it
        "lib.py:<module>",
        "lib.py:WithHook.__init_subclass__",
        "lib.py:at_import",
    }


def test_what_runs_outside_has_its_order(survey):
    order = [
        code.path
        for code in map(survey.followed.code.__getitem__, survey.followed.outside)
        if code.name == "<module>"
    ]
    assert order == ["bench/conftest.py", "lib.py", "bench/test_x.py", "bench_data/__init__.py"]


def test_statements_at_whose_import_a_function_runs_are_acting(survey):
    lines = PROJECT["lib.py"].splitlines()
    acting = [lines[line - 1] for path, line in survey.followed.acting if path == "lib.py"]
    assert acting == ["TABLE = at_import()", "class Kid(WithHook):"]


def test_hooks_of_a_conftest_and_names_of_parameters_run_outside(surveyor):
    files = {
        "pytest.ini": "",
        "bench/conftest.py": """
def pytest_collection_modifyitems(items):
    order(items)


def order(items):
    pass
""",
        "bench/test_x.py": """
import pytest


def name(value):
    return "n"


@pytest.mark.parametrize("n", [1], ids=name)
def test_one(benchmark, n):
    benchmark(len, ())
""",
    }
    outside = surveyor.surveyed(files).outside
    assert {
        "bench/conftest.py:pytest_collection_modifyitems",
        "bench/conftest.py:order",
        "bench/test_x.py:name",
    } <= outside


def test_classes_that_type_alone_makes_are_plain(survey):
    assert survey.followed.plain_classes["lib.py"] == (
        "Meta",
        "Thing",
        "WithMeta.Inner",
    )


def test_packages_outside_of_the_tree_are_known(survey):
    packages = survey.followed.outside_packages
    assert {"json", "sys", "pytest"} <= {*packages}
    assert "lib" not in packages


# ---- Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "path"),
    [
        ("read", "data.txt"),
        ("read_in_c", "data.txt"),
        ("attached", "data.txt"),
        ("read_by_child", "data.txt"),
        ("lines", "template.py"),
        ("tokens", "template.py"),
        ("package_data", "bench_data/module.py"),
        ("run_path", "template.py"),
        ("listed", "bench_data"),
    ],
)
def test_a_case_opens_a_file(survey, test, path):
    assert path in survey.followed.opened[f"bench/test_x.py::test_call[{test}]"]


def test_files_of_a_fixture_are_of_its_tests(survey):
    assert survey.followed.opened["bench/test_x.py::test_opened"] == ("data.txt",)


def test_a_case_opens_no_files_of_others(survey):
    assert survey.followed.opened["bench/test_x.py::test_call[direct]"] == ()


def test_files_of_an_import_are_opened_outside(survey):
    assert "at_import.txt" in survey.followed.opened[OUTSIDE]
    assert "data.txt" not in survey.followed.opened[OUTSIDE]


def test_what_pytest_and_imports_read_does_not_count(survey):
    spawned = "bench/test_x.py::test_call[spawned]"  # a process imports the file
    opened = {
        path for case, paths in survey.followed.opened.items() if case != spawned for path in paths
    }
    assert opened.isdisjoint({"lib.py", "bench/conftest.py", "bench/test_x.py", "pytest.ini"})
    assert "unread.txt" not in opened
    assert survey.followed.sees_all_files


def test_files_that_a_module_of_a_test_reads_count_for_later_tests(surveyor):
    files = {
        "pytest.ini": "[pytest]\npythonpath = .\n",
        "data.txt": "1",
        "lib.py": 'TEXT = open("data.txt").read()\n',
        "bench/test_x.py": """
def use():
    import lib


def test_one(benchmark):
    benchmark(use)
""",
    }
    opened = surveyor.survey(surveyor.write(files), ["data.txt"]).followed.opened
    assert opened == {"bench/test_x.py::test_one": ("data.txt",), OUTSIDE: ("data.txt",)}


def test_a_file_that_a_test_has_written_is_not_of_the_tree(surveyor):
    files = {
        "pytest.ini": "",
        "bench/test_x.py": """
from pathlib import Path


def use():
    Path("made.txt").write_text("1")
    Path("made.txt").read_text()


def test_one(benchmark):
    benchmark(use)
""",
    }
    assert "made.txt" not in surveyor.surveyed(files).followed.opened["bench/test_x.py::test_one"]


def test_what_is_written_into_the_environment_is_not_shared_by_the_sides(surveyor, tmp_path):
    (tmp_path / "environment").mkdir()
    files = {
        "pytest.ini": "",
        "bench/test_x.py": f"""
import sys
from pathlib import Path

sys.prefix = {str(tmp_path / "environment")!r}


def use():
    Path(sys.prefix, "inside.pyc").write_text("1")
    Path(sys.prefix).with_name("outside.txt").write_text("1")


def test_one(benchmark):
    benchmark(use)
""",
    }
    written = surveyor.surveyed(files).followed.written
    assert str(tmp_path / "outside.txt") in written
    assert str(tmp_path / "environment" / "inside.pyc") not in written


# ---- Names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("getattr(lib, 'a' + 'b')", {"ab"}),
        ("getattr(lib, 'x' * 2, None)", {"xx"}),
        ("hasattr(lib, 'a' + 'c')", {"ac"}),
        ("list(map(getattr, [lib], ['ab']))", {"ab"}),
        ("eval('a' + 'b', vars(lib))", {"ab"}),
        ("exec('def f(): return a' + 'b', vars(lib))", {"ab", "f"}),
        ("lib.ab", set()),
    ],
)
def test_names_are_fetched(surveyor, statement, names):
    files = {
        "pytest.ini": "[pytest]\npythonpath = .\n",
        "lib.py": "ab = 1\n",
        "bench/test_x.py": f"""
import lib

hasattr(lib, "at_import")


def use():
    {statement}


def test_one(benchmark):
    benchmark(use)
""",
    }
    fetched = surveyor.surveyed(files).followed.fetched
    assert {*fetched["bench/test_x.py::test_one"]} == names
    assert "at_import" in fetched[OUTSIDE]  # beside those in code that packages make


# ---- What cannot be followed ---------------------------------------------------------------------


def test_what_cannot_be_followed_is_named(survey):
    unfollowed = survey.followed.unfollowed
    assert {node_id.partition("::")[2]: why for node_id, why in unfollowed.items()} == {
        f"test_call[{name}]": "starts processes, whose code is not followed"
        for name in ("started", "read_by_child", "spawned")
    }


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (
            """process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(10,))
process.start()
""",
            "may use processes that were started before",
        ),
        pytest.param(
            "_thread.start_new_thread(time.sleep, (10,))\n",
            "may use threads that were started before",
            marks=pytest.mark.skipif(
                sys.version_info >= (3, 12), reason="calls of all threads are followed"
            ),
        ),
    ],
)
def test_what_lives_on_from_an_import_is_not_followed(surveyor, statement, why):
    files = {
        "pytest.ini": "",
        "bench/test_x.py": f"""
import _thread
import multiprocessing
import time

{statement}

def test_one(benchmark):
    benchmark(len, ())
""",
    }
    unfollowed = surveyor.surveyed(files).followed.unfollowed
    assert why in unfollowed["bench/test_x.py::test_one"]


@pytest.mark.parametrize(
    ("command", "is_unfollowed"), [("[sys.executable, '-c', '']", True), ("['true']", False)]
)
def test_a_python_process_of_an_import_is_not_followed(surveyor, command, is_unfollowed):
    files = {
        "pytest.ini": "",
        "bench/test_x.py": f"""
import subprocess
import sys

subprocess.run({command}, check=True)


def test_one(benchmark):
    benchmark(len, ())
""",
    }
    assert (OUTSIDE in surveyor.surveyed(files).followed.unfollowed) is is_unfollowed


@pytest.mark.parametrize("where", ["test", "fixture"])
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="only profile functions replace others")
def test_what_another_profiler_sees_is_not_followed(surveyor, where):
    files = {
        "pytest.ini": "",
        "bench/test_x.py": f"""
import cProfile

import pytest


def profiled():
    with cProfile.Profile():
        len(())


@pytest.fixture
def setup():
    {"profiled()" if where == "fixture" else "len(())"}


def test_one(benchmark, setup):
    benchmark({"profiled" if where == "test" else "len, ()"})
""",
    }
    unfollowed = surveyor.surveyed(files).followed.unfollowed
    assert unfollowed == {
        "bench/test_x.py::test_one": "sets a profile function, so its code is not followed"
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
    # Without code that the standard library has made, whose name has a hash.
    assert [name for name in names if " " not in name] == ["<module>", "test_one"]


def test_code_that_nobody_asks_for_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "addaudithook", lambda _: None)  # it could not be removed
    follower = Follower(tmp_path, str, follows_code=False)
    before = sys.getprofile()
    with follower.importing(is_own=True):
        assert sys.getprofile() == before
    followed = follower.followed(())
    assert followed.opened == {OUTSIDE: ()}
    assert (followed.code, followed.cases, followed.outside) == ((), {}, ())
    assert followed.sees_all_files
