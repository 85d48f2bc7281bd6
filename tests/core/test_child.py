"""Child processes, with small programs.

Lines, reasons of an end, signals and processes that they have started.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mnistbench import core
from mnistbench.core.child import (
    JOB_VARIABLES,
    Child,
    ChildError,
    measuring_environment,
    terminable,
    uninterrupted,
)


def child(program, **more):
    return Child([sys.executable, "-c", program], {"PATH": os.environ["PATH"]}, **more)


def test_a_child_answers_line_by_line():
    with child("for line in iter(input, 'end'): print(line.upper(), flush=True)") as echo:
        for word in ("one", "two"):
            echo.tell(word)
            assert echo.next_line(30) == word.upper()


def test_all_output_is_returned():
    with child("import sys; print(sys.stdin.read() + 'a'); print('b')") as process:
        assert process.output(30) == "a\nb\n"


@pytest.mark.parametrize(
    ("wait", "program", "reason"),
    [
        (
            Child.next_line,
            "import sys; print('a\\n\\n b \\n', file=sys.stderr); sys.exit(3)",
            "ended with exit code 3: b",
        ),
        (Child.next_line, "import os; os.kill(os.getpid(), 15)", "was killed by SIGTERM"),
        (Child.output, "raise SystemExit(4)", "ended with exit code 4: it printed nothing"),
        (Child.next_line, "import os; os.kill(os.getpid(), 35)", "was killed by signal 35"),
        (
            Child.output,
            "import os; os.kill(os.getpid(), 9)",
            "was killed by SIGKILL, probably because the system ran out of memory",
        ),
    ],
)
def test_the_reason_of_a_failure(wait, program, reason):
    with child(program) as process, pytest.raises(ChildError) as error:
        wait(process, 30)
    assert str(error.value) == reason


CRASHING = """
import faulthandler, os, sys, threading

faulthandler.enable()
threading.Thread(target=threading.Event().wait, daemon=True).start()

def crash(number):
    print("free(): invalid pointer", file=sys.stderr, flush=True)
    os.kill(os.getpid(), number)

crash({number})
"""


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGSEGV, "was killed by SIGSEGV in crash (<string>:9)"),
        (signal.SIGABRT, "was killed by SIGABRT (free(): invalid pointer) in crash (<string>:9)"),
        (signal.SIGTERM, "was killed by SIGTERM"),
    ],
)
def test_a_crash_is_named_with_the_call_that_led_to_it(number, reason):
    with child(CRASHING.format(number=int(number))) as process, pytest.raises(ChildError) as error:
        process.next_line(30)
    assert str(error.value) == reason
    assert process.has_crashed == (number != signal.SIGTERM)


def test_a_crash_names_the_innermost_call_in_the_directory_of_the_child(
    tmp_path,
):
    (tmp_path / "own").mkdir()
    (tmp_path / "library.py").write_text(
        "import os\n\ndef crash():\n    os.kill(os.getpid(), 11)\n"
    )
    (tmp_path / "own" / "caller.py").write_text(
        "import library\n\ndef call():\n    library.crash()\n"
    )
    program = (
        "import faulthandler, sys; faulthandler.enable(); sys.path[:0] = sys.argv[1:]; import "
        "caller; caller.call()"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(tmp_path / "own")]
    process = Child(command, dict(os.environ), directory=tmp_path / "own")
    with process, pytest.raises(ChildError) as error:
        process.next_line(30)
    assert str(error.value) == f"was killed by SIGSEGV in call ({tmp_path}/own/caller.py:4)"


@pytest.mark.parametrize(
    ("wait", "reason"),
    [
        (Child.next_line, "was stopped because it printed nothing for 0 s"),
        (Child.output, "was stopped because it took more than 0 s"),
    ],
)
def test_a_child_that_takes_too_long_is_stopped(wait, reason):
    with child("import time; time.sleep(60)") as process:
        with pytest.raises(ChildError) as error:
            wait(process, 0.2)
        assert str(error.value) == reason
        assert process.ended(0) == -signal.SIGKILL


def test_a_child_whose_output_nobody_reads_does_not_stop_at_a_full_pipe():
    with child("for _ in range(20_000): print(100 * 'x')") as talkative:
        assert talkative.ended(30) == 0
        assert len(talkative.output(30)) == 20_000 * 101


def test_a_program_that_does_not_exist_cannot_be_started(tmp_path):
    with pytest.raises(
        ChildError, match=r"nowhere: cannot be started \(No such file or directory\)"
    ):
        Child([str(tmp_path / "nowhere")], {})


def test_the_log_is_appended_to_and_the_reason_is_that_of_this_child(tmp_path):
    (tmp_path / "log").write_text("before\n")
    with (
        child("raise SystemExit(1)", log=tmp_path / "log") as process,
        pytest.raises(ChildError, match="it printed nothing"),
    ):
        process.next_line(30)
    with (
        child("raise SystemExit('after')", log=tmp_path / "log") as process,
        pytest.raises(ChildError, match="after"),
    ):
        process.next_line(30)
    assert (tmp_path / "log").read_text() == "before\nafter\n"


def test_processes_that_it_has_started_end_with_it():
    program = (
        "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); input()"
    )
    with child(program) as process:
        grandchild = int(process.next_line(30))
        os.kill(grandchild, 0)
    for _ in range(100):  # init has to read its exit code
        try:
            os.kill(grandchild, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{grandchild}/stat").read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("it still runs")


def daemons(path):
    """A program that leaves two processes, which hold a lock on a file and its output open.

    One has a session of its own. The other one does not belong to a descendant either.
    """
    return f"""
import fcntl, os, subprocess
held = open({str(path)!r}, "a")
fcntl.flock(held, fcntl.LOCK_SH)
command = ["sleep", "60"]
subprocess.Popen(command, start_new_session=True, pass_fds=[held.fileno()])
if not os.fork():
    os.setsid()
    subprocess.Popen(command, pass_fds=[held.fileno()])
    os._exit(0)
os.wait()
print("left", flush=True)
input()
"""


def is_held(path):
    """Whether a process holds the lock on a file."""
    with path.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")


@on_linux
@pytest.mark.parametrize("ends", ["by itself", "when it is stopped"])
def test_daemons_end_when_their_child_is_stopped(tmp_path, ends):
    with child(daemons(tmp_path / "held")) as process:
        assert process.next_line(30) == "left"
        if ends == "by itself":
            process.tell("")
            assert process.ended(30) == 0
        assert is_held(tmp_path / "held")
    assert not is_held(tmp_path / "held")


@on_linux
def test_daemons_stay_while_another_child_runs(tmp_path):
    with child("input()"):
        with child(daemons(tmp_path / "held")) as process:
            assert process.next_line(30) == "left"
        assert is_held(tmp_path / "held")
        process.stop()  # a second time
        assert is_held(tmp_path / "held")
    assert not is_held(tmp_path / "held")


@on_linux
def test_processes_that_children_have_not_left_stay():
    popen = subprocess.Popen
    with popen(["sleep", "60"], start_new_session=True) as earlier:
        with child("input()"), popen(["sleep", "60"]) as own:
            pass_by = child("pass")
            pass_by.stop()
            assert (earlier.poll(), own.poll()) == (None, None)
            own.kill()
        assert earlier.poll() is None
        earlier.kill()


def test_a_daemon_that_keeps_the_output_of_a_child_open_does_not_delay_its_stop(monkeypatch):
    """The daemon writes no line: a read of the pipe would wait for its end."""
    monkeypatch.setattr(core.child, "adopt_orphans", lambda _: None)  # a system without it
    program = (
        "import subprocess; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid, "
        "flush=True)"
    )
    process = child(program)
    daemon = int(process.next_line(30))
    try:
        assert process.ended(30) == 0
        process.stop()
        os.kill(daemon, 0)
    finally:
        os.kill(daemon, signal.SIGKILL)


@pytest.mark.parametrize(("end_s", "code"), [(30.0, 7), (0.0, -signal.SIGKILL)])
def test_a_child_that_ends_its_own_children_is_asked_first(end_s, code):
    program = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('ready', "
        "flush=True); time.sleep(60)"
    )
    process = child(program, end_s=end_s)
    process.next_line(30)
    process.stop()
    assert process.ended(0) == code


def test_ctrl_c_while_a_child_starts_stops_it(monkeypatch):
    started = []
    popen = subprocess.Popen

    def interrupted(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)
        started.append(popen(*args, **kwargs))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        child("import time; time.sleep(60)")
    assert started[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("number", "handler"),
    [
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.default_int_handler),
        (signal.SIGHUP, signal.default_int_handler),
        (signal.SIGINT, signal.SIG_IGN),
    ],
)
def test_an_interrupt_while_a_process_starts_waits_until_it_can_be_stopped(number, handler):
    started = []
    before = signal.signal(number, handler)
    try:
        with (
            contextlib.nullcontext()
            if handler == signal.SIG_IGN
            else pytest.raises(KeyboardInterrupt),
            uninterrupted(),
        ):
            signal.raise_signal(number)
            started.append("process")
        assert (started, signal.getsignal(number)) == (["process"], handler)
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_is_an_interrupt_unless_it_is_ignored(number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), terminable():
        signal.raise_signal(number)
    assert signal.getsignal(number) == before
    signal.signal(number, signal.SIG_IGN)  # as nohup does
    try:
        with terminable():
            signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_a_closed_terminal_does_not_prevent_the_end():
    """A shell passes SIGHUP on; then each write to the terminal fails."""
    program = """
import os, sys
from mnistbench.core.child import terminable

try:
    with terminable():
        print("ready", flush=True)
        input()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    print("interrupted", file=sys.stderr, flush=True)
    os.write({written}, b"after")
"""
    input_end, answers = os.pipe()
    output, written = os.pipe()
    terminal, other_end = os.openpty()
    command = [sys.executable, "-c", program.format(written=written)]
    with subprocess.Popen(
        command, stdin=input_end, stdout=other_end, stderr=other_end, pass_fds=[written]
    ) as process:
        for descriptor in (input_end, other_end, written):
            os.close(descriptor)
        assert os.read(terminal, 5) == b"ready"
        os.close(terminal)
        process.send_signal(signal.SIGHUP)
        assert os.read(output, 5) == b"after"
    for descriptor in (answers, output):
        os.close(descriptor)
    assert process.returncode == 0


# ---- Variables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("service", JOB_VARIABLES)
def test_variables_by_which_code_acts_for_its_job_are_not_passed_on(tmp_path, service):
    for_the_job = {
        name.replace("*", "_X"): "secret" for names in JOB_VARIABLES.values() for name in names
    }
    others = {"DATA_DIR": "/data", "CI": "true", "GITHUB_SHA": "1", "MY_TOKEN": "mine"}
    environ = {**others, **for_the_job}
    # As on a developer's machine, where GITHUB_TOKEN and BASH_ENV are variables as any other.
    assert measuring_environment(environ, tmp_path).items() >= environ.items()
    passed_on = measuring_environment({**environ, service: "true"}, tmp_path)
    assert passed_on.items() >= {**others, service: "true"}.items()
    dropped = for_the_job.keys() - passed_on.keys()
    assert dropped == {name.replace("*", "_X") for name in JOB_VARIABLES[service]}
