"""Environment variables with paths of the user's tree, and the places that both sides share."""

import errno
import getpass
import os
import tempfile
import time
from pathlib import Path

import pytest

from mnistbench.gate.copies.places import (
    activated,
    link_precompiled_headers,
    own_places,
    precompiled_headers,
    shared_places,
)


@pytest.fixture
def tree(tmp_path):
    """The user's tree."""
    tree = tmp_path / "my project"
    (tree / "ignored").mkdir(parents=True)
    return tree


@pytest.fixture
def copy(tmp_path, tree):
    """A copy of it, without what git ignores."""
    copy = tmp_path / "copies" / "base"
    for name in ("data/words.txt", "lib/part.py", "bin/tool", ".venv/lib/x.py", "env/pyvenv.cfg"):
        for root in (tree, copy):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
    for root in (tree, copy):
        (root / "results").mkdir()
        (root / "results/.gitignore").touch()
        (root / "results/README.md").touch()
    (tree / "results/ignored.npz").touch()
    return copy


@pytest.fixture
def moved(tree, copy, tmp_path):
    """Return the value of a variable of a side, in which {tree} and {copy} stand for paths."""

    def value_of(value, name="VALUE", **more):
        given = {name: value.format(tree=tree), **more}
        environ = own_places(given, tree, copy, copy / "data", tmp_path / "tmp")
        return environ[name].replace(str(copy), "{copy}").replace(str(tree), "{tree}")

    return value_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{tree}", "{copy}"),
        ("{tree}/", "{copy}/"),
        ("{tree}/data", "{copy}/data"),
        ("{tree}/data/words.txt", "{copy}/data/words.txt"),
        ("{tree}/lib:/opt:{tree}/data", "{copy}/lib:/opt:{copy}/data"),
        ("{tree}/lib::/opt", "{copy}/lib::/opt"),
        ("--root={tree} --data '{tree}/data'", "--root={copy} --data '{copy}/data'"),
        ("-I{tree}/lib -L{tree}/nowhere", "-I{copy}/lib -L{tree}/nowhere"),
        ("sqlite:///{tree}/data/words.txt?mode=ro", "sqlite:///{copy}/data/words.txt?mode=ro"),
        ("file://{tree}/data", "file://{copy}/data"),
        ('{{"data": "{tree}/data"}}', '{{"data": "{copy}/data"}}'),
        ("a={tree}/data,b={tree}/lib", "a={copy}/data,b={copy}/lib"),
    ],
)
def test_a_path_of_the_tree_is_that_of_the_copy(moved, value, expected):
    assert moved(value) == expected.replace("{{", "{").replace("}}", "}")


@pytest.mark.parametrize(
    "value",
    [
        "{tree}2/data",
        "/backup{tree}/data",
        "other{tree}/data",
        "data",
        "{tree}/ignored",  # both sides share what a copy does not have
        "{tree}/not/made",
        "{tree}/results",  # the copy has the folder without the files that git ignores
        "{tree}/.venv/lib",
        "{tree}/env/lib",
        "{tree}/data:{tree}2",
        "x" * 5000 + "{tree}",
        "",
    ],
)
def test_other_paths_stay(moved, value):
    if value == "{tree}/data:{tree}2":
        assert moved(value) == "{copy}/data:{tree}2"
    else:
        assert moved(value) == value


@pytest.mark.parametrize(
    ("marker", "name"), [("pyvenv.cfg", "VIRTUAL_ENV"), ("conda-meta/history", "CONDA_PREFIX")]
)
def test_programs_find_the_environment_of_the_interpreter(tmp_path, marker, name):
    (tmp_path / marker).parent.mkdir(exist_ok=True)
    (tmp_path / marker).touch()
    given = {"PATH": "/tool/bin:/bin", "VIRTUAL_ENV": "/other", "CONDA_PREFIX": "/other"}
    assert activated(given, tmp_path / "bin" / "python") == {
        **given,
        "PATH": f"{tmp_path}/bin:/tool/bin:/bin",
        name: str(tmp_path),
    }


def test_an_interpreter_outside_of_environments_changes_no_variable(tmp_path):
    assert activated({"PATH": "/bin"}, tmp_path / "bin" / "python") == {"PATH": "/bin"}


@pytest.mark.parametrize("name", ["PATH", "VIRTUAL_ENV", "PYTHONHOME", "CONDA_PREFIX"])
def test_programs_and_environments_stay(moved, name):
    assert moved("{tree}/bin", name) == "{tree}/bin"


def test_modules_are_first_looked_for_in_the_copy(moved):
    # As in the process of a side itself: what the copy lacks is then named as the user's.
    assert moved("{tree}/lib:/opt:{tree}/ignored", "PYTHONPATH") == (
        "{copy}/lib:{tree}/lib:/opt:{tree}/ignored"
    )


def test_a_link_to_the_tree_is_the_tree(tree, copy, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tree)
    given = {"PWD": f"{link}/data", "OLDPWD": str(link), "DATA": f"{link}/data", "REAL": f"{tree}"}
    environ = own_places(given, tree, copy, copy / "data", tmp_path / "tmp")
    assert environ["DATA"] == environ["PWD"] == str(copy / "data")
    assert environ["OLDPWD"] == environ["REAL"] == str(copy)
    environ = own_places(given, link, copy, copy / "data", tmp_path / "tmp")
    assert environ["DATA"] == str(copy / "data")
    assert environ["REAL"] == str(copy)


def test_a_side_has_its_own_folders_for_temporary_files_and_compiled_extensions(tree, tmp_path):
    given = {"TMP": "/tmp", "HOME": "/home/me", "XDG_CACHE_HOME": "/cache"}
    environ = own_places(given, tree, tmp_path, tmp_path, tmp_path / "tmp")
    assert environ == {
        **given,
        "TMP": str(tmp_path / "tmp"),
        "TMPDIR": str(tmp_path / "tmp"),
        "TORCH_EXTENSIONS_DIR": str(tmp_path / "tmp/torch_extensions"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "tmp/inductor"),
        "TRITON_CACHE_DIR": str(tmp_path / "tmp/triton"),
        "PWD": str(tmp_path),
    }


@pytest.fixture
def of_user(tmp_path, monkeypatch):
    """The user's precompiled headers."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "user"))
    folder = precompiled_headers(tmp_path / "user")
    folder.mkdir(parents=True)
    for name, age_s in (("old.h", 100), ("old.h.gch", 100), ("new.h.gch", 1)):
        (folder / name).write_text(name)
        os.utime(folder / name, (time.time() - age_s,) * 2)
    (folder / "locks").mkdir()
    return folder


def test_a_side_finds_precompiled_headers_of_the_user_that_are_written(tmp_path, of_user):
    link_precompiled_headers(tmp_path / "side")
    folder = precompiled_headers(tmp_path / "side")
    assert sorted(path.name for path in folder.iterdir()) == ["old.h", "old.h.gch"]
    (folder / "own.h").touch()
    (folder / "old.h").unlink()
    link_precompiled_headers(tmp_path / "side")  # of the next process
    assert sorted(path.name for path in folder.iterdir()) == ["old.h.gch", "own.h"]
    assert sorted(path.name for path in of_user.iterdir()) == [
        "locks",
        "new.h.gch",
        "old.h",
        "old.h.gch",
    ]


def test_without_precompiled_headers_of_the_user_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    link_precompiled_headers(tmp_path / "side")
    assert not (tmp_path / "side").exists()


def test_headers_that_cannot_be_linked_are_precompiled_again(tmp_path, of_user, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", refuse)
    link_precompiled_headers(tmp_path / "side")
    assert list(precompiled_headers(tmp_path / "side").iterdir()) == []


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_a_user_without_a_name_has_a_number(tmp_path, monkeypatch, error):
    def refuse():
        raise error

    monkeypatch.setattr(getpass, "getuser", refuse)
    folder = tmp_path / f"torchinductor_uid_{os.getuid()}" / "precompiled_headers"
    assert precompiled_headers(tmp_path) == folder


def test_places_that_both_sides_share_are_caches_and_what_is_in_the_users_tree(tmp_path, tree):
    folders = ("home/.cache", "hub", "installed/bin", "numba", "elsewhere")
    for name in folders:
        (tmp_path / name).mkdir(parents=True)
    (tree / ".venv/bin").mkdir(parents=True)
    (tree / "bin").mkdir()
    environ = {
        "HOME": str(tmp_path / "home"),
        "HF_HOME": str(tmp_path / "hub"),
        "NUMBA_CACHE_DIR": str(tmp_path / "numba"),
        "PIP_CACHE_DIR": str(tmp_path / "not made"),
        "CUDA_HOME": str(tmp_path / "installed"),
        "ELSEWHERE": str(tmp_path / "elsewhere"),
        "DATA": str(tree / "ignored"),
        "PATH": f"{tree}/.venv/bin:{tree}/bin:/usr/bin",
        "VIRTUAL_ENV": str(tree / ".venv"),
        "PYTHONPATH": str(tree),
        "OLDPWD": str(tree),
        "MY_CACHE": "yes",
    }
    caches = [tmp_path / "home/.cache", tmp_path / "hub", tmp_path / "numba"]
    in_tree = [tree / "ignored", tree / "bin"]
    assert sorted(shared_places(environ, tree)) == sorted(map(str, [*caches, *in_tree]))
    assert sorted(shared_places(environ)) == sorted(map(str, caches))
    cache = {**environ, "XDG_CACHE_HOME": str(tmp_path / "elsewhere")}
    assert shared_places(cache)[0] == str(tmp_path / "elsewhere")
    assert shared_places({}) == ()
    assert Path(shared_places({"HOME": str(tmp_path / "home")})[0]).name == ".cache"
