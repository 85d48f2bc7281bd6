"""Measure the parts of a lab: training, operations, first iterations, iterations and epochs.

Needs torch.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from mnistbench.core.params import Params
from mnistbench.course.lab.lab_file import FirstIteration, LabSettings, Training, WarmTime
from mnistbench.measuring.timing import WARMUP_ITERATIONS, Clock
from mnistbench.suite.measuring.case import Case, build, fork_random, memory_suffices, thread_count
from mnistbench.suite.measuring.device_timing import timed
from mnistbench.suite.profile.first_call import cold_calls
from mnistbench.suite.profile.result import Profiled
from mnistbench.suite.profile.run import profile_case, too_large
from mnistbench.suite.train.result import Listener, Point
from mnistbench.suite.train.result import Settings as TrainSettings
from mnistbench.suite.train.run import run as train
from mnistbench.suite.workloads.builtin import default_step
from mnistbench.suite.workloads.workload import builtin_workloads, params_of

#: Points of a training curve per epoch, at most.
_POINTS_PER_EPOCH = 20

#: Each case is timed in this many blocks, which alternate with those of the other cases, so that a
#: short disturbance of the machine affects all cases alike.
_ROUNDS = 8


class Measures:
    """Measures the parts of a lab. Every method returns findings; none keeps state."""

    block_s = 1.0  # timed iterations of each case, in seconds
    # Timed iterations.
    least = 16
    most = 2_000
    epoch_s = 6.0  # no further epoch is timed after this many seconds
    epochs = 2  # most timed epochs
    profiled_iterations = 10

    def __init__(self, settings: LabSettings, data_dir: str | None = None) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self._workload = {
            workload.name: workload for workload in builtin_workloads(settings.dataset, data_dir)
        }[settings.model]

    def samples(self) -> tuple[int, int]:
        """Return the sizes of the training and the test set.

        Raises:
            DataError: the dataset is missing or damaged.
        """
        assert self._workload.load is not None, "built-in workloads have a whole set"
        whole = self._workload.load(torch.device("cpu"))
        return len(whole.train), len(whole.test)

    def training(
        self, device: str, threads: int, size: int, output: Path, advance: Callable[[float], None]
    ) -> tuple[Training, tuple[str, ...]]:
        """Train and write the TensorBoard run to ``output``.

        Return the run and notes about files that could not be written.

        Raises:
            MnistbenchError: the device runs out of memory.
        """
        train_samples, _ = self.samples()
        listener = _Collector(train_samples * self._settings.epochs, advance)
        output.mkdir(parents=True)
        result = train(
            TrainSettings(
                model=self._settings.model,
                dataset=self._settings.dataset,
                data_dir=self._data_dir,
                device=device,
                threads=threads,
                batch_size=size,
                step=default_step(device),
                epochs=self._settings.epochs,
                seed=self._settings.seed,
                log_interval=math.ceil(math.ceil(train_samples / size) / _POINTS_PER_EPOCH),
            ),
            output,
            listener,
            self._workload,
        )
        directory = f"{output.parent.name}/{output.name}"
        return Training(
            device, size, result.epochs, tuple(listener.points), directory
        ), result.notes

    def profiled(
        self, phase: str, device: str, threads: int, size: int, trace: Path | None
    ) -> Profiled:
        """Profile a warm case.

        Raises:
            MnistbenchError: the device runs out of memory, or the trace cannot be written.
        """
        return profile_case(
            self._params(phase, device, threads, size),
            self._workload,
            iterations=self.profiled_iterations,
            trace=trace,
            timed=False,  # ``iterations`` times the same cases, in alternating blocks
        )

    def first_iterations(
        self, phase: str, device: str, threads: int, size: int
    ) -> tuple[FirstIteration, ...]:
        """Measure the first iteration in new processes.

        Each is measured with untrained weights and with trained ones.
        """
        calls = cold_calls(self._params(phase, device, threads, size), self._data_dir)
        later = next((call for call in calls if not call.first), None)
        return tuple(
            FirstIteration(device, phase, size, call, None if call.trained else later)
            for call in calls
            if call.first
        )

    def iterations(
        self, wanted: Sequence[tuple[str, str, int, int]], advance: Callable[[float], None]
    ) -> tuple[WarmTime, ...]:
        """Time warm iterations in alternating blocks, in random order.

        They are of (phase, device, threads, batch size).
        """
        devices = sorted({device for _, device, _, _ in wanted})
        largest = max(size for *_, size in wanted)
        order = random.Random(self._settings.seed)  # noqa: S311  # no secret
        times: list[list[int]] = [[] for _ in wanted]
        queued_ns = [0] * len(wanted)
        blocks_ns = [0] * len(wanted)
        with memory_suffices(too_large(" or ".join(devices), largest)), ExitStack() as stack:
            for device in devices:
                stack.enter_context(fork_random(torch.device(device)))
            cases = []
            for phase, device, threads, size in wanted:
                with thread_count(threads):
                    cases.append(
                        build(
                            self._params(phase, device, threads, size),
                            self._workload,
                        )
                    )
                    for _ in range(WARMUP_ITERATIONS):
                        cases[-1]()
            calls_of_block = []
            for case in cases:
                enough = round(self.block_s * 1e9 / max(1, min(_timed(case, 2))))
                calls_of_block.append(
                    max(1, round(min(self.most, max(self.least, enough)) / _ROUNDS))
                )
            for _ in range(_ROUNDS):
                for position in order.sample(range(len(cases)), len(cases)):
                    began_ns = Clock.wall_ns()
                    queued_before_ns = Clock.queued_ns()
                    times[position] += _timed(cases[position], calls_of_block[position])
                    queued_ns[position] += Clock.queued_ns() - queued_before_ns
                    blocks_ns[position] += Clock.wall_ns() - began_ns
                advance(1 / _ROUNDS)
        return tuple(
            WarmTime(
                device,
                threads,
                phase,
                size,
                tuple(times[position]),
                size,
                size,
                min(1.0, queued_ns[position] / max(1, blocks_ns[position])),
            )
            for position, (phase, device, threads, size) in enumerate(wanted)
        )

    def epoch(self, phase: str, device: str, threads: int, size: int) -> WarmTime:
        """Time passes over the training set (train) or the test set (eval).

        One untimed batch comes before them.
        """
        with (
            memory_suffices(too_large(device, size)),
            thread_count(threads),
            fork_random(torch.device(device)),
        ):
            warm = build(
                self._params("step" if phase == "train" else "forward", device, threads, size),
                self._workload,
            )
            warm()
            case = build(self._params(phase, device, threads, size), self._workload)
            times: list[int] = []
            while not times or (len(times) < self.epochs and sum(times) < self.epoch_s * 1e9):
                times += _timed(case, 1, warm_up=False)
        return WarmTime(device, threads, phase, size, tuple(times), case.samples, case.whole_set)

    def _params(self, phase: str, device: str, threads: int, size: int) -> Params:
        return params_of(
            self._workload, phase, size, device, threads=threads, seed=self._settings.seed
        )


class _Collector(Listener):
    """Collects the points of a training curve."""

    def __init__(self, samples: int, advance: Callable[[float], None]) -> None:
        self.points: list[Point] = []
        self._samples = samples
        self._advance = advance

    def batch(self, samples: int) -> None:
        self._advance(samples / self._samples)

    def point(self, point: Point) -> None:
        self.points.append(point)


def _timed(case: Case, iterations: int, *, warm_up: bool = True) -> list[int]:
    """Time one block of iterations from the case's initial state, in nanoseconds.

    Without the reset, batch sizes would be compared after different numbers of optimizer steps. The
    untimed iteration creates the optimizer's state and starts the threads, whose number may differ
    from the previous block's.
    """
    with thread_count(case.params.threads):
        case.reset()
        if warm_up:
            case()
        return [timed(case).wall_ns for _ in range(iterations)]
