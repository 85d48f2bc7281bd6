"""One small project whose functions are made slower in many ways: which one is named."""

from __future__ import annotations

from dataclasses import replace

import gate_builders
import pytest
from surveyed import write

from mnistbench.core.compiled.compilation import CodePlace
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


def code_of(tmp_path, base, head, path="a.py", directory=""):
    """Return the code of a file on both sides; pytest runs in a folder of the tree."""
    copies = {
        side: Tree(tmp_path / side, tmp_path / side / directory, side) for side in (BASE, HEAD)
    }
    write(copies[BASE].root, {path: base})
    write(copies[HEAD].root, {path: head})
    imports = {side: Imports(str(tree.root), files={"a": path}) for side, tree in copies.items()}
    return ComparedCode(copies, imports, dict.fromkeys(copies, Followed()), (path,))


PROPERTY = "class A:\n    @property\n    def f(self): ...\n"


def test_a_function_that_no_iteration_calls_has_its_first_line_in_the_head(tmp_path):
    code = code_of(tmp_path, PROPERTY, f"\n{PROPERTY}")
    assert code.line_in_head("a.py", "A.f") == 3
    assert code.line_in_head("a.py", "A.g") == code.line_in_head("b.py", "f") == 0


#: A statement in each line, from 1.
FUNCTION_TEXT = """\
@cache
@other
def f(x):
    y: int = 1
    if x:
        y = 2
    else:
        y = 3
    @cache
    def g():
        return x
    match y:
        case 1:
            y = 5
        case _:
            pass
    for z in y:
        h(z)
    i(y)
    return y
"""


@pytest.mark.parametrize(
    ("replaced", "new", "line"),
    [
        ("@other", "@another", 2),
        ("f(x)", "f(x, z=1)", 3),
        ("y: int = 1", "y: int = 2", 4),
        ("y: int = 1", "y: float = 1", 1),  # nothing that runs
        ("y: int = 1", "# a comment\n    y: int = 4", 5),
        ("if x:", "if y:", 5),
        ("y = 2", "y = 4", 6),
        ("y = 2", "y = 2\n        y = 4", 7),
        ("y = 3", "y = 4", 8),
        ("    else:\n        y = 3\n", "", 7),
        ("    @cache\n    def", "    @cached\n    def", 9),
        ("return x", "return 2", 1),  # another function
        ("case 1:", "case 2:", 13),
        ("y = 5", "y = 6", 14),
        ("    i(y)", "        i(y)", 19),  # into the loop
        ("return y", "return x", 20),
        ("    return y\n", "    return y\n    return x\n", 21),
        ("    return y\n", "", 19),
    ],
)
def test_the_line_of_a_changed_function_is_that_of_the_first_statement_that_differs(
    tmp_path, replaced, new, line
):
    assert FUNCTION_TEXT.count(replaced) == 1
    code = code_of(tmp_path, FUNCTION_TEXT, FUNCTION_TEXT.replace(replaced, new))
    assert code.line_in_head("a.py", "f") == line


SETTER = "    @f.setter\n    def f(self, f): ...\n"


@pytest.mark.parametrize(
    ("base", "head", "line"),
    [
        (PROPERTY, PROPERTY + SETTER, 4),
        (PROPERTY + SETTER, PROPERTY + SETTER.replace("...", "self._f = f"), 5),
        (PROPERTY + SETTER, PROPERTY, 2),
        ("", PROPERTY, 2),
    ],
)
def test_functions_of_one_name_have_the_line_of_the_one_that_differs(tmp_path, base, head, line):
    assert code_of(tmp_path, base, head).line_in_head("a.py", "A.f") == line


MODEL = """\
class Net:
    def __init__(self):
        self.width = {width}

    def forward(self, x):
        return x[: self.width]
"""


@pytest.mark.parametrize(
    ("directory", "file", "shown"),
    [
        ("", "models.py", "models.py"),
        ("bench", "bench/models.py", "models.py"),
        ("", "src/pkg/models.py", "pkg/models.py"),
        ("bench", "pkg/models.py", "pkg/models.py"),
    ],
)
def test_a_line_of_compiled_code_belongs_to_a_file_of_the_tree(tmp_path, directory, file, shown):
    texts = [MODEL.format(width=width) for width in (8, 9)]
    code = code_of(tmp_path, *texts, path=file, directory=directory)
    assert code.path_in_tree(HEAD, CodePlace(shown, 6, "forward")) == file
    edited = [code.is_edited_at(HEAD, CodePlace(shown, line, "f")) for line in (1, 3, 6)]
    assert edited == [False, True, False]


def test_a_line_of_compiled_code_may_be_of_no_file_of_the_tree(tmp_path):
    code = code_of(tmp_path, MODEL, MODEL)
    for path in ("library/models.py", "/usr/lib/a.py", ""):
        assert code.path_in_tree(HEAD, CodePlace(path, 3, "forward")) == ""
        assert not code.is_edited_at(HEAD, CodePlace(path, 3, "forward"))


def test_a_compiled_lambda_of_a_module_is_a_statement_of_it(tmp_path):
    text = "import torch\nf = torch.compile(lambda x: x + {n})\ng = torch.compile(lambda x: x)\n"
    code = code_of(tmp_path, text.format(n=1), text.format(n=2))
    edited = [code.is_edited_at(HEAD, CodePlace("a.py", line, "<lambda>")) for line in (1, 2, 3)]
    assert edited == [False, True, False]
