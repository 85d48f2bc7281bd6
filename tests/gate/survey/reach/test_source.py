"""What a Python file defines, and which of its parts differ."""

from __future__ import annotations

import pytest

from mnistbench.gate.survey.reach.source import Kind, read


def functions(text):
    return {function.name: function for function in read(text).functions}


def contents(text):
    source = read(text)
    parts = [(function.name, function.content) for function in source.functions]
    return parts, [(statement.names, statement.content) for statement in source.statements]


def kinds(text):
    return [statement.kind for statement in read(text).statements]


# ---- Content -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "same"),
    [
        pytest.param(
            "def f(x):\n    return x\n", "def f(x):\n\n    return (x)  # x\n", id="format"
        ),
        pytest.param(
            "def f(x):\n    return x\n", "def f(x: int) -> int:\n    return x\n", id="types"
        ),
        pytest.param(
            "def f(x):\n    y = x\n",
            "def f(x):\n    y: int = x\n    z: int\n",
            id="local variables",
        ),
        pytest.param(
            "def f(x):\n    def g(y):\n        pass\n",
            "def f(x):\n    def g(y: int):\n        pass\n",
            id="types of a function in a function",
        ),
        pytest.param(
            "def f(x):\n    return x\n", 'def f(x):\n    "Text."\n    return x\n', id="doc"
        ),
        pytest.param("k = 1\n", "k: int = 1\n", id="annotated variable"),
        pytest.param("class A:\n    pass\n", 'class A:\n    "Text."\n', id="class"),
    ],
)
def test_what_does_nothing_is_no_content(text, same):
    assert contents(text) == contents(same)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        pytest.param("def f(x): pass\n", "def f(y): pass\n", id="name of a parameter"),
        pytest.param("def f(x, y): pass\n", "def f(x, *, y): pass\n", id="kind of a parameter"),
        pytest.param("def f(): pass\n", "async def f(): pass\n", id="coroutine"),
        pytest.param("def f(): return 1\n", "def f(): return True\n", id="equal constants"),
        pytest.param(
            "class A:\n    k: int\n", "class A:\n    k: str\n", id="annotation of a class"
        ),
        pytest.param(
            "@register\ndef f(x): pass\n",
            "@register\ndef f(x: int): pass\n",
            id="that is decorated",
        ),
        pytest.param("if A:\n    k = 1\n", "if B:\n    k = 1\n", id="condition"),
        pytest.param(
            "try:\n    k = 1\nexcept A:\n    l = 1\n",
            "try:\n    k = 1\nexcept B:\n    l = 1\n",
            id="exception",
        ),
        pytest.param("try:\n    k = 1\nfinally:\n    pass\n", "k = 1\n", id="try"),
    ],
)
def test_the_rest_is_content(text, other):
    assert contents(text) != contents(other)


def test_a_function_is_apart_from_the_functions_in_it():
    text = "def f():\n    def g():\n        return {}\n    return g\n"
    before = functions(text.format(1))
    after = functions(text.format(2))
    assert before["f"].content == after["f"].content
    assert before["f.<locals>.g"].content != after["f.<locals>.g"].content


def test_functions_are_found_in_all_statements():
    text = """
for x in ():
    def f(): pass
with a:
    class A:
        def g(self):
            class B:
                def h(self): pass
if b:
    async def i(): pass
"""
    names = ["f", "A.g", "A.g.<locals>.B.h", "i"]
    assert [*functions(text)] == names


def test_defaults_and_decorators_belong_to_the_statement():
    plain = read("def f(x=1):\n    return x\n")
    other = read("@cache\ndef f(x=2):\n    return x\n")
    assert plain.functions[0].content == other.functions[0].content
    assert plain.statements[0].content != other.statements[0].content


def test_each_name_of_an_import_is_a_statement():
    statements = read("from .a import b, c as d\nimport e.f\nfrom g import *\n").statements
    assert [(one.names, one.imported, one.takes) for one in statements] == [
        (("b",), ".a", "b"),
        (("d",), ".a", "c"),
        (("e",), "e.f", ""),
        (("*",), "g", "*"),
    ]


def test_what_uses_a_name_has_the_actions_before_it():
    before = read("a = []\nb = a\nc = 1\na.append(1)\n").statements
    after = read("a = []\na.append(1)\nb = a\nc = 1\n").statements
    changed = {
        one.names
        for one, other in zip(before, (*after[:1], *after[2:], after[1]), strict=True)
        if one.key != other.key
    }
    assert changed == {("b",)}


def test_branches_for_type_checkers_and_scripts_do_not_run():
    text = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import a
if __name__ == "__main__":
    run()
"""
    assert [one.names for one in read(text).statements] == [("TYPE_CHECKING",)]


def test_a_flag_of_the_project_is_no_branch_for_type_checkers():
    text = "from pkg import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\n"
    assert ("a",) in [one.names for one in read(text).statements]


# ---- What statements do --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x = 1", Kind.VALUE),
        ("x: int", Kind.VALUE),
        ("x, (y, *z) = a", Kind.ACTION),
        ("x = [a.b + c for c in d if not e]", Kind.VALUE),
        ("x = a[0]", Kind.ACTION),
        ("x = list[int]", Kind.VALUE),
        ("x = sorted([1, 2])", Kind.VALUE),
        ("x = lambda: f()", Kind.ACTION),
        ("x = sorted(y)", Kind.ACTION),
        ("import re\nx = re.compile('a')", Kind.VALUE),
        ("x = f(y)", Kind.ACTION),
        ("def sorted(y): pass\nx = sorted(y)", Kind.ACTION),
        ("from pkg import re\nx = re.compile('a')", Kind.ACTION),
        ("x = (y := 1)", Kind.ACTION),
        ("x.y = 1", Kind.ACTION),
        ("x[0] = 1", Kind.ACTION),
        ("x += 1", Kind.ACTION),
        ("x >> y", Kind.ACTION),
        ("del x", Kind.ACTION),
        ("for x in y: pass", Kind.ACTION),
        ("with x: pass", Kind.ACTION),
        ("import x", Kind.IMPORT),
        ("class A(B): pass", Kind.CLASS),
        ("class A(metaclass=B): pass", Kind.ACTION),
        ("class A(f()): pass", Kind.ACTION),
        ("@f\nclass A: pass", Kind.ACTION),
        ("from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A: pass", Kind.CLASS),
        ("def f(x=1): pass", Kind.FUNCTION),
        ("def f(x=g()): pass", Kind.ACTION),
        ("@f\ndef g(): pass", Kind.ACTION),
        ("import functools\n@functools.lru_cache(maxsize=1)\ndef f(): pass", Kind.FUNCTION),
        ("import pytest\n@pytest.mark.parametrize('x', [1])\ndef f(x): pass", Kind.FUNCTION),
        ("import pytest\n@pytest.mark.parametrize('x', g())\ndef f(x): pass", Kind.ACTION),
        ("def property(x): pass\n@property\ndef f(): pass", Kind.ACTION),
        ("if f(): pass", Kind.ACTION),
        ("if a > b: pass", Kind.VALUE),
    ],
)
def test_a_statement_has_a_kind(text, kind):
    assert kinds(text)[-1] is kind


def test_properties_have_parts():
    text = """
class A:
    @property
    def x(self): pass
    @x.setter
    def x(self, value): pass
"""
    assert kinds(text) == [Kind.CLASS, Kind.FUNCTION, Kind.FUNCTION]


# ---- Words ---------------------------------------------------------------------------------------


def test_a_function_mentions_names_attributes_and_words_of_texts():
    words = functions("""
def f(x):
    from m import n
    y = g(x.size, key=LIMIT)
    return getattr(y, "named one")
""")["f"].words
    assert {"g", "x", "y", "LIMIT", "getattr"} <= words.names
    assert {"m", "n", "size", "key", "named", "one"} <= words.attributes
    assert "LIMIT" in words.used
    assert words.used.isdisjoint({"g", "getattr"})
    assert not words.lists_names


def test_a_method_mentions_its_class():
    assert "A" in functions("class A:\n    def f(self): pass\n")["A.f"].words.names


def test_a_definition_does_not_mention_itself():
    [statement] = read("def f(x=K): pass\n").statements
    assert "K" in statement.words.names
    assert "f" not in statement.words.names | statement.words.attributes


@pytest.mark.parametrize(
    "text", ["vars(x)", "x.__dict__", "dir(x)", "globals()['a']", "operator.attrgetter(x)"]
)
def test_names_may_be_listed(text):
    assert functions(f"def f(x):\n    return {text}\n")["f"].words.lists_names


@pytest.mark.parametrize("text", ["getattr(x, name)", "self.__dict__"])
def test_names_are_not_listed(text):
    assert not functions(f"def f(self, x, name):\n    return {text}\n")["f"].words.lists_names


# ---- Places --------------------------------------------------------------------------------------


def test_a_lambda_belongs_to_the_innermost_function():
    source = read("def f():\n    def g():\n        return lambda: 1\n    return g\n")
    function = source.function("f.<locals>.g.<locals>.<lambda>", 3)
    assert function
    assert function.name == "f.<locals>.g"
    assert source.function("f.<locals>.h", 3) is None


def test_a_lambda_of_a_class_belongs_to_a_statement_of_its_body():
    source = read("class A:\n    x = lambda: 1\n    y = 2\n")
    assert [one.names for one in source.statements_at(2)] == [("x",)]


def test_of_two_functions_with_a_name_the_line_decides():
    source = read("if a:\n    def f(): return 1\nelse:\n    def f(): return 2\n")
    assert source.function("f", 4) is source.functions[1]
