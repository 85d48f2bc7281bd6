import os
import signal
from pathlib import Path

import pytest
from inner_runs import ADDOPTS, BLOCKED

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


def pytest_ignore_collect(collection_path, config):
    # `tox -e oldest` would spend half of its collection on modules without such a test.
    if config.option.markexpr.startswith("versions") and collection_path.suffix == ".py":
        return True if "mark.versions" not in collection_path.read_text(encoding="utf-8") else None
    return None


def pytest_sessionstart():
    # A script that starts the tests in the background makes them ignore Ctrl-C, and the processes
    # that they start inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # tox sets one, and a gate has that of its user in all launches.
    os.environ.pop("PYTHONHASHSEED", None)
    os.environ[ADDOPTS] = " ".join(BLOCKED)
