"""Start a launch for each number of ranks and read its times. Torch is imported only for accelerators."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from mnistbench.core.child import measuring_environment
from mnistbench.core.document import Reader
from mnistbench.core.errors import MnistbenchError, UsageError
from mnistbench.core.ranks import own_rank
from mnistbench.core.record import Environment
from mnistbench.train.scale.result import STRONG, Launched, Scaling, Settings

#: The launcher gives its ranks 30 s to end.
_END_S = 40

#: Variables of a launcher, which a child must not take for its own.
_OF_LAUNCHERS = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip

_PREFIX = "mnistbench: "  # of the line of an error


class LaunchError(MnistbenchError):
    """A launch ended without a result; the message gives the reason."""


def check(settings: Settings, environ: Mapping[str, str]) -> None:
    """Check what can be known before anything is measured.

    Raises:
        UsageError: this process is a rank itself, a rank would have no sample, or there are fewer GPUs than ranks.
    """
    if own_rank(environ).world_size > 1:
        raise UsageError("mnistbench scale starts the ranks itself: run it without torchrun")
    most = max(settings.ranks)
    if settings.scaling == STRONG and settings.batch_size < most:
        raise UsageError(f"--batch-size: {settings.batch_size} has no sample for each of {most} ranks; give {most} at least")
    if settings.device == "cpu":
        return
    from mnistbench.measuring.environment import accelerators, resolve_devices

    resolve_devices([settings.device])
    present = len([name for name in accelerators() if name.startswith(settings.device)])
    if most > present:
        raise UsageError(f"--ranks: {most} ranks need as many GPUs, and there are {present}; give {present} at most")


def run(settings: Settings, done: Callable[[], object] = lambda: None) -> Scaling:
    """Measure every number of ranks and return the result. ``done`` is called after each.

    Raises:
        LaunchError: a launch failed.
        KeyboardInterrupt: Ctrl-C; all processes have ended.
    """
    launches, environment = [], None
    with tempfile.TemporaryDirectory(prefix="mnistbench-scale-") as name:
        folder = Path(name)
        for ranks in settings.ranks:
            path = folder / f"{ranks}.json"
            _launch(command(settings, ranks, path), environment_of(settings, os.environ, folder), ranks)
            found = _read(path, ranks)
            launches.append(found["launch"].read(Launched))
            environment = found["environment"].read(Environment)
            done()
    assert environment is not None, "at least one number of ranks"
    return Scaling(settings, environment, tuple(launches))


def command(settings: Settings, ranks: int, path: Path) -> list[str]:
    """Return the command that measures this number of ranks and writes its times to ``path``."""
    program = ["-m", "mnistbench.train.scale.worker", json.dumps(asdict(settings)), str(path)]
    if ranks == 1:
        return [sys.executable, *program]
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *program]


def environment_of(settings: Settings, inherited: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment of a launch; ``folder`` is for a bytecode cache."""
    found = {name: value for name, value in inherited.items() if name not in _OF_LAUNCHERS}
    return measuring_environment(found, folder / "bytecode") | {"OMP_NUM_THREADS": str(settings.threads)}


def _launch(words: Sequence[str], environ: Mapping[str, str], ranks: int) -> None:
    """Run a launch to its end.

    It has a session of its own, so that Ctrl-C reaches this process only, which then ends the launch.
    """
    with (
        subprocess.Popen(
            words,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        ) as process,
        _ended(process),
    ):
        _, errors = process.communicate()
    if process.returncode:
        raise LaunchError(_reason(errors, process.returncode, ranks))


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Run the body; if it raises, end the process, which ends the ranks that it has started."""
    try:
        yield
    except BaseException:
        process.terminate()
        try:
            process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
        raise


def _reason(errors: str, code: int, ranks: int) -> str:
    """Return the line with which a rank ended, or the last line that was printed."""
    lines = [line for line in errors.splitlines() if line.strip()]
    said = next((line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)), None)
    last = lines[-1].strip() if lines else "nothing was printed"
    return said or f"the launch of {ranks} rank{'s' if ranks > 1 else ''} failed with exit code {code} ({last})"


def _read(path: Path, ranks: int) -> Reader:
    try:
        return Reader(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise LaunchError(f"the launch of {ranks} rank{'s' if ranks > 1 else ''} ended without a result") from None
