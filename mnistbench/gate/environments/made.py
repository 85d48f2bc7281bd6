"""Make an environment: that of the project, with other versions of some packages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import platformdirs
from packaging.requirements import Requirement

from mnistbench.core.errors import UsageError
from mnistbench.core.files import scratch
from mnistbench.gate.environments import uv
from mnistbench.gate.environments.packages import installed, requirements
from mnistbench.gate.environments.python import Interpreter


@contextmanager
def environment(changes: Sequence[Requirement], project: Interpreter) -> Iterator[str]:
    """Make an environment, yield the path of its interpreter, and remove it at the end.

    uv chooses all versions: those of the project, unless the changes exclude them. What uv has in
    its cache is neither downloaded nor built again, and it links the files from there. So the
    environment is made beside the user's caches, which are usually on the same file system.

    Args:
        changes: the requirements that differ from what is installed.
        project: the interpreter whose packages the others are.

    Raises:
        UsageError: it cannot be made.
    """
    asked = ", ".join(map(str, changes))
    program = uv.find()
    cache = platformdirs.user_cache_path("mnistbench")
    with scratch("environment", cache) as folder:
        try:
            python = _make(program, folder, changes, project)
        except OSError as error:
            raise UsageError(
                f"no environment with {asked}: {folder} cannot be written ({error.strerror})"
            ) from None
        except UsageError as error:
            raise UsageError(f"no environment with {asked}: {error}") from None
        yield str(python)


def _make(program: str, folder: Path, changes: Sequence[Requirement], project: Interpreter) -> Path:
    """Make an environment in a folder; return its interpreter."""
    packages = installed(project.distributions())
    wanted = requirements(changes, packages, project.markers)
    present = [
        f"{package.name}=={package.version}"
        for package in packages
        if not (package.url or package.is_copied)
    ]
    requirements_file = _write(folder / "requirements.in", wanted)
    versions_file = _write(folder / "requirements.txt", present)
    python = folder / "venv" / "bin" / "python"
    # uv would use what it has built from a folder until the pyproject.toml there changes.
    from_files = [line.partition(" @ ")[0] for line in wanted if " @ file:" in line]
    refresh = [f"--refresh-package={name.partition('[')[0]}" for name in from_files]
    # uv prefers the versions of an output file that exists.
    choose_versions = [
        "pip",
        "compile",
        f"--python={project.path}",
        "--quiet",
        "--no-header",
        "--no-annotate",
        f"--output-file={versions_file}",
        *refresh,
        str(requirements_file),
    ]
    install = ["pip", "install", f"--python={python}", "--no-deps", *refresh]
    install.append(f"--requirements={versions_file}")
    uv.run(program, ["venv", "--no-project", f"--python={project.path}", str(folder / "venv")])
    _run_also_offline(program, (choose_versions, install))
    return python


def _write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _run_also_offline(program: str, commands: Sequence[Sequence[str]]) -> None:
    """Run commands of uv; if one fails, run all from uv's cache alone."""
    try:
        for arguments in commands:
            uv.run(program, arguments)
    except UsageError as error:
        try:
            for arguments in commands:
                uv.run(program, [*arguments, "--offline"])
        except UsageError:
            raise error from None
