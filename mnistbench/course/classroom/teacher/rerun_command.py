"""``mnistbench class rerun``.

Measure the code of the best students again, on the teacher's machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mnistbench.core import options
from mnistbench.core.errors import MnistbenchError, UsageError
from mnistbench.core.options import option, switch, whole
from mnistbench.core.record import Environment
from mnistbench.core.units import printable
from mnistbench.course.classroom import score_command
from mnistbench.course.classroom.score import RefusedError, interval
from mnistbench.course.classroom.teacher import cohort
from mnistbench.course.classroom.teacher.cohort import UNREADABLE, Entry, gather, rankings
from mnistbench.course.lab.lab_file import write_file
from mnistbench.showing.output import EXIT_PASSED, EXIT_REGRESSED, check, print_error
from mnistbench.showing.progress import Progress
from mnistbench.showing.table import text_table
from mnistbench.showing.terminal import draw, line_width


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Whose code is measured, and for how long."""

    submissions: Path = cohort.submissions()
    top: int = option(
        "--top",
        whole(1),
        "5",
        (
            "students with the highest lower bounds of each batch size and number format, none "
            "doubtful"
        ),
        "N",
    )
    student: tuple[str, ...] = option(
        "--student", str, None, "this student instead, also if doubtful", "NAME", many=True
    )
    yes: bool = switch("--yes", "run the code of the students without asking")
    trials: int = score_command.scored_trials()
    seconds: float = score_command.seconds_of_trial()
    output: Path | None = options.output(
        text="output file (default: rerun.json beside SUBMISSIONS)"
    )


def run(settings: Settings) -> int:
    """Measure and compare.

    Return 0, or 1 if a step was refused or failed, or its speed-ups differ on the same CPU.

    UsageError if there is nothing to measure, the file cannot be written, or nobody agreed to run
    the code.
    """
    output = settings.output or settings.submissions.absolute().parent / "rerun.json"
    check(output)
    gathered, _ = gather(settings.submissions)
    for entry in gathered:
        if entry.state == UNREADABLE:
            print_error(f"{settings.submissions / entry.file}: {entry.complaint}")
    entries = chosen(gathered, settings)
    print("The code of these students will run on this machine, with all rights of your account:")
    for entry in entries:
        code = entry.score.text.expandtabs().splitlines() if entry.score else ()
        lines = (f"  {printable(line)}" for line in code)
        print("\n".join((f"\n{entry.name} ({entry.file}):", *lines)))
    if not (settings.yes or sys.stdin.isatty()):
        raise UsageError(
            "--yes: there is no terminal to ask in; read the code, then add --yes to run it"
        )
    if not settings.yes:
        print("\nType yes to run it > ", end="", flush=True)
        if sys.stdin.readline().strip().lower() != "yes":
            raise UsageError("--yes: you did not agree, so nothing was run")
    here = score_command.this_machine()
    rows = list[dict[str, Any]]()
    for row in measured(entries, settings, here):
        rows.append(row)
        # A later one may be interrupted.
        write_file(output, {"environment": asdict(here), "students": rows})
    headings = ("student", "CPU", "own speed-up (95 %)", "speed-up here (95 %)", "agrees")
    cells = [
        (
            row["student"],
            row["machine"],
            interval(row["own"]),
            row["problem"] or interval(row["here"]),
            row["agrees"],
        )
        for row in rows
    ]
    table = text_table("", headings, cells, numbers_from=len(headings))
    print(draw(table, width=line_width(sys.stdout)).strip())
    print(printable(str(output)))
    return EXIT_REGRESSED if any(row["agrees"] == "no" for row in rows) else EXIT_PASSED


def chosen(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """Return the entries whose code is measured.

    UsageError if there are none, or a named student has no score.
    """
    named = [entry for entry in entries if entry.speedup and entry.student in settings.student]
    if missing := set(settings.student) - {entry.student for entry in named}:
        raise UsageError(
            f"--student: {min(missing)!r} has no score in {settings.submissions}; see mnistbench "
            "class merge"
        )
    fastest = [
        entry
        for ranked in rankings(entries).values()
        for entry in sorted(ranked, key=lambda entry: -entry.speedup["low"])[: settings.top]
    ]
    if not (named or fastest):
        raise UsageError(
            f"SUBMISSIONS: {settings.submissions} has no score that counts; see mnistbench class "
            "merge"
        )
    return named or fastest


def measured(
    entries: Sequence[Entry], settings: Settings, here: Environment
) -> Iterator[dict[str, Any]]:
    """Yield a row for each student.

    Own speed-up, that of here or why there is none, and whether their intervals overlap.
    """
    with Progress(sys.stderr, total=settings.trials * len(entries)) as progress:
        for entry in entries:
            own = entry.score
            low = entry.speedup["low"]
            high = entry.speedup["high"]
            assert own, "chosen"
            row: dict[str, Any] = {
                "student": entry.name,
                "file": entry.file,
                "machine": entry.machine,
                "own": entry.speedup,
            }
            row |= {"here": None, "problem": None, "agrees": "no"}
            same: dict[str, Any] = {"batch_size": own.batch_size, "dtype": own.dtype}
            again = score_command.Settings(
                file=Path(own.file), trials=settings.trials, seconds=settings.seconds, **same
            )
            progress.say(f"{entry.name}:")
            try:
                if own.batch_size > 4_096:  # a made-up one would take all memory
                    raise RefusedError(f"its batch size is {own.batch_size}, more than 4096")
                score = score_command.measure(again, own.text, here, progress)
                score.check()
                row["here"] = speedup_here = score.speedup
                if low <= speedup_here["high"] and speedup_here["low"] <= high:
                    row["agrees"] = "yes"
                elif entry.machine != here.cpu_model:  # where they may differ
                    row["agrees"] = "no, another CPU"
            except (MnistbenchError, OSError) as error:
                row["problem"] = (
                    f"{'refused' if isinstance(error, RefusedError) else 'failed'}: {error}"
                )
            yield row
