"""What differs between two trees, without running them."""

from __future__ import annotations

import pytest
from mnistbench.gate.reach.changes import changed_functions, changes
from mnistbench.gate.reach.definitions import read
from mnistbench.gate.reach.files import Files
from surveyed import write

from mnistbench.gate.messages import Followed, RunCode
from mnistbench.gate.reach.side_code import SideCode
from mnistbench.gate.words import BASE, HEAD


@pytest.fixture
def compared(tmp_path):
    """Compare two projects; return the changes and the files of the head."""

    def compare(base, head, imported=()):
        sides = {
            name: SideCode(
                Files(
                    write(tmp_path / name, files),
                    {path.removesuffix(".py").replace("/", "."): path for path in files},
                ),
                Followed(
                    code=tuple(code for code, _, _ in imported),
                    imported=tuple(
                        (position, path, line) for position, (_, path, line) in enumerate(imported)
                    ),
                ),
            )
            for name, files in ((BASE, base), (HEAD, head))
        }
        paths = {*base, *head}
        differing = [path for path in paths if base.get(path) != head.get(path)]
        return changes(sides, differing), sides[HEAD].files

    return compare


def test_functions_are_changed_new_and_gone():
    base = read("def a(): return 1\ndef b(): pass\ndef c(): pass\n")
    head = read("def a(): return 2\ndef b(): pass\ndef d(): pass\n")
    assert changed_functions(base, head) == {"a": "changed", "c": "gone", "d": "new"}


def test_a_name_spreads_through_imports(compared):
    users = {"b.py": "from a import K\nL = K\n", "c.py": "import b\ndef f():\n    return b.L\n"}
    changed, files = compared({"a.py": "K = 1\n", **users}, {"a.py": "K = 2\n", **users})
    assert "uses L" in changed.of_code(RunCode("c.py", "f", 2), files)


def test_another_name_of_the_file_does_not(compared):
    user = {"b.py": "from a import OTHER\ndef f():\n    return OTHER\n"}
    changed, files = compared(
        {"a.py": "K = 1\nOTHER = 1\n", **user}, {"a.py": "K = 2\nOTHER = 1\n", **user}
    )
    assert not changed.of_code(RunCode("b.py", "f", 2), files)


def test_a_value_of_a_changed_function_that_ran_at_an_import_differs(compared):
    user = {"b.py": "import a\nT = a.make()\ndef f():\n    return T\n"}
    changed, files = compared(
        {"a.py": "def make():\n    return 1\n", **user},
        {"a.py": "def make():\n    return 2\n", **user},
        imported=[(RunCode("a.py", "make", 1), "b.py", 2)],
    )
    assert "uses T" in changed.of_code(RunCode("b.py", "f", 3), files)


@pytest.mark.parametrize(
    ("imported", "is_seen"), [("import a as m\n", True), ("import json as m\nK = 1\n", False)]
)
def test_a_computed_name_is_one_of_its_module(compared, imported, is_seen):
    user = f"{imported}def f(name):\n    return getattr(m, name)\n"
    changed, files = compared({"a.py": "K = 1\n", "b.py": user}, {"a.py": "K = 2\n", "b.py": user})
    line = 1 + user.count("\n", 0, user.index("def"))
    assert bool(changed.of_code(RunCode("b.py", "f", line), files)) is is_seen


def test_a_change_to_listed_objects_counts_everywhere(compared):
    text = "import b\nfor value in vars(b).values():\n    value.clear()\n"
    changed, _ = compared({"a.py": "", "b.py": "T = {}\n"}, {"a.py": text, "b.py": "T = {}\n"})
    assert "acts on objects that it lists" in changed.everywhere


@pytest.mark.parametrize(
    ("text", "differing"),
    [
        ("for table in (T, U):\n    table.clear()\n", {"T", "U"}),
        ("table = T\ntable.clear()\n", {"T"}),
        ("for kind in (A, B):\n    kind.rate = 2\n", {"rate"}),
        ("kind = A\nkind.rate = 2\n", {"rate"}),
        ("table = dict(T)\ntable.clear()\n", set()),
    ],
)
def test_an_object_is_changed_by_another_name(compared, text, differing):
    other = "T = {}\nU = {}\nclass A: rate = 1\nclass B: rate = 1\n"
    before = "from a import A, B, T, U\n"
    changed, _ = compared({"a.py": other, "b.py": before}, {"a.py": other, "b.py": before + text})
    assert {name.name for name in changed.names} - {"table", "kind"} == differing


#: A function that a changed statement runs, and names of its file.
FILLING = """
import re
class Calm:
    def __call__(self, x):
        return x
class Counting:
    def __call__(self, x):
        self.count = x
LIMIT = 1
NAMES = "a" + str(LIMIT)
PATTERN = re.compile("a")
SIGNS = ["a", "b"]
TABLE = {"a": []}
OBJECT = Calm()
def fill(x):
    if x in SIGNS or PATTERN.match(x):
        for sign in SIGNS:
            x += sign
    y = OBJECT(x)
    items = TABLE[x]
    items.append(LIMIT)
    return NAMES
"""


@pytest.mark.parametrize(("class_name", "differing"), [("Calm", set()), ("Counting", {"OBJECT"})])
def test_only_what_a_function_may_change_at_an_import_differs(compared, class_name, differing):
    text = FILLING.replace("Calm()", f"{class_name}()")
    run = {"fill", f"{class_name}.__call__"}
    changed, _ = compared(
        {"a.py": "import b\nX = b.fill('a')\n", "b.py": text},
        {"a.py": "import b\nX = b.fill('b')\n", "b.py": text},
        imported=[
            (RunCode("b.py", function.name, function.line), "a.py", 2)
            for function in read(text).functions
            if function.name in run
        ],
    )
    assert {name.name for name in changed.names if name.path == "b.py"} == {"TABLE", *differing}


def test_an_effect_on_an_object_outside_of_the_tree_counts_everywhere(compared):
    changed, _ = compared({"a.py": "import json\n"}, {"a.py": "import json\njson.x = 1\n"})
    assert "acts on json.x" in changed.everywhere


def test_a_file_that_this_python_cannot_read_counts_everywhere(compared):
    changed, files = compared({"a.py": "K = 1\n"}, {"a.py": "K = \n"})
    assert "cannot read a.py" in changed.everywhere
    assert "cannot read" in changed.of_code(RunCode("a.py", "f", 1), files)
