"""Run a lab in steps.

Each step keeps its result in a file, so that an interrupted lab can be resumed.
"""

from __future__ import annotations

import csv
import functools
import itertools
import json
import os
import shlex
import shutil
import sys
import time
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from mnistbench.core import units
from mnistbench.core.child import Child, ChildError, measuring_environment
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import scratch
from mnistbench.core.reading import member
from mnistbench.core.record import Environment
from mnistbench.core.units import printable
from mnistbench.course.lab.lab_file import (
    BEFORE,
    FILE,
    Findings,
    LabSettings,
    MeasuredField,
    StudyTable,
    read_file,
    stored,
    write_file,
)
from mnistbench.course.lab.predict.predictions import PREDICTIONS, Predictions, read
from mnistbench.course.lab.sheets import in_a_name
from mnistbench.saved_runs.compatibility import differences
from mnistbench.showing.progress import Progress
from mnistbench.suite.workloads.builtin import default_step

if TYPE_CHECKING:  # it imports torch, which the steps' names and results do not need
    from mnistbench.course.lab.measures import Measures

#: Directory of the steps' results, and the file with the settings that the lab was started with.
STEPS = Path("steps")
BEGUN = STEPS / "begun.json"

TENSORBOARD = "tensorboard"
TRACES = "traces"

#: Reports of the course measure one image, so its first iteration is measured for any batch sizes.
ONE_IMAGE = 1

#: Study -> arguments of ``mnistbench study``: a part of it that takes less than a minute.
STUDIES = {"convolution": ("--size", "chapter,conv2-b1"), "locality": (), "memory": (), "graph": ()}

#: Time limit of all studies of a lab, in seconds.
STUDIES_S = 180.0

#: Called with what was completed of a measurement since the last call, as a fraction of the whole.
Advance = Callable[[float], None]

#: Items and notes.
_Result = tuple[Sequence[Any], Sequence[str]]


@dataclass(frozen=True)
class LabStep:
    """One part of the lab whose result is stored."""

    name: str  # of its file
    text: str  # description for the progress display
    seconds: float  # estimate, for the remaining time
    field: MeasuredField  # of the findings, to which its items belong
    work: Callable[[Advance], _Result]
    # Parameters of the measurement: if they change, the step is measured again.
    what: Mapping[str, Any] | None = None
    files: tuple[str, ...] = ()  # written beside its result


def unlike_steps(
    findings: Findings, content_of: Callable[[str], Mapping[str, Any] | None]
) -> list[str]:
    """Return the fields of findings that do not follow from the files of their steps.

    ``content_of`` returns their contents by name.

    Raises:
        RecordError: such a file is damaged.
    """
    measured: dict[MeasuredField, list[Any]] = {}
    for step in LabPlan(findings.settings, findings.environment).steps():
        content = content_of(f"{STEPS.name}/{step.name}.json")
        measured.setdefault(step.field, []).extend(items_of(content, step) if content else ())
    unlike: list[str] = [
        name for name, items in measured.items() if getattr(findings, name) != tuple(items)
    ]
    begun = content_of(BEGUN.as_posix())
    if findings.predictions != (_predictions_of(begun) if begun else None):
        unlike.append("predictions")
    return unlike


def _predictions_of(begun: Mapping[str, Any]) -> Predictions | None:
    """Return the predictions in the content of :data:`BEGUN`; None if there were none."""
    content = {"predictions": None, **begun}
    predictions: Predictions | None = member(content, "predictions", Predictions | None)
    return predictions


def items_of(content: Mapping[str, Any], step: LabStep) -> tuple[Any, ...]:
    """Return the items of a step from the content of its file."""
    hint = typing.get_type_hints(Findings, include_extras=True)[step.field]
    items: tuple[Any, ...] = member(content, "items", hint)
    return items


def has_begun(directory: Path) -> bool:
    """Return whether a lab has begun in a directory, after which no prediction counts."""
    if (directory / BEGUN).exists():
        return True
    there = {path.name for path in directory.iterdir()} - BEFORE if directory.exists() else set()
    steps = directory / STEPS
    killed_at_its_start = there == {STEPS.name} and steps.is_dir() and not any(steps.iterdir())
    if there and not killed_at_its_start:
        raise UsageError(
            f"--output: {directory} contains files that are not a lab's; name a new or an empty "
            "directory"
        )
    return False


class LabPlan:
    """The steps of a lab.

    To name them, settings and an environment are enough; the others are for their work and its
    time.

    ``samples`` are those of the training and the test set.
    """

    def __init__(
        self,
        settings: LabSettings,
        environment: Environment,
        samples: tuple[int, int] = (1, 1),
        *,
        studies: bool = True,
        directory: Path = Path(),
        measures: Measures | None = None,
    ) -> None:
        self.settings = settings
        self.environment = environment
        self.samples = samples
        self.studies = studies
        self.directory = directory
        self._measures = measures

    @property
    def measures(self) -> Measures:
        """What does the work of the steps."""
        assert self._measures is not None, "a step that works has it"
        return self._measures

    def steps(self) -> Iterator[LabStep]:
        """Yield all steps in the order of the report's sections."""
        settings = self.settings
        threads = self.environment.threads
        one_thread = not settings.accelerator and threads > 1
        places = [
            *((device, threads) for device in settings.devices),
            *([("cpu", 1)] if one_thread else []),
        ]
        for device in settings.devices:
            yield from (self._training_step(device, size) for size in settings.batch_sizes)
            for phase, size in itertools.product(("forward", "step"), settings.batch_sizes):
                yield self._profile_step(phase, device, size)
        yield self._iterations_step(places)
        for (device, count), phase, size in itertools.product(
            places, ("train", "eval"), settings.batch_sizes
        ):
            yield self._epoch_step(phase, device, count, size)
        sizes = sorted({ONE_IMAGE, *settings.batch_sizes})
        for device in settings.devices:
            yield from (self._first_iteration_step("forward", device, size) for size in sizes)
            yield from (
                self._first_iteration_step("step", device, size)
                for size in sorted({ONE_IMAGE, sizes[-1]})
            )
        # Of all studies, from the start of the first one.
        ends = functools.cache(lambda: time.monotonic() + STUDIES_S)
        for name, arguments in STUDIES.items() if self.studies else ():

            def work(_: Advance, name: str = name) -> _Result:
                return study(name, max(0.0, ends() - time.monotonic()))

            yield LabStep(
                f"study-{name}",
                f"study of {name}",
                seconds=STUDIES_S / len(STUDIES),
                field="studies",
                work=work,
                what={"arguments": arguments},
            )

    def _training_step(self, device: str, size: int) -> LabStep:
        case = f"{in_a_name(device)}-b{size}"
        run = f"{TENSORBOARD}/{self.settings.model}-{case}"

        def work(advance: Advance) -> _Result:
            shutil.rmtree(self.directory / run, ignore_errors=True)  # remains of an interrupted run
            training, notes = self.measures.training(
                device, self.environment.threads, size, self.directory / run, advance
            )
            return [training], notes

        return LabStep(
            f"training-{case}",
            f"training, {device}, batch size {size}",
            seconds=2 + self.settings.epochs * self._seconds_per_epoch(size),
            field="trainings",
            work=work,
            what={"step": default_step(device)},
            files=(run,),
        )

    def _profile_step(self, phase: str, device: str, size: int) -> LabStep:
        case = f"{phase}-{in_a_name(device)}-b{size}"
        files = (f"{TRACES}/{case}.json.gz",) if size == self.settings.batch_sizes[-1] else ()

        def work(_: Advance) -> _Result:
            trace = self.directory / files[0] if files else None
            return [
                self.measures.profiled(phase, device, self.environment.threads, size, trace)
            ], ()

        return LabStep(
            f"operations-{case}",
            f"operations of {phase}, {device}, batch size {size}",
            seconds=3 + 20 * _seconds_per_step(size),
            field="cases",
            work=work,
            what={"files": files},
            files=files,
        )

    def _iterations_step(self, places: Sequence[tuple[str, int]]) -> LabStep:
        cases = itertools.product(places, ("step", "forward"), self.settings.batch_sizes)
        wanted = [(phase, *place, size) for place, phase, size in cases]
        return LabStep(
            "iterations",
            "time per iteration",
            seconds=1.5 * len(wanted),
            field="iteration_times",
            work=lambda advance: (self.measures.iterations(wanted, advance), ()),
            what={"wanted": wanted},
        )

    def _epoch_step(self, phase: str, device: str, threads: int, size: int) -> LabStep:
        share = min(1.0, size / 8) * (
            1.0 if phase == "train" else self.samples[1] / self.samples[0] / 3
        )
        return LabStep(
            f"epochs-{phase}-{in_a_name(device)}-t{threads}-b{size}",
            f"epochs of {phase}, {device}, {units.threads(threads)}, batch size {size}",
            seconds=1 + 2 * share * self._seconds_per_epoch(size),
            field="epoch_times",
            work=lambda _: ([self.measures.epoch(phase, device, threads, size)], ()),
        )

    def _first_iteration_step(self, phase: str, device: str, size: int) -> LabStep:
        return LabStep(
            f"first-iteration-{phase}-{in_a_name(device)}-b{size}",
            f"first iteration of {phase}, {device}, batch size {size}",
            seconds=15,
            field="first_iterations",
            work=lambda _: (
                self.measures.first_iterations(phase, device, self.environment.threads, size),
                (),
            ),
        )

    def _seconds_per_epoch(self, size: int) -> float:
        return self.samples[0] / size * _seconds_per_step(size)


class Lab:
    """A lab in a directory.

    A new one if it is empty or new, otherwise the one that was begun there.

    With ``studies`` the operator studies run, too. A new lab keeps the predictions in the
    directory, and measures their batch size; later changes of their file have no effect.

    Raises:
        UsageError: the directory has other contents or wrong predictions, or a lab with other
            settings or of another machine.
        DataError: the dataset is missing or damaged.
    """

    def __init__(
        self,
        directory: Path,
        settings: LabSettings,
        environment: Environment,
        measures: Measures,
        *,
        studies: bool = False,
    ) -> None:
        samples = measures.samples()
        self._directory = directory
        self._predictions = _begin(directory, settings, environment)
        if self._predictions:
            sizes = {*settings.batch_sizes, self._predictions.batch_size}
            settings = replace(settings, batch_sizes=tuple(sorted(sizes)))
        _check_finished(directory, settings)
        self._plan = LabPlan(
            settings, environment, samples, studies=studies, directory=directory, measures=measures
        )

    def run(self, stream: TextIO | None) -> Findings:
        """Measure the steps that have no result yet.

        Return all findings and write them to ``lab.json``.
        """
        plan = self._plan
        steps = list(self._plan.steps())
        measured: dict[MeasuredField, list[Any]] = {
            field: [] for field in typing.get_args(MeasuredField)
        }
        all_notes: list[str] = []
        traces: list[str] = []
        with Progress(stream) as progress:
            kept = [self._kept(step, progress) for step in steps]
        seconds = sum(step.seconds for step, result in zip(steps, kept, strict=True) if not result)
        with Progress(stream, total=seconds) as progress:
            if done := sum(map(bool, kept)):
                progress.say(f"{done} of {len(steps)} steps are already done")
            for number, (step, result) in enumerate(zip(steps, kept, strict=True), 1):
                text = f"[{number:2}/{len(steps)}] {step.text}"
                if not result:
                    progress.step(text, left_s=progress.left_s or seconds)
                items, notes = result or self._measure(step, progress)
                measured[step.field] += items
                all_notes += notes
                traces += step.files if step.field == "cases" else ()
        tuples: dict[str, Any] = {field: tuple(items) for field, items in measured.items()}
        train_samples, test_samples = plan.samples
        findings = Findings(
            settings=plan.settings,
            environment=plan.environment,
            train_samples=train_samples,
            test_samples=test_samples,
            traces=tuple(traces),
            notes=tuple(dict.fromkeys(all_notes)),
            predictions=self._predictions,
            **tuples,
        )
        write_file(self._directory / FILE, stored(findings))
        return findings

    def _kept(self, step: LabStep, progress: Progress) -> _Result | None:
        """Return the stored result of a step; None if it has to be measured."""
        path = self._path(step)
        if not path.exists():
            return None
        try:
            kept = read_file(path)
            if member(kept, "what", Any) != json.loads(json.dumps(step.what)):
                return None
            items = items_of(kept, step)
            notes = member(kept, "notes", tuple[str, ...])
        except RecordError as error:
            progress.say(f"mnistbench: {path} is damaged ({error}); measuring it again")
            return None
        for file in step.files:
            if not (self._directory / file).exists():
                progress.say(
                    f"mnistbench: {self._directory / file} is missing; measuring it again: "
                    f"{step.text}"
                )
                return None
        return items, notes

    def _measure(self, step: LabStep, progress: Progress) -> _Result:
        path = self._path(step)
        # After an interruption it would not match the files of the new run.
        path.unlink(missing_ok=True)
        advanced = 0.0

        def advance(share: float) -> None:
            nonlocal advanced
            advanced += share
            progress.advance(share * step.seconds)

        items, notes = step.work(advance)
        advance(1 - advanced)
        if items:  # otherwise a resumed lab measures it again
            write_file(path, {"what": step.what, "items": items, "notes": notes})
        return items, notes

    def _path(self, step: LabStep) -> Path:
        return self._directory / STEPS / f"{step.name}.json"


def _begin(directory: Path, settings: LabSettings, environment: Environment) -> Predictions | None:
    """Write the lab's settings, or check that the directory's lab has the same ones.

    Return what was predicted.
    """
    path = directory / BEGUN
    identity = {name: getattr(settings, name) for name in ("dataset", "model", "epochs", "seed")}
    if not has_begun(directory):
        predicted = None
        if (own := directory / PREDICTIONS).exists():
            predicted = read(own)
            if not predicted.answers:
                command = shlex.join(
                    [
                        "mnistbench",
                        "lab",
                        "predict",
                        "--student",
                        predicted.student,
                        "-o",
                        str(directory),
                    ]
                )
                raise UsageError(
                    f"{own}: has no answers, and predictions count only before the lab has begun; "
                    f"answer the questions: {command}; or remove the file, to measure without "
                    "predictions"
                )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(
            path,
            {"settings": identity, "environment": environment, "predictions": predicted},
        )
        return predicted
    try:
        begun = read_file(path)
        predicted = _predictions_of(begun)
        before = member(begun, "settings", Mapping[str, Any])
        begun_on = member(begun, "environment", Environment)
    except RecordError as error:
        raise UsageError(
            f"--output: {path} cannot be read ({error}); name another directory"
        ) from None
    for name, value in identity.items():
        if before.get(name) != value:
            raise UsageError(
                f"--output: {directory} contains a lab with {name} {before.get(name)}, not "
                f"{value}; use the same settings or name another directory"
            )
    for name, (then, now) in differences(asdict(begun_on), asdict(environment)).items():
        raise UsageError(
            f"--output: the lab in {directory} was started on another machine or with other "
            f"software: {name} was {then!r} and is {now!r}; name another directory"
        )
    return predicted


def _check_finished(directory: Path, settings: LabSettings) -> None:
    """Raise UsageError if a finished lab has numbers that these settings would remove."""
    if not (directory / FILE).exists():
        return
    try:
        finished = member(read_file(directory / FILE), "settings", LabSettings)
    except RecordError:
        return  # it is written again
    for option, before, now in (
        ("--batch-size", finished.batch_sizes, settings.batch_sizes),
        ("--device", finished.devices, settings.devices),
    ):
        if missing := [value for value in before if value not in now]:
            listed = ", ".join(map(str, missing))
            raise UsageError(
                f"{option}: the finished lab in {directory} has {listed}, too, and would be "
                f"replaced; add {listed}, or name another directory with -o"
            )


def _seconds_per_step(size: int) -> float:
    """Estimate the time of a training step on 2 cores of 2023, in seconds."""
    return 0.006 + 0.0011 * size


def study(name: str, limit_s: float) -> tuple[tuple[StudyTable, ...], tuple[str, ...]]:
    """Run an operator study in a process that can be ended.

    Return its table, or a note if it failed or took too long.
    """
    command = [
        sys.executable,
        "-P",
        "-m",
        "mnistbench",
        "study",
        name,
        *STUDIES[name],
        "--format",
        "csv",
    ]
    with scratch("lab") as folder:
        ends = time.monotonic() + limit_s
        try:
            with Child(command, measuring_environment(os.environ, folder / "pycache")) as child:
                columns, *rows = csv.reader(child.output(limit_s).splitlines())
        except ChildError as error:
            if time.monotonic() >= ends:
                over = (
                    f"the study of {name} was ended by the time limit of all studies, "
                    f"{STUDIES_S:.0f} s"
                )
                return (), (f"{over}; run mnistbench study {name}",)
            return (), (f"the study of {name} {printable(str(error))}",)
    return (StudyTable(name, tuple(columns), tuple(map(tuple, rows))),), ()
