"""Study a program in a process of its own. Does not import torch."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from mnistbench.core.child import measuring_environment
from mnistbench.core.errors import MnistbenchError, UsageError
from mnistbench.course.studies.graph.result import Settings, Study

#: Begins a line in which the process names what it does next.
PROGRESS = "mnistbench-progress:"


class WorkerError(MnistbenchError):
    """The process ended without a result."""


def study(settings: Settings, *, traces: Path | None = None, progress: Callable[[str], None] = lambda _: None) -> Study:
    """Return the study of a program.

    Args:
        settings: of the study.
        traces: existing directory for traces; None: none are written.
        progress: receives what is measured next.

    Raises:
        UsageError: an option cannot be used.
        WorkerError: the process failed.
    """
    with tempfile.TemporaryDirectory(prefix="mnistbench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        job, answer = folder / "job", folder / "answer"
        job.write_bytes(pickle.dumps((settings, traces.absolute() if traces else None)))
        words = [sys.executable, "-P", "-m", "mnistbench.course.studies.graph.worker", str(job), str(answer)]
        errors = _run(words, environment_of(settings, os.environ, folder), folder / "errors", progress)
        if not answer.exists():
            raise WorkerError(f"the program was not studied: {errors}")
        found = pickle.loads(answer.read_bytes())  # noqa: S301  # the process that was started wrote it
    if isinstance(found, str):
        raise UsageError(found)
    assert isinstance(found, Study)
    return found


def environment_of(settings: Settings, inherited: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment of the process: empty caches of the compiler, and the number of threads."""
    return measuring_environment(inherited, folder / "bytecode") | {
        "OMP_NUM_THREADS": str(settings.threads),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


def _run(words: list[str], environ: Mapping[str, str], errors: Path, progress: Callable[[str], None]) -> str:
    """Run the process to its end; return the last line of its errors."""
    with (
        errors.open("w", encoding="utf-8") as stream,
        subprocess.Popen(
            words, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stream, encoding="utf-8",
            errors="replace",
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith(PROGRESS):
                    progress(line.removeprefix(PROGRESS).strip())
        except BaseException:
            process.kill()
            raise
    lines = [line for line in errors.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit code {process.returncode}"
