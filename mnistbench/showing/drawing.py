"""matplotlib, always with its own default settings: modules that draw import its names from here.

matplotlib reads a file matplotlibrc of the current directory when it is imported. Strangers may
have written it: one that cannot be read would end the import, and ``text.usetex`` starts LaTeX.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

with contextlib.ExitStack() as _elsewhere:
    if Path("matplotlibrc").exists():
        _elsewhere.enter_context(contextlib.chdir(Path(__file__).parent))
    import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.rcsetup import cycler
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

__all__ = [
    "FancyBboxPatch",
    "Figure",
    "FuncFormatter",
    "LogLocator",
    "NullFormatter",
    "cycler",
    "default_settings",
    "font_manager",
]


@contextlib.contextmanager
def default_settings(changed: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Give figures that are made and saved in the body the default settings, some of them changed.

    Settings of a file do not count, also if matplotlib read it before this module was imported.
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(changed or {})  # type: ignore[arg-type]
        yield
