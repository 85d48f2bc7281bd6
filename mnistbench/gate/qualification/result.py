"""What gates find on a machine, and the file of it beside its raw samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mnistbench.core import units
from mnistbench.core.errors import RecordError
from mnistbench.core.files import replace_file
from mnistbench.core.reading import read_text
from mnistbench.gate.qualification.resampling import AMOUNTS, share, signed_change
from mnistbench.gate.samples.raw_samples import ENDING, Recorded
from mnistbench.showing.report import Report

#: Start of the names of files of qualifications.
PREFIX = "qualification_"


@dataclass(frozen=True)
class _Saved:
    """The content of the file."""

    machine: str  # processor and number of cores
    cases: tuple[str, ...]  # node ids
    day: str  # ISO 8601
    sentence: str  # what was found, with this day


@dataclass(frozen=True)
class Qualification:
    """Trials of the same code, and what gates that are drawn from them find."""

    measured: Recorded
    found: Mapping[str, Any] = field(default_factory=dict)  # empty: no gate could be drawn

    @property
    def path(self) -> Path:
        """The file of the result."""
        samples = self.measured.path
        return samples.with_name(f"{PREFIX}{samples.name.removesuffix(ENDING)}.json")

    def sentence(self, day: str = "") -> str:
        """Return whether the machine is qualified, and what it rules out and finds.

        It also returns the 95 % intervals and the false alarms.
        """
        data = self.found
        if not data:
            return (
                "this runner is not qualified: "
                f"{self.measured.end.cut_short or 'no case has usable times in every trial'}"
            )
        verb, when = ("was", f" on {day}") if day else ("is", "")
        because = ", and ".join(data["reasons"])
        is_qualified = (
            f"{verb} not qualified{when}, because {because}"
            if because
            else f"{verb} qualified{when}"
        )
        finds = ", ".join(
            f"{signed_change(added)} in {share(hits, data['gates'] // 2)}"
            for added, hits in zip(AMOUNTS, data["found"], strict=True)
        )
        return (
            f"this runner {is_qualified}: it rules out {units.percent_up(data['rules_out'])} in "
            f"{units.duration(data['gate_seconds'] * 1e9)}; it finds {finds} of gates; false "
            f"alarms in {share(data['regressed'], data['gates'])} of {data['gates']} resampled "
            f"gates, of which {units.percent(data['inconclusive'] / data['gates'])} are "
            f"inconclusive, and in {data['windows_regressed']} of {data['windows']} with the roles "
            "as recorded"
        )

    def save(self) -> None:
        """Write the file, if anything was found."""
        if not self.found:
            return
        header = self.measured.header
        day = header.started[:10]
        saved = _Saved(header.machine, tuple(header.labels), day, self.sentence(day))
        replace_file(self.path, (json.dumps(asdict(saved), indent=1) + "\n").encode())


def newest(folder: Path, machine: str, cases: Sequence[str]) -> str:
    """Return what the newest qualification of a machine with these cases found, with its date.

    Empty if there is none.
    """
    for path in sorted(folder.glob(f"{PREFIX}*.json"), reverse=True):
        with suppress(OSError, RecordError):  # damaged
            saved = read_text(path.read_bytes(), _Saved)
            if saved.machine == machine and {*saved.cases} == {*cases}:
                return saved.sentence
    return ""


def with_qualification(report: Report, measured: Recorded) -> Report:
    """Return the report of a gate with the newest qualification of its machine and cases."""
    header = measured.header
    if measured.shards or header.shard.of > 1:  # several machines
        return report
    line = newest(measured.path.parent, header.machine, list(header.labels))
    if not line:
        return report
    head, *rest = report.blocks
    return replace(report, blocks=[replace(head, lines=(*head.lines, line)), *rest])
