"""Which code calls a function: that of the tree, of a collector, or of an installed package.

The standard library calls for others. These functions run at many events, and an audit hook makes
the attribute ``f_code`` of a frame slow, so they read the module's file where that is enough.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import FrameType

_STANDARD_LIBRARY = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = f"{os.sep}site-packages{os.sep}"

#: Packages that read files of tests and of the configuration to collect tests: those of pytest, and
#: those of asv suites. asv-runner 0.2.1 lists folders by importlib_metadata to find packages.
_COLLECTORS = tuple(
    os.path.join(os.sep, *parts, "")  # noqa: PTH118  # a part of a path
    for parts in (
        ("_pytest",),
        ("iniconfig",),
        ("asv_runner",),
        ("importlib_metadata",),
        ("gate", "processes", "asv"),
    )
)

#: Modules of the standard library that read lines of code only to show them, and the one that lists
#: folders to find installed packages, which the survey compares.
_WITHOUT_EFFECT = tuple(
    os.path.join(os.sep, *parts)  # noqa: PTH118  # the end of a path
    for parts in (("traceback.py",), ("warnings.py",), ("importlib", "metadata", "__init__.py"))
)


def calling_file(frame: FrameType | None) -> str:
    """Return the file of the nearest code that is not of the standard library; else "".

    Code that was made belongs to what has made it.
    """
    while frame is not None:
        path = frame.f_globals.get("__file__") or ""
        if path and (not path.startswith(_STANDARD_LIBRARY) or _INSTALLED in path):
            return str(path)
        frame = frame.f_back
    return ""


def is_collector(path: str) -> bool:
    """Whether a file is one of pytest, or of what collects asv suites."""
    return any(part in path for part in _COLLECTORS)


def is_for_import(frame: FrameType | None) -> bool:
    """Whether a file is opened, or a folder listed, to import a module, or to collect.

    A file that a traceback or a warning shows lines of counts as well.
    """
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        # Others ask the import system for the text of a module.
        if frame.f_code.co_name in ("exec_module", "_fill_cache"):
            return True
        frame = frame.f_back
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(("<", _STANDARD_LIBRARY)) or _INSTALLED in path:
            return is_collector(path)
        if path.endswith(_WITHOUT_EFFECT) or frame.f_code.co_name == "getframeinfo":
            return True
        frame = frame.f_back
    return False
