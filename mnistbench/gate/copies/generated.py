"""Files that a build has written into packages, and that git ignores.

Without them a package that is built in place cannot be imported. A revision has none of its own, so
both sides get those of the working tree. That is right only if nothing differs from which they are
built; else both sides would measure what was built from the head.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mnistbench.core.errors import UsageError
from mnistbench.gate.copies.copying import copy_file, is_behind_link
from mnistbench.gate.copies.repositories import listed

_COMPILED = ("*.so", "*.pyd", "*.dylib")

#: Files that a build writes into packages: versions, generated code, compiled modules.
_GENERATED = ("*.py", *_COMPILED)

#: Files that a build writes with the version of the package.
_VERSIONS = ("__version__.py", "_version.py", "version.py")

#: Python files in packages that take part in a build. Python files outside of packages all may.
_BUILD_SCRIPTS = (
    "*_build.py",
    "*cffi*.py",
    "*codegen*.py",
    "_build_*.py",
    "_gen_*.py",
    "_generate_*.py",
    "build.py",
    "build_*.py",
    "gen_*.py",
    "generate_*.py",
    "setup.py",
    "setup_*.py",
)

#: Folders in packages whose Python files take part in a build.
_BUILD_FOLDERS = ("*codegen*", "_build*", "build", "build_*", "code_generat*")

#: Python files outside of packages that take part in no build. A noxfile.py may build in place.
_TEST_MODULES = ("*_test.py", "bench_*.py", "conftest.py", "test_*.py")

#: Folders from which nothing is built that lies elsewhere.
_TEST_FOLDERS = ("asv_bench", "bench", "benchmark", "benchmarks", "examples", "test", "tests")

#: Files and folders from which certainly nothing is built: documentation, licenses, and settings of
#: editors, linters, test runs and servers. All others may be included, read or obeyed by a build.
_NO_SOURCES = (
    "*.ipynb",
    "*.md",
    "*.rst",
    ".benchmarks",
    ".circleci",
    ".codecov.yml",
    ".coverage*",
    ".editorconfig",
    ".flake8",
    ".git*",
    ".hypothesis",
    ".idea",
    ".mailmap",
    ".mypy.ini",
    ".pre-commit-config.yaml",
    ".pylintrc",
    ".pytest_cache",
    ".readthedocs.y*ml",
    ".ruff.toml",
    ".travis.yml",
    ".vscode",
    "AUTHORS*",
    "CHANGELOG*",
    "CHANGES*",
    "CITATION.cff",
    "CODEOWNERS",
    "COPYING*",
    "LICENCE*",
    "LICENSE*",
    "NEWS*",
    "NOTICE*",
    "Pipfile.lock",
    "changelog.d",
    "codecov.yml",
    "doc",
    "docs",
    "mkdocs.yml",
    "mypy.ini",
    "newsfragments",
    "pdm.lock",
    "poetry.lock",
    "pyrightconfig.json",
    "pytest.ini",
    "ruff.toml",
    "uv.lock",
)

#: What does not count in pyproject.toml: names and texts of the package, what it needs when it is
#: installed, and settings of linters and test runs. All other settings may be those of a build.
_METADATA = (
    "authors",
    "classifiers",
    "dependencies",
    "description",
    "entry-points",
    "gui-scripts",
    "keywords",
    "license",
    "license-files",
    "maintainers",
    "optional-dependencies",
    "readme",
    "scripts",
    "urls",
    "version",
)
_NO_BUILD_TOOLS = (
    "bandit",
    "basedpyright",
    "black",
    "bumpversion",
    "codespell",
    "commitizen",
    "coverage",
    "deptry",
    "flake8",
    "interrogate",
    "isort",
    "mnistbench",
    "mypy",
    "pydocstyle",
    "pylint",
    "pyright",
    "pytest",
    "ruff",
    "semantic_release",
    "towncrier",
    "typos",
    "vulture",
    "yapf",
)


def add_generated(repositories: Mapping[str, Path], into: Path) -> tuple[str, ...]:
    """Copy files that git ignores and that lie in packages; return their names.

    Args:
        repositories: prefix of the names -> folder of the user's repository.
        into: the copy.
    """
    copied_names = []
    for prefix, top in repositories.items():
        packages = {Path(name).parent for name in listed(top, "--cached", "--", "*.py")}
        for name in listed(top, "--others", "--ignored", "--exclude-standard", "--", *_GENERATED):
            target = into / prefix / name
            if (
                Path(name).parent in packages
                and target.parent.is_dir()
                and not is_behind_link(into, f"{prefix}{name}")
                and not os.path.lexists(target)
                and (top / name).is_file()
            ):
                copy_file(top / name, target)
                copied_names.append(f"{prefix}{name}")
    return tuple(copied_names)


def needing_sources(generated: Iterable[str]) -> tuple[str, ...]:
    """Return the generated files that have to be those of the base, too: all but versions."""
    return tuple(name for name in generated if not _matches(Path(name).name, _VERSIONS))


def check_sources(
    generated: Sequence[str], changed: Iterable[str], copies: Sequence[Path], revision: str
) -> None:
    """Check that no file differs from which generated files of the working tree may be built.

    Args:
        generated: names of files that both sides have from the working tree.
        changed: names of the files that differ between the copies.
        copies: of base and head.
        revision: the commit of the base, for the message.
    """
    for source in changed:
        for name in generated:
            if may_be_source(source, name, copies):
                is_new = not os.path.lexists(copies[0] / source)
                advice = "; if it is untracked and no source, ignore it in .git/info/exclude"
                raise UsageError(
                    f"{name} is built from the working tree, and {source}, which may be a source "
                    f"of it, {'is not in' if is_new else 'differs from'} {revision}; build the "
                    "base in a checkout of its own, and name it with --base"
                    f"{advice if is_new else ''}"
                )


def may_be_source(source: str, generated: str, copies: Sequence[Path]) -> bool:
    """Return whether a generated file may depend on another file.

    A build may read any file. So this names only those that it certainly does not read.
    """
    path = Path(source)
    result = Path(generated)
    if any(_matches(part, _NO_SOURCES) for part in path.parts) or any(
        part in _TEST_FOLDERS and part not in result.parts for part in path.parts
    ):
        return False
    if path.suffix == ".py":
        return _may_build(path, result, copies)
    if path.name == "pyproject.toml":
        first, second = (_build_settings(copy / path) for copy in copies)
        return first is None or second is None or first != second
    is_list = fnmatch(path.name, "requirements*.txt")
    return not is_list or "build" in path.name  # the others are of what runs the package


def _may_build(path: Path, result: Path, copies: Sequence[Path]) -> bool:
    """Whether a Python file is compiled into a module, or takes part in a build."""
    is_compiled = _matches(result.name, _COMPILED)
    if is_compiled and path.parent == result.parent and path.stem == result.name.split(".")[0]:
        return True
    if not is_compiled and any(result.name in _text(copy / path) for copy in copies):
        return True  # it may write the generated file, or be its template
    if _matches(path.name, _TEST_MODULES):
        return False
    if _matches(path.name, _BUILD_SCRIPTS) or any(
        _matches(part, _BUILD_FOLDERS) for part in path.parts[:-1]
    ):
        return True
    is_in_package = any((copy / path.parent / "__init__.py").is_file() for copy in copies)
    # A module beside the generated file is imported like it, with or without a package.
    return not is_in_package and path.parent != result.parent


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _build_settings(path: Path) -> dict[str, Any] | None:
    """Return what a build may read of a pyproject.toml; None if it cannot be read."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # ValueError: neither TOML nor UTF-8
        return None
    content.pop("dependency-groups", None)
    for table, names in (("project", _METADATA), ("tool", _NO_BUILD_TOOLS)):
        if isinstance(content.get(table), dict):
            content[table] = {
                name: value for name, value in content[table].items() if name not in names
            }
            if not content[table]:
                del content[table]
    return content


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
