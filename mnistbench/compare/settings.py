"""The settings of a gate, one list for the options of ``pytest``, of ``mnistbench compare`` and for both configurations.

Apart from ``criteria``, which reads their values: everybody's pytest loads this list, few ever read a value.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Setting(NamedTuple):
    """One setting of both commands."""

    flag: str
    metavar: str  # empty for a switch
    help: str
    default: str = ""
    repeatable: bool = False
    configurable: bool = True  # may stand in a configuration file; what excuses a failure may not

    @property
    def name(self) -> str:
        """Name in configuration files."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def shown(self) -> str:
        """The help with the default, as argparse wants it."""
        default = f" (default: {self.default})" if self.default else "; repeatable" if self.repeatable else ""
        return (self.help + default).replace("%", "%%")

    @property
    def empty(self) -> Any:
        """The value where nothing was given."""
        return [] if self.repeatable else self.default if self.metavar else False


SETTINGS = (
    Setting(
        "--op-fail", "LIMIT", "fail when an operation got slower by more: 10%, 'aten::addmm:5%', 'conv2:5%'", repeatable=True
    ),
    Setting("--case-fail", "LIMIT", "fail when a whole call got slower by more: 5%"),
    Setting("--op-min-share", "SHARE", "smaller operations than this share of their case are pooled", "2%"),
    Setting("--op-min-cost", "TIMES", "operations quicker than so many times the profiler's cost per call are pooled", "20"),
    Setting("--by", "KEYS", "op, module or op,module: what operations are summed over", "op,module"),
    Setting("--across-versions", "", "compare operations of different torch versions too", configurable=False),
    Setting("--pool-commits", "", "take base runs of several commits as samples of one base", configurable=False),
    Setting("--allow-missing", "", "do not fail when a case or an operation table of the base is missing", configurable=False),
    Setting("--allow-incomparable", "", "a case of another machine or software does not fail", configurable=False),
    Setting(
        "--inconclusive",
        "WHAT",
        "fail or ok: whether a change above a threshold fails where the base runs vary too much to judge it",
        "fail",
        configurable=False,
    ),
    Setting(
        "--accept",
        "CASE:OP:LIMIT",
        "accept an intended regression up to a limit: 'step convnet-b16-cpu:aten::mm:12%'; * matches any text",
        repeatable=True,
        configurable=False,
    ),
    Setting("--reason", "TEXT", "reason for accepting it, shown in the report", configurable=False),
)
