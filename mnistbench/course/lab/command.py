"""``mnistbench lab``: run a lab, or write the report of several labs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from mnistbench.core import options
from mnistbench.core.errors import UsageError
from mnistbench.core.files import replace_file
from mnistbench.core.options import argument, path, switch
from mnistbench.core.units import printable
from mnistbench.course.lab.chapters import Chapters
from mnistbench.course.lab.lab_file import (
    DIRECTORY,
    Findings,
    LabSettings,
    write_file,
)
from mnistbench.course.lab.merged import Merged
from mnistbench.course.lab.predict.questions import with_predictions
from mnistbench.course.lab.predict.section import predictions_section, summary_section
from mnistbench.course.lab.run import TENSORBOARD, Lab
from mnistbench.course.lab.sentences import disturbance
from mnistbench.course.lab.sheets import Sheet, sheets_of
from mnistbench.course.lab.texts import Texts, language
from mnistbench.showing.html import html_document
from mnistbench.showing.markdown import markdown_document
from mnistbench.showing.output import EXIT_STOPPED, check_directory, print_error
from mnistbench.showing.report import Document
from mnistbench.suite import case_options
from mnistbench.suite.measuring.torch_import import import_torch

#: The default directory of a report of several labs.
MERGED = "mnistbench-labs"

#: A merge writes this file first: a later merge may replace the report in a directory that has it.
LABS = "labs.json"

REPORTS = ("report.md", "report.html")

_OUTPUT = (
    f"output directory; a lab that is there is resumed (default: {DIRECTORY}, with --merge "
    f"{MERGED})"
)

#: Default number of epochs. One epoch of MNIST takes minutes on two cores at batch size 1.
_EPOCHS = {"digits": 3, "mnist": 1}


@dataclass(frozen=True, kw_only=True)
class Settings(LabSettings):
    """What a lab measures, where, and how its report is written."""

    data_dir: Path | None = case_options.data_dir()
    studies: bool = switch("--studies", "also run the operator studies, for at most 3 minutes")
    lang: str = language()
    output: Path | None = options.output_directory(_OUTPUT)
    merge: bool = switch(
        "--merge", "do not measure: write one report of the labs in these directories"
    )
    labs: tuple[Path, ...] = argument(
        "DIR", path, "directory of a lab for --merge", many=True, required=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_sizes", tuple(sorted(self.batch_sizes)))
        object.__setattr__(self, "epochs", self.epochs or _EPOCHS[self.dataset])
        if self.labs and not self.merge:
            raise UsageError(
                f"DIR: {str(self.labs[0])!r} is a lab to merge; add --merge, or name it by --output"
            )
        if self.merge and len(self.labs) < 2:
            raise UsageError("--merge: needs at least two directories of labs")
        if len({directory.resolve() for directory in self.labs}) < len(self.labs):
            raise UsageError("--merge: a directory is named twice; name each lab once")

    @property
    def directory(self) -> Path:
        return self.output or Path(MERGED if self.merge else DIRECTORY)


def run(settings: Settings) -> int:
    """Run the lab, or merge labs; return 0, or 130 if Ctrl-C, SIGTERM or SIGHUP stopped it.

    Raises:
        MnistbenchError: an option or a directory cannot be used, or a dataset is missing or
            damaged.
        OSError: a file cannot be written.
    """
    directory = settings.directory
    check_directory(directory, own=(LABS,) if settings.merge else None)
    if settings.merge:
        _merge(settings.labs, directory, settings.lang)
    else:
        try:
            _measure(settings)
        except KeyboardInterrupt:
            print_error(
                f"interrupted; finished steps are kept in {_shown(directory)}; run the same "
                "command again to resume"
            )
            return EXIT_STOPPED
    for name in REPORTS:
        print(_shown(directory / name))
    if not settings.merge:
        print(f"TensorBoard: tensorboard --logdir {_shown(directory / TENSORBOARD)}")
    return 0


def _measure(settings: Settings) -> None:
    import_torch(quiet=True)
    import torch

    from mnistbench.course.lab.measures import Measures
    from mnistbench.suite.measuring.environment import read, resolve_devices
    from mnistbench.suite.workloads.data import data_root, mnist_is_to_be_downloaded

    try:
        devices = sorted(resolve_devices(settings.devices), key=lambda name: (name != "cpu", name))
    except UsageError as error:
        raise UsageError(f"--device: {error}") from None
    directory = settings.directory
    data_dir = str(settings.data_dir) if settings.data_dir else None
    if settings.dataset == "mnist" and mnist_is_to_be_downloaded(data_dir):
        print_error(f"MNIST is not in {_shown(data_root(data_dir))} yet: downloading 11 MiB")
    known = {field.name: getattr(settings, field.name) for field in fields(LabSettings)}
    measured = LabSettings(**{**known, "devices": tuple(devices)})
    measures = Measures(measured, data_dir)
    lab = Lab(
        directory, measured, read(torch.get_num_threads()), measures, studies=settings.studies
    )
    findings = lab.run(sys.stderr)
    notes = write_report(directory, findings, settings.lang)
    for note in (*findings.notes, *notes):
        print_error(note)
    if worst := findings.disturbed:
        sentence = disturbance(worst)
        print_error(Texts("en").plain("flaw", sentence.key, **sentence.words))


def _merge(directories: Sequence[Path], output: Path, language: str) -> None:
    from mnistbench.course.lab.figures import Figures

    listed = [directory.resolve() for directory in directories]
    names = [directory.name for directory in listed]  # or whole paths where two have the same name
    labs = {str(lab) if names.count(lab.name) > 1 else lab.name: lab for lab in listed}
    machines = {
        name: Findings.from_directory(directory)
        for name, directory in zip(labs, directories, strict=True)
    }
    output.mkdir(parents=True, exist_ok=True)
    write_file(output / LABS, {"labs": {name: os.fspath(lab) for name, lab in labs.items()}})
    texts = Texts(language)
    figures = Figures(output, texts)
    figures.machines(machines)
    document, sheets = Merged(machines, texts, figures.drawn).document()
    _write(output, document, sheets)


def write_report(directory: Path, findings: Findings, language: str) -> list[str]:
    """Write tables, figures, and the report as Markdown and HTML; return notes for the user.

    Raises:
        UsageError: the student's explanations cannot be read.
        OSError: a file cannot be written.
    """
    from mnistbench.course.lab.figures import Figures

    texts = Texts(language)
    sheets = with_predictions(findings, sheets_of(findings))
    figures = Figures(directory, texts)
    figures.draw(findings, sheets)
    predictions = predictions_section(directory, findings, sheets, texts)
    summary = summary_section(directory, findings, texts)
    chapters = Chapters(findings, sheets, texts, figures.drawn, predictions, summary)
    document, numbers = chapters.document()
    _write(directory, document, [*(sheet for sheet in sheets.all() if sheet.rows), numbers])
    if figures.texts is texts:
        return []
    return ["no font with Chinese characters was found, so the labels in the figures are English"]


def _write(directory: Path, document: Document, sheets: Iterable[Sheet]) -> None:
    """Write the report and the tables below it."""
    for sheet in sheets:
        file = directory / sheet.file
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, sheet.csv().encode())
    replace_file(directory / REPORTS[0], markdown_document(document).encode())
    replace_file(directory / REPORTS[1], html_document(document, directory / "figures").encode())


def _shown(file: Path) -> str:
    return printable(shlex.quote(os.fspath(file)))
