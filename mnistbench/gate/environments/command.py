"""``mnistbench environments``: list or remove the environments that the gate has made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mnistbench.core.options import switch
from mnistbench.core.units import counted, size
from mnistbench.gate.environments.store import MadeEnvironment, listed, remove_all, shown
from mnistbench.showing.output import EXIT_PASSED
from mnistbench.showing.table import Column, Table
from mnistbench.showing.terminal import draw

_COLUMNS = (
    Column[MadeEnvironment]("packages", lambda made: ", ".join(made.asked)),
    Column[MadeEnvironment]("python", lambda made: made.version),
    Column[MadeEnvironment]("created (UTC)", lambda made: made.created[:16].replace("T", " ")),
    Column[MadeEnvironment]("last used (UTC)", lambda made: made.last_used[:16].replace("T", " ")),
    Column[MadeEnvironment]("size", lambda made: made.size_bytes, size),
    Column[MadeEnvironment]("folder", lambda made: shown(Path(made.folder))),
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
        print(draw(Table(counted(len(environments), "environment"), _COLUMNS, environments)))
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
    found = remove_all()
    sizes = [each for each in found.values() if each]
    freed = sum(own for _, own in sizes)
    shared = sum(of_all - own for of_all, own in sizes)
    rest = f"; uv's cache keeps the other {size(shared)}: uv cache clean" if shared else ""
    if sizes:
        print(f"removed {counted(len(sizes), 'environment')}; freed {size(freed)}{rest}")
    elif not found:
        print("no environments to remove")
    for folder, removed in found.items():
        if removed is None:
            print(f"not removed, because a gate uses it: {shown(folder)}")
