"""Start launches as processes, send them jobs and receive their messages. Does not import torch."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mnistbench
from mnistbench.core.child import measuring_environment
from mnistbench.core.document import Reader
from mnistbench.core.errors import MnistbenchError, RecordError, UsageError
from mnistbench.core.files import DIGITS_VARIABLE, digits_file
from mnistbench.gate.snapshot import Tree
from mnistbench.gate.verdict.samples import BASE, HEAD

#: Longest time without a message from a launch, in seconds.
PATIENCE_S = 600.0

#: Environment variable of a side that sets the number of intra-op threads of all its cases.
THREADS = "OMP_NUM_THREADS"

_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from mnistbench.gate.sides.worker import main; main()"


class LaunchError(MnistbenchError):
    """A launch ended without a result; the message gives the reason."""


class _PeerError(LaunchError):
    """The process of one side ended because that of the other side has ended or does something else."""


@dataclass(frozen=True)
class Plan:
    """Parameters that all launches of a gate share."""

    trees: Mapping[str, Tree]  # BASE and HEAD
    pythons: Mapping[str, str]  # the interpreter of each
    variables: Mapping[str, Mapping[str, str]]  # environment variables of each, beside those of the gate
    home: Path  # contains the copy of mnistbench that measures both sides
    repository: Path  # the user's own tree, which must not be measured
    arguments: tuple[str, ...]  # for pytest
    phases: tuple[str, ...]  # to measure; all if empty
    only: tuple[str, ...] = ()  # node ids of the cases to survey; all if empty
    with_torch: frozenset[str] = frozenset()  # sides whose code imports torch

    def threads(self, side: str) -> int:
        """Return the number of threads of all cases of a side; 0 if each case has its own."""
        return int(self.variables[side].get(THREADS, 0))


@dataclass(frozen=True)
class Listing:
    """The cases of a side, as found by a survey of that side alone."""

    cases: Mapping[str, Mapping[str, Any]]  # node id -> label and params
    files: Mapping[str, str]  # module -> file
    torch: str  # version; empty if no test imports it
    packages: Mapping[str, str] = field(default_factory=dict)  # installed distribution -> version
    memory: Mapping[str, int] = field(default_factory=dict)  # node id -> peak memory of tensors in an iteration, bytes
    resident: int = 0  # peak resident memory of the process, bytes
    failed: Mapping[str, str] = field(default_factory=dict)  # node id -> why the case cannot be run
    left_out: Mapping[str, str] = field(default_factory=dict)  # node id -> why the test is no case
    notes: Mapping[str, str] = field(default_factory=dict)  # node id -> what a reader of the report has to know
    uncompared: Mapping[str, str] = field(default_factory=dict)  # node id -> why its results cannot be compared

    @classmethod
    def read(cls, message: Reader) -> Listing:
        """Check and read the message of a survey.

        Raises:
            RecordError: names the field.
        """
        return cls(
            cases={
                case: {"label": found["label"].text(), "params": {k: v.value for k, v in found["params"].mapping().items()}}
                for case, found in message["cases"].mapping().items()
            },
            files={name: file.text() for name, file in message["files"].mapping().items()},
            torch=message["torch"].text(),
            packages={name: version.text() for name, version in message["packages"].mapping().items()},
            memory={case: size.whole() for case, size in message["memory"].mapping().items()},
            resident=message["resident"].whole(),
            **{
                name: {case: reason.text() for case, reason in message[name].mapping().items()}
                for name in ("failed", "left_out", "notes", "uncompared")
            },
        )


@dataclass(frozen=True)
class Default:
    """The tests that are measured if the user names none."""

    folder: str  # empty: the whole project
    phase: str


def stage_home(folder: Path) -> Path:
    """Copy this package into a folder for launches, so that the same code measures both sides, and return the folder.

    pytest-benchmark lies beside it, for a side whose environment has pytest and torch alone: the fixture needs it.
    """
    home = folder / "gate"
    found = importlib.util.find_spec("pytest_benchmark")
    for package in (Path(mnistbench.__file__).parent, *map(Path, (found and found.submodule_search_locations) or ())):
        shutil.copytree(package, home / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    return home


class Launching:
    """A running launch: a process for each side, which take turns. They load the sides at once."""

    def __init__(self, plan: Plan, seed: int, only: Sequence[str] | None, log: Path, cores: Sequence[int]) -> None:
        coin = random.Random(seed)  # noqa: S311  # a coin, not a secret
        self._processes: list[_Process] = []
        peers = socket.socketpair()
        try:
            for side, peer in zip(coin.sample([BASE, HEAD], 2), peers, strict=True):
                with _uninterrupted():
                    self._processes.append(_Process(plan, side, seed, log, peer))
                self._processes[-1].begin(_job(plan, side, seed, only, peer=peer.fileno(), cores=list(cores)))
        except BaseException:
            self.stop()
            raise
        finally:
            for peer in peers:  # the processes have their own, and notice when the other one's is closed
                peer.close()

    def ready(self) -> None:
        """Wait until the sides are loaded.

        Raises:
            LaunchError: a side cannot be loaded.
        """
        for message in self._receive("ready"):
            with _usable():
                _check_shared(message)

    def measure(self) -> dict[str, Any]:
        """Measure the sides; return the line for the file.

        Raises:
            LaunchError: a side failed or was killed.
        """
        for process in self._processes:
            process.go()
        results = self._receive("result")
        with _usable():
            return _merged(results)

    def _receive(self, expected: str) -> list[Reader]:
        """Return the message of each process. If one fails, the other one ends too: the error of the first is raised."""
        found, ended = [], None
        for process in self._processes:
            try:
                found.append(process.receive(expected))
            except _PeerError as error:
                ended = error
        if ended:
            raise ended
        return found

    def stop(self) -> None:
        """Kill the processes."""
        for process in self._processes:
            process.stop()


@contextmanager
def launching(plan: Plan, seed: int, only: Sequence[str] | None, log: Path, cores: Sequence[int] = ()) -> Iterator[Launching]:
    """Start a launch and kill its processes at the end of the body.

    Args:
        plan: of the gate.
        seed: of the random decisions of this launch.
        only: node ids of the cases to measure; all if None.
        log: path of the log; each side has its own, with its name at the end.
        cores: that the launch may use; empty if the system does not let a process choose.
    """
    launch = Launching(plan, seed, only, log, cores)
    try:
        yield launch
    finally:
        launch.stop()


def survey(plan: Plan, seed: int, default: Default, log: Path) -> tuple[Plan, dict[str, Listing]]:
    """Load each side in a process of its own, both at the same time; return their listings and the completed plan.

    Args:
        plan: with the user's arguments; the head's pytest decides which of them are paths.
        seed: of hashes, the same for both sides.
        default: measured if there is no path among the arguments.
        log: path of the log; each side has its own, with its name at the end.

    Raises:
        LaunchError: a side cannot be loaded.
    """
    with _one_of_each_side(plan, seed, log) as processes:
        processes[HEAD].begin(_job(plan, HEAD, seed, plan.only or None, default=vars(default)))
        with _usable():
            selected = processes[HEAD].receive("selected")
            plan = replace(plan, arguments=selected["arguments"].texts(), phases=selected["phases"].texts())
        processes[BASE].begin(_job(plan, BASE, seed, plan.only or None, default=None))
        found = {}
        for side, process in processes.items():
            with _usable():
                message = process.receive("surveyed")
                _check_shared(message)
                found[side] = Listing.read(message)
        return replace(plan, with_torch=frozenset(side for side in found if found[side].torch)), found


def capture(
    plan: Plan, seed: int, wanted: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path, log: Path
) -> dict[str, Mapping[str, Any]]:
    """Describe calls of operations on each side in a process of its own, both at the same time.

    Args:
        plan: of the gate.
        seed: of hashes, the same for both sides.
        wanted: side -> rows of operation tables, as ``gate.capture.capture`` takes them.
        folder: receives files of values.
        log: path of the log; each side has its own, with its name at the end.

    Returns:
        Side -> what ``gate.capture.capture`` sends.

    Raises:
        LaunchError: a side cannot be run.
    """
    with _one_of_each_side(plan, seed, log) as processes:
        for side, process in processes.items():
            process.begin(_job(plan, side, seed, None, capture=list(wanted[side]), folder=str(folder)))
        found: dict[str, Mapping[str, Any]] = {}
        for side, process in processes.items():
            with _usable():
                found[side] = process.receive("captured").read(Mapping[str, Any])
        return found


@contextmanager
def _one_of_each_side(plan: Plan, seed: int, log: Path) -> Iterator[dict[str, _Process]]:
    """Start a process for each side, and kill both at the end of the body."""
    processes: dict[str, _Process] = {}
    try:
        for side in (HEAD, BASE):
            with _uninterrupted():
                processes[side] = _Process(plan, side, seed, log)
        yield processes
    finally:
        for process in processes.values():
            process.stop()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay SIGINT and SIGTERM while a process starts, because a process that is not yet known would not be killed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    put_off = {number: handler for number, handler in handlers.items() if callable(handler)}  # ignored signals stay ignored
    for number in put_off:
        signal.signal(number, lambda received_number, _: received.append(received_number))
    try:
        yield
    finally:
        for number, handler in put_off.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt


@contextmanager
def _usable() -> Iterator[None]:
    """Turn an unreadable message into a LaunchError."""
    try:
        yield
    except RecordError as error:
        raise LaunchError(f"a launch's message cannot be used: {error}") from None


def _check_shared(message: Reader) -> None:
    for name, path in message["shared"].mapping().items():
        raise LaunchError(
            f"both sides import {name} from {path.text()}, not from their own copies; "
            "install the project without its path (no editable install), or set pythonpath in pytest's configuration"
        )


def _merged(results: Sequence[Reader]) -> dict[str, Any]:
    """Merge the results of both sides, build by build.

    Raises:
        RecordError: a result is incomplete.
    """
    first, second = results
    other_cases = second["cases"].mapping()
    cases = first["cases"].mapping()
    for case, builds in cases.items():
        if len(builds.items()) != len(other_cases[case].items() if case in other_cases else ()):
            raise builds.wrong("as many builds as the other side has")
    seconds = [half["case_seconds"].mapping() for half in results]
    return {
        "cases": {
            case: [
                {**_values(one), "sides": {**_values(one["sides"]), **_values(other["sides"])}}
                for one, other in zip(builds.items(), other_cases[case].items(), strict=True)
            ]
            for case, builds in cases.items()
        },
        "case_seconds": {case: max(half[case].number() for half in seconds) for case in cases},
        "order": list(first["order"].texts()),
        "seconds": max(half["seconds"].number() for half in results),
    }


def _values(found: Reader) -> dict[str, Any]:
    return {name: item.value for name, item in found.mapping().items()}


def _job(plan: Plan, side: str, seed: int, only: Sequence[str] | None, **more: Any) -> dict[str, Any]:
    return {
        "side": side,
        "tree": str(plan.trees[side].root),
        "directory": str(plan.trees[side].directory),
        "seed": seed,
        "home": str(plan.home),
        "repository": str(plan.repository),
        "arguments": list(plan.arguments),
        "phases": list(plan.phases),
        "threads": plan.threads(side),
        "only": only,
        "torch": side in plan.with_torch,
        **more,
    }


class _Process:
    """A child process with its own process group, which sends one message a line."""

    def __init__(self, plan: Plan, side: str, seed: int, log: Path, peer: socket.socket | None = None) -> None:
        self._log = log.with_name(f"{log.name}-{side}")
        self._log_begins = self._log.stat().st_size if self._log.exists() else 0
        python, environ = plan.pythons[side], {**environment(os.environ, plan.home, seed), **plan.variables[side]}
        try:
            with self._log.open("ab") as stream:
                self._child = subprocess.Popen(
                    [python, "-P", "-c", _BOOT, str(plan.home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream,
                    cwd=plan.trees[side].directory, env=environ, start_new_session=True,
                    text=True, pass_fds=[peer.fileno()] if peer else [],
                )  # fmt: skip
        except OSError as error:
            raise UsageError(f"{python}: cannot be started ({error.strerror}); name a Python interpreter") from None
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def begin(self, job: Mapping[str, Any]) -> None:
        """Send the job; until then the process only imports the gate."""
        self._tell(json.dumps(job))

    def go(self) -> None:
        """Start the measurement."""
        self._tell("go")

    def receive(self, expected: str) -> Reader:
        """Wait for the message with this name and return its content.

        Raises:
            LaunchError: the process reports an error, has ended, or sends nothing for PATIENCE_S seconds.
        """
        while True:
            line = self._next_line()
            if not line.startswith("{"):
                continue  # printed by the start of the interpreter
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                raise LaunchError(self._why_incomplete(line)) from None
            if "error" in message:
                raise LaunchError(str(message["error"]))
            if "peer_error" in message:
                raise _PeerError(str(message["peer_error"]))
            if expected in message:
                return Reader(message)[expected]

    def _next_line(self) -> str:
        """Return the next line.

        Raises:
            LaunchError: the process has ended, or sent nothing for PATIENCE_S seconds.
        """
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                line = self._lines.get(timeout=min(1.0, PATIENCE_S))
                if line:
                    return line
            if self._child.poll() is not None and self._lines.empty():  # its own children may still hold the pipe
                raise LaunchError(self._why_ended())
        self.stop()
        raise LaunchError(f"a launch sent no message for {PATIENCE_S:.0f} s and was stopped; select shorter cases with -- -k")

    def stop(self) -> None:
        """Kill the process and its children."""
        with contextlib.suppress(OSError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError):  # it has ended: receive reports why
            self._child.stdin.write(line + "\n")  # type: ignore[union-attr]
            self._child.stdin.flush()  # type: ignore[union-attr]

    def _listen(self) -> None:
        with contextlib.suppress(ValueError, OSError):  # stop has closed it
            for line in self._child.stdout:  # type: ignore[union-attr]
                self._lines.put(line)
        self._lines.put("")

    def _why_incomplete(self, line: str) -> str:
        """Return why a message is incomplete: usually because the process was killed while it wrote."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._child.wait(timeout=1.0):
                return self._why_ended()
        return f"a launch sent a message that is not JSON: {line.strip()[:60]!r}; measure again"

    def _why_ended(self) -> str:
        code = self._child.wait()
        if code < 0:
            memory = ", probably because the system ran out of memory" if -code == signal.SIGKILL else ""
            return f"a launch was killed by {signal.Signals(-code).name}{memory}; select smaller cases with -- -k"
        with self._log.open("rb") as log:
            log.seek(self._log_begins)
            lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        return f"a launch ended with exit code {code}: {lines[-1].strip() if lines else 'it printed nothing'}"


def environment(inherited: Mapping[str, str], home: Path, seed: int) -> dict[str, str]:
    """Return the environment of a launch: the user's, with a pinned allocator and the same hash seed for both sides.

    Numerical libraries have one thread if the user sets no other number: a launch has one core for each.
    """
    found = {**measuring_environment(inherited, home.parent / "pycache"), "PYTHONHASHSEED": str(seed % 2**32)}
    found.setdefault(THREADS, "1")
    found["PYTEST_DEBUG_TEMPROOT"] = str(home.parent)  # pytest keeps three temporary folders of a user and removes older ones
    if file := digits_file():
        found[DIGITS_VARIABLE] = str(file)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # set by a git hook that starts the gate
        found.pop(name, None)
    return found
