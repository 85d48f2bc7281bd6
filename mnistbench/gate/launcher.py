"""Start launches as processes, send them jobs and receive their messages. Does not import torch."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shlex
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mnistbench
from mnistbench.core.child import Child, ChildError, measuring_environment, uninterrupted
from mnistbench.core.errors import MnistbenchError, RecordError, UsageError
from mnistbench.core.files import DIGITS_VARIABLE, digits_file
from mnistbench.core.reading import Reader
from mnistbench.gate.imports import Imports, Outside, refusal
from mnistbench.gate.statistics.raw_samples import WHOLE, Shard
from mnistbench.gate.trees import Tree
from mnistbench.gate.words import BASE, HEAD, THREADS

#: Longest time without a message from a process, in seconds, until it is known what the base takes.
PATIENCE_S = 600.0

#: Then the limit is this multiple of its longest step in the survey (loading, or a test with a few
#: calls), in a launch of that of both sides. The other side of a launch stops waiting after half of
#: it.
LIMIT = 30.0
#: The least limit, in seconds.
LEAST_LIMIT_S = 60.0

#: What may be the reason if a test fails in a launch, although it has passed in the survey of its
#: side.
_SHARED = (
    "; it passed before: if processes share a file, database or port, name it by tmp_path, or use "
    "one core: taskset -c 0"
)

#: Environment variable with the seed of the hashes of texts, which decides the order of sets.
HASH_SEED = "PYTHONHASHSEED"

_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from mnistbench.gate.sides.worker import main; "
    "main()"
)


class LaunchError(MnistbenchError):
    """A launch ended without a result; the message gives the reason."""


class _PeerError(LaunchError):
    """The process of one side ended because the other side has ended or does something else."""


@dataclass(frozen=True)
class Plan:
    """Parameters that all launches of a gate share."""

    trees: Mapping[str, Tree]  # BASE and HEAD
    pythons: Mapping[str, str]  # the interpreter of each
    # Environment variables of each, beside those of the gate.
    variables: Mapping[str, Mapping[str, str]]
    home: Path  # contains the copy of mnistbench that measures both sides
    repository: Path  # the user's own tree, which must not be measured
    arguments: tuple[str, ...]  # for pytest
    phases: tuple[str, ...]  # to measure; all if empty
    only: tuple[str, ...] = ()  # node ids of the cases to survey; all if empty
    # With the tests of all shards after the survey, which runs those of this one.
    shard: Shard = WHOLE
    with_torch: frozenset[str] = frozenset()  # sides whose code imports torch
    added: float = 0.0  # share of its time by which each iteration of the head is made longer
    # Of timed and of profiled iterations, as gate.planning has them.
    effort: tuple[float, float] = (1.0, 1.0)
    # Node id -> those of a case, if they differ.
    efforts: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    # Side -> node id -> hash of what a test is parametrized with, in its survey
    parameters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Node ids of cases that use more than one core, on a side or on both.
    parallel: frozenset[str] = frozenset()
    limit_s: float = PATIENCE_S  # longest time without a message from a process, seconds

    def threads(self, side: str) -> int:
        """Return the number of threads of all cases of a side; 0 if each case has its own."""
        return int(self.variables[side].get(THREADS, 0))


@dataclass
class ListedCase:
    """A case that a survey found."""

    label: str
    params: Mapping[str, Any]
    # Peak memory of tensors in an iteration, bytes; None if it is not known.
    memory: int | None = None
    failed: str = ""  # why it cannot be run
    note: str = ""  # what a reader of the report has to know
    uncompared: str = ""  # why its results cannot be compared between the sides
    parallel: bool = False  # a plain test that uses more than one core
    parameters: str = ""  # hash of what the test is parametrized with
    sources: tuple[str, ...] = ()  # files of the tree: of the test, its fixtures and its data
    returns: str = ""  # types of the result
    seconds: float = 0.0  # of its calls in the survey
    # Implementation of oneDNN -> how often its iteration runs it.
    onednn: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Listing:
    """The cases of a side, as found by a survey of that side alone."""

    cases: Mapping[str, ListedCase]  # by node id
    packages: Mapping[str, str] = field(default_factory=dict)  # installed distribution -> version
    torch: str = ""  # version; empty if no test imports it
    files: Mapping[str, str] = field(default_factory=dict)  # module -> file
    # Modules of the project that are not from the tree.
    outside: Mapping[str, Outside] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)  # node id -> why the test is no case
    # Node id -> why the case cannot be measured as it is.
    unmeasurable: Mapping[str, str] = field(default_factory=dict)
    resident: int = 0  # peak resident memory of the process, bytes
    longest_s: float = 0.0  # of loading and each test, seconds
    # What decides which code runs, with torch: name -> value.
    cpu: Mapping[str, str] = field(default_factory=dict)
    loaded: tuple[str, ...] = ()  # installed distributions that the tests import
    missing: tuple[str, ...] = ()  # arguments of pytest that name nothing on this side
    # Of the fast step of mnistbench; None if no case has run it.
    has_compiled_loops: bool | None = None

    def imports(self, tree: Path) -> Imports:
        """Return what the side has imported, for the tree of the side."""
        return Imports(tree, self.outside, self.files)


def stage_home(folder: Path) -> Path:
    """Copy this package into a folder for launches, and return the folder.

    So the same code measures both sides.

    pytest-benchmark lies beside it, for a side whose environment has pytest and torch alone: the
    fixture needs it.
    """
    home = folder / "gate"
    found = importlib.util.find_spec("pytest_benchmark")
    for package in (
        Path(mnistbench.__file__).parent,
        *map(Path, (found and found.submodule_search_locations) or ()),
    ):
        shutil.copytree(package, home / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    return home


class Launching:
    """A running launch: a process for each side, which take turns. They load the sides at once."""

    def __init__(self, processes: Sequence[_SideProcess], plan: Plan) -> None:
        self._processes = processes
        self._plan = plan

    def ready(self) -> None:
        """Wait until the sides are loaded.

        Raises:
            LaunchError: a side cannot be loaded.
        """
        with _usable():
            imports = {
                process.side: Imports(
                    self._plan.trees[process.side].root,
                    message["outside"].read(Mapping[str, Outside]),
                    message["files"].read(Mapping[str, str]),
                )
                for process, message in zip(self._processes, self._receive("ready"), strict=True)
            }
            _check_imports(self._plan, imports)

    def measure(self, begins: Callable[[int], None] | None = None) -> dict[str, Any]:
        """Measure the sides; return the line for the file.

        ``begins`` gets the number of each case, 1 for the first one.

        Raises:
            LaunchError: a side failed or was killed.
        """
        self._processes[0].begins = begins  # both sides measure the same case
        for process in self._processes:
            process.child.tell("go")
        results = self._receive("result")
        with _usable():
            return _merged(results)

    def _receive(self, expected: str) -> list[Reader]:
        """Return the message of each process.

        If one fails, the other one ends too: the error of the first is raised.
        """
        found = []
        ended = None
        for process in self._processes:
            try:
                found.append(process.receive(expected, self._plan.limit_s))
            except _PeerError as error:
                ended = error
            except LaunchError as error:
                raise LaunchError(f"{error}{_SHARED if ' fails: ' in str(error) else ''}") from None
        if ended:
            raise ended
        return found


@contextmanager
def launching(
    plan: Plan, seed: int, only: Sequence[str] | None, log: Path, cores: Sequence[int] = ()
) -> Iterator[Launching]:
    """Start a launch and kill its processes at the end of the body.

    It measures the cases ``only``, all if None. ``cores`` is empty if the system does not let a
    process choose.
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
            processes = running.enter_context(_processes(plan, seed, log, descriptors))
        for side, process in processes.items():
            process.begin(
                plan, only, peer=descriptors[side], cores=cores, patience_s=plan.limit_s / 2
            )
        yield Launching(list(processes.values()), plan)


def survey(plan: Plan, seed: int, folder: str, log: Path) -> tuple[Plan, dict[str, Listing]]:
    """Load each side in a process of its own, both at the same time.

    Return their listings and the completed plan.

    The head's pytest decides which of the user's arguments are paths. If there is none, ``folder``
    is measured; if that is empty, the whole project.

    Raises:
        LaunchError: a side cannot be loaded.
    """
    with _processes(plan, seed, log) as processes, _usable():
        processes[HEAD].begin(plan, plan.only or None, default=folder)
        selected = processes[HEAD].receive("selected")
        arguments, phases = (
            selected[name].read(tuple[str, ...]) for name in ("arguments", "phases")
        )
        plan = replace(plan, arguments=arguments, phases=phases)
        processes[BASE].begin(plan, plan.only or None, default=None)
        if plan.shard.of > 1:
            collected = [
                processes[side].receive("collected").read(tuple[str, ...]) for side in (BASE, HEAD)
            ]
            plan = replace(
                plan, shard=replace(plan.shard, tests=tuple(sorted({*collected[0], *collected[1]})))
            )
            for process in processes.values():
                process.child.tell(json.dumps(plan.shard.own()))
        found = dict[str, Listing]()
        limit_s = PATIENCE_S
        for side in (BASE, HEAD):
            found[side] = processes[side].receive("surveyed", limit_s).read(Listing)
            limit_s = max(LEAST_LIMIT_S, *(LIMIT * listing.longest_s for listing in found.values()))
        for argument in found[BASE].missing:
            if argument in found[HEAD].missing:
                raise LaunchError(f"neither side has {argument}; name files and tests that exist")
        _check_imports(
            plan, {side: listing.imports(plan.trees[side].root) for side, listing in found.items()}
        )
        parallel = frozenset(
            name
            for listing in found.values()
            for name, case in listing.cases.items()
            if case.parallel
        )
        with_torch = frozenset(side for side in found if found[side].torch)
        parameters = {
            side: {node_id: case.parameters for node_id, case in listing.cases.items()}
            for side, listing in found.items()
        }
        plan = replace(
            plan, with_torch=with_torch, parallel=parallel, parameters=parameters, limit_s=limit_s
        )
        return plan, found


def collect_again(plan: Plan, seed: int, log: Path) -> dict[str, Mapping[str, str]]:
    """Collect the tests of each side in another process.

    Return those of each side, with the hash of their parameters.

    Raises:
        LaunchError: a side cannot be loaded.
    """
    with _processes(plan, seed, log) as processes, _usable():
        for process in processes.values():
            process.begin(plan, None, collect=True)
        return {
            side: process.receive("collected", plan.limit_s).read(Mapping[str, str])
            for side, process in processes.items()
        }


def capture(
    plan: Plan,
    seed: int,
    wanted: Mapping[str, Sequence[Mapping[str, Any]]],
    folder: Path,
    log: Path,
) -> dict[str, Mapping[str, Any]]:
    """Describe calls of operations on each side in a process of its own, both at the same time.

    ``wanted`` are the rows of operation tables by side, as ``sides.survey.capture`` takes them;
    ``folder`` receives values.

    Returns:
        Side -> what ``sides.survey.capture`` sends.

    Raises:
        LaunchError: a side cannot be run.
    """
    with _processes(plan, seed, log) as processes, _usable():
        for side, process in processes.items():
            process.begin(plan, None, capture=wanted[side], folder=str(folder))
        return {
            side: process.receive("captured").read(Mapping[str, Any])
            for side, process in processes.items()
        }


@contextmanager
def _processes(
    plan: Plan, seed: int, log: Path, descriptors: Mapping[str, int] | None = None
) -> Iterator[dict[str, _SideProcess]]:
    """Start a process for each side, and stop them after the body.

    In the order of the file descriptors that they inherit.
    """
    processes: dict[str, _SideProcess] = {}
    try:
        for side in descriptors or (HEAD, BASE):
            with uninterrupted():
                processes[side] = _SideProcess(
                    plan, side, seed, log, [descriptors[side]] if descriptors else []
                )
        yield processes
    finally:
        for process in processes.values():
            process.child.stop()


@contextmanager
def _usable() -> Iterator[None]:
    """Turn an unreadable message into a LaunchError."""
    try:
        yield
    except RecordError as error:
        raise LaunchError(f"a launch's message cannot be used: {error}") from None


def _check_imports(plan: Plan, imports: Mapping[str, Imports]) -> None:
    """Check that the sides have not imported the same code.

    Raises:
        LaunchError: they have.
    """
    is_same_code = plan.trees[BASE].what == plan.trees[HEAD].what
    if reason := refusal(imports, is_same_code=is_same_code):
        raise LaunchError(reason)


def _merged(results: Sequence[Reader]) -> dict[str, Any]:
    """Merge the results of both sides, build by build.

    Raises:
        RecordError: a result is incomplete.
    """
    first, second = (
        result["cases"].read(Mapping[str, tuple[Mapping[str, Any], ...]]) for result in results
    )
    names = [result["side"].read(str) for result in results]
    case_seconds = [result["case_seconds"].read(Mapping[str, float]) for result in results]
    for case, builds in first.items():
        if len(builds) != len(second.get(case, ())):
            raise results[0]["cases"][case].wrong("as many builds as the other side has")
    return {
        "once": {
            name: result["once"].read(Mapping[str, Mapping[str, int]])
            for name, result in zip(names, results, strict=True)
        },
        "cases": {
            case: [
                {"sides": dict(zip(names, columns, strict=True))}
                for columns in zip(builds, second[case], strict=True)
            ]
            for case, builds in first.items()
        },
        "case_seconds": {
            case: max(seconds.get(case, 0.0) for seconds in case_seconds) for case in first
        },
        "efforts": results[0]["efforts"].read(Mapping[str, tuple[float, ...]]),
        "unmeasurable": results[0]["unmeasurable"].read(Mapping[str, str]),
        "seconds": max(result["seconds"].read(float) for result in results),
    }


class _SideProcess:
    """The process of a side, which sends one message a line."""

    def __init__(
        self, plan: Plan, side: str, seed: int, log: Path, descriptors: Sequence[int]
    ) -> None:
        self.side = side
        self._seed = seed
        self._at = "loading"
        self._root = f"{plan.trees[side].root}{os.sep}"
        self.begins: Callable[[int], None] | None = None
        environ = {**environment(os.environ, plan.home, seed), **plan.variables[side]}
        try:
            self.child = Child(
                [plan.pythons[side], "-P", "-c", _BOOT, str(plan.home)],
                environ,
                directory=plan.trees[side].directory,
                log=log.with_name(f"{log.name}-{side}"),
                pass_fds=descriptors,
            )
        except ChildError as error:
            raise UsageError(f"{error}; name a Python interpreter") from None

    def begin(self, plan: Plan, only: Sequence[str] | None, **more: Any) -> None:
        """Send the job; until then the process only imports the gate."""
        job = {
            "side": self.side,
            "tree": str(plan.trees[self.side].root),
            "directory": str(plan.trees[self.side].directory),
            "seed": self._seed,
            "home": str(plan.home),
            "repository": str(plan.repository),
            "arguments": plan.arguments,
            "phases": plan.phases,
            "threads": plan.threads(self.side),
            "only": only,
            "torch": len(plan.with_torch) == len(plan.trees),
            "parallel": sorted(plan.parallel),
            "parameters": plan.parameters.get(self.side, {}),
            "added": plan.added if self.side == HEAD else 0.0,
            "is_shard": plan.shard.of > 1,
            "effort": plan.effort,
            "efforts": plan.efforts,
            **more,
        }
        self.child.tell(json.dumps(job))

    def receive(self, expected: str, limit_s: float = PATIENCE_S) -> Reader:
        """Wait for the message with this name and return its content.

        Raises:
            LaunchError: the process reports an error, has ended, or sends nothing for ``limit_s``
                seconds.
        """
        while True:
            try:
                line = self.child.next_line(limit_s)
            except ChildError as error:
                raise LaunchError(self._ended(str(error))) from None
            if not line.startswith("{"):
                continue  # printed by the start of the interpreter
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                if self.child.ended(1.0):  # usually it was killed while it wrote
                    raise LaunchError(self._ended(self.child.why_ended())) from None
                raise LaunchError(
                    f"a launch sent a message that is not JSON: {line.strip()[:60]!r}; measure "
                    "again"
                ) from None
            if "error" in message:
                raise LaunchError(str(message["error"]))
            if "peer_error" in message:
                raise _PeerError(str(message["peer_error"]))
            self._at = message.get("at", self._at)
            if self.begins and "case" in message:
                self.begins(message["case"])
            if expected in message:
                return Reader(message)[expected]

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


def own_hash_seed(inherited: Mapping[str, str]) -> str:
    """Return the hash seed that the user has set for all processes; empty if there is none."""
    seed = inherited.get(HASH_SEED, "")
    return "" if seed == "random" else seed


def environment(inherited: Mapping[str, str], home: Path, seed: int) -> dict[str, str]:
    """Return the environment of a launch.

    The user's, with a pinned allocator and the same hash seed for both sides.

    The hash seed is another one in each launch, unless the user has set one.

    Numerical libraries have one thread if the user sets no other number: a launch has one core for
    each.
    """
    found = measuring_environment(inherited, home.parent / "pycache")
    if not own_hash_seed(inherited):
        found[HASH_SEED] = str(seed % 2**32)
    found.setdefault(THREADS, "1")
    # pytest keeps three temporary folders of a user and removes older ones.
    found["PYTEST_DEBUG_TEMPROOT"] = str(home.parent)
    if file := digits_file():
        found[DIGITS_VARIABLE] = str(file)
    # Set by a git hook, and by CodSpeed.
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "CODSPEED_ENV"):
        found.pop(name, None)
    return found
