"""What a Python file defines, and which of its parts differ."""

from __future__ import annotations

import pytest
from mnistbench.gate.reach.definitions import read
from mnistbench.gate.reach.expressions import Value


def functions(text):
    return {function.name: function for function in read(text).functions}


def contents(text):
    source = read(text)
    parts = [(function.name, function.content) for function in source.functions]
    return parts, [(statement.names, statement.content) for statement in source.statements]


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
            "def f(x):\n    return x\n", 'def f(x):\n    "Text."\n    return x\n', id="doc"
        ),
        pytest.param("k = 1\n", "k: int = 1\n", id="annotated variable"),
        pytest.param("class A:\n    pass\n", 'class A:\n    "Text."\n', id="class"),
    ],
)
def test_what_does_nothing_is_no_content(text, same):
    assert contents(text) == contents(same)


def test_a_function_is_apart_from_the_functions_in_it():
    text = "def f():\n    def g():\n        return {}\n    return g\n"
    before = functions(text.format(1))
    after = functions(text.format(2))
    assert before["f"].content == after["f"].content
    assert before["f.<locals>.g"].content != after["f.<locals>.g"].content


def test_defaults_and_decorators_belong_to_the_statement():
    plain = read("def f(x=1):\n    return x\n")
    other = read("@cache\ndef f(x=2):\n    return x\n")
    assert plain.functions[0].content == other.functions[0].content
    assert plain.statements[0].content != other.statements[0].content


def test_each_name_of_an_import_is_a_statement():
    names = [
        statement.names for statement in read("from a import b, c as d\nimport e.f\n").statements
    ]
    assert names == [("b",), ("d",), ("e",)]


def test_a_function_uses_what_is_not_its_own():
    text = (
        "def f(x):\n    y = x.size + LIMIT\n    from m import n\n    return getattr(y, 'named')\n"
    )
    uses = functions(text)["f"].uses
    assert uses.names == {"LIMIT", "getattr"}
    assert uses.attributes == {"size", "named"}
    assert uses.imports == {("m", "n")}
    assert not uses.is_computed


@pytest.mark.parametrize(
    ("text", "names", "imports"),
    [
        ("getattr(A, name)", {"A"}, set()),
        ("from . import m\n    hasattr(m, name)", set(), {(".", "m")}),
        ("import a.b as m\n    getattr(m, name)", set(), {("a.b", "")}),
    ],
)
def test_a_name_may_be_computed_of_a_module(text, names, imports):
    uses = functions(f"def f(x, name):\n    {text}\n")["f"].uses
    assert (uses.computed_of, uses.computed_of_imports) == (names, imports)
    assert not uses.is_computed


@pytest.mark.parametrize("text", ["getattr(x, name)", "vars(x)", "x.__dict__", "dir(x)"])
def test_names_may_be_computed(text):
    assert functions(f"def f(x, name):\n    return {text}\n")["f"].uses.is_computed


@pytest.mark.parametrize("text", ["setattr(x, name, 1)", "import_module(name).limit"])
def test_a_computed_name_that_is_set_or_imported_reads_none(text):
    assert not functions(f"def f(x, name):\n    {text}\n")["f"].uses.is_computed


def test_an_attribute_of_the_own_object_is_none_of_a_module():
    uses = functions("class A:\n    def f(self, x):\n        return self.a + x.b\n")["A.f"].uses
    assert (uses.own_attributes, uses.attributes) == ({"a"}, {"b"})


def test_the_head_of_a_condition_has_the_names_of_its_branches():
    source = read("if FAST:\n    a = 1\nelse:\n    b = 2\n")
    [head] = [statement for statement in source.statements if statement.is_head]
    assert head.names == ("a", "b")
    assert head.uses.names == {"FAST"}


def test_branches_for_type_checkers_and_scripts_do_not_run():
    text = 'if TYPE_CHECKING:\n    import a\nif __name__ == "__main__":\n    run()\n'
    assert read(text).statements == ()


@pytest.mark.parametrize(
    ("statement", "acts_on"),
    [
        ("a.b[0] = 1", {"a.b"}),
        ("a.b = 1", {"a.b"}),
        ("a.b.append(c)", {"a.b", "c"}),
        ("register(f)", {"register", "f"}),
        ("x = a.b(c)", set()),
        ("@a.register\ndef f(): pass", {"a"}),
        ("@property\ndef f(): pass", set()),
        ("del a.b[0]", {"a.b"}),
    ],
)
def test_a_statement_acts_on_objects(statement, acts_on):
    assert read(statement).statements[0].acts_on == acts_on


@pytest.mark.parametrize(
    ("body", "keeps"),
    [
        ("CACHE[x] = x", {"CACHE"}),
        ("x.value = 1", set()),
        ("if x.value is None:\n        x.value = 1", {"x.value"}),
        ("if not hasattr(x, 'value'):\n        x.value = 1", {"x.value"}),
        (
            "try:\n        return x.value\n    except AttributeError:\n        x.value = 1",
            {"x.value"},
        ),
        ("global LIMIT\n    LIMIT = 1", {"LIMIT"}),
        ("y = object.__new__(X)\n    if y.value is None:\n        y.value = 1", set()),
        ("y = object.__new__(X)\n    y = x\n    if y.a is None:\n        y.a = 1", {"y.a"}),
    ],
)
def test_a_function_keeps_what_later_calls_find(body, keeps):
    assert functions(f"def f(x):\n    {body}\n")["f"].keeps == keeps


@pytest.mark.parametrize(
    ("body", "lends"),
    [
        ("return x in A", set()),
        ("return A + B", set()),
        ("return len(A)", set()),
        ("return A", {"A"}),
        ("g(A)", {"A"}),
        ("y = A\n    y.append(x)", {"A"}),
        ("return A or B", {"A", "B"}),
        ("return A.items", {"A"}),
    ],
)
def test_a_function_lends_what_it_does_more_with_than_look(body, lends):
    assert functions(f"def f(x):\n    {body}\n")["f"].lends == lends


@pytest.mark.parametrize("body", ["for y in A: y.clear()", "y = A[x]", "return [y for y in A]"])
def test_a_function_lends_items(body):
    function = functions(f"def f(x):\n    {body}\n")["f"]
    assert (function.lends, function.lends_items) == (set(), {"A"})


@pytest.mark.parametrize("body", ["return A(x)", "return A.get(x)"])
def test_a_function_calls_objects(body):
    function = functions(f"def f(x):\n    {body}\n")["f"]
    assert (function.lends, function.calls) == (set(), {"A"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A = 1", Value(is_fixed=True)),
        ("A: str = 'a' + B", Value(is_fixed=True, fixed_if=frozenset({"B"}))),
        ("A = (1, B)", Value(is_fixed=True, fixed_if=frozenset({"B"}))),
        ("A = re.compile('a')", Value(is_fixed=True, made_by="re.compile")),
        ("A = [1, B]", Value(has_fixed_items=True, fixed_if=frozenset({"B"}))),
        ("A = {B: 1}", Value(has_fixed_items=True)),
        ("A = [[]]", Value()),
        ("A = ([],)", Value()),
        ("A = m.Thing(1)", Value(made_by="m.Thing")),
        ("A = B.value", Value()),
    ],
)
def test_a_statement_says_whether_its_value_is_fixed(text, value):
    assert read(text).statements[0].value == value


def test_a_name_that_is_bound_twice_has_versions():
    before = read("a = 1\nb = a\na = 2\n").statements
    after = read("a = 1\na = 2\nb = a\n").statements
    content_of_b = [
        next(statement.content for statement in statements if statement.names == ("b",))
        for statements in (before, after)
    ]
    assert content_of_b[0] != content_of_b[1]
