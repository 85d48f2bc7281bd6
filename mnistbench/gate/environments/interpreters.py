"""The interpreters of both sides, in environments that are made where a side asks for one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from mnistbench.gate.environments.packages import installed, wanted
from mnistbench.gate.environments.store import held
from mnistbench.gate.options import SideOptions


@contextmanager
def interpreters(options: SideOptions, say: Callable[[str], None]) -> Iterator[dict[str, str]]:
    """Make the environments of the sides that have one; yield the interpreter of each side."""
    pythons = {side: named or sys.executable for side, named in options.pythons.items()}
    packages = installed() if options.changes else []
    with ExitStack() as environments:
        for side, changes in options.changes.items():
            environment = held(wanted(changes, packages), say)
            pythons[side] = environments.enter_context(environment).python
        yield pythons
