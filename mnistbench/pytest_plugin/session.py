"""What the plug-in knows of the pytest session that is running; lies in ``config.stash``. Imports torch only when asked."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pytest

from mnistbench.core.errors import MnistbenchError, RecordError, UsageError
from mnistbench.measuring.torch_import import import_torch
from mnistbench.pytest_plugin.options import Options, criteria_from_config

if TYPE_CHECKING:
    from mnistbench.compare.diff import Comparison
    from mnistbench.compare.judge import Judgement
    from mnistbench.compare.thresholds import Criteria
    from mnistbench.core.record import CaseRecord, Environment
    from mnistbench.measuring.tensorboard import Tracker
    from mnistbench.saved_runs.summary import RunSummary
    from mnistbench.workloads.workload import Batch, Workload

#: What a test that uses the fixture ``op_benchmark`` is parametrized over.
WORKLOAD, BATCH_SIZE, DEVICE = "bench_workload", "bench_batch_size", "bench_device"

#: Training that takes longer shows a bar, in seconds.
SHOW_PROGRESS_AFTER = 2.0


class Session:
    """Options, what collection found, and the records made so far."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.options = options
        self.judgement: Judgement | None = None  # when the session ends, where it is compared
        self.records: list[CaseRecord] = []
        self.baselines: list[Mapping[str, Any]] = []  # parsed files that --benchmark-compare named
        self.refused: list[str] = []  # a line for each of them that cannot be read
        self.notes: list[str] = []  # for the terminal summary, a line each
        self.usage_error: MnistbenchError | None = None  # found while collecting, raised when collection ends
        self.collected = False  # a test asks for our fixture
        self.case_has_run = False
        self._known_workloads: set[str] = set()
        self._config = config

    def select_workloads(self, registered: Iterable[Workload]) -> list[str]:
        """Return the names that a test is parametrized over, of those registered for it."""
        names = [workload.name for workload in registered]
        self._known_workloads.update(names)
        wanted = self.options.workloads
        return [name for name in names if not wanted or name in wanted]

    def check(self, *, dataset: bool) -> None:
        """Refuse what cannot be measured, before any case runs.

        Args:
            dataset: read the dataset too.

        Raises:
            MnistbenchError: the first thing found, here or while collecting.
        """
        if self.usage_error:
            raise self.usage_error
        try:
            self._check_workloads()
            self._check_tensorboard()
            if dataset:
                self._check_dataset()
        except MnistbenchError as error:
            self.usage_error = error
            raise

    def _check_workloads(self) -> None:
        """Refuse a ``--bench-model`` that no collected test knows."""
        for name in self.options.workloads:
            if name not in self._known_workloads:
                raise UsageError(
                    f"--bench-model: {name!r} is not a workload; choose of {', '.join(sorted(self._known_workloads))}"
                )

    @functools.cached_property
    def devices(self) -> list[str]:
        """The devices asked for, all of them present.

        Raises:
            UsageError: one is not.
        """
        import_torch()
        from mnistbench.measuring.environment import resolve_devices

        return resolve_devices(self.options.devices)

    @functools.cached_property
    def builtin_workloads(self) -> list[Workload]:
        """Made once, so that a dataset is loaded once."""
        import_torch()
        from mnistbench.workloads.workload import builtin_workloads

        return builtin_workloads(self.options.dataset, self.options.data_dir)

    @functools.cached_property
    def environment(self) -> Environment:
        """Read once, when the first record or line needs it."""
        import_torch()
        from mnistbench.measuring.environment import read

        return read(self.options.threads)

    @functools.cached_property
    def criteria(self) -> Criteria:
        """What a comparison is judged by.

        Raises:
            UsageError: names the setting and the value.
        """
        return criteria_from_config(self._config)

    @property
    def has_something_to_judge(self) -> bool:
        """Whether a comparison concerns us: cases of ours here or in the base, or a threshold."""
        criteria = self.criteria
        return bool(self.records or criteria.op_fail or criteria.case_fail) or any(
            "mnistbench" in file for file in self.baselines
        )

    def judge(self) -> Judgement:
        """Compare the records with the baselines, as ``mnistbench compare`` compares files."""
        from mnistbench.compare.diff import compare
        from mnistbench.compare.judge import judge
        from mnistbench.saved_runs.summary import RunSummary

        bases = []
        for parsed in self.baselines:
            try:
                bases.append(RunSummary.from_json(parsed, f"the run saved {parsed.get('datetime', 'at an unknown time')}"))
            except RecordError as error:
                self.refused.append(str(error))
        bases.sort(key=lambda run: run.saved_at)
        now = RunSummary.of_session(self.environment, self.records) if self.records else RunSummary({}, ())
        comparison = compare(bases, now, **self.criteria.of_comparison)
        if older := self._older_runs_of(comparison):
            comparison = compare([*older, *bases], now, **self.criteria.of_comparison)
        self.judgement = judge(comparison, self.criteria)
        return self.judgement

    def _older_runs_of(self, comparison: Comparison) -> list[RunSummary]:
        """Return the older saved runs of cases that the base lacks, oldest first, reduced to these cases.

        Without a value --benchmark-compare takes the newest saved run, which may have been made with -k.
        """
        location = str(self._config.getoption("benchmark_storage", default=""))
        bare = self._config.getoption("benchmark_compare", default=None) is True
        if not (bare and comparison.bases and comparison.only_now and location.startswith("file://")):
            return []
        from mnistbench.saved_runs.storage import Storage

        wanted = {case.key for case in comparison.only_now}
        newest = comparison.bases[-1].saved_at
        storage = Storage(Path(location.removeprefix("file://")))
        runs = [saved.run for saved in storage.all() if saved.run.saved_at < newest]
        self.refused += storage.refused
        reduced = [replace(run, cases=tuple(case for case in run.cases if case.key in wanted)) for run in runs]
        return [run for run in reduced if run.cases]

    @functools.cached_property
    def tracker(self) -> Tracker:
        """Made when the first curve is asked for, so that a run without any leaves no directory."""
        from mnistbench.measuring.tensorboard import Tracker, new_directory

        root = self.options.tensorboard
        return Tracker(new_directory(root) if root else None, self.progress)

    @property
    def tracked_in(self) -> str:
        """The directory of this session's TensorBoard runs; empty where none was written."""
        directory = self.tracker.directory if "tracker" in vars(self) else None
        return os.fspath(directory) if directory else ""

    def _check_tensorboard(self) -> None:
        """Find out whether TensorBoard's directory can be written, without leaving anything there."""
        root = self.options.tensorboard
        if root is None:
            return
        from mnistbench.core.files import why_not_writable

        if problem := why_not_writable(root):
            raise UsageError(f"--bench-tensorboard: {problem}; name another directory, or off")

    def _check_dataset(self) -> None:
        """Find out whether MNIST is there and whole, where a built-in workload is to run on it."""
        selected = [
            workload for workload in self.builtin_workloads if workload.name in (self.options.workloads or [workload.name])
        ]
        if self.options.dataset == "mnist" and selected and selected[0].load:
            import torch

            selected[0].load(torch.device("cpu"))

    @contextmanager
    def progress(self, batches: Iterable[Batch], total: int, description: str) -> Iterator[Iterable[Batch]]:
        """Show a bar for training that takes long, on a terminal; show nothing in a log file."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        released = capture.global_and_fixture_disabled if capture else nullcontext
        with released():
            on_terminal = sys.stderr.isatty()
        if not on_terminal:
            yield batches
            return
        from tqdm import tqdm

        with (
            released(),
            tqdm(
                batches,
                total=total,
                desc=description,
                unit="batch",
                delay=SHOW_PROGRESS_AFTER,
                leave=False,
                file=_OnNewLine(sys.stderr),
                dynamic_ncols=True,
            ) as bar,
        ):
            yield bar


class _OnNewLine:
    """Starts a new line before the first text, so that the bar does not overwrite pytest's dots."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started = False

    def write(self, text: str) -> None:
        if not self._started:
            self._stream.write("\n")
            self._started = True
        self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def registered_workloads(item: pytest.Item | pytest.Function) -> list[Workload]:
    """Return the built-in workloads and those of the conftest.py files that a test sees.

    Raises:
        UsageError: a hook returned something else, or two have one name.
    """
    from mnistbench.workloads.workload import Workload

    found: dict[str, Workload] = {}
    for workloads in reversed(item.ihook.pytest_mnistbench_workloads(config=item.config)):
        for workload in workloads:
            if not isinstance(workload, Workload):
                raise UsageError(
                    f"pytest_mnistbench_workloads returned {workload!r}: return a list of mnistbench Workload objects"
                )
            if workload.name in found:
                raise UsageError(f"workload {workload.name!r} is registered twice: give one of them another name")
            found[workload.name] = workload
    return list(found.values())


def gate_of(item: pytest.Item) -> tuple[tuple[str, ...], str]:
    """Return the thresholds of a test's closest ``opgate`` mark, for operations and for the call.

    Raises:
        UsageError: the mark cannot be read.
    """
    mark = item.get_closest_marker("opgate")
    if mark is None:
        return (), ""
    from mnistbench.compare.thresholds import mark_thresholds

    return mark_thresholds(mark.args, mark.kwargs)


#: Where the session's state lies.
SESSION = pytest.StashKey[Session]()
