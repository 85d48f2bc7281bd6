import atexit
import gc
import multiprocessing.util
import os
import signal
from pathlib import Path

import pytest
from inner_runs import ADDOPTS, BLOCKED

from mnistbench.core.extras import EXTRAS, has

pytest_plugins = ["pytester", "projects"]

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden():
    """Compare text with a file in golden/.

    With UPDATE_GOLDEN=1 write the file if it differs, and let the test end in an error.
    """
    updated = []

    def check(text, name):
        path = GOLDEN / name
        if not os.environ.get("UPDATE_GOLDEN"):
            assert text == path.read_text(encoding="utf-8")
        elif not path.exists() or text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            updated.append(name)

    yield check
    if updated:  # not earlier, so that all files of a test are written
        pytest.fail(f"updated in tests/golden: {', '.join(updated)}; read the difference")


@pytest.fixture(scope="session")
def torch():
    """Skip a test that calls torch, or starts a process that does, where it is not installed."""
    return pytest.importorskip("torch", reason="needs torch")


@pytest.fixture(scope="session")
def matplotlib():
    """Skip a test that draws with matplotlib where it is not installed."""
    return pytest.importorskip("matplotlib", reason="needs matplotlib")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Skip a file that imports a package of an extra at its top where it is not installed."""
    report = yield
    text = str(report.longrepr) if report.failed else ""
    for package in EXTRAS:
        if f"No module named '{package}'" in text and not has(package):
            report.outcome = "skipped"
            report.longrepr = (str(collector.path), 0, f"Skipped: needs {package}")
    return report


def pytest_ignore_collect(collection_path, config):
    # `tox -e oldest` would spend half of its collection on modules without such a test.
    if config.option.markexpr.startswith("versions") and collection_path.suffix == ".py":
        return True if "mark.versions" not in collection_path.read_text(encoding="utf-8") else None
    return None


def pytest_sessionstart(session):
    # A script that starts the tests in the background makes them ignore Ctrl-C, and the processes
    # that they start inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # So does nohup with SIGHUP. A handler is not inherited, so the processes have the default one.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    # tox sets one, and a gate has that of its user in all trials.
    os.environ.pop("PYTHONHASHSEED", None)
    # The processes of pytest-xdist need it, and inherit what the one that starts them has.
    if not session.config.pluginmanager.has_plugin("dsession"):
        os.environ[ADDOPTS] = " ".join(BLOCKED)
    # For the sockets of support/forks.py, before a test sets a folder whose path is too long for
    # them. Not in that module: its processes import it, and would not remove a folder of their own.
    multiprocessing.util.get_temp_dir()


def pytest_collection(session):
    # Imported modules and collected tests stay until the end. To search them for garbage whenever
    # some more objects were made would take half of the time of collection. The process of
    # pytest-xdist that starts the others collects nothing.
    if not session.config.pluginmanager.has_plugin("dsession"):
        gc.disable()


def pytest_collection_finish(session):
    if session.items:
        # Not above: pytest loads this file for a path that does not exist, such as
        # bench/test_setp.py, in an environment that has the suite's packages alone.
        from hypothesis import given, strategies

        # At its first draw, hypothesis 6.100 searches for what refers to its random generator, and
        # warns if it finds nothing. It would not find a frozen module.
        given(strategies.none())(lambda _: None)()
    gc.collect()
    gc.freeze()
    # Libraries that find their objects alive at the exit print that they leak.
    atexit.register(gc.unfreeze)
    gc.enable()
