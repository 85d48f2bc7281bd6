"""The file with scikit-learn's digits, found without importing scikit-learn, whose import takes seconds."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

#: Names the file for a process whose environment lacks scikit-learn; the gate sets it for its launches.
DIGITS_VARIABLE = "MNISTBENCH_DIGITS"


def digits_file() -> Path | None:
    """Return the path of ``digits.csv.gz``: of the installed scikit-learn, else the one that the variable names.

    None if there is no such file.
    """
    package = importlib.util.find_spec("sklearn")
    folders = (package.submodule_search_locations if package else None) or ()
    files = [Path(folder, "datasets", "data", "digits.csv.gz") for folder in folders]
    if named := os.environ.get(DIGITS_VARIABLE):
        files.append(Path(named))
    return next((file for file in files if file.is_file()), None)
