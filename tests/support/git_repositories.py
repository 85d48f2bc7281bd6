"""Repositories of git that tests make, and what is in a folder."""

import hashlib
import os
import stat
import subprocess
from pathlib import Path


class Repository:
    """A repository of few files."""

    def __init__(self, path):
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    @classmethod
    def at(cls, path):
        """A repository that exists."""
        repository = object.__new__(cls)
        repository.path = path
        return repository

    def git(self, *arguments):
        done = subprocess.run(
            ["git", *arguments], cwd=self.path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def write(self, name, text=""):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")
        return self.git("rev-parse", "HEAD")

    def add_submodule(self, other, name):
        """Add another repository as a submodule, and commit it."""
        self.git("-c", "protocol.file.allow=always", "submodule", "add", str(other.path), name)
        return self.commit()

    def state(self):
        """What nobody may change.

        Every file, what is in ``.git`` included, and what git says of them.
        """
        return files_of(self.path), self.git(
            "--no-optional-locks", "status", "--porcelain", "--ignored"
        )


def files_of(root):
    """Name -> what it is: a link's target, else the executable bit and a hash."""
    contents = {}
    for folder, folders, names in os.walk(root):
        for name in [*names, *(name for name in folders if (Path(folder) / name).is_symlink())]:
            path = Path(folder) / name
            key = str(path.relative_to(root))
            if path.is_symlink():
                contents[key] = f"-> {path.readlink()}"
            else:
                executable = "x" if path.stat().st_mode & stat.S_IXUSR else "-"
                contents[key] = f"{executable} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return contents


def names_of(root):
    return sorted(files_of(root))
