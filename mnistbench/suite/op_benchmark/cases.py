"""The cases of a pytest session: workloads, devices and curves, kept in ``config.stash``.

Imports torch inside functions only.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import pytest

from mnistbench.core.errors import MnistbenchError, UsageError
from mnistbench.core.options import read_pytest
from mnistbench.measuring.provider import provider_of
from mnistbench.pytest_plugin.session import SESSION, Session
from mnistbench.suite.op_benchmark.options import CaseOptions

if TYPE_CHECKING:
    from mnistbench.core.record import Environment
    from mnistbench.suite.measuring.tensorboard import Tracker
    from mnistbench.suite.workloads.data import Batch
    from mnistbench.suite.workloads.workload import Workload

#: Parameter of a test that uses the fixture ``op_benchmark``: the name of a workload.
WORKLOAD = "bench_workload"
#: Its batch size.
BATCH_SIZE = "bench_batch_size"
#: The name of its device in torch.
DEVICE = "bench_device"
#: Its step, one of ``params.STEPS``.
STEP = "bench_step"
#: All parameters of such a test, in the order of its id.
PARAMETERS = (WORKLOAD, BATCH_SIZE, DEVICE, STEP)

#: Seconds of training before a progress bar is shown.
SHOW_PROGRESS_AFTER = 2.0


class Cases:
    """Options, and what collection has found."""

    def __init__(self, config: pytest.Config) -> None:
        """Read the options; the command line overrides the configuration file."""
        self.options = read_pytest(CaseOptions, config)
        self.are_collected = False  # a collected test uses op_benchmark
        self.has_run = False  # one of them
        self._known_workloads: set[str] = set()
        self._config = config

    @property
    def _session(self) -> Session:
        return self._config.stash[SESSION]

    def registered_workloads(self, item: pytest.Item | pytest.Function) -> list[Workload]:
        """Return the workloads of the conftest.py files that apply to a test."""
        from mnistbench.suite.workloads.workload import Workload

        builtin = {workload.name: workload for workload in self.builtin_workloads}
        registered: dict[str, Workload] = {}
        for workloads in reversed(item.ihook.pytest_mnistbench_workloads(config=item.config)):
            for workload in workloads:
                if not isinstance(workload, Workload):
                    # The text of a model has many lines, and that of another object may take any
                    # time.
                    what = (
                        repr(workload)
                        if isinstance(workload, str)
                        else f"an object of type {type(workload).__name__}"
                    )
                    raise UsageError(
                        f"pytest_mnistbench_workloads returned {what}: return a list of "
                        "mnistbench Workload objects"
                    )
                if (
                    workload.name in registered
                    or builtin.get(workload.name, workload) is not workload
                ):
                    raise UsageError(
                        f"workload {workload.name!r} is registered twice: give one of them "
                        "another name"
                    )
                registered[workload.name] = workload
        return list(registered.values())

    def select_workloads(self, registered: Iterable[Workload]) -> list[str]:
        """Return the names that a test is parametrized over.

        All that are registered for it, or those of ``--bench-model``.
        """
        names = [workload.name for workload in registered]
        known = dict.fromkeys([*names, *(workload.name for workload in self.builtin_workloads)])
        self._known_workloads.update(known)
        if wanted := self.options.workloads:
            return [name for name in known if name in wanted]
        if not names:
            raise UsageError(
                "no workload to measure: return one from pytest_mnistbench_workloads in "
                f"conftest.py, or choose a built-in one with --bench-model: {', '.join(known)}"
            )
        return names

    def check(self, measured: Iterable[str]) -> None:
        """Refuse options, workloads and datasets that cannot be measured.

        It is called before any case runs.

        Raises:
            MnistbenchError: the first error, here or during collection.
        """
        if self._session.usage_error:
            raise self._session.usage_error
        try:
            self._check_options()
            needed = set(measured)
            selected = [workload for workload in self.builtin_workloads if workload.name in needed]
            # It may be missing or damaged.
            if self.options.dataset == "mnist" and selected and selected[0].load:
                import torch

                selected[0].load(torch.device("cpu"))
        except MnistbenchError as error:
            self._session.usage_error = error
            raise

    def _check_options(self) -> None:
        """Refuse a workload of no collected test, and an unwritable TensorBoard directory.

        Leave nothing there.
        """
        for name in self.options.workloads or ():
            if name not in self._known_workloads:
                raise UsageError(
                    f"--bench-model: {name!r} is not a workload; choose of "
                    f"{', '.join(sorted(self._known_workloads))}"
                )
        if self.options.tensorboard is None:
            return
        from mnistbench.core.files import why_not_writable

        if problem := why_not_writable(self.options.tensorboard):
            raise UsageError(f"--bench-tensorboard: {problem}; name another directory, or off")

    @functools.cached_property
    def devices(self) -> list[str]:
        """The devices of ``--bench-device``."""
        from mnistbench.suite.measuring.torch_import import import_torch

        import_torch()
        from mnistbench.suite.measuring.environment import resolve_devices

        return resolve_devices(self.options.devices)

    @functools.cached_property
    def builtin_workloads(self) -> list[Workload]:
        """The models of mnistbench, made once so that a dataset is loaded once."""
        from mnistbench.suite.measuring.torch_import import import_torch

        import_torch()
        from mnistbench.suite.workloads.workload import builtin_workloads

        return builtin_workloads(self.options.dataset, self.options.data_dir)

    @functools.cached_property
    def environment(self) -> Environment:
        """Machine and software."""
        return provider_of("torch").environment(self.options.threads)

    @functools.cached_property
    def tracker(self) -> Tracker:
        """Writer of curves, made for the first curve.

        A session without curves leaves no directory. Without the package the curves are only saved.
        """
        from mnistbench.core.extras import has, install
        from mnistbench.suite.measuring.tensorboard import Tracker, new_directory

        root = self.options.tensorboard
        if root and not has("tensorboard"):
            why = f"tensorboard is not installed: {install('tensorboard')}, or"
            self._session.not_recorded.append(
                f"no files for TensorBoard: {why} --bench-tensorboard off; saved runs have the "
                "curves"
            )
            root = None
        return Tracker(new_directory(root) if root else None, self.progress)

    @property
    def tracked_in(self) -> str:
        """The directory of this session's TensorBoard runs; empty if there are none."""
        directory = self.tracker.directory if "tracker" in vars(self) else None
        return os.fspath(directory) if directory else ""

    @contextmanager
    def progress(
        self, batches: Iterable[Batch], total: int, description: str
    ) -> Iterator[Iterable[Batch]]:
        """Show a progress bar for long training on a terminal; show nothing in a log file."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        released = capture.global_and_fixture_disabled if capture else nullcontext
        with released():
            on_terminal = sys.stderr.isatty()
        if not on_terminal:
            yield batches
            return
        from mnistbench.showing.progress import Progress

        with (
            released(),
            Progress(sys.stderr, total=total, after_s=SHOW_PROGRESS_AFTER, below=True) as bar,
        ):
            bar.step(description)
            yield bar.over(batches)


#: Key of the cases in ``config.stash``.
CASES = pytest.StashKey[Cases]()
