"""Training curves on disk, so that a later session with the same code computes none of them again.

An entry is found by everything that is known to determine a curve: parameters, versions, CPU
capability and the sources of the loaded modules. What is not known (a configuration file that a
workload reads, a data file, a compiled library) is covered by a check: the caller computes the
first steps of the training run and compares them with the stored ones, bit for bit.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import site
import sys
import sysconfig
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from mnistbench import __version__
from mnistbench.core.errors import RecordError
from mnistbench.core.files import replace_file
from mnistbench.core.params import Params
from mnistbench.core.reading import Reader
from mnistbench.core.record import Curves

#: Entries that are kept, those used last. An entry has about 20 kB; a default suite has six.
MAX_ENTRIES = 60

_SUFFIX = ".curve"
_KEY_DIGITS = 24  # hexadecimal, of the hash in the name of an entry
_FIELDS = ("check", "curves", "notes")  # of Curve, in the JSON

#: Packages of mnistbench that a curve does not depend on; which of them are loaded depends on the
#: options of the session.
_OTHER_PACKAGES = (
    "compare",
    "saved_runs",
    "report",
    "pytest_plugin",
    "gate",
    "profile",
    "train",
    "lab",
    "commands",
    "cli",
)


@dataclass(frozen=True)
class Curve:
    """The result of a training run."""

    check: tuple[str, ...]  # of its first steps; a later run must begin with the same
    curves: Curves
    notes: tuple[str, ...]
    events: bytes  # TensorBoard's event file; empty if TensorBoard was off


class CurveStore:
    """The curves below one directory.

    Reading and writing raise nothing: without an entry, the curve is computed.

    The file of an entry has three parts: a checksum of the rest, JSON in one line, the event file.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths: dict[Params, Path] = {}

    def load(self, params: Params) -> Curve | None:
        """Return the curve of the parameters and the code that is loaded now.

        None if there is none, or it is damaged.
        """
        path = self._path(params)
        try:
            checksum, _, content = path.read_bytes().partition(b"\n")
            if _sha256(content) != checksum.decode():
                return None
            fields, _, events = content.partition(b"\n")
            curve = Curve(**Reader(json.loads(fields)).members(Curve, _FIELDS), events=events)
        except (OSError, ValueError, RecordError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used now
        return curve

    def save(self, params: Params, curve: Curve) -> None:
        """Write the curve, and remove the entries that were not used for longest."""
        fields = {name: getattr(curve, name) for name in _FIELDS}
        content = (
            json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()
            + b"\n"
            + curve.events
        )
        with contextlib.suppress(OSError):
            self._root.mkdir(parents=True, exist_ok=True)
            replace_file(self._path(params), _sha256(content).encode() + b"\n" + content)
            entries = sorted(self._root.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime)
            for path in entries[:-MAX_ENTRIES]:
                path.unlink(missing_ok=True)

    def _path(self, params: Params) -> Path:
        if params not in self._paths:  # once: the training run can load further modules
            identity = json.dumps([asdict(params), _versions(), sources()])
            name = params.label.split(" ")[1].replace(":", "")
            self._paths[params] = (
                self._root / f"{name}-{_sha256(identity.encode())[:_KEY_DIGITS]}{_SUFFIX}"
            )
        return self._paths[params]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@functools.cache
def _versions() -> dict[str, str]:
    return {
        "mnistbench": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "torchvision": version("torchvision"),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def sources() -> str:
    """Return a hash of the files of all loaded modules.

    Except installed ones and the standard library.
    """
    folders = [
        sysconfig.get_path(name)
        for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    ]
    installed = tuple(
        folder + os.sep
        for folder in (*folders, *site.getsitepackages(), site.getusersitepackages())
    )
    found = {}
    for name, module in list(sys.modules.items()):
        file: Any = getattr(module, "__dict__", {}).get("__file__")
        other = name.startswith("mnistbench.") and name.split(".")[1] in _OTHER_PACKAGES
        if isinstance(file, str) and not other and not file.startswith(installed):
            try:
                found[name] = _sha256(Path(file).read_bytes())
            except (OSError, ValueError):  # in an archive, or no path at all
                found[name] = ""
    return _sha256(json.dumps(sorted(found.items())).encode())
