"""Running a script on both sides.

Turns of two processes, what a trial gives, and what is said of it.
"""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time

import pytest
import reproducer_builders as builders
import scipy.stats

from mnistbench.core.child import ChildError
from mnistbench.core.errors import MnistbenchError
from mnistbench.showing.progress import Progress
from mnistbench.suite.reproducers.run import LEVEL, measure, overall, sentence

HERE = {"base": sys.executable, "head": sys.executable}

#: A stand-in for a script: appends its side to a file, and prints what its body says for each line
#: of input.
PROGRAM = """
import json, os, sys
side = sys.argv[1]
assert sys.argv[2:] == ["--turns"]
for number, _ in enumerate(sys.stdin):
    with open("log", "a") as log:
        log.write(side + " ")
    print("12 us")
{body}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a stand-in; return the change of each trial."""
    monkeypatch.chdir(tmp_path)

    def measured(body, *, pythons=HERE, of_head=(), origin=None, **changes):
        path = tmp_path / "x.py"
        path.write_text(PROGRAM.format(body=textwrap.indent(body, "    ")))
        variables = {"base": {}, "head": dict(of_head)}
        options = {"trials": 2, "pairs": 4, "seed": 1, "progress": Progress(None), **changes}
        return measure(path, origin or builders.header(), pythons, variables, **options)

    return measured


def seconds(base, head):
    return f'print(json.dumps({{"seconds": {base} if side == "base" else {head}}}), flush=True)'


def test_the_change_is_that_of_the_head(run):
    assert run(seconds(0.001, 0.0012)) == pytest.approx([0.2, 0.2])


def test_the_sides_take_turns_and_the_first_measurement_does_not_count(run, tmp_path):
    assert run(seconds("1.0 if number == 0 else 0.1", 0.1), trials=1) == [0]
    log = (tmp_path / "log").read_text().split()
    assert sorted(log) == ["base"] * 5 + ["head"] * 5
    pairs = [tuple(log[start : start + 2]) for start in range(0, 10, 2)]
    assert all(set(pair) == {"base", "head"} for pair in pairs)
    assert pairs[2] == pairs[1][::-1]
    assert pairs[4] == pairs[3][::-1]


def test_a_disturbed_pair_and_a_disturbed_trial_do_not_count(run):
    assert overall(run(seconds(0.1, "0.5 if number == 2 else 0.11"), pairs=5)) == pytest.approx(0.1)
    assert overall([0.1, 0.1, 5.0]) == pytest.approx(0.1)


def test_both_processes_have_one_core_and_this_process_keeps_its_own(run):
    before = os.sched_getaffinity(0)
    run(f"assert len(os.sched_getaffinity(0)) == 1\n{seconds(1.0, 1.0)}", trials=1)
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_two_trials_run_at_the_same_time_on_different_cores(run, tmp_path):
    body = 'open(f"cores-{os.getpid()}", "w").write(str(os.sched_getaffinity(0)))\n' + seconds(
        1.0, 1.0
    )
    assert len(run(body, trials=3)) == 3
    cores = [
        path.read_text()
        for path in sorted(tmp_path.glob("cores-*"), key=lambda path: int(path.name[6:]))
    ]
    assert len(cores) == 6
    assert {cores.count(core) for core in cores[:4]} <= {2, 4}
    assert len(set(cores[:4])) == 2


def test_each_side_has_its_variables_and_pinned_thresholds(run):
    """Variables of the command line come before those of the gate."""
    body = 'assert "MALLOC_TRIM_THRESHOLD_" in os.environ\n'
    body += seconds(
        'float(os.environ["OF_GATE"])', 'float(os.environ["OWN"]) * float(os.environ["OF_GATE"])'
    )
    origin = builders.header(
        variables={"base": {"OF_GATE": "1"}, "head": {"OWN": "2", "OF_GATE": "1"}}
    )
    assert overall(run(body, of_head={"OWN": "7"}, origin=origin)) == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            'raise ValueError("boom")',
            r"^(base|head): the script ended with exit code 1: ValueError: boom$",
        ),
        ('print("{", flush=True)', r"the script printed '\{' instead of its seconds$"),
        ('print("{}", flush=True)', r"the script printed '\{\}' instead of its seconds$"),
        (
            "print('{\"seconds\": 0}', flush=True)",
            r"the script measured 0.0 s; its operation may not have run$",
        ),
        (
            "print('{\"seconds\": NaN}', flush=True)",
            r"the script measured nan s; its operation may not have run$",
        ),
    ],
)
def test_a_script_that_fails_is_one_line(run, body, message):
    with pytest.raises(MnistbenchError, match=message):
        run(body)


def test_an_interruption_ends_the_scripts_that_run(run, tmp_path):
    # A process in the background of a script ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    body = (
        "import signal, time\nopen('pid', 'w').write(str(os.getpid()))\nos.kill(os.getppid(), "
        "signal.SIGINT)\ntime.sleep(60)"
    )
    try:
        with pytest.raises(KeyboardInterrupt):
            run(body, trials=1)
    finally:
        signal.signal(signal.SIGINT, before)
    # Otherwise its thread would delay the end of this process.
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_interpreter_that_cannot_be_started_is_named(run):
    with pytest.raises(
        MnistbenchError, match=r"^base: /nowhere: cannot be started .*; name a Python interpreter$"
    ):
        run(seconds(1.0, 1.0), pythons={**HERE, "base": "/nowhere"})


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("failing_trial", [0, 1])
def test_a_failed_trial_stops_the_processes_of_the_other(run, monkeypatch, failing_trial):
    """Also one that is being started."""
    running = []
    stopped = threading.Event()

    class SlowChild:
        """Stands in for a process that takes a while to start and then measures until the end."""

        def __init__(self, command, environ):
            if threading.current_thread().name.endswith(f"_{failing_trial}"):
                raise ChildError("cannot be started")
            time.sleep(0.2)
            running.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            running.remove(self)
            stopped.set()

        def tell(self, line):
            pass

        def next_line(self, timeout_s):
            assert stopped.wait(60), "the failure of another trial stops it"
            raise ChildError("was stopped")

    monkeypatch.setattr("mnistbench.suite.reproducers.run.Child", SlowChild)
    with pytest.raises(MnistbenchError, match="cannot be started"):
        run("")
    assert running == []


HIDDEN = "; the cause is in its surroundings (layout of its input, allocator, cache)"
REST = "; the rest needs the program around the operation (layout of its input, allocator, cache)"
LARGER = "; the surroundings hide a part of it (cache, other operations of the program)"


@pytest.mark.parametrize(
    ("change", "low", "high", "expected"),
    [
        (0.12, 0.05, 0.15, "reproduced: +12.0 % (the gate: +11.1 %, +5.0 % to +15.0 %)"),
        (0.199, 0.05, 0.15, "reproduced: +19.9 % (the gate: +11.1 %, +5.0 % to +15.0 %)"),
        (0.03, 0.05, 0.15, "reproduced: +3.0 % (the gate: +11.1 %, +5.0 % to +15.0 %)"),
        (
            0.02,
            0.05,
            0.15,
            f"does not show by itself: +2.0 % (the gate: +11.1 %, +5.0 % to +15.0 %){HIDDEN}",
        ),
        (
            -0.01,
            0.02,
            0.15,
            f"does not show by itself: -1.0 % (the gate: +11.1 %, +2.0 % to +15.0 %){HIDDEN}",
        ),
        (
            0.03,
            0.1,
            0.15,
            f"does not show by itself: +3.0 % (the gate: +11.1 %, +10.0 % to +15.0 %){HIDDEN}",
        ),
        (
            0.06,
            0.12,
            0.15,
            f"smaller by itself: +6.0 % (the gate: +11.1 %, +12.0 % to +15.0 %){REST}",
        ),
        (
            6.846,
            6.954,
            8.413,
            f"smaller by itself: +684.6 % (the gate: +11.1 %, +695.4 % to +841.3 %){REST}",
        ),
        (
            -0.04,
            -0.4,
            1.5,
            f"does not show by itself: -4.0 % (the gate: +11.1 %, -40.0 % to +150.0 %){HIDDEN}",
        ),
        (
            0.25,
            0.05,
            0.15,
            f"larger by itself: +25.0 % (the gate: +11.1 %, +5.0 % to +15.0 %){LARGER}",
        ),
    ],
)
def test_the_change_is_compared_with_that_of_the_gate(change, low, high, expected):
    assert sentence([change] * 10, builders.header(low=low, high=high)) == expected


@pytest.mark.parametrize("change", [-0.01, 0.06, 0.3])
def test_a_script_that_makes_few_of_the_calls_says_so(change):
    few, most = (
        sentence([change] * 10, builders.header(low=0.12, high=0.15, made_share=share))
        for share in (0.163, 0.6)
    )
    assert few.endswith("; the script makes only the largest calls, with 16.3 % of the time")
    assert few.partition(";")[0] == most.partition(";")[0]
    assert most.endswith(("cache)", "program)"))


@pytest.mark.parametrize("slower", range(1, 11))
def test_a_change_is_reproduced_if_a_sign_test_over_the_trials_shows_it(slower):
    changes = [0.1] * slower + [-1e-4] * (10 - slower)
    text = sentence(changes, builders.header(low=-0.001, high=0.15, change=0.05))
    assert text.startswith("reproduced: ") == (
        scipy.stats.binomtest(slower, 10, alternative="greater").pvalue <= LEVEL
    )
    if slower == 7:
        assert text.endswith("; the head is slower in 7 of 10 trials; give more --trials")


@pytest.mark.parametrize(
    ("change", "is_shown"),
    [
        (0.013, True),
        (0.0116, True),
        (0.0114, False),
        (0.0144, True),
        (0.0146, False),
        (-0.001, False),
    ],
)
def test_a_share_of_the_case_is_compared_with_the_width_of_its_own_change(change, is_shown):
    origin = builders.header(change=0.012, low=0.0121, high=0.0139, case_ns=1e8)
    text = sentence([change] * 10, origin)
    assert text.startswith("reproduced: ") == is_shown
    assert " of the case (the gate: +1.2 %, +1.2 % to +1.4 %)" in text


def test_the_change_of_calls_that_only_the_head_makes_is_a_share_of_the_case(run):
    assert run(seconds(1e-7, 0.02), origin=builders.header(case_ns=1e9)) == pytest.approx(
        [0.02, 0.02], rel=1e-3
    )
