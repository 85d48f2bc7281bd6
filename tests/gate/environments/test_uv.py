"""How uv is found, its reasons when it fails, and the releases that it finds."""

import os
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mnistbench.core.errors import UsageError
from mnistbench.gate.environments import uv
from mnistbench.gate.environments.uv import Range, release_range, releases

CONFLICT = (
    "Because torchvision>=0.29.2 depends on torch>=2.14.0 and you require torch==2.13.0, we can "
    "conclude that your requirements and torchvision>=0.29.2 are incompatible. And because you "
    "require torchvision==0.29.2, we can conclude that your requirements are unsatisfiable."
)

#: Output of uv 0.13, then of earlier versions.
FAILURES = {
    """\
Using Python 3.11.7 environment at: x
error: No solution found when resolving dependencies
  cause: Because torchvision>=0.29.2 depends on torch>=2.14.0 and you require torch==2.13.0, we can conclude that your requirements and torchvision>=0.29.2 are incompatible.
         And because you require torchvision==0.29.2, we can conclude that your requirements are unsatisfiable.
""": CONFLICT,  # noqa: E501
    """\
error: Failed to fetch: https://pypi.org/simple/torch/
  cause: error sending request for url (https://pypi.org/simple/torch/)
  cause: tcp connect error
  cause: Connection refused (os error 111)
""": "Failed to fetch: https://pypi.org/simple/torch/: Connection refused (os error 111)",
    """\
  \u00d7 No solution found when resolving dependencies:
  ╰─▶ Because there is no version of torch==9.9 and you require torch==9.9,
      we can conclude that your requirements are unsatisfiable.

      hint: something else
""": "Because there is no version of torch==9.9 and you require torch==9.9, we can conclude that "
    "your requirements are "
    "unsatisfiable.",
    """\
  \u00d7 Failed to download `torch==2.13.0`
  ├─▶ Failed to extract archive
  ╰─▶ No space left on device (os error 28)
  help: clean the cache
""": "Failed to download `torch==2.13.0`: No space left on device (os error 28)",
    (
        "error: Failed to install: a.whl\n  Caused by: failed to write\n  Caused by: No space "
        "left on device (os error 28)\n"
    ): ("Failed to install: a.whl: No space left on device (os error 28)"),
    "error: alone\n": "alone",
    "Killed\n\n": "Killed",
    "": "",
    "error: " + "x" * 500: "x" * 397 + "...",
}


@pytest.mark.parametrize("output", FAILURES)
def test_the_reason_is_one_line(output):
    assert uv.reason(output) == FAILURES[output]


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No uv: neither beside the interpreter, nor as a package, nor on PATH."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


def program(path):
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("nowhere")
def test_uv_is_found_on_path_as_a_package_or_beside_the_interpreter(tmp_path, monkeypatch):
    with pytest.raises(
        UsageError,
        match=r"^uv makes the environments, and it is not installed; .*: pip install uv$",
    ):
        uv.find()
    on_path = program(tmp_path / "path" / "uv")
    assert uv.find() == str(on_path)
    module = type("uv", (), {"find_uv_bin": staticmethod(lambda: "/of/the/package")})
    monkeypatch.setitem(sys.modules, "uv", module)
    assert uv.find() == "/of/the/package"
    beside = program(tmp_path / "prefix" / "bin" / "uv")
    assert uv.find() == str(beside)


def test_what_cannot_be_started_is_an_error(tmp_path):
    with (
        Path(os.devnull).open("rb") as lock,
        pytest.raises(UsageError, match=r"nothing: cannot be started \(No such file"),
    ):
        uv.run(str(tmp_path / "nothing"), [], lock.fileno())


# ---- Releases ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch==2.11.0..2.15.0", Range("torch", "2.11.0", "2.15.0")),
        (" torch == 2.11 .. 2.15.0 ", Range("torch", "2.11", "2.15.0")),
        ("torch==2.15.0rc1..2.15.0", Range("torch", "2.15.0rc1", "2.15.0")),
        ("Typing.Extensions==4..4.12.0", Range("Typing.Extensions", "4", "4.12.0")),
    ],
)
def test_a_range_has_a_name_and_two_releases(text, expected):
    assert release_range(text) == expected


NO_RANGE = "is not a range of releases; give NAME==FIRST..LAST, such as torch==2.13.0..2.15.0"
NOT_OLDER = "give NAME==FIRST..LAST with the older release first"


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (text, NO_RANGE)
            for text in (
                "torch==2.11.0",
                "torch==2.11.0..",
                "torch==2.11.0...2.15.0",
                "torch>=2.11.0..2.15.0",
                "torch==2.11.0..new",
                "torch[opt]==2.11.0..2.15.0",
                "==1..2",
                "torch==2.11.*..2.15.0",
                "torch==2.11.0..2.15.0,!=2.13.0",
                "torch==1..2..3",
            )
        ),
        ("torch==2.15.0..2.11.0", f"has 2.15.0, which is not older than 2.11.0; {NOT_OLDER}"),
        ("torch==2.15..2.15.0", f"has 2.15, which is not older than 2.15.0; {NOT_OLDER}"),
        (
            "torch==2.13.0+cpu..2.15.0",
            (
                "names a build, 2.13.0+cpu; give 2.13.0, and select the build with uv's settings, "
                "such as UV_TORCH_BACKEND"
            ),
        ),
        ("jax==1..2", "names jax, which is not installed; name an installed package"),
        (
            "torch==2.4.0..2.15.0",
            "is older than 2.6, the oldest torch that the gate measures; give a newer version",
        ),
    ],
)
def test_what_is_no_range_is_one_line(text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        release_range(text)


class Index:
    """A package index behind a function in place of uv."""

    def __init__(self, *available):
        self.available = available
        self.arguments = []
        self.printed = "{name}=={version}\n"

    def run(self, program, arguments, text):
        self.arguments = arguments
        requirement = Requirement(text.strip())
        pre = arguments[arguments.index("--prerelease") + 1] == "allow"
        fitting = [
            release
            for release in self.available
            if requirement.specifier.contains(release, prereleases=pre)
        ]
        if not fitting:
            raise UsageError(f"uv: Because there is no version of {requirement}")
        return self.printed.format(name=requirement.name, version=fitting[-1])


@pytest.fixture
def index(monkeypatch):
    package_index = Index(
        "2.10", "2.11.0", "2.11.1", "2.12.0rc1", "2.12.0", "2.12.0.post1", "2.13.0"
    )
    monkeypatch.setattr("mnistbench.gate.environments.uv.find", lambda: "uv")
    monkeypatch.setattr("mnistbench.gate.environments.uv.run", package_index.run)
    return package_index


def test_releases_are_listed_from_the_first_to_the_last(index):
    assert releases(Range("torch", "2.11.0", "2.13.0")) == (
        "2.11.0",
        "2.11.1",
        "2.12.0",
        "2.12.0.post1",
        "2.13.0",
    )
    assert releases(Range("torch", "2.12", "2.12.0.post1")) == ("2.12.0", "2.12.0.post1")


def test_releases_are_those_for_this_interpreter(index):
    releases(Range("torch", "2.11.0", "2.11.1"))
    command = " ".join(index.arguments)
    assert command.startswith(f"pip compile --python {sys.executable} --no-deps ")
    assert "--only-binary torch" in command


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("2.12.0rc1", "2.12.0.post1", ("2.12.0rc1", "2.12.0", "2.12.0.post1")),
        ("2.11.1", "2.12.0rc1", ("2.11.1", "2.12.0rc1")),
    ],
)
def test_pre_releases_are_listed_if_an_end_is_one(index, first, last, expected):
    assert releases(Range("torch", first, last)) == expected


def test_the_build_that_uv_selects_is_kept(index):
    index.available = ("2.11.0+cpu", "2.12.0+cpu", "2.13.0+cpu")
    assert releases(Range("torch", "2.11.0", "2.13.0")) == index.available


@pytest.mark.parametrize(
    "printed",
    ["# made by uv\n{name}=={version} \\\n    --hash=sha256:00\n", "{name}=={version} ; x\n"],
)
def test_settings_of_uv_may_change_its_output(index, printed):
    index.printed = printed
    assert releases(Range("torch", "2.11.0", "2.11.1")) == ("2.11.0", "2.11.1")


def test_an_output_without_a_release_is_one_line(index):
    index.printed = "# nothing\n"
    with pytest.raises(
        UsageError,
        match=r"uv: printed no release of torch; remove settings of uv that change its output$",
    ):
        releases(Range("torch", "2.11.0", "2.11.1"))


@pytest.mark.parametrize(
    ("first", "last", "missing"), [("2.9", "2.13.0", "2.9"), ("2.11.0", "3", "3")]
)
def test_an_end_that_does_not_exist_is_named(index, first, last, missing):
    with pytest.raises(UsageError) as raised:
        releases(Range("torch", first, last))
    assert (
        str(raised.value)
        == f"torch {missing} is not available: uv: Because there is no version of torch=={missing}"
    )
