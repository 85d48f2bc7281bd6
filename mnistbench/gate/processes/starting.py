"""Start the processes of both sides, send them jobs and receive their messages."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shlex
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, overload

import mnistbench
from mnistbench.core.child import Child, ChildError, measuring_environment, uninterrupted
from mnistbench.core.errors import MnistbenchError, RecordError, UsageError
from mnistbench.core.machine import MIN_TOUCHED_BYTES
from mnistbench.core.reading import member, read_text
from mnistbench.gate.copies import places
from mnistbench.gate.copies.copying import copy_folder, copying
from mnistbench.gate.copies.trees import Tree
from mnistbench.gate.processes.messages import (
    ALL_ITERATIONS,
    Efforts,
    Job,
    Selection,
    SideResult,
    Spent,
    TrialJob,
    line_of,
)
from mnistbench.gate.processes.sides.stray import Imports, refusal
from mnistbench.gate.words import BASE, COMPILE_THREADS, HEAD, THREADS

_T = TypeVar("_T")

#: Longest time without a message from a process, in seconds, until it is known what the base takes.
PATIENCE_S = 600.0

#: Least silence that is allowed, in seconds.
MIN_SILENCE_S = 60.0

#: What may be the reason if a test fails in a trial, although it has passed in the survey of its
#: side.
_SHARED = (
    "; it passed before: if processes share a file, database or port, name it by tmp_path, or use "
    "one core: taskset -c 0"
)

#: Environment variable with the seed of the hashes of texts, which decides the order of sets.
HASH_SEED = "PYTHONHASHSEED"

#: Messages of a process that has loaded its side.
_LOADED = frozenset({"at", "collected", "surveyed", "ready"})

#: Name of this package in the process of a side, where ``mnistbench`` is that of the side.
STAGED = "mnistbench_of_the_gate"

_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    f"from {STAGED}.gate.processes.sides.worker import main; main()"
)

#: The start of a statement that imports from this package.
_IMPORT = re.compile(rf"^(\s*(?:from|import) ){mnistbench.__name__}\b", re.MULTILINE)


class GateError(MnistbenchError):
    """The gate cannot go on, usually because a side cannot be measured; the message says why."""


class _PeerError(GateError):
    """The process of one side ended because the other side has ended or does something else."""


class LoadingError(GateError):
    """A side cannot be loaded.

    Args:
        reason: with the name of the side.
        side: BASE or HEAD.
    """

    def __init__(self, reason: str, side: str) -> None:
        super().__init__(reason)
        self.side = side


# ---- What all processes of a gate share ----------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """What is fixed for a gate before it starts a process."""

    trees: Mapping[str, Tree]  # BASE and HEAD
    pythons: Mapping[str, str]  # the interpreter of each
    # Environment variables of each, beside those of the gate.
    variables: Mapping[str, Mapping[str, str]]
    home: Path  # contains the copy of mnistbench that measures both sides
    repository: Path  # the user's own tree, which must not be measured

    def job(self, side: str, selection: Selection, seed: int) -> dict[str, Any]:
        """Return what all jobs of a side have."""
        return {
            "side": side,
            "tree": str(self.trees[side].root),
            "directory": str(self.trees[side].directory),
            "home": str(self.home),
            "repository": str(self.repository),
            "arguments": selection.arguments,
            "phases": selection.phases,
            "threads": int(self.variables[side].get(THREADS, 0)),
            "seed": seed,
            "gate": os.getpid(),
        }


def stage_home(folder: Path) -> Path:
    """Copy this package into a folder for trials, and return the folder.

    The copy that measures is named STAGED, so that the same code measures both sides and each side
    can import a ``mnistbench`` of its own. A side whose environment has none finds one in the
    folder, and pytest-benchmark, which the fixture needs, and asv-runner, if it is installed here.
    """
    home = folder / "gate"
    own = Path(mnistbench.__file__).parent
    others = map(importlib.util.find_spec, ("pytest_benchmark", "asv_runner"))
    folders = [
        folder for spec in others if spec for folder in spec.submodule_search_locations or ()
    ]
    for package in (own, *map(Path, folders)):
        with copying(str(package), folder):
            copy_folder(package, home / package.name, follows_links=True)
    with copying(str(own), folder):
        copy_folder(own, home / STAGED, follows_links=True)
        for path in (home / STAGED).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            path.write_text(_IMPORT.sub(rf"\g<1>{STAGED}", text), encoding="utf-8")
    return home


# ---- Trial --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrialResult:
    """What a trial has measured of both sides; ``Trial.from_line(line(stage))`` is its sample."""

    cases: Mapping[str, Sequence[Mapping[str, Any]]]  # node id -> builds -> side -> columns
    seconds: float
    once: Mapping[str, Mapping[str, Mapping[str, int]]]  # side -> as of a SideResult
    unmeasurable: Mapping[str, str]  # node id of a case that was not found again -> why
    spent: Mapping[str, Spent]  # by node id

    def line(self, stage: int) -> dict[str, Any]:
        """Return the line of the file of raw samples."""
        return {
            "stage": stage,
            "cases": self.cases,
            "seconds": self.seconds,
            "once": self.once,
            "unmeasurable": self.unmeasurable,
        }


@dataclass(frozen=True)
class TrialPlan:
    """What all trials of a gate share: its setup, and what the surveys have found."""

    setup: Setup
    selection: Selection
    frameworks: tuple[str, ...] = ()  # that the tests of both sides import
    # Side -> node id -> hash of what a test is parametrized with, in its survey
    parameters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Node ids of cases that use more than one core, on a side or on both.
    parallel: frozenset[str] = frozenset()
    # Node ids of cases that each trial calls with an empty cache of the compiler, too.
    compiled_anew: frozenset[str] = frozenset()
    touched_bytes: int = MIN_TOUCHED_BYTES  # of the heap, before a process measures
    limit_s: float = PATIENCE_S  # longest time without a message from a process, seconds


@contextmanager
def running_trial(
    plan: TrialPlan,
    seed: int,
    only: Sequence[str] | None,
    log: Path,
    cores: Sequence[int] = (),
    *,
    efforts: Efforts = ALL_ITERATIONS,
    collects_paths: bool = False,
    in_order: bool = False,
) -> Iterator[RunningTrial]:
    """Start a trial and kill its processes at the end of the body.

    Args:
        plan: of all trials of the gate.
        seed: of all that both processes draw.
        only: node ids of the cases to measure; all if None.
        log: for the output of the processes.
        cores: to use; empty if the system does not let a process choose.
        efforts: how much the trial measures.
        collects_paths: in place of times, the call paths of the cases.
        in_order: measure the cases in the order of ``only``, not in a random one.
    """
    order = random.Random(seed).sample([BASE, HEAD], 2)  # noqa: S311  # no secret
    with ExitStack() as running:
        # The processes have their own ends, and notice when the other one's is closed.
        with ExitStack() as starting:
            peers = {
                side: starting.enter_context(peer)
                for side, peer in zip(order, socket.socketpair(), strict=True)
            }
            descriptors = {side: peer.fileno() for side, peer in peers.items()}
            processes = running.enter_context(side_processes(plan.setup, seed, log, descriptors))
        for side, process in processes.items():
            process.begin(
                TrialJob(
                    **plan.setup.job(side, plan.selection, seed),
                    only=only,
                    peer=descriptors[side],
                    patience_s=plan.limit_s / 2,
                    cores=cores,
                    frameworks=plan.frameworks,
                    parallel=sorted(plan.parallel),
                    compiled_anew=sorted(plan.compiled_anew),
                    parameters=plan.parameters.get(side, {}),
                    efforts=efforts,
                    touched_bytes=plan.touched_bytes,
                    collects_paths=collects_paths,
                    in_order=in_order,
                )
            )
        yield RunningTrial(list(processes.values()), plan)


class RunningTrial:
    """A running trial: a process for each side, which take turns. They load the sides at once."""

    def __init__(self, processes: Sequence[SideProcess], plan: TrialPlan) -> None:
        self._processes = processes
        self._plan = plan

    def ready(self) -> None:
        """Wait until the sides are loaded.

        Raises:
            GateError: a side cannot be loaded.
        """
        imports = {
            process.side: message
            for process, message in zip(
                self._processes, self._receive("ready", Imports), strict=True
            )
        }
        check_imports(self._plan.setup, imports)

    def measure(self, begins: Callable[[int, int], None] | None = None) -> TrialResult:
        """Measure the sides.

        ``begins`` gets the number of each case, 1 for the first one, and that of all.

        Raises:
            GateError: a side failed or was killed.
        """
        self._processes[0].begins = begins  # both sides measure the same case
        for process in self._processes:
            process.child.tell("go")
        return _merged(self._receive("result", SideResult))

    def _receive(self, key: str, message: type[_T]) -> list[_T]:
        """Return the message of each process.

        If one fails, the other one ends too: the error of the first is raised.
        """
        messages = list[_T]()
        ended = None
        for process in self._processes:
            try:
                messages.append(process.receive(key, message, self._plan.limit_s))
            except _PeerError as error:
                ended = error
            except GateError as error:
                raise GateError(f"{error}{_SHARED if ' fails: ' in str(error) else ''}") from None
        if ended:
            raise ended
        return messages


def check_imports(setup: Setup, imports: Mapping[str, Imports]) -> None:
    """Check that the sides have not imported the same code.

    Raises:
        GateError: they have.
    """
    is_same_code = setup.trees[BASE].what == setup.trees[HEAD].what
    if reason := refusal(imports, is_same_code=is_same_code):
        raise GateError(reason)


def _merged(results: Sequence[SideResult]) -> TrialResult:
    """Merge the results of both sides, build by build.

    Raises:
        GateError: the sides have measured different cases or builds.
    """
    first, second = results
    for node_id in {**first.cases, **second.cases}:
        builds = [len(result.cases.get(node_id, ())) for result in results]
        if builds[0] != builds[1]:
            raise GateError(
                f"a trial's message cannot be used: {node_id}: {first.side} has {builds[0]} "
                f"builds, {second.side} {builds[1]}; measure again"
            )
    return TrialResult(
        cases={
            node_id: [
                {first.side: build_of_first, second.side: build_of_second}
                for build_of_first, build_of_second in zip(
                    builds_of_first, second.cases[node_id], strict=True
                )
            ]
            for node_id, builds_of_first in first.cases.items()
        },
        seconds=max(first.seconds, second.seconds),
        once={result.side: result.once for result in results},
        unmeasurable=first.unmeasurable,
        spent={
            node_id: replace(spent, seconds=max(spent.seconds, second.spent[node_id].seconds))
            for node_id, spent in first.spent.items()
        },
    )


# ---- The process of a side -----------------------------------------------------------------------


@contextmanager
def side_processes(
    setup: Setup, seed: int, log: Path, descriptors: Mapping[str, int] | None = None
) -> Iterator[dict[str, SideProcess]]:
    """Start a process for each side, and stop them after the body.

    They are started in the order of the file descriptors that they inherit.
    """
    processes: dict[str, SideProcess] = {}
    try:
        for side in descriptors or (HEAD, BASE):
            with uninterrupted():
                processes[side] = SideProcess(
                    setup, side, seed, log, [descriptors[side]] if descriptors else []
                )
        yield processes
    finally:
        with uninterrupted():
            for process in processes.values():
                process.child.stop()


class SideProcess:
    """The process of a side, which sends one message a line."""

    def __init__(
        self, setup: Setup, side: str, seed: int, log: Path, descriptors: Sequence[int]
    ) -> None:
        self.side = side
        self._has_job = False
        self._is_loaded = False
        self._at = "loading"
        self._root = f"{setup.trees[side].root}{os.sep}"
        # Gets the number of each case that begins, 1 for the first one, and that of all.
        self.begins: Callable[[int, int], None] | None = None
        environ = environment_of(setup, side, seed)
        temporary = _temporary(setup, side)
        temporary.mkdir(parents=True, exist_ok=True)
        places.link_precompiled_headers(temporary)
        try:
            self.child = Child(
                [setup.pythons[side], "-P", "-c", _BOOT, str(setup.home)],
                environ,
                directory=setup.trees[side].directory,
                log=log.with_name(f"{log.name}-{side}"),
                pass_fds=descriptors,
            )
        except ChildError as error:
            raise UsageError(f"{error}; name a Python interpreter") from None

    def begin(self, job: Job) -> None:
        """Send the job; until then the process only imports the gate."""
        self._has_job = True
        self.child.tell(line_of(job))

    @overload
    def receive(self, key: str, message_type: type[_T], limit_s: float = ...) -> _T: ...
    @overload
    def receive(self, key: str, message_type: Any, limit_s: float = ...) -> Any: ...
    def receive(self, key: str, message_type: Any, limit_s: float = PATIENCE_S) -> Any:
        """Wait for the message with this key and return its content.

        Raises:
            GateError: the process reports an error, has ended, or sends nothing for ``limit_s``
                seconds.
        """
        while True:
            message = self._next_message(limit_s)
            if "error" in message:
                reason = str(message["error"])
                raise GateError(reason) if self._is_loaded else LoadingError(reason, self.side)
            if "peer_error" in message:
                raise _PeerError(str(message["peer_error"]))
            self._at = message.get("at", self._at)
            if self.begins and "case" in message:
                self.begins(*message["case"])
            if key in message:
                try:
                    return member(message, key, message_type)
                except RecordError as error:
                    raise GateError(f"a trial's message cannot be used: {error}") from None

    def why_not_loaded(self) -> str | None:
        """Wait until a survey has loaded the side; return why it cannot.

        Empty if it can, None if the process has no job.
        """
        if not self._has_job:
            return None
        while not self._is_loaded:
            try:
                message = self._next_message(MIN_SILENCE_S)
            except GateError as error:
                return str(error)
            if "error" in message:
                return str(message["error"])
        return ""

    def _next_message(self, limit_s: float) -> dict[str, Any]:
        """Wait for the next message; lines that the start of the interpreter prints are none."""
        line = ""
        while not line.startswith("{"):
            try:
                line = self.child.next_line(limit_s)
            except ChildError as error:
                raise GateError(self._ended(str(error))) from None
        try:
            message = read_text(line, dict[str, Any])
        except RecordError:
            if self.child.ended(1.0):  # usually it was killed while it wrote
                raise GateError(self._ended(self.child.why_ended())) from None
            raise GateError(
                f"a trial sent a message that is not JSON: {line.strip()[:60]!r}; measure again"
            ) from None
        self._is_loaded = self._is_loaded or not _LOADED.isdisjoint(message)
        return message

    def _ended(self, reason: str) -> str:
        """Return what the process was doing when it ended, why it ended, and what to do."""
        test = self._at.partition(", its ")[0]
        advice = ""
        if self.child.has_crashed:
            command = f"pytest {shlex.quote(test)}" if "::" in test else "pytest --collect-only"
            advice = (
                f"; compiled code crashed: in the {self.side}, {command} prints all Python calls "
                "that led to it"
            )
        # Out of memory, or stopped because it took too long.
        elif self.child.ended(0) == -signal.SIGKILL:
            advice = "; select smaller cases with -- -k"
        return f"{self.side}: {self._at}: {reason.replace(self._root, '')}{advice}"


def environment_of(setup: Setup, side: str, seed: int) -> dict[str, str]:
    """Return the environment of the processes of a side."""
    tree = setup.trees[side]
    environ = environment(os.environ, setup.home, seed)
    environ = places.own_places(
        environ, setup.repository, tree.root, tree.directory, _temporary(setup, side)
    )
    return {**places.activated(environ, Path(setup.pythons[side])), **setup.variables[side]}


def _temporary(setup: Setup, side: str) -> Path:
    """Return the folder for temporary files of a side, one for the whole gate.

    So a trial finds what earlier ones of its side have compiled. The path is short, because that
    of a socket may have 107 bytes.
    """
    return setup.home.parent / "tmp" / side


def shared_places(setup: Setup) -> tuple[str, ...]:
    """Return the folders and files that variables name for both sides: caches and the user's data.

    What one side writes there, the other one may find.
    """
    of_base, of_head = (
        places.shared_places(environment_of(setup, side, 0), setup.repository)
        for side in (BASE, HEAD)
    )
    return tuple(place for place in of_head if place in of_base)


def environment(inherited: Mapping[str, str], home: Path, seed: int) -> dict[str, str]:
    """Return the environment of a process of a side: the user's, with a pinned allocator.

    Numerical libraries and torch.compile have one thread, because a trial has one core for each
    side. Both sides have the same hash seed, another one in each trial. The user can set all three.
    """
    environ = measuring_environment(inherited, home.parent / "pycache")
    if not own_hash_seed(inherited):
        environ[HASH_SEED] = str(seed % 2**32)
    environ.setdefault(THREADS, "1")
    environ.setdefault(COMPILE_THREADS, "1")
    # Set by a git hook, and by CodSpeed. pytest's temporary folders are in those of the side: it
    # keeps three and removes older ones, at which two sides in one folder are in each other's way.
    not_passed = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "CODSPEED_ENV")
    for name in (*not_passed, "PYTEST_DEBUG_TEMPROOT"):
        environ.pop(name, None)
    return environ


def own_hash_seed(inherited: Mapping[str, str]) -> str:
    """Return the hash seed that the user has set for all processes; empty if there is none."""
    seed = inherited.get(HASH_SEED, "")
    return "" if seed == "random" else seed
