import os
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

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
