"""``mnistbench study graph``: the graphs, the generated code and the schedule of a program."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.core.files import replace_file, why_not_writable
from mnistbench.core.params import DATASETS, MODELS
from mnistbench.course.studies.graph.report import TEXTS, blocks
from mnistbench.course.studies.graph.result import COLUMNS, EXPRESSION, Settings, Study, csv_rows, dumps
from mnistbench.course.studies.graph.run import study
from mnistbench.showing.arguments import MOST_THREADS, add_dataset, add_format, add_output, given, one_of, parts, whole
from mnistbench.showing.output import deliver_tables, output_file, progress_bar

_MOST_ROWS = 2**15
_MOST_WORKERS = 256
_OWN = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    usual = Settings()
    add("--workload", metavar="NAME", help=f"convnet, lenet5, or your own: package.module:attribute (default: {EXPRESSION})")
    add("--size", metavar="N", help=f"rows and columns of x, y and z (default: {usual.size})")
    add("--batch-size", metavar="N", help=f"samples of a workload's step (default: {usual.batch_size})")
    add("--workers", metavar="N", help=f"workers of a workload's DataLoader (default: {usual.workers})")
    add("--device", default=usual.device, metavar="NAME", help=f"auto, cpu, cuda, cuda:1, mps (default: {usual.device})")
    add(
        "--threads",
        default=str(usual.threads),
        metavar="N",
        help=f"intra-op threads of torch on the CPU (default: {usual.threads})",
    )
    add_dataset(parser, usual.dataset)
    add(
        "--show",
        metavar="NAMES",
        help=f"comma list of texts to show in full: {', '.join(TEXTS)} (default: all, of a workload none)",
    )
    add("--write", metavar="DIR", help="write graphs, generated code, and traces for https://ui.perfetto.dev to this directory")
    add_format(parser, "csv")
    add_output(parser)


def run(parsed: argparse.Namespace) -> int:
    """Measure, report, and return 0.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    settings = _settings(parsed)
    texts = tuple(one_of("--show", name, TEXTS) for name in parts("--show", parsed.show)) if parsed.show is not None else None
    output, folder = output_file(parsed), _folder(given("--write", parsed.write))
    found = measured(settings, folder)
    if folder:
        _write(found, folder)
    deliver_tables(
        parsed.format, output, blocks=blocks(found, texts), heading="from program to schedule", json=dumps(found),
        columns=COLUMNS, rows=csv_rows(found),
    )  # fmt: skip
    return 0


def measured(settings: Settings, folder: Path | None) -> Study:
    """Return the study of a program, and show its progress.

    Args:
        settings: of the study; its ``seconds`` bound the timed steps, but not the compile time.
        folder: existing directory for traces; None: none are written.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    with progress_bar("part") as progress:
        return study(settings, traces=folder, progress=progress)


def _settings(parsed: argparse.Namespace) -> Settings:
    usual = Settings()
    program = EXPRESSION if parsed.workload is None else parsed.workload
    others = (
        {"size": parsed.size} if parsed.workload is not None else {"batch_size": parsed.batch_size, "workers": parsed.workers}
    )
    for name, value in others.items():
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            what = "is for x*y + z; leave it out" if parsed.workload is not None else "needs a workload; give --workload, too"
            raise UsageError(f"{flag}: {value!r} {what}")
    if program not in (EXPRESSION, *MODELS) and not _OWN.fullmatch(program):
        raise UsageError(
            f"--workload: {program!r} is not known; choose {' or '.join(MODELS)}, or give package.module:attribute"
        )
    return Settings(
        program=program,
        size=whole("--size", given("--size", parsed.size, str(usual.size)), 1, _MOST_ROWS),
        batch_size=whole("--batch-size", given("--batch-size", parsed.batch_size, str(usual.batch_size)), 1),
        workers=whole("--workers", given("--workers", parsed.workers, str(usual.workers)), 0, _MOST_WORKERS),
        device=given("--device", parsed.device),
        threads=whole("--threads", parsed.threads, 1, MOST_THREADS),
        dataset=one_of("--dataset", parsed.dataset, DATASETS),
        data_dir=given("--data-dir", parsed.data_dir) or None,
    )


def _folder(text: str) -> Path | None:
    if not text:
        return None
    folder = Path(text)
    try:
        if problem := why_not_writable(folder):
            raise UsageError(f"--write: {folder} cannot be written ({problem}); name another directory")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--write: {folder} cannot be written ({error.strerror}); name another directory") from None
    return folder


def _write(found: Study, folder: Path) -> None:
    """Write each graph and each module of generated code to a file; several of one kind are numbered."""
    texts = [(graph.kind.replace(" ", "_"), "txt", graph.text) for graph in found.graphs]
    texts += [(f"code_{part}", "py", module) for part, module in found.code]
    numbers: dict[str, int] = {}
    for name, ending, text in texts:
        number = numbers[name] = numbers.get(name, 0) + 1
        path = folder / f"{name}{'' if number == 1 else f'_{number}'}.{ending}"
        try:
            replace_file(path, text.encode())
        except OSError as error:
            raise UsageError(f"--write: {path} cannot be written ({error.strerror}); name another directory") from None
