"""Which files with the options of pytest and of its plug-ins differ, in what tests depend on."""

from __future__ import annotations

import configparser
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from mnistbench.gate.copies.trees import Tree
from mnistbench.gate.processes.messages import Followed
from mnistbench.gate.words import BASE, CONFIGURATION_FILES, HEAD, PYTEST_FILES

#: Tools that do not run in a test. A plug-in of pytest that reads a file of many may read others.
_NO_TEST_TOOLS = frozenset(
    {
        "bandit",
        "black",
        "bumpversion",
        "cibuildwheel",
        "codespell",
        "commitizen",
        "coverage",
        "flake8",
        "flit",
        "hatch",
        "isort",
        "mypy",
        "pdm",
        "poetry",
        "pylint",
        "pyright",
        "ruff",
        "semantic_release",
        "setuptools",
        "setuptools_scm",
        "tbump",
        "towncrier",
        "tox",
        "ty",
        "uv",
    }
)


def is_configuration(path: str) -> bool:
    """Whether a file has options of pytest, perhaps beside others."""
    return PurePosixPath(path).name in CONFIGURATION_FILES


def differing_configuration(
    trees: Mapping[str, Tree], differing: Collection[str], followed: Collection[Followed]
) -> Iterator[str]:
    """Yield which options differ.

    Args:
        trees: BASE and HEAD.
        differing: files whose bytes differ, relative to the trees.
        followed: what the surveys of both have seen.
    """
    by_plugins = {path for side in followed for path in side.read_by_plugins}
    for path in filter(is_configuration, differing):
        base, head = (_options(trees[side].root / path) for side in (BASE, HEAD))
        if _of_pytest(base) != _of_pytest(head):
            yield f"the options of pytest in {path} differ"
        elif path in by_plugins and base != head:
            yield f"{path} (changed) is read by a plug-in of pytest"


def _options(path: Path) -> dict[str, Any]:
    """Return the options of each tool; its bytes as those of pytest if it cannot be read."""
    try:
        if path.name in PYTEST_FILES:
            return {"pytest": path.read_bytes()}
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            options = tomllib.loads(text).get("tool", {})
        else:
            parser = configparser.RawConfigParser()
            parser.read_string(text)
            options = {name: dict(parser[name]) for name in parser.sections()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, configparser.Error):
        return {"pytest": path.read_bytes() if path.is_file() else None}
    return {name: value for name, value in options.items() if name not in _NO_TEST_TOOLS}


def _of_pytest(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if "pytest" in name}
