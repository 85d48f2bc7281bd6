"""What gates find on a machine, resampled from trials that are made up.

The report, and who finds it again.
"""

import dataclasses
import itertools
import json
import math
import re
from types import SimpleNamespace

import forks
import gate_builders
import numpy as np
import pytest
from gate_builders import CASE, LABEL, Measured, quantity, recorded, series

from mnistbench.core.errors import UsageError
from mnistbench.gate.commands.gate import Settings
from mnistbench.gate.decide.statistics import quantities
from mnistbench.gate.decide.verdict.findings import checkpoints
from mnistbench.gate.options import TRIALS, Thresholds
from mnistbench.gate.qualification import resampling
from mnistbench.gate.qualification.report import report
from mnistbench.gate.qualification.resampling import (
    AMOUNTS,
    Pool,
    is_found,
    least_trials,
    resample,
    share,
)
from mnistbench.gate.qualification.result import PREFIX, Qualification, newest, with_qualification
from mnistbench.gate.samples import raw_samples
from mnistbench.gate.samples.raw_samples import INTERRUPTED, End
from mnistbench.judging.verdicts import INCONCLUSIVE, PASSED, REGRESSED
from mnistbench.showing.output import EXIT_INCONCLUSIVE, EXIT_PASSED, render
from mnistbench.showing.report import Block, Report

SLOW = "bench/test_step.py::test_step[lenet5-b16-cpu]"
LIMITS = Thresholds()
LEAST = least_trials(LIMITS)

#: Gates of a qualification that has no time for more, with each slowdown of one of two cases.
FEW = 6


@pytest.fixture(autouse=True, scope="module")
def _few_gates():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampling, "GATES", 10 * FEW)
        yield


def always():
    return True


def never():
    return False


def logs(spread, *, count=40, seed=1, mean=0.0):
    return tuple(np.random.default_rng(seed).normal(mean, spread, count))


def pool(spread=0.004, **changes):
    """A pool of one case by two clocks."""
    wall = logs(spread, **changes)
    return Pool([quantity(wall), quantity(wall, name="cpu")])


def outcomes(gates):
    return [decision.outcome for _, decision in gates]


# ---- Gates ---------------------------------------------------------------------------------------


def test_a_gate_with_the_roles_as_recorded_takes_consecutive_trials():
    numbers = tuple(number / 1_000 for number in range(40))
    _, decision = Pool([quantity(numbers)]).gate(Thresholds(case=1.0), start=3)
    assert decision.trials == TRIALS
    assert decision.cases[0].change == pytest.approx(math.expm1(np.mean(numbers[3 : 3 + TRIALS])))


def test_an_error_of_the_roles_shows_only_with_the_roles_as_recorded():
    biased = pool(mean=0.05)
    assert (
        outcomes(biased.gate(LIMITS, start=start) for start in range(0, 18, 6)) == [REGRESSED] * 3
    )
    assert REGRESSED not in outcomes(biased.gate(LIMITS) for _ in range(30))


def test_drawn_gates_begin_at_any_trial_and_go_on_at_the_first_one():
    differences = [0.0] * 40
    # Of windows that do not go round, few have one of these, and none has both.
    differences[0] = differences[39] = 1.0
    gates = [
        Pool([quantity(tuple(differences))], seed).gate(Thresholds(case=10.0))[1]
        for seed in range(200)
    ]
    changed = {round(math.log1p(gate.cases[0].change) * TRIALS) for gate in gates}
    assert changed == {-2, -1, 0, 1, 2}


def test_added_time_counts_by_all_clocks_and_in_the_case_of_its_operation():
    still = logs(1e-6)
    case = quantity(still)
    cpu = quantity(still, name="cpu")
    other_case = quantity(still, case="other")
    operation = quantity(still, kind="operation")  # a quarter of its case
    everything = Pool([case, cpu, other_case, operation])

    def changes(hit):
        decision = everything.gate(LIMITS, hit, 0.08)[1]
        changes_by_key = {
            estimate.quantity.key: estimate.change
            for estimate in (*decision.cases, *decision.operations)
        }
        return [changes_by_key[measured.key] for measured in everything.quantities]

    assert changes(case) == pytest.approx([0.08, 0.08, 0, 0], abs=1e-4)
    assert changes(operation) == pytest.approx([0.02, 0.02, 0, 0.08], abs=1e-4)


def test_a_cost_that_occurs_once_is_longer_by_its_part_of_what_is_compared():
    once = quantity(logs(1e-6), kind="once", base=float(quantities.MIN_ONCE_NS))
    memory = quantity(logs(1e-6), kind="memory", base=1e9)
    drawn = Pool([once, memory])
    for hit, change in ((once, 0.04), (memory, 0.08)):
        assert [
            estimate.change
            for estimate in drawn.gate(LIMITS, hit, 0.08)[1].once
            if estimate.quantity.key == hit.key
        ] == [pytest.approx(change, rel=0.02)]


@pytest.mark.parametrize(("spread", "count"), [(0.002, 20), (0.2, 0)])
def test_a_slowdown_is_found_if_the_trials_are_quiet(spread, count):
    drawn = pool(spread)
    hit = drawn.quantities[0]
    assert sum(is_found(drawn.gate(LIMITS, hit, 0.05)[1], hit) for _ in range(20)) == count


@pytest.mark.parametrize(("trials", "fresh"), [(8, 8), (9, 8), (10, 4), (20, 4)])
def test_fresh_trials_are_first_judged_when_they_can_confirm(trials, fresh):
    drawn = pool()
    _, decision = drawn.gate(LIMITS, drawn.quantities[0], 0.1, trials=trials)
    assert (decision.outcome, decision.fresh) == (REGRESSED, fresh)


def test_a_gate_with_a_small_threshold_has_more_trials():
    small = Thresholds(case=0.005)
    assert least_trials(small) > least_trials(LIMITS)
    trials = pool()
    _, decision = trials.gate(small, trials.quantities[0], 0.1)
    assert decision.fresh == checkpoints(small)[0] > checkpoints(LIMITS)[0]


def test_only_the_case_that_is_slower_counts_as_found():
    drawn = Pool([quantity(logs(0.002)), quantity(logs(0.002, seed=2), case="other")])
    decision = drawn.gate(LIMITS, drawn.quantities[0], 0.05)[1]
    assert [is_found(decision, hit) for hit in drawn.quantities] == [True, False]


def test_a_share_has_its_exact_interval():
    assert share(0, 40) == "0.0 % (0.0 % to 8.8 %)"
    assert share(61, 100) == "61.0 % (50.7 % to 70.6 %)"  # R: binom.test(61, 100)


# ---- Qualifications ------------------------------------------------------------------------------


def trials(**cases):
    """Trials of the same code."""
    measured = cases or {CASE: Measured(operations={}), SLOW: Measured(operations={})}
    return series(measured, count=LEAST + 2)


def qualified(measured, limits=LIMITS, may_go_on=never, **header):
    """A qualification of few gates, unless there is time."""
    measurement = recorded(
        measured,
        labels={CASE: LABEL, SLOW: "step lenet5-b16-cpu on digits"},
        machine="EPYC, 2 cores",
        **header,
    )
    measurement.end = End(elapsed_s=600.0)
    return Qualification(measurement, resample(measurement, limits, 244.0, may_go_on))


@pytest.fixture(scope="module")
def quiet():
    return qualified(trials())


def noisy(spread):
    return trials(**{CASE: Measured(operations={}, spread=spread), SLOW: Measured(operations={})})


def test_a_quiet_machine_is_qualified(quiet):
    data = quiet.found
    assert 0 < data["rules_out"] < 0.01
    # A tenth of them, because there is no time for more.
    assert (data["gates"], data["regressed"]) == (2 * FEW, 0)
    assert (data["windows"], data["windows_regressed"]) == (3, 0)
    assert data["added"] == list(AMOUNTS)
    assert data["found"] == [
        sum(column) for column in zip(*(case["found"] for case in data["cases"]), strict=True)
    ]
    assert data["found"][2:] == [FEW] * 2
    assert [case["gates"] for case in data["cases"]] == [FEW // 2] * 2
    assert (data["reasons"], data["improvements"]) == ([], [])
    outcome, shown = report(quiet, 10)
    assert outcome == PASSED
    last = render(shown, "terminal").splitlines()[-1]
    assert re.fullmatch(
        r"this runner is qualified: it rules out 0\.\d % in 244 s; it finds \+1\.0 % in .*, "
        r"\+2\.0 % in .*, \+5\.0 % in 100\.0 % \(54\.1 % to 100\.0 %\), .* of gates; false alarms "
        r"in 0\.0 % \(0\.0 % to 26\.5 %\) of 12 resampled gates, of which \d+\.\d % are "
        r"inconclusive, and in 0 of 3 with the roles as recorded",
        last,
    )


def test_false_alarms_are_counted_with_drawn_roles_and_with_those_recorded(monkeypatch):
    numbers = itertools.count()
    gate = Pool.gate

    def alarming(self, limits, hit=None, change=0.0, **options):
        flagged, decision = gate(self, limits, hit, change, **options)
        alarm = hit is None and "start" not in options and next(numbers) % 3 == 0
        finding = SimpleNamespace(is_slower=True, quantity=SimpleNamespace(is_case=False))
        findings = (finding,) if alarm else decision.findings
        return flagged, dataclasses.replace(decision, findings=findings)

    monkeypatch.setattr(Pool, "gate", alarming)
    slower = trials(**{CASE: Measured(operations={}, factor=1.05), SLOW: Measured(operations={})})
    qualification_run = qualified(slower)
    data = qualification_run.found
    assert (data["gates"], data["regressed"], data["windows"], data["windows_regressed"]) == (
        12,
        4,
        3,
        3,
    )
    last = qualification_run.sentence()
    # R: binom.test(4, 12).
    assert "false alarms in 33.3 % (9.9 % to 65.1 %) of 12 resampled gates" in last
    assert last.endswith("and in 3 of 3 with the roles as recorded")


def test_with_time_there_are_ten_times_as_many(monkeypatch):
    monkeypatch.setattr(resampling, "GATES", 30)
    data = qualified(trials(), may_go_on=always).found
    assert data["gates"] == 60
    assert [case["gates"] for case in data["cases"]] == [15, 15]


def test_the_thresholds_are_the_users():
    assert qualified(trials(), Thresholds(case=0.5)).found["found"] == [0] * 4


def test_a_noisy_machine_is_not_qualified_and_the_report_names_the_noisiest_case():
    qualification_run = qualified(noisy(0.5))
    assert qualification_run.found["inconclusive"] == 2 * FEW
    outcome, shown = report(qualification_run, 1)
    assert outcome == INCONCLUSIVE
    text = render(shown, "terminal")
    why = f"it cannot rule out +10.0 %, and it finds +10.0 % in {LABEL} in 0 of 3 gates"
    assert f"this runner is not qualified, because {why}: " in text
    assert f"the noisiest case is {LABEL}: " in text
    assert re.search(r"about \d{2,} --trials would rule out 2\.0 %", text)
    table = text.partition("cases, the noisiest first")[2].partition("\n\n")[0]
    assert LABEL in table
    assert "lenet5" not in table  # --top 1


def test_a_machine_with_more_cases_than_gates_is_judged_by_all_cases_together():
    cases = [{"case": f"{number}", "gates": number % 2, "found": [0] * 4} for number in range(40)]
    data = {"rules_out": 0.05, "gates": 40, "found": [0, 0, 2, 9], "cases": cases}
    assert list(resampling._reasons(data)) == ["it finds +10.0 % in a case in 9 of 20 gates"]
    assert list(resampling._reasons({**data, "found": [0, 0, 2, 19]})) == []


def test_other_programs_are_named_if_they_had_the_core():
    side = gate_builders.side(operations={}, queued_ns=(240_000,) * 5)  # 6 %
    busy = [
        dataclasses.replace(
            measured,
            cases={
                case: [dict.fromkeys(build, side) for build in builds]
                for case, builds in measured.cases.items()
            },
        )
        for measured in trials()
    ]
    assert (
        "other programs had the core for 6.0 % of the time" in qualified(busy).found["improvements"]
    )


def test_the_time_in_which_others_had_the_core_is_read_from_the_samples(tmp_path):
    path = tmp_path / "raw.jsonl.gz"
    [measured] = series(count=1)
    line = gate_builders.line(measured)
    for build in line["cases"][CASE]:
        for stored in build.values():
            stored["queued_ns"] = [ns // 4 for ns in stored["wall_ns"]]
    gate_builders.write_lines(path, gate_builders.header().line(), line)
    [read] = raw_samples.load(path).trials
    assert [side.queued for build in read.cases[CASE] for side in build.values()] == pytest.approx(
        [0.25] * 4
    )


def test_cases_without_times_cannot_be_judged():
    empty = qualified(trials(**{CASE: Measured(ns=0, operations={})}))
    outcome, shown = report(empty, 10)
    assert (empty.found, outcome) == ({}, INCONCLUSIVE)
    assert shown.heading == "this runner is not qualified: no case has usable times in every trial"


def test_a_case_that_cannot_be_measured_is_named_and_says_nothing_of_the_machine():
    measured = recorded(
        series(count=3), unmeasurable={"t.py::t": "its function only creates a coroutine"}
    )
    assert "Not measured:\nt.py::t: its function only creates a coroutine\n" in render(
        report(Qualification(measured), 10)[1], "terminal"
    )
    first, *rest = trials(**{CASE: Measured(operations={}), SLOW: Measured(operations={})})
    lacking = dataclasses.replace(
        first, cases={CASE: first.cases[CASE]}, unmeasurable={SLOW: "its id differs"}
    )
    assert qualified([lacking, *rest]).found["reasons"] == []


def test_a_case_without_times_is_a_reason():
    qualification_run = qualified(
        trials(**{CASE: Measured(ns=0, operations={}), SLOW: Measured(operations={})})
    )
    assert qualification_run.found["reasons"] == [f"{LABEL} has no usable time in every trial"]
    assert [case["case"] for case in qualification_run.found["cases"]] == [
        "step lenet5-b16-cpu on digits"
    ]


def test_an_interrupted_qualification_gives_its_reason():
    outcome, shown = report(Qualification(recorded(series(count=3), end=INTERRUPTED)), 10)
    assert (outcome, shown.heading) == (INCONCLUSIVE, "this runner is not qualified: interrupted")
    assert json.loads(shown.json)["found"] is None


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_the_report_has_a_row_for_each_case(quiet, form):
    text = render(report(quiet, 10)[1], form)
    assert "5d6e7f8 with changes on both sides, EPYC, 2 cores" in text
    assert "measured: 2 cases, 24 trials, 600 s from start to finish" in text
    for name in (LABEL, "step lenet5-b16-cpu on digits"):
        assert re.search(
            (rf"{re.escape(name)} .* {FEW // 2} of {FEW // 2}"),
            text,
        )


# ---- Who finds it again --------------------------------------------------------------------------


@pytest.fixture
def folder(quiet, tmp_path):
    """Files of qualifications of two days."""
    (tmp_path / f"{PREFIX}20261125_100000.json").write_bytes(b"damaged")
    (tmp_path / f"{PREFIX}20261126_100000.json").write_text('{"another": "version"}')
    for day, run in (("2026-11-23", qualified(noisy(0.5))), ("2026-11-24", quiet)):
        header = dataclasses.replace(run.measured.header, started=f"{day}T10:00:00+00:00")
        path = tmp_path / f"{day.replace('-', '')}_100000{raw_samples.ENDING}"
        Qualification(dataclasses.replace(run.measured, path=path, header=header), run.found).save()
    return tmp_path


def newest_of(folder, quiet):
    return newest(folder, quiet.measured.header.machine, list(quiet.measured.header.labels))


def test_the_newest_qualification_of_a_machine_is_found(folder, quiet):
    assert newest_of(folder, quiet) == quiet.sentence("2026-11-24")
    assert newest_of(folder, quiet).startswith("this runner was qualified on 2026-11-24: it rules ")


def test_a_qualification_of_another_machine_or_of_other_cases_is_not(folder, quiet):
    header = quiet.measured.header
    assert newest(folder, "EPYC, 4 cores", list(header.labels)) == ""
    assert newest(folder, header.machine, [CASE]) == ""
    assert newest_of(folder / "nowhere", quiet) == ""


def test_a_report_states_it_after_what_it_says_of_the_machine(folder, quiet):
    shown = Report("passed", [Block("", ("cpu: AVX512",)), Block("Verdict", ("passed",))])
    gate = dataclasses.replace(quiet.measured, path=folder / "20261127_100000.jsonl.gz")
    head, verdict = with_qualification(shown, gate).blocks
    assert head.lines == ("cpu: AVX512", quiet.sentence("2026-11-24"))
    assert verdict == shown.blocks[1]
    assert with_qualification(shown, dataclasses.replace(gate, shards=(gate, gate))) == shown


# ---- Wrong usage ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"base": "main"}, {"head_env": (("A", "1"),)}, {"base_python": "python3"}],
    ids=str,
)
def test_both_sides_are_the_working_tree(changes):
    with pytest.raises(
        UsageError,
        match=(
            r"^--qualify: measures the working tree on both sides; remove the options of base and "
            r"head$"
        ),
    ):
        Settings(qualify=True, **changes)


def test_fewer_trials_than_a_gate_may_take_are_refused():
    with pytest.raises(
        UsageError, match=r"^--trials: 21 are too few for --qualify; give at least 22$"
    ):
        Settings(qualify=True, trials=21, given_fields=frozenset({"trials"}))


# ---- A real one ----------------------------------------------------------------------------------

PLAIN = """
def work(number):
    return sum(each * each for each in range(number))


def test_plain(benchmark):
    benchmark(work, 20_000)
"""


@pytest.mark.thorough
def test_a_plain_test_is_qualified_and_a_later_gate_states_it(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "test_plain.py").write_text(PLAIN, encoding="utf-8")
    done = forks.run(
        "mnistbench", "gate", "--qualify", "--trials", "22", "--", "test_plain.py", cwd=tmp_path
    )
    assert "Traceback" not in done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    [path] = (tmp_path / ".benchmarks/gate").glob(f"*{raw_samples.ENDING}")
    measurement = raw_samples.load(path)
    assert (len(measurement.trials), measurement.header.sides.frameworks) == (22, {})
    # How noisy this machine is decides whether it is qualified; that must be the reason.
    is_qualified = done.returncode == EXIT_PASSED
    assert is_qualified or done.returncode == EXIT_INCONCLUSIVE, done.stdout
    assert last.startswith(
        "this runner is qualified: it rules out "
        if is_qualified
        else "this runner is not qualified, because "
    )
    arguments = (
        "gate",
        "--head-env",
        "A=1",
        "--trials",
        "8",
        "--inconclusive",
        "warn",
        "--",
        "test_plain.py",
    )
    later = forks.run("mnistbench", *arguments, cwd=tmp_path)
    stated = re.sub(
        r"is ((?:not )?qualified)", rf"was \1 on {measurement.header.started[:10]}", last, count=1
    )
    assert stated in later.stdout.splitlines()
