"""Which releases of a package are between two of them, and what is no range of releases."""

import sys

import pytest
from packaging.requirements import Requirement

from mnistbench.core.errors import UsageError
from mnistbench.gate.environments.packages import Installed
from mnistbench.gate.environments.releases import Range, asked_range, releases

PACKAGES = [Installed("torch", "2.15.0"), Installed("typing_extensions", "4.12.0")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torch==2.11.0..2.15.0", Range("torch", "2.11.0", "2.15.0")),
        (" torch == 2.11 .. 2.15.0 ", Range("torch", "2.11", "2.15.0")),
        ("torch==2.15.0rc1..2.15.0", Range("torch", "2.15.0rc1", "2.15.0")),
        ("Typing.Extensions==4..4.12.0", Range("Typing.Extensions", "4", "4.12.0")),
    ],
)
def test_a_range_has_a_name_and_two_releases(text, found):
    assert asked_range("--range", text, PACKAGES) == found


NO_RANGE = "is not a range of releases; give NAME==FIRST..LAST, such as torch==2.13.0..2.15.0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (text, f"--range: {text!r} {NO_RANGE}")
            for text in (
                "", "torch", "torch==2.11.0", "torch==2.11.0..", "torch==..2.15.0", "torch==2.11.0...2.15.0",
                "torch>=2.11.0..2.15.0", "torch==2.11.0..new", "torch[opt]==2.11.0..2.15.0", "tor ch==1..2", "==1..2",
                "torch==2.11.*..2.15.0", "torch==2.11.0..2.15.0,!=2.13.0", "torch==1..2..3",
            )
        ),
        (
            "torch==2.15.0..2.11.0",
            "--range: 2.15.0 is not older than 2.11.0; give NAME==FIRST..LAST with the older release first",
        ),
        ("torch==2.15..2.15.0", "--range: 2.15 is not older than 2.15.0; give NAME==FIRST..LAST with the older release first"),
        (
            "torch==2.13.0+cpu..2.15.0",
            "--range: 2.13.0+cpu names a build; give 2.13.0, and select the build with uv's settings, such as UV_TORCH_BACKEND",
        ),
        ("jax==1..2", "--range: jax is not installed; name an installed package"),
    ],
)  # fmt: skip
def test_what_is_no_range_is_one_line(text, message):
    with pytest.raises(UsageError) as raised:
        asked_range("--range", text, PACKAGES)
    assert str(raised.value) == message


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
        fitting = [each for each in self.available if requirement.specifier.contains(each, prereleases=pre)]
        if not fitting:
            raise UsageError(f"uv: Because there is no version of {requirement}")
        return self.printed.format(name=requirement.name, version=fitting[-1])


@pytest.fixture
def index(monkeypatch):
    made = Index("2.10", "2.11.0", "2.11.1", "2.12.0rc1", "2.12.0", "2.12.0.post1", "2.13.0")
    monkeypatch.setattr("mnistbench.gate.environments.uv.find", lambda: "uv")
    monkeypatch.setattr("mnistbench.gate.environments.uv.run", made.run)
    return made


def test_releases_are_listed_from_the_first_to_the_last(index):
    assert releases("--range", Range("torch", "2.11.0", "2.13.0")) == ("2.11.0", "2.11.1", "2.12.0", "2.12.0.post1", "2.13.0")
    assert releases("--range", Range("torch", "2.12", "2.12.0.post1")) == ("2.12.0", "2.12.0.post1")


def test_releases_are_those_for_this_interpreter(index):
    releases("--range", Range("torch", "2.11.0", "2.11.1"))
    command = " ".join(index.arguments)
    assert command.startswith(f"pip compile --python {sys.executable} --no-deps ")
    assert "--only-binary torch" in command


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        ("2.12.0rc1", "2.12.0.post1", ("2.12.0rc1", "2.12.0", "2.12.0.post1")),
        ("2.11.1", "2.12.0rc1", ("2.11.1", "2.12.0rc1")),
    ],
)
def test_pre_releases_are_listed_if_an_end_is_one(index, first, last, found):
    assert releases("--range", Range("torch", first, last)) == found


def test_the_build_that_uv_selects_is_kept(index):
    index.available = ("2.11.0+cpu", "2.12.0+cpu", "2.13.0+cpu")
    assert releases("--range", Range("torch", "2.11.0", "2.13.0")) == index.available


@pytest.mark.parametrize("printed", ["# made by uv\n{name}=={version} \\\n    --hash=sha256:00\n", "{name}=={version} ; x\n"])
def test_settings_of_uv_may_change_its_output(index, printed):
    index.printed = printed
    assert releases("--range", Range("torch", "2.11.0", "2.11.1")) == ("2.11.0", "2.11.1")


def test_an_output_without_a_release_is_one_line(index):
    index.printed = "# nothing\n"
    with pytest.raises(UsageError, match=r"uv: printed no release of torch; remove settings of uv that change its output$"):
        releases("--range", Range("torch", "2.11.0", "2.11.1"))


@pytest.mark.parametrize(("first", "last", "missing"), [("2.9", "2.13.0", "2.9"), ("2.11.0", "3", "3")])
def test_an_end_that_does_not_exist_is_named(index, first, last, missing):
    with pytest.raises(UsageError) as raised:
        releases("--range", Range("torch", first, last))
    assert str(raised.value) == (
        f"--range: torch {missing} is not available: uv: Because there is no version of torch=={missing}"
    )
