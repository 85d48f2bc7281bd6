"""The settings of a comparison: one list for the options of ``pytest`` and ``mnistbench``, and for configuration files.

``thresholds`` reads their values. The list is a module of its own because every pytest run loads it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

#: Smallest share of its case, and smallest multiple of the profiler's overhead, of an operation that is judged by itself.
MIN_SHARE, MIN_COST = 0.02, 20


class Setting(NamedTuple):
    """One setting."""

    flag: str
    metavar: str  # empty for a switch
    help: str
    default: str = ""
    repeatable: bool = False
    configurable: bool = True  # allowed in a configuration file; settings that excuse a failure are not

    @property
    def name(self) -> str:
        """The name in configuration files."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def shown(self) -> str:
        """The help with the default, escaped for argparse."""
        default = f" (default: {self.default})" if self.default else "; repeatable" if self.repeatable else ""
        return (self.help + default).replace("%", "%%")

    @property
    def empty(self) -> Any:
        """The value if the user gives none."""
        return [] if self.repeatable else self.default if self.metavar else False


SETTINGS = (
    Setting(
        "--op-fail",
        "LIMIT",
        "fail if an operation is slower by more than the limit: 10%, 'aten::addmm:5%', 'conv2:5%'",
        repeatable=True,
    ),
    Setting("--case-fail", "LIMIT", "fail if an iteration is slower by more than the limit: 5%"),
    Setting("--op-min-share", "SHARE", "judge operations with a smaller share of their case together", f"{MIN_SHARE:.0%}"),
    Setting(
        "--op-min-cost",
        "TIMES",
        "judge operations shorter than this multiple of the profiler's overhead per call together",
        str(MIN_COST),
    ),
    Setting("--by", "KEYS", "sum operations by op, module or op,module", "op,module"),
    Setting("--across-versions", "", "compare operations of different torch versions", configurable=False),
    Setting("--pool-commits", "", "use base runs of several commits as samples of one base", configurable=False),
    Setting("--allow-missing", "", "do not fail for a case or table of the base that is missing now", configurable=False),
    Setting("--allow-incomparable", "", "do not fail for a case of another machine or software", configurable=False),
    Setting(
        "--inconclusive",
        "WHAT",
        "fail or ok: the result for a change above a threshold if the base runs vary too much to judge it",
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
    Setting("--reason", "TEXT", "reason for --accept, shown in the report", configurable=False),
)
