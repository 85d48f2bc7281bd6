"""Environments that a stand-in for uv makes: made once, used again, listed and removed."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from mnistbench import cli
from mnistbench.core.errors import UsageError
from mnistbench.gate.environments import store
from mnistbench.gate.environments.packages import Wanted
from mnistbench.gate.environments.python import Interpreter
from mnistbench.gate.environments.store import held, listed, remove_all
from mnistbench.gate.environments.uv import find

#: Records its arguments; makes a folder with an interpreter, and a distribution per requirement.
#: What FAKE_UV names fails.
UV = f"""#!{sys.executable} -SE
import json, os, pathlib, sys, time
place = pathlib.Path(__file__).parent
with (place / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
behaviour = os.environ.get("FAKE_UV", "")
if sys.argv[1] == "venv":
    folder = pathlib.Path(sys.argv[-1])
    folder.mkdir(parents=True)
    if behaviour != "no interpreter":
        (folder / "bin").mkdir()
        (folder / "bin" / "python").symlink_to(sys.argv[sys.argv.index("--python") + 1])
else:
    if behaviour == "slow":
        time.sleep(0.3)
    if behaviour == "fails":
        sys.exit("error: No solution found\\n  cause: Because there is no version of tqdm==9")
    if behaviour == "interrupted":
        os.kill(os.getppid(), 2)
        time.sleep(60)
    requirements = pathlib.Path(sys.argv[-1])
    places = requirements.parent / "lib" / "python3" / "site-packages"
    for line in requirements.read_text().split():
        name, _, version = line.partition("==")
        distribution = places / f"{{name}}-{{version}}.dist-info"
        distribution.mkdir(parents=True)
        metadata = f"Metadata-Version: 2.1\\nName: {{name}}\\nVersion: {{version}}\\n"
        (distribution / "METADATA").write_text(metadata)
"""

TQDM = Wanted(("tqdm==4.66.2",), ("numpy==2.0", "tqdm==4.66.2"), 3 << 20)


class Uv:
    def __init__(self, folder):
        self.path = folder / "uv"
        self.path.write_text(UV, encoding="utf-8")
        self.path.chmod(0o755)

    @property
    def calls(self):
        path = self.path.with_name("calls")
        return (
            [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            if path.exists()
            else []
        )


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / ".cache" / name)
    return tmp_path


@pytest.fixture
def uv(home, monkeypatch):
    program = Uv(home)
    monkeypatch.setattr("mnistbench.gate.environments.uv.find", lambda: str(program.path))
    return program


def silent(text):
    raise AssertionError(text)


def make(wanted=TQDM, say=lambda _: None):
    with held(wanted, say) as environment:
        return environment


def name_of(wanted):
    """Make an environment and return the name of its folder, which identifies it."""
    return Path(make(wanted).folder).name


def left(home):
    """Return the folders of environments; there is a lock file for each, and nothing else."""
    paths = set((home / ".cache" / "mnistbench" / "environments").iterdir())
    folders = [path for path in paths if path.is_dir()]
    assert paths == {*folders, *(path.with_suffix(".lock") for path in folders)}
    return folders


def test_an_environment_is_announced_and_made(uv, home):
    messages = []
    with held(TQDM, messages.append) as environment:
        assert subprocess.run([environment.python, "-c", ""], check=True)
    folder = Path(environment.folder)
    assert re.fullmatch(r"[0-9a-f]{16}", folder.name)
    place = f"~/.cache/mnistbench/environments/{folder.name}"
    assert messages == [
        (
            f"making an environment with tqdm==4.66.2 in {place}: about 3.00 MiB, less what uv "
            "has in its cache"
        )
    ]
    assert uv.calls == [
        ["venv", "--no-project", "--python", sys.executable, str(folder)],
        [
            "pip",
            "install",
            "--python",
            f"{folder}/bin/python",
            "--requirements",
            f"{folder}/requirements.txt",
        ],
    ]
    assert (folder / "requirements.txt").read_text(encoding="utf-8") == "numpy==2.0\ntqdm==4.66.2\n"
    assert (environment.asked, environment.packages) == (
        ("tqdm==4.66.2",),
        {"numpy": "2.0", "tqdm": "4.66.2"},
    )
    assert environment.size_bytes > 100
    assert environment.version == sys.version.split()[0]
    assert left(home) == [folder]


def test_versions_that_may_change_are_installed_first(uv):
    loose = Wanted(TQDM.asked, TQDM.lines, 0, ("numpy==2.0",))
    folder = Path(make(loose).folder)
    assert (folder / "loose.txt").read_text(encoding="utf-8") == "numpy==2.0\n"
    assert (folder / "requirements.txt").read_text(encoding="utf-8") == "numpy\ntqdm==4.66.2\n"
    install = ["pip", "install", "--python", f"{folder}/bin/python"]
    assert uv.calls[1:] == [
        [*install, "--no-deps", "--requirements", f"{folder}/loose.txt"],
        [*install, "--requirements", f"{folder}/requirements.txt"],
    ]
    assert name_of(TQDM) != folder.name


def test_a_complete_environment_is_used_again(uv, monkeypatch):
    monkeypatch.setattr(store, "_now", lambda: "2026-11-20T10:00:00+00:00")
    first = make()
    monkeypatch.setattr(store, "_now", lambda: "2026-11-22T10:00:00+00:00")
    again = make(say=silent)
    assert again.folder == first.folder
    assert len(uv.calls) == 2
    [environment], incomplete = listed()
    assert (environment, incomplete) == (again, 0)
    assert environment.created == "2026-11-20T10:00:00+00:00"
    assert environment.last_used == "2026-11-22T10:00:00+00:00"


def test_requirements_interpreter_and_wheel_determine_the_environment(uv, home):
    wheel = home / "a wheel.whl"
    local = Wanted(("tqdm @ file",), (f"tqdm @ {wheel.as_uri()}",), 0)
    wheel.write_text("1", encoding="utf-8")
    names = [
        name_of(TQDM),
        name_of(Wanted(("tqdm==4.66.2",), ("tqdm==4.66.2",), 3 << 20)),
        name_of(local),
    ]
    wheel.write_text("12", encoding="utf-8")
    names.append(name_of(local))
    newer = f"3.99.0 {sys.version.partition(' ')[2]}"
    names.append(name_of(replace(TQDM, interpreter=replace(Interpreter.own(), version=newer))))
    assert len(set(names)) == 5
    # An estimate identifies nothing.
    assert name_of(TQDM) == name_of(Wanted(TQDM.asked, TQDM.lines, 0))


def test_a_changed_folder_gives_another_environment_and_uv_builds_it_again(uv, home):
    folder = home / "a package"
    source = folder / "kernels" / "code.py"
    source.parent.mkdir(parents=True)
    source.write_text("1", encoding="utf-8")
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".gitignore").write_text("*.log\n", encoding="utf-8")
    local = Wanted(("tqdm==4",), (f"kernels[all] @ {folder.as_uri()}", "tqdm==4"), 0)

    def name_with(path, text):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name_of(local)

    first = name_of(local)
    os.utime(source, (1, 1))
    assert name_with(folder / "run.log", "1") == first  # neither times nor what git ignores
    # Written by uv's own build.
    assert name_with(folder / "kernels.egg-info" / "SOURCES.txt", "code.py") == first
    second = name_with(source, "2")
    assert second != first
    assert name_with(folder / "kernels" / "new.py", "2") not in (first, second)
    source.unlink()
    assert name_of(local) not in (first, second)
    make(local)
    assert uv.calls[1][2:6] == [uv.calls[1][2], uv.calls[1][3], "--refresh-package", "kernels"]


def test_a_folder_outside_a_repository_is_read_without_caches(uv, home):
    local = Wanted((), (f"kernels @ {(home / 'package').as_uri()}",), 0)
    names = [name_of(local)]  # removed: uv says so
    for name in ("code.py", "__pycache__/code.pyc", "build/lib/code.py", "link"):
        path = home / "package" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.symlink_to("nowhere") if name == "link" else path.write_text(name, encoding="utf-8")
        names.append(name_of(local))
    assert names[0] != names[1]
    assert len(set(names[1:])) == 1


@pytest.mark.parametrize(
    ("name", "value", "matters"),
    [
        ("UV_INDEX_URL", "https://one", True),
        ("UV_TORCH_BACKEND", "cpu", True),
        ("UV_CACHE_DIR", "/tmp", False),
        ("UV_INDEX_OWN_PASSWORD", "secret", False),
        ("UV_RUN_RECURSION_DEPTH", "1", False),
        ("PIP_INDEX_URL", "https://one", False),
    ],
)
def test_variables_of_uv_that_decide_what_is_installed_give_another_environment(
    uv, home, monkeypatch, name, value, matters
):
    before = name_of(TQDM)
    monkeypatch.setenv(name, value)
    assert (name_of(TQDM) != before) == matters


@pytest.mark.parametrize(
    "place", ["project/uv.toml", "uv.toml", ".config/uv/uv.toml", "constraints.txt", "links/a.whl"]
)
def test_a_changed_configuration_of_uv_gives_another_environment(uv, home, monkeypatch, place):
    (home / "project").mkdir()
    monkeypatch.chdir(home / "project")
    monkeypatch.setenv("UV_CONSTRAINT", f"{home}/none.txt {home}/constraints.txt")
    monkeypatch.setenv("UV_FIND_LINKS", "../links")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    names = [name_of(TQDM)]
    for text in ("1", "2"):
        (home / place).parent.mkdir(exist_ok=True, parents=True)
        (home / place).write_text(text, encoding="utf-8")
        names.append(name_of(TQDM))
    assert len(set(names)) == 3


def test_of_a_project_only_the_configuration_of_uv_gives_another_environment(uv, home, monkeypatch):
    monkeypatch.chdir(home)
    names = [name_of(TQDM)]
    for text in (
        '[project]\nversion = "1"',
        '[project]\nversion = "2"',
        "no toml",
        "[tool.uv]\nexclude-newer = 2026-01-01",
        "[tool.uv]\nx = 1",
    ):
        Path("pyproject.toml").write_text(text, encoding="utf-8")
        names.append(name_of(TQDM))
    assert len(set(names[:4])) == 1
    assert len(set(names)) == 3


@pytest.mark.parametrize("damage", ["no manifest", "no JSON", "other JSON", "no interpreter"])
def test_an_incomplete_environment_is_made_again(uv, home, damage):
    folder = Path(make().folder)
    manifest = folder / "mnistbench.json"
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "no interpreter":  # the interpreter that it was made with has been removed
        (folder / "bin" / "python").unlink()
        (folder / "bin" / "python").symlink_to(home / "removed")
    else:
        manifest.write_text("{" if damage == "no JSON" else "{}", encoding="utf-8")
    (folder / "remainder").touch()
    assert listed() == ([], 1)
    assert Path(make().folder) == folder
    assert not (folder / "remainder").exists()
    assert len(uv.calls) == 4


def test_what_a_link_leads_to_is_not_removed(uv, home):
    folder = Path(make().folder)
    elsewhere = home / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    assert list(remove_all()) == [folder]
    assert not folder.is_symlink()
    assert (elsewhere / "mnistbench.json").is_file()


@pytest.mark.parametrize(
    ("behaviour", "error", "message"),
    [
        (
            "fails",
            UsageError,
            "no environment with tqdm==4.66.2: uv: Because there is no version of tqdm==9",
        ),
        (
            "no interpreter",
            UsageError,
            "no environment with tqdm==4.66.2: uv made a folder without an interpreter",
        ),
        ("interrupted", KeyboardInterrupt, ""),
    ],
)
def test_a_failure_has_the_reason_and_leaves_nothing(
    uv, home, monkeypatch, behaviour, error, message
):
    monkeypatch.setenv("FAKE_UV", behaviour)
    with pytest.raises(error) as failed:
        make()
    assert str(failed.value) == message
    assert left(home) == []
    monkeypatch.delenv("FAKE_UV")
    make()


def test_a_cache_that_cannot_be_written_is_an_error(uv, home):
    (home / ".cache").write_text("a file", encoding="utf-8")
    with pytest.raises(
        UsageError,
        match=r"environments cannot be written \(.+\); set XDG_CACHE_HOME to another folder$",
    ):
        make()


def test_a_full_disk_is_an_error_and_leaves_nothing(uv, home, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_write", full)
    with pytest.raises(
        UsageError,
        match=r"^no environment with tqdm==4.66.2: ~.* cannot be written \(No space left",
    ):
        make()
    assert left(home) == []


# ---- Several processes at once -------------------------------------------------------------------


def test_two_gates_make_one_environment(uv, monkeypatch):
    monkeypatch.setenv("FAKE_UV", "slow")
    messages = []
    folders = []
    errors = []

    def gate():
        try:
            with held(TQDM, messages.append) as environment:
                folders.append(environment.folder)
                time.sleep(0.05)
        except BaseException as error:  # noqa: BLE001  # shown by the test
            errors.append(error)

    threads = [threading.Thread(target=gate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert errors == []
    assert len(set(folders)) == 1
    assert len(folders) == 4
    assert len(uv.calls) == 2
    assert sum(text.startswith("making ") for text in messages) == 1


def test_two_gates_use_one_environment_at_the_same_time(uv):
    with held(TQDM, lambda _: None) as first, held(TQDM, silent) as second:
        assert first.folder == second.folder


def test_uv_keeps_the_lock_after_its_parent_was_killed(home, tmp_path):
    lock = home / "lock"
    ready = home / "ready"
    program = tmp_path / "waits"
    program.write_text(
        f"#!{sys.executable} -SE\nimport os, pathlib, time\n"
        f"pathlib.Path({str(ready)!r}).write_text(str(os.getpid()))\ntime.sleep(60)\n"
    )
    program.chmod(0o755)
    code = (
        f"import fcntl; from mnistbench.gate.environments import uv; stream = open({str(lock)!r}, "
        f"'w'); fcntl.flock(stream, fcntl.LOCK_EX); uv.run({str(program)!r}, [], stream.fileno())"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 20
        while not (ready.exists() and ready.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        parent.kill()
        parent.wait()
        with lock.open() as stream, pytest.raises(BlockingIOError):
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(int(ready.read_text()), signal.SIGKILL)


# ---- List and remove -----------------------------------------------------------------------------


def test_removing_leaves_what_is_used_and_nothing_else(uv, home):
    numpy = Wanted(("numpy==2.1",), ("numpy==2.1",), 0)
    first = Path(make().folder)
    held_folder = Path(make(numpy).folder)
    incomplete = first.parent / "incomplete"
    incomplete.mkdir()
    shared = home / "in the cache of uv"
    shared.write_bytes(b"x" * 1000)
    (first / "shared").hardlink_to(shared)
    with held(numpy, silent):
        removed = remove_all()
    assert removed.keys() == {first, incomplete, held_folder}
    assert (removed[incomplete], removed[held_folder]) == ((0, 0), None)
    all_bytes, own_bytes = removed[first]
    assert all_bytes - own_bytes == 1000
    assert left(home) == [held_folder]
    assert remove_all().keys() == {held_folder}
    assert left(home) == []
    assert remove_all() == {}
    assert Path(make().folder) == first


# ---- The command ---------------------------------------------------------------------------------


def test_the_command_lists_and_removes(uv, home, capsys, monkeypatch):
    assert cli.main(["environments"]) == 0
    printed = (
        "no environments; mnistbench gate and bisect make them, for --base-with, --head-with and "
        "releases\n"
    )
    assert capsys.readouterr().out == printed
    assert cli.main(["environments", "--prune"]) == 0
    assert capsys.readouterr().out == "no environments to remove\n"

    monkeypatch.setattr(store, "_now", lambda: "2026-11-20T10:00:00+00:00")
    monkeypatch.setattr(store, "_sizes", lambda folder: (6_000_000_000, 6_000_000))
    folder = Path(make().folder)
    (folder.parent / "incomplete").mkdir()
    assert cli.main(["environments"]) == 0
    title, heads, line, row, note = capsys.readouterr().out.splitlines()
    assert title == "1 environment"
    assert re.split("  +", heads.strip()) == [
        "packages",
        "python",
        "created (UTC)",
        "last used (UTC)",
        "size",
        "folder",
    ]
    assert set(line) == {"-", " "}
    assert re.split("  +", row) == [
        "tqdm==4.66.2",
        sys.version.split()[0],
        "2026-11-20 10:00",
        "2026-11-20 10:00",
        "5.59 GiB",
        f"~/.cache/mnistbench/environments/{folder.name}",
    ]
    assert note == "1 folder incomplete or being made; --prune removes what is incomplete"

    (folder.parent / "incomplete").rmdir()
    with held(TQDM, silent):
        assert cli.main(["environments", "--prune"]) == 0
    assert (
        capsys.readouterr().out == f"not removed, because a gate uses it: {store.shown(folder)}\n"
    )
    assert cli.main(["environments", "--prune"]) == 0
    assert capsys.readouterr().out == (
        "removed 1 environment; freed 5.72 MiB; uv's cache keeps the other 5.58 GiB: uv cache "
        "clean\n"
    )
    assert left(home) == []


def test_a_folder_outside_the_home_is_shown_in_full(home, tmp_path):
    assert store.shown(Path("/elsewhere/a")) == "/elsewhere/a"
    assert store.shown(tmp_path / "a") == "~/a"


# ---- The real uv ---------------------------------------------------------------------------------


def write_wheel(folder, name, version, requires=""):
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def test_the_real_uv_changes_a_loose_version_only_if_another_package_excludes_it(
    home, tmp_path, monkeypatch
):
    try:
        find()
    except UsageError:
        pytest.skip("uv is not installed")
    for variable, value in (
        ("UV_NO_INDEX", "1"),
        ("UV_FIND_LINKS", tmp_path),
        ("UV_CACHE_DIR", tmp_path / "cache"),
    ):
        monkeypatch.setenv(variable, str(value))
    for wheel in (
        ("tiny", "1.0"),
        ("tiny", "2.0"),
        ("tiny", "3.0"),
        ("large", "1.0", "tiny==1.0"),
        ("large", "2.0", "tiny"),
    ):
        write_wheel(tmp_path, *wheel)
    for version, tiny in (("1.0", "1.0"), ("2.0", "2.0")):
        environment = make(
            Wanted((f"large=={version}",), (f"large=={version}", "tiny==2.0"), 1000, ("tiny==2.0",))
        )
        assert environment.packages == {"large": version, "tiny": tiny}
    environment = make(
        Wanted(("own==1.0",), (f"own @ {write_wheel(home, 'own', '1.0').as_uri()}",), 1000)
    )
    assert environment.packages == {"own": "1.0"}
    subprocess.run([environment.python, "-I", "-c", "import own"], check=True)
    with pytest.raises(UsageError, match=r"^no environment with tiny==9: uv: Because .*tiny"):
        make(Wanted(("tiny==9",), ("tiny==9",), 1000))
    assert len(left(home)) == 3
