"""One small project whose functions are made slower in many ways: which one is named."""

from __future__ import annotations

from dataclasses import replace

import gate_builders
import pytest
from surveyed import write

from mnistbench.gate.copies import trees
from mnistbench.gate.copies.trees import Tree
from mnistbench.gate.explain.attribution import causes
from mnistbench.gate.explain.profiles import MAX_KEPT, joined, measure_profiles
from mnistbench.gate.processes.messages import Followed
from mnistbench.gate.processes.sides.stray import Imports
from mnistbench.gate.samples.case_profile import SideFunction, SidePaths
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.words import BASE, HEAD

#: Unchanged functions that the others call.
COMMON = '''
def spin(n):
    """Take some time in one frame."""
    total = 0
    for i in range(n):
        total += i
    return total


def square(x):
    return spin(40) + x * x
'''

#: Kind of slowdown -> (code of the base, code of the head, function to be named, what of it calls
#: more or "").
KINDS = {
    "an extra call": (
        "def f(x):\n    return square(x)\n",
        "def f(x):\n    return square(x) + square(x + 1)\n",
        "f",
        "pkg/common.py:square",
    ),
    "its own loop": (
        "def f(x):\n    return spin(50)\n",
        "def f(x):\n    t = 0\n    for i in range(2000):\n        t += i\n    return spin(50)\n",
        "f",
        "",
    ),
    "a lost cache": (
        (
            "@functools.cache\ndef g(x):\n    return spin(900)\n\n"
            "def f(x):\n    return [g(x) for _ in range(9)]\n"
        ),
        "def g(x):\n    return spin(900)\n\ndef f(x):\n    return [g(x) for _ in range(9)]\n",
        "g",
        "",
    ),
    "a cache that another name has lost": (
        (
            "def g(x):\n    return spin(900)\n\nh = functools.cache(g)\n\n"
            "def f(x):\n    return [h(x) for _ in range(9)] + []\n"
        ),
        (
            "def g(x):\n    return spin(900)\n\nh = g\n\n"
            "def f(x):\n    return [] + [h(x) for _ in range(9)]\n"
        ),
        "g",
        "",
    ),
    "a cache that a function with a changed default has lost": (
        (
            "N = 5\n\ndef g(x, n=N):\n    return spin(900)\n\nh = functools.cache(g)\n\n"
            "@functools.lru_cache(0)\ndef f(x):\n    return [h(x) for _ in range(9)]\n"
        ),
        (
            "N = 6\n\ndef g(x, n=N):\n    return spin(900)\n\nh = g\n\n"
            "@functools.lru_cache(0)\ndef f(x):\n    return [h(x) for _ in range(9)]\n"
        ),
        "g",
        "",
    ),
    "a copied list": (
        "def f(x):\n    items = ITEMS\n    return len(items)\n",
        "def f(x):\n    items = copy.deepcopy(ITEMS)\n    return len(items)\n",
        "f",
        "copy.deepcopy",
    ),
    "a slower built-in": (
        "def f(x):\n    return max(ITEMS)\n",
        "def f(x):\n    return sorted(ITEMS * 9)[-1]\n",
        "f",
        "sorted",
    ),
    "a larger constant": (
        "SIZE = 5\n\ndef f(x):\n    return [square(i) for i in range(SIZE)]\n",
        "SIZE = 15\n\ndef f(x):\n    return [square(i) for i in range(SIZE)]\n",
        "f",
        "pkg/common.py:square",
    ),
    "an import in a function": (
        "import json\n\ndef f(x):\n    return json.dumps(x)\n",
        (
            "def f(x):\n    for _ in range(9):\n        import xml.dom.minidom as m\n"
            "    import json\n    return json.dumps(x)\n"
        ),
        "f",
        "",
    ),
    "another regular expression": (
        "import re\n\nPATTERN = re.compile('z')\n\ndef f(x):\n    return PATTERN.search(TEXT)\n",
        (
            "import re\n\nPATTERN = re.compile('(a|b)*z')\n\n"
            "def f(x):\n    return PATTERN.search(TEXT)\n"
        ),
        "f",
        "",
    ),
    "a new function": (
        "def f(x):\n    return x\n",
        "def g(x):\n    return spin(400) + x\n\ndef f(x):\n    return g(x)\n",
        "g",
        "",
    ),
    "a changed default": (
        "def f(x, n=5):\n    return spin(n)\n",
        "def f(x, n=900):\n    return spin(n)\n",
        "f",
        "",
    ),
    "a changed constant as a default": (
        "N = 5\n\ndef g(x, n=N):\n    return spin(n)\n\ndef f(x):\n    return g(x) + 0\n",
        "N = 900\n\ndef g(x, n=N):\n    return spin(n)\n\ndef f(x):\n    return g(x) + 0\n",
        "g",
        "",
    ),
    "a wrapper": (
        "def twice(function):\n    return function\n\n@twice\ndef f(x):\n    return spin(200)\n",
        (
            "def twice(function):\n    def wrapper(x):\n        function(x)\n"
            "        return function(x)\n    return wrapper\n\n"
            "@twice\ndef f(x):\n    return spin(200)\n"
        ),
        "twice.<locals>.wrapper",
        "",
    ),
    "beside a harmless change": (
        (
            "def g(x):\n    return x + 1\n\ndef h(x):\n    return spin(50)\n\n"
            "def f(x):\n    return g(x) + h(x)\n"
        ),
        (
            "def g(x):\n    return 1 + x\n\ndef h(x):\n    return spin(500)\n\n"
            "def f(x):\n    return h(x) + g(x)\n"
        ),
        "h",
        "",
    ),
    "below a harmless change": (
        "def h(x):\n    return spin(50)\n\ndef f(x):\n    return h(x) + 0\n",
        "def h(x):\n    return spin(500)\n\ndef f(x):\n    return 0 + h(x)\n",
        "h",
        "",
    ),
    "recursion": (
        "def f(x):\n    return x if x > 30 else f(x + 8)\n",
        "def f(x):\n    return x if x > 30 else f(x + 1)\n",
        "f",
        "",
    ),
    "a generator": (
        "def g(n):\n    yield from range(n)\n\ndef f(x):\n    return sum(g(50))\n",
        (
            "def g(n):\n    for i in range(n):\n        yield square(i) and i\n\n"
            "def f(x):\n    return sum(g(50))\n"
        ),
        "g",
        "pkg/common.py:square",
    ),
}

HEADER = """
import copy
import functools

from pkg.common import spin, square

ITEMS = list(range(300))
TEXT = "ab" * 60
"""


def slug(kind):
    return kind.replace(" ", "_").replace("-", "_")


def project(side):
    files = {"pkg/__init__.py": "", "pkg/common.py": COMMON}
    tests = ["import importlib"]
    for kind, (base, head, *_) in KINDS.items():
        files[f"pkg/{slug(kind)}.py"] = HEADER + (base if side == BASE else head)
        tests.append(
            f"def test_{slug(kind)}(benchmark):\n"
            f"    benchmark(importlib.import_module('pkg.{slug(kind)}').f, 1)\n"
        )
    files["tests/test_all.py"] = "\n\n".join(tests)
    return files


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """The call paths of all cases of the project, from one trial."""
    folder = tmp_path_factory.mktemp("profiles")
    plan = gate_builders.plan(folder, "tests")
    for side, tree in plan.setup.trees.items():
        write(tree.root, project(side))
    differing = trees.all_differing(tuple(plan.setup.trees.values()))
    result = gate_builders.surveyed(plan, folder)
    surveys = result.surveys
    code = ComparedCode(plan.setup.trees, surveys.imports, surveys.followed, differing)
    cases = list(surveys.listings.head.cases)
    return measure_profiles(result.trial_plan(), 2, cases, folder / "log", code)


@pytest.mark.parametrize("kind", KINDS)
def test_the_function_that_got_slower_is_the_first_cause(profiles, kind):
    _, _, name, _ = KINDS[kind]
    explained = causes(profiles[f"tests/test_all.py::test_{slug(kind)}"])
    assert explained.change_ns > 0
    assert explained.functions[0].function == f"pkg/{slug(kind)}.py:{name}"
    assert explained.are_enough


@pytest.mark.parametrize("kind", [kind for kind, (*_, makes) in KINDS.items() if makes])
def test_a_function_that_is_called_more_often_is_named(profiles, kind):
    _, _, _, makes = KINDS[kind]
    explained = causes(profiles[f"tests/test_all.py::test_{slug(kind)}"])
    called = explained.functions[0].makes
    assert called is not None
    assert called.function == makes
    assert called.head > called.base


def test_a_function_that_only_uses_what_differs_does_not_differ_itself(profiles):
    profile = profiles["tests/test_all.py::test_a_changed_constant_as_a_default"]
    functions = {function.name: function for function in profile.functions}
    default = functions["pkg/a_changed_constant_as_a_default.py:g"]
    assert not default.differs_itself
    assert default.change.startswith("has a definition that differs (")
    wrapped = profiles["tests/test_all.py::test_a_wrapper"]
    assert not {function.name: function for function in wrapped.functions}[
        "pkg/a_wrapper.py:f"
    ].differs_itself


def test_a_function_that_is_defined_after_something_else_has_run_does_not_differ_itself(profiles):
    kind = "a cache that a function with a changed default has lost"
    functions = {
        one.name: one for one in profiles[f"tests/test_all.py::test_{slug(kind)}"].functions
    }
    after = functions[f"pkg/{slug(kind)}.py:f"]
    assert not after.differs_itself
    assert after.change.startswith("uses h (")


def test_calls_are_counted_exactly(profiles):
    profile = profiles["tests/test_all.py::test_an_extra_call"]
    names = [function.name for function in profile.functions]
    square = names.index("pkg/common.py:square")
    [path] = [path for path in profile.paths if path.function == square]
    assert (path.base_calls, path.head_calls) == (1, 2)


# ---- Joining -------------------------------------------------------------------------------------


def no_code(tmp_path):
    sides = {side: Tree(tmp_path, tmp_path, side) for side in (BASE, HEAD)}
    imports = {side: Imports(str(tmp_path), {}, {}) for side in sides}
    return ComparedCode(sides, imports, dict.fromkeys(sides, Followed()), ())


def test_a_function_whose_calls_vary_on_a_side_has_no_exact_number(tmp_path):
    names = [SideFunction("", name, 0) for name in ("the case", "f", "g")]
    same = SidePaths(names, [-1, 0, 0], [0, 1, 2], [1.0, 2.0, 3.0], [0.0, 1.0, 1.0])
    varying = replace(same, varying=[2])
    for base, head in ((same, varying), (varying, same)):
        functions = joined(base, head, no_code(tmp_path)).functions
        assert [function.name for function in functions if function.calls_vary] == ["g"]


def test_paths_of_little_time_count_for_the_path_that_they_continue(tmp_path):
    names = [SideFunction("", f"f{number}", 0) for number in range(MAX_KEPT + 100)]
    many = SidePaths(
        functions=names,
        parents=[-1, *[0] * (len(names) - 1)],
        last_functions=range(len(names)),
        calls=[1.0] * len(names),
        self_ns=[0.0, *range(1, len(names))],
    )
    few = SidePaths(names[:1], [-1], [0], [1.0], [0.0])
    profile = joined(few, many, no_code(tmp_path))
    assert len(profile.paths) == MAX_KEPT
    assert sum(path.head_self_ns for path in profile.paths) == sum(range(1, len(names)))
    assert min(path.head_self_ns for path in profile.paths[1:]) == 101
    assert profile.paths[0].head_self_ns == sum(range(1, 101))


def test_a_function_has_its_first_line_in_the_head(tmp_path):
    sides = [
        SidePaths(
            [
                SideFunction("", "the case", 0),
                SideFunction("a.py", "f", line),
                SideFunction("", "len", 0),
                SideFunction("a.py", name, 40),
            ],
            [-1, 0, 0, 0],
            [0, 1, 2, 3],
            [1.0] * 4,
            [0.0, 1.0, 1.0, 1.0],
        )
        for line, name in ((3, "gone"), (7, "new"))
    ]
    functions = joined(*sides, no_code(tmp_path)).functions
    assert {function.name: (function.path, function.line) for function in functions[1:]} == {
        "a.py:f": ("a.py", 7),
        "len": ("", 0),
        "a.py:gone": ("a.py", 0),
        "a.py:new": ("a.py", 40),
    }


def test_a_function_that_no_iteration_calls_has_its_first_line_in_the_head(tmp_path):
    trees_of_sides = {side: Tree(tmp_path / side, tmp_path / side, side) for side in (BASE, HEAD)}
    for side, tree in trees_of_sides.items():
        blank_lines = "\n" * (side == HEAD)
        write(tree.root, {"a.py": f"{blank_lines}class A:\n    @property\n    def f(self): ...\n"})
    imports = {
        side: Imports(str(tree.root), {"a": "a.py"}, {}) for side, tree in trees_of_sides.items()
    }
    code = ComparedCode(
        trees_of_sides, imports, dict.fromkeys(trees_of_sides, Followed()), ("a.py",)
    )
    assert code.line_in_head("a.py", "A.f") == 3
    assert code.line_in_head("a.py", "A.g") == code.line_in_head("b.py", "f") == 0
