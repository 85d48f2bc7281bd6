"""Copy the two trees, so that a measurement neither uses nor changes the user's files.

A revision is checked out through a separate index, not by ``git worktree``: the repository stays
unchanged, no hook runs, and a crash leaves nothing in ``.git``. Neither copy contains ``.git``, so
code that runs git gets the same result on both sides.
"""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.core.files import locked

_PREFIX = "mnistbench-gate-"
_LOCK = "lock"

#: Folder of raw samples, in the directory where a gate was started; it belongs to neither side.
_RAW = "/.benchmarks/gate/"

#: Names that are not copied from a tree that is not a repository.
_LEFT_OUT = (
    ".git",
    ".hg",
    ".benchmarks",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".nox",
    "node_modules",
)

#: Arguments of git for the files of a tree: the tracked ones, and those not ignored.
_OWN_FILES = ("--cached", "--others", "--exclude-standard", "--deduplicate")

#: Folder of compiled files.
_CACHE = "__pycache__"

_COMPILED = ("*.so", "*.pyd", "*.dylib")

#: Files that a build writes into packages, usually ignored by git: versions, generated code,
#: compiled modules.
_GENERATED = ("*.py", *_COMPILED)

#: Sources and build files of compiled modules, beside a Python file of the same name.
_SOURCES = (
    "*.S",
    "*.asm",
    "*.c",
    "*.cc",
    "*.cmake",
    "*.cpp",
    "*.cu",
    "*.cuh",
    "*.cxx",
    "*.f",
    "*.f90",
    "*.h",
    "*.hh",
    "*.hpp",
    "*.inl",
    "*.proto",
    "*.pxd",
    "*.pxi",
    "*.pyx",
    "*.pyx.in",
    "*.rs",
    "CMakeLists.txt",
    "Cargo.lock",
    "Cargo.toml",
    "meson.build",
    "setup.py",
)

#: Files that a build writes with the version of the package.
_VERSIONS = ("__version__.py", "_version.py", "version.py")

#: Files from which no Python file is generated, beside Python files that do not name it.
_NO_INPUTS = (
    "*.cfg",
    "*.ini",
    "*.lock",
    "*.md",
    "*.pyi",
    "*.rst",
    ".git*",
    ".pre-commit-config.yaml",
    "LICENSE*",
    "pyproject.toml",
    "requirements*.txt",
)


@dataclass(frozen=True)
class Tree:
    """A side's copy."""

    root: Path  # of the copy
    directory: Path  # in the copy: corresponds to the user's current directory
    what: str  # shown in reports: "1a2b3c4", "working tree", a folder
    # Files that git ignores, copied from the working tree beside its own.
    generated: tuple[str, ...] = ()


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary folder and remove it afterwards.

    Remove also the folders of killed gates.
    """
    temporary = Path(tempfile.gettempdir())
    with contextlib.ExitStack() as lock:
        try:
            folder = _locked_folder(lock)
        except OSError as error:
            raise UsageError(
                f"{temporary}: cannot be written ({error.strerror}); set TMPDIR to a folder that "
                "can be"
            ) from None
        try:
            _remove_abandoned(temporary, folder)
            yield folder
        finally:
            lock.close()
            shutil.rmtree(folder, ignore_errors=True)


def _locked_folder(lock: contextlib.ExitStack) -> Path:
    """Create a folder and lock it until the stack is closed.

    If another gate removes it as abandoned before it is locked, create another one.
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
        with contextlib.suppress(FileNotFoundError):
            lock.enter_context(locked(folder / _LOCK, before_waiting=lambda: None))
            return folder


def _remove_abandoned(temporary: Path, own: Path) -> None:
    for folder in temporary.glob(f"{_PREFIX}*"):
        try:
            if folder.resolve() == own or folder.lstat().st_uid != os.getuid():
                continue
            if (folder / _LOCK).exists():  # else another gate has just made it
                with locked(folder / _LOCK):
                    shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # locked by a running gate, or removed already


def repository_of(directory: Path) -> Path | None:
    """Return the root of the git working tree that contains a folder; None outside a repository."""
    try:
        top = _git(directory, "rev-parse", "--show-toplevel")
    except _NoRepositoryError:
        return None
    return Path(top.removesuffix("\n"))


def commit_of(here: Path, revision: str) -> tuple[Path, str]:
    """Return the root of the repository that contains ``here``, and the hash of a revision."""
    top = repository_of(here)
    if top is None:
        raise UsageError(
            f"--base {revision!r}: {here} is not in a git repository; name a folder with --base-dir"
        )
    wanted = revision
    if revision.endswith("..."):  # as in git diff main...
        wanted = (
            _git(top, "merge-base", "HEAD", revision.removesuffix("..."), check=False).strip()
            or revision
        )
    commit = _git(
        top,
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        f"{wanted}^{{commit}}",
        check=False,
    ).strip()
    if not commit:
        name = revision.removesuffix("...").removeprefix("origin/") or revision
        hint = f"name a commit, a branch or a tag, or fetch it: git fetch origin {name}"
        if _git(top, "rev-parse", "--is-shallow-repository", check=False).strip() == "true":
            hint = "this clone is shallow, so fetch what is missing: git fetch --unshallow"
        raise UsageError(f"--base {revision!r}: no such commit in {top}; {hint}")
    return top, commit


def of_revision(here: Path, revision: str, into: Path) -> Tree:
    """Write a revision of the repository that contains ``here`` into a folder.

    With the generated files of the working tree.
    """
    top, commit = commit_of(here, revision)
    into.mkdir()
    index = into.with_name(f"{into.name}.index")
    own = {"GIT_INDEX_FILE": str(index)}
    _git(top, "read-tree", commit, environ=own)
    _git(top, "checkout-index", "--all", "--force", f"--prefix={into}{os.sep}", environ=own)
    index.unlink(missing_ok=True)
    generated = _add_generated(top, into)
    _check_generated(top, commit, generated)
    return Tree(into, _inside(into, top, here), commit[:7], generated)


def of_working_tree(here: Path, into: Path, option: str = "") -> Tree:
    """Copy a tree.

    Of a repository the tracked files and those not ignored, of another folder all but caches and
    environments.
    """
    top = repository_of(here) if shutil.which("git") else None
    try:
        if top is None:
            shutil.copytree(here, into, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
            return Tree(into, into, option or "working tree")
        into.mkdir()
        for name in _listed(top, *_OWN_FILES):
            source = top / name
            target = into / name
            if _RAW in f"/{name}" or any(
                (top / parent).is_symlink() for parent in Path(name).parents[:-1]
            ):
                continue  # raw samples; files of a folder that is a link now
            # else: removed and not committed, or a submodule.
            if source.is_symlink() or source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        generated = _add_generated(top, into)
    except (OSError, shutil.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"{option or here}: cannot be copied to {into.parent} ({reason}); make room, or set "
            "TMPDIR"
        ) from None
    return Tree(into, _inside(into, top, here), option or "working tree", generated)


def contents_of(path: Path) -> dict[str, str]:
    """Return the files of a folder, or the file itself -> hash of its bytes.

    Those of a repository as git sees them.

    What a build writes, and what cannot be read, is left out.
    """
    names = [""]
    if path.is_dir():
        try:
            names = _listed(path, *_OWN_FILES)
        except UsageError:  # no repository, or no git
            left_out = {*_LEFT_OUT, "build", "dist"}
            relative = (os.path.relpath(file, path) for file in path.rglob("*"))
            names = [name for name in relative if left_out.isdisjoint(Path(name).parts)]
    contents = {}
    for name in sorted(name for name in names if ".egg-info/" not in name):
        # A folder, removed, a link to nothing.
        with contextlib.suppress(OSError), (path / name).open("rb") as stream:
            contents[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return contents


def _add_generated(top: Path, into: Path) -> tuple[str, ...]:
    """Copy files that git ignores and that lie in packages; return their names.

    Without them a package that is built in place cannot be imported, often for want of its
    ``_version.py``.
    """
    packages = {Path(name).parent for name in _listed(top, "--cached", "--", "*.py")}
    copied_names = []
    for name in _listed(top, "--others", "--ignored", "--exclude-standard", "--", *_GENERATED):
        target = into / name
        if (
            Path(name).parent in packages
            and target.parent.is_dir()
            and not target.exists()
            and (top / name).is_file()
        ):
            shutil.copy2(top / name, target)
            copied_names.append(name)
    return tuple(copied_names)


def _listed(top: Path, *arguments: str) -> list[str]:
    return [name for name in _git(top, "ls-files", "-z", *arguments).split("\0") if name]


def _check_generated(top: Path, commit: str, generated: Sequence[str]) -> None:
    """Check that generated files of the working tree are those of a revision, too.

    A version file may be another one.
    """
    unversioned = [name for name in generated if not _matches(Path(name).name, _VERSIONS)]
    if not unversioned:
        return
    changed = [name for name in _git(top, "diff", "--name-only", "-z", commit).split("\0") if name]
    untracked = _listed(top, "--others", "--exclude-standard")
    for name in unversioned:
        for source in [*changed, *untracked] if _matches(name, _COMPILED) else changed:
            if _may_be_source(top, source, name):
                raise UsageError(
                    f"{name} is built from the working tree, and {source} differs from "
                    f"{commit[:7]}; build the base in a checkout of its own, and name it with "
                    "--base-dir"
                )


def _may_be_source(top: Path, source: str, generated: str) -> bool:
    """Whether a generated file may depend on another file."""
    path = Path(source)
    result = Path(generated)
    if _matches(generated, _COMPILED):
        is_python_of_it = (
            path.suffix == ".py"
            and path.parent == result.parent
            and path.stem == result.name.partition(".")[0]
        )
        return is_python_of_it or _matches(path.name, _SOURCES)
    if path.suffix == ".py":
        return (top / path).is_file() and result.name in (top / path).read_text(
            encoding="utf-8", errors="replace"
        )
    return path.parts[0] not in (".github", "docs", "test", "tests") and not _matches(
        path.name, _NO_INPUTS
    )


def differing(
    trees: Sequence[Tree], patterns: str = "", *, names: Iterable[str] = (), word: bytes = b""
) -> tuple[str, ...]:
    """Return the files of which lines with a word differ between the trees.

    Files with these names or matching a pattern; of a folder the names of its files count.
    """

    def lines(path: Path) -> list[bytes] | None:
        if path.is_file():
            return [line for line in path.read_bytes().splitlines() if word in line]
        if path.is_dir():
            return sorted(bytes(file) for file in _names(path))
        return [] if word else None

    matching_names = {
        str(file.relative_to(tree.root))
        for tree in trees
        for pattern in patterns.split()
        for file in tree.root.rglob(pattern)
    }
    return tuple(
        name
        for name in sorted({*names, *matching_names})
        if lines(trees[0].root / name) != lines(trees[1].root / name)
    )


def all_differing(trees: Sequence[Tree]) -> tuple[str, ...]:
    """Return the files that differ between two trees, and the folders that have other ones."""
    folders = [
        {path.relative_to(tree.root): _names(path) for path in (tree.root, *_folders(tree.root))}
        for tree in trees
    ]
    files = [{folder / name for folder, names in of.items() for name in names} for of in folders]
    paths = {
        path
        for path in files[0] | files[1]
        if not _are_equal(trees[0].root / path, trees[1].root / path)
    }
    changed_folders = {
        folder
        for folder in folders[0].keys() | folders[1].keys()
        if folders[0].get(folder) != folders[1].get(folder)
    }
    return tuple(sorted(map(str, paths | changed_folders)))


def _folders(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.is_dir() and path.name != _CACHE and not path.is_symlink():
            yield path


def _names(folder: Path) -> set[Path]:
    """Return the names in a folder, without what Python writes there."""
    return {Path(path.name) for path in folder.iterdir() if path.name != _CACHE}


def _are_equal(first: Path, second: Path) -> bool:
    """Whether two paths are files with the same bytes, or are both folders."""
    try:
        if first.is_dir() or second.is_dir():
            return first.is_dir() and second.is_dir()
        return filecmp.cmp(first, second, shallow=False)
    except OSError:  # one of them is missing, or a link to nothing
        return first.is_symlink() and second.is_symlink() and first.readlink() == second.readlink()


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def head_of(here: Path) -> tuple[str, bool]:
    """Return the short commit of a working tree and whether it has changes.

    An empty commit outside a repository.
    """
    if not shutil.which("git") or repository_of(here) is None:
        return "", False
    commit = _git(here, "rev-parse", "--short=7", "HEAD", check=False).strip()
    return commit, bool(
        _git(
            here, "status", "--porcelain", "--", ":/", f":(exclude,top,glob)**{_RAW}**", check=False
        ).strip()
    )


def _inside(copy: Path, top: Path, here: Path) -> Path:
    directory = copy / here.resolve().relative_to(top.resolve())
    if not directory.is_dir():
        raise UsageError(
            f"{directory.relative_to(copy)} is not a folder of {top} at that revision; start "
            "where both have one"
        )
    return directory


class _NoRepositoryError(UsageError):
    """A folder is not in a repository."""


#: Settings of git: run no hook, and check out all files also of a sparse checkout.
_SETTINGS = ("-c", "core.hooksPath=/dev/null", "-c", "core.sparseCheckout=false")


def _git(
    directory: Path, *arguments: str, check: bool = True, environ: Mapping[str, str] | None = None
) -> str:
    command = ("git", "-C", str(directory), *_SETTINGS, *arguments)
    hook_variables = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    inherited = {name: value for name, value in os.environ.items() if name not in hook_variables}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**inherited, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **(environ or {})},
        )
    except FileNotFoundError:
        raise UsageError(
            "git is not installed, and --base needs it; install it, or name a folder with "
            "--base-dir"
        ) from None
    if check and done.returncode:
        reasons = os.fsdecode(done.stderr).strip().splitlines() or ["no reason given"]
        if reasons[0].startswith("fatal: not a git repository"):
            raise _NoRepositoryError(reasons[0])
        raise UsageError(f"git {arguments[0]}: {reasons[0].removeprefix('fatal: ')}")
    return os.fsdecode(done.stdout) if not done.returncode else ""
