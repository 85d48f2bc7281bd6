"""State of the plug-in during a pytest session, kept in ``config.stash``.

Imports torch inside functions only.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mnistbench.compare.criteria import Criteria, mark_thresholds
from mnistbench.core.errors import MnistbenchError, RecordError, UsageError
from mnistbench.core.options import options_of, read_pytest
from mnistbench.measuring.calls import NEEDS_CODSPEED, has_codspeed
from mnistbench.pytest_plugin.options import Options
from mnistbench.suite.measuring.torch_import import import_torch

if TYPE_CHECKING:
    from mnistbench.compare.diff import Comparison
    from mnistbench.compare.judge import Judgement
    from mnistbench.core.record import CaseRecord, Environment, Timing
    from mnistbench.saved_runs.run import Run
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

#: The mark of a test that uses pytest-benchmark's own fixture and gets its operations.
MARK = "op_benchmark"

#: The variable that switches pytest-codspeed on in CodSpeed's own jobs.
_CODSPEED_SWITCH = "CODSPEED_ENV"

#: Seconds of training before a progress bar is shown.
SHOW_PROGRESS_AFTER = 2.0


class Session:
    """Options, the results of collection, and the records made so far."""

    def __init__(self, config: pytest.Config) -> None:
        """Read the options; the command line overrides the configuration file."""
        self.options = read_pytest(Options, config)
        thresholds = options_of(Criteria)
        for option in (thresholds["op_fail"], thresholds["case_fail"]):
            if config.getoption(option.pytest_key) and not config.getoption(
                "benchmark_compare", default=None
            ):
                raise UsageError(
                    f"{option.pytest_flag}: needs a saved run to compare with: add "
                    "--benchmark-compare"
                )
        self.criteria = read_pytest(Criteria, config)  # what a comparison is judged by
        self.judgement: Judgement | None = None  # set at the end of a session that is compared
        self.records: list[CaseRecord] = []
        self.baselines: list[Mapping[str, Any]] = []  # parsed files that --benchmark-compare named
        self.refused: list[str] = []  # a line for each baseline that cannot be read
        self.not_recorded: list[str] = []  # a line for each test whose call does not do its work
        # Found while collecting, raised when collection ends.
        self.usage_error: MnistbenchError | None = None
        self.measures_workloads = False  # a collected test uses op_benchmark
        self.marked_alone: list[str] = []  # node ids of tests that only pytest-codspeed measures
        self.attaches_to_plain_tests = False  # a test that ran wants a table of its plain call
        self.case_has_run = False
        self._known_workloads: set[str] = set()
        self._config = config

    def wants_table(self, item: pytest.Item) -> bool:
        """Return whether a test of pytest-benchmark's own fixture gets tables."""
        return self.options.op_benchmarks or item.get_closest_marker(MARK) is not None

    @property
    def is_measured_by_codspeed(self) -> bool:
        """Whether pytest-codspeed is switched on, which disables pytest-benchmark."""
        is_given = self._config.getoption("codspeed", default=False)
        return has_codspeed(self._config) and (is_given or _CODSPEED_SWITCH in os.environ)

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

        Before any case runs.

        Raises:
            MnistbenchError: the first error, here or during collection.
        """
        if self.usage_error:
            raise self.usage_error
        try:
            self._check_options()
            needed = set(measured)
            selected = [workload for workload in self.builtin_workloads if workload.name in needed]
            # It may be missing or damaged.
            if self.options.dataset == "mnist" and selected and selected[0].load:
                import torch

                selected[0].load(torch.device("cpu"))
        except MnistbenchError as error:
            self.usage_error = error
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
        import_torch()
        from mnistbench.suite.measuring.environment import resolve_devices

        return resolve_devices(self.options.devices)

    @functools.cached_property
    def builtin_workloads(self) -> list[Workload]:
        """The models of mnistbench, made once so that a dataset is loaded once."""
        import_torch()
        from mnistbench.suite.workloads.workload import builtin_workloads

        return builtin_workloads(self.options.dataset, self.options.data_dir)

    @functools.cached_property
    def environment(self) -> Environment:
        """Machine and software, read once."""
        import_torch()
        from mnistbench.suite.measuring.environment import read

        return read(self.options.threads)

    @property
    def environment_of_records(self) -> Environment:
        """The environment with the threads of the records that have operations.

        ``--bench-threads`` does not apply to plain tests. Nothing of torch is known if no test has
        imported it.
        """
        if "torch" not in sys.modules:
            from mnistbench.core.record import without_torch

            return without_torch(self.options.threads)
        threads = {record.known_params.threads for record in self.records if record.table("warm")}
        return (
            replace(self.environment, threads=threads.pop())
            if len(threads) == 1
            else self.environment
        )

    @property
    def notes(self) -> list[str]:
        """What was not recorded: a line for each note of a record, then of each such test."""
        notes_of_records = [
            f"{record.node_id}: {note}" for record in self.records for note in record.notes
        ]
        recorded = {record.node_id for record in self.records}  # they may request the fixture
        needs_codspeed = [
            f"{node_id}: {NEEDS_CODSPEED}"
            for node_id in self.marked_alone
            if node_id not in recorded
        ]
        lines = [*notes_of_records, *self.not_recorded, *needs_codspeed, *self._no_tensorboard()]
        if self.attaches_to_plain_tests and not self.records and not lines:
            return [f"no operation tables: {self._why_nothing_ran(has_tests=True)}"]
        return lines

    def _no_tensorboard(self) -> list[str]:
        """Return a line if there are curves and none was written, because a package is missing."""
        if not self.options.tensorboard or "tracker" not in vars(self) or self.tracked_in:
            return []
        from mnistbench.core.extras import install

        why = f"tensorboard is not installed: {install('tensorboard')}, or --bench-tensorboard off"
        return [f"no files for TensorBoard: {why}; saved runs have the curves"]

    @property
    def has_something_to_judge(self) -> bool:
        """Whether there are cases with operation records, here or in the base, or thresholds."""
        criteria = self.criteria
        return bool(self.records or criteria.op_fail or criteria.case_fail) or any(
            "mnistbench" in file for file in self.baselines
        )

    def judge(self, *, has_tests: bool) -> Judgement:
        """Compare the records with the baselines, as ``mnistbench compare`` compares files.

        Args:
            has_tests: a test was collected and not deselected.
        """
        from mnistbench.compare.diff import compare
        from mnistbench.compare.judge import judge
        from mnistbench.saved_runs.run import Run

        bases = []
        for parsed in self.baselines:
            name = f"the run saved {parsed.get('datetime') or 'at an unknown time'}"
            try:
                base = Run.from_json(parsed, name, "medians")
            except RecordError as error:
                self.refused.append(str(error))
                continue
            bases.append(base)
            self.refused += [
                f"{name}: {line}; this benchmark is left out" for line in base.left_out
            ]
        bases.sort(key=lambda run: run.saved_at)
        environment = self.environment_of_records if self.records else None
        why_empty = self._why_nothing_ran(has_tests=has_tests)
        head = Run.of_session(environment, self.records, self._plain_benchmarks(), why_empty)
        comparison = compare(bases, head, **self.criteria.of_comparison)
        if older := self._older_runs_of(comparison):
            comparison = compare([*older, *bases], head, **self.criteria.of_comparison)
        self.judgement = judge(comparison, self.criteria)
        return self.judgement

    def _plain_benchmarks(self) -> list[dict[str, Any]]:
        """Return the benchmarks of this session that have no record.

        As pytest-benchmark saves them.
        """
        recorded = {record.node_id for record in self.records}
        session = getattr(self._config, "_benchmarksession", None)
        return [
            {
                "fullname": benchmark.fullname,
                "stats": {name: getattr(benchmark.stats, name) for name in ("median", "iqr")},
            }
            for benchmark in (session.benchmarks if session else ())
            if benchmark.fullname not in recorded and benchmark.stats.data
        ]

    def _why_nothing_ran(self, *, has_tests: bool) -> str:
        """Return why a session without benchmarks has none, and what to do."""
        option = self._config.getoption
        if option("benchmark_skip", default=False):
            return "--benchmark-skip skips them; leave it out"
        if self.is_measured_by_codspeed:
            given = "--codspeed" if option("codspeed", default=False) else _CODSPEED_SWITCH
            return f"{given} disables pytest-benchmark, whose tests have tables; leave it out"
        if option("benchmark_disable", default=False) and not option(
            "benchmark_enable", default=False
        ):
            is_given = "--benchmark-disable" in self._config.invocation_params.args
            return "--benchmark-disable calls each test once and measures nothing; " + (
                "leave it out" if is_given else "it is in the configuration: add --benchmark-enable"
            )
        if option("dist", default="no") != "no":
            return (
                "pytest-benchmark measures nothing in the processes of pytest-xdist; run without -n"
            )
        if has_tests:
            return (
                "no test that ran uses the fixture benchmark or op_benchmark, or each of them "
                "failed or was skipped"
            )
        return "no test was selected; check -k, -m and the paths"

    def _older_runs_of(self, comparison: Comparison) -> list[Run]:
        """Return older saved runs of the cases that the base lacks, oldest first.

        They are reduced to these cases.

        Without a value --benchmark-compare uses the newest saved run, which may have been saved
        with -k.
        """
        storage_root = self._storage
        bare = self._config.getoption("benchmark_compare", default=None) is True
        if not (bare and comparison.bases and comparison.only_head and storage_root):
            return []
        from mnistbench.saved_runs.storage import Storage

        wanted = {case.key for case in comparison.only_head}
        newest = comparison.bases[-1].saved_at
        storage = Storage(storage_root)
        runs = [saved.run for saved in storage.all() if saved.run.saved_at < newest]
        self.refused += storage.refused
        reduced = [
            replace(run, cases=tuple(case for case in run.cases if case.key in wanted))
            for run in runs
        ]
        return [run for run in reduced if run.cases]

    @functools.cached_property
    def tracker(self) -> Tracker:
        """Writer of curves, made for the first curve.

        A session without curves leaves no directory. Without the package the curves are only saved.
        """
        from mnistbench.core.extras import has
        from mnistbench.suite.measuring.tensorboard import Tracker, new_directory

        root = self.options.tensorboard if has("tensorboard") else None
        return Tracker(new_directory(root) if root else None, self.progress)

    @property
    def _storage(self) -> Path | None:
        """The directory of the saved runs; None if they are saved elsewhere."""
        location = str(self._config.getoption("benchmark_storage", default="")).removeprefix(
            "file://"
        )
        return Path(location) if location and "://" not in location else None

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


def timing_of(stats: Any) -> Timing:
    """Return the times of a benchmark of pytest-benchmark, with the name of their clock."""
    from mnistbench.core.record import Timing

    timer = stats.options.get("timer")
    while isinstance(timer, functools.partial):  # as pytest-benchmark names it
        timer = timer.func
    return Timing.from_stats(stats.stats.as_dict(), getattr(timer, "__name__", ""))


def thresholds_of(item: pytest.Item) -> tuple[tuple[str, ...], str]:
    """Return the thresholds of a test's closest ``opgate`` mark.

    For operations and for the whole iteration.
    """
    mark = item.get_closest_marker("opgate")
    return mark_thresholds(mark.args, mark.kwargs) if mark else ((), "")


#: Key of the session's state in ``config.stash``.
SESSION = pytest.StashKey[Session]()
