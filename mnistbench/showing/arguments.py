"""Options that several subcommands share, and values read from texts; an error names the option, the value and the fix.

Options with values are declared as texts: argparse would print the usage with an error of its own.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterable

from mnistbench.core.errors import UsageError

#: Help for an argument that names a saved run.
REFERENCE = "a file, a number (0003), a glob, latest, a commit or a branch"

#: Help for an argument that names a saved run or a trace.
OR_TRACE = f"{REFERENCE}, or a trace"

#: How the rows of a table are summed.
GROUPINGS = ("op", "module", "op,module")

#: The largest batch size, number of epochs or number of launches.
LARGEST = 2**31

#: A number with this many digits is too large for any option.
_DIGITS = 20

#: The largest number of threads: OpenMP crashes if the system cannot create that many.
MOST_THREADS = 1024


def add_top(parser: argparse.ArgumentParser) -> None:
    """Declare how many operations a table shows."""
    parser.add_argument("--top", default="10", metavar="N", help="number of operations to show per case (default: 10)")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Declare a model of mnistbench's own."""
    parser.add_argument("--model", default="convnet", metavar="NAME", help="convnet or lenet5 (default: convnet)")


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Declare the precision."""
    parser.add_argument(
        "--dtype", default="float32", metavar="NAME", help="float32, or bfloat16 by autocast (default: float32)"
    )


def add_format(parser: argparse.ArgumentParser, *others: str) -> None:
    """Declare the format: terminal, markdown, json, or one of the ``others``."""
    parser.add_argument(
        "--format", choices=("terminal", "markdown", "json", *others), default="terminal", help="format (default: terminal)"
    )


def add_by(parser: argparse.ArgumentParser) -> None:
    """Declare how rows are summed, one of GROUPINGS."""
    parser.add_argument(
        "--by", default="op,module", metavar="KEYS", help="group by op, module or op,module (default: op,module)"
    )


def add_output(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Declare the file to write; without a default the text is printed."""
    shown = f"output file (default: {default})" if default else "write to this file instead of printing"
    parser.add_argument("-o", "--output", default=default, metavar="FILE", help=shown)


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Declare the directory of saved runs."""
    parser.add_argument(
        "--storage", default=".benchmarks", metavar="DIR", help="directory of saved runs (default: .benchmarks)"
    )


def add_dataset(parser: argparse.ArgumentParser, default: str) -> None:
    """Declare the dataset and the directory of MNIST."""
    parser.add_argument(
        "--dataset", default=default, metavar="NAME", help=f"digits, which needs no network, or mnist (default: {default})"
    )
    parser.add_argument(
        "--data-dir", metavar="DIR", help="torchvision root of MNIST (default: MNISTBENCH_DATA, else the user's cache)"
    )


def given(flag: str, text: str | None, otherwise: str = "") -> str:
    """Return the value of an option, ``otherwise`` if it was not given.

    Raises:
        UsageError: the value is blank, as from an unset variable of a script.
    """
    if text is None:
        return otherwise
    if not text.strip():
        raise UsageError(f"{flag}: {text!r} is no value; give one, or leave the option out")
    return text


def one_of(flag: str, text: str, choices: Iterable[str]) -> str:
    """Return the value, one of the choices.

    Raises:
        UsageError: the value is not one of them.
    """
    known = tuple(choices)
    if text not in known:
        raise UsageError(f"{flag}: {text!r} is not known; choose {' or '.join(known)}")
    return text


def whole(flag: str, text: str, least: int, most: int = LARGEST) -> int:
    """Return a whole number.

    Raises:
        UsageError: the text is not a whole number, or the number is out of bounds.
    """
    digits = text.lstrip("0") or "0"
    number = least - 1
    if re.fullmatch("[0-9]+", text):
        number = int(digits) if len(digits) < _DIGITS else most + 1  # int() raises for more than 4,300 digits
    if not least <= number <= most:
        bounds = f"at least {least}" if most >= LARGEST and number < least else f"{least} to {most}"
        raise UsageError(f"{flag}: {text!r} cannot be used; give a whole number, {bounds}")
    return number


def positive(flag: str, text: str, least: float = 0.0, most: float = sys.float_info.max) -> float:
    """Return a number above 0, within bounds.

    Raises:
        UsageError: the text is not such a number.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number > 0 and least <= number <= most):
        bounds = f"from {least:g} to {most:g}" if least else "above 0"
        raise UsageError(f"{flag}: {text!r} cannot be used; give a number {bounds}")
    return number


def parts(flag: str, text: str) -> tuple[str, ...]:
    """Return the distinct entries of a comma list.

    Raises:
        UsageError: an entry is empty.
    """
    entries = [part.strip() for part in text.split(",")]
    if not all(entries):
        raise UsageError(f"{flag}: {text!r} has an empty entry; give a comma list such as its default")
    return tuple(dict.fromkeys(entries))


def wholes(flag: str, text: str, least: int, most: int = LARGEST) -> tuple[int, ...]:
    """Return the distinct whole numbers of a comma list.

    Raises:
        UsageError: an entry is empty, not a whole number, or out of bounds.
    """
    return tuple(dict.fromkeys(whole(flag, part, least, most) for part in parts(flag, text)))
