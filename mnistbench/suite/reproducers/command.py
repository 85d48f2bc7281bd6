"""``mnistbench reproduce``.

Run scripts that the gate has written on both sides, and print whether each shows the change.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.core.options import argument, option, path, whole
from mnistbench.gate.environments.interpreters import interpreters
from mnistbench.gate.options import SideOptions
from mnistbench.gate.words import PYTHON
from mnistbench.showing.output import EXIT_PASSED
from mnistbench.showing.progress import Progress
from mnistbench.suite.reproducers.run import TRIALS, measure, sentence
from mnistbench.suite.reproducers.script import ScriptOrigin, read

#: The answer if the sides differ in nothing that a script has.
ALIKE = (
    "does not show by itself: both sides make the same calls with tensors of the same form; "
    "the cause is in their values or surroundings (allocator, cache, what runs before)"
)


@dataclass(frozen=True, kw_only=True)
class Settings(SideOptions):
    """The options."""

    files: tuple[Path, ...] = argument(
        "FILE", path, "script that mnistbench gate has written", many=True
    )
    trials: int = option(
        "--trials", whole(1, 1_000), str(TRIALS), "number of trials of each script", "N"
    )


def run(settings: Settings) -> int:
    """Run each script and print a line; return 0.

    Raises:
        MnistbenchError: an environment cannot be made, a file cannot be used, or a script fails.
    """
    scripts = {file: read(file) for file in settings.files}
    differing = {
        file
        for file, origin in scripts.items()
        if settings.differ or origin.has_base or any(origin.variables.values())
    }
    for file in scripts.keys() - differing:
        _check_packages(file, scripts[file])
    with Progress(sys.stderr) as progress:
        pythons = interpreters(settings, progress.say)
        for file, origin in scripts.items():
            answer = ALIKE
            if file in differing:
                variables = settings.variables
                trials = settings.trials
                changes = measure(
                    file, origin, pythons.paths, variables, trials=trials, progress=progress
                )
                answer = sentence(changes, origin)
                progress.close()
            print(f"{origin.title} ({origin.case}): {answer}", flush=True)
    return EXIT_PASSED


def _check_packages(file: Path, origin: ScriptOrigin) -> None:
    """Check that the gate did not compare versions of a package.

    Without the package both sides of a script would be the same.
    """
    changed = {name: versions for name, versions in origin.packages.items() if all(versions)}
    if changed:
        name = "torch" if "torch" in changed else next(iter(changed))
        base, head = changed[name]
        if name == PYTHON:
            raise UsageError(
                f"{file}: the gate compared {name} {base} with {head}; give --base-python and "
                "--head-python"
            )
        raise UsageError(
            f"{file}: the gate compared {name} {base} with {head}; give --base-with "
            f"{name}=={base} --head-with {name}=={head}"
        )
