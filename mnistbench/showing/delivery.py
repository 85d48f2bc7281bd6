"""Results of a subcommand: exit codes, the line of an error, and text for the terminal or a file."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mnistbench.core.errors import MnistbenchError
from mnistbench.core.launch import Launch
from mnistbench.core.units import printable
from mnistbench.showing.arguments import given
from mnistbench.showing.report import Block

#: Exit codes: passed or done; regressed; undecided, wrong usage or failed.
PASSED, REGRESSED, UNJUDGED = 0, 1, 2

#: Exit codes for ``git bisect run``: this commit cannot be tested; no commit can be tested.
BISECT_SKIPS, BISECT_STOPS = 125, 128

#: Exit code of a training run or a lab that Ctrl-C stopped: 128 plus the number of the signal, as shells return it.
STOPPED = 130

#: Time in which rank 0 ends after an error, and the launcher ends the other ranks.
_DELAY_S = 5.0


def print_error(error: MnistbenchError | str) -> None:
    """Print an error as one line."""
    print(f"mnistbench: {printable(str(error))}", file=sys.stderr, flush=True)


@contextmanager
def rank_0_reports(place: Launch) -> Iterator[None]:
    """Run the body; delay an error of it on every rank but rank 0.

    Rank 0 usually has the same error. It prints the error and ends, and then the launcher ends the other ranks, so the error is
    printed once.
    """
    try:
        yield
    except MnistbenchError:
        if place.rank:
            time.sleep(_DELAY_S)
        raise


def output_file(parsed: argparse.Namespace) -> str:
    """Return the file that ``--output`` names; empty if it was not given. Called before anything is measured.

    Raises:
        UsageError: the file cannot be written.
    """
    from mnistbench.compare.output import check

    output = given("--output", parsed.output)
    if output:
        check(Path(output))
    return output


@contextmanager
def progress_bar(unit: str) -> Iterator[Callable[[str], None]]:
    """Show a bar without an end on a terminal while the body runs; yield what receives the text of each next step.

    Args:
        unit: of the steps.
    """
    from tqdm import tqdm

    with tqdm(unit=unit, file=sys.stderr, disable=None, leave=False) as bar:

        def progress(what: str) -> None:
            bar.set_description(what)
            bar.update()

        yield progress


def deliver(text: str, output: str) -> None:
    """Write text to the file ``output``; print it if ``output`` is empty.

    Raises:
        UsageError: the file cannot be written.
    """
    from mnistbench.compare.output import write

    if output:
        write(Path(output), text)
    else:
        sys.stdout.write(text)


def deliver_tables(
    form: str,
    output: str,
    *,
    blocks: Sequence[Block],
    heading: str,
    json: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
) -> None:
    """Write or print a report in the format ``terminal``, ``markdown``, ``json`` or ``csv``.

    Args:
        form: the format.
        output: file to write; empty to print.
        blocks: the report.
        heading: its heading in Markdown.
        json: the JSON.
        columns: of the CSV.
        rows: of the CSV.

    Raises:
        UsageError: the file cannot be written.
    """
    from mnistbench.compare.data import csv_text
    from mnistbench.showing.markdown import markdown_report
    from mnistbench.showing.terminal import draw_report

    if form == "json":
        text = json
    elif form == "csv":
        text = csv_text(columns, rows)
    elif form == "markdown":
        text = markdown_report(blocks, heading)
    else:
        text = draw_report(blocks) + "\n"
    deliver(text, output)
