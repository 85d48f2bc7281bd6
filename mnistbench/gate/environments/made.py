"""Make an environment: that of the project, with other versions of some packages."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import parse_qs, unquote, urlsplit

from packaging.requirements import Requirement

from mnistbench.core.errors import UsageError
from mnistbench.core.files import scratch
from mnistbench.gate.environments import uv
from mnistbench.gate.environments.packages import installed, requirements
from mnistbench.gate.environments.python import Interpreter


def environment(changes: Sequence[Requirement], project: Interpreter) -> str:
    """Return the path of the interpreter of an environment that uv makes, or has made before.

    uv chooses all versions: those of the project, unless the changes exclude them. The environment
    is that of a tool (``uv tool run``), which uv keeps in its cache. Without a network, it is made
    of what is there.

    Args:
        changes: the requirements that differ from what is installed.
        project: the interpreter whose packages the others are.

    Raises:
        UsageError: it cannot be made.
    """
    asked = ", ".join(map(str, changes))
    with scratch("environment") as folder:
        try:
            try:
                return _made(folder, changes, project)
            except UsageError as error:
                try:
                    return _made(folder, changes, project, "--offline")
                except UsageError:
                    raise error from None
        except OSError as error:
            raise UsageError(
                f"no environment with {asked}: {folder} cannot be written ({error.strerror})"
            ) from None
        except UsageError as error:
            raise UsageError(f"no environment with {asked}: {error}") from None


def _made(folder: Path, changes: Sequence[Requirement], project: Interpreter, *options: str) -> str:
    """Make an environment, with options for each command of uv; return its interpreter."""
    packages = installed(project.distributions())
    wanted = requirements(changes, packages, project.markers)
    present = [
        f"{package.name}=={package.version}"
        for package in packages
        if not (package.url or package.is_copied)
    ]
    program = uv.find()
    lines = [_as_it_is_now(line, folder, program, options) for line in wanted]
    requirements_file = _write(folder / "requirements.in", lines)
    # uv prefers the versions of an output file that exists.
    versions_file = _write(folder / "requirements.txt", present)
    choose_versions = [
        *options,
        "pip",
        "compile",
        f"--python={project.path}",
        "--quiet",
        "--no-header",
        "--emit-index-url",
        "--emit-find-links",
        "--emit-index-annotation",
        f"--output-file={versions_file}",
        str(requirements_file),
    ]
    uv.run(program, choose_versions)
    # A tool has none of the settings of a project, nor those that ``uv pip`` alone has: it gets the
    # places in which the packages were found. Others see command lines, but not variables, which
    # may have passwords.
    found = versions_file.read_text(encoding="utf-8")
    indexes = " ".join([os.environ.get("UV_INDEX", ""), *uv.indexes(found)]).strip()
    links = re.findall(r"^--find-links (.+)$", found, re.MULTILINE)
    name_interpreter = [
        *options,
        "tool",
        "run",
        "--quiet",
        "--isolated",
        f"--python={project.path}",
        f"--with-requirements={versions_file}",
        "--index-strategy=unsafe-best-match",  # each version is known
        *(f"--find-links={place}" for place in links),
        "python",
        "-I",
        "-c",
        "import sys; print(sys.executable)",
    ]
    return uv.run(program, name_interpreter, variables={"UV_INDEX": indexes}).strip()


def _write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _as_it_is_now(line: str, folder: Path, program: str, options: Sequence[str]) -> str:
    """Return a requirement; of a folder or a wheel, that of a new wheel with its content.

    uv compares only paths to find out whether it has an environment already.
    """
    name, is_local, url = line.partition(" @ file:")
    if not is_local:
        return line
    built = Path(mkdtemp(dir=folder))
    source = unquote(urlsplit(url).path)
    part = parse_qs(urlsplit(url).fragment).get("subdirectory", [""])[0]
    if not Path(source).exists():
        raise UsageError(f"{name} was installed from {source}, which is not there any more")
    if source.endswith(".whl"):
        shutil.copy(source, built)
    else:
        build = ["build", "--quiet", "--wheel", f"--out-dir={built}", str(Path(source, part))]
        uv.run(program, [*options, *build])
    wheels = [*built.glob("*.whl")]
    if len(wheels) != 1:
        raise UsageError(f"{name}: uv build {source} makes {len(wheels)} wheels, not one")
    return f"{name} @ {wheels[0].as_uri()}"
