"""``mnistbench lab check``: what a lab lacks, and the file to hand in."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.extras import has, install
from mnistbench.core.files import replace_file
from mnistbench.core.machine import has_posix
from mnistbench.core.options import argument, option, path
from mnistbench.core.units import printable
from mnistbench.course.classroom.score import BANDS, REFERENCE_STEP, other_machine
from mnistbench.course.classroom.score_command import Settings as ScoreSettings
from mnistbench.course.classroom.score_command import measure, this_machine
from mnistbench.course.classroom.submission import (
    CHECKS,
    INCONSISTENT,
    NAMES,
    Flaw,
    Submission,
    pack,
    problems,
    read,
    write,
)
from mnistbench.course.lab.lab_file import QUIET, SUBMISSION, write_file
from mnistbench.course.lab.run import STEPS
from mnistbench.showing.output import (
    EXIT_PASSED,
    EXIT_REGRESSED,
    check,
    check_directory,
    print_error,
)
from mnistbench.showing.progress import Progress

#: Processes of each side of the self-test, as many as MLPerf has runs of a small model.
TRIALS = 5
#: Time for the turns of each process, in seconds.
TRIAL_S = 1.0

#: Variables that classroom50 sets for an autograder. Their first words are fields of its
#: result.json.
CLASSROOM50 = (
    "CLASSROOM",
    "ASSIGNMENT",
    "SUBMISSION_TAG",
    "COMMIT_URL",
    "RELEASE_URL",
    "REVIEW_URL",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is checked, and what is written."""

    lab: Path = argument("LAB", path, "directory of a lab, or a submission")
    submission: Path | None = option(
        "--submission", path, None, f"file to hand in (default: LAB/{SUBMISSION})", "FILE"
    )
    gradescope: Path | None = option(
        "--gradescope", path, None, "write the points as Gradescope's results.json", "FILE"
    )
    classroom50: Path | None = option(
        "--classroom50", path, None, "write the points as classroom50's result.json", "FILE"
    )


def run(settings: Settings) -> int:
    """Check a lab; return 0, or 1 if something is missing or wrong.

    MnistbenchError if it cannot be read or self-tested.
    """
    is_lab = settings.lab.is_dir()
    output = settings.submission or (settings.lab / SUBMISSION if is_lab else None)
    outputs = {
        "submission": output,
        "gradescope": settings.gradescope,
        "classroom50": settings.classroom50,
    }
    _check_outputs(settings.lab, {flag: file for flag, file in outputs.items() if file})
    runner = {name.lower().partition("_")[0]: os.environ.get(name, "") for name in CLASSROOM50}
    if settings.classroom50 and not all(runner.values()):
        raise UsageError(
            f"--classroom50: needs {', '.join(CLASSROOM50)} of the environment, which classroom50 "
            "sets"
        )
    try:
        submission = self_tested(settings.lab) if is_lab else read(settings.lab)
        wrong = problems(submission)
        for name in CHECKS:
            lines = [
                f"{flaw.kind.upper():12}  {name}: {flaw.text}"
                for flaw in wrong
                if flaw.check == name
            ]
            print("\n".join(map(printable, lines or [f"{'OK':12}  {name}"])))
    except RecordError as error:
        if not (settings.gradescope or settings.classroom50):
            raise
        print_error(error)
        output = None
        submission = Submission("", {})
        # The grader shows it.
        wrong = tuple(Flaw.of_error(INCONSISTENT, name, error) for name in CHECKS)
    if output:
        write(output, submission)
        advice = (
            "solve the problems above, then run this again" if wrong else "complete, hand it in"
        )
        print(f"{printable(str(output))}: {advice}")
    tests = points(submission, wrong)
    if settings.gradescope:
        keys = ("name", "score", "max_score", "output", "status")
        words = {True: "passed", False: "failed"}
        rows = [
            dict(zip(keys, (name, int(passed), 1, text, words[passed]), strict=True))
            for name, passed, text in tests
        ]
        replace_file(settings.gradescope, json.dumps({"tests": rows}, indent=1).encode())
    if settings.classroom50:
        keys = ("test-name", "score", "max-score", "output", "passed")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        rows = [
            dict(zip(keys, (name, int(passed), 1, text, passed), strict=True))
            for name, passed, text in tests
        ]
        whole = {
            "schema": "classroom50/result/v1",
            **runner,
            "datetime": now,
            "score": sum(passed for _, passed, _ in tests),
        }
        replace_file(
            settings.classroom50,
            json.dumps({**whole, "max-score": len(tests), "tests": rows}, indent=1).encode(),
        )
    return EXIT_REGRESSED if wrong else EXIT_PASSED


def _check_outputs(lab: Path, outputs: Mapping[str, Path]) -> None:
    """Raise UsageError if an output cannot be written or would replace another file.

    That is the input, a file of the lab or another output.
    """
    kept = {file.resolve() for file in (lab, *(lab / name for name in NAMES))}
    for flag, file in outputs.items():
        check(file, f"--{flag}")
        if file.resolve() in kept or file.resolve().parent == (lab / STEPS).resolve():
            raise UsageError(
                f"--{flag}: {file} is the input, a file of the lab, or another output; name "
                "another file"
            )
        kept.add(file.resolve())


def points(submission: Submission, wrong: Sequence[Flaw]) -> list[tuple[str, bool, str]]:
    """Return (test, whether it is passed, what is wrong) of checks and bands.

    An inconsistent submission reaches no band.
    """
    texts = {name: "\n".join(flaw.text for flaw in wrong if flaw.check == name) for name in CHECKS}
    is_consistent = all(flaw.kind != INCONSISTENT for flaw in wrong)
    band = (submission.score.speedup["band"] or 0.0) if is_consistent and submission.score else 0.0
    return [
        *((name, not text, text) for name, text in texts.items()),
        *((f"step at least {bound:g} times as fast", band >= bound, "") for bound in BANDS),
    ]


def _why_no_self_test() -> str:
    """Return why a step cannot be timed here; empty if it can."""
    if not has_posix():
        return "it needs Linux or macOS"
    return "" if has("torch") else f"torch is not installed: {install('torch')}"


def self_tested(directory: Path) -> Submission:
    """Return the submission of a lab.

    On its machine, after a self-test if there is no successful one.
    """
    submission = pack(directory)
    with suppress(RecordError):
        if not submission.findings or all(flaw.check != "machine" for flaw in problems(submission)):
            return submission
        if reason := _why_no_self_test():
            print_error(f"no self-test, because {reason}")
            return submission
        if difference := other_machine(submission.findings.environment, here := this_machine()):
            print_error(f"no self-test, because the lab is of another machine ({difference})")
            return submission
        check_directory(directory, "LAB")
        with Progress(sys.stderr, total=TRIALS) as progress:
            load = f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
            progress.say(f"self-test: the reference against itself, about 30 s ({load})")
            settings = ScoreSettings(file=Path("reference"), trials=TRIALS, seconds=TRIAL_S)
            write_file(directory / QUIET, measure(settings, REFERENCE_STEP, here, progress).content)
        return pack(directory)
    return submission
