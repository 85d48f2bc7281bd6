"""Both sides are measured in alternation, each with its own random numbers, and profiled together."""

import gc
import random
from contextlib import nullcontext

import pytest
import torch
from torch_builders import CLASSES, PIXELS, LossSpy, tiny_model, tiny_params, tiny_workload

from mnistbench.core.record import OUTSIDE
from mnistbench.gate import alternate
from mnistbench.gate.alternate import RandomState, SideRun, live_storages, measure, measure_control, peak_memory
from mnistbench.measuring.case import build
from mnistbench.measuring.profiling import profile


@pytest.fixture(autouse=True)
def _leaves_no_trace():
    """Seeds, threads and generators of this process are as they were."""
    threads, states = torch.get_num_threads(), RandomState(torch.device("cpu"))
    yield
    torch.set_num_threads(threads)
    states.restore()


@pytest.fixture(autouse=True)
def _fixed_number_of_pairs(monkeypatch):
    """A busy machine runs fewer pairs."""
    monkeypatch.setattr(alternate, "TIMED_PAIRS", (5.0, 16, 16))
    monkeypatch.setattr(alternate, "PROFILED_PAIRS", (1.3, 8, 8))


def side_run(name, loss=None, **changes):
    workload = tiny_workload(loss=loss) if loss else tiny_workload()
    return SideRun(name, lambda: build(tiny_params(**changes), workload), nullcontext)


def coin(seed=1):
    return random.Random(seed)


class TestTurns:
    @pytest.mark.parametrize("seed", range(5))
    def test_every_pair_has_both_sides_and_every_second_is_the_first_turned_round(self, seed):
        order = list(alternate._pairs(["base", "head"], coin(seed), 6))
        pairs = list(zip(order[::2], order[1::2], strict=True))
        assert all(set(pair) == {"base", "head"} for pair in pairs)
        assert all(second == first[::-1] for first, second in zip(pairs[::2], pairs[1::2], strict=True))

    def test_the_coin_decides_who_begins(self):
        first = {next(alternate._pairs(["base", "head"], coin(seed), 1)) for seed in range(20)}
        assert first == {"base", "head"}

    @pytest.mark.parametrize(("call_ns", "pairs"), [(1, 64), (10_000_000, 50), (40_000_000, 25), (1_000_000_000, 6)])
    def test_a_call_of_four_times_the_length_has_half_the_pairs_within_limits(self, call_ns, pairs):
        assert alternate._number_of_pairs(call_ns, 5.0, 6, 64) == pairs


class TestSides:
    def test_the_same_code_computes_the_same_numbers(self):
        base, head = LossSpy(), LossSpy()
        found = measure([side_run("base", base), side_run("head", head)], coin())["sides"]
        assert base.values == head.values
        assert len(set(base.values)) > 10  # dropout draws anew in every step
        assert found["base"]["outcome"] == found["head"]["outcome"]

    def test_another_seed_computes_other_numbers(self):
        found = measure([side_run("base"), side_run("head", seed=2)], coin())["sides"]
        assert found["base"]["outcome"] != found["head"]["outcome"]

    def test_a_side_that_draws_more_does_not_disturb_the_other(self):
        quiet, loud = LossSpy(), LossSpy()

        def drawing(output, targets):
            torch.rand(7)
            random.random()
            return loud(output, targets)

        measure([side_run("base", quiet), side_run("head", drawing)], coin())
        alone = LossSpy()
        measure([side_run("base", alone)], coin())
        assert quiet.values[: len(alone.values)] == alone.values

    def test_what_is_measured_of_a_side_has_a_time_for_each_call(self):
        found = measure([side_run("base"), side_run("head")], coin())
        assert found["first"] == "base"
        for side in found["sides"].values():
            assert len(side["wall_ns"]) == len(side["cpu_ns"]) == len(found["sides"]["base"]["wall_ns"]) >= 6
            assert min(side["wall_ns"]) > 0
            assert side["device_ns"] == []
            assert side["parameters"] == sum(parameter.numel() for parameter in tiny_model().parameters())

    def test_cpu_time_of_several_threads_is_no_clock(self):
        found = measure([side_run("base", threads=2)], coin())
        assert found["sides"]["base"]["cpu_ns"] == []

    def test_a_number_that_is_not_finite_is_none(self):
        def diverging(output, targets):
            return torch.nn.functional.nll_loss(output, targets) * float("inf")

        found = measure([side_run("base", diverging)], coin())
        assert found["sides"]["base"]["outcome"][1] is None

    def test_a_number_that_is_not_finite_after_some_iterations_is_none(self):
        calls = []

        def diverging_late(output, targets):
            calls.append(0)
            return torch.nn.functional.nll_loss(output, targets) * (1.0 if len(calls) < 5 else float("inf"))

        found = measure([side_run("base", diverging_late)], coin())
        assert found["sides"]["base"]["outcome"][1] is None

    def test_sides_that_are_timed_for_other_numbers_of_iterations_compute_the_same(self, monkeypatch):
        outcomes = []
        for pairs in (6, 9):
            monkeypatch.setattr(alternate, "TIMED_PAIRS", (5.0, pairs, pairs))
            side = measure([side_run("base")], coin())["sides"]["base"]
            assert len(side["wall_ns"]) == pairs
            outcomes.append(side["outcome"])
        assert outcomes[0] == outcomes[1]

    def test_a_model_may_keep_more_than_tensors(self):
        class Remembering(torch.nn.Linear):
            def get_extra_state(self):
                return {"calls": 1}

            def set_extra_state(self, state):
                assert state == {"calls": 1}

        def remembering():
            return torch.nn.Sequential(torch.nn.Flatten(), Remembering(PIXELS, CLASSES))

        workload = tiny_workload(make_model=remembering)
        found = measure([SideRun("base", lambda: build(tiny_params(), workload), nullcontext)], coin())
        assert found["sides"]["base"]["outcome"][1] is not None


class TestOperations:
    def test_each_side_has_the_calls_that_it_has_alone(self):
        found = measure([side_run("base"), side_run("head")], coin())["sides"]
        alone = profile(build(tiny_params(), tiny_workload()), iterations=3)
        expected = {row.key: row.calls for row in alone.rows if row.name != OUTSIDE}
        for side in found.values():
            calls = {tuple(key): calls for key, calls in zip(side["keys"], side["calls"], strict=True) if key[0] != OUTSIDE}
            assert calls == expected
            assert {len(times) for times in side["self_ns"]} == {8}
            assert len(side["iteration_ns"]) == 8

    def test_the_collector_rests_while_events_are_parsed_and_not_before(self, monkeypatch):
        collecting, parsing = [], []
        leave = torch.profiler.profile.__exit__

        def leave_and_note(*arguments):
            parsing.append(gc.isenabled())
            leave(*arguments)

        def loss(output, targets):
            collecting.append(gc.isenabled())
            return torch.nn.functional.nll_loss(output, targets)

        monkeypatch.setattr(torch.profiler.profile, "__exit__", leave_and_note)
        measure([side_run("base", loss)], coin())
        assert (set(collecting), parsing) == ({True}, [False])
        assert gc.isenabled()

    def test_an_epoch_has_no_operations(self):
        from torch_builders import whole_tiny_set

        workload = tiny_workload(load=whole_tiny_set)
        sides = [SideRun(name, lambda: build(tiny_params(phase="train"), workload), nullcontext) for name in ("base", "head")]
        found = measure(sides, coin())["sides"]
        assert "keys" not in found["base"]


def test_the_control_is_timed_as_often_for_both():
    found = measure_control(["base", "head"], coin())
    assert {name: len(times) for name, times in found.items()} == dict.fromkeys(("base", "head"), alternate.CONTROL_PAIRS)


class TestMemory:
    """Peak bytes of a build and three iterations; a step of the tiny model takes some kilobytes."""

    def peak(self, **changes):
        return peak_memory(side_run("base", **changes), lambda: None)

    def test_the_same_code_takes_the_same_memory_to_the_byte(self):
        first, second = self.peak(), self.peak()
        assert first == second
        assert first > sum(parameter.numel() * 4 for parameter in tiny_model().parameters())

    def test_a_larger_temporary_is_seen(self):
        def loss(output, targets):
            return torch.nn.functional.nll_loss(output, targets) + 0 * torch.ones(1_000_000).sum()

        assert 3_900_000 < self.peak(loss=loss) - self.peak() < 4_000_001

    def test_a_temporary_in_the_backward_pass_is_seen(self):
        class Wasteful(torch.autograd.Function):
            @staticmethod
            def forward(context, output):
                return output.clone()

            @staticmethod
            def backward(context, gradient):
                return gradient + 0 * torch.ones(1_000_000).sum()

        def loss(output, targets):
            return torch.nn.functional.nll_loss(Wasteful.apply(output), targets)

        assert 3_900_000 < self.peak(loss=loss) - self.peak() < 4_000_001

    def test_a_buffer_that_a_model_keeps_is_seen(self):
        class Keeping(torch.nn.Linear):
            def __init__(self, *arguments):
                super().__init__(*arguments)
                self.register_buffer("kept", torch.zeros(1_000_000))

        def peak(linear):
            def make_model():
                return torch.nn.Sequential(torch.nn.Flatten(), linear(PIXELS, CLASSES))

            workload = tiny_workload(make_model=make_model)
            return peak_memory(SideRun("base", lambda: build(tiny_params(), workload), nullcontext), lambda: None)

        assert 4_000_000 <= peak(Keeping) - peak(torch.nn.Linear) < 9_000_000  # building copies the weights to reset them

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

    def test_the_build_is_told_of_and_an_epoch_has_no_number(self):
        from torch_builders import whole_tiny_set

        told, workload = [], tiny_workload(load=whole_tiny_set)
        epoch = SideRun("base", lambda: build(tiny_params(phase="train"), workload), nullcontext)
        assert peak_memory(epoch, lambda: told.append(epoch.case)) is None
        assert told == [epoch.case]
