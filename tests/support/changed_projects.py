"""Small projects with two cases, and what a change of them is expected to affect."""

from __future__ import annotations

from dataclasses import dataclass

#: Two cases; each calls a function of a module of its own.
TWO = """
from pkg import a, b


def test_first(benchmark):
    benchmark(a.run)


def test_second(benchmark):
    benchmark(b.run)
"""

FIRST = "bench/test_x.py::test_first"
SECOND = "bench/test_x.py::test_second"
BOTH = {FIRST, SECOND}


RUN = "def run():\n    return 1\n"

#: Both sides of each change, if they have no other files.
PROJECT = {
    "pytest.ini": "[pytest]\npythonpath = .\n",
    "pkg/__init__.py": "",
    "pkg/a.py": RUN,
    "pkg/b.py": RUN,
    "bench/test_x.py": TWO,
}


#: After the path of a file that the head does not have.
GONE = " (gone)"


@dataclass(frozen=True)
class Change:
    """The files of the base beside those of PROJECT, and those that differ in the head."""

    base: str
    head: str
    reached: set[str]

    @property
    def sides(self) -> tuple[dict[str, str], dict[str, str]]:
        """The files of the base and of the head."""
        base = {**PROJECT, **_files(self.base)}
        head = {**base, **_files(self.head)}
        gone = {path for path in head if path.endswith(GONE)}
        for path in gone:
            del head[path]
            del head[path.removesuffix(GONE)]
        return base, head


def edited(base: str, old: str, new: str, *, reached: set[str]) -> Change:
    """Return the change of a text that the files of the base have once."""
    path, text = next((path, text) for path, text in _files(base).items() if old in text)
    assert base.count(old) == 1, old
    return Change(base, f"## {path}\n{text.replace(old, new)}", reached)


def _files(text: str) -> dict[str, str]:
    """Return the files of a text, each below ``## `` and its path."""
    parts = (part.partition("\n") for part in text.split("## ")[1:])
    return {path: content for path, _, content in parts}
