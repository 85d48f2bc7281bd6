"""Surveys of small trees by one process and its forks, and which cases two of them affect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import survey_server

from mnistbench.core.reading import member
from mnistbench.gate.copies import trees
from mnistbench.gate.copies.trees import Tree
from mnistbench.gate.listing import Listing, Listings, Reach
from mnistbench.gate.processes.messages import Followed, Surveyed, Surveys
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.survey.reach.narrowing import Narrowing
from mnistbench.gate.words import BASE, HEAD

_ROOT = Path(survey_server.__file__).parents[2]

#: Between a link and what it leads to, in place of the path of a file.
LINK = " -> "


class SurveyError(Exception):
    """A survey ends with an error."""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write a project and return its folder. A name ``link -> target`` is a link."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path, _, target = name.partition(LINK)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if target:
            (folder / path).symlink_to(target)
        else:
            (folder / path).write_text(text, encoding="utf-8")
    return folder


@dataclass(frozen=True)
class Survey:
    """A tree, and what its survey has found, without what it has timed."""

    tree: Path
    surveyed: Surveyed

    @property
    def followed(self) -> Followed:
        return self.surveyed.followed

    def code_of(self, node_id: str) -> set[str]:
        """Return the code that a case has run: ``path:name``."""
        return self._names(self.followed.cases[node_id])

    @property
    def outside(self) -> set[str]:
        """The code that ran outside of tests: ``path:name``."""
        return self._names(self.followed.outside)

    def _names(self, positions: Sequence[int]) -> set[str]:
        ran = [self.followed.code[position] for position in positions]
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

    def survey(
        self, tree: Path, differing: Sequence[str] = (), only: Sequence[str] | None = None
    ) -> Survey:
        """Survey a tree.

        Args:
            tree: the project.
            differing: files that differ from another tree, relative to both.
            only: node ids of the cases; all if None.

        Raises:
            SurveyError: the survey ends with an error.
        """
        self._run("survey", tree, differing=differing, only=only)
        said = json.loads((tree.parent / survey_server.SURVEYED).read_text(encoding="utf-8"))
        if "surveyed" not in said:
            raise SurveyError(said.get("error") or (tree.parent / "log").read_text("utf-8"))
        surveyed = member(said, "surveyed", Surveyed)
        return Survey(tree, replace(surveyed, listing=_without_times(surveyed.listing)))

    def surveyed(self, files: Mapping[str, str]) -> Survey:
        """Write and survey a project that has no fault."""
        survey = self.survey(self.write(files))
        assert survey.surveyed.listing.failed == {}
        return survey

    def reached(self, base_files: Mapping[str, str], head_files: Mapping[str, str]) -> Reach:
        """Return which cases of two projects are affected."""
        return self.compared(self.write(base_files), self.write(head_files))

    def compared(self, base: Path, head: Path) -> Reach:
        """Return which cases of two trees are affected.

        Raises:
            SurveyError: a survey ends with an error, or a case fails.
        """
        folders = {BASE: base, HEAD: head}
        sides = {name: Tree(folder, folder, name) for name, folder in folders.items()}
        differing = trees.all_differing(tuple(sides.values()))

        def survey_both(only: Sequence[str] | None = None) -> Surveys:
            surveys = {
                name: self.survey(folder, differing, only) for name, folder in folders.items()
            }
            return Surveys(
                Listings(surveys[BASE].surveyed.listing, surveys[HEAD].surveyed.listing),
                {name: survey.surveyed.imports for name, survey in surveys.items()},
                {name: survey.followed for name, survey in surveys.items()},
            )

        first = survey_both()
        for name in folders:
            for node_id, why in first.listings[name].failed.items():
                raise SurveyError(f"{node_id}: {why}")
        code = ComparedCode(sides, first.imports, first.followed, differing)
        return Narrowing(
            first.listings, code, (), survey_both, lambda _: None, lambda _: None
        ).reach()

    def trace(self, tree: Path) -> dict[str, list[str]] | str:
        """Return what each case of a tree runs, or why one fails."""
        self._run("trace", tree)
        traces = [json.loads(path.read_text()) for path in tree.parent.glob("trace *.json")]
        failed = [trace["failed"] for trace in traces if trace["failed"]]
        if failed or not traces:
            return failed[0] if failed else (tree.parent / "log").read_text(encoding="utf-8")
        return {trace["id"]: trace["log"] for trace in traces}

    def _run(self, task: str, tree: Path, **options: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([task, str(tree.parent), str(tree), options]) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"


def _without_times(listing: Listing) -> Listing:
    """Return a listing without its quick look, which would select other cases by chance."""
    cases = {
        node_id: replace(case, look_ns=0, look_loops=0.0, peak_bytes=0, seconds=0.0, setup_s=0.0)
        for node_id, case in listing.cases.items()
    }
    return replace(listing, cases=cases, importing_s=0.0, framework_s=0.0, loaded_bytes=0)
