"""One side of a case is built, timed and profiled at its turns."""

import contextlib
import functools
import gc
import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_builders import CLASSES, PIXELS, LossSpy, tiny_model, tiny_params, tiny_workload

from mnistbench.core.operation import OUTSIDE
from mnistbench.events import from_profiler
from mnistbench.gate.processes import iterations
from mnistbench.gate.processes.messages import ALL_ITERATIONS, Efforts
from mnistbench.gate.processes.sides import steps
from mnistbench.gate.processes.sides.case import SideCase
from mnistbench.gate.processes.sides.side import Side, SideError
from mnistbench.gate.processes.sides.steps import SideRun
from mnistbench.gate.words import BASE, COLD, FIRST, HEAD
from mnistbench.measuring import timing
from mnistbench.measuring.provider import Provider, imported_provider
from mnistbench.measuring.timing import Clock, Sample
from mnistbench.suite.measuring.case import build
from mnistbench.suite.measuring.profiling import profile
from mnistbench.suite.workload_case import WorkloadCase, live_storages


@pytest.fixture(autouse=True)
def _leaves_no_trace():
    """Seeds, threads and generators of this process are as they were."""
    threads = torch.get_num_threads()
    states = (torch.get_rng_state(), random.getstate(), np.random.get_state())
    yield
    torch.set_num_threads(threads)
    for restore, state in zip(
        (torch.set_rng_state, random.setstate, np.random.set_state), states, strict=True
    ):
        restore(state)


@pytest.fixture(autouse=True)
def _fixed_number_of_pairs(monkeypatch):
    """A busy machine runs fewer pairs."""
    monkeypatch.setattr(iterations, "TIMED_PAIRS", (5.0, 16, 16))
    monkeypatch.setattr(iterations, "PROFILED_PAIRS", (1.3, 8, 8))


class Alone:
    """Turns of a side without another one."""

    def __init__(self, name=BASE):
        self.name = name
        self.turns = []

    def of(self, names):
        names = list(names)
        self.turns.append(names)
        return (None for name in names if name == self.name)

    def at_once(self, firsts):
        self.firsts = list(firsts)
        self.turns.append(["both"] * len(self.firsts))
        return (None for _ in self.firsts)

    def exchange(self, value):
        return [value]


def side_run(loss=None, workload=None, threads_of_side=0, **changes):
    workload = workload or (tiny_workload(loss=loss) if loss else tiny_workload())
    side = Side("base", Path(), Path(), "", threads_of_side)
    params = tiny_params(**changes)
    return SideRun(
        side, WorkloadCase(lambda: build(params, workload), params.device, side.threads_of(params))
    )


def measure(run, turns=None, **options):
    """Measure a side without another one; return its samples."""
    return measured_build(run, turns, **options).columns


def measured_build(run, turns=None, efforts=ALL_ITERATIONS, *, shares_core=False):
    turns = turns or Alone()
    order = turns.name, HEAD if turns.name == BASE else BASE
    return steps.measure(run, turns, order, coin(), efforts, shares_core=shares_core)


def coin(seed=1):
    return random.Random(seed)


class TestTurns:
    @pytest.mark.parametrize("seed", range(5))
    def test_every_pair_has_both_sides_and_every_second_is_the_first_turned_round(self, seed):
        order = list(steps.in_pairs(["base", "head"], coin(seed), 6))
        pairs = list(zip(order[::2], order[1::2], strict=True))
        assert all(set(pair) == {"base", "head"} for pair in pairs)
        assert all(
            second == first[::-1] for first, second in zip(pairs[::2], pairs[1::2], strict=True)
        )

    def test_the_coin_decides_who_begins(self):
        first = {next(steps.in_pairs(["base", "head"], coin(seed), 1)) for seed in range(20)}
        assert first == {"base", "head"}

    @pytest.mark.parametrize(
        ("call_ns", "pairs"), [(1, 64), (10_000_000, 50), (40_000_000, 25), (1_000_000_000, 6)]
    )
    def test_a_call_of_four_times_the_length_has_half_the_pairs_within_limits(self, call_ns, pairs):
        assert iterations.number_of(call_ns, 5.0, 6, 64) == pairs


class TestSides:
    def test_the_same_code_computes_the_same_numbers_whichever_side_it_is(self):
        spies = LossSpy(), LossSpy()
        columns = [
            measure(side_run(spy), Alone(name))
            for spy, name in zip(spies, (BASE, HEAD), strict=True)
        ]
        assert spies[0].values == spies[1].values
        assert len(set(spies[0].values)) > 10  # dropout draws anew in every step
        assert columns[0]["outcome"] == columns[1]["outcome"]

    def test_another_seed_computes_other_numbers(self):
        assert measure(side_run())["outcome"] != measure(side_run(seed=2))["outcome"]

    def test_all_generators_are_seeded(self):
        drawn = []

        def drawing(output, targets):
            drawn[-1].append((random.random(), float(np.random.rand())))
            return torch.nn.functional.nll_loss(output, targets)

        for _ in range(2):
            drawn.append([])
            measure(side_run(drawing))
        assert drawn[0] == drawn[1]

    def test_numpy_is_not_needed(self, monkeypatch):
        expected = measure(side_run())["outcome"]
        monkeypatch.setitem(sys.modules, "numpy", None)
        monkeypatch.setattr(torch.Tensor, "numpy", None)
        assert measure(side_run())["outcome"] == expected

    def test_both_processes_draw_the_same_turns(self, monkeypatch):
        monkeypatch.setattr(iterations, "BLOCK_NS", 6_000_000)
        base = Alone(BASE)
        head = Alone(HEAD)
        coins = coin(), coin()
        for turns, own_coin in zip((base, head), coins, strict=True):
            steps.measure(side_run(), turns, (HEAD, BASE), own_coin, shares_core=True)
        assert base.turns == head.turns
        assert base.firsts == head.firsts
        in_twos = list(zip(base.firsts[::2], base.firsts[1::2], strict=False))
        # Each side begins half of the blocks.
        assert {frozenset(two) for two in in_twos} == {frozenset((BASE, HEAD))}
        assert coins[0].getstate() == coins[1].getstate()

    def test_what_is_measured_of_a_side_has_a_time_for_each_iteration(self):
        side = measure(side_run())
        assert len(side["wall_ns"]) == len(side["cpu_ns"]) == 16
        assert min(side["wall_ns"]) > 0
        assert side["device_ns"] == []
        assert side["parameters"] == sum(
            parameter.numel() for parameter in tiny_model().parameters()
        )

    @pytest.mark.parametrize(
        ("threads_of_case", "threads_of_side", "threads"),
        [(1, 0, 1), (2, 0, 2), (1, 2, 2), (2, 1, 1)],
    )
    def test_a_case_runs_with_the_threads_of_its_side(
        self, threads_of_case, threads_of_side, threads
    ):
        columns = measure(side_run(threads=threads_of_case, threads_of_side=threads_of_side))
        assert torch.get_num_threads() == threads
        assert bool(columns["cpu_ns"]) == (threads == 1)

    @pytest.mark.parametrize(
        ("effort", "pairs", "blocks", "calls_of_block", "used"),
        [
            (1.0, 6, 8, 10, 1.0),
            (0.5, 3, 4, 10, 0.5),
            (0.25, 3, 3, 7, 21 / 80),
            (1 / 16, 3, 3, 2, 6 / 80),
        ],
    )
    def test_a_small_effort_has_fewer_pairs_and_blocks_and_then_shorter_blocks(
        self, monkeypatch, effort, pairs, blocks, calls_of_block, used
    ):
        """A call takes 6 ms of a clock that only calls advance.

        A block with the effort 1 has ten of them.
        """
        clock = itertools.count(0, 6_000_000)
        monkeypatch.setattr(iterations, "FEW_PAIRS", (1.0, 6, 6))
        monkeypatch.setattr(iterations, "BLOCKS", (1.0, 8, 8))
        monkeypatch.setattr(iterations, "PROFILED_PAIRS", (1.0, 5, 8))
        monkeypatch.setattr(steps.Lockstep, "warm_up", lambda _: 6_000_000)
        monkeypatch.setattr(Clock, "wall_ns", lambda: next(clock))
        build = measured_build(side_run(), efforts=Efforts(effort, effort), shares_core=True)
        assert len(build.columns["wall_ns"]) == pairs
        assert len(build.columns["block_ns"]) == blocks
        assert build.columns["iterations"] == pairs + blocks * calls_of_block
        used_timed, used_profiled = build.efforts
        assert used_timed == pytest.approx(used)
        # Of 8 profiled pairs there are at least 5.
        assert used_profiled == pytest.approx(max(5 / 8, effort))

    @pytest.mark.parametrize(("threads", "shares_core"), [(1, False), (2, True)])
    def test_there_are_no_blocks_of_several_threads_or_on_several_cores(self, threads, shares_core):
        columns = measure(side_run(threads=threads), shares_core=shares_core)
        assert (columns["block_ns"], len(columns["wall_ns"])) == ([], 16)

    @pytest.mark.parametrize(
        "after", [(True, 0.5), (False, 0.501)], ids=["one runs", "one has ended"]
    )
    def test_a_case_that_starts_processes_may_have_waited_for_them(self, monkeypatch, after):
        children = iter([(False, 0.5), after])
        monkeypatch.setattr(steps, "child_processes", lambda: next(children))
        columns = measure(side_run())
        assert (columns["queued_ns"], len(columns["wall_ns"])) == ([], 16)

    def test_a_process_from_before_may_be_one_of_the_case(self, monkeypatch):
        children = iter([(True, 0.5), (False, 0.5)])
        monkeypatch.setattr(steps, "child_processes", lambda: next(children))
        assert measure(side_run())["queued_ns"] == []

    @pytest.mark.skipif(
        not Path("/proc/thread-self/children").exists(), reason="the system does not tell"
    )
    def test_child_processes_are_known(self):
        _, before_s = steps.child_processes()
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            assert steps.child_processes() == (True, before_s)
            child.communicate()
        assert steps.child_processes()[1] > before_s

    @pytest.mark.skipif(
        not Path("/proc/thread-self/schedstat").exists(), reason="the system does not tell"
    )
    def test_the_time_in_which_another_process_has_the_core_grows(self):
        cores = os.sched_getaffinity(0)
        code = f"import os; os.sched_setaffinity(0, [{min(cores)}])\nwhile True: pass"
        before_ns = Clock.queued_ns()
        with subprocess.Popen([sys.executable, "-c", code]) as program:
            try:
                os.sched_setaffinity(0, [min(cores)])
                while Clock.queued_ns() == before_ns:
                    pass
            finally:
                os.sched_setaffinity(0, cores)
                program.kill()
        assert Clock.queued_ns() > before_ns

    @pytest.mark.parametrize(("text", "queued_ns"), [("500 70 9\n", 70), ("", 0), ("500 x 9", 0)])
    def test_the_time_of_others_is_the_second_number_of_the_system(
        self, monkeypatch, tmp_path, text, queued_ns
    ):
        (tmp_path / "schedstat").write_text(text)
        monkeypatch.setattr(timing, "Path", lambda _: tmp_path / "schedstat")
        assert Clock.queued_ns() == queued_ns

    def test_a_case_is_built_in_one_thread(self):
        threads = []

        def make_model():
            threads.append(torch.get_num_threads())
            return tiny_model()

        run = side_run(workload=tiny_workload(make_model=make_model), threads=2)
        run.build()
        run.run_case()
        assert torch.get_num_threads() == 2
        run.build()
        assert threads == [1, 1]

    def test_a_number_that_is_not_finite_is_none(self):
        def diverging(output, targets):
            return torch.nn.functional.nll_loss(output, targets) * float("inf")

        assert measure(side_run(diverging))["outcome"][1] is None

    def test_a_number_that_is_not_finite_after_some_iterations_is_none(self):
        calls = []

        def diverging_late(output, targets):
            calls.append(0)
            return torch.nn.functional.nll_loss(output, targets) * (
                1.0 if len(calls) < 5 else float("inf")
            )

        assert measure(side_run(diverging_late))["outcome"][1] is None

    # Of the warm-up, of the timed and of the profiled ones.
    @pytest.mark.parametrize("iteration", [1, 5, 22])
    def test_an_error_of_the_code_names_the_side(self, iteration):
        calls = []

        def failing(output, targets):
            calls.append(0)
            if len(calls) == iteration:
                raise ValueError("boom\nmore")
            return torch.nn.functional.nll_loss(output, targets)

        with pytest.raises(SideError) as raised:
            measure(side_run(failing))
        assert str(raised.value).startswith("base: ValueError: boom (")

    def test_a_model_may_keep_more_than_tensors(self):
        class Remembering(torch.nn.Linear):
            def get_extra_state(self):
                return {"calls": 1}

            def set_extra_state(self, state):
                assert state == {"calls": 1}

        def remembering():
            return torch.nn.Sequential(torch.nn.Flatten(), Remembering(PIXELS, CLASSES))

        workload = tiny_workload(make_model=remembering)
        assert measure(side_run(workload=workload))["outcome"][1] is not None


class TestOperations:
    def test_a_side_has_the_calls_of_a_profile(self):
        side = measure(side_run())
        alone = profile(build(tiny_params(), tiny_workload()), iterations=3)
        expected = {row.key: row.calls for row in alone.rows if row.name != OUTSIDE}
        calls = {
            tuple(key): calls
            for key, calls in zip(side["keys"], side["calls"], strict=True)
            if key[0] != OUTSIDE
        }
        assert calls == expected
        assert {len(times) for times in side["self_ns"]} == {8}

    def test_the_collector_rests_while_events_are_parsed_and_not_before(self, monkeypatch):
        collecting = []
        parsing = []
        parse = from_profiler.read

        def parse_and_note(profiler):
            parsing.append(gc.isenabled())
            return parse(profiler)

        def loss(output, targets):
            collecting.append(gc.isenabled())
            return torch.nn.functional.nll_loss(output, targets)

        monkeypatch.setattr(from_profiler, "read", parse_and_note)
        # If this process has compiled something, a profile looks for compiled code.
        monkeypatch.setattr(type(imported_provider()), "compilations", lambda _: 0)
        measure(side_run(loss))
        assert (set(collecting), parsing) == ({True}, [False])
        assert gc.isenabled()

    def test_an_epoch_has_no_operations(self):
        from torch_builders import whole_tiny_set

        workload = tiny_workload(load=whole_tiny_set)
        assert "keys" not in measure(side_run(workload=workload, phase="train"))


@pytest.fixture(scope="class")
def _imported_objects_are_skipped():
    """The search for tensors skips all objects that exist before, as in a survey."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_imported_objects_are_skipped")
class TestMemory:
    """Peak bytes of a build and three iterations; a step of the tiny model takes some kilobytes."""

    def peak(self, **changes):
        return side_run(**changes).case.peak_memory()

    def test_the_same_code_takes_the_same_memory_to_the_byte(self):
        first = self.peak()
        second = self.peak()
        assert first == second
        assert first > sum(parameter.numel() * 4 for parameter in tiny_model().parameters())

    def test_a_larger_temporary_is_seen(self):
        def loss(output, targets):
            return torch.nn.functional.nll_loss(output, targets) + 0 * torch.ones(1_000_000).sum()

        assert 3_900_000 < self.peak(loss=loss) - self.peak() < 4_000_001

    def test_a_cache_that_lives_on_is_seen_in_later_cases(self):
        before = self.peak()
        cache = torch.zeros(1_000_000)
        assert self.peak() - before == cache.nbytes

    def test_storages_are_counted_once(self):
        before = live_storages()
        tensor = torch.zeros(1_000)
        views = [tensor[:10], tensor.view(10, 100)]
        assert sum(live_storages().values()) - sum(before.values()) == 4_000
        del views

    def test_a_tensor_without_memory_is_passed_over(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        before = live_storages()
        with FakeTensorMode():  # torch.compile keeps such tensors
            fake = torch.zeros(1_000)
        assert live_storages() == before
        del fake

    def test_no_code_of_a_tensor_of_a_subclass_runs(self):
        class Lazy(torch.Tensor):
            layout = property(lambda _: 1 / 0)

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                raise ValueError(func)

        before = sum(live_storages().values())
        lazy = torch.zeros(1_000).as_subclass(Lazy)
        assert sum(live_storages().values()) - before == 4_000
        sparse = torch.eye(1).to_sparse()  # has no storage of its own
        assert sum(live_storages().values()) - before < 5_000
        del lazy, sparse

    def test_an_epoch_has_no_number(self):
        from torch_builders import whole_tiny_set

        assert (
            side_run(workload=tiny_workload(load=whole_tiny_set), phase="train").case.peak_memory()
            is None
        )


class Clocked(SideCase):
    """An iteration that computes for a time and waits for another, by clocks of its own."""

    cpu_ns = 10_000_000
    waits_ns = 30_000_000

    def __init__(self):
        self.now = {"wall": 0, "cpu": 0}

    def __call__(self):
        self.now["wall"] += self.cpu_ns + self.waits_ns
        self.now["cpu"] += self.cpu_ns

    def outcome(self):
        return "", 0.0

    def read(self, clock):
        for name in self.now:
            self.now[name] += 1_000  # of a loop that reads a clock
        return self.now[clock]


@pytest.fixture
def clocks(monkeypatch):
    case = Clocked()
    for clock in ("wall", "cpu"):
        monkeypatch.setattr(Clock, f"{clock}_ns", staticmethod(functools.partial(case.read, clock)))
    return case


def test_cpu_time_is_measured_in_blocks_if_both_sides_share_a_core(clocks, monkeypatch):
    monkeypatch.setattr(iterations, "FEW_PAIRS", (1.0, 6, 6))
    monkeypatch.setattr(iterations, "BLOCKS", (1.0, 7, 7))
    monkeypatch.setattr(iterations, "BLOCK_NS", 3 * (clocks.cpu_ns + clocks.waits_ns))
    columns = measure(SideRun(Side("head", Path(), Path(), ""), clocks), shares_core=True)
    assert columns["block_ns"] == pytest.approx([clocks.cpu_ns] * 7, rel=1e-3)
    assert columns["wall_ns"] == pytest.approx([clocks.cpu_ns + clocks.waits_ns] * 6, rel=1e-3)
    assert columns["iterations"] == 6 + 7 * 3


def test_the_build_of_a_case_is_a_part_of_its_setup_until_its_first_iteration(clocks):
    clocks.build = lambda: clocks.now.update(cpu=clocks.now["cpu"] + 30_000_000)
    side = Side("head", Path(), Path(), "")
    side_run = SideRun(side, clocks, "t.py::t")
    for _ in range(2):
        side_run.build()
        side_run.run_case()
    assert side.once["setup"] == {"t.py::t": pytest.approx(30_000_000, rel=0.01)}
    assert side.once["first iteration"] == {"t.py::t": pytest.approx(10_000_000, rel=0.01)}


def test_a_call_with_an_empty_cache_is_a_cost_of_its_own(clocks, monkeypatch):
    calls = []

    class Compiling(Provider):
        @contextlib.contextmanager
        def empty_compiler_cache(self):
            calls.append("empty")
            yield
            calls.append("filled")

    monkeypatch.setattr(steps, "imported_provider", Compiling)
    clocks.prepare = lambda: calls.append("prepare")
    clocks.finish = lambda: calls.append("finish")
    side = Side("head", Path(), Path(), "")
    turns = Alone("head")
    steps.measure(
        SideRun(side, clocks, "t.py::t"),
        turns,
        (BASE, HEAD),
        coin(),
        shares_core=True,
        is_compiled_anew=True,
    )
    assert calls[:4] == ["empty", "prepare", "finish", "filled"]
    assert calls.count("empty") == 1
    assert turns.turns[:3] == [[BASE, HEAD]] * 3  # build, compile, warm up
    for cost in (COLD, FIRST):
        assert side.once[cost] == {"t.py::t": pytest.approx(10_000_000, rel=0.01)}


class Queueing(Clocked):
    """A case on a busy machine.

    Before, in and after each call another program has the core for a time.
    """

    setup_ns = 4_000_000
    call_ns = 5_000_000
    teardown_ns = 3_000_000

    def __init__(self):
        self.now = {"wall": 0, "cpu": 0, "queued": 0}

    def wait(self, ns):
        self.now["wall"] += ns
        self.now["queued"] += ns

    def prepare(self):
        self.wait(self.setup_ns)

    def __call__(self):
        super().__call__()
        self.wait(self.call_ns)

    def finish(self):
        self.wait(self.teardown_ns)


@pytest.fixture
def queueing(monkeypatch):
    case = Queueing()
    for clock in case.now:
        monkeypatch.setattr(
            Clock, f"{clock}_ns", staticmethod(functools.partial(case.now.__getitem__, clock))
        )
    monkeypatch.setattr(steps, "child_processes", lambda: (False, 0.5))  # those of the test session
    return case


def test_only_time_in_which_the_function_itself_waits_for_its_core_is_subtracted(queueing):
    columns = measure(SideRun(Side(BASE, Path(), Path(), ""), queueing))
    assert set(columns["queued_ns"]) == {queueing.call_ns}
    assert set(columns["wall_ns"]) == {queueing.cpu_ns + queueing.waits_ns + queueing.call_ns}


def test_a_core_lost_between_readings_leaves_no_time_below_that_of_the_processor(
    queueing,
):
    def clocked():
        queueing.wait(50_000_000)  # before the first reading of a clock
        return Sample(30_000_000, 10_000_000)

    queueing.clocked = clocked
    columns = measure(SideRun(Side(BASE, Path(), Path(), ""), queueing))
    assert set(columns["queued_ns"]) == {20_000_000}
