"""Read git's repositories with their submodules, and check out commits without changing them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mnistbench.core.errors import UsageError
from mnistbench.gate.copies.copying import entries_of, is_behind_link

#: Arguments of git for the files of a tree: the tracked ones, and those not ignored.
_OWN_FILES = ("--cached", "--others", "--exclude-standard", "--deduplicate")

#: What git calls the mode of a submodule: its entry is a commit.
_SUBMODULE = "160000"

#: Settings of git: run no hook, start no process that watches a folder, and keep the whole of a
#: separate index in its own file, not a part of it in ``.git``.
_SETTINGS = (
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.splitIndex=false",
)


class NoRepositoryError(UsageError):
    """A folder is not in a repository."""


def git(
    directory: Path, *arguments: str, check: bool = True, environ: Mapping[str, str] | None = None
) -> str:
    """Return what git prints in a folder; without ``check`` an empty text if it fails."""
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
            "git is not installed, and --base with a revision needs it; install it, or name a "
            "folder"
        ) from None
    if check and done.returncode:
        reasons = os.fsdecode(done.stderr).strip().splitlines() or ["no reason given"]
        if reasons[0].startswith("fatal: not a git repository"):
            raise NoRepositoryError(reasons[0])
        reason = reasons[0].removeprefix("fatal: ").removeprefix("error: ")
        if "dubious ownership" in reason:  # the last line is git's own remedy
            reason += f"; if you trust it, run: {reasons[-1].strip()}"
        raise UsageError(f"git {arguments[0]}: {reason}")
    return os.fsdecode(done.stdout) if not done.returncode else ""


def listed(top: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return names that ``git ls-files`` prints."""
    names = git(top, "ls-files", "-z", *arguments, environ=environ).split("\0")
    return [name for name in names if name]


# ---- A working tree ------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnFiles:
    """What git sees in a working tree and in its submodules."""

    names: list[str] = field(default_factory=list)  # of files and links, relative to the tree
    # Prefix of the names -> folder of the repository: the tree itself and its submodules.
    repositories: dict[str, Path] = field(default_factory=dict)
    # Submodules without files -> the commit that the index records.
    empty: dict[str, str] = field(default_factory=dict)


def own_files(top: Path) -> OwnFiles:
    """Return the tracked files of a repository and those not ignored, with its submodules."""
    found = OwnFiles()
    _add_own_files(found, top, "")
    return found


def _add_own_files(found: OwnFiles, top: Path, prefix: str) -> None:
    found.repositories[prefix] = top
    submodules = _submodules(top)
    for name in listed(top, *_OWN_FILES):
        path = top / name
        if is_behind_link(top, name):
            continue  # a file of a folder that is a link now
        if path.is_symlink() or path.is_file():  # else removed and not committed, or a submodule
            found.names.append(f"{prefix}{name}")
        elif name in submodules:
            if _is_repository(path):
                _add_own_files(found, path, f"{prefix}{name}/")
            elif files := _files_of_folder(path):  # unpacked or copied without its .git
                found.names.extend(f"{prefix}{name}/{file}" for file in files)
            else:
                found.empty[f"{prefix}{name}"] = submodules[name]


def _files_of_folder(folder: Path) -> list[str]:
    return [
        os.path.relpath(entry, folder)
        for entry in entries_of(folder)
        if not entry.is_dir(follow_symlinks=False)
    ]


def _is_repository(folder: Path) -> bool:
    # In another folder, such as an empty submodule, git reads the outer repository.
    return (folder / ".git").exists()


def _submodules(top: Path, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the submodules in git's index -> their commits.

    Those that a sparse checkout leaves out do not count.
    """
    submodules = {}
    for line in listed(top, "--stage", "-t", environ=environ):
        facts, _, name = line.partition("\t")
        tag, mode, commit, _ = facts.split()
        if mode == _SUBMODULE and tag != "S":
            submodules[name] = commit
    return submodules


# ---- A commit ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Repository:
    """Where git keeps the commits of a repository."""

    git_dir: Path
    top: Path | None  # its working tree; None if the user's tree has none

    def git(self, *arguments: str) -> str:
        """Return what git prints that needs no working tree; an empty text if it fails.

        The working tree that its settings name may be gone. So git is given another folder.
        """
        environ = {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.git_dir)}
        return git(self.git_dir, *arguments, check=False, environ=environ)


def check_out(top: Path, commit: str, into: Path) -> dict[str, str]:
    """Write a commit and those that it records of submodules into an empty folder.

    Files that a sparse checkout leaves out of the working tree are left out here, too: they would
    be on one side alone. Return the submodules without files -> the commit that is recorded.
    """
    repository = _Repository(_git_dir(top), top)
    index = into.with_name(f"{into.name}.index")
    try:
        return _check_out(repository, commit, into, index, "")
    finally:
        index.unlink(missing_ok=True)


def _check_out(
    repository: _Repository, commit: str, into: Path, index: Path, prefix: str
) -> dict[str, str]:
    index.unlink(missing_ok=True)
    into.mkdir(parents=True, exist_ok=True)
    environ = {
        "GIT_DIR": str(repository.git_dir),
        "GIT_WORK_TREE": str(into),
        "GIT_INDEX_FILE": str(index),
    }
    # Unlike checkout-index it obeys the patterns of a sparse checkout, and with this working tree
    # the .gitattributes of the commit.
    git(into, "read-tree", "-m", "-u", "--no-recurse-submodules", commit, environ=environ)
    submodules = _submodules(into, environ)
    current: Mapping[str, str] = {}
    if repository.top:
        current = _submodules(repository.top)
        for name in _left_out(repository.top):
            if not is_behind_link(into, name):
                with contextlib.suppress(OSError):  # the commit has no such file
                    (into / name).unlink()
    empty = {}
    for name, wanted in submodules.items():
        (into / name).mkdir(parents=True, exist_ok=True)
        candidates = list(_repositories_of(repository, commit, name, is_current=name in current))
        if not candidates:
            empty[f"{prefix}{name}"] = wanted
            continue
        for candidate in candidates:
            if candidate.git("cat-file", "-t", wanted).strip() == "commit":
                inner = _check_out(candidate, wanted, into / name, index, f"{prefix}{name}/")
                empty.update(inner)
                break
        else:
            raise UsageError(
                f"{prefix}{name}: this submodule has no commit {wanted[:7]}, which the base "
                f"records; fetch it (git -C {prefix}{name} fetch), or name a checkout with "
                "--base"
            )
    return empty


def unchanged_files(top: Path, commit: str, scratch: Path) -> list[str]:
    """Return the tracked files of a working tree that do not differ from a commit, as git sees it.

    Their bytes or modes may differ from those that :func:`check_out` writes, as line ends do if
    core.autocrlf was set later, or modes with core.fileMode=false. Files whose changes git is told
    not to see (``update-index --assume-unchanged``) are left out. Empty if attributes differ: git
    compares by those of the working tree, and the commit's may name a filter.

    Args:
        top: the working tree.
        commit: with which it is compared.
        scratch: a path for a copy of git's index, in which git diff writes down what it has seen.
    """
    index = top / git(top, "rev-parse", "--git-path", "index").removesuffix("\n")
    if not index.exists():  # nothing is tracked
        return []
    # With its time: git reads a file again that is as old as the index, because it may have changed
    # after it was added.
    shutil.copy2(index, scratch)
    arguments = ("--name-only", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=all")
    try:
        printed = git(
            top, "diff", *arguments, commit, "--", environ={"GIT_INDEX_FILE": str(scratch)}
        )
    finally:
        scratch.unlink(missing_ok=True)
    changed = {*printed.split("\0")}
    if any(name.rpartition("/")[2] == ".gitattributes" for name in changed):
        return []
    names = []
    for line in listed(top, "-v"):
        tag, _, name = line.partition(" ")
        path = top / name
        # Else removed, or a submodule.
        if tag == "H" and name not in changed and (path.is_symlink() or path.is_file()):
            names.append(name)
    return names


def _left_out(top: Path) -> Iterator[str]:
    """Yield the files that git's index has, but that a user has told it to leave out."""
    for line in listed(top, "-t"):
        tag, _, name = line.partition(" ")
        if tag == "S" and not os.path.lexists(top / name):
            yield name


def _repositories_of(
    outer: _Repository, commit: str, name: str, *, is_current: bool
) -> Iterator[_Repository]:
    """Yield where the commits of a submodule may be: in the working tree, or in an outer .git.

    The latter has those of submodules that a user has moved or removed. A submodule that the
    working tree has, but without files, has none: it is to be empty on both sides.

    Args:
        outer: the repository with the submodule.
        commit: of the outer repository, which records the submodule.
        name: path of the submodule.
        is_current: whether the working tree has the submodule, too.
    """
    if outer.top and _is_repository(outer.top / name):
        yield _Repository(_git_dir(outer.top / name), outer.top / name)
    elif is_current:
        return
    blob = ("--blob", f"{commit}:.gitmodules")
    settings = outer.git("config", "-z", *blob, "--get-regexp", r"^submodule\..*\.path$")
    common = outer.git("rev-parse", "--git-common-dir").strip()
    for setting in settings.split("\0"):
        key, _, path = setting.partition("\n")
        module = key.removeprefix("submodule.").removesuffix(".path")
        if path != name or Path(module).is_absolute() or ".." in Path(module).parts:
            continue
        # Of a linked worktree, and of the main one.
        for folder in (outer.git_dir, outer.git_dir / common):
            if (folder / "modules" / module / "HEAD").is_file():
                yield _Repository(folder / "modules" / module, None)


def _git_dir(top: Path) -> Path:
    return Path(git(top, "rev-parse", "--absolute-git-dir").removesuffix("\n"))
