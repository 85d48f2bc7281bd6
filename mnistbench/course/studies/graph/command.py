"""``mnistbench study graph``: the graphs, the generated code and the schedule of a program."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from mnistbench.core.child import Child, ChildError, measuring_environment
from mnistbench.core.errors import UsageError
from mnistbench.core.files import replace_file
from mnistbench.course.studies.graph.report import report_of
from mnistbench.course.studies.graph.study import GraphStudy, Settings
from mnistbench.course.studies.study import run_study
from mnistbench.showing.output import check_directory

#: After this word the process prints what it does next.
PROGRESS = "mnistbench-progress:"
#: The process prints this when its result is written.
DONE = "mnistbench-done"

#: Longest time in which the process prints nothing, in seconds: a large program compiles for
#: minutes.
_PATIENCE_S = 3600.0


def run(settings: Settings) -> int:
    """Study a program, report, and return 0.

    Write its graphs, generated code and traces to the directory of the settings.

    The ``seconds`` of the settings bound the timed steps, but not the compile time.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """

    def written(settings: Settings, progress: Callable[[str], None]) -> GraphStudy:
        if settings.write:
            check_directory(settings.write, "--write")
            settings.write.mkdir(parents=True, exist_ok=True)
        found = study(settings, progress)
        if settings.write:
            _write(found, settings.write)
        return found

    return run_study(settings, written, report_of)


def study(settings: Settings, progress: Callable[[str], None] = lambda _: None) -> GraphStudy:
    """Return the study of a program, made by a process with empty caches.

    Raises:
        UsageError: an option cannot be used.
        ChildError: the process failed.
    """
    with tempfile.TemporaryDirectory(prefix="mnistbench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        job = folder / "job"
        answer = folder / "answer"
        job.write_bytes(pickle.dumps(settings))
        words = [
            sys.executable,
            "-P",
            "-m",
            "mnistbench.course.studies.graph.worker",
            str(job),
            str(answer),
        ]
        try:
            with Child(words, environment_of(settings, os.environ, folder)) as child:
                while (line := child.next_line(_PATIENCE_S)) != DONE:
                    if line.startswith(PROGRESS):
                        progress(line.removeprefix(PROGRESS).strip())
        except ChildError as error:
            raise ChildError(f"the process that studies the program {error}") from None
        # The process that was started wrote it.
        found = pickle.loads(answer.read_bytes())  # noqa: S301
    if isinstance(found, str):
        raise UsageError(found)
    assert isinstance(found, GraphStudy)
    return found


def environment_of(
    settings: Settings, inherited: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Return the environment of the process.

    Empty caches of the compiler, and the number of threads.
    """
    return measuring_environment(inherited, folder / "bytecode") | {
        "OMP_NUM_THREADS": str(settings.threads),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


def _write(found: GraphStudy, folder: Path) -> None:
    """Write each graph and each module of generated code to a file.

    Several of one kind are numbered.
    """
    texts = [(graph.kind.replace(" ", "_"), "txt", graph.text) for graph in found.graphs]
    texts += [(f"code_{part}", "py", module) for part, module in found.code]
    numbers: dict[str, int] = {}
    for name, ending, text in texts:
        number = numbers[name] = numbers.get(name, 0) + 1
        replace_file(
            folder / f"{name}{'' if number == 1 else f'_{number}'}.{ending}", text.encode()
        )
