"""``mnistbench lab``: run a lab, or write the report of several labs."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import platformdirs

from mnistbench.core.errors import UsageError
from mnistbench.core.files import replace_file, why_not_writable
from mnistbench.core.params import DATASETS
from mnistbench.core.units import printable
from mnistbench.course.lab.document import html, markdown, picture_in
from mnistbench.course.lab.findings import FILE, Findings, Settings
from mnistbench.course.lab.merged import Machine, Merged
from mnistbench.course.lab.run import REPORTS, STEPS, Lab, write_report, write_sheet
from mnistbench.course.lab.texts import LANGUAGES, Texts
from mnistbench.showing.arguments import add_dataset, given, one_of, parts, whole, wholes
from mnistbench.showing.output import STOPPED

#: Default output directories.
DIRECTORY, MERGED = "mnistbench-lab", "mnistbench-labs"

#: A merge writes this file first: a later merge may replace the report in a directory that has it.
LABS = "labs.json"
#: Version of that file. 1: the first.
SCHEMA = 1

#: Default number of epochs. One epoch of MNIST takes minutes on two cores at batch size 1.
_EPOCHS = {"digits": 3, "mnist": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_dataset(parser, "digits")
    parser.add_argument("--batch-size", default="1,16,64", metavar="SIZES", help="comma list (default: 1,16,64)")
    parser.add_argument(
        "--device", default="auto", metavar="NAMES", help="comma list of auto, cpu, cuda, cuda:1, mps (default: auto)"
    )
    parser.add_argument("--epochs", metavar="N", help="epochs of training (default: 3 on digits, 1 on mnist)")
    parser.add_argument("--studies", action="store_true", help="also run the operator studies, for at most 3 minutes")
    parser.add_argument("--lang", default="en", metavar="LANG", help="language of the report: en or zh (default: en)")
    parser.add_argument(
        "-o", "--output", metavar="DIR",
        help=f"output directory; a lab that is there is resumed (default: {DIRECTORY}, with --merge {MERGED})",
    )  # fmt: skip
    parser.add_argument("--merge", nargs="*", metavar="DIR", help="do not measure: write one report of these labs")


def run(parsed: argparse.Namespace) -> int:
    """Run the lab, or merge labs; return 0, or 130 if Ctrl-C stopped it.

    Raises:
        MnistbenchError: an option or a directory cannot be used, or a dataset is missing or damaged.
        OSError: a file cannot be written.
    """
    language = one_of("--lang", parsed.lang, LANGUAGES)
    if parsed.merge is not None:
        _merge([Path(directory) for directory in parsed.merge], Path(given("-o", parsed.output, MERGED)), language)
        return 0
    directory = Path(given("-o", parsed.output, DIRECTORY))
    dataset = one_of("--dataset", parsed.dataset, DATASETS)
    sizes = tuple(sorted(wholes("--batch-size", parsed.batch_size, 1)))
    epochs = _EPOCHS[dataset] if parsed.epochs is None else whole("--epochs", parsed.epochs, 1)
    asked = parts("--device", parsed.device)
    if problem := why_not_writable(directory):
        raise UsageError(f"-o: {problem}; name another directory")
    data_dir = given("--data-dir", parsed.data_dir) or None
    try:
        _measure(
            directory, asked, language, dataset=dataset, data_dir=data_dir, sizes=sizes, epochs=epochs, studies=parsed.studies
        )
    except KeyboardInterrupt:
        print(
            f"mnistbench: interrupted; finished steps are kept in {_path(directory)}; run the same command again to resume",
            file=sys.stderr,
        )
        return STOPPED
    return 0


def _measure(
    directory: Path,
    asked: Sequence[str],
    language: str,
    *,
    dataset: str,
    data_dir: str | None,
    sizes: tuple[int, ...],
    epochs: int,
    studies: bool,
) -> None:
    from mnistbench.measuring import import_torch

    _cache_bytecode()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch warns of memory allocated before a profile began
    import_torch()
    import torch

    from mnistbench.course.lab.measures import Measures
    from mnistbench.course.lab.progress import Bar, Lines
    from mnistbench.measuring.environment import read, resolve_devices
    from mnistbench.profile.first_call import Processes
    from mnistbench.workloads.data import data_root, mnist_is_to_be_downloaded

    try:
        devices = resolve_devices(asked)
    except UsageError as error:
        raise UsageError(f"--device: {error}") from None
    if dataset == "mnist" and mnist_is_to_be_downloaded(data_dir):
        print(f"mnistbench: MNIST is not in {_path(data_root(data_dir))} yet: downloading 11 MiB", file=sys.stderr)
    settings = Settings(dataset, sizes, tuple(sorted(devices, key=lambda name: (name != "cpu", name))), epochs, "convnet", 1)
    progress = Bar(sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)
    with Processes() as processes, contextlib.closing(progress):
        measures = Measures(settings, data_dir, processes=processes)
        findings = Lab(directory, settings, read(torch.get_num_threads()), measures, studies=studies).run(progress)
    notes = write_report(directory, findings, language)
    for note in (*findings.notes, *notes):
        print(f"mnistbench: {printable(note)}", file=sys.stderr)
    for name in REPORTS:
        print(_path(directory / name))
    print(f"TensorBoard: tensorboard --logdir {_path(directory / 'tensorboard')}")


def _cache_bytecode() -> None:
    """Keep compiled modules in the user's cache if Python may not write beside its sources and torch has none there.

    Otherwise every run would compile torch's sources again. First iterations use the same cache.
    """
    torch = importlib.util.find_spec("torch")
    if not sys.dont_write_bytecode or (torch and torch.cached and Path(torch.cached).exists()):
        return
    sys.pycache_prefix = str(platformdirs.user_cache_path("mnistbench") / "pycache")
    sys.dont_write_bytecode = False


def _merge(directories: Sequence[Path], output: Path, language: str) -> None:
    """Write the report of several labs.

    Raises:
        UsageError: there are fewer than two, one is named twice, or the output holds something else.
        RecordError: a lab cannot be read.
    """
    from mnistbench.course.lab.figures import Figures, texts_that_show

    if len(directories) < 2:
        raise UsageError("--merge: needs at least two directories of labs")
    if len({directory.resolve() for directory in directories}) < len(directories):
        raise UsageError("--merge: a directory is named twice; name each lab once")
    if problem := why_not_writable(output):
        raise UsageError(f"-o: {problem}; name another directory")
    if (output / FILE).exists() or (output / STEPS).exists():
        raise UsageError(f"-o: {output} holds a lab of its own; name another directory")
    if output.exists() and any(output.iterdir()) and not (output / LABS).exists():
        raise UsageError(f"-o: {output} holds something else than a report; name a new or an empty directory")
    labs = dict(zip(_names(directories), directories, strict=True))
    machines = [Machine(name, Findings.from_file(directory / FILE)) for name, directory in labs.items()]
    output.mkdir(parents=True, exist_ok=True)
    marker = {"schema": SCHEMA, "labs": {name: os.fspath(directory.resolve()) for name, directory in labs.items()}}
    replace_file(output / LABS, (json.dumps(marker, indent=1) + "\n").encode())
    texts = Texts(language)
    shown, family = texts_that_show(texts, lambda: Texts("en"))
    figures = Figures(output, shown, family)
    figures.machines([machine.name for machine in machines], [machine.findings for machine in machines])
    document, sheets = Merged(machines, texts, figures.drawn).document()
    for sheet in sheets:
        write_sheet(output, sheet)
    replace_file(output / REPORTS[0], markdown(document).encode())
    replace_file(output / REPORTS[1], html(document, picture_in(output)).encode())
    for name in REPORTS:
        print(_path(output / name))


def _names(directories: Iterable[Path]) -> list[str]:
    """Call each lab by its directory's name, or by its whole path where two have the same."""
    listed = [directory.resolve() for directory in directories]
    names = [directory.name for directory in listed]
    return [str(path) if names.count(name) > 1 else name for name, path in zip(names, listed, strict=True)]


def _path(path: Path) -> str:
    return printable(shlex.quote(os.fspath(path)))
