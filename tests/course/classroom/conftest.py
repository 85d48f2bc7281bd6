"""A lab with which everything is right."""

import shutil

import pytest
from lab_runs import whole_lab


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The lab of all tests of a module, which change nothing in it."""
    return whole_lab(tmp_path_factory.mktemp("labs") / "lab")


@pytest.fixture
def lab(original, tmp_path):
    """A copy of it, for one test."""
    return shutil.copytree(original, tmp_path / "lab")
