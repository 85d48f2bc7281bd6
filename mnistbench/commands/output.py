"""Results of a subcommand: exit codes, the line of an error, and text for the terminal or a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mnistbench.core.errors import MnistbenchError
from mnistbench.core.launch import Launch
from mnistbench.core.units import printable

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


def deliver(text: str, output: str) -> None:
    """Write text to the file ``output``; print it if ``output`` is empty.

    Raises:
        UsageError: the file cannot be written.
    """
    from mnistbench.report.output import write

    if output:
        write(Path(output), text)
    else:
        sys.stdout.write(text)
