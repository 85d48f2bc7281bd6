"""The interpreters of both sides, in environments that are made where a side asks for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mnistbench.gate.environments import python
from mnistbench.gate.options import SideOptions


@dataclass(frozen=True)
class Interpreters:
    """The interpreters of both sides."""

    paths: dict[str, str]  # by side
    chosen: str  # the one that no option names, and how it was found; empty if that is no surprise


def interpreters(options: SideOptions, say: Callable[[str], None]) -> Interpreters:
    """Make the environments of the sides that have one; return the interpreter of each side."""
    if all(options.pythons.values()):
        return Interpreters({side: named or "" for side, named in options.pythons.items()}, "")
    project = python.of_project()
    paths = {side: named or project.path for side, named in options.pythons.items()}
    chosen = f"{project.path} ({project.why})" if project.why else ""
    if chosen:
        say(f"interpreter: {chosen}")
    if not options.changes:
        return Interpreters(paths, chosen)
    from mnistbench.gate.environments.made import environment  # most gates make none

    for side, changes in options.changes.items():
        say(
            f"making an environment with {', '.join(map(str, changes))}; uv downloads what it does "
            "not have in its cache"
        )
        paths[side] = environment(changes, project)
    return Interpreters(paths, chosen)
