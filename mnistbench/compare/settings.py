"""The settings of a comparison: one list for the options and the configuration files of ``pytest`` and ``mnistbench``.

``thresholds`` reads their values. The list is a module of its own because every pytest session imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from mnistbench.core.errors import UsageError

#: Smallest share of its case, and smallest multiple of the profiler's overhead, of an operation that is judged by itself.
MIN_SHARE, MIN_COST = 0.02, 20


class Setting(NamedTuple):
    """One setting: an option of both commands and, if ``configurable``, a key of their configuration files."""

    flag: str
    metavar: str  # empty for a switch
    help: str
    default: str = ""
    repeatable: bool = False
    configurable: bool = True  # allowed in a configuration file; settings that excuse a failure are not

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


SETTINGS = (
    Setting(
        "--op-fail", "LIMIT", "largest slowdown of an operation that passes: 10%, 'aten::addmm:5%', 'conv2:5%'",
        repeatable=True,
    ),
    Setting("--case-fail", "LIMIT", "largest slowdown of a case that passes: 5%"),
    Setting("--op-min-share", "SHARE", "group operations below this share of their case", f"{MIN_SHARE:.0%}"),
    Setting(
        "--op-min-cost", "TIMES", "group operations shorter than this multiple of the profiler's overhead per call",
        str(MIN_COST),
    ),
    Setting("--by", "KEYS", "sum operations over op, module or op,module", "op,module"),
    Setting("--across-versions", "", "also compare operations of different torch versions", configurable=False),
    Setting("--across-machines", "", "also compare runs of different machines; every table names both", configurable=False),
    Setting("--pool-commits", "", "use base runs of several commits as samples of one base", configurable=False),
    Setting("--allow-missing", "", "do not fail if a case or a table of the base is missing", configurable=False),
    Setting(
        "--allow-incomparable", "", "do not fail if a case was measured on another machine or with other software",
        configurable=False,
    ),
    Setting(
        "--inconclusive", "WHAT", "fail or ok: outcome if the base runs vary too much to judge a change above a threshold",
        "fail", configurable=False,
    ),
    Setting(
        "--accept", "CASE:OP:LIMIT",
        "accept an intended slowdown up to a limit: 'step convnet-b16-cpu:aten::mm:12%'; * matches any text",
        repeatable=True, configurable=False,
    ),
    Setting("--reason", "TEXT", "reason for --accept, shown in the report", configurable=False),
)  # fmt: skip


def project_table() -> tuple[dict[str, Any], Path | None]:
    """Return ``[tool.mnistbench]`` of the nearest pyproject.toml in this directory or above, and the file.

    Raises:
        UsageError: the file cannot be read, or the table has an unknown key or a value of a wrong type.
    """
    here = Path.cwd()
    path = next((folder / "pyproject.toml" for folder in (here, *here.parents) if (folder / "pyproject.toml").is_file()), None)
    if path is None:
        return {}, None
    import tomllib

    try:
        tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read as TOML ({error})") from None
    table = tools.get("mnistbench", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"mnistbench in {path}: {table!r} is not a table; write [tool.mnistbench] and settings below it")
    known = {setting.name: setting for setting in SETTINGS if setting.configurable}
    for name, value in table.items():
        if name not in known:
            raise UsageError(f"{name} in {path}: is not a setting of [tool.mnistbench]; choose of {', '.join(known)}")
        texts = value if known[name].repeatable and isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            needed = "a text or a list of texts" if known[name].repeatable else "a text"
            raise UsageError(f'{name} in {path}: {value!r} is not {needed}; write it in quotes, such as "10%"')
        table[name] = texts if known[name].repeatable else value
    return dict(table), path
