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
import math
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

#: The largest batch size, number of epochs or number of launches.
LARGEST_COUNT = 2**31

#: The largest number of threads: OpenMP crashes if the system cannot create that many.
MOST_THREADS = 1024

#: A number with this many digits is too large for any option; int() raises for more than 4,300
#: digits.
_DIGITS = 20

_KEY = "mnistbench option"


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

    @property
    def name(self) -> str:
        """How errors name it: ``--op-fail``, ``FILE``."""
        return self.flags[0] if self.flags else self.metavar

    @property
    def key(self) -> str:
        """The key in configuration files."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def shown(self) -> str:
        """The help with the default."""
        default = (
            f" (default: {self.default})"
            if self.default
            else "; repeatable"
            if self.many and self.flags
            else ""
        )
        return self.help + default

    @property
    def empty(self) -> Any:
        """The value if none is given."""
        return (
            False
            if not self.metavar
            else ()
            if self.many
            else None
            if self.default is None
            else self.kind(self.default)
        )

    def read(self, given: Any, name: str) -> Any:
        """Return the value of a text, of a list of texts if ``many``, of a flag for a switch.

        Args:
            given: the text, the texts or the flag.
            name: what errors call the option: its flag, or its key and the configuration file.
        """
        if not self.metavar:
            return bool(given)
        if self.after_dashes:
            return tuple(given)
        return (
            tuple(self._value(text, name) for text in given)
            if self.many
            else self._value(given, name)
        )

    def _value(self, text: str, name: str) -> _T:
        try:
            if not text.strip():  # an unset variable of a script must not disable a threshold
                raise ValueError("is no value; give one, or leave the option out")  # noqa: TRY301
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
    """
    return _declared(
        Option(
            tuple(flags.split()), metavar, kind, default, text, many=many, configurable=configurable
        )
    )


def switch(flags: str, text: str, *, configurable: bool = False) -> Any:
    """Return the field of an option without a value; False by default."""
    return _declared(Option(tuple(flags.split()), "", str, None, text, configurable=configurable))


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


def _declared(made: Option[Any]) -> Any:
    return field(default=made.empty, metadata={_KEY: made})


def options_of(settings: type) -> dict[str, Option[Any]]:
    """Return the options of a dataclass: field -> option.

    Fields that are no options are left out.
    """
    return {each.name: each.metadata[_KEY] for each in fields(settings) if _KEY in each.metadata}


# ---- Reading -------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as those of values are."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with argparse's message."""
        raise UsageError(f"{message.removeprefix('argument ')}; see: {self.prog} --help")


def add_options(parser: argparse.ArgumentParser, settings: type) -> None:
    """Declare the options of a dataclass for a command line.

    Values stay texts until :func:`read`.
    """
    for name, each in options_of(settings).items():
        text = each.shown.replace("%", "%%")
        if each.after_dashes:
            continue
        if not each.flags:
            nargs = ("+" if each.required else "*") if each.many else None if each.required else "?"
            parser.add_argument(name, metavar=each.metavar, nargs=nargs, help=text)
        elif not each.metavar:
            parser.add_argument(*each.flags, dest=name, action="store_true", help=text)
        else:
            action = "append" if each.many else "store"
            parser.add_argument(
                *each.flags, dest=name, metavar=each.metavar, action=action, help=text
            )


def read(
    settings: type[_T],
    given: Mapping[str, Any],
    configured: Mapping[str, Any] | None = None,
    file: object = None,
    **more: Any,
) -> _T:
    """Return the settings; the command line overrides the configuration file.

    A field ``given`` of the dataclass that is no option gets the names of the fields that have a
    value there.

    Args:
        settings: the dataclass.
        given: field -> text, list of texts or flag of the command line; None, False or an empty
            list if it was not given.
        configured: key -> the same of the configuration file.
        file: the configuration file, for errors.
        more: fields that are no options.
    """
    values = dict(more)
    for name, each in options_of(settings).items():
        value = given.get(name)
        called = each.name
        if (
            value in (None, False, [])
            and each.configurable
            and configured
            and each.key in configured
        ):
            value = configured[each.key]
            called = f"{each.key} in {file}"
            if value == "":  # pytest's value of a key that its file does not have
                continue
        if value not in (None, False, []):
            values[name] = each.read(value, called)
    if any(each.name == "given" for each in fields(settings)):  # type: ignore[arg-type]
        values["given"] = frozenset(values) - frozenset(more)
    return settings(**values)


def plain(settings: Any, leave_out: Iterable[str] = ()) -> dict[str, Any]:
    """Return the options of a dataclass for JSON: field -> value, paths as texts."""
    names = [name for name in options_of(type(settings)) if name not in leave_out]
    values = {name: getattr(settings, name) for name in names}
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in values.items()
    }


def project_table(settings: type) -> tuple[dict[str, Any], Path | None]:
    """Return ``[tool.mnistbench]`` of the nearest pyproject.toml, and the file.

    It is in this directory or above.

    The table is not read for settings without an option that it may have.
    """
    known = {each.key: each for each in options_of(settings).values() if each.configurable}
    here = Path.cwd()
    found = next(
        (
            folder / "pyproject.toml"
            for folder in (here, *here.parents)
            if (folder / "pyproject.toml").is_file()
        ),
        None,
    )
    if found is None or not known:
        return {}, None
    import tomllib

    try:
        tools = tomllib.loads(found.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{found}: cannot be read as TOML ({error})") from None
    table = tools.get("mnistbench", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(
            f"mnistbench in {found}: {table!r} is not a table; write [tool.mnistbench] and "
            "settings below it"
        )
    for key, value in table.items():
        if key not in known:
            raise UsageError(
                f"{key} in {found}: is not a setting of [tool.mnistbench]; choose of "
                f"{', '.join(known)}"
            )
        if not known[key].metavar:
            if not isinstance(value, bool):
                raise UsageError(
                    f"{key} in {found}: {value!r} is not true or false; write {key} = true"
                )
            continue
        texts = value if known[key].many and isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            needed = "a text or a list of texts" if known[key].many else "a text"
            raise UsageError(
                f'{key} in {found}: {value!r} is not {needed}; write it in quotes, such as "10%"'
            )
        table[key] = texts if known[key].many else value
    return dict(table), found


def add_pytest_options(parser: pytest.Parser, title: str, text: str, settings: type) -> None:
    """Declare the options of a dataclass for pytest's command line.

    Those that are configurable are declared for its configuration files, too.
    """
    group = parser.getgroup(title, text)
    for each in options_of(settings).values():
        action = "store_true" if not each.metavar else "append" if each.many else "store"
        value = {"metavar": each.metavar, "default": None} if each.metavar else {"default": False}
        group.addoption(
            *each.flags, dest=each.key, action=action, help=each.shown.replace("%", "%%"), **value
        )
        if each.configurable:
            kind: Any = "bool" if not each.metavar else "linelist" if each.many else "string"
            parser.addini(
                each.key,
                f"{each.flags[0]}: {each.help}",
                type=kind,
                default=[] if each.many else None,
            )


def read_pytest(settings: type[_T], config: pytest.Config, **more: Any) -> _T:
    """Return the settings of a session; see :func:`read`."""
    options = options_of(settings)
    given = {name: config.getoption(each.key) for name, each in options.items()}
    configured = {
        each.key: config.getini(each.key) or "" for each in options.values() if each.configurable
    }
    return read(settings, given, configured, config.inipath, **more)


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
        number = least - 1
        if re.fullmatch(r"[0-9]+", text.strip()):
            number = int(digits) if len(digits) < _DIGITS else most + 1
        if not least <= number <= most:
            bounds = (
                f"at least {least}"
                if most >= LARGEST_COUNT and number < least
                else f"{least} to {most}"
            )
            raise ValueError(f"cannot be used; give a whole number, {bounds}")
        return number

    return read_whole


def number(least: float = 0.0, most: float = sys.float_info.max) -> Kind[float]:
    """Return a kind for numbers above 0, within bounds."""

    def read_number(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not (found > 0 and least <= found <= most):
            bounds = f"from {least:g} to {most:g}" if least else "above 0"
            raise ValueError(f"cannot be used; give a number {bounds}")
        return found

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
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text, re.ASCII)
        if not found or float(found[1]) > 100 * most or (float(found[1]) == 0 and not zero):
            raise ValueError("is not a percentage that can be used; give 2%")
        return float(f"{found[1]}e-2")  # dividing by 100 would round a second time

    return read_share


_UNITS_S = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def seconds(text: str) -> float:
    """Return a time in seconds: ``5m``, ``300s``, ``300``."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)\s*(s|m|min|h|)", text.strip(), re.ASCII)
    if not found or float(found[1]) <= 0:
        raise ValueError("is not a time; give 5m or 300s")
    return float(found[1]) * _UNITS_S[found[2]]


def several(kind: Kind[_T]) -> Kind[tuple[_T, ...]]:
    """Return a kind for comma lists: the distinct values of its entries."""

    def read_several(text: str) -> tuple[_T, ...]:
        entries = [entry.strip() for entry in text.split(",")]
        if not all(entries):
            raise ValueError("has an empty entry; give a comma list such as its default")
        return tuple(dict.fromkeys(map(kind, entries)))

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


def top() -> Any:
    """Declare how many operations a table shows."""
    return option("--top", whole(1), "10", "number of operations to show per case", "N")


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


def output(default: str | None = None) -> Any:
    """Declare the file to write; without a default the text is printed."""
    text = "output file" if default else "write to this file instead of printing"
    return option("--output -o", path, default, text, "FILE")


def output_format(others: Iterable[str] = ()) -> Any:
    """Declare the format: terminal, markdown, json, or one of the others."""
    choices: Sequence[str] = ("terminal", "markdown", "json", *others)
    return option("--format", one_of(*choices), "terminal", f"format: {', '.join(choices)}", "NAME")


def storage() -> Any:
    """Declare the directory of saved runs."""
    return option("--storage", path, ".benchmarks", "directory of saved runs", "DIR")


def data_dir(flag: str = "--data-dir", *, configurable: bool = False) -> Any:
    """Declare the directory of MNIST."""
    text = "torchvision root of MNIST (default: MNISTBENCH_DATA, else the user's cache)"
    return option(flag, path, None, text, "DIR", configurable=configurable)
