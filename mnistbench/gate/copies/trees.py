"""Copy the two trees, so that a measurement neither uses nor changes the user's files.

A revision is checked out through a separate index, not by ``git worktree``: the repository stays
unchanged, no hook runs, and a crash leaves nothing in ``.git``. Neither copy contains ``.git``, so
code that runs git gets the same result on both sides.

Both copies have files by the same rule: what git tracks (in the working tree also what it does not
ignore), with submodules, without what a sparse checkout leaves out. Where one side lacks what the
other one has, ``check_alike`` ends the gate: code with a fallback would run it on both sides.
"""

from __future__ import annotations

import filecmp
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.core.units import cut
from mnistbench.gate.copies.copying import (
    copy_file,
    copy_folder,
    copying,
    is_behind_link,
)
from mnistbench.gate.copies.generated import add_generated, check_sources, needing_sources
from mnistbench.gate.copies.repositories import (
    NoRepositoryError,
    check_out,
    git,
    own_files,
    unchanged_files,
)
from mnistbench.gate.words import BASE, HEAD

#: Most characters of a revision that a message quotes.
_LONGEST_REVISION = 200

#: Folder of raw samples, in the directory where a gate was started; it belongs to neither side.
_RAW = "/.benchmarks/gate/"

#: Folder of compiled files.
_CACHE = "__pycache__"

#: How a file begins that git LFS has not replaced by its content, and the most bytes that it has.
_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_POINTER_BYTES = 1024


@dataclass(frozen=True)
class Tree:
    """A side's copy."""

    root: Path  # of the copy
    directory: Path  # in the copy: corresponds to the user's current directory
    what: str  # shown in reports: "1a2b3c4", "working tree", a folder
    # Files that git ignores, copied from the working tree beside its own.
    generated: tuple[str, ...] = ()
    # Submodules without files -> their recorded commit.
    empty_submodules: Mapping[str, str] = field(default_factory=dict)


def repository_of(directory: Path) -> Path | None:
    """Return the root of the git working tree that contains a folder; None outside a repository."""
    try:
        top = git(directory, "rev-parse", "--show-toplevel")
    except NoRepositoryError:
        return None
    return Path(top.removesuffix("\n"))


def folder_of_base(here: Path, base: str) -> Path | None:
    """Return the folder that ``--base`` names; None if it names a revision.

    Of two with the same name the revision counts. ``./NAME``, ``../NAME`` and ``/NAME`` are always
    folders.

    Raises:
        UsageError: there is neither.
    """
    is_path = re.match(r"\.{0,2}/|\.{1,2}$", base)
    if not is_path and shutil.which("git") and (top := repository_of(here)) and _commit(top, base):
        return None
    if os.path.isdir(base):  # noqa: PTH112  # of a name that is too long, Path.is_dir raises
        return Path(base)
    if is_path:
        raise UsageError(f"--base: {base!r} is not a folder; name a checkout of the base")
    commit_of(here, base)  # says what is missing
    return None


def commit_of(here: Path, revision: str) -> tuple[Path, str]:
    """Return the root of the repository that contains ``here``, and the hash of a revision."""
    shown = cut(revision, _LONGEST_REVISION)
    top = repository_of(here)
    if top is None:
        raise UsageError(
            f"--base {shown!r}: {here} is not in a git repository and has no such folder; name a "
            "folder"
        )
    if commit := _commit(top, revision):
        return top, commit
    raise UsageError(
        f"--base {shown!r}: no such commit in {top}, and no such folder; {_hint(top, revision)}"
    )


def _commit(top: Path, revision: str) -> str:
    """Return the hash of a revision; empty if a repository does not have it."""
    wanted = revision
    if revision.endswith("..."):  # as in git diff main...
        wanted = (
            git(top, "merge-base", "HEAD", revision.removesuffix("..."), check=False).strip()
            or revision
        )
    return git(
        top,
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        f"{wanted}^{{commit}}",
        check=False,
    ).strip()


def _hint(top: Path, revision: str) -> str:
    """Return how to get or name a revision that a repository does not have."""

    def has(name: str) -> bool:
        return bool(git(top, "rev-parse", "--verify", "--quiet", name, check=False).strip())

    if not has("HEAD"):
        return "it has no commit yet; commit first, or name a folder"
    if git(top, "rev-parse", "--is-shallow-repository", check=False).strip() == "true":
        return "this clone is shallow, so fetch what is missing: git fetch --unshallow"
    remotes = git(top, "remote", check=False).split()
    first = remotes[0] if remotes else ""
    remote = next((one for one in remotes if revision.startswith(f"{one}/")), first)
    name = revision.removesuffix("...").removeprefix(f"{remote}/")
    if remote and has(f"refs/remotes/{remote}/{name}"):
        return f"name the branch of {remote}: --base {remote}/{revision}"
    is_name = bool(git(top, "check-ref-format", "--branch", name, check=False).strip())
    fetch = f", or fetch it: git fetch {remote} {name}" if remote and is_name else ""
    return f"name a commit, a branch or a tag{fetch}"


def copy_revision(here: Path, revision: str, into: Path) -> Tree:
    """Write a revision of the repository that contains ``here`` into a folder.

    The generated files of the working tree are added.
    """
    top, commit = commit_of(here, revision)
    _check_outside(into, top)
    with copying(f"--base {revision!r}", into.parent):
        into.mkdir()
        empty = check_out(top, commit, into)
        for name in unchanged_files(top, commit, into.with_name(f"{into.name}.index")):
            if not _are_equal(top / name, into / name):
                (into / name).unlink(missing_ok=True)
                copy_file(top / name, into / name)
        _move_links(into, top)
        generated = add_generated(own_files(top).repositories, into)
    return Tree(into, _inside(into, top, here), commit[:7], generated, empty)


def copy_working_tree(here: Path, into: Path, option: str = "") -> Tree:
    """Copy a tree.

    A repository is copied with its tracked files and those not ignored, another folder without
    caches and environments.
    """
    top = repository_of(here) if shutil.which("git") else None
    _check_outside(into, top or here)
    with copying(option or str(here), into.parent):
        if top is None:
            copy_folder(here, into)
            _move_links(into, here)
            return Tree(into, into, option or "working tree")
        into.mkdir()
        own = own_files(top)
        for name in own.names:
            if _RAW not in f"/{name}":
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                copy_file(top / name, into / name)
        for name in own.empty:
            (into / name).mkdir(parents=True, exist_ok=True)
        _move_links(into, top)
        generated = add_generated(own.repositories, into)
    return Tree(into, _inside(into, top, here), option or "working tree", generated, own.empty)


def _check_outside(into: Path, top: Path) -> None:
    """Check that a copy does not lie in the tree that it is made of.

    It would be copied into itself, and a side could find the user's files above its own.
    """
    if into.resolve().is_relative_to(top.resolve()):
        raise UsageError(
            f"{tempfile.gettempdir()}: the folder for temporary files is inside {top}, of which it "
            "is to hold copies; set TMPDIR to a folder outside"
        )


def _move_links(copy: Path, top: Path) -> None:
    """Make absolute links to files of the user's tree lead to those of the copy, if it has them."""
    for folder in (copy, *_folders(copy)):
        for link in [path for path in folder.iterdir() if path.is_symlink()]:
            target = link.readlink()
            if target.is_absolute() and target.is_relative_to(top):
                own = copy / target.relative_to(top)
                if os.path.lexists(own):
                    link.unlink()
                    link.symlink_to(own)


def check_generated(base: Tree, head: Tree) -> None:
    """Check that generated files of the working tree are those of a revision, too.

    A version file may be another one.
    """
    if generated := needing_sources(base.generated):
        copied = {*base.generated, *head.generated}
        changed = sorted({str(file) for file in _differing_files((base, head))} - copied)
        check_sources(generated, changed, (base.root, head.root), base.what)


def copy_both(here: Path, base: str | None, folder: Path) -> dict[str, Tree]:
    """Copy the base and the working tree into a folder, and return both copies.

    Args:
        here: folder of the working tree.
        base: revision, or folder of another checkout; the working tree if it is None.
        folder: for the copies.

    Raises:
        UsageError: one cannot be copied, or they cannot be compared.
    """
    other_folder = folder_of_base(here, base) if base else here
    if base is None:
        copy_of_base = copy_working_tree(here, folder / BASE)
    elif other_folder:
        copy_of_base = copy_working_tree(other_folder.resolve(), folder / BASE, str(other_folder))
    else:
        copy_of_base = copy_revision(here, base, folder / BASE)
    head = copy_working_tree(here, folder / HEAD)
    check_alike(copy_of_base, head, str(other_folder) if base and other_folder else "")
    copies = {BASE: copy_of_base, HEAD: head}
    if other_folder is None:
        check_generated(copy_of_base, head)
    elif base:  # each side has its own generated files
        copies = {side: replace(tree, generated=()) for side, tree in copies.items()}
    return copies


def check_alike(base: Tree, head: Tree, base_folder: str = "") -> None:
    """Check that no side lacks files of a submodule or of git LFS which differ between the sides.

    What both sides lack in the same way is not in the user's own tree either.

    Args:
        base: its copy.
        head: its copy.
        base_folder: the folder of the base that the user has named; empty for a revision.
    """
    in_base = f"git -C {shlex.quote(base_folder)}" if base_folder else ""
    for name in sorted({*base.empty_submodules, *head.empty_submodules}):
        if base.empty_submodules.get(name) == head.empty_submodules.get(name):
            continue
        side, command = "base", in_base
        if name in head.empty_submodules:
            side, command = "working tree", "git"
        advice = "name a checkout of the base with --base"
        if command:
            advice = f"run {command} submodule update --init --recursive"
            advice += " or name a checkout with --base" if not base_folder else ""
        raise UsageError(
            f"{name}: a submodule that has no files in the {side} and differs between the sides; "
            f"{advice}"
        )
    base_pointers = _pointers(base.root)
    head_pointers = _pointers(head.root)
    for name in sorted({*base_pointers, *head_pointers}):
        if base_pointers.get(name) == head_pointers.get(name):
            continue
        side, command = "base", f"{in_base} lfs pull" if in_base else "git lfs fetch --all"
        if name in head_pointers:
            side, command = "working tree", "git lfs pull"
        raise UsageError(
            f"{name}: a pointer of git LFS, not a file, in the {side}, and it differs between the "
            f"sides; run {command}"
        )


def _pointers(root: Path) -> dict[str, bytes]:
    """Return the files of a copy that git LFS has not replaced by their content."""
    pointers = {}
    for folder in (root, *_folders(root)):
        for path in folder.iterdir():
            facts = path.lstat()
            if stat.S_ISREG(facts.st_mode) and len(_POINTER) < facts.st_size < _POINTER_BYTES:
                content = path.read_bytes()
                if content.startswith(_POINTER):
                    pointers[str(path.relative_to(root))] = content
    return pointers


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
    changed_folders = {
        folder
        for folder in folders[0].keys() | folders[1].keys()
        if folders[0].get(folder) != folders[1].get(folder)
    }
    return tuple(sorted(map(str, _differing_files(trees) | changed_folders)))


def _differing_files(trees: Sequence[Tree]) -> set[Path]:
    return {
        path
        for path in {
            (folder / name).relative_to(tree.root)
            for tree in trees
            for folder in (tree.root, *_folders(tree.root))
            for name in _names(folder)
        }
        if not _are_equal(trees[0].root / path, trees[1].root / path)
    }


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
        if first.is_symlink() or second.is_symlink():
            return first.readlink() == second.readlink()
        if first.is_dir() or second.is_dir():
            return first.is_dir() and second.is_dir()
        is_program = [bool(path.stat().st_mode & stat.S_IXUSR) for path in (first, second)]
        return is_program[0] == is_program[1] and filecmp.cmp(first, second, shallow=False)
    except OSError:  # one of them is missing, or a link to nothing
        return first.is_symlink() and second.is_symlink() and first.readlink() == second.readlink()


def head_of(here: Path) -> tuple[str, bool]:
    """Return the short commit of a working tree and whether it has changes.

    An empty commit outside a repository.
    """
    if not shutil.which("git") or repository_of(here) is None:
        return "", False
    commit = git(here, "rev-parse", "--short=7", "HEAD", check=False).strip()
    return commit, bool(
        git(
            here, "status", "--porcelain", "--", ":/", f":(exclude,top,glob)**{_RAW}**", check=False
        ).strip()
    )


def _inside(copy: Path, top: Path, here: Path) -> Path:
    name = here.resolve().relative_to(top.resolve())
    directory = copy / name
    is_link = directory.is_symlink() or is_behind_link(copy, str(name))
    if is_link or not directory.is_dir():
        raise UsageError(
            f"{directory.relative_to(copy)} is not a folder of {top} at that revision; start "
            "where both have one"
        )
    return directory
