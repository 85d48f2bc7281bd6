"""Why a session of a side failed.

Each way in which pytest, a hook or a test can end it is one line that names the place.
"""

import json
import os
import platform
import subprocess
import sys

import pytest
from inner_runs import environment_without

from mnistbench.gate.processes.sides import failures
from mnistbench.gate.processes.starting import environment, stage_home

TEST = "def test_a(benchmark):\n    benchmark(sum, range(10))\n"

#: A hook that finds nothing if no benchmark has statistics, and what else hooks of a project read
#: at the end of a session.
READING = """
def pytest_sessionfinish(session):
    slowest = max(session.config._benchmarksession.benchmarks, key=lambda one: one.stats.mean)
    assert slowest.stats.mean > 0 and slowest["rounds"] == 1


def pytest_terminal_summary(terminalreporter, config):
    assert [name for name, _ in config._benchmarksession.groups] == [None]
    assert len(terminalreporter.stats["passed"]) == len(config._benchmarksession.benchmarks) == 1
"""

FIXTURE = """
import pytest


@pytest.fixture
def database():
    {}
    raise OSError("down")
"""

#: The Python that reads the trees.
VERSION = platform.python_version()

#: Modules in a folder that is in no tree, by their names.
ELSEWHERE = {"wrong_elsewhere.py": "\n\n1 / 0\n", "unreadable_elsewhere.py": "\nx = \n"}

#: Name of a tree -> its files beside TEST, and how the reason ends. Tests of pytest's own words
#: have the word that matters.
TREES = {
    # Hooks that raise
    "reads the statistics": ({"conftest.py": READING}, ""),
    "configure": (
        {
            "conftest.py": (
                "def pytest_configure(config):\n    raise RuntimeError('the database is "
                "down\\nmore')\n"
            )
        },
        "base: conftest.py:2, pytest_configure: RuntimeError: the database is down",
    ),
    "collection": (
        {
            "conftest.py": (
                "def helps(items):\n    items[7]\n\ndef pytest_collection_modifyitems(items):\n"
                "    helps(items)\n"
            )
        },
        "base: conftest.py:2, pytest_collection_modifyitems: IndexError: list index out of range",
    ),
    "report of a test": (
        {"conftest.py": "def pytest_runtest_makereport(item):\n    raise KeyError(item.name)\n"},
        "base: conftest.py:2, pytest_runtest_makereport: KeyError: 'test_a'",
    ),
    "no message": (
        {"conftest.py": "def pytest_sessionstart(session):\n    raise RuntimeError\n"},
        "base: conftest.py:2, pytest_sessionstart: RuntimeError: no message",
    ),
    "finish": (
        {"conftest.py": "def pytest_sessionfinish(session):\n    [][0]\n"},
        "base: conftest.py:2, pytest_sessionfinish: IndexError: list index out of range",
    ),
    "summary": (
        {"conftest.py": "def pytest_terminal_summary(terminalreporter):\n    1 / 0\n"},
        "base: conftest.py:2, pytest_terminal_summary: ZeroDivisionError: division by zero",
    ),
    "unconfigure": (
        {"conftest.py": "def pytest_unconfigure(config):\n    1 / 0\n"},
        "base: conftest.py:2, pytest_unconfigure: ZeroDivisionError: division by zero",
    ),
    "options": (
        {"conftest.py": "def pytest_addoption(parser):\n    1 / 0\n"},
        "base: conftest.py:2, pytest_addoption: ZeroDivisionError: division by zero",
    ),
    "usage error of a hook": (
        {
            "conftest.py": (
                "import pytest\n\ndef pytest_configure(config):\n    raise "
                "pytest.UsageError('give --database')\n"
            )
        },
        "base: conftest.py:4, pytest_configure: UsageError: give --database",
    ),
    "unknown hook": (
        {"conftest.py": "def pytest_nothing(config):\n    pass\n"},
        "'pytest_nothing' in plugin",
    ),
    "unknown argument of a hook": (
        {"conftest.py": "def pytest_configure(nothing):\n    pass\n"},
        "{'nothing'}",
    ),
    # Sessions that code of the project ends
    "exit of a hook": (
        {
            "conftest.py": (
                "import pytest\n\ndef pytest_configure(config):\n    pytest.exit('no database', "
                "returncode=9)\n"
            )
        },
        "base: conftest.py:4, pytest_configure: Exit: no database",
    ),
    "exit of conftest.py": (
        {"conftest.py": "import pytest\npytest.exit('no database')\n"},
        "Exit: no database",
    ),
    "exit of a test": (
        {
            "test_b.py": (
                "import pytest\n\ndef test_b(benchmark):\n    pytest.exit('enough', returncode=0)\n"
            )
        },
        "base: test_b.py:4, test_b: Exit: enough",
    ),
    "exit at the end": (
        {
            "conftest.py": (
                "import pytest\n\ndef pytest_sessionfinish(session):\n    pytest.exit('slow', "
                "returncode=7)\n"
            )
        },
        "base: conftest.py:4, pytest_sessionfinish: Exit: slow",
    ),
    "sys.exit of conftest.py": (
        {"conftest.py": "import sys\nsys.exit('no database')\n"},
        "base: conftest.py:2: SystemExit: no database",
    ),
    "sys.exit of a hook": (
        {"conftest.py": "import sys\n\ndef pytest_configure(config):\n    sys.exit(4)\n"},
        "base: conftest.py:4, pytest_configure: SystemExit: 4",
    ),
    "exception that is no Exception": (
        {"conftest.py": "raise BaseException('no database')\n"},
        "base: conftest.py:1: BaseException: no database",
    ),
    "exception of a hook that is no Exception": (
        {"conftest.py": "def pytest_configure(config):\n    raise BaseException('no database')\n"},
        "base: conftest.py:2, pytest_configure: BaseException: no database",
    ),
    "interrupt of conftest.py": (
        {"conftest.py": "raise KeyboardInterrupt\n"},
        "base: conftest.py:1: KeyboardInterrupt: no message",
    ),
    "interrupt": (
        {"test_b.py": "def test_b(benchmark):\n    raise KeyboardInterrupt\n"},
        "base: test_b.py:2, test_b: KeyboardInterrupt: no message",
    ),
    "stop": (
        {
            "conftest.py": (
                "def pytest_collection_finish(session):\n    session.shouldstop = 'not today'\n"
            )
        },
        "not today",
    ),
    "fail": (
        {
            "conftest.py": (
                "def pytest_collection_finish(session):\n    session.shouldfail = 'not today'\n"
            )
        },
        "not today",
    ),
    "exit status": (
        {"conftest.py": "def pytest_sessionfinish(session):\n    session.exitstatus = 1\n"},
        "exit code 1, although no test failed",
    ),
    # Configuration
    "plug-in that is not installed": (
        {"pytest.ini": "[pytest]\naddopts = -p nothing\n"},
        "No module named 'nothing'",
    ),
    "plug-in that raises": (
        {"pytest.ini": "[pytest]\naddopts = -p own_plugin\n", "own_plugin.py": "\n1 / 0\n"},
        "division by zero",
    ),
    "missing plug-in": (
        {"pytest.ini": "[pytest]\nrequired_plugins = pytest-nothing\n"},
        "plugins: pytest-nothing",
    ),
    "version": (
        {"pytest.ini": "[pytest]\nminversion = 99.0\n"},
        "base: pytest.ini: 'minversion' requires pytest-99.0",
    ),
    "unknown setting": (
        {"pytest.ini": "[pytest]\naddopts = --strict-config\nnothing = 1\n"},
        "option: nothing",
    ),
    "unknown setting, warned of": (
        {"pytest.ini": "[pytest]\nfilterwarnings = error\nnothing = 1\n"},
        "option: nothing",
    ),
    "filter": (
        {"pytest.ini": "[pytest]\nfilterwarnings = nothing::of::that::kind\n"},
        "nothing::of::that::kind",
    ),
    "syntax of pytest.ini": ({"pytest.ini": "[pytest\n"}, "base: pytest.ini:1: "),
    "option": (
        {"pytest.ini": "[pytest]\naddopts = --nothing\n"},
        "base: unrecognized arguments: --nothing",
    ),
    # Collection
    "mark": (
        {
            "pytest.ini": "[pytest]\naddopts = --strict-markers\n",
            "test_b.py": (
                "import pytest\n\n@pytest.mark.nothing\ndef test_b(benchmark):\n    pass\n"
            ),
        },
        (
            "base: test_b.py cannot be collected: 'nothing' not found in `markers` configuration "
            "option"
        ),
    ),
    "import in another module": (
        {"test_b.py": "import own\n", "own.py": "\n\nraise RuntimeError('first')\n"},
        "base: test_b.py cannot be collected: RuntimeError: first (own.py:3)",
    ),
    "syntax": (
        {"test_b.py": "import own\n", "own.py": "\nx = \n"},
        (
            "base: test_b.py cannot be collected: SyntaxError: invalid syntax (own.py:2, read by "
            f"Python {VERSION})"
        ),
    ),
    "syntax in a module of conftest.py": (
        {
            "conftest.py": "import package\n",
            "package/__init__.py": "from package import numbers\n",
            "package/numbers.py": "\n\nx = \n",
        },
        (
            "base: conftest.py cannot be imported: SyntaxError: invalid syntax "
            f"(package/numbers.py:3, read by Python {VERSION})"
        ),
    ),
    "indentation in a module of a plug-in": (
        {
            "conftest.py": "pytest_plugins = ['own']\n",
            "own.py": "import more\n",
            "more.py": "if 1:\n",
        },
        (
            "base: own cannot be imported: IndentationError: expected an indented block after 'if' "
            f"statement on line 1 (more.py:1, read by Python {VERSION})"
        ),
        # Older versions of pytest print this error as the one of its file.
        (
            "base: more.py:1: IndentationError: expected an indented block after 'if' statement on "
            f"line 1 (read by Python {VERSION})"
        ),
    ),
    "syntax in a module of a hook": (
        {
            "conftest.py": "def pytest_configure(config):\n    import own\n",
            "own.py": "\nx = \n",
        },
        (
            "base: own.py:2, pytest_configure: SyntaxError: invalid syntax (read by Python "
            f"{VERSION})"
        ),
    ),
    "syntax in a module of a fixture": (
        {
            "conftest.py": FIXTURE.format("import own"),
            "own.py": "\nx = \n",
            "test_b.py": "def test_b(benchmark, database):\n    pass\n",
        },
        (
            "base: test_b.py::test_b fails: SyntaxError: invalid syntax (own.py:2, read by Python "
            f"{VERSION})"
        ),
    ),
    "error in a folder with the name of a package that is left out": (
        {"test_b.py": "import own.mnistbench.wrong\n", "own/mnistbench/wrong.py": "\n1 / 0\n"},
        (
            "base: test_b.py cannot be collected: ZeroDivisionError: division by zero "
            "(own/mnistbench/wrong.py:2)"
        ),
    ),
    "error in a module elsewhere": (
        {"conftest.py": "\nimport wrong_elsewhere\n"},
        (
            "base: conftest.py cannot be imported: ZeroDivisionError: division by zero "
            "(conftest.py:2, which leads to ELSEWHERE/wrong_elsewhere.py:3)"
        ),
    ),
    "syntax in a module elsewhere": (
        {"test_b.py": "import unreadable_elsewhere\n"},
        (
            "base: test_b.py cannot be collected: SyntaxError: invalid syntax (test_b.py:1, which "
            f"leads to ELSEWHERE/unreadable_elsewhere.py:2, read by Python {VERSION})"
        ),
    ),
    "syntax in a module elsewhere that a test imports": (
        {"test_b.py": "def test_b(benchmark):\n    import unreadable_elsewhere\n"},
        (
            "base: test_b.py::test_b fails: SyntaxError: invalid syntax (test_b.py:2, which leads "
            f"to ELSEWHERE/unreadable_elsewhere.py:2, read by Python {VERSION})"
        ),
    ),
    "warning as error": (
        {
            "pytest.ini": "[pytest]\nfilterwarnings = error\n",
            "test_b.py": "import warnings\nwarnings.warn('old')\n",
        },
        "base: test_b.py cannot be collected: UserWarning: old (test_b.py:2)",
    ),
    "conftest.py of a folder": (
        {"below/conftest.py": "\nimport nothing\n", "below/test_c.py": TEST},
        "No module named 'nothing' (below/conftest.py:2)",
    ),
    # Tests
    "missing fixture": (
        {"test_b.py": "\ndef test_b(benchmark, nothing):\n    pass\n"},
        "base: test_b.py::test_b fails: fixture 'nothing' not found (test_b.py:2)",
    ),
    "fixture": (
        {
            "conftest.py": FIXTURE.format("pass"),
            "test_b.py": "def test_b(benchmark, database):\n    pass\n",
        },
        "base: test_b.py::test_b fails: OSError: down (conftest.py:8)",
    ),
    "end of a fixture": (
        {
            "conftest.py": FIXTURE.format("yield"),
            "test_b.py": "def test_b(benchmark, database):\n    benchmark(int)\n",
        },
        "base: test_b.py::test_b fails: OSError: down (conftest.py:8)",
    ),
    "assertion": (
        {"test_b.py": "def test_b(benchmark):\n    benchmark(int)\n    assert 1 == 2\n"},
        "base: test_b.py::test_b fails: assert 1 == 2 (test_b.py:3)",
    ),
    "error with a cause": (
        {
            "test_b.py": (
                "def test_b(benchmark):\n    try:\n        1 / 0\n    except ArithmeticError as "
                "error:\n        raise ValueError('wrong\\nmore') from error\n"
            )
        },
        "base: test_b.py::test_b fails: ValueError: wrong (test_b.py:5)",
    ),
    "native traceback": (
        {
            "pytest.ini": "[pytest]\naddopts = --tb=native\n",
            "test_b.py": "def test_b(benchmark):\n    1 / 0\n",
        },
        "base: test_b.py::test_b fails: ZeroDivisionError: division by zero (test_b.py:2)",
    ),
    "failure of several lines without a traceback": (
        {
            "test_b.py": (
                "import pytest\n\ndef test_b(benchmark):\n    pytest.fail('no database\\n- a\\n- "
                "b', pytrace=False)\n"
            )
        },
        "base: test_b.py::test_b fails: no database",
    ),
    "strict xfail": (
        {
            "test_b.py": (
                "import pytest\n\n@pytest.mark.xfail(strict=True)\ndef test_b(benchmark):\n    "
                "benchmark(int)\n"
            )
        },
        "base: test_b.py::test_b fails: [XPASS(strict)]",
    ),
}

PROGRAM = """
import gc, json, os, sys
from pathlib import Path

home, folder = sys.argv[1], Path(sys.argv[2])
sys.path.insert(0, home)

from _pytest.config import get_config

from mnistbench.gate.processes.sides.session import run_tests
from mnistbench.gate.processes.sides.side import Side, SideError

get_config()  # imports pytest's own plug-ins, for all forks
gc.freeze()  # pytest collects garbage at its end: not all of them too
for tree in sorted(path for path in folder.iterdir() if (path / "test_a.py").is_file()):
    child = os.fork()
    if not child:
        said = ""
        try:
            failed = run_tests(Side("base", tree, tree, home), [], list, lambda case: None)
            said = "".join(f"base: {test} fails: {why}" for test, why in failed.items())
        except SideError as error:
            said = str(error)
        (folder / f"{tree.name}.json").write_text(json.dumps(said))
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A folder that is in no tree."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for name, text in ELSEWHERE.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory, elsewhere):
    """Trees, and why the session of each failed.

    Each in a fork of one process, which has imported pytest.
    """
    folder = tmp_path_factory.mktemp("trees")
    for name, (files, *_) in TREES.items():
        for file, text in {"test_a.py": TEST, **files}.items():
            (folder / name / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / name / file).write_text(text, encoding="utf-8")
    home = stage_home(folder)
    inherited = environment_without("PYTEST_", "MNISTBENCH_", "GIT_")
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(home), str(folder)],
        cwd=folder,
        env={**environment(inherited, home, 1), "PYTHONPATH": str(elsewhere)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.versions
@pytest.mark.parametrize("name", TREES)
def test_the_reason_is_one_line_with_the_place_and_what_pytest_printed(folder, elsewhere, name):
    reason = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    expected = [text.replace("ELSEWHERE", str(elsewhere)) for text in TREES[name][1:]]
    assert any(text in reason for text in expected)
    assert bool(reason) == any(expected)
    assert "\n" not in reason
    assert str(folder) not in reason


def test_os_exit_in_a_hook_is_written_to_the_log_and_that_of_a_fork_is_not(tmp_path):
    program = """
import os, sys
from pathlib import Path

from mnistbench.gate.processes.sides.failures import exits_named

with exits_named(Path(sys.argv[1])):
    if not os.fork():
        os._exit(1)
    os.wait()
    os._exit(3)
"""
    file = tmp_path / "conftest.py"
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, file, tmp_path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (3, "os._exit(3) was called at conftest.py:11\n")


def test_os_exit_is_restored(tmp_path):
    before = os._exit
    with failures.exits_named(tmp_path):
        assert os._exit is not before
    assert os._exit is before
