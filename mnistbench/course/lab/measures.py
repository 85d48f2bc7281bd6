"""Measure the parts of a lab: training, operations, first iterations, iterations and epochs. Needs torch."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from mnistbench.core.params import Params, default_step
from mnistbench.core.record import OpTable, median_ns, quartiles_ns, thin
from mnistbench.course.lab.findings import (
    TRAINED,
    UNTRAINED,
    CallTime,
    Ceiling,
    EpochResult,
    EpochTime,
    FirstCall,
    FirstOperation,
    Operation,
    Operations,
    Point,
    ProfiledCase,
    Settings,
    Study,
    Training,
)  # fmt: skip
from mnistbench.course.lab.studies import study
from mnistbench.measuring.case import Case, build, fork_random, memory_suffices, thread_count
from mnistbench.measuring.passes import WARMUP_CALLS
from mnistbench.measuring.timing import timed
from mnistbench.profile.first_call import Processes, cold_calls
from mnistbench.profile.result import ColdCall, Profiled
from mnistbench.profile.run import profile_case, too_large
from mnistbench.train.result import Listener
from mnistbench.train.result import Point as TrainedPoint
from mnistbench.train.result import Settings as TrainSettings
from mnistbench.train.run import run as train
from mnistbench.workloads.workload import Workload, builtin_workloads

#: Called with the completed fraction of a measurement, from 0 to 1.
Advance = Callable[[float], None]

#: Points of a training curve per epoch, at most.
_POINTS_PER_EPOCH = 20

#: Each case is timed in this many blocks, which alternate with those of the other cases, so that a short disturbance
#: of the machine affects all cases alike.
_ROUNDS = 8


@dataclass(frozen=True)
class Budget:
    """Limits of the measurements."""

    call_s: float = 2.0  # timed iterations of each case, in seconds
    calls: tuple[int, int] = (16, 2_000)  # minimum and maximum number of timed iterations
    epoch_s: float = 6.0  # no further epoch is timed after this many seconds
    epochs: int = 3  # maximum number of timed epochs
    iterations: int = 10  # profiled iterations


class Measures:
    """Measures the parts of a lab. Every method returns findings; none keeps state."""

    def __init__(
        self,
        settings: Settings,
        data_dir: str | None = None,
        budget: Budget | None = None,
        processes: Processes | None = None,
    ) -> None:
        """Prepare the measurements.

        Args:
            settings: dataset, model, seed and available devices.
            data_dir: directory of MNIST.
            budget: limits of the measurements.
            processes: open processes for first iterations; None: started and ended for each case.
        """
        self._settings = settings
        self._data_dir = data_dir
        self._budget = budget or Budget()
        self._processes = processes
        found = {workload.name: workload for workload in builtin_workloads(settings.dataset, data_dir)}
        self._workload: Workload = found[settings.model]

    def samples(self) -> tuple[int, int]:
        """Return the sizes of the training and the test set.

        Raises:
            DataError: the dataset is missing or damaged.
        """
        assert self._workload.load is not None, "built-in workloads have a whole set"
        whole = self._workload.load(torch.device("cpu"))
        return len(whole.train), len(whole.test)

    def training(
        self, device: str, threads: int, size: int, output: Path, advance: Advance
    ) -> tuple[Training, tuple[str, ...]]:
        """Train and write the TensorBoard run to ``output``; return the run and notes about files that could not be written.

        Raises:
            MnistbenchError: the device runs out of memory.
        """
        settings = self._settings
        train_samples, _ = self.samples()
        listener = _Collector(settings.epochs, advance)
        output.mkdir(parents=True)
        result = train(
            TrainSettings(
                model=settings.model,
                dataset=settings.dataset,
                data_dir=self._data_dir,
                device=device,
                threads=threads,
                batch_size=size,
                step=default_step(device),
                epochs=settings.epochs,
                seed=settings.seed,
                log_interval=math.ceil(math.ceil(train_samples / size) / _POINTS_PER_EPOCH),
            ),
            output,
            listener,
            self._workload,
        )
        epochs = tuple(
            EpochResult(epoch.number, epoch.train_loss, epoch.train_accuracy, epoch.test_loss, epoch.test_accuracy)
            for epoch in result.epochs
        )
        points = listener.points
        kept = [points[position] for position, _ in thin([(position, None) for position in range(len(points))])]
        return Training(device, size, epochs, tuple(kept), f"{output.parent.name}/{output.name}"), result.notes

    def profiled(self, phase: str, device: str, threads: int, size: int, trace: Path | None) -> ProfiledCase:
        """Profile a warm case.

        Raises:
            MnistbenchError: the device runs out of memory, or the trace cannot be written.
        """
        found = profile_case(
            self._params(phase, device, threads, size),
            self._workload,
            data_dir=self._data_dir,
            iterations=self._budget.iterations,
            trace=trace,
            timed=False,  # ``calls`` times the same cases, in alternating blocks
        )
        return ProfiledCase(
            operations=tuple(_operations(found, table) for table in found.tables),
            parameters=found.parameter_count,
            layers=found.layers,
            ceiling=Ceiling(device, found.ceilings.flops_per_s, found.ceilings.bytes_per_s) if found.ceilings else None,
        )

    def first_calls(self, phase: str, device: str, threads: int, size: int) -> tuple[FirstCall, ...]:
        """Measure the first iteration in new processes: with untrained weights, and with trained ones.

        Raises:
            UsageError: a process failed.
        """
        calls, _ = cold_calls(self._params(phase, device, threads, size), self._data_dir, self._processes)
        later = next((call for call in calls if not call.first), None)
        return tuple(
            _first_call(call, later if not call.trained else None, phase, device, size) for call in calls if call.first
        )

    def calls(self, wanted: Sequence[tuple[str, str, int, int]], advance: Advance) -> tuple[CallTime, ...]:
        """Time warm iterations of (phase, device, threads, batch size) in alternating blocks, in random order.

        Raises:
            UsageError: the device runs out of memory.
        """
        devices = sorted({device for _, device, _, _ in wanted})
        largest = max(size for *_, size in wanted)
        order = random.Random(self._settings.seed)  # noqa: S311  # no secret
        times: dict[int, list[int]] = {number: [] for number in range(len(wanted))}
        with memory_suffices(too_large(" or ".join(devices), largest)), ExitStack() as stack:
            for device in devices:
                stack.enter_context(fork_random(torch.device(device)))
            cases = [self._warm(*what) for what in wanted]
            share = [self._calls_per_round(case) for case in cases]
            for number in range(_ROUNDS):
                for position in order.sample(range(len(cases)), len(cases)):
                    times[position] += _timed(cases[position], share[position])
                advance((number + 1) / _ROUNDS)
        return tuple(
            CallTime(device, threads, phase, size, *_median_and_iqr(times[number]), len(times[number]))
            for number, (phase, device, threads, size) in enumerate(wanted)
        )

    def study(self, name: str, limit_s: float) -> tuple[tuple[Study, ...], tuple[str, ...]]:
        """Run an operator study with a time limit in seconds; return its table, or a note."""
        return study(name, limit_s)

    def epoch(self, phase: str, device: str, threads: int, size: int) -> EpochTime:
        """Time passes over the training set (train) or the test set (eval), after one untimed batch.

        Raises:
            UsageError: the device runs out of memory.
        """
        budget = self._budget
        with memory_suffices(too_large(device, size)), thread_count(threads), fork_random(torch.device(device)):
            warm = build(self._params("step" if phase == "train" else "forward", device, threads, size), self._workload)
            warm()
            case = build(self._params(phase, device, threads, size), self._workload, self._data_dir)
            times: list[int] = []
            while not times or (len(times) < budget.epochs and sum(times) < budget.epoch_s * 1e9):
                times += _timed(case, 1, warm_up=False)
        return EpochTime(
            device, threads, phase, size, *_median_and_iqr(times), len(times), samples=case.samples, whole_set=case.whole_set
        )

    def _params(self, phase: str, device: str, threads: int, size: int) -> Params:
        return Params(
            workload=self._settings.model, phase=phase, batch_size=size, device=device, dtype="float32", threads=threads,
            compile=False, seed=self._settings.seed, dataset=self._settings.dataset,
        )  # fmt: skip

    def _warm(self, phase: str, device: str, threads: int, size: int) -> Case:
        with thread_count(threads):
            case = build(self._params(phase, device, threads, size), self._workload, self._data_dir)
            for _ in range(WARMUP_CALLS):
                case()
        return case

    def _calls_per_round(self, case: Case) -> int:
        estimate = min(_timed(case, 2))
        least, most = self._budget.calls
        calls = min(most, max(least, round(self._budget.call_s * 1e9 / max(1, estimate))))
        return max(1, round(calls / _ROUNDS))


class _Collector(Listener):
    """Collects the points of a training curve over the number of samples seen."""

    def __init__(self, epochs: int, advance: Advance) -> None:
        self.points: list[Point] = []
        self._epochs, self._advance = epochs, advance
        self._seen, self._trained, self._all = 0, 0, 1

    def begin(self, train_samples: int, test_samples: int) -> None:  # noqa: ARG002  # Listener's
        self._all = train_samples * self._epochs

    def batch(self, samples: int) -> None:
        self._trained += samples
        self._advance(self._trained / self._all)

    def point(self, point: TrainedPoint) -> None:
        self._seen += point.samples
        self.points.append(Point(self._seen, point.loss, point.accuracy))


def _timed(case: Case, iterations: int, *, warm_up: bool = True) -> list[int]:
    """Time one block of iterations from the case's initial state, in nanoseconds.

    Without the reset, batch sizes would be compared after different numbers of optimizer steps. The untimed iteration
    creates the optimizer's state and starts the threads, whose number may differ from the previous block's.
    """
    with thread_count(case.params.threads):
        case.reset()
        if warm_up:
            case()
        return [timed(case).wall_ns for _ in range(iterations)]


def _median_and_iqr(times: Sequence[int]) -> tuple[int, int | None]:
    first, third = quartiles_ns(times)
    return median_ns(times), third - first if len(times) > 1 else None


def _operations(found: Profiled, table: OpTable) -> Operations:
    """Return the table of one view, with the FLOPs and bytes of its operations."""
    params = found.params
    rows = []
    for row in table.rows:
        cost = found.costs.get(row.key)
        rows.append(
            Operation(
                name=row.name,
                phase=row.phase,
                module=row.module,
                calls=row.calls if row.is_operation else 0.0,
                self_ns=row.self_ns(table.clock),
                spread_ns=row.spread_ns(table.clock),
                total_ns=median_ns(row.total_cpu_ns),
                memory_bytes=row.memory_bytes,
                flops=cost.flops if cost else None,
                moved_bytes=cost.n_bytes if cost else None,
            )
        )
    return Operations(
        device=params.device,
        view=table.view,
        phase=params.phase,
        batch_size=params.batch_size,
        threads=params.threads,
        iterations=len(table.iteration_ns),
        iteration_ns=median_ns(table.iteration_ns),
        profiler_ns=table.profiler_ns or None,
        busy_ns=median_ns(found.busy_ns) if found.busy_ns and table.view == "device" else None,
        rows=tuple(rows),
    )


def _first_call(call: ColdCall, later: ColdCall | None, phase: str, device: str, size: int) -> FirstCall:
    warm = {row.key: row.self_ns("cpu") for row in later.table.rows} if later else {}
    return FirstCall(
        device=device,
        phase=phase,
        batch_size=size,
        weights=TRAINED if call.trained else UNTRAINED,
        first_ns=call.ns,
        warm_ns=later.ns if later else None,
        rows=tuple(
            FirstOperation(row.name, row.phase, row.module, row.self_ns("cpu"), warm.get(row.key, 0) if later else None)
            for row in call.table.rows
        ),
    )
