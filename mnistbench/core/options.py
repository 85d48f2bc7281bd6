"""An option is declared once, as a field of a dataclass: spelling, kind, default and help.

::

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        files: tuple[Path, ...] = argument("FILE", path, "trace of torch.profiler", many=True)
        top: int = option("--top", whole(1), "10", "number of operations to show per case", "N")
        quiet: bool = switch("--quiet", "print the result only")

The command line, pytest's options, configuration files and ``docs/reference.md`` read these fields.
A kind is a function that returns the value of a text, or raises ValueError with what is wrong and
the fix: ``is not known; choose op or module``.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from mnistbench.core.errors import UsageError

if TYPE_CHECKING:
    import pytest

_T = TypeVar("_T")
Kind = Callable[[str], _T]

#: The largest batch size, number of epochs or number of trials.
LARGEST_COUNT = 2**31

#: A number with this many digits is too large for any option; int() raises for more than 4,300
#: digits.
_DIGITS = 20

_KEY = "mnistbench option"

#: Texts of a switch, as pytest reads them in its configuration.
_ON = ("true", "yes", "on", "1", "t", "y")
_OFF = ("false", "no", "off", "0", "f", "n")

#: How options begin in pytest, where those of all plug-ins share one command line.
_OF_PYTEST = ("--op-", "--bench-", "--no-op-")


def pytest_flag(flag: str) -> str:
    """Return how pytest spells an option of a command: ``--op-accept`` for ``--accept``."""
    return flag if flag.startswith(_OF_PYTEST) else f"--op-{flag.removeprefix('--')}"


@dataclass(frozen=True)
class Option(Generic[_T]):
    """What a field declares."""

    flags: tuple[str, ...]  # spellings, the long one first; empty for a positional argument
    metavar: str  # empty for a switch
    kind: Kind[_T]
    default: str | None  # as on the command line; None for no value
    help: str
    # An option that can be repeated, or a positional argument with one or more values.
    many: bool = False
    required: bool = True  # of a positional argument
    configurable: bool = False  # allowed in a configuration file
    after_dashes: bool = False  # the texts after --, which argparse does not read
    # Reads an entry of a list in a configuration file that is a table, not a text. Such entries are
    # added to those of the command line.
    table_kind: Callable[[Mapping[str, Any]], _T] | None = None
    # A switch of pytest that may have a value, after an equals sign.
    is_switch_with_value: bool = False
    # Key in configuration files of paths that the command line does not have; else empty.
    file_key: str = ""

    @property
    def name(self) -> str:
        """How errors name it: ``--op-fail``, ``FILE``."""
        return self.flags[0] if self.flags else self.file_key or self.metavar

    @property
    def key(self) -> str:
        """The key in configuration files."""
        return self.file_key or self.name.removeprefix("--").replace("-", "_")

    @property
    def pytest_flag(self) -> str:
        """The spelling in pytest."""
        return pytest_flag(self.flags[0])

    @property
    def pytest_key(self) -> str:
        """The key in pytest's configuration files, and the name of the value in its options."""
        return self.pytest_flag.removeprefix("--").replace("-", "_")

    @property
    def shown(self) -> str:
        """The help with the default, which the help may name itself."""
        if self.default and "(default: " not in self.help:
            return f"{self.help} (default: {self.default})"
        if self.many and self.flags:
            return f"{self.help}; repeatable"
        return self.help

    @property
    def empty(self) -> Any:
        """The value if none is given."""
        if not self.metavar or self.is_switch_with_value:
            return False
        if self.many:
            return ()
        return None if self.default is None else self.kind(self.default)

    def read(self, words: Any, name: str) -> Any:
        """Return the value of a text, of a list of texts if ``many``, of a flag for a switch.

        Args:
            words: the text, the texts or the flag.
            name: what errors call the option: its flag, or its key and the configuration file.
        """
        if not self.metavar:
            return bool(words)
        if self.is_switch_with_value:
            word = str(words).strip().lower()
            if word in (*_ON, *_OFF):
                return word in _ON
        if self.after_dashes:
            return tuple(words)
        if self.many:
            return tuple(self._value(text, name) for text in words)
        return self._value(words, name)

    def _value(self, text: str | Mapping[str, Any], name: str) -> _T:
        try:
            if not isinstance(text, str):
                assert self.table_kind is not None  # tool_table checks the types
                return self.table_kind(text)
            if not text.strip():  # an unset variable of a script must not disable a threshold
                raise ValueError("is empty; give a value, or leave it out")  # noqa: TRY301
            return self.kind(text)
        except ValueError as error:
            raise UsageError(f"{name}: {text!r} {error}") from None


# ---- Declaring -----------------------------------------------------------------------------------


def option(
    flags: str,
    kind: Kind[Any],
    default: str | None,
    text: str,
    metavar: str,
    *,
    many: bool = False,
    configurable: bool = False,
    table_kind: Callable[[Mapping[str, Any]], Any] | None = None,
) -> Any:
    """Return the field of an option with a value.

    Args:
        flags: its spellings, separated by spaces, the long one first: ``"--output -o"``.
        kind: text -> value.
        default: text of the default; None for the value None, or () if ``many``.
        text: the help; the default is added.
        metavar: placeholder of the value.
        many: whether it can be repeated; the field is a tuple.
        configurable: whether configuration files may have it.
        table_kind: reads an entry of a configuration file, which is a table there.
    """
    return _declared(
        Option(
            tuple(flags.split()),
            metavar,
            kind,
            default,
            text,
            many=many,
            configurable=configurable,
            table_kind=table_kind,
        )
    )


def switch(flags: str, text: str, *, configurable: bool = False) -> Any:
    """Return the field of an option without a value; False by default."""
    return _declared(Option(tuple(flags.split()), "", str, None, text, configurable=configurable))


def switch_with_value(flag: str, kind: Kind[Any], text: str, metavar: str) -> Any:
    """Return the field of a switch of pytest that may have a value.

    It is configurable. ``--flag`` is True and ``--flag=TEXT`` the value of the text; ``true`` and
    ``false`` are texts of the switch. False by default. Its plug-in calls :func:`keep_paths`.
    """
    return _declared(
        Option((flag,), metavar, kind, None, text, configurable=True, is_switch_with_value=True)
    )


def argument(
    metavar: str, kind: Kind[Any], text: str, *, many: bool = False, required: bool = True
) -> Any:
    """Return the field of a positional argument.

    A tuple of one or more values if ``many``, none or more if not required.
    """
    return _declared(Option((), metavar, kind, None, text, many=many, required=required))


def after_dashes(metavar: str, text: str) -> Any:
    """Return the field of the texts after ``--``.

    The caller of :func:`read` gives them by the field's name.
    """
    return _declared(
        Option((), metavar, str, None, text, many=True, required=False, after_dashes=True)
    )


def path_setting(key: str, kind: Kind[Any], text: str) -> Any:
    """Return the field of paths that configuration files alone have: one of them, or a list.

    The field is a tuple. In the file they are relative to its folder, the values to this one.
    """
    return _declared(
        Option((), "PATH", kind, None, text, many=True, configurable=True, file_key=key)
    )


def _declared(declaration: Option[Any]) -> Any:
    return field(default=declaration.empty, metadata={_KEY: declaration})


def options_of(settings: type) -> dict[str, Option[Any]]:
    """Return the options of a dataclass: field -> option.

    Fields that are no options are left out.
    """
    return {
        setting.name: setting.metadata[_KEY]
        for setting in fields(settings)
        if _KEY in setting.metadata
    }


# ---- Reading -------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as those of values are."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is no choice, and name the one that is probably meant."""
        if action.choices is not None and value not in action.choices:
            names = ", ".join(map(str, action.choices))
            meant = did_you_mean(value, action.choices) or f"; choose of {names}"
            raise argparse.ArgumentError(action, f"{value!r} is not known{meant}")

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with argparse's message."""
        complaint = message.removeprefix("argument ")
        separator = "" if complaint.endswith("?") else ";"
        raise UsageError(f"{complaint}{separator} see: {self.prog} --help")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean compare?`` for a word that is nearly known; empty if none is."""
    from difflib import get_close_matches  # every pytest session imports this module

    meant = get_close_matches(word, list(known), 1)
    return f"; did you mean {meant[0]}?" if meant else ""


def add_options(parser: argparse.ArgumentParser, settings: type) -> None:
    """Declare the options of a dataclass for a command line.

    Values stay texts until :func:`read`.
    """
    for name, declared in options_of(settings).items():
        text = declared.shown.replace("%", "%%")
        if declared.file_key:
            continue
        if declared.after_dashes:
            parser.usage = f"%(prog)s [options] [-- {declared.metavar} ...]"
            parser.epilog = f"Arguments after --: {text}"
            continue
        if not declared.flags:
            nargs: str | None = "+" if declared.required else "*"
            if not declared.many:
                nargs = None if declared.required else "?"
            parser.add_argument(name, metavar=declared.metavar, nargs=nargs, help=text)
        elif not declared.metavar:
            parser.add_argument(*declared.flags, dest=name, action="store_true", help=text)
        else:
            action = "append" if declared.many else "store"
            parser.add_argument(
                *declared.flags, dest=name, metavar=declared.metavar, action=action, help=text
            )


def read(
    settings: type[_T],
    command_line: Mapping[str, Any],
    configured: Mapping[str, Any] | None = None,
    file: object = None,
    *,
    in_pytest: bool = False,
    **more: Any,
) -> _T:
    """Return the settings; the command line overrides the configuration file.

    A field ``given_fields`` of the dataclass that is no option gets the names of the fields that
    the command line gives, and a field ``in_pytest`` whether options are spelled as there.

    Args:
        settings: the dataclass.
        command_line: field -> text, list of texts or flag; None, False or an empty list if it was
            not given.
        configured: key -> the same of the configuration file.
        file: the configuration file, for errors.
        in_pytest: whether names and keys are those of pytest.
        more: fields that are no options.
    """
    values = dict(more)
    given = set()
    for name, declared in options_of(settings).items():
        words = command_line.get(name)
        key = declared.pytest_key if in_pytest else declared.key
        if words not in (None, False, []):
            values[name] = declared.read(
                words, declared.pytest_flag if in_pytest else declared.name
            )
            given.add(name)
        if not declared.configurable or not configured or key not in configured:
            continue
        if in_pytest and configured[key] == "":  # pytest's value of a key that its file has not
            continue
        if name not in given:
            values[name] = declared.read(configured[key], f"{key} in {file}")
        elif declared.table_kind:
            values[name] += declared.read(configured[key], f"{key} in {file}")
    names = {setting.name for setting in fields(settings)}  # type: ignore[arg-type]
    if in_pytest and "in_pytest" in names:
        values["in_pytest"] = True
    if "given_fields" in names:
        values["given_fields"] = frozenset(given)
    return settings(**values)


def plain(settings: Any, leave_out: Iterable[str] = ()) -> dict[str, Any]:
    """Return the options of a dataclass for JSON: field -> value, paths as texts."""
    names = [name for name in options_of(type(settings)) if name not in leave_out]
    values = {name: getattr(settings, name) for name in names}
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in values.items()
    }


#: The tables below ``[tool.mnistbench]``.
_TABLES = ("gate",)


@dataclass(frozen=True)
class ToolTable:
    """A table of pyproject.toml that several commands read, each what it has of it."""

    name: str  # below [tool.mnistbench]; empty for that table itself
    settings: type  # whose configurable options it may have

    @property
    def title(self) -> str:
        """The heading of the table in the file."""
        return f"[tool.mnistbench{self.name and f'.{self.name}'}]"

    @property
    def options(self) -> dict[str, Option[Any]]:
        """Key -> option."""
        return {
            declared.key: declared
            for declared in options_of(self.settings).values()
            if declared.configurable
        }


def tool_table(settings: type) -> tuple[dict[str, Any], Path | None]:
    """Return the table of these settings in the nearest pyproject.toml, and the file.

    The table is ``[tool.mnistbench]``, or the attribute ``tool_table`` of the dataclass. The file
    is in this directory or above. It is not read for settings without a configurable option.
    """
    table = getattr(settings, "tool_table", ToolTable("", settings))
    known = table.options
    folders = (Path.cwd(), *Path.cwd().parents)
    files = (folder / "pyproject.toml" for folder in folders)
    file = next((file for file in files if file.is_file()), None)
    if file is None or not known:
        return {}, None
    values = _table_of(file, table)
    for key, value in values.items():
        if key not in known:
            raise UsageError(
                f"{key} in {file}: is not a setting of {table.title}; choose of {', '.join(known)}"
            )
        words = _words(known[key], value, f"{key} in {file}")
        if known[key].file_key and file.parent != Path.cwd():
            words = [os.path.relpath(file.parent / text) for text in words]
        values[key] = words
    return values, file


def _words(declared: Option[Any], value: Any, name: str) -> Any:
    """Return the value of a setting as a command line would have it: texts, or a flag.

    Raises:
        UsageError: it has another type.
    """
    if not declared.metavar:
        if isinstance(value, bool):
            return value
        raise UsageError(f"{name}: {value!r} is not true or false")
    if declared.table_kind:
        if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
            return value
        raise UsageError(f"{name}: {value!r} is not a list of tables; give [{{...}}, {{...}}]")
    texts = value if declared.many and isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        needed = "a string or a list of strings" if declared.many else "a string"
        raise UsageError(f'{name}: {value!r} is not {needed}; write it in quotes, such as "10%"')
    return texts if declared.many else value


def _table_of(file: Path, wanted: ToolTable) -> dict[str, Any]:
    """Return a table of a pyproject.toml; empty if the file does not have it."""
    import tomllib

    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file}: cannot be read as TOML ({error})") from None
    tools = table if isinstance(table, dict) else {}
    table = _inner(tools, "mnistbench", "[tool.mnistbench]", file)
    tables = {key: value for key, value in table.items() if isinstance(value, dict)}
    for name in tables.keys() - {*_TABLES}:
        raise UsageError(
            f"{name} in {file}: is not a table of [tool.mnistbench]; choose of {', '.join(_TABLES)}"
        )
    if wanted.name:
        return _inner(table, wanted.name, wanted.title, file)
    return {key: value for key, value in table.items() if key not in tables}


def _inner(table: Mapping[str, Any], name: str, title: str, file: Path) -> dict[str, Any]:
    inner = table.get(name, {})
    if not isinstance(inner, dict):
        raise UsageError(
            f"{name} in {file}: {inner!r} is not a table; write {title} and settings below it"
        )
    return inner


def add_pytest_options(parser: pytest.Parser, title: str, text: str, settings: type) -> None:
    """Declare the options of a dataclass for pytest's command line.

    Those that are configurable are declared for its configuration files, too.
    """
    group = parser.getgroup(title, text)
    for declared in options_of(settings).values():
        action = "append" if declared.many else "store"
        value: dict[str, Any] = {"metavar": declared.metavar, "default": None}
        ini_type: Any = "linelist" if declared.many else "string"
        if not declared.metavar:
            action = "store_true"
            value = {"default": False}
            ini_type = "bool"
        if declared.is_switch_with_value:
            value |= {"nargs": "?", "const": True}
            if _pytest_version() >= (9, 2):  # before, true in [tool.pytest] has to be in quotes
                ini_type = bool | str
        help_text = declared.shown.replace("%", "%%")
        group.addoption(
            declared.pytest_flag, dest=declared.pytest_key, action=action, help=help_text, **value
        )
        if declared.configurable:
            parser.addini(
                declared.pytest_key,
                f"{declared.pytest_flag}: {declared.help}",
                type=ini_type,
                default=[] if declared.many else None,
            )


def _pytest_version() -> tuple[int | str, ...]:
    import pytest

    return pytest.version_tuple


def keep_paths(
    settings: type, early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> None:
    """Keep switches that may have a value from taking the path that follows them.

    argparse takes it, because it does not ask for the equals sign. To be called first in the hook
    ``pytest_load_initial_conftests``, whose list of arguments pytest reads afterwards.
    """
    switches = {
        declared.pytest_flag: declared.pytest_key
        for declared in options_of(settings).values()
        if declared.is_switch_with_value
    }
    if switches.keys().isdisjoint(args):
        return
    args[:] = [f"{word}=true" if word in switches else word for word in args]
    # pytest has read them once, to find the first conftest.py files.
    known = early_config.known_args_namespace
    read_again = parser.parse_known_args(args, namespace=copy.copy(early_config.option))
    for name in ("file_or_dir", *switches.values()):
        setattr(known, name, getattr(read_again, name))


def read_pytest(settings: type[_T], config: pytest.Config, **more: Any) -> _T:
    """Return the settings of a session; see :func:`read`."""
    options = options_of(settings)
    command_line = {
        name: config.getoption(declared.pytest_key) for name, declared in options.items()
    }
    try:
        configured = {
            declared.pytest_key: config.getini(declared.pytest_key) or ""
            for declared in options.values()
            if declared.configurable
        }
    except TypeError as error:  # pytest 9.0 and 9.1: the type of a value in [tool.pytest]
        raise UsageError(str(error)) from None
    return read(settings, command_line, configured, config.inipath, in_pytest=True, **more)


# ---- Kinds ---------------------------------------------------------------------------------------


#: The kind of paths.
path: Kind[Path] = Path


def one_of(*choices: str) -> Kind[str]:
    """Return a kind for one of the choices."""

    def read_choice(text: str) -> str:
        if text not in choices:
            raise ValueError(f"is not known; choose {' or '.join(choices)}")
        return text

    return read_choice


def whole(least: int, most: int = LARGEST_COUNT) -> Kind[int]:
    """Return a kind for whole numbers within bounds."""

    def read_whole(text: str) -> int:
        digits = text.strip().lstrip("0") or "0"
        value = least - 1
        if re.fullmatch(r"[0-9]+", text.strip()):
            value = int(digits) if len(digits) < _DIGITS else most + 1
        if not least <= value <= most:
            has_no_bound = most >= LARGEST_COUNT and value < least
            bounds = f"at least {least}" if has_no_bound else f"{least} to {most}"
            raise ValueError(f"cannot be used; give a whole number, {bounds}")
        return value

    return read_whole


def number(least: float = 0.0, most: float = sys.float_info.max) -> Kind[float]:
    """Return a kind for numbers above 0, within bounds."""
    bounds = f"from {least:g} to {most:g}" if least else "above 0"

    def read_number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (value > 0 and least <= value <= most):
            raise ValueError(f"cannot be used; give a number {bounds}")
        return value

    return read_number


def share(most: float = 1e4, *, zero: bool = False) -> Kind[float]:
    """Return a kind for percentages above 0: ``2%`` is 0.02.

    Args:
        most: the largest share; by default larger ones would let anything pass.
        zero: whether 0 % is allowed, too, also as ``0``.
    """

    def read_share(text: str) -> float:
        if zero and text.strip() == "0":
            return 0.0
        percentage = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text, re.ASCII)
        # With an exponent: dividing by 100 would round a second time.
        value = float(f"{percentage[1]}e-2") if percentage else math.nan
        if not (value <= most and (value > 0 or zero)):
            raise ValueError("is not a percentage that can be used; give 2%")
        return value

    return read_share


_UNITS_S = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def seconds(text: str) -> float:
    """Return a time in seconds: ``5m``, ``300s``, ``300``."""
    time = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)\s*(s|m|min|h|)", text.strip(), re.ASCII)
    if not time or float(time[1]) <= 0:
        raise ValueError("is not a time; give 5m or 300s")
    return float(time[1]) * _UNITS_S[time[2]]


def several(kind: Kind[_T]) -> Kind[tuple[_T, ...]]:
    """Return a kind for comma lists: the distinct values of its entries."""

    def read_several(text: str) -> tuple[_T, ...]:
        entries = [entry.strip() for entry in text.split(",")]
        if not all(entries):
            raise ValueError("has an empty entry; give a comma list such as its default")
        values = []
        for entry in entries:
            try:
                values.append(kind(entry))
            except ValueError as error:
                raise ValueError(
                    str(error) if len(entries) == 1 else f"has an entry {entry!r}, which {error}"
                ) from None
        return tuple(dict.fromkeys(values))

    return read_several


def some_of(*choices: str) -> Kind[tuple[str, ...]]:
    """Return a kind for comma lists of the choices."""
    return several(one_of(*choices))


# ---- Options that several commands share ---------------------------------------------------------

#: How the rows of a table are summed.
GROUPINGS = ("op", "module", "op,module")


def grouping(text: str) -> str:
    """Return one of GROUPINGS; the order and spaces of ``op,module`` are free."""
    keys = text.replace(" ", "")
    return one_of(*GROUPINGS)("op,module" if keys == "module,op" else keys)


def top(
    flag: str = "--top",
    text: str = "number of operations to show per case",
    *,
    configurable: bool = False,
) -> Any:
    """Declare how many operations a table shows."""
    return option(flag, whole(1), "10", text, "N", configurable=configurable)


def by(*, configurable: bool = False) -> Any:
    """Declare how rows are summed."""
    return option(
        "--by",
        grouping,
        "op,module",
        "group by op, module or op,module",
        "KEYS",
        configurable=configurable,
    )


def output(default: str | None = None, text: str = "") -> Any:
    """Declare the file to write; without a default and a text of its own, it is printed instead."""
    text = text or ("output file" if default else "write to this file instead of printing")
    return option("--output -o", path, default, text, "FILE")


def output_directory(text: str, default: str | None = None) -> Any:
    """Declare the directory to write."""
    return option("--output -o", path, default, text, "DIR")


def output_format(more: Iterable[str] = ()) -> Any:
    """Declare the format: terminal, markdown, json, or one of ``more``."""
    choices: Sequence[str] = ("terminal", "markdown", "json", *more)
    return option("--format", one_of(*choices), "terminal", f"format: {', '.join(choices)}", "NAME")


def storage() -> Any:
    """Declare the directory of saved runs."""
    return option("--storage", path, ".benchmarks", "directory of saved runs", "DIR")


def iterations(
    flag: str = "--iterations",
    text: str = "profiled iterations of each case",
    default: str = "10",
    *,
    configurable: bool = False,
) -> Any:
    """Declare how often each case runs; 10 are enough for the medians of a table of shares."""
    return option(flag, whole(1), default, text, "N", configurable=configurable)
