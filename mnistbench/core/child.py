"""Child processes.

Start one, talk with it by lines, end it with all that it has started, and say why it ended.

A child has a session of its own, so that Ctrl-C reaches this process only, which then ends the
child. On Linux, processes that have left this session, such as daemons, become children of this
process when their parents end. They are ended when no child runs any more. What a child prints on
its standard error goes to a log; the last line of it is the reason if the child fails.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import re
import select
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Self

from mnistbench.core.errors import MnistbenchError
from mnistbench.core.machine import adopt_orphans, all_children


def _signals(*names: str) -> tuple[signal.Signals, ...]:
    """Return those of the signals that the system has: modules that start no child import this."""
    return tuple(number for number in signal.Signals if number.name in names)


#: Signals by which the system ends a process whose compiled code does what is not allowed.
CRASHES = _signals("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSYS")

#: Signals by which a user or a service asks a process to end: also because its terminal was closed.
_TERMINATION = _signals("SIGTERM", "SIGHUP")

#: Variables of continuous integration that measured code does not get, each as a pattern: files by
#: which it would control later steps of its job, or write to the job's page, and tokens of the
#: service. By the variable that is set where the service runs the job.
JOB_VARIABLES: Mapping[str, Sequence[str]] = {
    "GITHUB_ACTIONS": (
        "ACTIONS_*",
        "GH_TOKEN",
        "GITHUB_ENV",
        "GITHUB_OUTPUT",
        "GITHUB_PATH",
        "GITHUB_STATE",
        "GITHUB_STEP_SUMMARY",
        "GITHUB_TOKEN",
    ),
    "GITLAB_CI": (
        "CI_DEPENDENCY_PROXY_PASSWORD",
        "CI_DEPLOY_PASSWORD",
        "CI_JOB_JWT*",
        "CI_JOB_TOKEN",
        "CI_REGISTRY_PASSWORD",
        "CI_REPOSITORY_URL",
    ),
    "BUILDKITE": (
        "BUILDKITE_AGENT_ACCESS_TOKEN",
        "BUILDKITE_AGENT_JOB_API_*",
        "BUILDKITE_ENV_FILE",
    ),
    "CIRCLECI": ("BASH_ENV", "CIRCLE_INTERNAL_*", "CIRCLE_OIDC_TOKEN*"),
    "TF_BUILD": ("SYSTEM_ACCESSTOKEN",),
    "BITBUCKET_BUILD_NUMBER": ("BITBUCKET_STEP_OIDC_TOKEN",),
}

#: Longest wait without a look at whether the child has ended, in seconds: its own children may
#: still hold its output.
_LOOK_S = 1.0

#: Longest time in which processes that children have left are looked for and ended, in seconds.
#: They may start others as fast.
_ENDING_S = 5.0


class ChildError(MnistbenchError):
    """A child could not be started, failed, or was silent for too long.

    The message is the reason, without a subject.
    """


def without_job_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those by which code can act for a job of its service."""
    patterns = [
        pattern
        for service, of_service in JOB_VARIABLES.items()
        if environ.get(service)
        for pattern in of_service
    ]
    return {
        name: value
        for name, value in environ.items()
        if not any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def measuring_environment(inherited: Mapping[str, str], bytecode: Path) -> dict[str, str]:
    """Return the inherited environment with what every child process gets.

    A bytecode cache and absolute paths, and no variable of JOB_VARIABLES.

    Args:
        inherited: environment of the parent process.
        bytecode: cache directory for a child that may not write beside its sources
            (``PYTHONDONTWRITEBYTECODE``); without one, each process would compile torch's sources
            again, which takes 10 s.
    """
    # Without it Kineto reports a missing GPU as an error.
    environ = {**without_job_variables(inherited), "KINETO_LOG_LEVEL": "99"}
    if environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        environ["PYTHONPYCACHEPREFIX"] = str(bytecode)
    if environ.get("MNISTBENCH_DATA"):  # a child may run in another directory
        environ["MNISTBENCH_DATA"] = str(Path(environ["MNISTBENCH_DATA"]).absolute())
    if environ.get("PYTHONPATH"):
        environ["PYTHONPATH"] = os.pathsep.join(
            str(Path(part).absolute()) for part in environ["PYTHONPATH"].split(os.pathsep)
        )
    return environ


class _Orphans:
    """Processes that children have left behind, and which are children of this process then.

    They are ended when the last child is stopped, because until then a child may need them: it is
    not known whose they are.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children = 0  # that have started and not been stopped
        self._others: frozenset[int] = frozenset()  # children of this process from before

    def child_starts(self) -> None:
        """Adopt what this child leaves."""
        with self._lock:
            if not self._children:
                self._others = all_children()
                adopt_orphans(True)
            self._children += 1

    def child_is_stopped(self) -> None:
        """End what all children have left if this one was the last."""
        with self._lock:
            self._children -= 1
            if not self._children:
                self._end()
                adopt_orphans(False)

    def _end(self) -> None:
        own_session = os.getsid(0)
        left_alone = set(self._others)
        until = time.monotonic() + _ENDING_S
        # What an orphan has started becomes a child when the orphan ends.
        while (orphans := all_children() - left_alone) and time.monotonic() < until:
            for orphan in orphans:
                # Of another user, or a child that something else has waited for meanwhile.
                with contextlib.suppress(OSError):
                    # A Child has a session of its own, which its descendants can only leave for a
                    # new one. So this process has started by other means what is in its session.
                    if os.getsid(orphan) != own_session:
                        os.kill(orphan, signal.SIGKILL)
                        os.waitpid(orphan, 0)
                        continue
                left_alone.add(orphan)


_orphans = _Orphans()


class Child:
    """A running child process. As a context manager, it is stopped at the end of the body.

    Args:
        command: the program and its arguments.
        environ: its environment.
        directory: where it runs; None for this process's directory.
        log: file to which its standard error is appended; None for a temporary file.
        pass_fds: file descriptors that it inherits.
        end_s: time that it gets to end after SIGTERM, in seconds, for a child that ends its own
            children; 0 kills it at once.

    Raises:
        ChildError: it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        directory: Path | None = None,
        log: Path | None = None,
        pass_fds: Sequence[int] = (),
        end_s: float = 0.0,
    ) -> None:
        self._end_s = end_s
        self._directory = directory
        # Closed by stop.
        self._log: IO[bytes] = log.open("a+b") if log else tempfile.TemporaryFile()  # noqa: SIM115
        self._log_begins = self._log.seek(0, os.SEEK_END)
        self._lines: queue.Queue[str] = queue.Queue()
        self._stopped = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        _orphans.child_starts()
        try:
            with uninterrupted():
                self._process = subprocess.Popen(
                    command,
                    env=environ,
                    cwd=directory,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                    encoding="utf-8",
                    errors="replace",
                    pass_fds=pass_fds,
                    start_new_session=True,
                )
        except OSError as error:
            self._log.close()
            _orphans.child_is_stopped()
            raise ChildError(f"{command[0]}: cannot be started ({error.strerror})") from None
        except KeyboardInterrupt:
            self.stop()
            raise
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def tell(self, line: str) -> None:
        """Send a line. If the child has ended, :meth:`next_line` says why."""
        assert self._process.stdin, "a pipe"
        with contextlib.suppress(OSError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def next_line(self, patience_s: float) -> str:
        """Return the next line that the child prints, without its end.

        Raises:
            ChildError: it has ended, or printed nothing for this time; then it is stopped.
        """
        line = self._line(time.monotonic() + patience_s, f"printed nothing for {patience_s:.0f} s")
        if not line:
            raise ChildError(self.why_ended())
        return line.rstrip("\n")

    def output(self, patience_s: float) -> str:
        """Close the child's input and return all that it prints until it ends.

        Raises:
            ChildError: it failed, or did not end in this time; then it is stopped.
        """
        assert self._process.stdin, "a pipe"
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        until = time.monotonic() + patience_s
        output = "".join(iter(lambda: self._line(until, f"took more than {patience_s:.0f} s"), ""))
        if self._process.returncode:
            raise ChildError(self.why_ended())
        return output

    def _line(self, until: float, silence: str) -> str:
        """Return the next line with its end, "" if the child has ended.

        Stop it if it takes longer.
        """
        while (left := until - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                if line := self._lines.get(timeout=min(_LOOK_S, left)):
                    return line
                # Its output has ended, which is a moment before it ends itself.
                self.ended(min(_LOOK_S, left))
            if self._process.poll() is not None and self._lines.empty():
                return ""
        self.stop()
        raise ChildError(f"was stopped because it {silence}")

    def ended(self, within_s: float) -> int | None:
        """Wait; return the exit code, None if the child still runs after this time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(within_s)
        return None

    def errors(self) -> list[str]:
        """Return the lines that are not empty of the child's standard error."""
        if self._log.closed:
            return []
        self._log.seek(self._log_begins)
        return [
            line.strip()
            for line in self._log.read().decode(errors="replace").splitlines()
            if line.strip()
        ]

    def why_ended(self) -> str:
        """Return how the child ended: its signal, or its exit code and the last line of its log."""
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return "was killed by SIGKILL, probably because the system ran out of memory"
        if code < 0:
            return f"was killed by {_signal_name(-code)}{self._place_of_crash()}"
        last = self.errors()[-1:]
        return f"ended with exit code {code}: {last[0] if last else 'it printed nothing'}"

    @property
    def has_crashed(self) -> bool:
        """Whether the system ended it because its compiled code did what is not allowed."""
        return -(self.ended(0) or 0) in CRASHES

    def _place_of_crash(self) -> str:
        """Return where the process crashed, and of SIGABRT why.

        The text is empty if the standard library's faulthandler has not printed the calls.

        The place is the innermost call in the child's directory, else the innermost one.
        """
        lines = self.errors()
        crash = next(
            (
                number
                for number, line in enumerate(lines)
                if line.startswith("Fatal Python error: ")
            ),
            None,
        )
        if crash is None:
            return ""
        thread = next(
            (number for number, line in enumerate(lines) if line.startswith("Current thread ")),
            len(lines),
        )
        matches = (
            re.fullmatch(r'File "(.+)", line (\d+) in (.+)', line) for line in lines[thread + 1 :]
        )
        calls = [match.groups() for match in itertools.takewhile(bool, matches) if match]
        own = [
            call
            for call in calls
            if self._directory and Path(call[0]).is_relative_to(self._directory)
        ]
        reason_of_abort = (
            f" ({lines[crash - 1]})"
            if crash and self._process.returncode == -signal.SIGABRT
            else ""
        )
        for path, line, function in (own or calls)[:1]:
            return f"{reason_of_abort} in {function} ({path}:{line})"
        return reason_of_abort

    def stop(self) -> None:
        """End the child and all that it has started."""
        if self._end_s and self._process.poll() is None:
            self._process.terminate()
            self.ended(self._end_s)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if not self._stopped.is_set():
            self._stopped.set()
            _orphans.child_is_stopped()
        if self._listener.is_alive():
            self._listener.join()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _listen(self) -> None:
        """Put the lines of the child's output into the queue, and an empty line at the end.

        The end comes when it ends or is stopped.

        A thread does this, because a child stops at a full pipe: the gate reads its sides one after
        the other, while they measure in lockstep. A process that has left the session of the child
        may keep its output open for ever, so a read must not wait for its end.
        """
        assert self._process.stdout, "a pipe"
        output = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(output, select.POLLIN)
        rest = b""
        while not self._stopped.is_set():
            if not poll.poll(1_000 * _LOOK_S):
                continue
            chunk = os.read(output, 2**16)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._lines.put(line.decode(errors="replace") + "\n")
            if not chunk:
                break
        if rest:
            self._lines.put(rest.decode(errors="replace"))
        self._lines.put("")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal between the first and the last
        return f"signal {number}"


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP while a process starts, and while files are removed.

    A process that is not yet known would not be killed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *_TERMINATION)}
    # Ignored signals stay ignored.
    delayed = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in delayed:
        signal.signal(number, lambda received_number, _: received.append(received_number))
    try:
        yield
    finally:
        for number, handler in delayed.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like SIGINT, so that files are removed and children ended.

    Ignored signals stay ignored, such as SIGHUP in a program that nohup has started.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in terminations()}
    for number in before:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def terminations() -> Sequence[signal.Signals]:
    """Return SIGTERM and SIGHUP, as far as this process does not ignore them."""
    # None: a handler that Python has not set, and cannot set again.
    kept = (signal.SIG_IGN, None)
    return [number for number in _TERMINATION if signal.getsignal(number) not in kept]


def _interrupt(number: int, _: object) -> None:
    leave_closed_terminal(number)
    raise KeyboardInterrupt


def leave_closed_terminal(number: int) -> None:
    """After SIGHUP, discard what is printed to a terminal that was closed: a write would fail."""
    if number != signal.SIGHUP:
        return
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # closed by the caller
            is_device = stat.S_ISCHR(os.fstat(descriptor).st_mode)
            if is_device and not os.isatty(descriptor):
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, descriptor)
                os.close(nothing)
