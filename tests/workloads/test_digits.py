"""The file of scikit-learn's digits, its rows, and their order."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

from mnistbench.core.errors import DataError
from mnistbench.workloads import digits
from mnistbench.workloads.digits import (
    DIGITS_VARIABLE,
    digit_rows,
    digits_file,
    legacy_permutation,
)

pytestmark = pytest.mark.versions


def put(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "digits.csv.gz").touch()
    return folder / "digits.csv.gz"


def test_digits_are_those_of_scikit_learn_else_of_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModuleSpec("sklearn", None, is_package=True)
    # Stands in for the installed scikit-learn, without a file.
    spec.submodule_search_locations = [str(tmp_path / "sklearn")]
    specs = {"sklearn": spec}
    monkeypatch.setattr(importlib.util, "find_spec", specs.get)
    monkeypatch.delenv(DIGITS_VARIABLE, raising=False)
    assert digits_file() is None
    monkeypatch.setenv(DIGITS_VARIABLE, str(tmp_path / "named" / "digits.csv.gz"))
    assert digits_file() is None
    named = put(tmp_path / "named")
    assert digits_file() == named
    assert put(tmp_path / "sklearn" / "datasets" / "data") == digits_file()
    specs.clear()
    assert digits_file() == named


def test_without_the_file_scikit_learn_reads_the_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = digit_rows()
    monkeypatch.setattr(digits, "digits_file", lambda: None)
    assert digit_rows() == rows
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        DataError, match=r"^the digits are a file of scikit-learn, .*: pip install scikit-learn$"
    ):
        digit_rows()


def test_the_order_is_that_of_numpys_legacy_generator() -> None:
    for seed, size in ((0, 1797), (0, 1), (1, 2), (2**32 - 1, 1024), (7, 1025)):
        assert (
            legacy_permutation(seed, size) == np.random.RandomState(seed).permutation(size).tolist()
        )
