"""The flow of a gate with trials that are made up.

How many there are, of what, what is kept, and how it ends early.
"""

from __future__ import annotations

import math
import platform
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import gate_builders
import pytest
import reproducer_builders
from full_disks import NO_ROOM, largest_file

from mnistbench import cli
from mnistbench.core.errors import UsageError
from mnistbench.gate import flow, words
from mnistbench.gate.decide.statistics import quantities
from mnistbench.gate.decide.statistics.shards import gather
from mnistbench.gate.decide.verdict.verdict import conclude
from mnistbench.gate.environments import python
from mnistbench.gate.environments.python import Interpreter
from mnistbench.gate.explain import profiles as causes
from mnistbench.gate.flow import measure
from mnistbench.gate.listing import (
    OTHER_ID,
    OTHER_PARAMETERS,
    REORDERED,
    ListedCase,
    Listing,
    Listings,
)
from mnistbench.gate.measure import budget, rounds, two_stages
from mnistbench.gate.measure.budget import MIN_EFFORT
from mnistbench.gate.options import (
    MIN_TRIALS,
    TRIALS,
    GateOptions,
    JudgeOptions,
    Thresholds,
    budget_text,
)
from mnistbench.gate.processes.messages import Efforts, Followed, Selection, Spent, Surveys
from mnistbench.gate.processes.sides.stray import Imports
from mnistbench.gate.processes.starting import PATIENCE_S, GateError, TrialResult, stage_home
from mnistbench.gate.qualification import measurement, resampling
from mnistbench.gate.qualification.resampling import least_trials
from mnistbench.gate.qualification.result import with_qualification
from mnistbench.gate.report.outcome import last_line
from mnistbench.gate.report.report import report
from mnistbench.gate.report.rows import Rows
from mnistbench.gate.report.text import finding_lines
from mnistbench.gate.samples import raw_samples
from mnistbench.gate.samples.case_profile import CallPath, CaseProfile, ProfiledFunction
from mnistbench.gate.samples.raw_samples import NO_END, End, Shard
from mnistbench.gate.survey import surveying
from mnistbench.gate.survey.side_surveys import SurveyResult, survey_in_processes
from mnistbench.gate.words import BASE, HEAD, THREADS
from mnistbench.judging.acceptance import Acceptance
from mnistbench.judging.verdicts import (
    INCONCLUSIVE,
    PASSED,
    REGRESSED,
)
from mnistbench.measuring.calls import NEEDS_CODSPEED
from mnistbench.showing.output import EXIT_INCONCLUSIVE, EXIT_REGRESSED, render
from mnistbench.showing.progress import Progress
from mnistbench.suite.reproducers import write

#: The id of the first of two cases.
QUICK = "bench/test_step.py::test_step[lenet5-b16-cpu]"
#: The id of the second of two cases.
SLOW = "bench/test_step.py::test_step[convnet-b16-cpu]"

PARAMS = {"device": "cpu", "threads": 1, "batch_size": 16}

#: Fewest trials of a qualification with the default thresholds.
SIZE = least_trials(Thresholds())


@pytest.fixture(autouse=True)
def _machine(alone, monkeypatch):
    """One core, and all the memory that anybody wants."""
    monkeypatch.setattr(rounds, "own_cores", lambda: [0])
    monkeypatch.setattr(rounds, "available_bytes", lambda: math.inf)
    monkeypatch.setattr(surveying, "cpu_model", lambda: "EPYC")


@pytest.fixture
def here(tmp_path):
    """The user's tree; the base is the one beside it."""
    for name in ("base", "project"):
        (tmp_path / name / "bench").mkdir(parents=True)
        (tmp_path / name / "bench/test_step.py").write_text("def test_step(op_benchmark): ...\n")
    return tmp_path / "project"


class Heard(Progress):
    """Keeps what it shows."""

    def __init__(self):
        super().__init__(None)
        self.said = []
        self.trials = []
        self.cases = []  # a log shows none of them

    def say(self, text):
        self.said.append(text)

    def step(self, text, *, log=None, left_s=None):
        (self.trials if log is None else self.cases).append((text, left_s))


#: Of a case with one function.
PROFILE = CaseProfile((ProfiledFunction("the case"),), (CallPath(-1, 0, 1.0, 1.0, 0, 0),))


class Trials:
    """Starts trials that nobody measures, by a clock of their own."""

    # seconds: of each trial and of the survey, and of a case that is measured.
    loading = 5.0
    of_case = 10.0
    # CPU time of loading a side in the survey.
    loading_cpu = 5.0

    def __init__(self):
        self.cases = {side: dict.fromkeys((QUICK, SLOW), PARAMS) for side in (BASE, HEAD)}
        self.factors = {QUICK: 1.0, SLOW: 1.0}  # of the head's times
        self.started = []  # (plan, seed, only) of each
        self.efforts = []  # of each
        # As of gate_builders.Measured: few, because statistics of each take time.
        self.operations = {gate_builders.MM: (1_000_000, 1.0)}
        self.once = {}  # as of gate_builders.series
        self.described = []  # (rows of each side, folder) of slower operations
        self.profiled = []  # cases whose functions are profiled
        self.looked = []  # the request of each survey
        self.packages = {side: {"torch": "2.15.0", "tqdm": "4"} for side in (BASE, HEAD)}
        self.selects = lambda arguments, paths: ((*paths, *arguments), ("step",))
        self.frameworks = {side: {"torch": "2.15.0"} for side in (BASE, HEAD)}
        self.failed = {BASE: {}, HEAD: {}}
        self.missing = {BASE: (), HEAD: ()}  # arguments of pytest
        self.left_out = {}  # of the base: case -> why
        self.loaded = {BASE: (), HEAD: ()}  # packages that the tests import
        self.facts = {BASE: {}, HEAD: {}}  # of SLOW
        self.running = 0
        self.at_once = 1  # most trials at the same time
        self.cores = []  # of each trial
        self.compile_ns = {BASE: 0, HEAD: 0}  # of SLOW in the survey
        self.seconds = 0.0  # of the calls of a case in the survey
        self.seconds_of = {}  # node id -> the same of a single case
        self.case_s = {}  # node id -> seconds in a trial, if not ``of_case``
        # Efforts of a case in a trial, and their seconds.
        self.spent = (Efforts(1, 1), 0, 0)
        self.clock = 0.0
        self.before = {}  # number of the trial -> called before it is measured; 0 is the survey
        self.changes = {}  # number of the trial -> changes of what it leaves
        self.unstable = {}  # number of the trial -> node ids that it does not find again
        self.again = {}  # side -> node id -> parameters, if the tests are collected again
        self.collected = []  # seeds of these collections

    def monotonic(self):
        return self.clock

    @contextmanager
    def running_trial(self, plan, seed, only, log, cores, *, efforts):
        assert self.running < self.at_once
        assert all(tree.directory.is_dir() for tree in plan.setup.trees.values())
        self.started.append((plan, seed, only))
        self.efforts.append(efforts)
        self.cores.append(cores)
        self.running += 1
        try:
            yield self
        finally:
            self.running -= 1

    def survey_in_processes(self, request, seed, log, *, shows):
        for number in (1, 2):
            shows(number, 2)
        setup = request.setup
        assert all(tree.directory.is_dir() for tree in setup.trees.values())
        self.looked.append(request)
        self.clock += self.loading
        self.before.get(0, lambda: None)()
        arguments, phases = self.selects(request.selection.arguments, request.paths)
        selection = Selection(tuple(filter(None, arguments)), phases)
        listings = {
            side: replace(self.listing(side), threads=int(setup.variables[side].get(THREADS, 0)))
            for side in (BASE, HEAD)
        }
        imports = {side: Imports(str(setup.trees[side].root)) for side in listings}
        followed = {side: Followed() for side in listings}
        surveys = Surveys(Listings(listings[BASE], listings[HEAD]), imports, followed)
        return SurveyResult(replace(request, selection=selection), surveys, PATIENCE_S)

    def collect_again(self, plan, seed, log):
        self.collected.append(seed)
        return self.again

    def capture_on_sides(self, plan, seed, wanted, folder, log):
        assert all(tree.directory.is_dir() for tree in plan.setup.trees.values())
        self.described.append((wanted, folder))
        rows = [reproducer_builders.row()]
        return {
            side: {
                script["script"]: {"rows": rows, "why_not": "", "threads": 1}
                for script in wanted[side]
            }
            for side in wanted
        }

    def measure_profiles(self, plan, seed, cases, log, code):
        assert all(tree.directory.is_dir() for tree in plan.setup.trees.values())
        self.profiled.append(cases)
        return dict.fromkeys(cases, PROFILE)

    def listing(self, side):
        cases = {
            case: ListedCase(
                case.rpartition("::")[2],
                params,
                seconds=self.seconds_of.get(case, self.seconds),
                facts=self.facts[side] if case == SLOW else {},
                compile_ns=self.compile_ns[side] if case == SLOW else 0,
                memory=None if case == SLOW else {BASE: 1_000, HEAD: 2_000}[side],
            )
            for case, params in self.cases[side].items()
            if case not in self.failed[side]
        }
        return Listing(
            cases,
            self.packages[side],
            self.frameworks[side],
            failed=self.failed[side],
            resident=500_000,
            loading_s=self.loading_cpu,
            left_out=self.left_out if side == BASE else {},
            missing=self.missing[side],
            loaded=self.loaded[side],
        )

    def ready(self):
        self.clock += self.loading

    def measure(self, begins):
        _, seed, only = self.started[-1]
        lacking = self.unstable.get(len(self.started), ())
        only = [case for case in only if case not in lacking]
        for number in range(1, len(only) + 1):
            if begins:
                begins(number, len(only))
            self.clock += self.case_s.get(only[number - 1], self.of_case)
        self.before.get(len(self.started), lambda: None)()
        cases = {
            case: gate_builders.Measured(factor=self.factors[case], operations=self.operations)
            for case in only
        }
        [trial] = gate_builders.series(cases, count=1, seed=seed, once=self.once)
        line = gate_builders.line(trial)
        del line["stage"]
        result = {
            **line,
            "spent": {
                case: Spent(self.case_s.get(case, self.of_case), *self.spent) for case in only
            },
            "unmeasurable": dict.fromkeys(lacking, OTHER_ID),
            **self.changes.get(len(self.started), {}),
        }
        return TrialResult(**result)


@pytest.fixture
def trials():
    return Trials()


def empty_home(folder):
    """The folder for trials without the package, because no process imports it."""
    home = folder / "gate"
    home.mkdir()
    return home


@pytest.fixture
def gate(here, tmp_path, trials, monkeypatch):
    """Measure with these trials; what the request says by keywords."""
    for module, name in (
        (rounds, "running_trial"),
        (surveying, "survey_in_processes"),
        (surveying, "collect_again"),
        (write, "capture_on_sides"),
        (causes, "measure_profiles"),
        (flow, "monotonic"),
    ):
        monkeypatch.setattr(module, name, getattr(trials, name))
    monkeypatch.setattr(flow, "stage_home", empty_home)

    def measured(progress=None, *, where=here, **changes):
        monkeypatch.chdir(where)
        request = GateOptions(
            **{
                "base": str(tmp_path / "base"),
                "storage": tmp_path / "storage",
                "trials": 9,
                **changes,
            }
        )
        heard = progress or Heard()
        verdict = measure(request, heard, seed=100)
        measured = raw_samples.load(verdict.recorded.path)
        # The file leads to the verdict by which the gate acted.
        assert conclude(measured, request) == verdict
        return measured

    return measured


def raising(error):
    def raises():
        raise error

    return raises


def stages_of(measured):
    return [trial.stage for trial in measured.trials]


# ---- All of it -----------------------------------------------------------------------------------


def test_an_accepted_name_of_two_cases_is_refused_before_they_are_measured(gate, trials, tmp_path):
    ids = ("bench/test_a.py::test_second", "bench/test_b.py::test_second")
    trials.cases = {side: dict.fromkeys(ids, PARAMS) for side in (BASE, HEAD)}
    accept = (Acceptance("test_second:iteration", 0.5),)
    with pytest.raises(UsageError, match=f"names 2 cases: {', '.join(ids)}; name one of them, "):
        gate(accept=accept, reason="x")
    assert trials.started == []
    assert not list((tmp_path / "storage").rglob("*.gz"))


def test_trials_are_measured_and_kept(gate, trials, tmp_path):
    measured = gate(trials=9, only=(SLOW,), head_python="/opt/python", head_env=(("A", "1"),))
    assert stages_of(measured) == [1] * 9
    assert [only for _, _, only in trials.started] == [[QUICK, SLOW]] * 9
    assert len({seed for _, seed, _ in trials.started}) == 9  # each has a coin of its own
    assert trials.running == 0
    assert replace(measured.end, parts_s={}) == End(elapsed_s=trials.clock) == End(elapsed_s=230.0)
    assert measured.path.parent == tmp_path / "storage/gate"
    assert list(measured.path.parent.iterdir()) == [measured.path]
    assert raw_samples.load(measured.path) == measured
    [request] = trials.looked
    plan, _, _ = trials.started[0]
    assert request.only == (SLOW,)
    assert plan.setup.pythons == {BASE: sys.executable, HEAD: "/opt/python"}
    assert plan.setup.variables == measured.header.variables == {BASE: {}, HEAD: {"A": "1"}}


def test_the_sides_have_the_interpreter_of_the_project_and_the_header_says_so(
    gate, trials, monkeypatch
):
    interpreter = Interpreter("/p/.venv/bin/python", "3.13.0 (main)", (), ".venv of the project")
    monkeypatch.setattr(python, "of_project", lambda: interpreter)
    measured = gate(trials=8)
    plan, _, _ = trials.started[0]
    assert plan.setup.pythons == dict.fromkeys((BASE, HEAD), interpreter.path)
    assert measured.header.interpreter == "/p/.venv/bin/python (.venv of the project)"


def test_the_header_says_what_is_compared(gate, trials, here, monkeypatch):
    trials.packages = {BASE: {"tqdm": "4", "Gone": "1"}, HEAD: {"tqdm": "5", "Added": "1"}}
    trials.frameworks = {BASE: {"torch": "2.14.0"}, HEAD: {"torch": "2.15.0"}}
    header = gate(trials=8, pytest=("-k", "step")).header
    assert header.base.endswith("/base")
    assert header.head == str(here)
    assert header.arguments == ("bench", "-k", "step")
    assert (header.seed, header.sides.frameworks) == (
        100,
        {"torch": "2.14.0 -> 2.15.0"},
    )
    assert header.labels == {QUICK: "test_step[lenet5-b16-cpu]", SLOW: "test_step[convnet-b16-cpu]"}
    assert header.sides.packages == {"Added": ("", "1"), "Gone": ("1", ""), "tqdm": ("4", "5")}
    assert [header.sides[side].cases[QUICK].memory for side in (BASE, HEAD)] == [1_000, 2_000]
    assert header.sides.resident == {BASE: 500_000, HEAD: 500_000}


def test_what_the_surveys_say_of_a_case_is_said_once(gate, trials):
    listing = trials.listing

    def noted(side):
        listed = listing(side)
        listed.cases[QUICK].note = "changes its arguments"
        listed.cases[QUICK].uncompared = f"returns {side}"
        return listed

    trials.listing = noted
    header = gate(trials=8).header
    assert header.sides.notes == {QUICK: "changes its arguments"}
    assert header.sides.uncompared == {
        QUICK: "in the base: returns base; in the head: returns head"
    }


# ---- Ids that differ between processes -----------------------------------------------------------


def test_a_case_that_a_trial_does_not_find_again_is_left_out_of_later_ones(gate, trials):
    trials.unstable = {2: [SLOW]}
    measured = gate(trials=9)
    assert [only for _, _, only in trials.started] == [[QUICK, SLOW]] * 2 + [[QUICK]] * 7
    verdict = conclude(measured, JudgeOptions())
    assert verdict.unmeasurable == {SLOW: OTHER_ID}
    [reason] = verdict.reasons
    assert (
        reason.text == f"not measured: {SLOW}: {OTHER_ID}; add --allow-missing to judge without it"
    )
    assert raw_samples.load(measured.path) == measured


def test_a_case_that_no_trial_finds_again_needs_no_time_of_its_own(gate, trials):
    trials.unstable = {number: [SLOW] for number in range(1, 22)}
    trials.factors[QUICK] = 1.2  # fresh trials, whose duration is estimated
    measured = gate(trials=9, budget_s=10_000)
    assert stages_of(measured) == [1] * 9 + [2] * 8
    assert conclude(measured, JudgeOptions()).outcome == REGRESSED


def test_a_gate_whose_cases_get_lost_one_after_the_other_says_why(gate, trials):
    trials.unstable = {1: [QUICK], 2: [SLOW]}
    measured = gate(trials=9)
    assert measured.end.cut_short == f"no case is left to be measured: {QUICK}, {SLOW}: {OTHER_ID}"
    verdict = conclude(measured, JudgeOptions())
    assert verdict.outcome == INCONCLUSIVE
    assert OTHER_ID in render(report(verdict), "terminal")
    allowed = conclude(measured, JudgeOptions(allow_missing=True))
    assert allowed.outcome == INCONCLUSIVE  # nothing was measured
    assert render(report(allowed), "json")


def test_ids_of_one_side_alone_are_looked_for_in_another_process(gate, trials):
    trials.cases[BASE]["t.py::t[<A at 0x1>]"] = trials.cases[HEAD]["t.py::t[<A at 0x2>]"] = PARAMS
    trials.cases[BASE]["t.py::renamed[1]"] = trials.cases[HEAD]["t.py::renamed[2]"] = PARAMS
    trials.again = {
        BASE: {"t.py::t[<A at 0x3>]": "", "t.py::renamed[1]": ""},
        HEAD: {"t.py::t[<A at 0x4>]": "", "t.py::renamed[2]": ""},
    }
    header = gate(trials=8).header
    [seed] = trials.collected
    assert seed != 100  # of the survey
    assert header.sides.unmeasurable == {"t.py::t[...]": OTHER_ID}
    assert (header.sides.only_base, header.sides.only_head) == (
        ("t.py::renamed[1]",),
        ("t.py::renamed[2]",),
    )


def test_tests_are_not_collected_again_without_a_suspicion(gate, trials):
    trials.cases[HEAD]["t.py::new[1]"] = PARAMS
    trials.cases[BASE]["t.py::gone[1]"] = PARAMS
    assert gate(trials=8).header.sides.unmeasurable == {}
    assert trials.collected == []


def test_an_id_of_one_side_alone_may_have_its_counterpart_in_another_shard(gate, trials):
    trials.cases[BASE]["t.py::t[<A at 0x1>]"] = PARAMS
    trials.again = {BASE: {}, HEAD: {}}
    header = gate(trials=8, shard=Shard(1, 2)).header
    assert header.sides.unmeasurable == {"t.py::t[...]": f"in the base: {OTHER_ID}"}
    assert header.sides.only_base == ()


def test_parameters_that_belong_to_another_id_in_the_head_are_not_compared(gate, trials):
    listing = trials.listing

    def swapped(side):
        listed = listing(side)
        order = ("one", "two") if side == BASE else ("two", "one")
        for case, parameters in zip(("t.py::t[x0]", "t.py::t[x1]"), order, strict=True):
            listed.cases[case] = ListedCase(case, PARAMS, parameters=parameters)
        return listed

    trials.listing = swapped
    base_parameters = {"t.py::t[x0]": "one", "t.py::t[x1]": "two"}
    head_parameters = {"t.py::t[x0]": "two", "t.py::t[x1]": "one"}
    trials.again = {BASE: base_parameters, HEAD: head_parameters}
    header = gate(trials=8).header
    assert header.sides.unmeasurable == {"t.py::t[x0]": REORDERED, "t.py::t[x1]": REORDERED}
    assert list(header.labels) == [QUICK, SLOW]
    assert header.sides.changed == ()


def test_parameters_whose_order_is_random_are_not_said_to_have_changed_in_the_head(gate, trials):
    listing = trials.listing
    base_parameters = {"t.py::t[x0]": "one", "t.py::t[x1]": "two"}
    head_parameters = {"t.py::t[x0]": "two", "t.py::t[x1]": "one"}

    def swapped(side):
        listed = listing(side)
        for case, parameters in (base_parameters if side == BASE else head_parameters).items():
            listed.cases[case] = ListedCase(case, PARAMS, parameters=parameters)
        return listed

    trials.listing = swapped
    # The head has the same order twice by chance.
    trials.again = {BASE: head_parameters, HEAD: head_parameters}
    header = gate(trials=8).header
    assert header.sides.unmeasurable == {"t.py::t[...]": OTHER_PARAMETERS}
    assert (header.sides.only_base, header.sides.only_head, header.sides.changed) == ((), (), ())
    assert list(header.labels) == [QUICK, SLOW]


def test_cases_that_a_survey_cannot_measure_have_a_reason(gate, trials):
    listing = trials.listing
    trials.listing = lambda side: replace(
        listing(side), unmeasurable={"t.py::a": "only creates", side: "only creates"}
    )
    header = gate(trials=8).header
    assert header.sides.unmeasurable == {
        "t.py::a": "only creates",
        BASE: "in the base: only creates",
        HEAD: "in the head: only creates",
    }
    trials.listing = lambda side: replace(
        listing(side), cases={}, unmeasurable={"t.py::a": "only creates", "t.py::b": "x"}
    )
    with pytest.raises(
        GateError, match=r"^no case can be measured: t\.py::a: only creates; t\.py::b: x$"
    ):
        gate(trials=8)


def test_the_hash_seed_of_the_user_is_said(gate, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    assert any("PYTHONHASHSEED=5" in remark for remark in gate(trials=8).header.remarks)
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    assert gate(trials=8).header.remarks == ()


def test_instruction_set_and_libraries_of_both_sides_are_recorded(gate, trials):
    listing = trials.listing

    def with_paths(side):
        listed = replace(
            listing(side), cpu={"instruction set": {BASE: "AVX512", HEAD: "AVX2"}[side]}
        )
        listed.cases[QUICK].implementations = {"matmul ref:any": 1} if side == HEAD else {}
        return listed

    trials.listing = with_paths
    measured = gate(trials=8)
    header = measured.header
    assert header.sides.cpu == {
        BASE: {"instruction set": "AVX512"},
        HEAD: {"instruction set": "AVX2"},
    }
    assert header.sides.head.cases[QUICK].implementations == {"matmul ref:any": 1}
    assert raw_samples.load(measured.path).header == header


#: oneDNN computes what PyTorch's own code would take longer for.
CONVOLUTION = """
import torch


def test_convolution(benchmark):
    benchmark(torch.nn.functional.conv2d, torch.ones(2, 8, 16, 16), torch.ones(8, 8, 3, 3))
"""


@pytest.mark.usefixtures("torch")
@pytest.mark.versions
@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the variables have names of x86's instruction sets"
)
def test_a_forced_instruction_set_is_another_path_in_the_report(gate, here, trials, monkeypatch):
    """The surveys are processes of both sides; what they have found is in the header."""
    (here / "bench/test_step.py").write_text(CONVOLUTION)
    monkeypatch.setattr(surveying, "survey_in_processes", survey_in_processes)
    monkeypatch.setattr(flow, "stage_home", stage_home)
    case = "bench/test_step.py::test_convolution"
    trials.factors = {case: 1.0}
    forced = (("ONEDNN_MAX_CPU_ISA", "SSE41"), ("ATEN_CPU_CAPABILITY", "default"))
    measured = gate(trials=8, base=None, head_env=forced)
    text = render(report(conclude(measured, JudgeOptions())), "terminal")
    assert re.search(
        (
            "^cpu: instruction set AVX.* -> DEFAULT; oneDNN Intel AVX.* -> Intel SSE4.1; OpenMP "
            "lib.*omp"
        ),
        text,
        re.MULTILINE,
    )
    assert re.search(
        "^test_step.py::test_convolution: another path was taken: convolution .* -> .*",
        text,
        re.MULTILINE,
    )
    assert text == render(
        report(conclude(raw_samples.load(measured.path), JudgeOptions())), "terminal"
    )


@pytest.mark.parametrize(
    ("base_s", "head_s", "budget_s", "anew"),
    [
        (10, 12, None, {SLOW}),  # the threshold of one-time costs is 20 %
        (10, 11.9, None, set()),
        (12, 10, None, set()),
        (0, 10, None, set()),  # not compiled in the base: an exact difference
        (10, 0, None, set()),
        (10, 12, 10_000, {SLOW}),
        (10, 12, 600, set()),
    ],
)
def test_a_slower_compilation_is_repeated_in_each_trial_if_the_budget_is_enough(
    gate, trials, base_s, head_s, budget_s, anew
):
    trials.compile_ns = {BASE: round(1e9 * base_s), HEAD: round(1e9 * head_s)}
    gate(budget_s=budget_s)
    assert {plan.compiled_anew for plan, _, _ in trials.started} == {frozenset(anew)}


def test_files_of_a_test_and_types_of_its_result_that_differ_are_kept(gate, trials, here, tmp_path):
    listing = trials.listing
    for side, text in ((tmp_path / "base", "1"), (here, "2")):
        for name in ("bench/test_step.py", "bench/same.json", "bench/other.json"):
            same = name == "bench/same.json"
            (side / name).write_text("" if same else f"def helper():\n    return {text}\n")
    (here / "bench/new.json").touch()

    def with_files(side):
        listed = listing(side)
        listed.cases[QUICK].sources = (
            "bench/same.json",
            "bench/test_step.py",
            *(["bench/new.json"] if side == HEAD else []),
        )
        listed.cases[SLOW].sources = ("bench/same.json",)
        listed.cases[QUICK].returns = {BASE: "list", HEAD: "generator"}[side]
        listed.cases[QUICK].uncompared = {BASE: "", HEAD: "returns generator"}[side]
        return listed

    trials.listing = with_files
    header = gate(trials=8).header
    assert header.sources == {QUICK: ("bench/new.json", "bench/test_step.py")}
    assert header.sides.returned == {QUICK: ("list", "generator")}
    assert header.sides.uncompared == {}
    assert raw_samples.load(gate(trials=8).path).header.sides.returned == header.sides.returned


def test_a_package_that_one_side_lacks_and_the_tests_import_is_an_exact_difference(gate, trials):
    trials.packages[HEAD] |= {"orjson": "3.8", "idle": "1.0", "both": "2"}
    trials.packages[BASE] |= {"numba": "0.68.1", "both": "1"}
    trials.loaded = {BASE: ("numba", "both", "tqdm"), HEAD: ("orjson", "tqdm")}
    assert conclude(gate(trials=8), JudgeOptions()).exact_differences[words.ALL_CASES] == (
        "another path was taken: numba 0.68.1 -> not installed",
        "another path was taken: orjson not installed -> 3.8",
    )


@pytest.mark.parametrize(
    ("base", "head", "texts"),
    [
        ({"loops": "compiled"}, {"loops": "not compiled"}, ("loops: compiled -> not compiled",)),
        ({"loops": "compiled"}, {"loops": "compiled"}, ()),
        ({"loops": "compiled"}, {}, ()),  # the head does not know it
        ({}, {}, ()),
    ],
)
def test_a_fact_of_a_case_that_differs_is_an_exact_difference(gate, trials, base, head, texts):
    trials.facts = {BASE: base, HEAD: head}
    differences = conclude(gate(trials=8), JudgeOptions()).exact_differences
    found = [text for text in differences.get(SLOW, ()) if "loops" in text]
    assert found == [f"another path was taken: {text}" for text in texts]


def test_other_dependencies_and_numbers_of_threads_are_remarks(gate, here, tmp_path):
    for folder, version in ((tmp_path / "base", "1"), (here, "2")):
        (folder / "requirements-dev.txt").write_text(f"numpy=={version}")
        (folder / "setup.py").write_text("setup()")
        (folder / "same.py").write_text(f"VERSION = {version}\ntorch.set_num_threads(4)\n")
        (folder / "bench/net.py").write_text(f"torch.set_num_threads({version})")
    (here / "new.py").touch()
    assert gate(trials=8).header.remarks == (
        (
            "the sides may have other dependencies (requirements-dev.txt), which the gate does "
            "not install; name other versions with --head-with"
        ),
        (
            "the sides set other numbers of threads (bench/net.py), which count in the body of a "
            "plain test; elsewhere OMP_NUM_THREADS does"
        ),
    )


def test_sides_of_one_tree_have_one_name(gate):
    header = gate(trials=8, base=None, head_env=(("A", "1"),)).header
    assert header.base == header.head


def test_the_copies_are_gone_when_all_is_measured(gate, trials, tmp_path):
    gate(trials=8)
    plan, _, _ = trials.started[-1]
    assert not plan.setup.home.exists()
    # A path's length changes where strings lie in memory: neither side may have the better one.
    assert len({len(str(tree.root)) for tree in plan.setup.trees.values()}) == 1
    assert list((tmp_path / "tmp").iterdir()) == []


def test_progress_is_told_before_each_trial_and_at_the_end(gate):
    heard = Heard()
    gate(heard, trials=8)
    assert heard.said == ["loading both sides"]
    rest = [None, *(25.0 * (8 - done) for done in range(1, 8))]
    assert heard.trials == [
        (f"trial {number} of 8", left_s) for number, left_s in enumerate(rest, 1)
    ]


def test_progress_is_told_before_each_case_with_the_time_that_is_left(gate):
    """The first trial has no time of an earlier one.

    Its first case took 15 s with the start, so both together take 30 s.
    """
    heard = Heard()
    gate(heard, trials=8)
    assert heard.cases[:6] == [
        ("surveying test 1 of 2", None),
        ("surveying test 2 of 2", None),
        ("trial 1 of 8, case 1 of 2", None),
        ("trial 1 of 8, case 2 of 2", 7.5 * 30.0),
        ("trial 2 of 8, case 1 of 2", 7 * 25.0),
        ("trial 2 of 8, case 2 of 2", 6.5 * 25.0),
    ]
    assert len(heard.cases) == 2 + 8 * 2


def test_of_a_repository_the_header_has_commits(gate, trials, here):
    for arguments in (
        ["init", "--quiet"],
        ["add", "."],
        ["commit", "--quiet", "--message", "first"],
    ):
        subprocess.run(["git", *arguments], cwd=here, check=True)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True
    ).stdout[:7]
    header = gate(trials=8, base="HEAD").header
    assert (header.base, header.head) == (commit, commit)
    (here / "new.py").touch()
    assert gate(trials=8, base="HEAD", where=here / "bench").header.head == f"{commit} with changes"
    assert trials.started[-1][0].setup.repository == here
    assert trials.started[-1][0].setup.trees[HEAD].directory.name == "bench"


@pytest.mark.parametrize(
    ("changes", "generated"),
    [({"base": "HEAD"}, ("pkg/native.so",)), ({}, ())],
)
def test_the_header_has_the_ignored_files_that_a_base_gets_from_the_working_tree(
    gate, here, tmp_path, changes, generated
):
    for folder in (tmp_path / "base", here):
        (folder / "pkg").mkdir()
        (folder / "pkg/__init__.py").touch()
        (folder / "pkg/native.so").write_text(folder.name)
        (folder / ".gitignore").write_text("*.so\n")
        for arguments in (
            ["init", "--quiet"],
            ["add", "."],
            ["commit", "--quiet", "--message", "first"],
        ):
            subprocess.run(["git", *arguments], cwd=folder, check=True)
    assert gate(trials=8, **changes).header.generated == generated


@pytest.mark.parametrize(
    ("params", "exact"),
    [({}, True), ({"device": "cuda"}, False), ({"threads": 2}, False)],
    ids=["one thread", "an accelerator", "two threads"],
)
def test_a_case_computes_the_same_to_the_bit_on_one_thread_of_a_cpu(gate, trials, params, exact):
    trials.cases = {side: {QUICK: {**PARAMS, **params}} for side in (BASE, HEAD)}
    assert gate(trials=8).header.sides.is_exact(QUICK) == exact


@pytest.mark.parametrize(
    ("base", "head", "exact"),
    [("", "2", False), ("1", "1", True), ("2", "2", False), ("", "1", True), ("2", "", False)],
)
def test_threads_of_a_side_count_instead_of_those_of_the_case(gate, trials, base, head, exact):
    variables = [{"OMP_NUM_THREADS": threads} if threads else {} for threads in (base, head)]
    measured = gate(
        trials=8, base_env=tuple(variables[0].items()), head_env=tuple(variables[1].items())
    )
    assert {measured.header.sides.is_exact(case) for case in measured.header.labels} == {exact}
    # The cases have the same parameters.
    assert list(measured.header.labels) == list(trials.cases[BASE])


def test_a_plain_test_has_the_threads_of_its_side_and_is_compared(gate, trials):
    trials.cases = {
        side: {QUICK: {**PARAMS, "threads": threads}} for side, threads in ((BASE, 1), (HEAD, 2))
    }
    measured = gate(trials=8, head_env=(("OMP_NUM_THREADS", "2"),))
    assert list(measured.header.labels) == [QUICK]
    assert measured.header.sides.changed == ()
    with pytest.raises(GateError, match=r"^no case in common: "):
        gate(trials=8)


# ---- What is measured ----------------------------------------------------------------------------


def test_cases_that_the_sides_do_not_share_are_said_and_not_measured(gate, trials):
    other_params = {**PARAMS, "batch_size": 32}
    trials.cases = {
        BASE: {QUICK: PARAMS, SLOW: PARAMS, "t.py::gone": PARAMS},
        HEAD: {"t.py::new": PARAMS, SLOW: other_params, QUICK: PARAMS},
    }
    header = gate(trials=8).header
    assert (header.sides.only_base, header.sides.only_head, header.sides.changed) == (
        ("t.py::gone",),
        ("t.py::new",),
        (SLOW,),
    )
    assert list(header.labels) == [QUICK]
    assert [only for _, _, only in trials.started] == [[QUICK]] * 8


NO_CASE = (
    "has no case in bench: no test there uses benchmark or op_benchmark, or its mnistbench is too "
    "old for the gate; choose another base, or other tests after --"
)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (
            {BASE: ("bench",)},
            (
                "base ({base}) does not have bench, so all benchmarks are new, and there is "
                "nothing to compare with; add --allow-missing to pass, or measure them alone: "
                "mnistbench gate --qualify -- bench 'a b.py'"
            ),
        ),
        (
            {BASE: ("bench", "a b.py", "c.py")},
            "base ({base}) does not have bench and 2 more, so all benchmarks are new",
        ),
        (
            {HEAD: ("bench",)},
            "head (working tree) does not have bench; name tests that both sides have after --",
        ),
    ],
    ids=["new", "several", "removed"],
)
def test_what_one_side_alone_has_is_named(gate, trials, tmp_path, missing, message):
    [side] = missing
    trials.missing |= missing
    trials.cases[side] = {}
    (tmp_path / "base" / "a b.py").touch()
    with pytest.raises(GateError) as raised:
        gate(pytest=("a b.py",))
    assert str(raised.value).startswith(message.format(base=tmp_path / "base"))
    assert not list((tmp_path / "storage").rglob("*.gz"))


def test_without_pytest_codspeed_a_suite_of_its_marks_has_no_case_and_one_line_says_why(
    gate, trials
):
    trials.cases = {BASE: {}, HEAD: {}}
    trials.left_out = dict.fromkeys((QUICK, SLOW, "t.py::third"), NEEDS_CODSPEED)
    with pytest.raises(GateError) as raised:
        gate()
    assert str(raised.value) == (
        f"no case in bench: {QUICK} has the mark of pytest-codspeed, which is not installed, and "
        "no fixture; install pytest-codspeed, with which its body is measured, or use the fixture "
        "benchmark; 2 more tests with it"
    )


def test_tests_that_the_base_leaves_out_are_not_new(gate, trials):
    trials.cases[BASE] = {}
    trials.left_out = {QUICK: "is skipped: no GPU"}
    with pytest.raises(GateError, match=r"has no case in bench: .*is skipped: no GPU"):
        gate(allow_missing=True)


def test_benchmarks_that_are_all_new_pass_if_nothing_has_to_be_compared(gate, trials):
    trials.cases[BASE] = {}
    measured = gate(allow_missing=True)
    assert (trials.started, measured.trials, measured.end.cut_short) == ([], [], "")
    assert measured.header.sides.only_head == (QUICK, SLOW)
    for recorded in (measured, gather([measured.path])):
        verdict = conclude(recorded, JudgeOptions(allow_missing=True))
        assert (verdict.outcome, last_line(verdict)) == (
            PASSED,
            "passed: the base has none of the cases, so nothing was compared",
        )
        strict = conclude(recorded, JudgeOptions())
        assert strict.outcome == INCONCLUSIVE
        assert [reason.text for reason in strict.reasons] == [
            (
                "the base has none of the cases, so nothing was compared; add --allow-missing if "
                "this is intended"
            )
        ]
        assert not strict.is_excusable


@pytest.mark.parametrize(
    ("base", "head", "message"),
    [
        (
            [],
            [QUICK],
            (
                "base ({base}) has no case in bench, so all benchmarks are new, and there is "
                "nothing to compare with; add --allow-missing to pass, or measure them alone: "
                "mnistbench gate --qualify -- bench"
            ),
        ),
        ([QUICK], [], f"head (working tree) {NO_CASE}"),
        (
            [],
            [],
            (
                "no case in bench: select tests that use the fixture benchmark or op_benchmark "
                "after --"
            ),
        ),
        (
            ["t.py::a", "t.py::b", "t.py::c", "t.py::d"],
            [QUICK],
            (
                f"no case in common: the base has t.py::a, t.py::b, t.py::c, the head {QUICK}; "
                "cases with other node ids are not compared: if a file or a test was renamed, "
                "compare with a commit that has the new name"
            ),
        ),
    ],
    ids=["base", "head", "both", "in common"],
)
def test_nothing_to_measure_is_one_line_and_leaves_no_file(
    gate, trials, tmp_path, base, head, message
):
    trials.cases = {BASE: dict.fromkeys(base, PARAMS), HEAD: dict.fromkeys(head, PARAMS)}
    with pytest.raises(GateError) as raised:
        gate()
    assert str(raised.value) == message.format(base=tmp_path / "base")
    assert list(tmp_path.glob("storage/gate/*")) == []


def test_cases_of_one_side_that_cannot_be_measured_are_named(gate, trials):
    trials.cases = {BASE: {}, HEAD: {}}
    listing = trials.listing
    why = {BASE: {}, HEAD: {"t.py::a": "only creates"}}
    trials.listing = lambda side: replace(listing(side), unmeasurable=why[side])
    with pytest.raises(GateError) as raised:
        gate()
    assert str(raised.value) == "no case can be measured: t.py::a: only creates"


def test_what_the_survey_selects_is_measured_in_every_trial_and_kept(gate, trials):
    trials.selects = lambda arguments, paths: (arguments, ())
    header = gate(trials=8, pytest=("-x", "bench/test_step.py")).header
    [request] = trials.looked
    arguments = ("-x", "bench/test_step.py")
    assert (request.selection.arguments, request.paths) == (arguments, ("bench",))
    assert {plan.selection for plan, _, _ in trials.started} == {
        Selection(("-x", "bench/test_step.py"), ())
    }
    assert header.arguments == ("-x", "bench/test_step.py")


def test_a_project_without_that_folder_is_searched_whole(gate, trials, here):
    (here / "bench/test_step.py").rename(here / "test_step.py")
    (here / "bench").rmdir()
    gate(trials=8)
    assert trials.looked[0].paths == ()
    plan, _, _ = trials.started[0]
    assert plan.selection == Selection((), ("step",))


def with_listings(result, listings):
    return replace(result, surveys=replace(result.surveys, listings=listings))


def sharded(trials, number, of):
    """Let the survey divide the tests."""
    looked = trials.survey_in_processes

    def survey(*arguments, shows):
        result = looked(*arguments, shows=shows)
        tests = tuple(sorted({*trials.cases[BASE], *trials.cases[HEAD]}))
        shard = replace(result.request.shard, tests=tests)
        own = result.surveys.listings.without({*tests} - {*shard.own()})
        return replace(with_listings(result, own), request=replace(result.request, shard=shard))

    return {"shard": Shard(number, of)}, survey


def test_a_shard_measures_its_tests_and_its_file_says_so(gate, trials, monkeypatch, tmp_path):
    measurements = []
    for number in (1, 2):
        changes, survey = sharded(trials, number, 2)
        monkeypatch.setattr(surveying, "survey_in_processes", survey)
        measurements.append(gate(trials=10, **changes))
    assert sorted(case for measured in measurements for case in measured.header.labels) == sorted(
        (QUICK, SLOW)
    )
    assert [
        measured.path.name.rpartition("_")[0].rpartition("_")[0] for measured in measurements
    ] == [
        "shard-1-of-2",
        "shard-2-of-2",
    ]
    assert [measured.header.shard for measured in measurements] == [
        Shard(number, 2, tuple(sorted((QUICK, SLOW)))) for number in (1, 2)
    ]
    together = conclude(gather([measured.path for measured in measurements]), JudgeOptions())
    assert len(together.header.labels) == 2
    assert together.outcome == PASSED


def test_a_flagged_case_of_a_shard_has_more_fresh_trials(gate, trials, monkeypatch):
    trials.factors = {QUICK: 1.2, SLOW: 1.2}
    changes, survey = sharded(trials, 1, 2)
    monkeypatch.setattr(surveying, "survey_in_processes", survey)
    measured = gate(trials=10, **changes)
    assert stages_of(measured) == [1] * 10 + [2] * 8  # 4 can only confirm the level of a whole gate
    assert conclude(measured, JudgeOptions()).outcome == REGRESSED


def test_a_shard_whose_tests_are_left_out_does_not_lack_in_the_gate(gate, trials, monkeypatch):
    changes, survey = sharded(trials, 1, 2)
    left_out = Shard(2, 2, (QUICK, SLOW)).own()

    def skipped(*arguments, shows):
        result = survey(*arguments, shows=shows)
        if result.request.shard.number != 2:
            return result
        base = result.surveys.listings.base
        nothing = replace(base, cases={}, left_out=dict.fromkeys(left_out, "is skipped"))
        return with_listings(result, Listings(nothing, nothing))

    monkeypatch.setattr(surveying, "survey_in_processes", skipped)
    first = gate(trials=10, **changes)
    second = gate(**{**changes, "shard": Shard(2, 2)})
    assert (second.trials, second.end.cut_short) == (
        [],
        "no test of this shard is a case of both sides",
    )
    assert conclude(second, JudgeOptions()).outcome == INCONCLUSIVE
    together = conclude(gather([first.path, second.path]), JudgeOptions())
    assert (together.outcome, together.header.sides.left_out[HEAD]) == (
        PASSED,
        dict.fromkeys(left_out, "is skipped"),
    )


def test_shards_with_new_benchmarks_alone_compare_nothing(gate, trials, monkeypatch):
    trials.cases[BASE] = {}
    trials.again = {BASE: {}, HEAD: dict.fromkeys((QUICK, SLOW), "")}
    parts = []
    for number in (1, 2):
        changes, survey = sharded(trials, number, 2)
        monkeypatch.setattr(surveying, "survey_in_processes", survey)
        parts.append(gate(allow_missing=True, **changes))
    together = gather([part.path for part in parts])
    allowed = conclude(together, JudgeOptions(allow_missing=True))
    why = "the base has none of the cases, so nothing was compared"
    assert (allowed.outcome, last_line(allowed)) == (PASSED, f"passed: {why}")
    strict = conclude(together, JudgeOptions())
    assert strict.outcome == INCONCLUSIVE
    assert [reason.text for reason in strict.reasons] == [
        f"{why}; add --allow-missing if this is intended"
    ]
    # The base may have the tests of another shard.
    for recorded in (parts[0], gather([parts[0].path])):
        alone = conclude(recorded, JudgeOptions(allow_missing=True))
        assert alone.outcome == INCONCLUSIVE
        assert why not in last_line(alone)


def test_shards_of_which_none_has_a_case_do_not_pass(gate, trials, monkeypatch):
    left_out = dict.fromkeys((QUICK, SLOW), "is skipped")
    parts = []
    for number in (1, 2):
        changes, survey = sharded(trials, number, 2)

        def skipped(*arguments, shows, survey=survey):
            nothing = Listing({}, left_out=left_out)
            return with_listings(survey(*arguments, shows=shows), Listings(nothing, nothing))

        monkeypatch.setattr(surveying, "survey_in_processes", skipped)
        parts.append(gate(**changes))
    for is_allowed in (False, True):
        verdict = conclude(
            gather([part.path for part in parts]), JudgeOptions(allow_missing=is_allowed)
        )
        assert verdict.outcome == INCONCLUSIVE
        assert last_line(verdict) == "inconclusive: no test of any shard is a case of both sides"
        assert not verdict.is_excusable


def test_one_test_is_not_divided(gate, trials, monkeypatch):
    changes, survey = sharded(trials, 2, 2)

    def of_one_test(*arguments, shows):
        result = survey(*arguments, shows=shows)
        shard = result.request.shard
        one = replace(shard, tests=shard.tests[:1])
        return replace(result, request=replace(result.request, shard=one))

    monkeypatch.setattr(surveying, "survey_in_processes", of_one_test)
    with pytest.raises(UsageError, match=r"a single test cannot be divided, so remove --shard$"):
        gate(**changes)


def test_more_shards_than_tests_are_refused(gate, trials, monkeypatch, tmp_path):
    changes, survey = sharded(trials, 3, 3)
    monkeypatch.setattr(surveying, "survey_in_processes", survey)
    with pytest.raises(UsageError) as raised:
        gate(**changes)
    assert (
        str(raised.value) == "--shard: 3/3 are more parts than there are tests (2); give 2 or fewer"
    )
    assert list(tmp_path.glob("storage/gate/*")) == []


# ---- Trials at the same time -------------------------------------------------------------------


@pytest.fixture
def cores(trials, monkeypatch):
    """Let this machine have so many cores, and so many trials at the same time."""

    def have(number, at_once):
        monkeypatch.setattr(rounds, "own_cores", lambda: list(range(number)))
        trials.at_once = at_once

    return have


def test_two_trials_run_at_the_same_time_on_a_core_each(gate, trials, cores):
    cores(2, at_once=2)
    heard = Heard()
    measured = gate(heard, trials=9)
    assert stages_of(measured) == [1] * 9
    assert [
        sorted(first_core + second_core)
        for first_core, second_core in zip(trials.cores[:8:2], trials.cores[1:8:2], strict=True)
    ] == [[0, 1]] * 4
    # By chance: each core has been that of the first.
    assert len({tuple(drawn) for drawn in trials.cores[:8]}) == 2
    assert trials.cores[8] in ([0, 1], [1, 0])
    assert len({seed for _, seed, _ in trials.started}) == 9
    assert [text for text, _ in heard.trials] == [
        f"trial {number} of 9" for number in (1, 3, 5, 7, 9)
    ]
    assert raw_samples.load(measured.path).trials == measured.trials


@pytest.mark.parametrize(
    ("params", "variables"),
    [({"device": "cuda"}, {}), ({"threads": 2}, {}), ({}, {"OMP_NUM_THREADS": "2"})],
)
def test_a_trial_that_needs_the_machine_runs_alone(gate, trials, cores, params, variables):
    cores(2, at_once=1)
    trials.cases = {side: {QUICK: {**PARAMS, **params}} for side in (BASE, HEAD)}
    assert len(gate(trials=8, head_env=tuple(variables.items())).trials) == 8


@pytest.mark.parametrize(
    ("resident", "growth_bytes", "at_once"),
    [(10**9, 0, 1), (500_000, 10**9, 1), (500_000, 0, 2)],
)
def test_a_trial_runs_alone_without_the_memory_for_two(
    gate, trials, cores, monkeypatch, resident, growth_bytes, at_once
):
    cores(5, at_once)
    # Of the two processes of a trial, each touches 512 MiB if its cases need much memory.
    monkeypatch.setattr(rounds, "available_bytes", lambda: 2e9)
    listing = trials.listing
    trials.listing = lambda side: replace(
        listing(side), resident=resident, growth_bytes=growth_bytes
    )
    assert len(gate(trials=8).trials) == 8
    assert [len(drawn) for drawn in trials.cores] == ([5] * 8 if at_once == 1 else [3, 2] * 4)


def test_an_error_in_one_of_two_trials_keeps_those_before(gate, trials, cores):
    cores(2, at_once=2)
    trials.before = {4: raising(GateError("boom"))}
    measured = gate(trials=9)
    assert len(measured.trials) in (2, 3)
    assert (measured.end.cut_short, trials.running) == ("boom", 0)


# ---- Fresh trials ------------------------------------------------------------------------------


def test_what_was_flagged_is_measured_again_alone(gate, trials):
    heard = Heard()
    trials.factors[SLOW] = 1.1
    measured = gate(heard, trials=TRIALS)
    assert stages_of(measured) == [1] * TRIALS + [2] * 4  # the first checkpoint confirms it
    assert [only for _, _, only in trials.started] == [[QUICK, SLOW]] * TRIALS + [[SLOW]] * 4
    assert all(list(trial.cases) == [SLOW] for trial in measured.trials[TRIALS:])
    assert len({seed for _, seed, _ in trials.started}) == TRIALS + 4
    assert heard.said == [
        "loading both sides",
        "measuring 1 case again, in fresh trials",
        "profiling the functions of what is slower or faster",
    ]
    assert heard.trials[TRIALS] == ("trial 1 of 4", 4 * 15.0)
    assert raw_samples.load(measured.path).trials == measured.trials


@pytest.mark.parametrize(("budget_s", "fresh"), [(300.0, 0), (440.0, 12)])
def test_what_is_faster_passes_and_is_confirmed_only_by_enough_trials(
    gate, trials, budget_s, fresh
):
    trials.factors[SLOW] = 0.7
    measured = gate(trials=TRIALS, budget_s=budget_s)
    assert stages_of(measured).count(2) == fresh
    verdict = conclude(measured, JudgeOptions())
    assert verdict.outcome == PASSED
    [line, *_] = finding_lines(Rows(verdict))
    if fresh:
        assert line.startswith("improved: ")
    else:
        assert line.startswith("unconfirmed: ")


@pytest.mark.parametrize("budget_s", [680.0, 920.0])
def test_a_budget_is_kept_for_what_is_slower(gate, trials, budget_s):
    others = [f"bench/test_step.py::test_step[lenet5-b{size}-cpu]" for size in range(2, 7)]
    trials.cases = {side: dict.fromkeys((SLOW, *others), PARAMS) for side in (BASE, HEAD)}
    trials.factors = {SLOW: 1.3, **dict.fromkeys(others, 0.7)}
    measured = gate(trials=TRIALS, budget_s=budget_s)
    fresh = [trial for trial in measured.trials if trial.stage == 2]
    assert fresh
    assert all([*trial.cases] == [SLOW] for trial in fresh)
    assert conclude(measured, JudgeOptions()).outcome == REGRESSED


@pytest.fixture
def slower_mm(trials):
    trials.factors = dict.fromkeys((QUICK, SLOW), 1.1)
    trials.operations = gate_builders.Measured().operations | {gate_builders.MM: (1_000_000, 1.4)}


def test_scripts_of_slower_operations_lie_beside_the_raw_samples(gate, trials, slower_mm):
    heard = Heard()
    measured = gate(heard, trials=TRIALS)
    folder = measured.path.with_name(measured.path.name.removesuffix(".jsonl.gz"))
    assert [folder for _, folder in trials.described] == [folder]
    assert sorted(path.name for path in folder.iterdir()) == [
        f"aten_mm-forward-fc1-test_step-{name}.py" for name in ("convnet-b16-cpu", "lenet5-b16-cpu")
    ]
    assert "writing scripts that reproduce the slower operations" in heard.said
    assert {reproducer.script for reproducer in measured.end.reproducers} == {
        str(path) for path in folder.iterdir()
    }
    assert raw_samples.load(measured.path).end == measured.end


def test_scripts_lie_where_the_user_wants_them(gate, trials, slower_mm, tmp_path):
    measured = gate(trials=TRIALS, reproducers=tmp_path / "scripts")
    assert {Path(reproducer.script).parent for reproducer in measured.end.reproducers} == {
        tmp_path / "scripts"
    }


def test_without_a_slower_operation_no_process_describes_calls(gate, trials):
    trials.factors[SLOW] = 1.1
    measured = gate(trials=TRIALS)
    assert (trials.described, measured.end.reproducers) == ([], ())


def test_a_budget_that_is_used_up_is_why_there_is_no_script(gate, trials, slower_mm):
    def use_up():
        trials.clock += 10_000

    trials.before[TRIALS + 4] = use_up
    measured = gate(trials=TRIALS, budget_s=5_000)
    assert {reproducer.why_not for reproducer in measured.end.reproducers} == {
        "its calls could not be captured: the budget leaves no time for it; increase --budget"
    }
    assert trials.described == []


# ---- Causes --------------------------------------------------------------------------------------


def test_functions_of_what_is_slower_or_faster_are_profiled_once(gate, trials):
    trials.factors = {QUICK: 0.9, SLOW: 1.2}
    measured = gate(trials=TRIALS)
    assert trials.profiled == [[SLOW, QUICK]]  # the largest change first
    assert measured.end.profiles == {SLOW: PROFILE, QUICK: PROFILE}
    assert raw_samples.load(measured.path).end == measured.end


def test_without_a_finding_nothing_is_profiled(gate, trials):
    measured = gate(trials=TRIALS)
    assert (trials.profiled, measured.end.profiles) == ([], {})


def test_of_many_cases_those_of_the_largest_changes_are_profiled(gate, trials, monkeypatch):
    monkeypatch.setattr(causes, "MAX_PROFILED", 1)
    trials.factors = {QUICK: 1.1, SLOW: 1.2}
    measured = gate(trials=TRIALS)
    assert trials.profiled == [[SLOW]]
    assert measured.end.profiles[QUICK].why_not == "1 case is profiled at most"


def test_a_budget_that_is_used_up_is_why_there_is_no_cause(gate, trials):
    trials.factors[SLOW] = 1.1

    def use_up():
        trials.clock += 10_000

    trials.before[TRIALS + 4] = use_up
    measured = gate(trials=TRIALS, budget_s=5_000)
    assert trials.profiled == []
    assert "increase --budget" in measured.end.profiles[SLOW].why_not


def test_a_trial_that_fails_is_why_there_is_no_cause(gate, trials, monkeypatch):
    trials.factors[SLOW] = 1.1

    def fail(*_):
        raise GateError("head: was killed")

    monkeypatch.setattr(causes, "measure_profiles", fail)
    profile = gate(trials=TRIALS).end.profiles[SLOW]
    assert profile.why_not == "its functions could not be profiled: head: was killed"


def test_if_one_of_several_cases_fails_the_others_are_profiled_alone(gate, trials, monkeypatch):
    trials.factors = {QUICK: 1.1, SLOW: 1.2}

    def fail(plan, seed, cases, log, code):
        if SLOW in cases:
            raise GateError("head: has a profiler of its own")
        return dict.fromkeys(cases, PROFILE)

    monkeypatch.setattr(causes, "measure_profiles", fail)
    profiles = gate(trials=TRIALS).end.profiles
    assert profiles[QUICK] == PROFILE
    assert "has a profiler of its own" in profiles[SLOW].why_not


def test_a_budget_leaves_time_for_some_cases(gate, trials, monkeypatch):
    monkeypatch.setattr(budget, "_MIN_PROFILE_S", 2_000.0)
    trials.factors = {QUICK: 1.1, SLOW: 1.2}

    def use_up():  # the last fresh trial takes longer than expected
        trials.clock += 1_500.0

    trials.before[TRIALS + 4] = use_up
    profiles = gate(trials=TRIALS, budget_s=5_000).end.profiles
    assert profiles[SLOW] == PROFILE
    assert "increase --budget" in profiles[QUICK].why_not


def test_a_case_that_does_not_run_again_has_no_cause(gate, trials, monkeypatch):
    trials.factors[SLOW] = 1.1
    monkeypatch.setattr(causes, "measure_profiles", lambda *_: {})
    assert gate(trials=TRIALS).end.profiles[SLOW].why_not == "its test did not run again"


def test_a_cost_of_the_process_is_measured_again_with_all_cases(gate, trials):
    trials.once = {
        ("import", words.ALL_CASES): (50_000_000, 1.6),
        ("setup", SLOW): (50_000_000, 1.0),
    }
    measured = gate(trials=TRIALS)
    assert [only for _, _, only in trials.started] == [[QUICK, SLOW]] * (TRIALS + 4)
    first, second = quantities.quantities_of_stages(measured.trials)
    assert (
        {quantity.name for quantity in second if quantity.is_once}
        == {quantity.name for quantity in first if quantity.is_once}
        == {"import", "setup"}
    )
    assert raw_samples.load(measured.path) == measured


@pytest.mark.parametrize(
    ("factor", "again"), [(1.0, [f"t{number}" for number in range(4)]), (1.1, ["t5"])]
)
def test_the_memory_of_the_process_is_measured_again_with_few_cases(gate, trials, factor, again):
    names = [f"t{number}" for number in range(6)]
    trials.cases = {side: dict.fromkeys(names, PARAMS) for side in (BASE, HEAD)}
    trials.factors = {**dict.fromkeys(names, 1.0), "t5": factor}
    trials.once = {("resident memory", words.ALL_CASES): (10**9, 1.6)}
    measured = gate(trials=TRIALS)
    assert [only for _, _, only in trials.started] == [names] * TRIALS + [again] * 4
    names_of_second_stage = {
        quantity.name for quantity in quantities.quantities_of_stages(measured.trials)[1]
    }
    assert "resident memory" in names_of_second_stage


def test_a_cost_of_one_case_is_measured_again_with_this_case(gate, trials):
    trials.once = {
        ("import", words.ALL_CASES): (50_000_000, 1.0),
        ("setup", SLOW): (50_000_000, 1.6),
    }
    measured = gate(trials=TRIALS)
    assert [only for _, _, only in trials.started[TRIALS:]] == [[SLOW]] * 4
    # Costs of a process with other cases are other costs.
    assert {
        quantity.name
        for quantity in quantities.quantities_of_stages(measured.trials)[1]
        if quantity.is_once
    } == {"setup"}


def test_what_got_faster_is_measured_again_too(gate, trials):
    heard = Heard()
    trials.factors = {QUICK: 0.9, SLOW: 1.1}
    measured = gate(heard, trials=TRIALS)
    assert [list(trial.cases) for trial in measured.trials[TRIALS:]] == [[QUICK, SLOW]] * 12
    assert heard.said[-3:-1] == [
        "measuring 2 cases again, in fresh trials",
        "4 fresh trials are not enough to decide",
    ]


def test_fresh_trials_go_on_while_a_slowdown_is_neither_confirmed_nor_ruled_out(gate, trials):
    trials.factors[SLOW] = 1.1

    def be_the_same():
        trials.factors[SLOW] = 1.0

    trials.before[TRIALS + 1] = be_the_same
    assert stages_of(gate(trials=TRIALS)) == [1] * TRIALS + [2] * 12


def test_what_changed_by_less_than_matters_is_not_measured_again(gate, trials):
    trials.factors[SLOW] = 1.1
    assert stages_of(gate(trials=8, case=0.5, operation=0.5)) == [1] * 8


# ---- A budget ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "first", "fresh"),
    [
        (60.0, 2, 0),
        (300.0, 8, 0),
        (325.0, 8, 8),
        (360.0, 10, 4),
        (400.0, 10, 4),
    ],  # 5 s of loading, 25 s a trial, fresh ones 15 s
)
def test_a_budget_ends_the_first_stage_in_time_and_keeps_a_share_for_fresh_trials(
    gate, trials, budget, first, fresh
):
    heard = Heard()
    trials.factors[SLOW] = 1.1
    measured = gate(heard, trials=20, budget_s=budget)
    assert [stages_of(measured).count(stage) for stage in (1, 2)] == [first, fresh]
    assert trials.clock <= budget
    used_up = f"the budget allowed {first} of 20 trials"
    assert used_up in heard.said
    if first < MIN_TRIALS:
        assert measured.end.cut_short == used_up
    elif not fresh:
        assert measured.end.cut_short == heard.said[-1]
        assert (
            heard.said[-1]
            == "the budget leaves 95 s, and 8 fresh trials take about 120 s; increase --budget"
        )
        # With --inconclusive warn it does not pass: the slowdown may be there.
        assert not conclude(measured, JudgeOptions()).is_excusable
    else:
        assert measured.end.cut_short == ""
    assert not measured.end.broken_off


def test_a_budget_for_which_no_case_is_quick_enough_is_refused_before_it_is_measured(
    gate, trials, tmp_path
):
    trials.seconds = 1.0  # of two calls on a side
    trials.frameworks = {BASE: {}, HEAD: {}}  # so that nothing is profiled
    with pytest.raises(
        GateError,
        match=(
            r"^no case fits into --budget 9s: the survey and 8 trials, .*, of the quickest case "
            r"take about 221 s; "
            r"--budget \d+0s is expected to be enough for all cases$"
        ),
    ):
        gate(trials=8, budget_s=9.0)
    assert trials.started == []
    assert not [*(tmp_path / "storage").rglob("*.gz")]


def test_the_slowest_case_is_left_out_and_a_sufficient_budget_is_named(gate, trials):
    heard = Heard()
    trials.case_s = {QUICK: 2.0, SLOW: 60.0}
    measured = gate(heard, trials=TRIALS, budget_s=200.0)
    assert measured.end.left_out == (SLOW,)
    # The first trial has shown it.
    assert [*measured.trials[0].cases] == [QUICK, SLOW]
    assert all([*trial.cases] == [QUICK] for trial in measured.trials[1:])
    assert len(measured.trials) >= MIN_TRIALS
    assert trials.clock < 200.0
    name = measured.header.names[SLOW]
    assert f"the budget leaves no time for {name}" in heard.said
    verdict = conclude(measured, JudgeOptions())
    assert verdict.outcome == INCONCLUSIVE
    assert verdict.is_excusable
    assert verdict.unmeasured == ()
    [reason] = verdict.reasons
    assert reason.text == f"1 case is left out, because the budget is too small: {SLOW}"
    assert {estimate.quantity.case for estimate in verdict.decision.cases} == {QUICK}
    enough = measured.end.sufficient_s
    assert last_line(verdict).endswith(
        f"--budget {budget_text(enough)} is expected to be enough for all trials"
    )


@pytest.mark.parametrize(
    ("slow_s", "left_out"),
    [
        (9.0, ()),
        (16.0, (SLOW,)),
        (60.0, (SLOW,)),
    ],
)
def test_a_case_that_may_be_quicker_than_expected_is_tried_in_the_first_trial(
    gate, trials, slow_s, left_out
):
    heard = Heard()
    trials.frameworks = {BASE: {}, HEAD: {}}  # so that nothing is profiled
    trials.seconds_of = {SLOW: 1.0}  # so that 22 s of a trial are expected
    trials.case_s = {QUICK: 2.0, SLOW: slow_s}
    measured = gate(heard, trials=TRIALS, budget_s=175.0)
    assert measured.end.left_out == left_out
    assert [*measured.trials[0].cases] == [QUICK, SLOW]
    assert len(measured.trials) >= MIN_TRIALS
    later = [QUICK] if left_out else [QUICK, SLOW]
    assert all([*trial.cases] == later for trial in measured.trials[1:])
    assert any(text.startswith("the budget leaves no time") for text in heard.said) == bool(
        left_out
    )
    assert trials.clock <= 175.0


def test_a_case_that_does_not_fit_however_quick_its_trials_are_is_not_tried(gate, trials):
    trials.seconds_of = {SLOW: 2.7}
    trials.case_s = {QUICK: 2.0, SLOW: 9.0}
    measured = gate(trials=TRIALS, budget_s=175.0)
    assert measured.end.left_out == (SLOW,)
    assert all([*trial.cases] == [QUICK] for trial in measured.trials)


@pytest.mark.parametrize(
    ("case_s", "seconds"),
    [({}, {}), ({SLOW: 60.0}, {SLOW: 2.7}), ({QUICK: 2.0, SLOW: 2.5}, {QUICK: 0.1, SLOW: 0.1})],
)
@pytest.mark.parametrize("slower", [1.0, 1.1])
def test_the_budget_that_is_named_is_enough(gate, trials, case_s, seconds, slower):
    trials.case_s = case_s
    trials.seconds_of = seconds
    trials.factors[SLOW] = slower
    too_little = gate(trials=TRIALS, budget_s=80.0)
    assert conclude(too_little, JudgeOptions()).reasons
    trials.clock = 0.0
    enough_s = too_little.end.sufficient_s
    measured = gate(trials=TRIALS, budget_s=enough_s)
    assert measured.end.left_out == ()
    assert trials.clock <= enough_s
    verdict = conclude(measured, JudgeOptions())
    assert verdict.outcome == (REGRESSED if slower > 1 else PASSED)
    assert {*trials.profiled[-1]} == {SLOW} if slower > 1 else not trials.profiled


def test_flagged_cases_that_do_not_fit_are_left_to_the_surest(gate, trials):
    others = [f"bench/test_step.py::test_step[lenet5-b{size}-cpu]" for size in range(2, 7)]
    trials.cases = {side: dict.fromkeys((SLOW, *others), PARAMS) for side in (BASE, HEAD)}
    trials.factors = dict.fromkeys((SLOW, *others), 1.3)
    heard = Heard()
    # A trial of all takes 65 s, ten of them 650 s.
    measured = gate(heard, trials=TRIALS, budget_s=860.0)
    fresh = [trial for trial in measured.trials if trial.stage == 2]
    again = {case for trial in fresh for case in trial.cases}
    assert 1 <= len(again) < 6
    assert f"measuring {len(again)} of 6 cases again, in fresh trials" in heard.said
    assert trials.profiled
    verdict = conclude(measured, JudgeOptions())
    assert verdict.outcome == REGRESSED
    texts = [reason.text for reason in verdict.reasons]
    assert sum("the budget left no time to measure it again" in text for text in texts) >= 1
    assert not any("no usable sample" in text for text in texts)


def test_a_suite_that_fits_once_its_files_are_read_is_not_refused(gate, trials):
    trials.loading = 60.0  # from a cold disk, and of that 0.5 s are computed
    trials.loading_cpu = 0.5

    def read_files():
        trials.loading = 1.0

    trials.before[0] = read_files
    trials.of_case = 0.1
    measured = gate(trials=8, budget_s=80.0)
    assert len(measured.trials) == 8
    assert measured.end.cut_short == ""


def test_a_budget_makes_the_efforts_of_later_trials_smaller(gate, trials):
    trials.spent = (Efforts(0.25, 0.25), 8.0, 0.0)  # 8 of the 10 seconds of each case
    assert len(gate(trials=8, budget_s=1_000.0).trials) == 8
    assert {*trials.efforts} == {(0.25, 0.25)}
    trials.efforts.clear()
    trials.clock = 0.0
    gate(trials=8, budget_s=100.0)
    assert trials.efforts[0] == (0.25, 0.25)
    assert trials.efforts[1] == (MIN_EFFORT, MIN_EFFORT)


def test_a_run_says_what_its_time_went_to(gate, trials):
    trials.factors[SLOW] = 1.1
    end = gate(trials=8).end
    # Loading takes 5 s, a case 10 s; 8 fresh trials measure one case.
    assert end.parts_s == {
        "survey": 5.0,
        "starts": 40.0,
        "cases and fixtures": 160.0,
        "fresh trials": 120.0,
    }
    assert sum(end.parts_s.values()) == end.elapsed_s


def test_trials_are_as_many_as_reach_the_threshold_unless_a_number_is_given(
    gate, trials, monkeypatch
):
    monkeypatch.setattr(two_stages, "planned_trials", lambda *_: 13)
    assert stages_of(gate(trials=TRIALS)) == [1] * 13
    assert stages_of(gate(trials=TRIALS, given_fields=frozenset({"trials"}))) == [1] * 10
    assert stages_of(gate(trials=9)) == [1] * 9


def test_a_fresh_trial_that_takes_longer_than_expected_ends_the_run_in_time(gate, trials):
    trials.factors[SLOW] = 1.1

    def slow_down():
        trials.of_case = 40.0

    trials.before[9] = slow_down
    measured = gate(trials=8, budget_s=5.0 + 8 * 25.0 + 8 * 15.0)
    assert [stages_of(measured).count(stage) for stage in (1, 2)] == [8, 3]
    assert measured.end.cut_short == "the budget allowed 3 of 8 fresh trials"
    assert not measured.end.broken_off


def test_a_budget_that_is_enough_to_judge_but_for_fresh_trials_judges(gate, trials):
    measured = gate(trials=10, budget_s=trials.loading + MIN_TRIALS * 25.0)
    assert (stages_of(measured), measured.end.cut_short) == ([1] * MIN_TRIALS, "")


# ---- Qualifications ------------------------------------------------------------------------------


@pytest.fixture
def qualifying(gate, here, tmp_path, monkeypatch):
    """Qualify a machine of few gates."""
    monkeypatch.setattr(resampling, "GATES", 2)

    def qualified(progress=None, **changes):
        monkeypatch.chdir(here)
        options = GateOptions(**{"storage": tmp_path / "storage", **changes})
        return measurement.qualify(options, progress or Heard(), seed=100)

    return qualified


def test_a_qualification_measures_the_same_code(qualifying, trials):
    qualification = qualifying(trials=SIZE, given_fields=frozenset({"trials"}))
    measured = qualification.measured
    assert stages_of(measured) == [1] * SIZE
    assert measured.header.base == measured.header.head
    assert raw_samples.load(measured.path) == measured
    found = qualification.found
    assert [case["case"] for case in found["cases"]] == list(measured.header.labels.values())
    assert found["gate_seconds"] == trials.loading + TRIALS * 25.0
    assert (measured.end.cut_short, measured.end.elapsed_s) == ("", trials.clock)


@pytest.mark.parametrize(
    ("of_case", "budget", "same"),
    [
        (10.0, None, SIZE),
        (2.5, None, 45),
        (-1.0, None, measurement.MAX_TRIALS * SIZE),
        (2.5, 400, 30),
    ],
    ids=["long trials", "as many as ten minutes allow", "short trials", "a budget"],
)
def test_a_qualification_takes_about_ten_minutes_or_the_budget(
    qualifying, trials, of_case, budget, same
):
    trials.of_case = of_case
    heard = Heard()
    qualification = qualifying(progress=heard, budget_s=budget)
    assert stages_of(qualification.measured).count(1) == same
    assert qualification.found
    assert trials.clock <= (budget or max(measurement.QUALIFYING_S, 700))
    assert heard.trials[1][0] == f"trial 2 of {same}"


def test_the_time_of_a_gate_is_that_of_the_survey_and_of_its_usual_trials(qualifying, monkeypatch):
    passed = []
    monkeypatch.setattr(measurement, "resample", lambda *arguments: passed.append(arguments) or {})
    qualifying(trials=SIZE, given_fields=frozenset({"trials"}))
    [(_, _, gate_s, _)] = passed
    # 10 trials of two cases of 10 s, and loading before them and in the survey
    assert gate_s == pytest.approx(255.0)


def test_a_budget_that_is_too_small_to_qualify_is_the_reason(qualifying, tmp_path):
    qualification = qualifying(budget_s=400)
    reason = "the budget allowed 15 of 22 trials"
    assert (qualification.measured.end.cut_short, qualification.found) == (reason, {})
    assert qualification.sentence() == f"this runner is not qualified: {reason}"
    assert not qualification.path.exists()


@pytest.mark.parametrize("in_resampling", [False, True])
def test_an_interrupted_qualification_keeps_its_trials(
    qualifying, trials, monkeypatch, in_resampling
):
    if in_resampling:
        monkeypatch.setattr(measurement, "resample", lambda *_: raising(KeyboardInterrupt)())
    else:
        trials.before[5] = raising(KeyboardInterrupt)
    qualification = qualifying()
    measured = qualification.measured
    assert len(measured.trials) == (SIZE if in_resampling else 4)
    assert (measured.end.cut_short, qualification.found) == ("interrupted", {})


def test_a_result_that_cannot_be_saved_is_reported(qualifying, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mnistbench.gate.qualification.result.replace_file", full)
    heard = Heard()
    qualification = qualifying(progress=heard)
    assert qualification.found
    assert heard.said[-1] == (
        f"{qualification.path} cannot be written (No space left on device), so later gates do not "
        "state this result"
    )


def test_the_report_of_a_later_gate_states_the_qualification_of_the_machine(
    qualifying, gate, monkeypatch
):
    qualification = qualifying()
    day = qualification.measured.header.started[:10]

    def lines_of_gate():
        later = gate(trials=8)
        return with_qualification(report(conclude(later, JudgeOptions())), later).blocks[0].lines

    assert lines_of_gate()[-1] == qualification.sentence(day)
    assert lines_of_gate()[-1].startswith(f"this runner was qualified on {day}: it rules out ")
    monkeypatch.setattr(surveying, "cpu_model", lambda: "Xeon")
    assert not any("qualified" in line for line in lines_of_gate())


# ---- Early ends ----------------------------------------------------------------------------------


def test_each_trial_is_in_the_file_as_soon_as_it_has_ended(gate, trials, tmp_path):
    trials.before[3] = raising(ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        gate()
    [path] = (tmp_path / "storage/gate").iterdir()
    recorded = raw_samples.load(path)
    assert list(recorded.header.labels) == [QUICK, SLOW]
    assert (len(recorded.trials), recorded.end) == (2, NO_END)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_trial_that_makes_no_sense_spoils_no_file(gate, trials, tmp_path):
    trials.changes[3] = {"seconds": "long"}
    measured = gate()
    assert measured.end.cut_short.startswith("the result of a trial cannot be used: seconds: ")
    [path] = (tmp_path / "storage/gate").iterdir()
    assert len(raw_samples.load(path).trials) == 2


@pytest.mark.parametrize("number", [1, 3, 10])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), GateError("a trial was killed by SIGKILL")], ids=str
)
def test_what_was_measured_before_an_early_end_is_kept(gate, trials, error, number):
    trials.factors[SLOW] = 1.1
    trials.before[number] = raising(error)
    if number == 1 and isinstance(error, GateError):
        with pytest.raises(GateError, match=str(error)):
            gate(trials=8)
        return
    measured = gate(trials=8)
    assert len(measured.trials) == number - 1
    ended = End(str(error) or "interrupted", broken_off=True, elapsed_s=trials.clock)
    assert replace(measured.end, parts_s={}) == ended
    assert raw_samples.load(measured.path) == measured
    assert trials.running == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GateError("base: no good")], ids=str)
def test_what_ends_the_survey_ends_the_gate_and_leaves_nothing(gate, trials, tmp_path, error):
    trials.before[0] = raising(error)
    with pytest.raises(type(error), match=f"^{error}$"):
        gate()
    assert [*tmp_path.glob("storage/gate/*"), *tmp_path.glob("tmp/*")] == []
    assert trials.running == 0


BOOM = "RuntimeError: boom"


def test_a_test_that_fails_on_both_sides_is_left_out(gate, trials):
    trials.failed = {BASE: {SLOW: BOOM}, HEAD: {SLOW: BOOM}}
    recorded = gate(trials=8)
    assert list(recorded.header.labels) == [QUICK]
    assert recorded.unmeasurable == {SLOW: f"fails: {BOOM}"}
    assert [reason.text for reason in conclude(recorded, JudgeOptions()).reasons] == [
        f"not measured: {SLOW}: fails: {BOOM}; add --allow-missing to judge without it"
    ]
    assert conclude(recorded, JudgeOptions(allow_missing=True)).reasons == ()


def test_a_test_that_fails_in_the_head_alone_is_a_reason_in_any_case(gate, trials):
    trials.failed[HEAD] = {SLOW: BOOM}
    verdict = conclude(gate(trials=8), JudgeOptions(allow_missing=True))
    assert [reason.text for reason in verdict.reasons] == [
        f"fails in the head alone: {SLOW}: {BOOM}"
    ]


def test_a_test_that_fails_in_the_base_alone_is_left_out(gate, trials):
    trials.failed[BASE] = {SLOW: BOOM}
    verdict = gate(trials=8)
    assert verdict.unmeasurable == {SLOW: f"in the base: fails: {BOOM}"}


def test_if_all_tests_fail_each_is_named(gate, trials):
    trials.failed = {side: {SLOW: BOOM, QUICK: BOOM} for side in (BASE, HEAD)}
    reason = f"no case can be measured: {SLOW}, {QUICK}: fails: {BOOM}"
    with pytest.raises(GateError, match=f"^{re.escape(reason)}$"):
        gate(trials=8)


# ---- Storage that fails --------------------------------------------------------------------------


@pytest.fixture
def gate_command(gate, trials, here, tmp_path, monkeypatch, capsys):
    """Run the command with these trials; return its exit code, report and samples' path."""
    monkeypatch.chdir(here)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def run():
        options = ["--base", str(tmp_path / "base"), "--storage", str(tmp_path / "storage")]
        code = cli.main(["gate", *options, "--trials=9"])
        printed = capsys.readouterr()
        [path] = re.findall(r"^raw samples: (.*?); ", printed.err, re.MULTILINE)
        assert "Traceback" not in printed.err
        assert trials.running == 0
        return code, printed.out, Path(path)

    return run


def test_a_gate_whose_disk_gets_full_reports_and_keeps_what_it_has_measured(
    gate_command, trials, tmp_path
):
    with ExitStack() as full:

        def fill():
            [path] = (tmp_path / "storage/gate").iterdir()
            full.enter_context(largest_file(path.stat().st_size + 500))

        trials.before[9] = fill
        code, shown, path = gate_command()
    reason = f"{path}: cannot be written ({NO_ROOM}); free some space, or give another --storage"
    assert (code, shown.splitlines()[-1]) == (EXIT_INCONCLUSIVE, f"inconclusive: {reason}")
    assert re.search("^measured: 2 cases, 9 trials", shown, re.MULTILINE)
    kept = raw_samples.load(path)
    assert len(kept.trials) == 8
    assert (kept.end.cut_short, kept.end.broken_off) == (reason, True)


def test_a_gate_whose_storage_is_removed_reports_what_it_has_measured(
    gate_command, trials, tmp_path
):
    trials.before[9] = lambda: shutil.rmtree(tmp_path / "storage")
    code, shown, path = gate_command()
    reason = (
        "cannot be written (No such file or directory); free some space, or give another --storage"
    )
    assert (code, shown.splitlines()[-1]) == (EXIT_INCONCLUSIVE, f"inconclusive: {path}: {reason}")
    assert re.search("^measured: 2 cases, 9 trials", shown, re.MULTILINE)
    assert not path.exists()


def test_storage_that_is_removed_at_the_end_leaves_the_regression_in_the_report(
    gate_command, trials, tmp_path, monkeypatch
):
    trials.factors[SLOW] = 1.2

    def remove(*_):
        shutil.rmtree(tmp_path / "storage")
        return {}

    monkeypatch.setattr(flow, "profiles_of", remove)
    code, shown, path = gate_command()
    assert code == EXIT_REGRESSED
    assert shown.splitlines()[-1].startswith("regressed: ")
    assert f"{path}: cannot be written (No such file or directory)" in shown
    assert not path.exists()


# ---- The file's name -----------------------------------------------------------------------------


@pytest.fixture
def stopped(monkeypatch):
    """A calendar that stands still."""

    class Calendar(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 11, 20, 10, 31, 5, tzinfo=tz)

    monkeypatch.setattr(raw_samples, "datetime", Calendar)
    monkeypatch.setattr(surveying, "datetime", Calendar)


@pytest.mark.usefixtures("stopped")
def test_a_second_file_of_a_second_gets_another_name(gate):
    measured = [gate(trials=8) for _ in range(3)]
    assert [gate_run.path.name for gate_run in measured] == [
        "20261120_103105.jsonl.gz",
        "20261120_103105_1.jsonl.gz",
        "20261120_103105_2.jsonl.gz",
    ]
    assert all(len(raw_samples.load(gate_run.path).trials) == 8 for gate_run in measured)
    assert measured[0].header.started == datetime(2026, 11, 20, 10, 31, 5, tzinfo=UTC).isoformat()


@pytest.mark.usefixtures("stopped")
def test_a_hundred_files_of_a_second_are_enough(gate, trials, tmp_path):
    folder = tmp_path / "storage/gate"
    folder.mkdir(parents=True)
    for number in range(100):
        (folder / f"20261120_103105{f'_{number}' if number else ''}.jsonl.gz").touch()
    with pytest.raises(UsageError) as raised:
        gate()
    assert str(raised.value) == f"{folder}: has 100 files of this second; run the gate again"
    assert trials.started == []


# ---- What cannot be used -------------------------------------------------------------------------


# ---- Paths among the arguments of pytest ---------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("bench/test_step.py::test_step[a::b]",),
        ("bench", "-k", "step"),
        ("-k", "nothing.py"),  # the value of an option
        ("@arguments.txt",),  # pytest reads a file with arguments
        ("--pyargs", "package.tests"),
    ],
)
def test_arguments_that_name_something_are_measured(gate, trials, here, arguments):
    (here / "arguments.txt").write_text("bench\n")
    assert gate(pytest=arguments, trials=8).trials


@pytest.mark.parametrize("path", ["bench/test_setp.py", "bench/test_setp.py::test_step", "tets"])
def test_a_path_that_neither_side_has_is_one_line_before_a_side_is_loaded(gate, trials, path):
    with pytest.raises(GateError, match=rf"^neither side has {re.escape(path)}; name files and "):
        gate(pytest=("-q", "bench", path), trials=8)
    assert trials.looked == []
