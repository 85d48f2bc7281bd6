"""Call paths: who calls whom, and how often."""

import json
import sys

import pytest

from mnistbench.measuring import call_paths
from mnistbench.measuring.call_paths import ROOT, BuiltIn, CallPaths


def collected(run, iterations=1):
    paths = CallPaths()
    for _ in range(iterations):
        paths.collect(run)
    return paths


def shown(paths):
    """Each path as the names of its functions -> its calls."""
    names = [""]
    for parent, function in zip(paths.parents[1:], paths.functions[1:], strict=True):
        name = function.name if isinstance(function, BuiltIn) else function.co_name
        names.append(f"{names[parent]}/{name}")
    return dict(zip(names[1:], paths.calls[1:], strict=True))


def leaf():
    return 1


def test_each_path_has_its_own_calls():
    def first():
        leaf()

    def second():
        leaf()
        leaf()
        first()

    def run():
        first()
        second()

    assert shown(collected(run)) == {
        "/run": 1,
        "/run/first": 1,
        "/run/first/leaf": 1,
        "/run/second": 1,
        "/run/second/leaf": 2,
        "/run/second/first": 1,
        "/run/second/first/leaf": 1,
    }


def test_calls_are_those_of_the_last_iteration():
    numbers = iter([3, 1])

    def run():
        for _ in range(next(numbers)):
            leaf()

    paths = collected(run, iterations=2)
    assert shown(paths)["/run/leaf"] == 1
    assert len(paths.self_ns) == 2


def test_recursion_is_a_path_of_each_depth():
    def down(n):
        return n and down(n - 1)

    assert shown(collected(lambda: down(2))) == {
        "/<lambda>": 1,
        "/<lambda>/down": 1,
        "/<lambda>/down/down": 1,
        "/<lambda>/down/down/down": 1,
    }


def test_functions_and_methods_of_c_have_their_module():
    paths = collected(lambda: ([].append(1), len("a"), json.encoder.encode_basestring_ascii("b")))
    functions = {function for function in paths.functions if isinstance(function, BuiltIn)}
    assert functions == {
        BuiltIn("list.append", "builtins"),
        BuiltIn("len", "builtins"),
        BuiltIn("encode_basestring_ascii", "_json"),
    }


def test_an_exception_ends_the_functions_that_it_leaves():
    def raising():
        int("no number")
        raise ValueError

    def run():
        for _ in range(2):
            try:
                raising()
            except ValueError:
                leaf()

    calls = shown(collected(run))
    assert calls["/run/raising"] == 2
    assert calls["/run/leaf"] == 2


def test_a_generator_is_called_by_who_asks_for_the_next_item():
    def items():
        yield leaf()
        yield leaf()

    def run():
        generator = items()
        next(generator)
        try:
            generator.throw(KeyError)
        except KeyError:
            leaf()

    calls = shown(collected(run))
    assert calls["/run/next/items/leaf"] == 1
    assert calls["/run/leaf"] == 1


def test_the_times_of_all_paths_are_that_of_the_iteration(monkeypatch):
    """By a clock that each event reads twice."""
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(call_paths, "perf_counter_ns", lambda: next(clock))
    paths = collected(leaf)
    assert paths.self_ns == [[10, 10]]


def test_the_shortest_time_of_each_path_counts():
    """Of the iterations that have the path."""
    paths = CallPaths()
    paths.parents = [-1, 0, 0]
    paths.self_ns = [[5], [2, 30, 0], [9, 10, 7]]
    assert paths.shortest_ns() == [2, 10, 7]


def test_beyond_the_most_paths_time_counts_for_the_path_before(monkeypatch):
    monkeypatch.setattr(call_paths, "MOST_PATHS", 3)

    def run():
        leaf()
        len("")
        leaf()

    assert shown(collected(run)) == {"/run": 1, "/run/leaf": 2}


def test_another_profiler_is_left_alone():
    paths = CallPaths()

    def other(*_):
        pass

    sys.setprofile(other)
    try:
        with pytest.raises(RuntimeError, match="another profiler"):
            paths.collect(leaf)
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_the_root_is_no_function():
    assert collected(leaf).functions[ROOT] is None
