"""The epochs of a run, as one rank trains and tests them, and the checkpoint after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn

from mnistbench.core.params import Params
from mnistbench.core.record import finite
from mnistbench.suite.measuring.case import autocaster, in_step, optimizer_maker, seed
from mnistbench.suite.train.checkpoint import Checkpoint, random_state, set_random_state
from mnistbench.suite.train.recipe import learning_rate
from mnistbench.suite.train.result import EpochResult, Listener, Point, Settings
from mnistbench.suite.workloads.data import Batch
from mnistbench.suite.workloads.ranks import Ranks, seed_of_masks
from mnistbench.suite.workloads.step import Inference, Step, Window, evaluate, fit
from mnistbench.suite.workloads.workload import Workload, predicted


class Trainer:
    """A model, its optimizer and the order of the samples, from epoch to epoch."""

    def __init__(
        self,
        settings: Settings,
        params: Params,
        workload: Workload,
        plain_model: nn.Module,
        ranks: Ranks,
        checkpoint: Checkpoint | None,
        listener: Listener,
    ) -> None:
        """Prepare the next epoch: the first one, or the one after a checkpoint.

        Args:
            settings: of the run.
            params: of its training step.
            workload: has a whole set.
            plain_model: the workload's model on the device, with its first weights; it gets the
                trained ones.
            ranks: of which this process is one.
            checkpoint: of a run with these settings.
            listener: is told of each batch, and asked whether to stop.
        """
        assert workload.load is not None, "a workload without a whole set has no epochs"
        device = torch.device(settings.device)
        self._settings = settings
        self._workload = workload
        self._whole = workload.load(device)
        self._device = device
        self._ranks = ranks
        self._listener = listener
        self._autocast = autocaster(device, settings.dtype)
        self._plain_model = plain_model
        self._model = in_step(params, workload, plain_model)  # has the same parameters
        if ranks.rank:
            seed(device, seed_of_masks(settings.seed, ranks.rank))
        self._optimizer = optimizer_maker(params, workload)(self._model.parameters())
        self._order = torch.Generator().manual_seed(settings.seed)
        self._steps = 0  # training batches so far
        if checkpoint:
            self._continue_from(checkpoint)
        self._step = Step(ranks.model(self._model), workload.loss, self._optimizer, self._autocast)
        #: Predicted and true classes of the last test on this rank, by batch.
        self.tested: list[tuple[Tensor, Tensor]] = []
        # The run ended after its last epoch, before it had written its results.
        if checkpoint and len(checkpoint.epochs) == settings.epochs_to_train:
            self.test()

    def _continue_from(self, checkpoint: Checkpoint) -> None:
        self._order = checkpoint.restore(self._plain_model, self._optimizer)
        self._steps = checkpoint.steps
        if len(checkpoint.random) == self._ranks.world_size:
            set_random_state(checkpoint.random[self._ranks.rank], self._device)
        else:  # other ranks than before draw other dropout masks
            number = self._ranks.rank + len(checkpoint.epochs) * self._ranks.world_size
            seed(self._device, seed_of_masks(self._settings.seed, number))

    @property
    def parameter_count(self) -> int:
        """Number of trainable parameters."""
        return sum(
            parameter.numel() for parameter in self._model.parameters() if parameter.requires_grad
        )

    def epoch(self, number: int) -> Iterator[Point | EpochResult]:
        """Train and test; yield the log intervals, each when the device has finished it.

        The result of the epoch comes last. It has no test if the run was stopped before the end of
        the test.
        """
        points: list[Point] = []
        self._model.train()
        since = time.perf_counter_ns()
        for window, rate in self._trained(number):
            point = Point(
                epoch=number,
                step=window.step,
                samples=window.samples,
                loss=finite(window.loss),
                accuracy=window.accuracy,
                learning_rate=rate,
                train_ns=time.perf_counter_ns() - since,
            )
            points.append(point)
            yield point
            since = time.perf_counter_ns()  # the time of writing does not count as training
        self._steps = points[-1].step
        test = None if self._is_stopped() else self.test()
        is_complete = not self._is_stopped()  # an incomplete test does not count
        result = EpochResult.of(points)
        if test and is_complete:
            # The device has finished: the test has read its sums.
            test_ns = time.perf_counter_ns() - since
            result = result.tested(test.samples, finite(test.loss), test.accuracy, test_ns)
        yield result

    def save(
        self,
        directory: Path | None,
        points: Sequence[Point],
        epochs: Sequence[EpochResult],
        wall_ns: int,
    ) -> None:
        """Write the state after an epoch. All ranks call it; only rank 0 may have a directory."""
        state = Checkpoint(
            settings=self._settings,
            model=self._plain_model.state_dict(),
            optimizer=self._optimizer.state_dict(),
            order=self._order.get_state(),
            random=tuple(self._ranks.gather(random_state(self._device))),
            steps=self._steps,
            epochs=tuple(epochs),
            points=tuple(points),
            wall_ns=wall_ns,
        )
        if directory:
            state.save(directory)

    def _trained(self, epoch: int) -> Iterator[tuple[Window, float]]:
        """Train an epoch; yield its windows, and the learning rate of the last step of each."""
        whole = self._whole
        settings = self._settings
        order = whole.order(whole.train, settings.batch_size, self._order)

        def rate(step: int) -> float:
            return learning_rate(settings, epoch, step, len(order))

        def batches() -> Iterator[Batch]:
            not_stopped = self._until_stopped(order, self._listener.batch)
            for step, indices in enumerate(not_stopped, self._steps + 1):
                for group in self._optimizer.param_groups:
                    group["lr"] = rate(step)
                yield whole.batch(whole.train, self._ranks.part(indices))

        for window in fit(
            self._step,
            batches(),
            metric=self._workload.metric,
            window=settings.log_interval,
            first_step=self._steps,
            ranks=self._ranks,
        ):
            yield window, rate(window.step)

    def test(self) -> Window:
        """Test the model as it is, and keep what it predicts in ``tested``."""
        whole = self._whole
        order = whole.order(whole.test, self._settings.test_batch_size)
        self.tested = []
        return evaluate(
            Inference(self._model, self._autocast),
            (
                whole.batch(whole.test, self._ranks.part(indices))
                for indices in self._until_stopped(order)
            ),
            loss=self._workload.loss,
            metric=self._workload.metric,
            step=self._steps,
            keep=lambda output, targets: self.tested.append((predicted(output), targets)),
            ranks=self._ranks,
        )

    def _until_stopped(
        self, order: Iterable[Tensor], done: Callable[[int], None] = lambda _: None
    ) -> Iterator[Tensor]:
        """Yield the indices of batches, in a dry run of one.

        Call ``done`` with the samples of each before the next one.
        """
        for indices in islice(order, 1 if self._settings.dry_run else None):
            yield indices
            done(len(indices))
            if self._is_stopped():
                return

    def _is_stopped(self) -> bool:
        return self._ranks.agree_to_stop(self._listener.stop)
