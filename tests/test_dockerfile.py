"""What can be checked of the Dockerfile without an engine.

What it copies, who runs, which variables it sets.
"""

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
TEXT = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")

#: Instruction -> its arguments, in order; lines that end in a backslash go on.
INSTRUCTIONS = [
    tuple(line.split(maxsplit=1))
    for line in re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE)).splitlines()
    if line.strip()
]


def of(name):
    return [arguments for instruction, arguments in INSTRUCTIONS if instruction == name]


COPIED = [source for arguments in of("COPY") for source in arguments.split()[:-1]]


def test_only_instructions_that_there_are():
    known = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"}
    assert {instruction for instruction, _ in INSTRUCTIONS} == known
    assert INSTRUCTIONS[0][0] == "FROM"
    assert ":" in of("FROM")[0]  # no moving latest


@pytest.mark.parametrize("path", COPIED)
def test_copied_files_exist_and_are_not_ignored(path):
    assert (REPOSITORY / path).exists()
    assert f"!{path}" in (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()


def test_the_build_context_has_copied_files_only():
    lines = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    assert {pattern[1:] for pattern in patterns if pattern.startswith("!")} == set(COPIED)


def test_the_image_copies_what_the_build_reads():
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert {"pyproject.toml", "mnistbench"} <= set(COPIED)
    for named in (
        *re.findall(r'^readme = "(.*)"', text, re.MULTILINE),
        *tomllib.loads(text)["project"]["license-files"],
    ):
        assert named in COPIED or Path(named).parts[0] in COPIED


def test_the_image_does_not_run_as_root():
    names = [instruction for instruction, _ in INSTRUCTIONS]
    assert of("USER")[-1] != "root"
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "RUN" not in names[names.index("USER") :]


def test_a_build_argument_chooses_the_build_of_torch():
    assert of("ARG") == ["TORCH_BACKEND=cpu"]
    assert '--torch-backend="${TORCH_BACKEND}"' in of("RUN")[0]


def test_the_page_on_the_lab_has_the_line():
    page = (REPOSITORY / "docs" / "lab.md").read_text(encoding="utf-8")
    assert 'docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/out" mnistbench' in page
