"""``mnistbench judge``: judge raw samples of a gate again, with other thresholds or after an interruption; measure nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mnistbench.core.options import argument, path
from mnistbench.gate.report import deliver_verdict, report
from mnistbench.gate.verdict.result import JudgeOptions, conclude
from mnistbench.gate.verdict.samples import load
from mnistbench.showing.output import check


@dataclass(frozen=True, kw_only=True)
class Settings(JudgeOptions):
    """The options of the command."""

    file: Path = argument("FILE", path, "raw samples that mnistbench gate has written")


def run(settings: Settings) -> int:
    """Judge the file, report, and return the exit code.

    Raises:
        MnistbenchError: the file cannot be read, or the report cannot be written.
    """
    if settings.output:
        check(settings.output)
    verdict = conclude(load(settings.file), settings)
    return deliver_verdict(report(verdict), settings, verdict.outcome, is_excusable=verdict.is_excusable)
