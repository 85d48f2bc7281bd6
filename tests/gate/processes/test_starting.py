"""Processes of a trial.

What they are told and run with, how each of their ends is reported, and that none stays.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import fields, replace
from pathlib import Path

import gate_builders
import pytest

from mnistbench.core.child import Child
from mnistbench.core.errors import UsageError
from mnistbench.gate.copies.trees import Tree
from mnistbench.gate.listing import ListedCase, Listing
from mnistbench.gate.processes import starting
from mnistbench.gate.processes.messages import (
    ALL_ITERATIONS,
    Efforts,
    Selection,
    SideResult,
    Surveyed,
)
from mnistbench.gate.processes.sides.stray import Imports
from mnistbench.gate.processes.starting import (
    STAGED,
    GateError,
    Setup,
    TrialPlan,
    TrialResult,
    environment,
    environment_of,
    running_trial,
    shared_places,
    stage_home,
)
from mnistbench.gate.samples.raw_samples import Shard
from mnistbench.gate.survey import side_surveys
from mnistbench.gate.survey.side_surveys import SurveyRequest
from mnistbench.gate.survey.surveying import survey_in_processes
from mnistbench.gate.words import BASE, HEAD

#: What every stand-in for a trial begins with. It holds a lock for as long as it, or what it has
#: started, lives.
PROTOCOL = """
import fcntl, json, os, signal, subprocess, sys, time

job = json.loads(sys.stdin.readline())
name = job["side"]
alive = open(os.path.join(job["home"], f"alive-{name}"), "a")
fcntl.flock(alive, fcntl.LOCK_SH)


def say(**message):
    print(json.dumps(message), flush=True)


def ready(**changes):
    say(ready={"tree": job["tree"], "outside": {}, "files": {}, **changes})


def surveyed(files={}, longest_s=0.01, **changes):
    case = {
        "label": name,
        "params": {"threads": 1},
        "memory": 4,
        "note": "",
        "uncompared": "",
        "parallel": False,
        "parameters": "",
        "sources": [],
        "returns": "",
        "result": "",
        "seconds": 0.1,
        "setup_s": 0.0,
        "look_ns": 0,
        "look_loops": 0.0,
        "peak_bytes": 0,
        "compile_ns": 0,
        "implementations": {},
        "facts": {},
        "outlives": "",
        "op_fail": [],
        "case_fail": "",
    }
    listing = {
        "cases": {"t.py::t": case},
        "packages": {"torch": "2.15.0"},
        "frameworks": {"torch": "2.15.0"},
        "threads": 0,
        "left_out": {},
        "cannot_run": {},
        "unmeasurable": {},
        "failed": {},
        "resident": 8,
        "growth_bytes": 4,
        "loading_s": 0.5,
        "importing_s": 0.25,
        "framework_s": 0.0,
        "loaded_bytes": 4,
        "cpu": {},
        "loaded": [],
        "missing": [],
        **changes,
    }
    imports = {"tree": job["tree"], "outside": {}, "files": {"t": f"{name}.py", **files}}
    followed = {"code": [], "cases": {}, "outside": [], "unfollowed": {}}
    say(
        surveyed={
            "listing": listing,
            "imports": imports,
            "longest_s": longest_s,
            "followed": followed,
        }
    )


def result(**changes):
    said = {
        "side": name,
        "cases": {},
        "spent": {},
        "seconds": 1.5,
        "once": {},
        "unmeasurable": {},
    }
    say(result={**said, **changes})


def spent(seconds):
    return {"seconds": seconds, "efforts": [1.0, 1.0], "timed_s": 0.1, "profiled_s": 0.1}


def result_of_side(sample):
    result(cases={"t": [sample]}, spent={"t": spent(1.0)})


def select():
    if job["selects"]:
        say(selected={"arguments": ["x.py"], "phases": []})


def start_another(**streams):
    program = "import time; time.sleep(60)"
    command = [sys.executable, "-S", "-c", program]
    return subprocess.Popen(command, pass_fds=[alive.fileno()], **streams)


def wait_to_go():
    assert sys.stdin.readline() == "go\\n"
"""


@pytest.fixture
def plan(tmp_path):
    """Both sides by this interpreter."""
    trees = {}
    for name in (BASE, HEAD):
        (tmp_path / name / "project").mkdir(parents=True)
        trees[name] = Tree(tmp_path / name, tmp_path / name / "project", name)
    (tmp_path / "gate").mkdir()
    setup = Setup(
        trees=trees,
        pythons=dict.fromkeys((BASE, HEAD), sys.executable),
        variables={BASE: {}, HEAD: {}},
        home=tmp_path / "gate",
        repository=tmp_path / "repository",
    )
    return TrialPlan(setup, Selection(("bench", "-k", "step"), ("step",)))


#: What the trials here return if they measure no case.
NOTHING = TrialResult(cases={}, seconds=1.5, once={BASE: {}, HEAD: {}}, unmeasurable={}, spent={})


@pytest.fixture
def start(plan, tmp_path, monkeypatch):
    """Start a trial whose process runs this program."""

    def started(program, *, plan=plan, seed=7, only=None, efforts=ALL_ITERATIONS):
        monkeypatch.setattr(starting, "_BOOT", PROTOCOL + program)
        return running_trial(plan, seed, only, tmp_path / "log", efforts=efforts)

    return started


def sides_of(result):
    """What each process sent with ``result_of_side``."""
    [build] = result.cases["t"]
    return build


def nobody_lives(plan):
    """Whether all that held a lock is gone; a killed process needs a moment."""
    deadline = time.monotonic() + 5
    for path in plan.setup.home.glob("alive-*"):
        with path.open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        return False
                    time.sleep(0.01)
    return True


# ---- The stand-in --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "message"),
    [("ready", Imports), ("surveyed", Surveyed), ("result", SideResult)],
    ids=["ready", "surveyed", "result"],
)
def test_a_stand_in_sends_what_a_process_sends(key, message):
    """A process sends the fields of these classes, as ``asdict`` gives them."""
    program = f"{PROTOCOL}\n{key}()"
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps({"side": BASE, "home": home, "tree": "tree"}),
            capture_output=True,
            text=True,
            check=True,
        )
    message_sent = json.loads(done.stdout)[key]
    assert_keys(message_sent, message)
    if key == "surveyed":
        assert_keys(message_sent["imports"], Imports)
        assert_keys(message_sent["listing"], Listing)
        assert_keys(message_sent["listing"]["cases"]["t.py::t"], ListedCase)


def assert_keys(sent, message):
    assert sent.keys() == {field.name for field in fields(message)}


def test_made_up_trials_have_the_keys_of_a_line(tmp_path):
    [trial] = gate_builders.series(count=1)
    assert gate_builders.line(trial).keys() == NOTHING.line(1).keys()


# ---- A trial that does what it should -----------------------------------------------------------


def test_a_trial_is_measured_when_told(start, plan):
    with start("ready()\nwait_to_go()\nresult()") as trial:
        trial.ready()
        assert trial.measure() == NOTHING
    assert nobody_lives(plan)


def test_the_cases_of_one_side_are_counted_while_a_trial_is_measured(start):
    seen = []
    with start(
        "ready()\nwait_to_go()\nfor number in (1, 2, 3):\n    say(case=(number, 3))\nresult()"
    ) as trial:
        trial.ready()
        trial.measure(lambda *numbers: seen.append(numbers))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_sign_of_life_prolongs_the_patience(start, plan):
    plan = replace(plan, limit_s=1.5)
    program = """
ready()
wait_to_go()
for case in range(4):
    time.sleep(0.5)
    say(alive=case)
result()
"""
    with start(program, plan=plan) as trial:
        trial.ready()
        assert trial.measure() == NOTHING


def test_a_process_is_told_all_that_it_needs(start, plan, tmp_path):
    program = """
ready()
wait_to_go()
variables = [os.environ.get("ONLY_BASE"), os.environ.get("MALLOC_TOP_PAD_")]
result_of_side({
    "job": job,
    "cwd": os.getcwd(),
    "home": sys.argv[1],
    "path": sys.path[0],
    "python": sys.orig_argv[0],
    "variables": variables,
})
"""
    (tmp_path / "python").symlink_to(sys.executable)
    pythons = {BASE: str(tmp_path / "python"), HEAD: sys.executable}
    variables = {BASE: {"ONLY_BASE": "a b", "MALLOC_TOP_PAD_": "1"}, HEAD: {}}
    plan = gate_builders.with_setup(plan, pythons=pythons, variables=variables)
    plan = replace(
        plan,
        parallel=frozenset({"t.py::t"}),
        frameworks=("torch",),
        parameters={side: {"t.py::t": side} for side in (BASE, HEAD)},
    )
    efforts = Efforts(0.5, 0.25)
    with start(program, plan=plan, only=["t.py::t"], efforts=efforts) as trial:
        trial.ready()
        sides = sides_of(trial.measure())
    for side, sent in sides.items():
        assert sent["job"].pop("peer") > 0
        assert sent["job"] == {
            "job": "TrialJob",
            "side": side,
            "tree": str(tmp_path / side),
            "directory": str(tmp_path / side / "project"),
            "seed": 7,
            "home": str(plan.setup.home),
            "repository": str(tmp_path / "repository"),
            "arguments": ["bench", "-k", "step"],
            "phases": ["step"],
            "threads": 0,
            "only": ["t.py::t"],
            "gate": os.getpid(),
            "frameworks": ["torch"],
            "parallel": ["t.py::t"],
            "compiled_anew": [],
            "parameters": {"t.py::t": side},
            "touched_bytes": 64 * 2**20,
            "collects_paths": False,
            "in_order": False,
            "efforts": [0.5, 0.25],
            "cores": [],
            "patience_s": 300.0,
        }
        assert sent["cwd"] == str(tmp_path / side / "project")
        assert sent["home"] == str(plan.setup.home)
        assert sent["path"] not in ("", sent["cwd"])
        assert sent["python"] == pythons[side]
        assert sent["variables"] == {BASE: ["a b", "1"], HEAD: [None, None]}[side]


def test_costs_that_occur_once_are_kept_by_side(start):
    program = (
        "ready()\nwait_to_go()\nresult(once={'import': {'all cases': {'base': 5, 'head': "
        "6}[name]}})"
    )
    with start(program) as trial:
        trial.ready()
        assert trial.measure().once == {
            side: {"import": {"all cases": ns}} for side, ns in ((BASE, 5), (HEAD, 6))
        }


def test_what_a_trial_prints_as_an_error_is_in_the_log(start, tmp_path):
    logs = [tmp_path / f"log-{side}" for side in (BASE, HEAD)]
    logs[0].write_text("of the trial before\n")
    with start("print(f'a warning of {name}', file=sys.stderr, flush=True)\nready()") as trial:
        trial.ready()
    assert [log.read_text() for log in logs] == [
        "of the trial before\na warning of base\n",
        "a warning of head\n",
    ]


def test_what_a_start_up_file_prints_is_no_message(start):
    # sitecustomize, or a .pth file: it runs before anything of ours.
    with start("print('welcome')\nprint()\nready()\nwait_to_go()\nresult()") as trial:
        trial.ready()
        assert trial.measure() == NOTHING


# ---- Ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("say(error='base: x')", "base: x"),
        (
            "say(error='base: test_a.py fails: x')",
            (
                "base: test_a.py fails: x; it passed before: if processes share a file, database "
                "or port, name it by tmp_path, or use one core: taskset -c 0"
            ),
        ),
        ("raise ValueError('a reason')", "{at}: ended with exit code 1: ValueError: a reason"),
        (
            # Which keeps the pipe open, as forked workers do.
            "start_another()\nos.kill(os.getpid(), signal.SIGKILL)",
            (
                "{at}: was killed by SIGKILL, probably because the system ran out of memory; "
                "select smaller cases with -- -k"
            ),
        ),
        ("os.kill(os.getpid(), signal.SIGTERM)", "{at}: was killed by SIGTERM"),
        (
            "sys.stdout.write('{\"rea')\nsys.exit(3)",
            "{at}: ended with exit code 3: it printed nothing",
        ),
        (
            "print('{\"rea', flush=True)\ntime.sleep(60)",
            "a trial sent a message that is not JSON: '{\"rea'; measure again",
        ),
    ],
    ids=[
        "error",
        "failed test",
        "exception",
        "killed",
        "ended by another program",
        "torn",
        "torn, and it lives",
    ],
)
@pytest.mark.parametrize("when", ["loading", "measuring"])
def test_a_trial_that_ends_without_a_result_says_why(start, plan, when, program, reason):
    before = "" if when == "loading" else "ready()\nsay(at='t, its calls')\nwait_to_go()\n"
    with start(before + program) as trial, pytest.raises(GateError) as raised:
        gate_builders.run_whole(trial)
    at = "loading" if when == "loading" else "t, its calls"
    assert str(raised.value) in {
        reason,
        *(f"{side}: {reason}".replace("{at}", at) for side in (BASE, HEAD)),
    }
    assert nobody_lives(plan)


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("say(ready={})", "ready.tree: is missing"),
        (
            "ready()\nwait_to_go()\nsay(result={'side': name, 'cases': {}})",
            "result.spent: is missing",
        ),
    ],
)
def test_a_message_that_lacks_something_is_one_line(start, program, fault):
    with start(program) as trial, pytest.raises(GateError) as raised:
        gate_builders.run_whole(trial)
    assert str(raised.value) == f"a trial's message cannot be used: {fault}"


@pytest.mark.parametrize(
    ("at", "advice"),
    [
        ("loading", "in the head, pytest --collect-only prints all Python calls that led to it"),
        (
            "t.py::t[a b], its calls",
            "in the head, pytest 't.py::t[a b]' prints all Python calls that led to it",
        ),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_has_its_signal_and_place_and_no_advice_about_memory(start, number, at, advice):
    file = "os.path.join(job['tree'], 'test_a.py')"
    crash = f"def crash():\n    os.kill(os.getpid(), {int(number)})\ncrash()"
    program = f"""
import faulthandler

faulthandler.enable()
if name == "head":
    say(at={at!r})
    exec(compile({crash!r}, {file}, "exec"))
time.sleep(60)
"""
    with start(program) as trial, pytest.raises(GateError) as raised:
        trial.ready()
    name = signal.Signals(number).name
    assert str(raised.value) == (
        f"head: {at}: was killed by {name} in crash (test_a.py:2); compiled code crashed: {advice}"
    )


SILENT = "was stopped because it printed nothing for 1 s; select smaller cases with -- -k"


@pytest.mark.parametrize(("at", "seed"), [("loading", 1), ("t.py::t, its calls", 2)])
def test_a_side_that_says_nothing_is_ended_and_named(start, plan, at, seed):
    program = f"""
if name == "base":
    time.sleep(0.5)
    say(peer_error="the process of the other side has ended")
else:
    {f"say(at={at!r})" if at != "loading" else "pass"}
time.sleep(60)
"""
    plan = replace(plan, limit_s=1.0)
    with start(program, plan=plan, seed=seed) as trial, pytest.raises(GateError) as raised:
        trial.ready()
    assert str(raised.value) == f"head: {at}: {SILENT}"
    assert nobody_lives(plan)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_no_process_stays_however_the_body_ends(start, plan, error):
    def body():
        with start("ready()\ntime.sleep(60)") as trial:
            trial.ready()
            raise error

    with pytest.raises(error):
        body()
    assert nobody_lives(plan)


@pytest.mark.parametrize(
    "head_cases", ["{}", '{"x": builds + builds}'], ids=["no case", "more builds"]
)
def test_results_that_do_not_match_are_no_trial(start, head_cases):
    # Builds that have no partner would be left out without a word.
    program = f"""
ready()
wait_to_go()
builds = [{{}}]
result(cases={{"x": builds}} if name == "base" else {head_cases})
"""
    with start(program, seed=1) as trial, pytest.raises(GateError) as raised:
        gate_builders.run_whole(trial)
    assert "x: " in str(raised.value)
    assert str(raised.value).endswith("; measure again")


# ---- The survey ----------------------------------------------------------------------------------


@pytest.fixture
def look(plan, tmp_path, monkeypatch):
    """Survey both sides with processes that run this program."""

    request = SurveyRequest(setup=plan.setup, selection=plan.selection, paths=["bench"])

    def looked(program, **changes):
        monkeypatch.setattr(starting, "_BOOT", PROTOCOL + program)
        return survey_in_processes(replace(request, **changes), 7, tmp_path / "log")

    return looked


def test_a_survey_loads_each_side_alone_and_measures_what_the_head_selects(look, plan, tmp_path):
    program = """
select()
surveyed(files={"job": json.dumps(job), "cwd": os.getcwd(), "hash": os.environ["PYTHONHASHSEED"]})
"""
    result = look(program)
    surveys = result.surveys
    assert result.trial_plan().selection == Selection(("x.py",), ())
    files = {side: imports.files for side, imports in surveys.imports.items()}
    jobs = {side: json.loads(files[side]["job"]) for side in (BASE, HEAD)}
    for side in (BASE, HEAD):
        listing = surveys.listings[side]
        assert listing.cases == {"t.py::t": ListedCase(side, {"threads": 1}, memory=4, seconds=0.1)}
        assert (listing.packages, listing.frameworks, listing.resident) == (
            {"torch": "2.15.0"},
            {"torch": "2.15.0"},
            8,
        )
        assert files[side]["cwd"] == str(tmp_path / side / "project")
        assert files[side]["hash"] == "7"
        assert jobs[side]["side"] == side
    assert (jobs[HEAD]["selects"], jobs[HEAD]["paths"]) == (True, ["bench"])
    assert jobs[HEAD]["arguments"] == ["bench", "-k", "step"]
    assert jobs[BASE]["selects"] is False
    assert (jobs[BASE]["arguments"], jobs[BASE]["phases"]) == (["x.py"], [])
    assert nobody_lives(plan)


@pytest.mark.parametrize(
    ("base_s", "head_s", "limit_s"), [(0.01, 0.02, 1.0), (0.1, 0.01, 3.0), (0.1, 0.2, 6.0)]
)
def test_the_limit_of_trials_follows_from_the_longest_step(
    look, monkeypatch, base_s, head_s, limit_s
):
    monkeypatch.setattr(side_surveys, "MIN_SILENCE_S", 1.0)
    result = look(f"select()\nsurveyed(longest_s={base_s} if name == 'base' else {head_s})")
    assert result.trial_plan().limit_s == pytest.approx(limit_s)


def test_a_head_that_hangs_in_the_survey_is_ended_soon_after_the_base(look, plan, monkeypatch):
    monkeypatch.setattr(side_surveys, "MIN_SILENCE_S", 1.0)
    with pytest.raises(GateError) as raised:
        look(
            "select()\nsurveyed() if name == 'base' else say(at='t.py::t, its fixtures')\n"
            "time.sleep(60)"
        )
    assert str(raised.value) == f"head: t.py::t, its fixtures: {SILENT}"
    assert nobody_lives(plan)


@pytest.mark.parametrize(
    ("only", "node_ids"), [((), None), (("t.py::t",), ["t.py::t"])], ids=["all", "one"]
)
def test_a_survey_may_be_of_single_cases(look, only, node_ids):
    surveys = look('select()\nsurveyed(files={"only": json.dumps(job["only"])})', only=only).surveys
    assert [json.loads(surveys.imports[side].files["only"]) for side in (BASE, HEAD)] == [
        node_ids,
        node_ids,
    ]


def test_both_sides_survey_the_tests_of_a_shard(look):
    program = """
select()
say(collected=["t.py::a", "t.py::b", f"t.py::{name}"])
surveyed(files={"own": sys.stdin.readline()})
"""
    tests_of_shard = []
    owned = []
    for number in (1, 2, 3):
        result = look(program, shard=Shard(number, 3))
        shard = result.request.shard
        own = {side: json.loads(result.surveys.imports[side].files["own"]) for side in (BASE, HEAD)}
        assert own[BASE] == own[HEAD] == shard.own()
        tests_of_shard.append(shard.tests)
        owned += own[BASE]
    # A test that one side lacks is not lost.
    assert set(tests_of_shard) == {("t.py::a", "t.py::b", "t.py::base", "t.py::head")}
    assert sorted(owned) == [*tests_of_shard[0]]


@pytest.mark.parametrize(
    ("missing_in_base", "missing_in_head", "message"),
    [
        (["a.py"], [], ""),
        ([], ["a.py"], ""),
        (["a.py", "b.py::t"], ["b.py::t"], "neither side has b.py::t; name files"),
    ],
)
def test_an_argument_that_names_nothing_on_both_sides_is_refused(
    look, missing_in_base, missing_in_head, message
):
    program = (
        f"select()\nsurveyed(missing={missing_in_base} if name == 'base' else {missing_in_head})"
    )
    if not message:
        assert look(program).surveys.listings.base.missing == tuple(missing_in_base)
        return
    with pytest.raises(GateError, match=f"^{message}"):
        look(program)


def test_both_sides_are_loaded_at_the_same_time(look):
    program = """
select()
open(os.path.join(job["home"], name), "w").close()
other = os.path.join(job["home"], "base" if name == "head" else "head")
while not os.path.exists(other):
    time.sleep(0.01)
surveyed()
"""
    assert look(program).surveys.listings.head.cases


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("say(error=f'{name}: no good')", "head: no good"),
        (
            "select()\nsay(error='base: no good') if name == 'base' else surveyed()",
            "base: no good; the head can be loaded",
        ),
        (
            "select()\nsurveyed() if name == 'base' else say(error='head: no good')",
            "head: no good; the base can be loaded",
        ),
        (
            """
select()
if name == "base":
    say(error="base: no good")
else:
    say(at="t.py::t, its fixtures")
    time.sleep(60)
""",
            "base: no good; the head can be loaded",
        ),
        ("select()\nsay(error=f'{name}: no good')", "both sides: no good"),
        ("select()\nsay(error=f'{name}: no {name}')", "base: no base; head: no head"),
        (
            "select()\nsay(error='base: no good') if name == 'base' else sys.exit(3)",
            "base: no good; head: loading: ended with exit code 3: it printed nothing",
        ),
        (
            "select()\nsay(at='t.py::t')\nsay(error=f'{name}: t.py::t fails')",
            "base: t.py::t fails",
        ),
        ("say(selected={})", "a trial's message cannot be used: selected.arguments: is missing"),
        (
            "select()\nsurveyed(cases=[])",
            "a trial's message cannot be used: surveyed.listing.cases: ",
        ),
        (
            "select()\nsys.stdout.write('{\"surv')\nsys.exit(3)",
            "base: loading: ended with exit code 3: it printed nothing",
        ),
    ],
    ids=[
        "head fails before the base begins",
        "base cannot be loaded",
        "head cannot be loaded",
        "base cannot be loaded, head goes on",
        "both for one reason",
        "both for two reasons",
        "base cannot be loaded, head ends",
        "a test fails",
        "nothing selected",
        "no cases",
        "torn",
    ],
)
def test_a_survey_that_fails_is_one_line_and_leaves_no_process(look, plan, program, message):
    with pytest.raises(GateError) as raised:
        look(program)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)
    assert nobody_lives(plan)


def test_an_interrupt_ends_both_processes_of_a_survey(look, plan, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(side_surveys, "check_imports", interrupted)
    with pytest.raises(KeyboardInterrupt):
        look("select()\nsurveyed()\ntime.sleep(60)")
    assert nobody_lives(plan)


# ---- Both sides ----------------------------------------------------------------------------------


def test_a_module_that_is_in_neither_copy_is_refused(start):
    outside = {"path": "/home/me/model.py", "copy": "", "folder": "", "in_repository": True}
    with (
        start(f"ready(outside={{'model': {outside!r}}})") as trial,
        pytest.raises(GateError) as raised,
    ):
        trial.ready()
    assert str(raised.value).startswith(
        "both sides import model from /home/me/model.py, not from their own copies"
    )
    assert "\n" not in str(raised.value)


def test_sides_that_import_a_module_from_two_places_are_measured(start):
    program = """
outside = {"path": f"/home/me/{name}/model.py", "copy": "", "folder": "", "in_repository": False}
ready(outside={"model": outside})
wait_to_go()
result()
"""
    with start(program) as trial:
        trial.ready()
        assert trial.measure() == NOTHING


#: Sends what it measured of its one side, after an exchange with the other process.
HALF = """
import socket

ready()
wait_to_go()
peer = socket.socket(fileno=job["peer"])
peer.sendall(name.encode())
other = peer.recv(10).decode()
builds = [
    {"wall_ns": [number], "peer": other} for number in range(2)
]
seconds = 0.5 if name == "base" else 0.75
result(cases={"t": builds}, spent={"t": spent(seconds)}, seconds=seconds)
"""


def test_sides_have_a_process_each_and_reach_each_other(start, plan):
    for seed in range(2):
        with start(HALF, seed=seed) as trial:
            trial.ready()
            result = trial.measure()
        assert result.cases["t"] == [
            {
                BASE: {"wall_ns": [number], "peer": HEAD},
                HEAD: {"wall_ns": [number], "peer": BASE},
            }
            for number in range(2)
        ]
        # Both at the same time.
        assert (result.seconds, result.spent["t"].seconds) == (0.75, 0.75)
    assert nobody_lives(plan)


def test_the_failure_of_the_other_side_is_not_the_reason(start, plan):
    program = f"""
import socket

ready()
wait_to_go()
if name == {BASE!r}:
    os.kill(os.getpid(), signal.SIGKILL)
assert socket.socket(fileno=job["peer"]).recv(10) == b""
say(peer_error="the process of the other side has ended")
"""
    for seed in range(4):
        with start(program, seed=seed) as trial, pytest.raises(GateError) as raised:
            gate_builders.run_whole(trial)
        assert str(raised.value).startswith("base: loading: was killed by SIGKILL")
    assert nobody_lives(plan)


def test_an_interpreter_that_cannot_be_started_is_named(start, plan):
    missing = gate_builders.with_setup(plan, pythons=dict.fromkeys((BASE, HEAD), "/nowhere/python"))
    with pytest.raises(UsageError) as raised, start("ready()", plan=missing):
        pass
    assert str(raised.value) == (
        "/nowhere/python: cannot be started (No such file or directory); name a Python interpreter"
    )


def test_where_one_side_cannot_be_started_the_other_is_ended(start, plan, monkeypatch):
    started = []

    class NotedChild(Child):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(starting, "Child", NotedChild)
    only_base = gate_builders.with_setup(
        plan, pythons={BASE: sys.executable, HEAD: "/nowhere/python"}
    )
    for seed in range(6):  # which side is started first is drawn
        with pytest.raises(UsageError), start("time.sleep(60)", plan=only_base, seed=seed):
            pass
    assert 0 < len(started) < 6
    assert {child.ended(5) for child in started} == {-signal.SIGKILL}


# ---- What a trial runs with ---------------------------------------------------------------------


def test_the_environment_of_a_trial():
    others = {
        "GIT_DIR": ".git",
        "GIT_WORK_TREE": ".",
        "GIT_INDEX_FILE": ".git/index",
        "CODSPEED_ENV": "1",
        "PYTEST_DEBUG_TEMPROOT": "/mine",
        "GITHUB_ENV": "/runner/env",
    }
    kept = {"HOME": "/home/me", "LD_PRELOAD": "libjemalloc.so", "GIT_AUTHOR_NAME": "me"}
    kept["GITHUB_ACTIONS"] = "true"
    inherited = {"MALLOC_TOP_PAD_": "1", **kept, **others}
    before = dict(inherited)
    variables = environment(inherited, Path("/t/gate"), 2**32 + 3)  # a hash seed has 32 bits
    assert inherited == before
    gates = {"PYTHONHASHSEED": "3", "OMP_NUM_THREADS": "1"}
    assert variables.items() >= {"MALLOC_TOP_PAD_": "1", **kept, **gates}.items()
    assert not variables.keys() & others.keys()
    assert environment({"OMP_NUM_THREADS": "3"}, Path("/t/gate"), 1)["OMP_NUM_THREADS"] == "3"


def test_each_side_finds_the_programs_of_its_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").touch()
    python = str(folder / "bin" / "python")
    monkeypatch.setattr(sys, "executable", python)  # also that of the gate, if it is not active
    tree = Tree(root=tmp_path, directory=tmp_path, what="x")
    setup = Setup(
        trees={BASE: tree, HEAD: tree},
        pythons={BASE: python, HEAD: python},
        variables={BASE: {}, HEAD: {}},
        home=tmp_path / "gate",
        repository=tmp_path / "repository",
    )
    for side in (BASE, HEAD):
        variables = environment_of(setup, side, 0)
        assert variables["PATH"] == f"{folder / 'bin'}:/usr/bin"
        assert variables["VIRTUAL_ENV"] == str(folder)


@pytest.mark.parametrize(("own", "seed"), [("0", "0"), ("42", "42"), ("random", "7"), ("", "7")])
def test_a_hash_seed_of_the_user_holds_in_all_trials(own, seed):
    assert environment({"PYTHONHASHSEED": own}, Path("/t/gate"), 7)["PYTHONHASHSEED"] == seed


def test_compiled_modules_are_kept_for_the_next_trial():
    variables = environment({"PYTHONDONTWRITEBYTECODE": "1"}, Path("/t/gate"), 1)
    assert "PYTHONDONTWRITEBYTECODE" not in variables
    assert variables["PYTHONPYCACHEPREFIX"] == "/t/pycache"
    assert "PYTHONPYCACHEPREFIX" not in environment({}, Path("/t/gate"), 1)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("MNISTBENCH_DATA", "data/mnist", "{here}/data/mnist"),
        ("MNISTBENCH_DATA", "/data/mnist", "/data/mnist"),
        ("MNISTBENCH_DATA", "/data/a:b", "/data/a:b"),
        ("MNISTBENCH_DATA", "", ""),
        ("PYTHONPATH", "src:/opt/lib:lib", "{here}/src:/opt/lib:{here}/lib"),
        ("PYTHONPATH", "/opt/lib:", "/opt/lib:{here}"),
        ("PYTHONPATH", "", ""),
    ],
)
def test_paths_mean_what_they_meant_where_the_gate_was_started(
    tmp_path, monkeypatch, name, value, expected
):
    monkeypatch.chdir(tmp_path)
    assert environment({name: value}, Path("/t/gate"), 1)[name] == expected.format(here=tmp_path)


def test_each_side_has_its_own_paths_of_the_tree_and_temporary_files(start, plan, monkeypatch):
    for root in (plan.setup.repository, *(tree.root for tree in plan.setup.trees.values())):
        (root / "data").mkdir(parents=True)
        (root / "data" / "words.txt").touch()
    (plan.setup.repository / "ignored").mkdir()
    monkeypatch.setenv("DATA_DIR", str(plan.setup.repository / "data"))
    monkeypatch.setenv("IGNORED", str(plan.setup.repository / "ignored"))
    monkeypatch.setenv("PWD", str(plan.setup.repository))
    program = """
import tempfile

ready()
wait_to_go()
names = ("DATA_DIR", "IGNORED", "PWD", "TEST", "TMPDIR")
values = {name: os.environ.get(name) for name in names}
result_of_side({**values, "temporary": tempfile.gettempdir()})
"""
    variables = {BASE: {"TEST": str(plan.setup.repository / "data")}, HEAD: {}}
    own = gate_builders.with_setup(plan, variables=variables)
    for _ in range(2):  # in all trials
        with start(program, plan=own) as trial:
            trial.ready()
            values = sides_of(trial.measure())
        for side, tree in plan.setup.trees.items():
            temporary = str(plan.setup.home.parent / "tmp" / side)
            assert values[side] == {
                "DATA_DIR": str(tree.root / "data"),
                "IGNORED": str(plan.setup.repository / "ignored"),
                "PWD": str(tree.directory),
                "TEST": variables[side].get("TEST"),  # what the user gives a side stays
                "TMPDIR": temporary,
                "temporary": temporary,
            }
    assert str(plan.setup.repository / "ignored") in shared_places(own.setup)
    assert str(plan.setup.repository / "data") not in shared_places(own.setup)


def test_a_full_disk_is_one_line_with_the_place(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(UsageError) as raised:
        stage_home(tmp_path)
    assert str(raised.value).endswith(
        f"/mnistbench: cannot be copied to {tmp_path} (No space left on device); make room, or set "
        "TMPDIR"
    )


def test_the_copy_of_what_measures_is_whole_and_lies_beside_the_trees(tmp_path):
    import mnistbench

    package = Path(mnistbench.__file__).parent
    home = stage_home(tmp_path)
    assert home == tmp_path / "gate"
    expected = {
        path.relative_to(package.parent)
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for name in ("mnistbench", STAGED):
        copies = {path.relative_to(home / name) for path in (home / name).rglob("*")}
        files = {path for path in copies if (home / name / path).is_file()}
        assert files == {path.relative_to("mnistbench") for path in expected}
    assert (home / "pytest_benchmark" / "plugin.py").is_file()


def test_the_copy_of_what_measures_imports_itself_alone(tmp_path):
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        f"import {STAGED}.gate.processes.sides.worker; "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    command = [sys.executable, "-P", "-c", program, stage_home(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert STAGED in done.stdout.split()
    assert "mnistbench" not in done.stdout.split()
