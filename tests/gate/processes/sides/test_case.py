"""A call of pytest-benchmark's fixture is run as it would run it, and clocked alone."""

import functools
import gc
import itertools
import random
import sys
from pathlib import Path

import pytest
from gate_builders import both
from pytest_benchmark.fixture import FixtureAlreadyUsed

from mnistbench.gate.processes.iterations import SAMPLE_NS
from mnistbench.gate.processes.sides import steps
from mnistbench.gate.processes.sides.case import PlainCase, SideCase, own_threads
from mnistbench.gate.processes.sides.side import Side
from mnistbench.gate.words import BASE, HEAD
from mnistbench.measuring.calls import Call, intercept, refuse_weave
from mnistbench.measuring.timing import WARMUP_ITERATIONS, Clock, Sample


def case(function, *args, **more):
    plain_case = PlainCase(Call(function, args, **more), threads=1)
    plain_case.build()
    return plain_case


def iteration(plain_case):
    plain_case.prepare()
    sample = plain_case.clocked()
    plain_case.finish()
    return sample


class TestCalls:
    def test_an_iteration_repeats_the_call(self):
        seen = []
        plain_case = case(seen.append, 3)
        plain_case.loops = 5
        iteration(plain_case)
        assert seen == [3] * 5

    def test_setup_makes_the_arguments_of_each_iteration_and_teardown_gets_them(self):
        seen = []
        setups = iter(range(10))
        plain_case = case(
            lambda *args, **kwargs: seen.append(("call", args, kwargs)),
            setup=lambda: ((next(setups),), {"key": 1}),
            teardown=lambda *args, **kwargs: seen.append(("teardown", args, kwargs)),
        )
        iteration(plain_case)
        iteration(plain_case)
        assert seen == [
            (what, (number,), {"key": 1}) for number in (0, 1) for what in ("call", "teardown")
        ]

    def test_setup_and_teardown_are_outside_of_the_time(self, monkeypatch):
        now_ns = [0]

        def spend(ns):
            now_ns[0] += ns

        monkeypatch.setattr(Clock, "wall_ns", lambda: now_ns[0])
        with_both = case(lambda: spend(3), setup=lambda: spend(500), teardown=lambda: spend(70))
        assert iteration(with_both).wall_ns == 3
        assert now_ns == [573]

    def test_arguments_from_the_test_and_from_setup_are_refused_as_by_pytest_benchmark(self):
        with pytest.raises(
            TypeError, match="Can't use `args` or `kwargs` if `setup` returns the arguments"
        ):
            case(print, 1, setup=lambda: ((2,), {})).prepare()

    def test_only_a_call_without_setup_and_teardown_can_loop_within_an_iteration(self):
        assert case(int).can_loop
        assert not case(int, setup=lambda: None).can_loop
        assert not case(int, teardown=lambda: None).can_loop

    def test_warm_up_rounds_beyond_those_of_the_gate_are_run(self):
        seen = []
        case(seen.append, 1, warmup_rounds=7)
        assert len(seen) == 7 - WARMUP_ITERATIONS

    @pytest.mark.parametrize("collects", [True, False])
    def test_garbage_is_collected_unless_the_test_says_otherwise(self, collects):
        seen = []
        plain_case = case(lambda: seen.append(gc.isenabled()), collects_garbage=collects)
        iteration(plain_case)
        assert seen == [collects]
        assert gc.isenabled()

    def test_a_tracer_is_paused(self):
        tracer = sys.gettrace()
        seen = []
        sys.settrace(lambda *_: None)
        try:
            iteration(case(lambda: seen.append(sys.gettrace())))
            assert sys.gettrace() is not None
        finally:
            sys.settrace(tracer)
        assert seen == [None]


class TestResults:
    def test_generators_are_seeded_before_each_result(self):
        plain_case = case(random.random)
        assert plain_case.result() == plain_case.result()
        assert plain_case.outcome() == plain_case.outcome() != ("", 0.0)

    def test_what_cannot_be_compared_never_differs(self):
        assert case(object).outcome() == case(lambda: [object()]).outcome() == ("", 0.0)

    def test_arguments_and_what_the_function_refers_to_have_a_fingerprint(self):
        data = [2, 1]
        calls = [
            case(sorted, data),
            case(data.sort),
            case(lambda: data.sort() or 1),
            case(functools.partial(sorted, data)),
        ]
        before = [plain_case.arguments() for plain_case in calls]
        data.sort()
        assert all(
            plain_case.arguments() != earlier
            for plain_case, earlier in zip(calls, before, strict=True)
        )

    def test_arguments_are_read_without_code_of_the_user(self):
        class Computing:
            def __call__(self):
                return 1

            def __getattribute__(self, name):
                raise AssertionError(name)

        assert case(Computing()).arguments() == case(Computing()).arguments()


class TestOperations:
    def test_a_process_without_torch_has_none(self, monkeypatch):
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        assert not case(lambda: 1).has_operations

    @pytest.mark.usefixtures("torch")
    def test_a_call_is_profiled_once_to_find_out(self):
        import torch

        calls = []
        plain_case = case(lambda: calls.append(torch.ones(3)))
        assert plain_case.has_operations
        assert plain_case.has_operations
        assert len(calls) == 1
        assert not case(int).has_operations


@pytest.mark.parametrize(("value", "threads"), [("", 1), ("2", 2), ("0", 1), ("2,1", 1)])
def test_numerical_libraries_have_one_thread_unless_the_environment_says_otherwise(
    monkeypatch, value, threads
):
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert own_threads() == threads


class TestFixture:
    @pytest.fixture
    def calls(self, benchmark):
        """The calls that the fixture hands over."""
        handed_over = []
        benchmark.disabled = True
        intercept(benchmark, before=handed_over.append)
        refuse_weave(benchmark)
        return handed_over

    def test_a_call_is_handed_over_and_its_result_is_returned(self, benchmark, calls):
        assert benchmark(max, 1, 2, key=lambda number: -number) == 1
        [call] = calls
        assert (call.function, call.args, list(call.kwargs)) == (max, (1, 2), ["key"])
        assert call.collects_garbage

    def test_a_decorated_function_is_a_call(self, benchmark, calls):
        @benchmark
        def result():
            return 5

        assert result == 5
        assert len(calls) == 1

    @pytest.mark.parametrize("positional", [False, True])
    def test_pedantic_hands_over_all_its_parts(self, benchmark, calls, positional):
        def setup():
            return (1,), {}

        if positional:
            assert benchmark.pedantic(abs, (), None, setup, abs, 3, 4) == 1
        else:
            assert (
                benchmark.pedantic(abs, setup=setup, teardown=abs, rounds=3, warmup_rounds=4) == 1
            )
        [call] = calls
        assert (call.function, call.setup, call.teardown, call.warmup_rounds) == (
            abs,
            setup,
            abs,
            4,
        )

    @pytest.mark.benchmark(disable_gc=True)
    def test_a_mark_that_disables_the_garbage_collector_is_part_of_the_call(self, benchmark, calls):
        benchmark(int)
        assert not calls[0].collects_garbage

    def test_a_second_call_is_refused_by_pytest_benchmark_and_not_handed_over(
        self, benchmark, calls
    ):
        benchmark(int)
        with pytest.raises(FixtureAlreadyUsed):
            benchmark(int)
        assert len(calls) == 1

    def test_two_interceptions_see_a_call_once_each(self, benchmark, calls):
        after = []
        intercept(benchmark, after=lambda *call_and_result: after.append(call_and_result))
        assert benchmark(max, 1, 2) == 2
        assert len(calls) == 1
        assert after == [(calls[0], 2)]

    @pytest.mark.parametrize("disabled", [True, False])
    @pytest.mark.parametrize("makes_arguments", [True, False])
    def test_each_setup_of_pedantic_has_a_teardown(self, benchmark, disabled, makes_arguments):
        opened = []
        closed = []

        def setup():
            opened.append(len(opened))
            return ((opened[-1],), {"key": 1}) if makes_arguments else None

        def teardown(*args, **kwargs):
            closed.append(args[0] if makes_arguments else len(closed))
            assert kwargs == ({"key": 1} if makes_arguments else {})

        benchmark.disabled = disabled
        intercept(benchmark, tears_down=True)
        benchmark.pedantic(
            lambda *_, **__: len(opened), setup=setup, teardown=teardown, rounds=3, warmup_rounds=2
        )
        assert opened == closed == ([0] if disabled else [0, 1, 2, 3, 4])

    def test_a_teardown_without_a_setup_gets_the_arguments_of_the_test(self, benchmark):
        closed = []
        benchmark.disabled = True
        intercept(benchmark, tears_down=True)
        assert benchmark.pedantic(abs, args=(-1,), teardown=closed.append) == 1
        assert closed == [-1]

    def test_another_fixture_of_that_name_is_left_alone(self):
        def own(function):
            return function()

        intercept(own, before=pytest.fail)
        refuse_weave(own)
        assert own(int) == 0

    @pytest.mark.parametrize("name", ["weave", "patch"])
    def test_weave_is_refused_by_name(self, benchmark, calls, name):
        with pytest.raises(pytest.skip.Exception, match=r"benchmark\.weave cannot be measured"):
            getattr(benchmark, name)("module.function")
        benchmark(int)
        assert len(calls) == 1


class Alone:
    """Turns of a side without another one."""

    def of(self, names):
        return (None for name in names if name == BASE)

    def exchange(self, value):
        return [value]


class FakeCase(SideCase):
    """A case whose calls take a given time by all clocks. Its result is the number of calls."""

    can_loop = True

    def __init__(self, ns, now):
        self.ns = ns
        self.now = now
        self.calls = 0

    def __call__(self):
        self.calls += self.loops

    def clocked(self):
        self()
        ns = self.ns * self.loops
        self.now[0] += ns
        return Sample(ns, ns)

    def outcome(self):
        return str(self.calls), 0.0


class TestShortFunctions:
    @pytest.fixture
    def run(self):
        return lambda *args: steps.SideRun(Side("base", Path(), Path(), ""), case(*args))

    @pytest.mark.parametrize(("ns", "more"), [(6_000_000, 3), (110_000_000, 0)])
    def test_a_long_function_is_hardly_calibrated(self, monkeypatch, ns, more):
        now = [0]
        monkeypatch.setattr(steps.Clock, "wall_ns", lambda: now[0])
        case = FakeCase(ns, now)
        side_run = steps.SideRun(Side("base", Path(), Path(), ""), case)
        measured = steps.measure(
            side_run, Alone(), (BASE, HEAD), random.Random(1), shares_core=False
        )
        calls_before_the_outcome, _ = measured.columns["outcome"]
        assert calls_before_the_outcome == str(WARMUP_ITERATIONS + more)

    def test_a_disturbed_sample_does_not_end_the_calibration(self, run, monkeypatch):
        side_run = run(int)
        # Another program had the core in the first of each three.
        samples = itertools.cycle([SAMPLE_NS * 2, 100, 200])
        monkeypatch.setattr(
            side_run.case, "clocked", lambda: Sample(next(samples) * side_run.case.loops, 0)
        )
        lockstep = steps.Lockstep(side_run, Alone(), (BASE, HEAD), random.Random(1))
        iteration_ns = lockstep.calibrate(own_call_ns=100, effort=1.0)
        assert side_run.case.loops == SAMPLE_NS // 100
        assert iteration_ns == SAMPLE_NS

    @pytest.mark.parametrize(
        "ns", [(4_900_000, 5_100_000), (5_100_000, 400_000), (70, 3_000), (120_000_000, 3_000)]
    )
    def test_both_sides_make_as_many_calls_before_they_are_measured(self, monkeypatch, ns):
        now = [0]
        monkeypatch.setattr(steps.Clock, "wall_ns", lambda: now[0])

        def work(turns, name):
            case = FakeCase(ns[name == HEAD], now)
            side_run = steps.SideRun(Side(name, Path(), Path(), ""), case)
            measured = steps.measure(
                side_run, turns, (BASE, HEAD), random.Random(1), shares_core=True
            )
            return measured.columns["loops"], measured.columns["outcome"], case.calls

        base, head = both(work)
        assert base == head
        assert base[0] == max(1, round(SAMPLE_NS / max(ns)))

    def test_a_short_function_is_repeated_in_each_sample(self, run):
        side_run = run(sum, range(100))
        measured = steps.measure(
            side_run, Alone(), (BASE, HEAD), random.Random(1), shares_core=False
        )
        assert measured.columns["loops"] == side_run.case.loops > 100
