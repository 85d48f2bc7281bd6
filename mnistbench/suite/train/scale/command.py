"""``mnistbench scale``.

Start a launch for each number of ranks, read its times, and show how they scale.

Torch is imported only for accelerators.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mnistbench.core import units
from mnistbench.core.child import Child, ChildError, measuring_environment
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import scratch
from mnistbench.core.options import plain
from mnistbench.core.reading import member, read_text
from mnistbench.core.record import Environment
from mnistbench.showing.output import EXIT_STOPPED, CommandResult
from mnistbench.showing.progress import Progress
from mnistbench.suite.train.scale.report import report
from mnistbench.suite.train.scale.result import Launched, Scaling, Settings
from mnistbench.suite.workloads.torchrun import own_rank

__all__ = ["Settings", "run"]

#: Variables of a launcher, which a child must not take for its own.
_LAUNCHER_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)

_PREFIX = "mnistbench: "  # of the line of an error

#: Time in which a launch has to end, in seconds: the launcher gives its ranks 30 s.
_END_S = 40.0


def run(settings: Settings) -> CommandResult | int:
    """Measure every number of ranks and return the report; return 130 if Ctrl-C interrupted it.

    Raises:
        MnistbenchError: an option cannot be used, or a launch failed.
    """
    check_ranks(settings, os.environ)
    try:
        scaling = measured(settings)
    except KeyboardInterrupt:
        print("mnistbench: interrupted", file=sys.stderr)
        return EXIT_STOPPED
    return CommandResult(report(scaling))


def check_ranks(settings: Settings, environ: Mapping[str, str]) -> None:
    """Check what can be known before anything is measured."""
    if own_rank(environ).world_size > 1:
        raise UsageError("mnistbench scale starts the ranks itself: run it without torchrun")
    if settings.device == "cpu":
        return
    from mnistbench.suite.measuring.environment import accelerators, resolve_devices

    resolve_devices([settings.device])
    most = max(settings.ranks)
    present = len([name for name in accelerators() if name.startswith(settings.device)])
    if most > present:
        raise UsageError(
            f"--ranks: {most} ranks need as many GPUs, and there are {present}; give {present} at "
            "most"
        )


def measured(settings: Settings) -> Scaling:
    """Measure every number of ranks and return the result.

    Raises:
        ChildError: a launch failed.
        KeyboardInterrupt: Ctrl-C; all processes have ended.
    """
    launches = []
    environment = None
    with (
        scratch("scale") as folder,
        Progress(sys.stderr, total=len(settings.ranks), quiet=True) as progress,
    ):
        for ranks in sorted(settings.ranks):
            shown = units.counted(ranks, "rank")
            progress.step(shown)
            path = folder / f"{ranks}.json"
            with Child(
                words(settings, ranks, path),
                environment_of(settings, os.environ, folder),
                end_s=_END_S,
            ) as child:
                try:
                    child.output(math.inf)
                    times = read_text(path.read_bytes(), Mapping[str, Any])
                except ChildError as error:
                    reason = reason_of_ranks(child.errors())
                    raise ChildError(reason or f"the launch of {shown} {error}") from None
                except (OSError, RecordError):
                    raise ChildError(f"the launch of {shown} ended without a result") from None
            launches.append(member(times, "launch", Launched))
            environment = member(times, "environment", Environment)
            progress.advance()
    assert environment is not None, "at least one number of ranks"
    return Scaling(settings, environment, tuple(launches))


def reason_of_ranks(errors: Sequence[str]) -> str | None:
    """Return why a rank failed, by the lines on standard error; None if they do not tell.

    It is the first error of ours, else the last line of torchrun's report, which a ruler follows.
    """
    for line in errors:
        if line.startswith(_PREFIX):
            return line.removeprefix(_PREFIX)
    if len(errors) > 1 and set(errors[-1]) == {"="}:
        return f"a rank failed: {errors[-2].removeprefix('traceback : ')}"
    return None


def words(settings: Settings, ranks: int, path: Path) -> list[str]:
    """Return the command that measures this number of ranks and writes its times to ``path``."""
    settings_json = json.dumps(plain(settings, leave_out=("format", "output")))
    program = ["-m", "mnistbench.suite.train.scale.worker", settings_json, str(path)]
    if ranks == 1:
        return [sys.executable, *program]
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        f"--log-dir={path.parent}",  # by default a temporary folder, which torchrun leaves behind
        *program,
    ]


def environment_of(
    settings: Settings, inherited: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Return the environment of a launch; ``folder`` is for a bytecode cache."""
    own = {name: value for name, value in inherited.items() if name not in _LAUNCHER_VARIABLES}
    return measuring_environment(own, folder / "bytecode") | {
        "OMP_NUM_THREADS": str(settings.threads)
    }
