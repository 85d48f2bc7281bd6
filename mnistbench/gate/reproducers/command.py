"""``mnistbench reproduce``: run scripts that the gate has written on both sides, and print whether each shows the change."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.gate.environments.packages import installed
from mnistbench.gate.environments.sides import add_sides, changed, interpreter, variables, wanted
from mnistbench.gate.environments.store import held
from mnistbench.gate.reproducers.run import LAUNCHES, SideOfRun, measure, read, sentence
from mnistbench.gate.reproducers.script import Header
from mnistbench.showing.arguments import whole
from mnistbench.showing.output import PASSED

#: The answer if the sides differ in nothing that a script has.
ALIKE = (
    "does not show by itself: both sides make the same calls with the same arguments; "
    "the cause is in their surroundings (allocator, cache, what runs before)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="script that mnistbench gate has written")
    add_sides(parser, "the base", "the head")
    parser.add_argument(
        "--launches", default=str(LAUNCHES), metavar="N", help=f"number of launches of each script (default: {LAUNCHES})"
    )


def run(parsed: argparse.Namespace) -> int:
    """Run each script and print a line; return 0.

    Raises:
        MnistbenchError: an option or a file cannot be used, or a script fails.
    """
    launches = whole("--launches", parsed.launches, 1, 1_000)
    packages = installed() if parsed.base_with or parsed.head_with else []
    changes = changed(parsed, packages)
    pythons = {side: interpreter(f"--{side}-python", getattr(parsed, f"{side}_python")) for side in ("base", "new")}
    own = {side: variables(f"--{side}-env", getattr(parsed, f"{side}_env")) for side in ("base", "new")}
    scripts = {Path(name): read(Path(name)) for name in parsed.files}
    given = changes or any(pythons.values()) or any(own.values())
    alike = {path for path, (header, has_both) in scripts.items() if not (given or has_both or any(header.variables.values()))}
    for path in alike:
        _check_packages(path, scripts[path][0])
    with ExitStack() as environments:
        for side, requirements in changes.items():
            pythons[side] = environments.enter_context(held(wanted(requirements, packages), _say)).python
        for path, (header, _) in scripts.items():
            if path in alike:
                print(f"{header.title} ({header.case}): {ALIKE}", flush=True)
                continue
            sides = {
                side: SideOfRun(pythons[option] or sys.executable, {**header.variables.get(side, {}), **own[option]})
                for side, option in (("base", "base"), ("head", "new"))
            }
            found = measure(path, sides, launches=launches, threads=header.threads, case_ns=header.case_ns, progress=_progress)
            print(f"{header.title} ({header.case}): {sentence(found, header)}", flush=True)
    return PASSED


def _check_packages(path: Path, header: Header) -> None:
    """Check that the gate did not compare versions of a package, without which both sides of a script would be the same.

    Raises:
        UsageError: it did; the message has the options to add.
    """
    changed_packages = [(name, *versions) for name, versions in header.packages.items() if all(versions)]
    if changed_packages:
        name, base, head = next((one for one in changed_packages if one[0] == "torch"), changed_packages[0])
        raise UsageError(
            f"{path}: the gate compared {name} {base} with {head}; give --base-with {name}=={base} --head-with {name}=={head}"
        )


def _progress(done: int, of: int) -> None:
    if done < of:
        _say(f"launch {done + 1} of {of}")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
