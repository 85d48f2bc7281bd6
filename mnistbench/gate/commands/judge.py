"""``mnistbench judge``.

Judge raw samples of a gate again, with other options or after an interruption; measure nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from mnistbench.core.options import ToolTable, argument, options_of, output_format, path
from mnistbench.gate.commands.result import result_of_verdict
from mnistbench.gate.decide.statistics.shards import gather
from mnistbench.gate.decide.verdict.verdict import conclude
from mnistbench.gate.options import TOOL_TABLE, JudgeOptions, Thresholds
from mnistbench.showing.output import CommandResult


@dataclass(frozen=True, kw_only=True)
class Settings(JudgeOptions):
    """The options of the command."""

    tool_table: ClassVar[ToolTable] = TOOL_TABLE

    files: tuple[Path, ...] = argument(
        "FILE",
        path,
        (
            "raw samples that mnistbench gate has written, of all its shards; thresholds that are "
            "not given are those of the gate"
        ),
        many=True,
    )
    format: str = output_format(["html"])
    given_fields: frozenset[str] = frozenset()  # fields that the command line gives


def run(settings: Settings) -> CommandResult:
    """Judge the files as one gate, and return the report.

    Raises:
        MnistbenchError: a file cannot be read or used.
    """
    samples = gather(settings.files)
    thresholds_of_gate: dict[str, Any] = {
        name: samples.header.thresholds.get(name, declared.empty)
        for name, declared in options_of(Thresholds).items()
        if name not in settings.given_fields
    }
    options = replace(settings, **thresholds_of_gate)
    return result_of_verdict(conclude(samples, options), options)
