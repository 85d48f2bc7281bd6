"""``mnistbench lab score``.

Honest steps and cheats in real processes, and what the command does with results.

One process of the reference takes turns with all of them. Steps share a process, too, unless they
spoil it.
"""

import os
import random
import re
import select
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders import environment
from lab_builders import laptop
from score_builders import score

from mnistbench import cli
from mnistbench.core.child import measuring_environment
from mnistbench.core.errors import UsageError
from mnistbench.course.classroom import score_command
from mnistbench.course.classroom.score import (
    FLOPS,
    IDLE_SHARE,
    REFERENCE_STEP,
    RefusedError,
    read_score,
)
from mnistbench.course.classroom.score_command import (
    REFERENCE,
    STUDENT,
    WORKER,
    ScoredSide,
    Settings,
    time_trial,
)
from mnistbench.course.lab.lab_file import FILE, SCORE, stored, write_file

pytestmark = pytest.mark.usefixtures("torch")

PAGE = Path(__file__).parents[3] / "docs" / "lab.md"

HONEST = """
import os, threading, time
from unittest.mock import patch
import torch
from torch.nn import functional

patch.stopall()  # what the step before has changed in the process

def make_step(model):
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    def step(images, targets):
        optimizer.zero_grad()
        loss = functional.nll_loss(model(images), targets)
        loss.backward()
        optimizer.step()
        return loss
    return step

honest = make_step
"""

#: What is wrong with a step -> its code after that of an honest one, and why it gets no score.
STEPS = {
    "cached": (
        """
def make_step(model):
    step, kept = honest(model), []
    def cached(images, targets):
        kept[:] = kept or [step(images, targets)]
        return kept[0]
    return cached
""",
        "differ",
    ),
    "unfinished": (
        """
def make_step(model):
    step, left = honest(model), []
    def unfinished(images, targets):
        if left:
            step(*left.pop())
        left.append((images, targets))
        return functional.nll_loss(model(images), targets)
    return unfinished
""",
        "in 1 steps differs from the reference's by 100.0 %",
    ),
    "finished by a thread": (
        """
def make_step(model):
    step = honest(model)
    def unfinished(images, targets):
        threading.Timer(60, step, (images, targets)).start()
        return functional.nll_loss(model(images), targets)
    return unfinished
""",
        "in 1 steps differs from the reference's by 100.0 %",
    ),
    "half of the batch": (
        (
            "make_step = lambda model: lambda images, targets: honest(model)(images[::2], "
            "targets[::2])"
        ),
        "differ",
    ),
    "a less precise format": (
        """
def make_step(model):
    step = honest(model)
    def less_precise(images, targets):
        with torch.autocast("cpu", torch.bfloat16):
            return step(images, targets)
    return less_precise
""",
        "differ",
    ),
    "no loss": (
        "make_step = lambda model: lambda images, targets: None",
        "step.py: the step returned None, not its loss",
    ),
    "an error": (
        "\n\ndef make_step(model):\n    return 1 / 0",
        f"step.py:{HONEST.count(chr(10)) + 4}: ZeroDivisionError: division by zero",
    ),
    "no function": (
        "del make_step",
        "step.py: the file has no function make_step(model)",
    ),
    "no step": (
        "make_step = lambda model: None",
        "step.py: make_step returned None, not a function",
    ),
    "no Python": (
        "def make_step(",
        f"step.py:{HONEST.count(chr(10)) + 1}: SyntaxError: '(' was never closed",
    ),
    "equal inputs": ("patch('torch.rand', lambda *_, **__: 1.0).start()", "differ"),
    "a made-up loss": (
        "patch('torch.Tensor.item', lambda self: 0.0).start()",
        "the loss of step",
    ),
}

#: What spoils the process: the lines of the next answers, which are those of ``main`` itself.
ANSWERED_IN_ADVANCE = """
for number in range(3, 20):
    try:
        os.write(number, b'{"value": 1}' + os.linesep.encode())
    except OSError:
        pass
"""

#: What a process does instead of answering -> why there is no score.
SILENT = {
    "an end": ("import os; os._exit(0)", "the process of the step ended with exit code 0"),
    "a wait": ("import time; time.sleep(1e6)", "was stopped because it printed nothing for 1 s"),
}


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    return measuring_environment(os.environ, tmp_path_factory.mktemp("bytecode"))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return str(tmp_path_factory.mktemp("weights") / "reference.pt")


@contextmanager
def side(environ, text):
    """A process that runs the text of a file."""
    with ScoredSide(WORKER, environ) as process:
        yield loaded(process, text)


def loaded(side_process, text, size=16):
    """Run the text of a file in a process, on the core that all share."""
    core = min(score_command.own_cores(), default=None)
    side_process.ask(Any, "load", core=core, batch_size=size, text=text, file="step.py")
    return side_process


@pytest.fixture(scope="module")
def reference(environ, weights):
    with side(environ, REFERENCE_STEP) as process:
        process.ask(Any, "epoch", seed=1, weights=weights)
        yield process


@pytest.fixture(scope="module")
def shared(environ):
    with side(environ, HONEST) as process:
        yield process


#: Starts a process with the text of a file, which it does not wait for.
STARTING = """
import json, os, sys
from mnistbench.course.classroom.score_command import WORKER, ScoredSide

side = ScoredSide(WORKER, os.environ)
side.tell(json.dumps({"do": "load", "core": None, "batch_size": 16, "text": sys.argv[1],
    "file": "step.py"}))
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_a_step_that_never_ends_ends_with_a_command_that_is_killed(environ, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = f"import os\nout = os.open({str(pipe)!r}, os.O_WRONLY)\nos.write(out, b'x')\nwhile 1: 1"
    command = [sys.executable, "-c", STARTING, text]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, env=environ) as running,
        pipe.open("rb", buffering=0) as held,
    ):
        assert held.read(1) == b"x"
        running.kill()
        poll = select.poll()
        poll.register(held, select.POLLHUP)
        assert poll.poll(60_000)


def turns(reference, student, weights, dtype="float32"):
    settings = Settings(file=Path("step.py"), seconds=0.01, batch_size=16, dtype=dtype)
    return time_trial({REFERENCE: reference, STUDENT: student}, weights, random.Random(1), settings)


@pytest.mark.parametrize("name", STEPS)
def test_a_wrong_step_gets_no_score(name, reference, shared, weights):
    code, why = STEPS[name]
    with pytest.raises((RefusedError, UsageError), match=re.escape(why)) as error:
        turns(reference, loaded(shared, HONEST + code), weights)
    assert len(str(error.value).splitlines()) == 1


def test_answers_in_advance_get_no_score(environ, reference, weights):
    with (
        pytest.raises(RefusedError, match="which is no result"),
        side(environ, HONEST + ANSWERED_IN_ADVANCE) as student,
    ):
        turns(reference, student, weights)


@pytest.mark.parametrize("name", SILENT)
def test_a_process_that_does_not_answer_gets_no_score(name, environ, monkeypatch):
    program, why = SILENT[name]
    # The end of a process is noticed at once, whatever the patience.
    monkeypatch.setattr(score_command, "PATIENCE_S", 1.0 if name == "a wait" else 60.0)
    with (
        pytest.raises(UsageError, match=re.escape(why)),
        ScoredSide((sys.executable, "-c", program), environ) as student,
    ):
        loaded(student, HONEST)


def example():
    """Return the step that the page shows."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    [code] = [block for block in blocks if "def make_step(" in block]
    return code


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        (HONEST, "float32"),
        (HONEST + example(), "float32"),
        (HONEST + STEPS["a less precise format"][0], "bfloat16"),
    ],
)
def test_an_honest_step_takes_turns(text, dtype, reference, shared, weights):
    size = 16 if dtype == "float32" else 64  # the errors of bfloat16 are smaller
    measured = turns(
        loaded(reference, REFERENCE_STEP, size), loaded(shared, text, size), weights, dtype
    )
    loaded(reference, REFERENCE_STEP)
    assert len(measured.reference_ns) == len(measured.student_ns) == 3


def test_the_clocks_of_the_student_are_not_used(reference, shared, weights):
    stopped = """
for clock in ("time", "perf_counter", "process_time"):
    patch(f"time.{clock}", lambda: 0).start()
    patch(f"time.{clock}_ns", lambda: 0).start()
"""
    measured = turns(reference, loaded(shared, HONEST + stopped), weights)
    assert (
        min(measured.student_ns) > 1_000_000
    )  # 5 steps of 16 images: no core computes them in 1 ms
    assert measured.cpu_ns is None or measured.cpu_ns[1] > 3_000_000


@pytest.mark.skipif(
    not score_command.own_cores(), reason="the system does not tell the CPU time of another process"
)
def test_a_thread_that_takes_the_time_of_the_reference_is_seen(reference, shared, weights):
    busy = """
import hashlib
patch("hashlib.spins", True, create=True).start()
def spin():
    while hasattr(hashlib, "spins"):
        hashlib.sha256(bytes(2**22))  # without the lock of the interpreter
threading.Thread(target=spin, daemon=True).start()
"""
    measured = turns(reference, loaded(shared, HONEST + busy), weights)
    loaded(shared, HONEST)  # the thread ends
    assert measured.cpu_ns[2] > 2 * IDLE_SHARE * sum(measured.reference_ns)


def test_the_floor_counts_the_operations_of_a_forward_pass():
    import torch

    from mnistbench.suite.profile.counting import layers
    from mnistbench.suite.workloads.workload import ConvNet

    assert sum(layer.flops or 0 for layer in layers(ConvNet(), torch.zeros(1, 1, 28, 28))) == FLOPS


@pytest.mark.thorough
def test_a_whole_score(tmp_path, capsys):
    (tmp_path / "step.py").write_text(example(), encoding="utf-8")
    words = [
        str(tmp_path / "step.py"),
        "-o",
        str(tmp_path),
        "--trials",
        "4",
        "--seconds",
        "0.5",
        "--batch-size",
        "16",
    ]
    assert cli.main(["lab", "score", *words]) == 0, capsys.readouterr().err
    assert read_score(tmp_path / SCORE, None).batch_size == 16


# ---- The command ---------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Replace the measurement and the machine.

    Return the command with a file in an empty directory.
    """

    def command(measure=lambda *_: score()):
        monkeypatch.setattr(score_command, "measure", measure)
        monkeypatch.setattr(
            "mnistbench.suite.measuring.environment.read",
            lambda threads: environment(threads=threads),
        )
        (tmp_path / "step.py").write_text(HONEST, encoding="utf-8")
        return cli.main(
            ["lab", "score", str(tmp_path / "step.py"), "--output", str(tmp_path / "lab")]
        )

    return command


def test_a_score_is_printed_and_written(measured, tmp_path, capsys):
    assert measured() == 0
    path = tmp_path / "lab" / SCORE
    assert capsys.readouterr().out.splitlines() == [score().sentence, str(path)]
    assert read_score(path, environment()) == score()


def test_a_refused_step_has_no_score(measured, tmp_path, capsys):
    def refuse(*_):
        raise RefusedError("its accuracy is low")

    for measure, why in (
        (refuse, "its accuracy is low"),
        (lambda *_: score(accuracies=(0.9, 0.1)), "its accuracy after"),
    ):
        assert measured(measure) == 1
        shown = capsys.readouterr()
        assert shown.err.startswith(f"mnistbench: {tmp_path / 'step.py'}: no score: {why}")
        assert (shown.out, (tmp_path / "lab").exists()) == ("", False)


def test_the_lab_beside_a_score_is_of_the_same_machine(measured, tmp_path, capsys):
    (tmp_path / "lab").mkdir()
    write_file(tmp_path / "lab" / FILE, stored(laptop(environment=environment(threads=4))))
    assert measured() == 0
    write_file(tmp_path / "lab" / FILE, stored(laptop(environment=environment(cpu_count=64))))
    capsys.readouterr()
    assert measured() == 2
    assert (
        "is of another machine (cpu count 64 -> 2); name another directory"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py"], "FILE: nowhere.py is not a file"),
        (
            ["step.py", "--trials", "3"],
            "--trials: '3' cannot be used; give a whole number, 4 to 100",
        ),
        (
            ["step.py", "--dtype", "int8"],
            "--dtype: 'int8' is not known; choose float32 or bfloat16",
        ),
        ([], "mnistbench lab score --help"),
    ],
)
def test_a_mistake_is_one_line(words, message, capsys):
    assert cli.main(["lab", "score", *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_file_that_is_too_large_for_a_step_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("step.py").write_bytes(bytes(256 * 1024 + 1))
    assert cli.main(["lab", "score", "step.py", "-o", "new"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("mnistbench: step.py: has more than 256 KiB, the most that is read of a")


def test_a_command_with_options_may_have_a_subcommand(capsys):
    for words in (["lab", "--help"], ["lab", "score", "--help"]):
        with pytest.raises(SystemExit, match=r"\b0\b"):
            cli.main(words)
        assert capsys.readouterr().out.startswith(f"usage: mnistbench {' '.join(words[:-1])} [-h]")
