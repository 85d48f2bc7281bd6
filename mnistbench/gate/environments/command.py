"""``mnistbench environments``: list or remove the environments that the gate has made."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mnistbench.core.options import switch
from mnistbench.core.units import counted, size
from mnistbench.gate.environments.store import MadeEnvironment, listed, remove_all, shown
from mnistbench.showing.output import EXIT_PASSED
from mnistbench.showing.table import Column, Table
from mnistbench.showing.terminal import draw, line_width

_COLUMNS = (
    Column[MadeEnvironment]("packages", lambda environment: ", ".join(environment.asked)),
    Column[MadeEnvironment]("python", lambda environment: environment.version),
    Column[MadeEnvironment](
        "created (UTC)", lambda environment: environment.created[:16].replace("T", " ")
    ),
    Column[MadeEnvironment](
        "last used (UTC)", lambda environment: environment.last_used[:16].replace("T", " ")
    ),
    Column[MadeEnvironment]("size", lambda environment: environment.size_bytes, size),
    Column[MadeEnvironment]("folder", lambda environment: shown(Path(environment.folder))),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options."""

    prune: bool = switch("--prune", "remove all of them")


def run(settings: Settings) -> int:
    """List the environments, oldest first, or remove them; return 0."""
    if settings.prune:
        _prune()
        return EXIT_PASSED
    environments, incomplete = listed()
    if environments:
        table = Table(counted(len(environments), "environment"), _COLUMNS, environments)
        print(draw(table, width=line_width(sys.stdout)))
    else:
        print(
            "no environments; mnistbench gate and bisect make them, for --base-with, --head-with "
            "and releases"
        )
    if incomplete:
        print(
            f"{counted(incomplete, 'folder')} incomplete or being made; --prune removes what is "
            "incomplete"
        )
    return EXIT_PASSED


def _prune() -> None:
    sizes_of_folders = remove_all()
    sizes = [folder_sizes for folder_sizes in sizes_of_folders.values() if folder_sizes]
    freed = sum(own for _, own in sizes)
    shared = sum(total - own for total, own in sizes)
    rest = f"; uv's cache keeps the other {size(shared)}: uv cache clean" if shared else ""
    if sizes:
        print(f"removed {counted(len(sizes), 'environment')}; freed {size(freed)}{rest}")
    elif not sizes_of_folders:
        print("no environments to remove")
    for folder, folder_sizes in sizes_of_folders.items():
        if folder_sizes is None:
            print(f"not removed, because a gate uses it: {shown(folder)}")
