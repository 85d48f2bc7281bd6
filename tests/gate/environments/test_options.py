"""Options that name what differs between two sides.

And the environments that are made from them.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from mnistbench.core.errors import UsageError
from mnistbench.core.options import read
from mnistbench.gate.environments import options as side_options
from mnistbench.gate.environments.options import SideOptions
from mnistbench.gate.environments.packages import Installed


def options(**given):
    """Read the options as they are on the command line: field -> text or texts."""
    return read(SideOptions, given)


@pytest.fixture
def made(monkeypatch):
    """What environments are made from; the packages and environments are invented."""
    packages = [
        Installed("numpy", "2.4.6", size_bytes=1 << 20),
        Installed("werkzeug", "4.70.1", size_bytes=2 << 20),
        Installed("torch", "2.15.0"),
        Installed("own", "1", (), "file:///own", is_editable=True, size_bytes=1),
    ]
    found = SimpleNamespace(wanted=[], used=0)

    @contextmanager
    def held(wanted, say):
        say(f"making {wanted.asked}")
        found.wanted.append(wanted)
        found.used += 1
        yield SimpleNamespace(python=f"/environments/{len(found.wanted)}/bin/python")
        found.used -= 1

    monkeypatch.setattr(side_options, "installed", lambda: packages)
    monkeypatch.setattr(side_options, "held", held)
    return found


def test_without_options_both_sides_have_this_interpreter(made):
    with options().interpreters(lambda _: None) as found:
        assert found == {"base": sys.executable, "head": sys.executable}
    assert not options().differ
    assert options().variables == {"base": {}, "head": {}}
    assert made.wanted == []


def test_each_side_has_an_environment_of_its_own_while_it_is_used(made):
    said = []
    given = options(base_with=["werkzeug==4.66.2"], head_with=["werkzeug==4.67", "numpy==2.0"])
    with given.interpreters(said.append) as found:
        assert found == {"base": "/environments/1/bin/python", "head": "/environments/2/bin/python"}
        assert made.used == 2
    assert made.used == 0
    base, head = made.wanted
    assert (base.asked, base.lines, base.size_bytes) == (
        ("werkzeug==4.66.2",),
        ("numpy==2.4.6", "torch==2.15.0", "werkzeug==4.66.2"),
        3 << 20,
    )
    assert (head.asked, head.lines) == (
        ("numpy==2.0", "werkzeug==4.67"),
        ("numpy==2.0", "torch==2.15.0", "werkzeug==4.67"),
    )
    assert said == ["making ('werkzeug==4.66.2',)", "making ('numpy==2.0', 'werkzeug==4.67')"]


def test_one_side_may_have_an_environment_and_the_other_an_interpreter(made):
    with options(base_python=sys.executable, head_with=["werkzeug==4.66.2"]).interpreters(
        lambda _: None
    ) as found:
        assert found == {"base": sys.executable, "head": "/environments/1/bin/python"}


@pytest.mark.parametrize(
    "given",
    [{"base_python": sys.executable}, {"head_env": ["A=1"]}, {"base_with": ["werkzeug==1"]}],
    ids=str,
)
def test_any_option_makes_the_sides_differ(given):
    assert options(**given).differ


def test_variables_are_those_of_a_side():
    assert options(base_env=["A=1", "B=x=y"], head_env=["A="]).variables == {
        "base": {"A": "1", "B": "x=y"},
        "head": {"A": ""},
    }


@pytest.mark.parametrize("version", ["==2.6.0", "==2.6.0+cpu", "==2.*", "==2.10.0", ">=2.0,<2.9"])
def test_a_torch_that_may_be_measured_is_not_refused(version):
    assert str(options(base_with=[f"torch{version}"]).base_with[0]).startswith("torch")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"base_python": "/nowhere"},
            "--base-python: '/nowhere' cannot be started; name a Python interpreter",
        ),
        ({"base_env": ["X"]}, "--base-env: 'X' is not a variable with a value; give NAME=VALUE"),
        ({"head_env": ["=1"]}, "--head-env: '=1' is not a variable with a value; give NAME=VALUE"),
        (
            {"head_env": ["MKL_NUM_THREADS=2"]},
            (
                "--head-env: 'MKL_NUM_THREADS=2' has no effect, because cases set their threads; "
                "give OMP_NUM_THREADS=2"
            ),
        ),
        (
            {"head_env": ["OMP_NUM_THREADS=0"]},
            (
                "--head-env: 'OMP_NUM_THREADS=0' is not a number of threads; give a whole number, "
                "at least 1"
            ),
        ),
        (
            {"head_env": ["OMP_NUM_THREADS=999999"]},
            (
                "--head-env: 'OMP_NUM_THREADS=999999' is more than the number of cores, 2; give a "
                "smaller number"
            ),
        ),
        (
            {"base_with": ["werkzeug=4"]},
            (
                "--base-with: 'werkzeug=4' is not a requirement; give NAME==VERSION, such as "
                "torch==2.13.0"
            ),
        ),
        (
            {"base_with": ["werkzeug"]},
            "--base-with: 'werkzeug' names no version; give NAME==VERSION, such as werkzeug==1.0",
        ),
        (
            {"head_with": ["jax==1"]},
            "--head-with: 'jax==1' names jax, which is not installed; name an installed package",
        ),
        (
            {"base_with": ["torch==2.5.1"]},
            (
                "--base-with: 'torch==2.5.1' is older than 2.6, the oldest torch that the gate "
                "measures; give a newer version"
            ),
        ),
        (
            {"head_with": ["werkzeug==4", "Werkzeug==5"]},
            "--head-with: werkzeug is given twice; give one version",
        ),
        *(
            (
                {f"{side}_with": ["werkzeug==4"], f"{side}_python": sys.executable},
                (
                    f"--{side}-with: the new environment has its own interpreter; remove "
                    f"--{side}-python or --{side}-with"
                ),
            )
            for side in ("base", "head")
        ),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_one_line(monkeypatch, given, message):
    monkeypatch.setattr(side_options, "usable_cpus", lambda: 2)
    with pytest.raises(UsageError) as refused:
        options(**given)
    assert str(refused.value) == message


def test_an_interpreter_that_is_too_old_is_named(tmp_path):
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\necho 'Unknown option: -P' >&2\nexit 2\n", encoding="utf-8")
    old.chmod(0o755)
    with pytest.raises(
        UsageError,
        match=r"python' is older than Python 3.11, the oldest that the gate runs; name another",
    ):
        options(head_python=str(old))


@pytest.mark.parametrize(
    "text", ["raise ModuleNotFoundError('pytest')", "def hookimpl(*, tryfirst=False): pass"]
)
def test_an_interpreter_without_a_usable_pytest_is_named(tmp_path, text):
    (tmp_path / "pytest.py").write_text(text, encoding="utf-8")
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\nPYTHONPATH='{tmp_path}' exec '{sys.executable}' \"$@\"\n", encoding="utf-8"
    )
    python.chmod(0o755)
    with pytest.raises(UsageError) as refused:
        options(base_python=str(python))
    assert str(refused.value) == (
        f"--base-python: {str(python)!r} has no pytest, or an old one; install pytest 8.1 or "
        "newer there, or name another interpreter"
    )


def test_a_relative_interpreter_becomes_absolute(tmp_path, monkeypatch):
    (tmp_path / "python").write_text(
        f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n", encoding="utf-8"
    )
    (tmp_path / "python").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert options(head_python="./python").head_python == str(tmp_path / "python")
