"""Functions of a call, as cProfile sees them."""

import functools
import itertools
import re
import sys
from collections import deque

import pytest
import torch

from mnistbench.core.machine import gc_paused
from mnistbench.core.operation import IN_TORCH
from mnistbench.measuring.calls import Call
from mnistbench.measuring.functions import name_of_c, profile_functions, without_hash
from mnistbench.measuring.provider import imported_provider


class Counter:
    @classmethod
    def of(cls, number):
        return cls().down(number)

    @property
    def step(self):
        return 1

    def down(self, number):
        return number and self.down(number - self.step)


@pytest.fixture
def rows(request):
    """Return the functions of a call by name and module."""

    def rows_of(function, *args, **changes):
        project = request.config.rootpath
        call = Call(function, args, **changes)
        with gc_paused():  # hypothesis has a function that each collection calls
            table = profile_functions(call, iterations=2, duration_ns=1e6, project=project)
        return {(row.name, row.module): row for row in table.rows}

    return rows_of


def calls(rows):
    return {key: row.calls for key, row in rows.items()}


def test_methods_properties_and_recursion_have_qualified_names_and_counts(rows):
    assert calls(rows(Counter.of, 3)) == {
        ("Counter.of", __name__): 1,
        ("Counter.down", __name__): 4,
        ("Counter.step", __name__): 3,
    }


def test_the_total_time_of_a_recursive_function_counts_a_nested_call_once(rows):
    functions = rows(Counter.of, 50)
    outermost = functions["Counter.of", __name__]
    recursive = functions["Counter.down", __name__]
    for whole, total_ns in zip(outermost.total_cpu_ns, recursive.total_cpu_ns, strict=True):
        assert 0 < total_ns <= whole


@pytest.mark.parametrize(
    ("function", "key"),
    [
        (lambda: len([]), ("len", "builtins")),
        (lambda: [].append(1), ("list.append", "builtins")),
        (lambda: re.compile("a").sub("b", "a"), ("Pattern.sub", "re")),
        (lambda: functools.reduce(max, [1, 2]), ("reduce", "_functools")),
        (lambda: deque().append(1), ("deque.append", "collections")),
        (lambda: dict.fromkeys([1]), ("fromkeys", "builtins")),
        (lambda: object.__new__(Counter), ("type.__new__", "builtins")),
    ],
)
def test_a_function_of_c_has_its_type_and_module(rows, function, key):
    row = rows(function)[key]
    assert (row.calls, row.sources) == (1, ())


def test_a_function_of_c_is_seen_also_if_it_is_called_alone(rows):
    assert calls(rows(sum, [1, 2])) == {("sum", "builtins"): 1}


def test_a_call_of_a_type_alone_has_no_table(tmp_path):
    call = Call(int, ("3",))
    assert profile_functions(call, iterations=2, duration_ns=1e6, project=tmp_path) is None


def test_two_functions_of_one_name_are_one_row_with_both_lines(rows):
    functions = [lambda: None, lambda: None]
    row = rows(lambda: [function() for function in functions])[
        (
            f"{test_two_functions_of_one_name_are_one_row_with_both_lines.__name__}.<locals>.<lambda>"
        ),
        __name__,
    ]
    assert row.calls == 3  # the call itself is the third of this name
    assert len(row.sources) == 2


def test_paths_are_relative_to_the_project_or_to_where_they_are_imported_from(rows):
    functions = rows(lambda: (Counter.of(0), re.escape("a")))
    line = Counter.of.__func__.__code__.co_firstlineno
    assert functions["Counter.of", __name__].sources == (
        f"tests/measuring/test_functions.py:{line}",
    )
    assert functions["escape", "re"].sources[0].startswith("re/__init__.py:")


def test_generated_code_has_the_name_that_python_gives_its_file(rows):
    namespace = {}
    exec("def generated(): pass", namespace)
    assert ("generated", "<string>") in rows(namespace["generated"])


def test_a_short_call_is_repeated_and_the_table_has_the_numbers_of_one(tmp_path):
    runs = []
    call = Call(lambda: runs.append(1))
    table = profile_functions(call, iterations=3, duration_ns=1000, project=tmp_path)
    assert len(runs) == 3 * 1000
    assert [row.calls for row in table.rows] == [1, 1]
    assert len(table.iteration_ns) == 3


def test_calls_that_differ_between_iterations_are_averages(rows):
    numbers = itertools.count(3)
    functions = rows(lambda: Counter.of(next(numbers)))
    assert functions["Counter.down", __name__].varying == ("calls",)
    assert functions["Counter.of", __name__].varying == ()


def test_setup_and_teardown_run_around_each_call_and_are_not_in_the_table(tmp_path):
    log = []

    def setup():
        log.append("setup")
        return (log,), {}

    call = Call(list.copy, setup=setup, teardown=lambda _: log.append("teardown"))
    table = profile_functions(call, iterations=2, duration_ns=1, project=tmp_path)
    assert log == ["setup", "teardown"] * 2
    assert [row.name for row in table.rows] == ["list.copy"]


def test_another_profiler_is_left_alone(tmp_path):
    def other(*_):
        return None

    sys.setprofile(other)
    try:
        with pytest.raises(RuntimeError, match="another profiler"):
            profile_functions(Call(len, ([],)), iterations=1, duration_ns=1, project=tmp_path)
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_a_call_that_raises_leaves_no_profiler_behind(tmp_path):
    with pytest.raises(ZeroDivisionError):
        profile_functions(Call(divmod, (1, 0)), iterations=1, duration_ns=1, project=tmp_path)
    assert sys.getprofile() is None


# ---- Around operations of torch ------------------------------------------------------------------


@pytest.mark.versions
def test_an_operator_of_a_tensor_is_no_time_of_the_function_that_has_it(rows):
    matrix = torch.ones(2, 2)

    def product():
        return (matrix @ matrix)[0] * 2 + 1

    functions = rows(product)
    assert {name.rpartition(".")[2] for name, _ in functions} == {"product", IN_TORCH}
    assert min(functions[IN_TORCH, ""].self_cpu_ns) > 0


@pytest.mark.versions
def test_operators_of_tensors_are_the_same_afterwards():
    visible_operators = imported_provider().visible_operators

    def operators():
        return dict(vars(torch.Tensor))

    before = operators()
    with visible_operators():
        assert operators() != before
        assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))
        assert (1 - torch.nn.Parameter(torch.ones(1))).item() == 0
    assert operators() == before


def test_generated_code_has_the_same_name_in_each_process():
    module = "cfuyaszujrmvprx7jocyticwdkvzmx254khjxxxgkzz6tqjuldvi"
    assert without_hash(f"torch._inductor.runtime.compile_tasks.{module}") == (
        "torch._inductor.runtime.compile_tasks.generated"
    )
    assert name_of_c(f"<built-in method {module}.kernel.kernel>")[0].endswith("kernel")
    assert module not in "".join(name_of_c(f"<built-in method {module}.kernel.kernel>"))
    assert without_hash("collections.abc") == "collections.abc"
