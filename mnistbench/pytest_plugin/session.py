"""State of the plug-in during a pytest session, kept in ``config.stash``."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mnistbench.compare.criteria import Criteria
from mnistbench.core.errors import MnistbenchError, RecordError, UsageError
from mnistbench.core.options import options_of, read_pytest
from mnistbench.core.params import CALL
from mnistbench.measuring.calls import NEEDS_CODSPEED, has_codspeed
from mnistbench.measuring.provider import imported_provider
from mnistbench.pytest_plugin.options import Options

if TYPE_CHECKING:
    from mnistbench.compare.diff import Comparison
    from mnistbench.compare.judge import Judgement
    from mnistbench.core.record import CaseRecord, Environment, Timing
    from mnistbench.saved_runs.run import Run

#: The mark of a test that uses pytest-benchmark's own fixture, not that of the same name, and gets
#: its operations.
MARK = "op_benchmark"

#: The variable that switches pytest-codspeed on in CodSpeed's own jobs.
_CODSPEED_SWITCH = "CODSPEED_ENV"


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
        self.not_recorded: list[str] = []  # a line for each thing that was not recorded
        # Found while collecting, raised when collection ends.
        self.usage_error: MnistbenchError | None = None  # nothing is judged then
        self.marked_alone: list[str] = []  # node ids of tests that only pytest-codspeed measures
        self.attaches_to_plain_tests = False  # a test that ran wants a table of its plain call
        self._config = config

    def wants_table(self, item: pytest.Item) -> bool:
        """Return whether a test of pytest-benchmark's own fixture gets tables."""
        return self.options.op_benchmarks or item.get_closest_marker(MARK) is not None

    @property
    def is_measured_by_codspeed(self) -> bool:
        """Whether pytest-codspeed is switched on, which disables pytest-benchmark."""
        is_given = self._config.getoption("codspeed", default=False)
        return has_codspeed(self._config) and (is_given or _CODSPEED_SWITCH in os.environ)

    @functools.cached_property
    def environment(self) -> Environment:
        """Machine and software, read once, with the threads of the records that have operations.

        Those of a provider's own cases come first: all of these have the same number. Nothing of a
        framework is known if no test has imported one.
        """
        of_cases = [record.known_params for record in self.records]
        numbers = {params.threads for params in of_cases if params.phase != CALL} or {
            record.known_params.threads for record in self.records if record.table("warm")
        }
        return imported_provider().environment(numbers.pop() if len(numbers) == 1 else 1)

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
        lines = [*notes_of_records, *self.not_recorded, *needs_codspeed]
        if self.attaches_to_plain_tests and not self.records and not lines:
            return [f"no operation tables: {self._why_nothing_ran(has_tests=True)}"]
        return lines

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
        environment = self.environment if self.records else None
        why_empty = self._why_nothing_ran(has_tests=has_tests)
        head = Run.of_session(environment, self.records, self._plain_benchmarks(), why_empty)
        comparison = compare(bases, head, **self.criteria.of_comparison)
        if older := self._older_runs_of(comparison):
            comparison = compare([*older, *bases], head, **self.criteria.of_comparison)
        self.judgement = judge(comparison, self.criteria)
        return self.judgement

    def _plain_benchmarks(self) -> list[dict[str, Any]]:
        """Return the benchmarks of this session that have no record.

        They have the form in which pytest-benchmark saves them.
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

    @property
    def _storage(self) -> Path | None:
        """The directory of the saved runs; None if they are saved elsewhere."""
        location = str(self._config.getoption("benchmark_storage", default="")).removeprefix(
            "file://"
        )
        return Path(location) if location and "://" not in location else None


def timing_of(stats: Any) -> Timing:
    """Return the times of a benchmark of pytest-benchmark, with the name of their clock."""
    from mnistbench.core.record import Timing

    timer = stats.options.get("timer")
    while isinstance(timer, functools.partial):  # as pytest-benchmark names it
        timer = timer.func
    return Timing.from_stats(stats.stats.as_dict(), getattr(timer, "__name__", ""))


#: Key of the session's state in ``config.stash``.
SESSION = pytest.StashKey[Session]()


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn a user's mistake into pytest's usage error: one line, exit code 4."""
    try:
        yield
    except MnistbenchError as error:
        raise pytest.UsageError(printable(error)) from None


def printable(error: Exception) -> str:
    """Return the text of an error without control characters, which a file may have put in it."""
    from mnistbench.core import units  # here: importing the plug-in loads few modules

    return units.printable(str(error))
