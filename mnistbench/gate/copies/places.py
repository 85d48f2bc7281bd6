"""Paths in the environment variables of a side, and the places that both sides share."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

#: Variables whose paths stay: programs and environments, which no copy has.
_STAY = frozenset({"PATH", "VIRTUAL_ENV", "PYTHONHOME", "CONDA_PREFIX", "UV_PROJECT_ENVIRONMENT"})

#: Folders of environments. If git does not ignore them, they are copied, but not to be run.
_ENVIRONMENTS = frozenset({".venv", "venv", ".tox", ".nox", ".pixi", ".conda"})

#: Variables with the folder for temporary files.
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")

#: Variables with the folders where torch.utils.cpp_extension, Inductor and Triton keep what they
#: have built -> the folder of a side for it. Each side would find there, or build again, what the
#: other one has built.
_BUILT = {
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
}

#: Least age of a precompiled header, in seconds: another program may still write a younger one.
_MIN_AGE_S = 60.0

#: Names of variables with a folder in which programs keep what they find again.
_CACHE_NAME = re.compile(r"(^|_)CACHE(_DIR|_HOME|_PATH|_ROOT)?$|_HOME$", re.IGNORECASE)

#: What ends a path inside of a value such as ``--data=/tree/a,/tree/b`` or ``sqlite:////tree/a.db``.
_END = r"""[\s:;,"'?#]"""


def own_places(
    environ: Mapping[str, str], repository: Path, copy: Path, directory: Path, temporary: Path
) -> dict[str, str]:
    """Return environment variables whose paths in the user's tree are those of a side's copy.

    A path that the copy does not have stays, such as data that git ignores. Each side has a folder
    of its own for temporary files and for what is built while it runs. The user's cache stays,
    because it may have data sets and models that cannot be loaded again.

    Args:
        environ: the user's variables.
        repository: the user's tree.
        copy: that of the side.
        directory: in the copy, where the side runs.
        temporary: for temporary files of the side.
    """
    roots = _roots(environ, repository)
    moved = {
        name: value if name in _STAY else _moved(value, roots, copy, keeps=name == "PYTHONPATH")
        for name, value in environ.items()
    }
    moved["PWD"] = str(directory)
    for name in _TEMPORARY:
        if name == _TEMPORARY[0] or name in environ:
            moved[name] = str(temporary)
    return moved | {name: str(temporary / folder) for name, folder in _BUILT.items()}


def link_precompiled_headers(temporary: Path) -> None:
    """Link the C++ headers that Inductor has precompiled for the user to the folder of a side.

    To precompile them takes 5 seconds in each empty folder for temporary files. Their names are
    hashes of what they were made from. A side keeps in its own folder what it precompiles.

    Args:
        temporary: folder for temporary files of the side.
    """
    folder = precompiled_headers(temporary)
    of_user = precompiled_headers(Path(tempfile.gettempdir()))
    if folder.exists() or not of_user.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for header in of_user.iterdir():
        # A hard link to another file system is not possible.
        with contextlib.suppress(OSError):
            if header.is_file() and time.time() - header.stat().st_mtime > _MIN_AGE_S:
                os.link(header, folder / header.name)


def precompiled_headers(temporary: Path) -> Path:
    """Return where Inductor keeps precompiled headers; private in PyTorch.

    ``torch._inductor.codecache._HEADER_DIR``, which no variable sets.
    """
    try:
        user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    except (KeyError, OSError):
        user = f"uid_{os.getuid()}"
    return temporary / f"torchinductor_{user}" / "precompiled_headers"


def activated(environ: Mapping[str, str], python: Path) -> dict[str, str]:
    """Return environment variables by which programs find the environment of an interpreter.

    Without them, a side that runs ``python`` or a program of its environment would start that of
    the gate. An interpreter that belongs to no environment changes nothing.
    """
    folder = python.parent.parent
    is_virtual = (folder / "pyvenv.cfg").is_file()
    if not is_virtual and not (folder / "conda-meta").is_dir():
        return dict(environ)
    path = os.pathsep.join(filter(None, (str(python.parent), environ.get("PATH", ""))))
    name = "VIRTUAL_ENV" if is_virtual else "CONDA_PREFIX"
    return {**environ, "PATH": path, name: str(folder)}


def shared_places(environ: Mapping[str, str], repository: Path | None = None) -> tuple[str, ...]:
    """Return the folders and files that all processes with these variables share.

    These are the user's cache, folders that a variable names as a cache, and what variables name in
    the user's tree. Environments and installed programs do not count.

    Args:
        environ: variables of a side, or the user's.
        repository: the user's tree; None if variables may name what they want there.
    """
    places = []
    if home := environ.get("HOME"):
        places.append(environ.get("XDG_CACHE_HOME") or f"{home}{os.sep}.cache")
    for name, value in sorted(environ.items()):
        parts = [value, *value.split(os.pathsep)]
        if _CACHE_NAME.search(name) and name not in _STAY:
            # A folder with programs is an installation, such as that of CUDA_HOME.
            places += [part for part in parts[:1] if not (Path(part) / "bin").is_dir()]
        # What is imported from the user's tree is refused elsewhere, with the module.
        if repository and name not in {"OLDPWD", "PYTHONPATH"}:
            roots = (str(repository), str(repository.resolve()))
            places += [part for part in parts if _is_in_tree(part, roots)]
    return tuple(dict.fromkeys(place for place in places if _is_absolute(place) and _is(place)))


def _is_in_tree(part: str, roots: tuple[str, ...]) -> bool:
    for root in roots:
        if f"{part}{os.sep}".startswith(f"{root}{os.sep}"):
            return not _is_environment(Path(root), part.removeprefix(root))
    return False


def _roots(environ: Mapping[str, str], repository: Path) -> tuple[str, ...]:
    """Return the names of the user's tree: with and without links, as far as PWD has them."""
    real = repository.resolve()
    roots = [str(repository), str(real)]
    here = Path(environ.get("PWD", ""))
    if here.is_absolute():
        folders = (here, *here.parents)
        roots += [str(folder) for folder in folders if folder.resolve() == real]
    # The longest first: one may be the beginning of another one.
    return tuple(sorted(dict.fromkeys(roots), key=len, reverse=True))


def _moved(value: str, roots: tuple[str, ...], copy: Path, *, keeps: bool) -> str:
    """Return a value with the paths of a copy; with ``keeps`` each is before that of the tree."""
    if not any(root in value for root in roots):
        return value
    whole = _moved_path(value, roots, copy)
    if whole != value and not keeps:
        return whole
    parts = value.split(os.pathsep)
    if keeps or all(_is_absolute(part) or not part for part in parts):
        moved = list[str]()
        for part in parts:
            moved += dict.fromkeys((_moved_path(part, roots, copy), *[part] * keeps))
        return os.pathsep.join(moved)
    return _with_moved_paths(value, roots, copy)


def _with_moved_paths(value: str, roots: tuple[str, ...], copy: Path) -> str:
    """Return a value with moved paths between other text, such as options or an address."""
    names = "|".join(map(re.escape, roots))
    # Before a path is no letter, unless it is that of -I or -L, and no part of another path.
    pattern = rf"(?:(?<![\w.~-])(?<![\w.~-]/)|(?<=-[IL]))(?:{names})(?=/|$|{_END})(?:(?!{_END}).)*"
    return re.sub(pattern, lambda found: _moved_path(found[0], roots, copy), value)


def _moved_path(path: str, roots: tuple[str, ...], copy: Path) -> str:
    for root in roots:
        if not f"{path}{os.sep}".startswith(f"{root}{os.sep}"):
            continue
        inside = path.removeprefix(root)
        target = f"{copy}{inside}"
        if _is_environment(Path(root), inside) or not _is(target) or _is_placeholder(Path(target)):
            return path
        return target
    return path


def _is_environment(root: Path, inside: str) -> bool:
    """Whether a path inside of a tree is in an environment."""
    parts = Path(inside.lstrip(os.sep)).parts
    folders = (root.joinpath(*parts[:number]) for number in range(1, len(parts) + 1))
    return bool(_ENVIRONMENTS.intersection(parts)) or any(
        _is(str(folder / "pyvenv.cfg")) for folder in folders
    )


def _is_placeholder(folder: Path) -> bool:
    """Whether a folder is in git only to exist, such as ``data`` with a ``.gitignore`` alone.

    The user's folder then has files that git ignores, and the copy does not.
    """
    return folder.is_dir() and all(
        path.is_dir() or path.name.startswith((".", "README")) for path in _below(folder)
    )


def _below(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)


def _is_absolute(path: str) -> bool:
    return path.startswith(os.sep)


def _is(path: str) -> bool:
    """Whether a text is the path of something; a text may also be too long for a path."""
    try:
        return os.path.lexists(path)
    except (OSError, ValueError):
        return False
