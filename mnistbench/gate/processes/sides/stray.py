"""Which code the sides have imported.

Two copies can be compared, wherever they are; the same code twice cannot.

A side notes the modules of the project that it has imported from outside its tree
(``outside_modules``). Then the files of both sides are compared (``refusal``), because files decide
what is measured: module names, installations and import hooks differ between build tools. Does not
import torch.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.metadata
import os
import re
import sys
import sysconfig
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from mnistbench.gate.words import BASE, HEAD

#: Files of the folder of a project.
_PROJECT_FILES = {"pyproject.toml", "setup.cfg", "setup.py"}

#: Folders of a tree in which no project of its own is.
_NO_PROJECTS = ("build", "dist", "node_modules", "site-packages", "third_party", "vendor")
#: Folders of a project in which no package of it is.
_NO_PACKAGES = ("benchmarks", "bench", "docs", "examples", "scripts", "test", "tests", "tools")

#: Most modules that a remark names.
_NAMED = 3

#: What to do if no folder on the path makes a side import its copy: an import hook comes first, or
#: a build makes the module.
_OWN_ENVIRONMENTS = (
    "install each version from a checkout of its own in an environment of its own, and name them "
    "with --base, --base-python and --head-python"
)


@dataclass(frozen=True)
class Outside:
    """A module of the project that a side has imported from outside its tree."""

    path: str  # of its file, or of the folder of a namespace package
    copy: str = ""  # path of its copy in the tree; empty if there is none
    # The PYTHONPATH with which its copy is imported, relative to pytest's folder; empty if none
    # helps.
    folder: str = ""
    # Imported from the user's own repository, whose code is that of the head.
    in_repository: bool = False


@dataclass(frozen=True)
class Imports:
    """The modules of the project that a side has imported."""

    tree: str  # folder of the side's copy
    outside: Mapping[str, Outside] = field(default_factory=dict)
    # Module of the tree -> its file, relative to the tree.
    files: Mapping[str, str] = field(default_factory=dict)

    def path(self, name: str) -> str:
        """Return the path from which a module is imported; empty if it is not imported."""
        if name in self.outside:
            return self.outside[name].path
        return str(Path(self.tree, self.files[name])) if name in self.files else ""

    def copy(self, name: str) -> str:
        """Return the path of the copy of a module in the tree; empty if none is known."""
        return self.outside[name].copy if name in self.outside else self.path(name)


# ---- In the process of a side --------------------------------------------------------------------


def outside_modules(
    tree: Path, directory: Path, home: Path, repository: Path, earlier: Collection[str]
) -> dict[str, Outside]:
    """Return the imported modules of the project that are not from the tree of this process's side.

    Their files are in the user's repository, as with an editable install; belong to the installed
    distribution of the project; or have the names of modules that the tree has, too.

    Args:
        tree: of the side.
        directory: in it, where pytest runs.
        home: folder of the gate's own copies of packages.
        repository: the user's own tree.
        earlier: modules that were imported before the session: pytest needs them itself.
    """
    distribution = _modules_of_distribution(directory)
    packages = own_packages(tree)
    installations = tuple(f"{folder}{os.sep}" for folder in _installations(repository))
    copies = (f"{_real(str(tree))}{os.sep}", f"{_real(str(home))}{os.sep}")
    outside = {}
    for name, module in list(sys.modules.items()):
        paths = [_real_file(path) for path in paths_of(module)]
        if not paths or any(path.startswith(copies) for path in paths):
            continue
        path = paths[0]
        in_repository = path.startswith(f"{repository}{os.sep}") and not path.startswith(
            installations
        )
        candidates = packages.get(name.partition(".")[0], [])
        copy = next((file for folder in candidates if (file := _file_of(folder, name))), None)
        is_own = in_repository or path in distribution
        # A package that pytest needs itself may share no more than its name with one of the tree.
        is_named_alike = copy and (name not in earlier or _is_alike(path, copy))
        if not is_own and not is_named_alike:
            continue
        if in_repository and not copy:  # a folder whose name is not that of its package
            place = tree / Path(path).relative_to(repository)
            copy = place if place.exists() else None
        folder = _helping_folder(copy, name, directory, is_earlier=name in earlier) if copy else ""
        outside[name] = Outside(path, str(copy or ""), folder, in_repository)
    return outside


def paths_of(module: ModuleType) -> list[str]:
    """Return the file of a module, or the folders of a namespace package."""
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return [file]
    try:
        return [str(path) for path in getattr(module, "__path__", ())]
    except Exception:  # noqa: BLE001  # a lazy module, so none of a tree
        return []


def project_table(directory: Path) -> dict[str, Any]:
    """Return the table ``project`` of a folder's pyproject.toml; empty if there is none."""
    try:
        table = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    except (OSError, ValueError, KeyError):
        return {}
    return table if isinstance(table, dict) else {}


def with_copies(paths: Iterable[str], tree: Path, repository: Path) -> Iterator[str]:
    """Yield the entries of ``sys.path``, with the tree's folders before the user's.

    Before each folder of the user's repository comes that of the tree which is its copy.
    """
    installations = tuple(_installations(repository))
    for path in paths:
        real = _real(path)
        if f"{real}{os.sep}".startswith(f"{repository}{os.sep}") and not real.startswith(
            installations
        ):
            copy = tree / Path(real).relative_to(repository)
            if copy.is_dir():
                yield str(copy)
        yield path


def _modules_of_distribution(directory: Path) -> set[str]:
    """Return the files of the installed distribution of a project.

    The files of its import hooks are left out.

    An editable install has a file ``.pth`` with a line that imports the module of a hook; the hook
    is not the project's code.
    """
    try:
        distribution = importlib.metadata.distribution(project_table(directory)["name"])
        files = {file: _real_file(str(file.locate())) for file in distribution.files or ()}
    except (ValueError, KeyError, TypeError, importlib.metadata.PackageNotFoundError):
        return set()
    hooks = set()
    for file in files:
        if file.suffix == ".pth" and Path(file.locate()).is_file():
            hooks |= {
                f"{module}.py"
                for module in re.findall(r"^import\s+(\w+)", file.read_text(), re.MULTILINE)
            }
    return {path for file, path in files.items() if str(file) not in hooks}


def _installations(repository: Path) -> Iterator[str]:
    """Yield the folders of installed packages.

    Those inside the repository contain no code of the project itself.
    """
    yield from {_real(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}
    for environment in {_real(prefix) for prefix in (sys.prefix, sys.base_prefix)}:
        # Not the system's Python with the project below /usr.
        if environment.startswith(f"{repository}{os.sep}"):
            yield environment
    for path in sys.path:
        real = _real(path)
        # Such as __pypackages__.
        if real.startswith(f"{repository}{os.sep}") and any(Path(real).glob("*.dist-info")):
            yield real


@functools.cache  # the survey needs them for each case
def own_packages(tree: Path) -> dict[str, list[Path]]:
    """Return the top-level packages and modules of the projects of a tree.

    Name -> the folders that contain it.

    These folders are those of the projects, and their folders such as ``src`` that are no packages
    themselves: a module in a package has another dotted name. Names of the standard library are
    left out.
    """
    folders_of: dict[str, list[Path]] = {}
    for folder, subfolders, files in os.walk(tree):
        subfolders[:] = [
            name
            for name in subfolders
            if name not in _NO_PROJECTS and not name.startswith((".", "_"))
        ]
        if folder == str(tree) or _PROJECT_FILES.intersection(files):
            inside = [Path(folder, name) for name in subfolders if name not in _NO_PACKAGES]
            for root in (
                Path(folder),
                *(path for path in inside if not (path / "__init__.py").exists()),
            ):
                for name in {
                    entry.name.partition(".")[0] for entry in root.iterdir()
                } - sys.stdlib_module_names:
                    folders_of.setdefault(name, []).append(root)
    return folders_of


def _file_of(folder: Path, name: str) -> Path | None:
    """Return the file of a module with this dotted name below a folder.

    It has the source or the compiled code.
    """
    relative = name.replace(".", os.sep)
    files = [
        folder / relative / "__init__.py",
        *(folder / f"{relative}{end}" for end in importlib.machinery.all_suffixes()),
    ]
    return next((file for file in files if file.is_file()), None)


def _is_alike(path: str, copy: Path) -> bool:
    """Whether a package of a tree may be a copy of one that pytest needs, such as packaging.

    Most of its modules are there.

    A folder ``packaging`` of a project may have scripts that make packages.
    """
    if copy.stem != "__init__":
        return True
    names, own = (
        {file.name for file in folder.glob("*.py")} for folder in (Path(path).parent, copy.parent)
    )
    return 2 * len(names & own) > len(names)


def _helping_folder(copy: Path, name: str, directory: Path, *, is_earlier: bool) -> str:
    """Return the folder that has to be on the path so that a copy is imported.

    Empty if that does not help.
    """
    levels = name.count(".") + (copy.stem == "__init__" or copy.is_dir())
    root = copy.parents[levels] if levels < len(copy.parents) else copy.parent
    if not copy.is_dir() and _file_of(root, name) != copy:
        return ""  # the folder of a package has another name than the package
    if not is_earlier and _real(str(root)) in map(_real, sys.path):
        return ""  # an import hook comes before the path
    return os.path.relpath(root, directory)


@functools.cache
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def _real_file(path: str) -> str:
    """Return a path with the links of its folders resolved, which many modules share.

    A link to the file itself stays.
    """
    folder, name = os.path.split(path)
    # Thousands of modules: a Path costs more.
    return os.path.join(_real(folder), name)  # noqa: PTH118


# ---- Of both sides -------------------------------------------------------------------------------


def refusal(imports: Mapping[str, Imports], *, is_same_code: bool) -> str:
    """Return why the code that the sides have imported cannot be compared, and what to do.

    Empty if it can.

    Args:
        imports: of BASE and HEAD.
        is_same_code: the trees are copies of the same files, so equal code is what is to be
            measured.
    """
    base = imports[BASE]
    head = imports[HEAD]
    for name in sorted({*base.outside, *head.outside}):  # a package before its modules
        paths = base.path(name), head.path(name)
        if paths[0] == paths[1]:
            fault = f"both sides import {name} from {paths[0]}, not from their own copies"
        elif (
            name in base.outside
            and base.outside[name].in_repository
            and not _are_equal(paths[0], base.copy(name))
        ):
            fault = f"the base imports {name} from {paths[0]}, which is not the base's code"
        elif (
            all(paths)
            and not is_same_code
            and _are_equal(*paths)
            and not _are_equal(base.copy(name), head.copy(name))
        ):
            fault = (
                f"the sides import {name} from {paths[0]} and from {paths[1]}, which have the "
                "same code"
            )
        else:
            continue
        return f"{fault}; {_advice(name, imports)}"
    return ""


def remark(imports: Mapping[str, Imports]) -> str:
    """Return from where the sides have imported modules that are not from their trees.

    Empty if there are none.
    """
    names = sorted({**imports[BASE].outside, **imports[HEAD].outside})
    packages = [name for name in names if not any(name.startswith(f"{other}.") for other in names)]
    if not packages:
        return ""
    shown = [
        f"{name} from {_shown(name, imports[BASE])} and from {_shown(name, imports[HEAD])}"
        for name in packages[:_NAMED]
    ]
    more = f", and {len(packages) - _NAMED} more" if len(packages) > _NAMED else ""
    return f"base and head import {', '.join(shown)}{more}"


def _shown(name: str, imports: Imports) -> str:
    if name in imports.outside:
        return imports.outside[name].path
    return "its copy" if name in imports.files else "nowhere"


def _advice(name: str, imports: Mapping[str, Imports]) -> str:
    """Return what makes the sides import their copies of a module."""
    folders = {
        side: side_imports.outside[name].folder
        for side, side_imports in imports.items()
        if name in side_imports.outside
    }
    if not all(folders.values()):
        return _OWN_ENVIRONMENTS
    return (
        f"add {' '.join(f'--{side}-env PYTHONPATH={folder}' for side, folder in folders.items())}"
    )


def _are_equal(first: str, second: str) -> bool:
    """Whether two files have the same content.

    Folders of namespace packages have none, so they are equal.
    """
    if not first or not second:
        return False
    first_path = Path(first)
    second_path = Path(second)
    if first_path.is_dir() and second_path.is_dir():
        return True
    try:
        return first_path.read_bytes() == second_path.read_bytes()
    except OSError:  # in an archive
        return False
