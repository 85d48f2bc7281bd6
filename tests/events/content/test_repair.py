"""Files that torch wrote and that are no JSON are read.

Valid JSON is never changed, damage is never explained away.
"""

import json
import re

import pytest
import trace_builders as build
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import ANY_SPEED, json_values

from mnistbench.core.errors import RecordError
from mnistbench.events.content import repair
from mnistbench.events.content.repair import repaired
from mnistbench.events.from_file import read

#: As Kineto writes an event, with a place for its name.
EVENT = """
  {{
    "ph": "X", "cat": "python_function", "name": "{name}", "pid": 100, "tid": 100,
    "ts": 5.000, "dur": 2.000,
    "args": {{
      "Python id": 7, "Call stack": "{stack}"{more}
    }}
  }}"""


def trace_text(name="", stack="", more=""):
    """A trace of one operation and one Python function.

    Written like Kineto does, without escapes.
    """
    events = [
        json.dumps(build.op("aten::mm", 1, 20)),
        EVENT.format(name=name, stack=stack, more=more),
        EVENT.format(name="last", stack="", more=""),
    ]
    return f"""{{
  "schemaVersion": 1,
  "deviceProperties": [
  ],
  "traceEvents": [
  {",".join(events)}
  ],
  "traceName": "trace.json"
}}"""


def names(path):
    return [event.name for event in read(path).host]


def write(tmp_path, content):
    path = tmp_path / "trace.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "name",
    [
        r"torch\cuda\__init__.py(219): _lazy_init",
        r"C:\Users\me\new\train.py(3): f",
        '{"device": "cpu", "dtype": "float32"}(12): run',
        '<string>(1): {"device": "cpu"}',
        '"""Docstring."""',
        'x"}',
        '{"a": {"b": "c"}}(1): f',
        'f("a", "b")',
        "C:\\data\\",
        'C:\\x "quoted"',
        '"',
    ],
)
def test_names_that_were_not_escaped_are_read_as_they_are(tmp_path, name):
    path = write(tmp_path, trace_text(name))
    assert names(path) == ["aten::mm", name, "last"]
    assert read(path).repairs == (
        "quotes and backslashes that are not escaped were read as they are",
    )


def test_call_stacks_that_were_not_escaped_do_not_disturb(tmp_path):
    stack = (
        r"C:\Users\user\python\profiler.py(611): __init__;<string>(1): {\"device\"};C:\x.py(1): "
        r"<module>"
    )
    path = write(tmp_path, trace_text("name", stack))
    assert names(path) == ["aten::mm", "name", "last"]
    assert names(write(tmp_path, trace_text("name", 'f("a"); g "b"'))) == [
        "aten::mm",
        "name",
        "last",
    ]


@pytest.mark.parametrize(
    "value", ["inf", "-inf", "nan", "-nan", "-nan(ind)", "Infinity", "INF", "NaN"]
)
def test_numbers_that_are_not_finite_are_read(tmp_path, value):
    more = f', "memory bandwidth (GB/s)": {value}, "infinite": "inf, nan: -inf"'
    assert names(write(tmp_path, trace_text("inf: nan", more=more))) == [
        "aten::mm",
        "inf: nan",
        "last",
    ]


@pytest.mark.parametrize(
    "more", [",", ', "Rank": , "x": 1', ', "Rank":', ', "bytes": [1, 2, ], "y": nan,']
)
def test_arguments_without_a_value_are_read(tmp_path, more):
    path = write(tmp_path, trace_text("name", more=more))
    assert names(path) == ["aten::mm", "name", "last"]
    assert read(path).repairs == ("numbers that are not finite and missing values were read",)


def test_bytes_that_are_not_utf_8_are_replaced(tmp_path):
    path = write(
        tmp_path, trace_text("config.py(0): BYTES").encode().replace(b"BYTES", b"\x80\xff\xc3(")
    )
    assert names(path) == ["aten::mm", "config.py(0): \ufffd\ufffd\ufffd(", "last"]
    assert read(path).repairs == ("bytes that are not UTF-8 were replaced",)


def test_all_mistakes_at_once(tmp_path):
    text = (
        trace_text('C:\\x\\"q"\x01', 'a "b"', ', "rate": -nan,')
        .encode()
        .replace(b"traceName", b"trace\xffName")
    )
    trace = read(write(tmp_path, text))
    assert [event.name for event in trace.host] == ["aten::mm", 'C:\\x"q"\x01', "last"]
    assert len(trace.repairs) == 3


@pytest.mark.parametrize("end", ["", ",", ",\n", "]", "\n"])
def test_a_list_of_events_may_have_no_end(tmp_path, end):
    """Chrome's format allows it, for programs that write each event when it is over."""
    text = (
        f"[{json.dumps(build.op('aten::mm', 1, 20))},\n"
        f"{json.dumps(build.op('aten::add', 30, 20))}{end}"
    )
    path = write(tmp_path, text)
    assert names(path) == ["aten::mm", "aten::add"]
    assert bool(read(path).repairs) == (end != "]")


@pytest.mark.parametrize("keep", range(5, 100, 5))
def test_what_is_cut_off_is_refused(tmp_path, keep):
    text = trace_text("torch\\cuda\\x", more=', "rate": inf')
    with pytest.raises(RecordError, match="is not JSON"):
        read(write(tmp_path, text[: len(text) * keep // 100]))


def test_the_mistake_that_is_named_is_that_of_the_file(tmp_path):
    path = write(tmp_path, '{"traceEvents": [{"ph": "X", "name": "C:\\x", "ts": 1, "dur": !}]}')
    with pytest.raises(RecordError, match=r"Invalid \\escape: line 1 column 41"):
        read(path)


@pytest.mark.parametrize("indent", [None, 1])
@ANY_SPEED
@given(
    value=st.lists(json_values()) | st.dictionaries(st.text(max_size=9), json_values()),
    is_ascii=st.booleans(),
)
@example(value={"name": 'a", "pid": 1}, {"ph"', "x": ['"', "\\", '", "']}, is_ascii=True)
@example(value=[float("inf"), -float("inf"), float("nan"), 1e-7, {"inf": "inf"}], is_ascii=False)
def test_valid_json_needs_no_repair(indent, value, is_ascii):
    """It never comes here; but the sound parts of a file are not changed, either."""
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    assert repaired(text.encode()).repairs == ()


#: Characters of which no two are an escape, and none begins a key of an event.
RAW = st.text('xyz "\\{}[]:,()é', min_size=1, max_size=30).filter(
    # Read as escapes, or as the end of an object.
    lambda name: not re.search(r'\\"|\\\\|"\s*\}\s*[,}\]]', name)
)


@ANY_SPEED
@given(name=RAW, stack=RAW)
def test_any_name_is_found(tmp_path_factory, name, stack):
    path = write(
        tmp_path_factory.mktemp("raw"),
        trace_text(name, stack=stack.replace('"', "").replace("\\", "")),
    )
    if not name.endswith("\\"):
        assert names(path) == ["aten::mm", name, "last"]


@ANY_SPEED
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"[", b"{", b'{"traceEvents": [', b'[{"ph": "X", "name": "']),
)
def test_any_bytes_are_a_trace_or_one_line(tmp_path_factory, content, before):
    path = write(tmp_path_factory.mktemp("bytes"), before + content)
    complaint = f"{path}: "
    try:
        read(path)
    except RecordError as error:  # any other exception fails
        complaint = str(error)
    assert complaint.startswith(f"{path}: ")
    assert "\n" not in complaint


@ANY_SPEED
@given(
    st.lists(
        st.sampled_from(
            [*'"\\{}[]:,', '"name"', '"ph"', "inf", "-nan", " ", "x", "\\u00", '", "pid":', '"}']
        )
    )
)
def test_any_tokens_end(parts):
    text = "".join(parts)
    assert repaired(text.encode()) is None or isinstance(repaired(text.encode()).repairs, tuple)


@pytest.mark.parametrize(
    "text",
    [
        '"' * 10**5,
        '\\"' * 10**5,
        ':"\\"}' * 10**5,
        '{"name": "' * 10**5,
        ':"x"y' * 10**5,
        ',"A' * 10**5,
        "[" * 10**5,
    ],
)
def test_a_long_text_of_mistakes_ends(text):
    assert repaired(text.encode()) is None


def test_a_text_of_broken_strings_without_an_end_is_given_up(monkeypatch):
    """For each of them, all of the text that follows would be looked through."""
    searches = []
    really = repair._inside

    def counting(*arguments):
        searches.append(arguments)
        return really(*arguments)

    monkeypatch.setattr(repair, "_inside", counting)
    assert repair.repaired(b"[" + b'{"a":"x"y"},' * 20_000 + b"]") is None
    assert len(searches) < 200
