"""docs/reference.md is what docs/make_reference.py writes."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_the_reference_is_current():
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    make_reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_reference)
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert page == make_reference.reference(), "run: python docs/make_reference.py"
