"""Two copies of mnistbench in one process: that of the gate, which measures, and that of the side.

The invariant: ``sys.modules`` has the modules of one copy at a time. Until the session it is the
gate's; from then on it is the side's, because tests and plug-ins import it by name. The gate's own
modules are kept here, and :meth:`OwnModules.load` puts them back for as long as another one of them
is imported. Functions of both copies run whenever they like: they hold references to their modules.

Does not import torch.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

#: The package that exists twice.
PACKAGE = "mnistbench"


class OwnModules:
    """The modules of the gate's own copy."""

    def __init__(self, home: str) -> None:
        self._home = home  # folder that contains this copy
        self._modules: dict[str, ModuleType] = {}  # empty until they are set aside

    def set_aside(self) -> None:
        """Remove the gate's modules, so that the side imports its own."""
        self._modules = self._modules or _imported()
        for name in _imported():
            del sys.modules[name]

    def load(self, name: str) -> Any:
        """Return a module of the gate, also while those of the side are imported."""
        if not self._modules:
            return importlib.import_module(name)
        if name not in self._modules:
            modules_of_side = _imported()
            path = list(sys.path)
            for module in modules_of_side:
                del sys.modules[module]
            sys.modules.update(self._modules)
            sys.path.insert(0, self._home)
            try:
                importlib.import_module(name)
            finally:
                self._modules = _imported()
                for module in self._modules:
                    del sys.modules[module]
                sys.modules.update(modules_of_side)
                sys.path[:] = path
        return self._modules[name]


def _imported() -> dict[str, ModuleType]:
    """Return the imported modules of the package."""
    return {
        name: module
        for name, module in sys.modules.items()
        if name == PACKAGE or name.startswith(f"{PACKAGE}.")
    }
