"""Surveys of small trees by one process and its forks, and what reach says of two of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import survey_server

from mnistbench.core.reading import member
from mnistbench.gate import trees
from mnistbench.gate.listing import Listings, Reach
from mnistbench.gate.messages import Followed, Surveyed
from mnistbench.gate.reach.cases import reach
from mnistbench.gate.reach.compared import ComparedCode
from mnistbench.gate.trees import Tree
from mnistbench.gate.words import BASE, HEAD

_ROOT = Path(survey_server.__file__).parents[2]


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write a project and return its folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@dataclass(frozen=True)
class Survey:
    """A tree, and what its survey has found."""

    tree: Path
    surveyed: Surveyed

    @property
    def followed(self) -> Followed:
        return self.surveyed.followed

    def code_of(self, node_id: str) -> set[str]:
        """Return the code that a case has run: ``path:name``."""
        followed = self.followed
        ran = [followed.code[position] for position in followed.cases[node_id]]
        return {f"{code.path}:{code.name}" for code in ran}


class Surveyor:
    """The process; it has imported pytest and what the surveys need."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(_ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", survey_server.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def write(self, files: Mapping[str, str]) -> Path:
        """Write a project into a new folder."""
        self._number += 1
        return write(self._folder / str(self._number) / "tree", files)

    def survey(self, tree: Path) -> Survey | str:
        """Survey a tree; return why that fails if it does."""
        self._run("survey", tree)
        said = json.loads((tree.parent / survey_server.SURVEYED).read_text(encoding="utf-8"))
        if "surveyed" not in said:
            return str(said.get("error", (tree.parent / "log").read_text(encoding="utf-8")))
        return Survey(tree, member(said, "surveyed", Surveyed))

    def surveyed(self, files: Mapping[str, str]) -> Survey:
        """Write and survey a project that has no fault."""
        survey = self.survey(self.write(files))
        assert isinstance(survey, Survey), survey
        failures = {case.failed for case in survey.surveyed.listing.cases.values()} - {""}
        assert not failures
        return survey

    def trace(self, tree: Path) -> dict[str, list[str]] | str:
        """Return what each case of a tree runs, or why one fails."""
        self._run("trace", tree)
        traces = [json.loads(path.read_text()) for path in tree.parent.glob("trace *.json")]
        failed = [trace["failed"] for trace in traces if trace["failed"]]
        if failed or not traces:
            return failed[0] if failed else (tree.parent / "log").read_text(encoding="utf-8")
        return {trace["id"]: trace["log"] for trace in traces}

    def _run(self, task: str, tree: Path) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([task, str(tree.parent), str(tree)]) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"


def reached(base: Survey, head: Survey) -> Reach:
    """Return which cases of two surveyed trees are reached."""
    surveys = {BASE: base, HEAD: head}
    sides = {name: Tree(survey.tree, survey.tree, name) for name, survey in surveys.items()}
    code = ComparedCode(
        sides,
        {name: survey.surveyed.imports for name, survey in surveys.items()},
        {name: survey.followed for name, survey in surveys.items()},
        trees.all_differing(tuple(sides.values())),
    )
    return reach(code, Listings(base.surveyed.listing, head.surveyed.listing), ())
