"""``mnistbench environments``: list or remove the environments that the gate has made."""

from __future__ import annotations

import argparse

from mnistbench.core.units import size
from mnistbench.gate.environments.store import Environment, listed, remove_all, shown
from mnistbench.showing.output import PASSED
from mnistbench.showing.table import Table, text_table
from mnistbench.showing.terminal import draw


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--prune", action="store_true", help="remove all of them")


def run(parsed: argparse.Namespace) -> int:
    """List the environments, oldest first, or remove them; return 0.

    Raises:
        UsageError: a file cannot be removed.
    """
    if parsed.prune:
        _prune()
        return PASSED
    environments, incomplete = listed()
    if environments:
        print(draw(_table(environments)))
    else:
        print("no environments; mnistbench gate --base-with, --head-with and --bisect-versions make them")
    if incomplete:
        print(f"{_counted(incomplete, 'folder')} incomplete or being made; --prune removes what is incomplete")
    return PASSED


def _prune() -> None:
    removed = remove_all()
    shared = removed.size_bytes - removed.freed_bytes
    rest = f"; uv's cache keeps the other {size(shared)}: uv cache clean" if shared else ""
    if removed.folders:
        print(f"removed {_counted(len(removed.folders), 'environment')}; freed {size(removed.freed_bytes)}{rest}")
    elif not removed.used:
        print("no environments to remove")
    for folder in removed.used:
        print(f"not removed, because a gate uses it: {shown(folder)}")


def _table(environments: list[Environment]) -> Table:
    return text_table(
        title=_counted(len(environments), "environment"),
        headings=("packages", "python", "created (UTC)", "last used (UTC)", "size", "folder"),
        rows=tuple(
            (
                ", ".join(environment.manifest.asked),
                environment.manifest.python,
                _minute(environment.manifest.created),
                _minute(environment.manifest.last_used),
                size(environment.manifest.size_bytes),
                shown(environment.folder),
            )
            for environment in environments
        ),
        sums=(),
        numbers_from=4,
        words_after=1,
    )


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
