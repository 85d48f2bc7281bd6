"""The settings of a comparison: options and configuration files of ``pytest`` and ``mnistbench`` -> ``Criteria``.

Every pytest session imports this module, so the parts that read values import what they need themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mnistbench.core.errors import UsageError

if TYPE_CHECKING:
    from mnistbench.compare.thresholds import Criteria


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
    Setting("--allow-missing", "", "a case or table of the base that is missing does not fail", configurable=False),
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
        "an intended regression and how much slower it may get: 'step convnet-b16-cpu:aten::mm:12%'; * matches any text",
        repeatable=True,
        configurable=False,
    ),
    Setting("--reason", "TEXT", "why it is accepted, for the report", configurable=False),
)


def criteria_of(given: Mapping[str, Any], configured: Mapping[str, Any], file: object) -> Criteria:
    """Return what a comparison is judged by; an option overrides the configuration file.

    Args:
        given: setting -> the option's value, None or False if it was not given.
        configured: setting -> its value in the configuration file.
        file: the configuration file, for errors.

    Raises:
        UsageError: names the option, or the key and its file, and the value.
    """
    from mnistbench.compare.thresholds import Criteria

    texts, origins = {}, {}
    for setting in SETTINGS:
        value = given.get(setting.name)
        if value == "":  # an unset variable of a script must not disable a threshold
            raise UsageError(f"{setting.flag}: '' is no value; give one, or leave the option out")
        from_file = not value and setting.name in configured
        texts[setting.name] = value or configured.get(setting.name, setting.empty)
        origins[setting.name] = f"{setting.name} in {file}" if from_file else setting.flag
    return Criteria.from_texts(texts, origins.__getitem__)


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
