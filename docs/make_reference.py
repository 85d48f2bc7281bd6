"""Write docs/reference.md, all options and settings, from their declarations.

``python docs/make_reference.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from mnistbench import cli
from mnistbench.compare.criteria import Criteria
from mnistbench.core import units
from mnistbench.core.extras import install
from mnistbench.core.options import Option, ToolTable, options_of
from mnistbench.gate.options import TOOL_TABLE
from mnistbench.pytest_plugin.options import Options
from mnistbench.suite.op_benchmark.options import CaseOptions

PAGE = Path(__file__).with_name("reference.md")


def reference() -> str:
    """Return the page, Markdown."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield "# Reference"
    yield ""
    yield (
        "All options and settings. This page is generated: run `python docs/make_reference.py` "
        "after changing an option."
    )
    yield ""
    yield "## Commands"
    yield ""
    for name, command in cli.COMMANDS.items():
        path = command.module
        needs = units.joined(command.needs) if path else ""
        need = f" It needs {needs}: `{install(command.needs[0])}`." if needs else ""
        shown = f"{_text(command.text[0].upper() + command.text[1:])}.{need}"
        yield from (f"### `mnistbench {name}`", "", shown, "")
        where, _, settings = path.partition(":")
        options = (
            options_of(getattr(import_module(f"mnistbench.{where}"), settings or "Settings"))
            if path
            else {}
        )
        options = {name: option for name, option in options.items() if not option.file_key}
        if options:
            rows = ((_usage(option), _text(option.shown)) for option in options.values())
            yield from (*_table(("Argument", "Meaning"), rows), "")
    yield "## pytest"
    yield ""
    yield (
        "Each option with a setting can also be set in pytest's configuration; the command line "
        "overrides it."
    )
    yield ""
    yield from (*_settings(Options), "")
    yield "These are for tests that use `op_benchmark`:"
    yield ""
    yield from (*_settings(CaseOptions), "")
    yield "These settings apply to `--benchmark-compare`:"
    yield ""
    yield from (*_settings(Criteria), "")
    yield "## `[tool.mnistbench]`"
    yield ""
    yield (
        "`mnistbench compare` and `report` read these settings from the nearest `pyproject.toml`; "
        "options override them."
    )
    yield ""
    yield from (*_table_of_settings(ToolTable("", Criteria)), "")
    yield "## `[tool.mnistbench.gate]`"
    yield ""
    yield (
        "`mnistbench gate` and `bisect` read these settings, and `judge` those that are no "
        "thresholds. Options override them; the entries of `accept` are added to `--accept`."
    )
    yield ""
    yield from _table_of_settings(TOOL_TABLE)


def _table_of_settings(table: ToolTable) -> Iterator[str]:
    rows = (
        (f"`{key}`", _type(option), _text(option.shown)) for key, option in table.options.items()
    )
    return _table(("Setting", "Type", "Meaning"), rows)


def _type(option: Option) -> str:
    """Return the type of a setting in a file."""
    if not option.metavar:
        return "true or false"
    if option.table_kind:
        return "list of tables: `case`, `reason` and perhaps `until`"
    return (
        "text, or list of texts" if option.file_key else "list of texts" if option.many else "text"
    )


def _settings(settings: type) -> Iterator[str]:
    """Yield a table of pytest's options, with their keys in its configuration."""
    options = options_of(settings).values()
    rows = (
        (
            _usage(replace(option, flags=(option.pytest_flag,))),
            f"`{option.pytest_key}`" if option.configurable else "-",
            _text(option.shown),
        )
        for option in options
    )
    return _table(("Option", "Setting", "Meaning"), rows)


def _usage(option: Option) -> str:
    """Return the spellings of an option, each with its placeholder.

    ``-o FILE``, ``--output FILE``.
    """
    if not option.flags:
        return f"`{option.metavar} ...`" if option.many else f"`{option.metavar}`"
    if option.is_switch_with_value:
        return f"`{option.flags[0]}[={option.metavar}]`"
    return ", ".join(
        f"`{flag} {option.metavar}`" if option.metavar else f"`{flag}`" for flag in option.flags
    )


def _text(shown: str) -> str:
    """Return the text of a help, in which ``|`` and ``*`` are no Markdown."""
    return shown.replace("|", r"\|").replace("*", r"\*")


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for cells in (titles, ["---"] * len(titles), *rows):
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
