"""The options of a comparison for commands that still declare theirs by hand."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from mnistbench.compare.criteria import Criteria
from mnistbench.core.options import options_of, project_table, read


class Setting(NamedTuple):
    """One option."""

    flag: str
    metavar: str
    help: str
    default: str
    repeatable: bool
    configurable: bool

    @property
    def name(self) -> str:
        """The key in configuration files."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def shown(self) -> str:
        """The help with the default, escaped for argparse."""
        default = f" (default: {self.default})" if self.default else "; repeatable" if self.repeatable else ""
        return (self.help + default).replace("%", "%%")

    @property
    def empty(self) -> Any:
        """The value if nothing was given."""
        return [] if self.repeatable else self.default if self.metavar else False


SETTINGS = tuple(
    Setting(each.flags[0], each.metavar, each.help, each.default or "", each.many, each.configurable)
    for each in options_of(Criteria).values()
)


def criteria(parsed: argparse.Namespace) -> Criteria:
    """Return what a comparison is judged by, of options that ``add_settings`` declared."""
    configured, file = project_table(Criteria)
    given = {name: getattr(parsed, each.key, None) for name, each in options_of(Criteria).items()}
    return read(Criteria, given, configured, file)
