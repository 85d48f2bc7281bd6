import os
import signal
from pathlib import Path

import pytest

pytest_plugins = ["pytester", "projects"]

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden(request):
    """Compare text with a file in golden/; with UPDATE_GOLDEN=1 write the file instead."""

    def check(text, name):
        path = GOLDEN / name
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check


def pytest_sessionstart():
    # A script that starts the tests in the background makes them ignore Ctrl-C, and the processes
    # that they start inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # tox sets one, and a gate has that of its user in all launches.
    os.environ.pop("PYTHONHASHSEED", None)
