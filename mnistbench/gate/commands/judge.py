"""``mnistbench judge``.

Judge raw samples of a gate again, with other thresholds or after an interruption; measure nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mnistbench.core.options import argument, output_format, path
from mnistbench.gate.commands.result import report, result_of
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.statistics.shards import gather
from mnistbench.gate.verdict.verdict import conclude
from mnistbench.showing.output import CommandResult


@dataclass(frozen=True, kw_only=True)
class Settings(JudgeOptions):
    """The options of the command."""

    files: tuple[Path, ...] = argument(
        "FILE",
        path,
        "raw samples that mnistbench gate has written; all shards of a gate",
        many=True,
    )
    format: str = output_format(["html"])


def run(settings: Settings) -> CommandResult:
    """Judge the files as one gate, and return the report.

    Raises:
        MnistbenchError: a file cannot be read or used.
    """
    verdict = conclude(gather(settings.files), settings)
    return result_of(report(verdict), settings, verdict.outcome, is_excusable=verdict.is_excusable)
