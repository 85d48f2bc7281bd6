"""Measure the call paths of slower and faster cases on both sides, and join them."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mnistbench.core import units
from mnistbench.core.errors import RecordError
from mnistbench.core.machine import own_cores
from mnistbench.core.operation import OpKey
from mnistbench.core.reading import read
from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.explain.other_changes import with_graphs, with_others
from mnistbench.gate.measure.rounds import Rounds
from mnistbench.gate.processes.messages import RunCode
from mnistbench.gate.processes.starting import GateError, TrialPlan, running_trial
from mnistbench.gate.samples.case_profile import (
    CalledBy,
    CallPath,
    CaseProfile,
    ProfiledFunction,
    SideFunction,
    SidePaths,
    folded_times,
    total_times,
)
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.words import BASE, HEAD
from mnistbench.judging.verdicts import IMPROVED

#: Most cases whose functions are profiled.
MAX_PROFILED = 30
#: Why a case is not profiled.
_NO_ROOM = "the budget leaves no time to profile it; increase --budget"

#: Most paths of a case that are kept.
MAX_KEPT = 2_000


def profiles_of(verdict: Verdict, rounds: Rounds, code: ComparedCode) -> dict[str, CaseProfile]:
    """Collect the call paths of the cases that were found slower or faster.

    If there are many cases, it collects those of the largest changes.
    """
    ranked = _changed_cases(verdict)
    if not ranked:
        return {}
    rounds.progress.say("profiling the functions of what is slower or faster")
    most = min(MAX_PROFILED, len(ranked))
    while most and rounds.budget.profile_s(ranked[:most]) > rounds.budget.left_s:
        most -= 1
    at_most = f"{units.counted(most, 'case is', 'cases are')} profiled at most"
    too_many = CaseProfile(why_not=at_most if most == MAX_PROFILED else _NO_ROOM)
    profiles = dict.fromkeys(ranked[most:], too_many)
    for node_id in ranked[:most]:
        device = str(verdict.header.sides.head.cases[node_id].params["device"])
        if device != "cpu":
            profiles[node_id] = CaseProfile(
                why_not=f"functions take no time of the device ({device})"
            )
    cases = [node_id for node_id in ranked if node_id not in profiles]
    profiles |= _profiled(cases, rounds, code)
    return {
        node_id: with_graphs(
            with_others(profile, node_id, verdict.header, code),
            verdict.compilations.get(node_id, ()),
            code,
        )
        for node_id, profile in profiles.items()
    }


def _changed_cases(verdict: Verdict) -> list[str]:
    """Return the cases with a regression or an improvement, that of the largest change first."""
    changes: dict[str, float] = {}
    for finding in verdict.decision.findings:
        quantity = finding.quantity
        is_found = finding.is_slower or finding.verdict == IMPROVED
        if is_found and (quantity.is_case or quantity.is_operation):
            change = abs(finding.best.change) * (1.0 if quantity.is_case else quantity.share)
            changes[quantity.case] = max(change, changes.get(quantity.case, 0.0))
    return sorted(changes, key=lambda case: -changes[case])


def _profiled(cases: Sequence[str], rounds: Rounds, code: ComparedCode) -> dict[str, CaseProfile]:
    """Collect the call paths of cases; if one of several fails, of each alone."""
    if not cases:
        return {}
    why_not = "its test did not run again"
    profiles: dict[str, CaseProfile] = {}
    try:
        profiles = measure_profiles(rounds.plan, rounds.seed, cases, rounds.log, code)
    except GateError as error:
        if len(cases) > 1:
            return {case: _profiled([case], rounds, code)[case] for case in cases}
        why_not = f"its functions could not be profiled: {error}"
    except KeyboardInterrupt:
        why_not = "interrupted"
    return dict.fromkeys(cases, CaseProfile(why_not=why_not)) | profiles


def measure_profiles(
    plan: TrialPlan, seed: int, cases: Sequence[str], log: Path, code: ComparedCode
) -> dict[str, CaseProfile]:
    """Run cases with a profiler, iterations of both sides in turn.

    Args:
        plan: of all trials of the gate.
        seed: of the trial.
        cases: node ids.
        log: for the output of the processes.
        code: of both sides.

    Raises:
        GateError: a side cannot be run.
    """
    with running_trial(plan, seed, cases, log, own_cores(), collects_paths=True) as trial:
        trial.ready()
        result = trial.measure()
    return {
        node_id: joined(_read(builds[0][BASE]), _read(builds[0][HEAD]), code)
        for node_id, builds in result.cases.items()
    }


def _read(columns: Mapping[str, Any]) -> SidePaths:
    try:
        return read(columns, SidePaths)
    except RecordError as error:
        raise GateError(f"the call paths of a trial cannot be used: {error}") from None


def joined(base: SidePaths, head: SidePaths, code: ComparedCode) -> CaseProfile:
    """Return the call paths of both sides; those of one name are one."""
    joining = _Joining(code)
    joining.add(BASE, base)
    joining.add(HEAD, head)
    return joining.profile()


class _Joining:
    """Joins call paths."""

    def __init__(self, code: ComparedCode) -> None:
        self._code = code
        self._functions: dict[str, int] = {}
        self._changes: list[tuple[str, bool]] = []  # of each function
        self._of_tree: set[str] = set()
        self._lines_of_head: dict[str, int] = {}
        self._varying: set[int] = set()
        self._positions: dict[tuple[int, int], int] = {}  # of a parent and a function
        self._parents: list[int] = []
        self._last_functions: list[int] = []
        self._operations: dict[tuple[OpKey, int | None], dict[str, int]] = defaultdict(
            lambda: {BASE: 0, HEAD: 0}
        )
        self._calls: dict[str, list[float]] = {BASE: [], HEAD: []}
        self._self_ns: dict[str, list[float]] = {BASE: [], HEAD: []}

    def add(self, side: str, paths: SidePaths) -> None:
        """Add the paths of a side."""
        functions = [self._function(side, function) for function in paths.functions]
        self._varying.update(functions[position] for position in paths.varying)
        joined_paths: list[int] = []
        for parent, function, calls, self_ns in zip(
            paths.parents, paths.last_functions, paths.calls, paths.self_ns, strict=True
        ):
            joined_parent = joined_paths[parent] if parent >= 0 else -1
            path = self._path(joined_parent, functions[function])
            joined_paths.append(path)
            self._calls[side][path] += calls
            self._self_ns[side][path] += self_ns
        for operation, callers, self_ns in paths.operations:
            caller = self._caller([functions[caller] for caller in callers])
            self._operations[operation, caller][side] += self_ns

    def _function(self, side: str, function: SideFunction) -> int:
        name = f"{function.path}:{function.name}" if function.path else function.name
        position = self._functions.setdefault(name, len(self._functions))
        if position == len(self._changes):
            self._changes.append(("", False))
        if function.path:
            self._of_tree.add(name)
            if not self._changes[position][0]:
                run_code = RunCode(function.path, function.name, function.line)
                self._changes[position] = self._code.change(side, run_code)
            if side == HEAD:
                is_edited = self._changes[position][1]
                line = self._code.line_in_head(function.path, function.name) if is_edited else 0
                self._lines_of_head[name] = line or function.line
        return position

    def _caller(self, functions: Sequence[int]) -> int | None:
        """Return the first function that differs itself, else the first that differs at all."""
        itself = (position for position in functions if self._changes[position][1])
        at_all = (position for position in functions if self._changes[position][0])
        return next(itself, next(at_all, None))

    def _path(self, parent: int, function: int) -> int:
        position = self._positions.setdefault((parent, function), len(self._parents))
        if position == len(self._parents):
            self._parents.append(parent)
            self._last_functions.append(function)
            for columns in (*self._calls.values(), *self._self_ns.values()):
                columns.append(0.0)
        return position

    def profile(self) -> CaseProfile:
        """Return the paths, without those of the least time if they are too many."""
        kept = self._kept()
        positions: dict[int, int] = {-1: -1}
        self_ns = {
            side: folded_times(column, self._parents, kept)
            for side, column in self._self_ns.items()
        }
        paths: list[CallPath] = []
        for path in sorted(kept):
            positions[path] = len(paths)
            paths.append(
                CallPath(
                    parent=positions[self._parents[path]],
                    function=self._last_functions[path],
                    base_calls=self._calls[BASE][path],
                    head_calls=self._calls[HEAD][path],
                    base_self_ns=round(self_ns[BASE][path]),
                    head_self_ns=round(self_ns[HEAD][path]),
                )
            )
        functions = (
            ProfiledFunction(
                name,
                *change,
                is_of_tree=name in self._of_tree,
                calls_vary=position in self._varying,
                line=self._lines_of_head.get(name, 0),
            )
            for (name, position), change in zip(self._functions.items(), self._changes, strict=True)
        )
        operations = (
            CalledBy(operation, function, times_ns[BASE], times_ns[HEAD])
            for (operation, function), times_ns in self._operations.items()
        )
        return CaseProfile(tuple(functions), tuple(paths), tuple(operations))

    def _kept(self) -> set[int]:
        """Return the paths of the most time, which are never without the one they continue."""
        totals_ns = [total_times(column, self._parents) for column in self._self_ns.values()]
        largest_ns = [max(both) for both in zip(*totals_ns, strict=True)]
        # A path precedes those that continue it, so it comes first among paths of the same time.
        ranked = heapq.nsmallest(
            MAX_KEPT, range(len(largest_ns)), key=lambda path: (-largest_ns[path], path)
        )
        return {0, *ranked}
