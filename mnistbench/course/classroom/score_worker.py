"""The process of one side of a score: ``python -m mnistbench.course.classroom.score_worker``.

A line of its input names a method of ``ScoreWorker``; its answer is a line, too. It times nothing.
Inputs are drawn from a seed that comes when the time runs, and positions of values from one that
comes after the last step.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from mnistbench.core.errors import first_line
from mnistbench.core.machine import end_with, pin_allocator, touch_heap
from mnistbench.suite.workloads.data import load
from mnistbench.suite.workloads.workload import builtin_workloads, number_correct


class StepError(Exception):
    """A step is not what it has to be; the message says it whole."""


class ScoreWorker:
    """One side: the text of a student's file, or of the reference."""

    def __init__(self) -> None:
        self.file = ""
        self._workload = builtin_workloads("digits", None)[0]
        self._data = load("digits")
        # The first optimizer of a process imports for seconds, here in both processes at once.
        self._workload.make_optimizer(self._workload.make_model().parameters())

    def load(self, core: int | None, batch_size: int, text: str, file: str) -> None:
        """Take one thread and a core, and run the text of a file."""
        torch.set_num_threads(1)
        if core is not None:
            os.sched_setaffinity(0, [core])
        touch_heap()
        self._batch_size = batch_size
        module = sys.modules["student_step"] = ModuleType("student_step")
        self.file = file
        exec(compile(text, file, "exec"), module.__dict__)  # noqa: S102  # the user's own file
        make_step = module.__dict__.get("make_step")
        if not callable(make_step):
            raise StepError("the file has no function make_step(model)")
        self._make_step = make_step

    def epoch(self, seed: int, weights: str) -> None:
        """Train for an epoch of whole batches, and save the weights."""
        generator = torch.manual_seed(seed)
        self._begin({})
        # 22 of large batches.
        train = self._data.train
        steps = max(22, len(self._data.train) // self._batch_size)
        for indices in self._data.draw(train, steps * self._batch_size, generator).view(steps, -1):
            self._step(*self._data.batch(train, indices))
        torch.save(
            {
                name: value.detach().float().contiguous()
                for name, value in self._model.named_parameters()
            },
            weights,
        )

    def accuracy(self, weights: str) -> float:
        """Return the share of the test set that saved weights classify correctly."""
        self._begin(torch.load(weights, weights_only=True))
        images, targets = self._data.batch(self._data.test, torch.arange(len(self._data.test)))
        with torch.inference_mode():
            return float(number_correct(self._model(images), targets)) / len(targets)

    def prepare(self, weights: str, seed: int, steps: int) -> None:
        """Make a new step from saved weights and take untimed steps."""
        self._start = torch.load(weights, weights_only=True)
        self._begin(self._start)
        self.run(seed, steps)

    def run(self, seed: int, steps: int) -> None:
        """Take steps, each on new images of the training set with noise."""
        generator = torch.Generator().manual_seed(seed)
        train = self._data.train
        self._losses = list[float]()
        for _ in range(steps):
            images, targets = self._data.batch(
                train, self._data.draw(train, self._batch_size, generator)
            )
            loss = self._step(images + torch.rand(images.shape, generator=generator), targets)
            try:
                number = loss.detach().item() if isinstance(loss, Tensor) else float(loss)
            except (TypeError, ValueError):
                raise StepError(f"the step returned {loss!r}, not its loss"[:200]) from None
            self._losses.append(number)

    def audit(self, seed: int) -> dict[str, Any]:
        """Return the losses of the turn, and 64 values of each parameter.

        The values are at random positions, now and before it.
        """
        generator = torch.Generator().manual_seed(seed)
        sides = (dict(self._model.named_parameters()), self._start)
        at = {
            name: torch.randint(old.numel(), (64,), generator=generator)
            for name, old in self._start.items()
        }
        values, start = (
            {name: side[name].detach().flatten()[at[name]].tolist() for name in at}
            for side in sides
        )
        return {"losses": self._losses, "values": values, "start": start}

    def _begin(self, weights: dict[str, Tensor]) -> None:
        self._model = self._workload.make_model()
        for module in self._model.modules():
            if isinstance(module, nn.Dropout):
                # It passes its input on: both sides have to compute the same function.
                module.p = 0.0
        self._model.load_state_dict(weights, strict=bool(weights))
        self._step = self._make_step(self._model)
        if not callable(self._step):
            raise StepError(f"make_step returned {self._step!r}, not a function"[:200])


def _described(error: Exception, file: str) -> str:
    """Return an error of a student's code with the last line of the file that was running."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file and frame.lineno
    ]
    if isinstance(error, SyntaxError) and error.filename == file and error.lineno:
        lines.append(error.lineno)
    place = f"{file}:{lines[-1]}" if lines else file
    if isinstance(error, StepError):
        return f"{file}: {first_line(error)}"
    message = error.msg if isinstance(error, SyntaxError) else first_line(error)
    return f"{place}: {type(error).__name__}: {message}"


def main() -> None:
    """Answer requests until the input ends.

    An exception of the student's code is an answer, too.
    """
    end_with(os.getppid())  # the student's code may never end
    pin_allocator()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the student's code prints is no answer
    worker = ScoreWorker()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": getattr(worker, request.pop("do"))(**request)}
        except Exception as error:  # noqa: BLE001  # the student's code may raise anything
            answer = {"error": _described(error, worker.file)}
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
