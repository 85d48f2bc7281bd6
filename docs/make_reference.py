"""Write docs/reference.md, all options and settings, from the parsers: ``python docs/make_reference.py``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mnistbench import cli

PAGE = Path(__file__).with_name("reference.md")

#: argparse of Python 3.11 and 3.12 appends this to the help of ``--x, --no-x``.
_APPENDED = " (default: %(default)s)"


def reference() -> str:
    """Return the page, Markdown."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield "# Reference"
    yield ""
    yield "All options and settings. This page is generated: run `python docs/make_reference.py` after changing an option."
    yield ""
    yield "## Commands"
    yield ""
    yield from _commands("mnistbench", cli.parser())
    yield "## pytest"
    yield ""
    yield "Each option with a setting can also be set in pytest's configuration; the command line overrides it."
    yield ""
    yield from (*_settings(Options), "")
    yield "These settings apply to `--benchmark-compare`:"
    yield ""
    yield from (*_settings(Criteria), "")
    yield "## `[tool.mnistbench]`"
    yield ""
    yield ("`mnistbench compare` and `report` read these settings from the nearest `pyproject.toml`; options override them.")
    yield ""
    table = [
        (f"`{each.key}`", "list of texts" if each.many else "text", _text(each.shown))
        for each in options_of(Criteria).values()
        if each.configurable
    ]
    yield from _table(("Setting", "Type", "Meaning"), table)


def _settings(declared: type) -> Iterator[str]:
    """Yield the table of pytest's options that a dataclass declares."""
    rows = [
        (_flag(each.flags[0], each.metavar), f"`{each.key}`" if each.configurable else "-", _text(each.shown))
        for each in options_of(declared).values()
    ]
    return _table(("Option", "Setting", "Meaning"), rows)


def _commands(called: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a section for each subcommand, and for those that it has."""
    for action in parser._actions:  # noqa: SLF001
        for name, subparser in action.choices.items() if isinstance(action.choices, dict) else ():
            yield from (f"### `{called} {name}`", "", f"{_text(subparser.description)}.", "")
            rows = [
                (_usage(one), _text(one.help))
                for one in subparser._actions  # noqa: SLF001
                if one.dest != "help" and not isinstance(one.choices, dict)
            ]
            if rows:
                yield from (*_table(("Argument", "Meaning"), rows), "")
            yield from _commands(f"{called} {name}", subparser)


def _usage(action: argparse.Action) -> str:
    """Return the spellings of an argument, each with its placeholder: ``-o FILE``, ``--output FILE``."""
    placeholder = action.metavar or (f"{{{','.join(action.choices)}}}" if action.choices else "")
    if action.nargs in ("*", "+"):
        placeholder = f"{placeholder} ..."
    if not action.option_strings:
        return f"`{placeholder}`"
    return ", ".join(_flag(flag, placeholder if action.nargs != 0 else "") for flag in action.option_strings)


def _flag(flag: str, placeholder: object) -> str:
    return f"`{flag} {placeholder}`" if placeholder else f"`{flag}`"


def _text(shown: str | None) -> str:
    """Return the text of a help: argparse doubles percent signs, and Markdown gives ``|`` and ``*`` a meaning."""
    text = (shown or "").removesuffix(_APPENDED).replace("%%", "%")
    return text.replace("|", r"\|").replace("*", r"\*")


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for cells in (titles, ["---"] * len(titles), *rows):
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
