"""One side: a tree on disk, whose code runs in this process.

The process may have two copies of mnistbench: the gate's, which measures and has the name
``starting.STAGED`` here, and ``mnistbench`` itself, which tests and plug-ins of the side import.

Does not import torch: only the side may.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.abc import Loader
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from mnistbench.core.errors import MnistbenchError
from mnistbench.core.machine import ended_children_s
from mnistbench.gate.processes.messages import Job
from mnistbench.gate.processes.sides import failures
from mnistbench.gate.processes.sides.stray import (
    Imports,
    Outside,
    outside_modules,
    paths_of,
    with_copies,
)
from mnistbench.gate.words import ALL_CASES, IMPORT
from mnistbench.measuring.provider import PROVIDERS
from mnistbench.measuring.timing import Clock


class SideError(MnistbenchError):
    """The code of a side cannot be measured; the message names the side and the reason."""


class CaseError(SideError):
    """Code of the side raised an exception while a case was run."""

    def __init__(self, side: str, node_id: str, why: str) -> None:
        """Prepare.

        Args:
            side: BASE or HEAD.
            node_id: of the case.
            why: the exception, with its place in the tree.
        """
        super().__init__(f"{side}: {node_id} fails: {why}")
        self.why = why


@dataclass
class Side:
    """One tree, whose tests run in this process."""

    name: str
    tree: Path  # of the snapshot
    directory: Path  # in it: where pytest runs
    # Folder with mnistbench and pytest-benchmark, for a side whose environment does not have them.
    fallback: str
    threads: int = 0  # of all its cases; 0: each case has its own number
    running: str = ""  # node id of the case that was taken last
    # Node id of a test that was not taken -> why.
    left_out: dict[str, str] = field(default_factory=dict)
    # Node id of a collected test -> hash of its parameters.
    parameters: dict[str, str] = field(default_factory=dict)
    carried: frozenset[str] = frozenset()  # files of the tree that are the other side's
    tests_carried: set[str] = field(default_factory=set)  # node ids of their tests
    # Node id of a test, or a file, of these that this side cannot run -> why.
    cannot_run: dict[str, str] = field(default_factory=dict)
    # Node id of a collected test of the head -> thresholds of its mark: of operations, of the case.
    thresholds: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  # arguments of pytest that name nothing on this side
    repository: Path | None = None  # the user's own tree, which must not be measured
    say: Callable[..., None] = lambda **_: None  # sends a message of the process
    plugins: list[object] = field(default_factory=list)  # more of pytest's
    framework_ns: int = 0  # CPU time of the imports of frameworks, within the counted ones
    # Surrounds the import of each module.
    importing: Callable[..., AbstractContextManager[None]] = lambda **_: contextlib.nullcontext()
    # Name of a one-time cost -> node id or ALL_CASES -> CPU time in ns; of RESIDENT bytes
    once: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    # The cost that is counted now, its case, and the CPU time before.
    _counted: tuple[str, str, int] | None = None
    _counting: set[Any] = field(default_factory=set)  # types of loaders that count imports
    _earlier: frozenset[str] = frozenset()  # modules that were imported before the tree was entered

    @classmethod
    def of(cls, job: Job, say: Callable[..., None] = lambda **_: None) -> Side:
        """Return the side that a job names."""
        return cls(
            job.side,
            Path(job.tree),
            Path(job.directory),
            job.home,
            job.threads,
            repository=Path(job.repository),
            say=say,
        )

    def case_id(self, node_id: str) -> str:
        """Return the id of a test, the same on both sides.

        It may have a path of the tree, for example that of a file of data.
        """
        return node_id.replace(str(self.tree), "<tree>")

    def is_carried(self, path: Path) -> bool:
        """Whether a file of the tree is the other side's."""
        return path.is_relative_to(self.tree) and str(path.relative_to(self.tree)) in self.carried

    def threads_of(self, params: Any) -> int:
        """Return the number of intra-op threads of a case on this side."""
        return self.threads or int(params.threads)

    # ---- Modules ---------------------------------------------------------------------------------

    def enter_tree(self) -> None:
        """Make the process import the side's modules from now on, and work in its folder."""
        self._earlier = self._earlier or frozenset(sys.modules)
        source = [str(self.directory / "src")] if (self.directory / "src").is_dir() else []
        installed = [path for path in sys.path if path and path != self.fallback]
        if self.repository:  # what editable installs and PYTHONPATH name
            installed = list(with_copies(installed, self.tree, self.repository))
        sys.path[:] = list(dict.fromkeys([str(self.directory), *source, *installed, self.fallback]))
        os.chdir(self.directory)

    def outside(self) -> dict[str, Outside]:
        """Return the imported modules of the project that are not from the tree."""
        repository = self.repository or self.tree
        return outside_modules(
            self.tree, self.directory, Path(self.fallback), repository, self._earlier
        )

    def imports(self) -> Imports:
        """Return the modules of the project that this process has imported."""
        own = f"{self.tree}{os.sep}"
        files = {}
        for name, module in sorted(sys.modules.items()):
            for path in paths_of(module)[:1]:
                if path.startswith(own):
                    real = os.path.realpath(path)  # a package may be found by a link
                    files[name] = (real if real.startswith(own) else path).removeprefix(own)
        return Imports(str(self.tree), self.outside(), files)

    # ---- One-time costs, and errors --------------------------------------------------------------

    @contextmanager
    def counted(self, name: str, case: str = ALL_CASES) -> Iterator[None]:
        """Add the CPU time of the body to a one-time cost.

        Inside another such body it is a part of that one's cost.
        """
        if self._counted:
            yield
            return
        self._counted = name, case, _spent_ns()
        try:
            yield
        finally:
            self.end_count()

    def end_count(self) -> None:
        """End the body that is counted now, if any: what follows belongs to no cost."""
        if self._counted:
            name, case, before_ns = self._counted
            self.once[name][case] = self.once[name].get(case, 0) + _spent_ns() - before_ns
            self._counted = None

    def count_imports(self) -> None:
        """Count the execution of the modules of the tree, with what they import.

        They are counted for the rest of this process. All modules are executed by ``exec_module``
        of a loader: that of Python's sources, that of compiled modules, and pytest's, which
        rewrites assertions of tests and conftest.py and is a finder of ``sys.meta_path`` as well.
        """
        finder_types: list[Any] = [
            type(finder) for finder in sys.meta_path if isinstance(finder, Loader)
        ]
        # That of pytest, which loads plug-ins of the tree before it calls a hook.
        rewriting = importlib.import_module("_pytest.assertion.rewrite")
        finder_types += filter(None, [getattr(rewriting, "AssertionRewritingHook", None)])
        loader_types = {*finder_types, SourceFileLoader, ExtensionFileLoader} - self._counting
        self._counting |= loader_types
        for loader_type in loader_types:

            def execute(
                loader: Any,
                module: ModuleType,
                original: Callable[[Any, ModuleType], None] = loader_type.exec_module,
            ) -> None:
                is_own = str(getattr(module, "__file__", "")).startswith(f"{self.tree}{os.sep}")
                before_ns = _spent_ns() if self._counted and module.__name__ in PROVIDERS else None
                with (
                    self.importing(is_own=is_own),
                    self.counted(IMPORT) if is_own else contextlib.nullcontext(),
                ):
                    original(loader, module)
                if before_ns is not None:
                    self.framework_ns += _spent_ns() - before_ns

            loader_type.exec_module = execute

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        """Turn an exception of the body, which runs code of the side, into a CaseError."""
        try:
            yield
        except MnistbenchError:  # of the gate: the side has a class of its own with this name
            raise
        except Exception as error:  # the side's code may raise anything
            traceback.print_exc()  # the log of the trial
            why = failures.describe_error(error, self.tree)
            if self.running:
                raise CaseError(self.name, self.running, why) from error
            raise SideError(f"{self.name}: {why}") from error


def _spent_ns() -> int:
    """Return the CPU time of this process and of its ended children, in nanoseconds."""
    return Clock.cpu_ns() + round(1e9 * ended_children_s())
