"""Run a lab in steps. Each step keeps its result in a file, so that an interrupted lab can be resumed."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mnistbench.core.document import Reader
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import replace_file
from mnistbench.core.params import default_step
from mnistbench.core.record import Environment
from mnistbench.course.lab.chapters import Chapters
from mnistbench.course.lab.document import html, markdown, picture_in
from mnistbench.course.lab.findings import (
    FILE,
    CallTime,
    Ceiling,
    EpochTime,
    Findings,
    FirstCall,
    Model,
    ProfiledCase,
    Settings,
    Study,
    Training,
    dump,
)  # fmt: skip
from mnistbench.course.lab.progress import Advance, Progress
from mnistbench.course.lab.sheets import Sheet, in_a_name, sheets_of
from mnistbench.course.lab.studies import LIMIT_S, STUDIES
from mnistbench.course.lab.texts import Texts

_T = TypeVar("_T")

#: Directory of the steps' results, and the file with the settings that the lab was started with.
STEPS = Path("steps")
BEGUN = STEPS / "begun.json"
#: Version of these files. 1: the first.
SCHEMA = 1

REPORTS = ("report.md", "report.html")
TENSORBOARD, TRACES = "tensorboard", "traces"

#: Reports of the course measure one image, so its first iteration is measured for any batch sizes.
ONE_IMAGE = 1


class Measuring(Protocol):
    """The measurements of the steps, as in ``measures.Measures``."""

    def samples(self) -> tuple[int, int]:
        """Return the sizes of the training and the test set."""
        ...

    def training(
        self, device: str, threads: int, size: int, output: Path, advance: Advance
    ) -> tuple[Training, tuple[str, ...]]:
        """Train into a new directory; return the run and notes."""
        ...

    def profiled(self, phase: str, device: str, threads: int, size: int, trace: Path | None) -> ProfiledCase:
        """Profile a warm case."""
        ...

    def first_calls(self, phase: str, device: str, threads: int, size: int) -> tuple[FirstCall, ...]:
        """Measure first iterations in new processes."""
        ...

    def calls(self, wanted: Sequence[tuple[str, str, int, int]], advance: Advance) -> tuple[CallTime, ...]:
        """Time warm iterations of (phase, device, threads, batch size)."""
        ...

    def epoch(self, phase: str, device: str, threads: int, size: int) -> EpochTime:
        """Time passes over a set."""
        ...

    def study(self, name: str, limit_s: float) -> tuple[tuple[Study, ...], tuple[str, ...]]:
        """Run an operator study with a time limit in seconds; return its table, or a note."""
        ...


@dataclass(frozen=True)
class Step:
    """One part of the lab whose result is stored."""

    name: str  # of its file
    text: str  # description for the progress display
    seconds: float  # estimate, for the remaining time
    of: type  # of the items of its result
    what: Mapping[str, Any]  # parameters of the measurement: if they change, the step is measured again
    work: Callable[[Advance], tuple[Sequence[Any], Sequence[str]]]  # -> items and notes
    files: tuple[str, ...] = ()  # written beside its result


class Lab:
    """A lab in a directory."""

    def __init__(
        self, directory: Path, settings: Settings, environment: Environment, measuring: Measuring, *, studies: bool = False
    ) -> None:
        """Start a lab in an empty or new directory, or resume the one in the directory.

        Args:
            directory: where it writes.
            settings: what is measured.
            environment: of this process.
            measuring: the measurements.
            studies: also run the operator studies.

        Raises:
            UsageError: the directory has other contents, or a lab with other settings or from another machine.
            DataError: the dataset is missing or damaged.
        """
        self._directory = directory
        self._settings = settings
        self._environment = environment
        self._measuring = measuring
        self._studies = studies
        self._studies_end: float | None = None  # when the time limit of the studies is over; None before the first one
        self._samples = measuring.samples()
        self._begin()

    def run(self, progress: Progress) -> Findings:
        """Measure the steps that have no result yet; return all findings and write them to ``lab.json``."""
        steps = self._steps()
        results: dict[str, tuple[Any, ...]] = {}
        notes: list[str] = []
        kept = {step.name: self._kept(step, progress) for step in steps}
        progress.begin(sum(step.seconds for step in steps if kept[step.name] is None), len(steps))
        for step in steps:
            advance = progress.step(step.text, 0.0 if kept[step.name] else step.seconds)
            found = kept[step.name] or self._measure(step, advance)
            results[step.name], found_notes = found
            notes += found_notes
            progress.done(kept=kept[step.name] is not None)
        findings = self._findings(steps, results, tuple(dict.fromkeys(notes)))
        replace_file(self._directory / FILE, findings.to_json().encode())
        return findings

    # ---- The directory -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Write the lab's settings, or check that the directory's lab has the same ones."""
        directory = self._directory
        identity = {"dataset": self._settings.dataset, "model": self._settings.model, "epochs": self._settings.epochs,
                    "seed": self._settings.seed}  # fmt: skip
        begun = {"schema": SCHEMA, "settings": identity, "environment": asdict(self._environment)}
        if not (directory / BEGUN).exists():
            if not _is_new(directory):
                raise UsageError(f"-o: {directory} contains files that are not a lab's; name a new or an empty directory")
            (directory / STEPS).mkdir(parents=True, exist_ok=True)
            replace_file(directory / BEGUN, dump(begun).encode())
            return
        before, environment = self._begun()
        for name, value in identity.items():
            if before.get(name) != value:
                raise UsageError(
                    f"-o: {directory} contains a lab with {name} {before.get(name)}, not {value}; "
                    "use the same settings or name another directory"
                )
        if differences := environment.differences(self._environment):
            name, (then, now) = next(iter(differences.items()))
            raise UsageError(
                f"-o: the lab in {directory} was started on another machine or with other software: "
                f"{name} was {then!r} and is {now!r}; "
                "name another directory"
            )

    def _begun(self) -> tuple[dict[str, Any], Environment]:
        path = self._directory / BEGUN
        try:
            data = Reader(json.loads(path.read_text(encoding="utf-8")))
            return data["settings"].read(Mapping[str, Any]), data["environment"].read(Environment)
        except (OSError, ValueError, RecursionError, RecordError) as error:
            raise UsageError(f"-o: {path} cannot be read ({error}); name another directory") from None

    # ---- Steps -------------------------------------------------------------------------------------------------------

    def _kept(self, step: Step, progress: Progress) -> tuple[tuple[Any, ...], tuple[str, ...]] | None:
        """Return the stored result of a step; None if it has to be measured."""
        path = self._directory / STEPS / f"{step.name}.json"
        if not path.exists():
            return None
        try:
            data = Reader(json.loads(path.read_text(encoding="utf-8")))
            if data["schema"].whole() != SCHEMA or data["what"].value != json.loads(json.dumps(step.what)):
                return None
            items: tuple[Any, ...] = tuple(item.read(step.of) for item in data["items"].items())
            notes = data["notes"].texts()
        except (OSError, ValueError, RecursionError, RecordError) as error:
            progress.note(f"{path} is damaged ({error}); measuring it again")
            return None
        missing = [file for file in step.files if not (self._directory / file).exists()]
        if missing:
            progress.note(f"{self._directory / missing[0]} is missing; measuring it again: {step.text}")
            return None
        return items, notes

    def _measure(self, step: Step, advance: Advance) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        path = self._directory / STEPS / f"{step.name}.json"
        path.unlink(missing_ok=True)  # after an interruption it would not match the files of the new run
        items, notes = step.work(advance)
        data: dict[str, Any] = {
            "schema": SCHEMA,
            "what": step.what,
            "items": [asdict(item) for item in items],
            "notes": list(notes),
        }
        if items:  # otherwise a resumed lab measures it again
            replace_file(path, dump(data).encode())
        return tuple(items), tuple(notes)

    def _steps(self) -> list[Step]:
        """Return all steps in the order of the report's sections."""
        settings, threads = self._settings, self._environment.threads
        steps: list[Step] = []
        for device in settings.devices:
            steps += [self._training_step(device, size) for size in settings.batch_sizes]
            steps += [self._profile_step(phase, device, size) for phase in ("forward", "step") for size in settings.batch_sizes]
        steps.append(self._calls_step())
        for device, count in self._places():
            steps += [
                self._epoch_step(phase, device, count, size) for phase in ("train", "eval") for size in settings.batch_sizes
            ]
        sizes = sorted({ONE_IMAGE, *settings.batch_sizes})
        for device in settings.devices:
            steps += [self._first_call_step("forward", device, threads, size) for size in sizes]
            steps += [self._first_call_step("step", device, threads, size) for size in sorted({ONE_IMAGE, sizes[-1]})]
        if self._studies:
            steps += [self._study_step(name, arguments) for name, arguments in STUDIES.items()]
        return steps

    def _places(self) -> list[tuple[str, int]]:
        """Return (device, threads); without an accelerator, also the CPU with one thread."""
        threads = self._environment.threads
        alone = not self._settings.accelerator and threads > 1
        return [*((device, threads) for device in self._settings.devices), *([("cpu", 1)] if alone else [])]

    def _training_step(self, device: str, size: int) -> Step:
        name = f"training-{in_a_name(device)}-b{size}"
        run = f"{TENSORBOARD}/{self._settings.model}-{in_a_name(device)}-b{size}"

        def work(advance: Advance) -> tuple[Sequence[Any], Sequence[str]]:
            shutil.rmtree(self._directory / run, ignore_errors=True)  # remains of an interrupted run
            training, notes = self._measuring.training(device, self._environment.threads, size, self._directory / run, advance)
            return [training], notes

        seconds = 2 + self._settings.epochs * self._seconds_per_epoch(size)
        what = {"step": default_step(device)}
        return Step(name, f"training, {device}, batch size {size}", seconds, Training, what, work, (run,))

    def _profile_step(self, phase: str, device: str, size: int) -> Step:
        largest = size == self._settings.batch_sizes[-1]
        trace = f"{TRACES}/{phase}-{in_a_name(device)}-b{size}.json.gz" if largest else ""

        def work(_: Advance) -> tuple[Sequence[Any], Sequence[str]]:
            path = self._directory / trace if trace else None
            return [self._measuring.profiled(phase, device, self._environment.threads, size, path)], ()

        return Step(
            f"operations-{phase}-{in_a_name(device)}-b{size}", f"operations of {phase}, {device}, batch size {size}",
            3 + 20 * _seconds_per_step(size), ProfiledCase, {"trace": trace}, work, (trace,) if trace else (),
        )  # fmt: skip

    def _calls_step(self) -> Step:
        wanted = [
            (phase, device, threads, size)
            for device, threads in self._places()
            for phase in ("step", "forward")
            for size in self._settings.batch_sizes
        ]

        def work(advance: Advance) -> tuple[Sequence[Any], Sequence[str]]:
            return self._measuring.calls(wanted, advance), ()

        return Step("calls", "time per iteration", 3.0 * len(wanted), CallTime, {"wanted": wanted}, work)

    def _epoch_step(self, phase: str, device: str, threads: int, size: int) -> Step:
        def work(_: Advance) -> tuple[Sequence[Any], Sequence[str]]:
            return [self._measuring.epoch(phase, device, threads, size)], ()

        share = min(1.0, size / 8) * (1.0 if phase == "train" else self._samples[1] / self._samples[0] / 3)
        name = f"epochs-{phase}-{in_a_name(device)}-t{threads}-b{size}"
        text = f"epochs of {phase}, {device}, {threads} threads, batch size {size}"
        return Step(name, text, 1 + 3 * share * self._seconds_per_epoch(size), EpochTime, {}, work)

    def _first_call_step(self, phase: str, device: str, threads: int, size: int) -> Step:
        def work(_: Advance) -> tuple[Sequence[Any], Sequence[str]]:
            return self._measuring.first_calls(phase, device, threads, size), ()

        name = f"first-call-{phase}-{in_a_name(device)}-b{size}"
        return Step(name, f"first iteration of {phase}, {device}, batch size {size}", 15, FirstCall, {}, work)

    def _study_step(self, name: str, arguments: Sequence[str]) -> Step:
        def work(_: Advance) -> tuple[Sequence[Any], Sequence[str]]:
            if self._studies_end is None:
                self._studies_end = time.monotonic() + LIMIT_S
            return self._measuring.study(name, max(0.0, self._studies_end - time.monotonic()))

        return Step(f"study-{name}", f"study of {name}", LIMIT_S / len(STUDIES), Study, {"arguments": arguments}, work)

    def _seconds_per_epoch(self, size: int) -> float:
        return self._samples[0] / size * _seconds_per_step(size)

    # ---- Findings ----------------------------------------------------------------------------------------------------

    def _findings(self, steps: Iterable[Step], results: Mapping[str, tuple[Any, ...]], notes: tuple[str, ...]) -> Findings:
        def of(kind: type[_T]) -> tuple[_T, ...]:
            return tuple(item for step in steps if step.of is kind for item in results[step.name])

        profiled = of(ProfiledCase)
        return Findings(
            settings=self._settings,
            environment=self._environment,
            model=Model(self._settings.model, profiled[0].parameters, profiled[0].layers),
            train_samples=self._samples[0],
            test_samples=self._samples[1],
            ceilings=_ceilings(profiled),
            call_times=of(CallTime),
            epoch_times=of(EpochTime),
            operations=tuple(table for case in profiled for table in case.operations),
            first_calls=of(FirstCall),
            trainings=of(Training),
            traces=tuple(file for step in steps if step.of is ProfiledCase for file in step.files),
            notes=notes,
            studies=of(Study),
        )


def _ceilings(profiled: Iterable[ProfiledCase]) -> tuple[Ceiling, ...]:
    """Return one ceiling per device: the median of those measured with its cases.

    All cases of one process share one measurement; a lab that was resumed has several.
    """
    found = [case.ceiling for case in profiled if case.ceiling]

    def median(rates: Iterable[float | None]) -> float | None:
        present = [rate for rate in rates if rate is not None]
        return statistics.median(present) if present else None

    return tuple(
        Ceiling(
            device,
            median(each.flops_per_s for each in found if each.device == device),
            median(each.bytes_per_s for each in found if each.device == device),
        )
        for device in dict.fromkeys(each.device for each in found)
    )


def _is_new(directory: Path) -> bool:
    """Return whether the directory is empty or has only the empty steps directory of a lab that was killed at its start."""
    if not directory.exists():
        return True
    steps = directory / STEPS
    return all(path == steps and path.is_dir() and not any(path.iterdir()) for path in directory.iterdir())


def _seconds_per_step(size: int) -> float:
    """Estimate the time of a training step on 2 cores of 2023, in seconds."""
    return 0.006 + 0.0011 * size


# ---- The report ------------------------------------------------------------------------------------------------------


def write_report(directory: Path, findings: Findings, language: str) -> list[str]:
    """Write tables, figures, and the report as Markdown and HTML; return notes for the user.

    Raises:
        OSError: a file cannot be written.
    """
    from mnistbench.course.lab.figures import Figures, texts_that_show

    texts, sheets = Texts(language), sheets_of(findings)
    for sheet in sheets.all():
        if sheet.rows:
            write_sheet(directory, sheet)
    shown, family = texts_that_show(texts, lambda: Texts("en"))
    figures = Figures(directory, shown, family)
    figures.draw(findings, sheets)
    document, numbers = Chapters(findings, sheets, texts, figures.drawn).document()
    write_sheet(directory, numbers)
    replace_file(directory / REPORTS[0], markdown(document).encode())
    replace_file(directory / REPORTS[1], html(document, picture_in(directory)).encode())
    return [] if shown is texts else ["no font with Chinese characters was found, so the labels in the figures are English"]


def write_sheet(directory: Path, sheet: Sheet) -> None:
    """Write a table below the report's directory."""
    path = directory / sheet.file
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, sheet.csv().encode())
