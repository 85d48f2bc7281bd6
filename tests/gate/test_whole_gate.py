"""Whole gates with real processes.

One that passes, one beside plug-ins that act on each run of pytest, two shards at the same time,
which are judged together, one that finds a slower operation and writes a script of it, one that is
killed.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import forks
import pytest
from gate_builders import GENEROUS
from inner_runs import ADDOPTS
from projects import CONFTEST, git

from mnistbench.core.files import scratch
from mnistbench.gate.samples import raw_samples
from mnistbench.gate.samples.raw_samples import NO_END
from mnistbench.gate.words import BASE, HEAD
from mnistbench.showing.output import EXIT_INCONCLUSIVE, EXIT_PASSED, EXIT_REGRESSED

#: The model of the project, whose layers are as wide as a module of the project says.
MODEL = CONFTEST.replace("import torch\n", "import torch\nfrom width import WIDTH\n", 1).replace(
    "nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))",
    "nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))",
)

#: A test without torch, whose trials take a fraction of a second.
PLAIN = """
import os
import time

from width import WIDTH


def test_work(benchmark):
    with open("pids", "a") as stream:
        print(os.getpid(), file=stream)
    benchmark(lambda: sum(range(WIDTH)))
"""

#: Trials after which a gate is killed.
MIN_TRIALS = 10

#: Longest wait for a process that was started or killed, in seconds.
PATIENCE_S = 60.0


@pytest.fixture
def repository(project, alone):
    """A project with a model of its own and one commit."""
    project.write(".gitignore", "/.benchmarks/\n/tmp/\n__pycache__/\n")
    project.write("conftest.py", MODEL)
    project.write("width.py", "WIDTH = 256\n")
    git(project.path, "init", "--quiet")
    commit(project)
    return project


def commit(repository):
    git(repository.path, "add", "--all")
    git(repository.path, "commit", "--quiet", "--message", "change")


def write_plain_test(repository, text):
    """Replace the project's test and its model, so that nothing imports torch."""
    (repository.path / "conftest.py").unlink()
    repository.write("test_bench.py", text)
    commit(repository)


def gate(repository, *options):
    """Run a gate of the working tree against its commit; no user ever sees a traceback."""
    done = forks.run(
        "mnistbench", "gate", "--base=HEAD", *options, "--", "test_bench.py", cwd=repository.path
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def only_file(repository):
    [path] = (repository.path / ".benchmarks" / "gate").glob("*.jsonl.gz")
    return path


def test_the_same_code_passes(repository):
    write_plain_test(repository, PLAIN)
    done = gate(repository, "--all-cases", "--trials=8", *GENEROUS)
    assert done.returncode == EXIT_PASSED, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("passed: no regression ")
    again = forks.run("mnistbench", "judge", only_file(repository), cwd=repository.path)
    assert (again.returncode, again.stdout) == (EXIT_PASSED, done.stdout)


#: Tests of microseconds, whose data pytest-randomly seeds.
DRAWN = """
import random

import pytest


@pytest.fixture
def numbers():
    return [random.random() for _ in range(100)]


async def test_awaits():
    pass


@pytest.mark.parametrize("function", [sum, sorted, max])
def test_numbers(benchmark, numbers, function):
    benchmark(function, numbers)
"""


@pytest.mark.thorough
def test_the_same_code_passes_beside_plug_ins_that_act_on_each_run(repository, monkeypatch):
    monkeypatch.delenv(ADDOPTS)
    repository.append(
        "pytest.ini",
        "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\ntimeout = 0.1\n",
    )
    write_plain_test(repository, DRAWN)
    done = gate(repository, "--all-cases", "--trials=8", *GENEROUS)
    assert done.returncode == EXIT_PASSED, done.stdout + done.stderr
    trials = raw_samples.load(only_file(repository)).trials
    assert [len(trial.cases) for trial in trials] == [3] * 8
    for trial in trials:
        for [build] in trial.cases.values():
            assert build[BASE].outcome == build[HEAD].outcome


#: Tests of two shards.
FOUR = "\n\n".join(
    f"def test_sum_{number}(benchmark):\n    benchmark(sum, range(100))\n" for number in range(4)
)


def test_two_shards_at_the_same_time_share_their_storage_and_are_judged_as_one_gate(repository):
    write_plain_test(repository, FOUR)
    common = ("--base=HEAD", "--all-cases", "--trials=8", *GENEROUS)
    running = [
        forks.Fork(
            "mnistbench",
            *("gate", *common, f"--shard={number}/2", "--", "test_bench.py"),
            cwd=repository.path,
        )
        for number in (1, 2)
    ]
    written = set()
    for number, shard in enumerate(running, start=1):
        done = shard.wait()
        assert done.returncode == EXIT_PASSED, done.stdout + done.stderr
        assert f"; only shard {number}/2, " in done.stdout.splitlines()[-1]
        [path] = re.findall(r"^raw samples: (.*?); ", done.stderr, re.MULTILINE)
        written.add(repository.path / path)
        [pattern] = re.findall(
            r"judge them with: mnistbench judge (\S+)$", done.stderr, re.MULTILINE
        )
    paths = sorted(repository.path.glob(pattern))
    assert {*paths} == written == {*(repository.path / ".benchmarks" / "gate").iterdir()}
    shards = [raw_samples.load(path) for path in paths]
    tests = {f"test_bench.py::test_sum_{number}" for number in range(4)}
    for recorded in shards:
        assert {*recorded.header.shard.tests} == tests
        assert all({*trial.cases} == {*recorded.header.labels} for trial in recorded.trials)
    measured = [{*recorded.header.labels} for recorded in shards]
    assert (set.union(*measured), set.intersection(*measured)) == (tests, set())
    assert {len(cases) for cases in measured} == {2}

    judged = forks.run("mnistbench", "judge", *paths, cwd=repository.path)
    assert (judged.returncode, judged.stderr) == (EXIT_PASSED, ""), judged.stdout
    assert re.search(r"^measured: 4 cases, ", judged.stdout, re.MULTILINE)
    assert judged.stdout.splitlines()[-1].startswith("passed: no regression ")


def test_cases_that_run_changed_code_are_measured_and_what_no_case_runs_is_named(repository):
    write_plain_test(
        repository,
        "import sizes\n\n\ndef test_small(benchmark):\n    benchmark(sizes.small)\n\n\n"
        "def test_large(benchmark):\n    benchmark(sizes.large)\n",
    )
    functions = "\n\n".join(
        f"def {name}():\n    return {value}\n"
        for name, value in (("small", "1"), ("large", "{}"), ("none", "{}"))
    )
    repository.write("sizes.py", functions.format(2, 3))
    commit(repository)
    repository.write("sizes.py", functions.format("1 + 1", "1 + 2"))
    done = gate(repository, "--trials=8", *GENEROUS)
    assert done.returncode == EXIT_PASSED, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "test_bench.py::test_large: runs sizes.py:large (changed)" in lines
    assert " of the 1 affected case" in lines[-1]
    assert "; 1 case runs the same code on both sides; " in lines[-1]
    assert "1 changed function or name is run or used by no case: sizes.py:none;" in lines[-1]
    required = forks.run(
        "mnistbench",
        "judge",
        "--require-coverage",
        only_file(repository),
        cwd=repository.path,
    )
    assert required.returncode == EXIT_INCONCLUSIVE
    commit(repository)
    nothing = gate(repository, "--trials=8")
    assert nothing.returncode == EXIT_PASSED
    assert nothing.stdout.splitlines()[-1].startswith(
        "passed: nothing was measured; all 2 cases run the same code on both sides; "
    )


def test_a_slower_operation_is_a_regression_with_a_script_that_runs(repository):
    repository.write("width.py", "WIDTH = 16_384\n")
    # After ten trials four fresh ones suffice, because nothing is near the limits.
    done = gate(repository, "--trials=10", *GENEROUS)
    assert done.returncode == EXIT_REGRESSED, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("regressed: ")
    assert re.search(r"^regressed: .*aten::addmm, forward", done.stdout, re.MULTILINE)
    script = next((repository.path / ".benchmarks").rglob("*addmm*.py"))
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert re.match(r"[\d.,]+ (ns|us|ms|s)\n", ran.stdout)


def lives(process_id):
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_gate_that_is_killed_leaves_no_side_and_samples_that_can_be_judged(repository, tmp_path):
    write_plain_test(repository, PLAIN.replace('"pids"', repr(str(tmp_path / "pids"))))
    command = [sys.executable, "-m", "mnistbench", "gate", "--base=HEAD", "--trials=100"]
    command.append("--all-cases")
    with subprocess.Popen(
        [*command, "--", "test_bench.py"],
        cwd=repository.path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        for line in running.stderr:  # the second line of 100 trials comes after 10
            number = re.match(r"trial (\d+) of 100", line)
            if number and int(number[1]) >= MIN_TRIALS:
                break
        os.kill(running.pid, signal.SIGKILL)
    sides = {int(line) for line in (tmp_path / "pids").read_text().split()}
    assert len(sides) >= 2
    wait_until(lambda: not any(map(lives, sides)))

    judged = forks.run("mnistbench", "judge", only_file(repository), cwd=repository.path)
    assert (judged.returncode, judged.stderr) == (EXIT_INCONCLUSIVE, "")
    assert judged.stdout.splitlines()[-1].startswith(f"inconclusive: {NO_END.cut_short}")
    measured = re.search(r"^measured: 1 case, (\d+) trials", judged.stdout, re.MULTILINE)
    assert int(measured[1]) >= MIN_TRIALS


#: A benchmark that starts a daemon and never ends.
ENDLESS = """
import os
import signal
import subprocess


def test_work(benchmark):
    daemon = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open("pids", "a") as stream:
        print(daemon.pid, os.getpid(), file=stream)
    benchmark(signal.pause)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_gate_that_is_ended_ends_sides_that_would_run_for_ever(
    repository, tmp_path_factory, monkeypatch, number
):
    pids = tmp_path_factory.mktemp("noted") / "pids"
    temporary = tmp_path_factory.mktemp("temporary")
    write_plain_test(repository, ENDLESS.replace('"pids"', repr(str(pids))))
    command = [sys.executable, "-m", "mnistbench", "gate", "--base=HEAD", "--all-cases"]
    with subprocess.Popen(
        [*command, "--", "test_bench.py"],
        cwd=repository.path,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            wait_until(lambda: running.poll() or (pids.exists() and pids.read_text()[-1:] == "\n"))
        finally:
            running.send_signal(number)
        errors = running.stderr.read()
    noted = [int(number) for number in pids.read_text().split()]
    daemons = noted[::2]
    sides = noted[1::2]
    wait_until(lambda: not any(map(lives, sides)))
    if number == signal.SIGKILL:  # the next gate ends the others and removes the copies
        assert all(map(lives, daemons))
        assert sorted(path.suffix for path in temporary.iterdir()) == ["", ".lock"]
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        with scratch("gate"):
            pass
        wait_until(lambda: not any(map(lives, daemons)))
        assert list(temporary.iterdir()) == []
        return
    assert not any(map(lives, daemons))
    assert running.returncode == EXIT_INCONCLUSIVE
    assert errors.splitlines()[-1] == "mnistbench: interrupted"
    assert list(temporary.iterdir()) == []


#: A compiled function, whose file has the line that breaks its graph in the head.
COMPILED = """
import torch


def work(x):
    y = torch.nn.functional.gelu(x * 2)
    return y.sum()


compiled = torch.compile(work)
"""

COMPILED_TEST = """
import torch
from width import compiled


def test_compiled(benchmark):
    x = torch.ones(1000)
    benchmark(compiled, x)
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler")
@pytest.mark.thorough
def test_a_new_graph_break_is_named_with_its_line(repository):
    repository.write("width.py", COMPILED)
    write_plain_test(repository, COMPILED_TEST)
    repository.write(
        "width.py",
        COMPILED.replace(
            "    return y.sum()",
            "    if y.sum().item() < 0:\n        y = y * 2\n    return y.sum()",
        ),
    )
    done = gate(repository, "--trials=8", *GENEROUS)
    assert done.returncode in (EXIT_PASSED, EXIT_REGRESSED), done.stdout + done.stderr
    exact = done.stdout.partition("Exact differences:\n")[2].splitlines()
    assert exact[0].startswith("test_bench.py::test_compiled: new graph break at width.py:7 (")
    assert "is compiled by torch.compile" not in done.stdout  # it was followed
    assert "runs width.py:work (changed)" in done.stdout
    assert not re.search(r"[a-z0-9]{40}", done.stdout.partition("Exact differences:")[2])


@pytest.mark.thorough
def test_a_slower_compilation_is_judged(repository):
    """Dynamo unrolls the loop; the backend compiles nothing."""
    traced = COMPILED.replace("compile(work)", 'compile(work, backend="eager")')
    repository.write("width.py", traced)
    write_plain_test(repository, COMPILED_TEST)
    loop = "    for _ in range(300):\n        y = y + 1\n    return y.sum()"
    repository.write("width.py", traced.replace("    return y.sum()", loop))
    done = gate(repository, "--trials=8", "--threshold=9900%", "--op-threshold=9900%")
    assert done.returncode == EXIT_REGRESSED, done.stdout + done.stderr
    assert re.search(
        r"^regressed: first call with empty cache \(test_bench.py::test_compiled\), \+\d",
        done.stdout,
        re.MULTILINE,
    )
    assert "was compiled with an empty cache" not in done.stdout
