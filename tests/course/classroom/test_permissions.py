"""Files and directories of labs and classes that may not be read or written.

One line that names the path.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from builders import environment

from mnistbench import cli
from mnistbench.course.classroom import check_command, score_command
from mnistbench.course.classroom.submission import pack, write
from mnistbench.course.classroom.teacher.cohort import UNREADABLE, gather

# matplotlib makes directories where the administrator may.
from mnistbench.course.lab import figures  # noqa: F401

NOBODY = 65534


@pytest.fixture
def folder(original, monkeypatch):
    """A directory with a lab, a submission and an empty directory.

    The test is not the administrator, who may read all.
    """
    temporary = Path(tempfile.mkdtemp(prefix="mnistbench-"))  # pytest's directories are private
    shutil.copytree(original, temporary / "lab")
    for name in ("handed", "out"):
        (temporary / name).mkdir()
    write(temporary / "handed" / "a.json", pack(original))
    (temporary / "step.py").touch()
    monkeypatch.chdir(temporary)
    monkeypatch.setattr(score_command, "this_machine", lambda: environment(threads=1))
    monkeypatch.setattr(score_command, "measure", None)  # what takes long comes after every check
    if is_administrator := os.geteuid() == 0:
        for path in (temporary, *temporary.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, 0)
    yield temporary
    if is_administrator:
        os.setresuid(0, 0, 0)
    for path in temporary.iterdir():
        path.chmod(0o700)
    shutil.rmtree(temporary)


#: Mode of a file or directory that nobody may read.
NOTHING = 0o000
#: Mode of what may be read: of a directory it gives the names without the contents.
READ = 0o444


@pytest.mark.parametrize(
    ("command", "path", "mode"),
    [
        ("lab check lab", "lab", NOTHING),
        ("lab check lab", "lab", READ),
        ("lab check lab", "lab", 0o555),
        ("lab check lab", "lab/steps", NOTHING),
        ("lab check lab", "lab/steps", READ),
        ("lab check lab --submission out/mine.json", "lab", NOTHING),
        ("lab check lab --submission out/mine.json", "out", NOTHING),
        ("lab check handed/a.json", "handed", NOTHING),
        ("lab check handed/a.json", "handed/a.json", NOTHING),
        ("lab check handed/a.json --gradescope out/results.json", "out", NOTHING),
        ("class merge handed", "handed", NOTHING),
        ("class merge handed -o out", "out", 0o300),
        ("class merge handed -o out/page", "out", NOTHING),
        ("class rerun handed --yes", "handed", NOTHING),
        ("class rerun handed --yes -o out/again.json", "out", NOTHING),
        ("lab predict --student s1 --from handed/answers.toml -o out", "handed", NOTHING),
        ("lab predict --student s1 --from handed/answers.toml -o out", "handed", 0o555),
        ("lab predict --student s1 --from a.toml -o out/new", "out", NOTHING),
        ("lab score step.py -o lab", "step.py", NOTHING),
        ("lab score step.py -o lab", "lab/lab.json", NOTHING),
        ("lab --merge lab handed -o out/both", "lab", NOTHING),
        ("lab --merge lab handed -o out", "out", 0o300),
    ],
)
def test_a_path_that_may_not_be_used_is_named_in_one_line(folder, capsys, command, path, mode):
    (folder / path).chmod(mode)
    assert cli.main(command.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    [line] = shown.err.splitlines()
    assert line.startswith("mnistbench: ")
    assert path in line


def test_a_lab_that_may_not_be_written_is_refused_before_its_self_test(folder, capsys, monkeypatch):
    monkeypatch.setattr(check_command, "this_machine", lambda: environment(threads=1))
    monkeypatch.setattr(check_command, "measure", None)
    (folder / "lab" / "quiet.json").unlink()
    (folder / "lab").chmod(0o555)
    assert cli.main(["lab", "check", "lab", "--submission", "out/mine.json"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("mnistbench: LAB: ")
    assert "lab is not writable" in line


def test_submissions_and_folders_that_may_not_be_read_are_rows(folder):
    (folder / "handed" / "s002").mkdir()
    for name in ("s002", "a.json"):
        (folder / "handed" / name).chmod(NOTHING)
    problems_of_file = {
        entry.file: (entry.state, entry.complaint) for entry in gather(folder / "handed")[0]
    }
    assert problems_of_file == dict.fromkeys(
        ["a.json", "s002"], (UNREADABLE, "cannot be read (Permission denied)")
    )


def test_submissions_that_cannot_be_read_are_named_before_code_runs(folder, capsys):
    shutil.copy(folder / "handed" / "a.json", folder / "handed" / "b.json")
    (folder / "handed" / "a.json").chmod(NOTHING)
    assert cli.main(["class", "rerun", "handed", "-o", "out/again.json"]) == 2
    unread, _ = capsys.readouterr().err.splitlines()
    assert unread == "mnistbench: handed/a.json: cannot be read (Permission denied)"
