"""Where the file with the digits is found."""

import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from mnistbench.core.files import DIGITS_VARIABLE, digits_file


@pytest.fixture
def scikit_learn(tmp_path, monkeypatch):
    """A folder that stands in for the installed scikit-learn; it has no file yet."""
    spec = ModuleSpec("sklearn", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path / "sklearn")]
    monkeypatch.setattr(importlib.util, "find_spec", {"sklearn": spec}.get)
    monkeypatch.delenv(DIGITS_VARIABLE, raising=False)
    return tmp_path / "sklearn" / "datasets" / "data"


def put(folder):
    folder.mkdir(parents=True)
    (folder / "digits.csv.gz").touch()
    return folder / "digits.csv.gz"


def test_the_file_of_the_installed_scikit_learn_comes_first(scikit_learn, tmp_path, monkeypatch):
    assert digits_file() is None
    named = put(tmp_path / "named")
    monkeypatch.setenv(DIGITS_VARIABLE, str(named))
    assert digits_file() == named
    assert put(scikit_learn) == digits_file()


def test_without_scikit_learn_the_variable_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv(DIGITS_VARIABLE, str(tmp_path / "gone"))
    assert digits_file() is None
    monkeypatch.setenv(DIGITS_VARIABLE, str(put(tmp_path / "named")))
    assert digits_file() == tmp_path / "named" / "digits.csv.gz"
