"""Options.

Which texts each kind reads and refuses, from the command line, from a configuration file and from
pytest.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inner_runs import BLOCKED

from mnistbench.core.errors import UsageError
from mnistbench.core.options import (
    LARGEST_COUNT,
    Parser,
    ToolTable,
    add_options,
    after_dashes,
    argument,
    grouping,
    number,
    one_of,
    option,
    options_of,
    path,
    path_setting,
    plain,
    read,
    seconds,
    several,
    share,
    some_of,
    switch,
    tool_table,
    whole,
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    files: tuple[Path, ...] = argument("FILE", path, "file", many=True, required=False)
    epochs: int = option("--epochs -e", whole(1), "3", "number of epochs", "N")
    fail: tuple[float, ...] = option(
        "--op-fail", share(), None, "100% of it", "SHARE", many=True, configurable=True
    )
    reason: str | None = option("--reason", str, None, "why", "TEXT", configurable=True)
    loud: bool = switch("--loud", "say more", configurable=True)
    pytest: tuple[str, ...] = after_dashes("ARGUMENT", "arguments of pytest")
    seed: int = 7  # no option


def read_line(*words, configured=None, file=None, **more):
    """Read a command line as ``mnistbench`` does."""
    parser = Parser(prog="mnistbench x")
    add_options(parser, Settings)
    return read(Settings, vars(parser.parse_args(words)), configured, file, **more)


# ---- Kinds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (one_of("op", "module"), "op", "op"),
        (whole(1), " 7 ", 7),
        (whole(0), "0", 0),
        (whole(1), "0" * 5_000 + "7", 7),
        (whole(1), str(LARGEST_COUNT), LARGEST_COUNT),
        (whole(0, 2**63 - 1), str(2**63 - 1), 2**63 - 1),
        (number(), "0.25", 0.25),
        (number(1.0, 10.0), "1e1", 10.0),
        (share(), "2%", 0.02),
        (share(), " 0.1 % ", 0.001),  # not 0.1 / 100
        (share(1.0), "100%", 1.0),
        (share(zero=True), "0%", 0.0),
        (share(zero=True), "0", 0.0),
        (seconds, "5m", 300.0),
        (seconds, "1.5 h", 5400.0),
        (seconds, "300", 300.0),
        (seconds, "2min", 120.0),
        (several(whole(1)), "16, 1,01,16", (16, 1)),
        (some_of("cpu", "cuda"), "cuda,cpu", ("cuda", "cpu")),
        (grouping, "module, op", "op,module"),
    ],
)
def test_kinds_read_texts(kind, text, value):
    assert kind(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "complaint"),
    [
        (one_of("op", "module"), "name", "is not known; choose op or module"),
        (whole(1), "0", "cannot be used; give a whole number, at least 1"),
        (whole(1), "2.5", "cannot be used; give a whole number, at least 1"),
        (whole(1), "\u0663", "cannot be used; give a whole number, at least 1"),
        (
            whole(1),
            str(LARGEST_COUNT + 1),
            f"cannot be used; give a whole number, 1 to {LARGEST_COUNT}",
        ),
        (whole(1), "9" * 5_000, f"cannot be used; give a whole number, 1 to {LARGEST_COUNT}"),
        (whole(1, 4), "5", "cannot be used; give a whole number, 1 to 4"),
        (number(), "0", "cannot be used; give a number above 0"),
        (number(), "nan", "cannot be used; give a number above 0"),
        (number(), "inf", "cannot be used; give a number above 0"),
        (number(0.5, 2.0), "3", "cannot be used; give a number from 0.5 to 2"),
        (share(), "2", "is not a percentage that can be used; give 2%"),
        (share(), "0%", "is not a percentage that can be used; give 2%"),
        (share(1.0), "101%", "is not a percentage that can be used; give 2%"),
        (share(zero=True), "-2%", "is not a percentage that can be used; give 2%"),
        (share(), "\u0662%", "is not a percentage that can be used; give 2%"),
        (seconds, "0s", "is not a time; give 5m or 300s"),
        (seconds, "5 days", "is not a time; give 5m or 300s"),
        (seconds, "1e3", "is not a time; give 5m or 300s"),
        (several(whole(1)), "1,,2", "has an empty entry; give a comma list such as its default"),
        (
            several(whole(1)),
            "1,16,abc",
            "has an entry 'abc', which cannot be used; give a whole number, at least 1",
        ),
        (several(whole(1)), "0", "cannot be used; give a whole number, at least 1"),
        (
            some_of("cpu", "cuda"),
            "cpu,tpu",
            "has an entry 'tpu', which is not known; choose cpu or cuda",
        ),
        (grouping, "kernel", "is not known; choose op or module or op,module"),
    ],
)
def test_kinds_refuse_texts_with_the_fix(kind, text, complaint):
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
        kind(text)


@given(
    st.one_of(
        st.text(max_size=30),
        st.integers().map(str),
        st.floats().map(str),
        st.from_regex(r"\d{1,6}\.?\d*\s*[a-z%]*"),
    )
)
def test_every_text_is_read_within_bounds_or_refused(text):
    for kind, least, most in (
        (whole(1), 1, LARGEST_COUNT),
        (whole(0, 9), 0, 9),
        (number(0.5, 2.0), 0.5, 2.0),
        (share(1.0), 1e-300, 1.0),
        (seconds, 0.0, 1e10),
    ):
        try:
            value = kind(text)
        except ValueError:
            continue
        assert math.isfinite(value)
        assert least <= value <= most


# ---- Command line --------------------------------------------------------------------------------


def test_values_of_a_command_line_are_converted():
    settings = read_line(
        "a", "b", "-e", "5", "--op-fail", "2%", "--op-fail=5%", "--loud", pytest=("-k", "x"), seed=1
    )
    assert settings == Settings(
        files=(Path("a"), Path("b")),
        epochs=5,
        fail=(0.02, 0.05),
        reason=None,
        loud=True,
        pytest=("-k", "x"),
        seed=1,
    )


def test_defaults_have_the_type_of_values():
    settings = read_line()
    assert settings == Settings()
    assert (settings.files, settings.epochs, settings.fail, settings.reason, settings.loud) == (
        (),
        3,
        (),
        None,
        False,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--op-fail", "1%", "--op-fail", "x"],
            "--op-fail: 'x' is not a percentage that can be used; give 2%",
        ),
        (["--reason", " "], "--reason: ' ' is empty; give a value, or leave it out"),
        ([""], "FILE: '' is empty; give a value, or leave it out"),
        (["--epochs"], "--epochs/-e: expected one argument; see: mnistbench x --help"),
        (["--loud=1"], "--loud: ignored explicit argument '1'; see: mnistbench x --help"),
        (["--epoch", "1"], "unrecognized arguments: --epoch; see: mnistbench x --help"),
    ],
)
def test_error_names_the_option_the_value_and_the_fix(words, message):
    with pytest.raises(UsageError) as error:
        read_line(*words)
    assert str(error.value) == message


def test_required_arguments_are_missed():
    @dataclass(frozen=True)
    class Positional:
        run: str | None = argument("RUN", str, "run")
        base: str | None = argument("BASE", str, "run to compare with", required=False)

    parser = Parser(prog="x")
    add_options(parser, Positional)
    assert read(Positional, vars(parser.parse_args(["a"]))) == Positional("a", None)
    with pytest.raises(
        UsageError, match=r"^the following arguments are required: RUN; see: x --help$"
    ):
        parser.parse_args([])


def test_help_has_the_defaults_and_percent_signs():
    parser = Parser(prog="x")
    add_options(parser, Settings)
    text = " ".join(parser.format_help().split())
    # Python 3.13 shows the value once.
    assert re.search(r"--epochs( N)?, -e N number of epochs \(default: 3\)", text)
    assert "--op-fail SHARE 100% of it; repeatable" in text
    assert text.startswith("usage: x [options] [-- ARGUMENT ...]")
    assert text.endswith("Arguments after --: arguments of pytest")


def test_fields_that_are_no_options_are_left_out():
    assert list(options_of(Settings)) == ["files", "epochs", "fail", "reason", "loud", "pytest"]


# ---- Configuration -------------------------------------------------------------------------------

PROJECT = '[tool.mnistbench]\nop_fail = ["2%", "5%"]\nreason = "slow disk"\n'


@pytest.fixture
def pyproject(tmp_path, monkeypatch):
    """Write a pyproject.toml above the current directory; return its path."""

    def write(text):
        file = tmp_path / "pyproject.toml"
        file.write_text(text, encoding="utf-8")
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path / "below")
        return file

    return write


def test_command_line_overrides_the_configuration(pyproject):
    file = pyproject(PROJECT)
    configured, nearest = tool_table(Settings)
    assert nearest == file
    assert read_line(configured=configured, file=file) == Settings(
        fail=(0.02, 0.05), reason="slow disk"
    )
    assert read_line("--op-fail", "9%", configured=configured, file=file).fail == (0.09,)


def test_nearest_project_file_counts_and_other_tools_are_not_read(pyproject):
    file = pyproject(PROJECT)
    own = file.parent / "below" / "pyproject.toml"
    own.write_text("[tool.other]\nop_fail = 1\n", encoding="utf-8")
    assert tool_table(Settings) == ({}, own)


def test_command_without_configurable_options_does_not_read_the_project_file(pyproject):
    @dataclass(frozen=True)
    class Plain:
        name: str | None = option("--name", str, None, "name", "NAME")

    pyproject("not TOML at all")
    assert tool_table(Plain) == ({}, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = = 1", "FILE: cannot be read as TOML ("),
        (
            "[tool]\nmnistbench = 3",
            "mnistbench in FILE: 3 is not a table; write [tool.mnistbench] and settings below it",
        ),
        (
            "[tool.mnistbench]\nepochs = 3",
            (
                "epochs in FILE: is not a setting of [tool.mnistbench]; choose of op_fail, reason, "
                "loud"
            ),
        ),
        (
            "[tool.mnistbench]\nop_fail = 0.1",
            "op_fail in FILE: 0.1 is not a string or a list of strings; write it in quotes",
        ),
        (
            '[tool.mnistbench]\nop_fail = ["1%", 2]',
            "op_fail in FILE: ['1%', 2] is not a string or a list of strings; write",
        ),
        (
            '[tool.mnistbench]\nreason = ["a"]',
            "reason in FILE: ['a'] is not a string; write it in quotes",
        ),
        (
            '[tool.mnistbench]\nloud = "yes"',
            "loud in FILE: 'yes' is not true or false",
        ),
        (
            "[tool.mnistbench.gat]\nfloor = 1",
            "gat in FILE: is not a table of [tool.mnistbench]; choose of gate",
        ),
        (
            '[tool.mnistbench]\nop_fail = "2"',
            "op_fail in FILE: '2' is not a percentage that can be used; give 2%",
        ),
        (
            '[tool.mnistbench]\nreason = " "',
            "reason in FILE: ' ' is empty; give a value, or leave it out",
        ),
    ],
)
def test_error_of_a_configuration_names_the_key_and_the_file(pyproject, text, message):
    file = pyproject(text)
    with pytest.raises(UsageError) as error:
        read_line(configured=tool_table(Settings)[0], file=file)
    assert str(error.value).startswith(message.replace("FILE", str(file)))


@dataclass(frozen=True, kw_only=True)
class Wide(Settings):
    """Settings of a table below, with what no command line has."""

    paths: tuple[str, ...] = path_setting("paths", str, "files or folders")
    tables: tuple[str, ...] = option(
        "--entry",
        str,
        None,
        "an entry",
        "TEXT",
        many=True,
        configurable=True,
        table_kind="".join,
    )
    given_fields: frozenset[str] = frozenset()


class Narrow(Settings):
    """A command that reads a part of the table."""

    tool_table: ClassVar[ToolTable] = ToolTable("gate", Wide)


class WideCommand(Wide):
    tool_table: ClassVar[ToolTable] = ToolTable("gate", Wide)


TABLE = """
[tool.mnistbench]
op_fail = "2%"
[tool.mnistbench.gate]
op_fail = "5%"
paths = "bench/test_a.py::test_b"
entry = [{a = 1, b = 2}]
loud = true
"""


def test_a_command_reads_its_own_table(pyproject):
    file = pyproject(TABLE)
    assert tool_table(Settings) == ({"op_fail": ["2%"]}, file)
    configured, nearest = tool_table(Narrow)
    assert nearest == file
    assert read(Narrow, {}, configured, file).fail == (0.05,)
    settings = read(WideCommand, {"fail": ["9%"], "tables": ["x"]}, *tool_table(WideCommand))
    assert (settings.fail, settings.loud) == ((0.09,), True)
    assert settings.paths == ("../bench/test_a.py::test_b",)  # from the folder of the command
    assert settings.tables == ("x", "ab")  # what the command line gives, and the entries
    assert settings.given_fields == {"fail", "tables"}


def test_a_path_of_the_file_is_no_option_of_the_command_line():
    parser = Parser(prog="x")
    add_options(parser, Wide)
    assert "paths" not in parser.format_help()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gate = 3", "gate in FILE: 3 is not a table; write [tool.mnistbench.gate] and settings"),
        (
            "[tool.mnistbench.gate]\nseed = 1",
            "seed in FILE: is not a setting of [tool.mnistbench.gate]; choose of op_fail, reason, ",
        ),
        (
            "[tool.mnistbench.gate]\npaths = [1]",
            "paths in FILE: [1] is not a string or a list of strings; write it in quotes",
        ),
        (
            '[tool.mnistbench.gate]\nentry = ["a"]',
            "entry in FILE: ['a'] is not a list of tables; give [{...}, {...}]",
        ),
    ],
)
def test_errors_of_a_table_below_name_it(pyproject, text, message):
    prefix = "" if text.startswith("[") else "[tool.mnistbench]\n"
    file = pyproject(f"{prefix}{text}\n")
    with pytest.raises(UsageError) as error:
        tool_table(WideCommand)
    assert str(error.value).startswith(message.replace("FILE", str(file)))


# ---- pytest --------------------------------------------------------------------------------------

PLUGIN = """
from dataclasses import asdict, dataclass
from mnistbench.core.errors import UsageError
from mnistbench.core.options import (
    add_pytest_options, one_of, option, read_pytest, share, switch, switch_with_value, whole
)
import pytest

@dataclass(frozen=True)
class Settings:
    epochs: int = option("--op-epochs", whole(1), "3", "number of epochs", "N")
    fail: tuple[float, ...] = option(
        "--op-fail", share(), None, "100% of it", "SHARE", many=True, configurable=True
    )
    reason: str | None = option("--op-reason", str, None, "why", "TEXT", configurable=True)
    loud: bool = switch("--op-loud", "say more", configurable=True)
    color: bool | str = switch_with_value("--op-color", one_of("red", "blue"), "paint", "COLOR")

def pytest_addoption(parser):
    add_pytest_options(parser, "example", "Example", Settings)

def pytest_configure(config):
    try:
        print("settings:", tuple(asdict(read_pytest(Settings, config)).values()))
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
"""


@pytest.mark.parametrize(
    ("words", "ini", "line"),
    [
        ([], "", "settings: (3, (), None, False, False)"),
        (
            [],
            "op_fail =\n  2%\n  5%\nop_reason = disk\nop_loud = true",
            "settings: (3, (0.02, 0.05), 'disk', True, False)",
        ),
        (
            ["--op-fail=9%", "--op-epochs=4"],
            "op_fail = 2%",
            "settings: (4, (0.09,), None, False, False)",
        ),
        (["--op-color"], "", "settings: (3, (), None, False, True)"),
        (["--op-color=red"], "op_color = blue", "settings: (3, (), None, False, 'red')"),
        (["--op-color=false"], "op_color = blue", "settings: (3, (), None, False, False)"),
        ([], "op_color = blue", "settings: (3, (), None, False, 'blue')"),
        ([], "op_color = yes", "settings: (3, (), None, False, True)"),
        ([], "op_color = False", "settings: (3, (), None, False, False)"),
        (["--op-color="], "", "ERROR: --op-color: '' is empty; give a value, or leave it out"),
        (
            [],
            "op_color = 3",
            "ERROR: op_color in */tox.ini: '3' is not known; choose red or blue",
        ),
        (
            ["--op-reason= "],
            "",
            "ERROR: --op-reason: ' ' is empty; give a value, or leave it out",
        ),
        (
            [],
            "op_fail = 2",
            "ERROR: op_fail in */tox.ini: '2' is not a percentage that can be used; give 2%",
        ),
        (["--help"], "", "*--op-fail=SHARE*100% of it; repeatable"),
        (["--help"], "", "*--op-color=[[]COLOR]*paint"),
    ],
)
def test_pytest_reads_the_same_fields(pytester, words, ini, line):
    pytester.makeconftest(PLUGIN)
    pytester.makeini(f"[pytest]\n{ini}\n")
    result = pytester.runpytest_inprocess(
        *BLOCKED, "-p", "no:mnistbench", "-p", "no:cacheprovider", *words
    )
    (result.stderr if line.startswith("ERROR") else result.stdout).fnmatch_lines([line])


# ---- What was given, and JSON --------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Resumable:
    epochs: int = option("--epochs", whole(1), "14", "passes", "N")
    output: Path | None = option("--output", path, None, "directory", "DIR")
    given_fields: frozenset[str] = frozenset()


def test_settings_can_have_the_names_of_the_options_that_were_given():
    assert read(Resumable, {"epochs": "14", "output": None}) == Resumable(
        given_fields=frozenset({"epochs"})
    )
    assert read(Resumable, {}).given_fields == frozenset()


def test_options_for_json_have_paths_as_texts():
    assert plain(Resumable(output=Path("run"))) == {"epochs": 14, "output": "run"}
    assert plain(Resumable(), leave_out=["output"]) == {"epochs": 14}
