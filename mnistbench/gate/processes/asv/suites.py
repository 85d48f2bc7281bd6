"""Which files belong to an asv suite, and the names by which asv imports them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from mnistbench.gate.words import ASV_FILES

#: Where the benchmarks are if the configuration does not say so, relative to it.
_DEFAULT_FOLDER = "benchmarks"

#: A comment, or a string, which may contain what looks like one.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)

#: The setting. asv reads JSON5, in which quotes may be single, and missing around a key.
_BENCHMARK_DIR = re.compile(r"""(["']?)\bbenchmark_dir\1\s*:\s*(["'])(.*?)\2""")


@dataclass(frozen=True)
class AsvSuite:
    """A folder with benchmarks, and the file that says so."""

    folder: Path
    configuration: Path

    def module_of(self, file: Path) -> str:
        """Return the name by which asv imports a file of the suite; empty if it does not.

        asv imports the folder as a package, and the packages and modules in it.
        """
        below = file.relative_to(self.folder).with_suffix("").parts
        packages = [self.folder.joinpath(*below[:depth]) for depth in range(1, len(below))]
        if not all((package / "__init__.py").is_file() for package in packages):
            return ""
        return ".".join((self.folder.name, *below)).removesuffix(".__init__")


def suite_of(path: Path, root: Path) -> AsvSuite | None:
    """Return the suite that a file or folder belongs to; None if it belongs to none.

    asv.conf.json is in a folder above, which is ``root`` or below it.
    """
    path = path.resolve()
    root = root.resolve()
    for folder in (path, *path.parents):
        if not folder.is_relative_to(root):
            break
        for suite in _declared_in(folder):
            if path.is_relative_to(suite.folder):
                return suite
    return None


@functools.cache
def _declared_in(folder: Path) -> tuple[AsvSuite, ...]:
    """Return the suites whose configuration is in a folder."""
    configurations = [folder / name for name in sorted(ASV_FILES) if (folder / name).is_file()]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in configurations]
    return tuple(
        AsvSuite((folder / benchmark_dir(text)).resolve(), configuration)
        for configuration, text in zip(configurations, texts, strict=True)
    )


def benchmark_dir(text: str) -> str:
    """Return the folder that the text of an asv.conf.json names, relative to the file."""
    setting = _BENCHMARK_DIR.search(_COMMENT.sub(lambda match: match[1] or " ", text))
    return setting[3] if setting else _DEFAULT_FOLDER
