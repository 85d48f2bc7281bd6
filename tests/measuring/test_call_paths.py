"""Call paths: who calls whom, and how often."""

import json
import sys
from types import SimpleNamespace

import pytest

from mnistbench.measuring import call_paths
from mnistbench.measuring.call_paths import ROOT, BuiltIn, CallPaths, CallTimes, _built_in


def collected(run):
    return CallPaths.of(run)


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


def test_equal_code_of_two_files_are_two_functions():
    """Such as that of two dataclasses with the same fields."""
    functions = []
    for file in ("a.py", "b.py"):
        namespace = {"leaf": leaf}
        exec(compile("def f():\n    return leaf()\n", file, "exec"), namespace)
        functions.append(namespace["f"])

    def run():
        for function in functions:
            function()

    paths = collected(run)
    assert shown(paths)["/run/f/leaf"] == 1
    files = {function.co_filename for function in paths.functions if hasattr(function, "co_name")}
    assert {"a.py", "b.py"} <= files
    assert len(paths.parents) == 6


def test_calls_beyond_the_most_paths_are_not_counted(monkeypatch):
    monkeypatch.setattr(call_paths, "MAX_PATHS", 3)

    def run():
        leaf()
        len("")
        leaf()

    assert shown(collected(run)) == {"/run": 1, "/run/leaf": 2}


@pytest.mark.parametrize("collect", [CallPaths.of, lambda run: CallTimes().collect(run)])
def test_another_profiler_is_left_alone(collect):
    def other(*_):
        pass

    sys.setprofile(other)
    try:
        with pytest.raises(RuntimeError, match="another profiler"):
            collect(leaf)
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_the_root_is_no_function():
    assert collected(leaf).functions[ROOT] is None


# ---- Times ---------------------------------------------------------------------------------------


def spin(n):
    return sum(range(n))


def test_a_path_has_the_time_of_a_call_by_its_last_caller():
    def short():
        return sum(range(10))

    def long():
        return sum(range(300_000))

    def run():
        short()
        short()
        long()

    times = CallTimes()
    for _ in range(3):
        times.collect(run)
    paths = collected(run)
    self_ns = dict(zip(shown(paths), paths.self_ns(times.call_ns)[1:], strict=True))
    assert self_ns["/run/long/sum"] > 100 * self_ns["/run/short/sum"] > 0
    assert self_ns["/run/short/sum"] == 2 * times.call_ns[short.__code__, "sum"]


def test_the_shortest_time_of_a_call_counts():
    numbers = iter([300_000, 10, 300_000])

    def run():
        spin(next(numbers))

    times = CallTimes()
    longest_ns = 0
    for _ in range(3):
        times.collect(run)
        longest_ns = max(longest_ns, times.call_ns[spin.__code__, "sum"])
    assert times.call_ns[spin.__code__, "sum"] < longest_ns / 10
    assert times.call_ns[None, "sum"] == times.call_ns[spin.__code__, "sum"]


def test_methods_of_c_and_of_derived_classes_have_the_time_of_their_name():
    class Numbers(list):
        pass

    numbers = Numbers()

    def run():
        numbers.append(1)
        numbers.sort()
        json.encoder.encode_basestring_ascii("b")

    times = CallTimes()
    times.collect(run)
    self_ns = collected(run).self_ns(times.call_ns)
    assert min(self_ns[1:]) > 0


def test_a_function_varies_that_is_not_called_equally_often_in_each_iteration():
    def sometimes():
        pass

    numbers = iter(range(3))

    def run():
        leaf()
        if next(numbers) == 1:
            sometimes()
        for _ in range(2 + next(iter([1]))):
            leaf()

    times = CallTimes()
    for _ in range(3):
        times.collect(run)
    functions = (leaf.__code__, sometimes.__code__, BuiltIn("next", "builtins"))
    assert [times.varies(function) for function in functions] == [False, True, False]


def test_a_kernel_that_torch_compile_has_built_has_no_hash_in_its_name():
    kernel = SimpleNamespace(__module__=f"c{'a7' * 25}q.kernel", __qualname__="kernel")
    assert _built_in(kernel) == BuiltIn("kernel", "generated.kernel")
