"""Anybody can choose the names in a saved file: every format must show them as text."""

import json
import re
from pathlib import Path

import builders
import pytest
from builders import FORMATS, rendered
from hostile_builders import NAMES, is_clean

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.core.errors import RecordError
from mnistbench.judging.acceptance import Acceptance
from mnistbench.saved_runs.report import history_table, list_table
from mnistbench.saved_runs.run import Run
from mnistbench.saved_runs.storage import SavedRun
from mnistbench.showing.terminal import draw


@pytest.fixture(params=NAMES)
def name(request):
    return NAMES[request.param]


def read(document):
    """The summary of a saved file."""
    return Run.from_json(json.loads(json.dumps(document)), "0001_base.json")


def run(name, scale=1, minute=1, **changes):
    """A run in which every name of the file is this one."""
    rows = [
        builders.op_row(name, 900_000 * scale, phase="forward", module="fc1"),
        builders.op_row("aten::mm", 800_000, phase=name, module="fc2", shapes=[name]),
        builders.op_row("aten::add", 700_000 * scale, phase="forward", module=name),
        builders.op_row("aten::small", 10, phase="forward", module=name, calls=scale),
        builders.op_row(f"{name}{scale}", 500_000, phase="backward", module=name),
    ]
    return read(
        builders.saved_file(
            builders.case_record(
                workload=name,
                dataset=name,
                test=name if scale == 1 else f"{name}::new",
                node_id=f"{name}::test[{name}]",
                tables=(builders.op_table(*rows),),
                scalars=builders.scalars(dataset=name, final={name: scale / 3}, directory=name),
                tables_in=name,
                timing=builders.timing(median_ns=3_000_000 * scale),
            ),
            builders.case_record(
                phase="train", tables=(), tables_in=name, node_id=f"{name}{scale}"
            ),
            builders.case_record(
                phase="eval", tables=(), test=name, node_id=name, batch_size=scale
            ),
            commit_info={"id": name, "dirty": True, "branch": name},
            datetime=f"2026-11-20T10:{minute:02}:00+00:00" if scale == 1 else name,
            mnistbench={
                "schema": 1,
                "environment": {
                    **builders.saved_file()["mnistbench"]["environment"],
                    "platform": f"{name}{scale}",
                    "cpu_model": name,
                    "allocator": {name: name},
                    "devices": [{"name": name, name: name}],
                    **changes,
                },
            },
        )
    )


def judgement(name):
    criteria = Criteria(
        op_fail=(Threshold("", 0.1), Threshold(name, 0.1), Threshold(f"not {name}", 0.1)),
        accept=(Acceptance(f"*:{name}", 0.05), Acceptance(f"nothing:{name}", 0.05)),
        reason=f"because {name}",
    )
    return judge(compare([run(name)], run(name, 2)), criteria)


def is_one_line(text):
    return text.isprintable()


def saved(name):
    return [SavedRun(Path(f"000{scale}_{name[:9]}.json"), run(name, scale)) for scale in (1, 2)]


# ---- every report --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_no_format_has_control_characters(name, form):
    assert is_clean(rendered(judgement(name), form, 10))


def test_reports_have_as_many_lines_as_with_plain_names(name):
    # A name that ends a line could write a verdict of its own.
    for form in ("terminal", "markdown"):
        plain, hostile = (
            rendered(judgement(text), form, 10).splitlines() for text in ("plain", name)
        )
        assert len(hostile) == len(plain), form
        assert hostile[-1] == plain[-1]


def test_json_has_the_names_unchanged(name):
    report = json.loads(rendered(judgement(name), "json", 10))
    cases = {case["node_id"]: case for case in report["cases"]}
    operations = cases[f"{name}::test[{name}]"]["operations"]
    assert name in {
        member["operation"] for operation in operations for member in operation["members"]
    }


def test_markdown_has_the_structure_that_it_was_drawn_with(name):
    drawn = rendered(judgement(name), "markdown", 10)
    lines = drawn.split("\n")
    assert "\n\n\n" not in drawn
    assert [line for line in lines if line.startswith("#")] == [lines[0]]
    for number, line in enumerate(lines):
        if line.startswith(("<", "</")):
            assert re.fullmatch(r"<details><summary>[^\n]*</summary>|</details>", line)
            # Markdown starts after an empty line.
            assert lines[number - 1] == lines[number + 1] == ""
        elif line.startswith("|"):
            assert lines[number - 1] == "" or lines[number - 1].startswith("|")
        else:
            assert line == "" or re.match(r"### |\*\*[A-Z][a-z ]+\*\*$|- \S|\d\. \S", line)
    tables = [part.splitlines() for part in re.findall(r"(?:^\|.*\n)+", drawn, flags=re.MULTILINE)]
    assert [
        {len(re.sub(r"\\.", "", line).split("|")) - 2 for line in table} for table in tables
    ] == [{10}, {7}]


# ---- the list and the history --------------------------------------------------------------------


def test_the_list_has_a_line_per_run(name):
    lines = draw(list_table(saved(name))).split("\n")
    assert len(lines) == 3 + 2
    assert all(map(is_one_line, lines))


def test_the_history_has_a_line_per_run(name):
    for op, module in (("", ""), (name, ""), ("", name), ("aten::add", name)):
        lines = draw(history_table(saved(name), f"{name}::test[{name}]", op, module)).split("\n")
        assert len(lines) == 4 + 2
        assert all(map(is_one_line, lines))


def test_an_error_is_printable(name):
    # What the command prints of an error goes through the same function; the file's path and field
    # are in it.
    document = builders.saved_file()
    document["mnistbench"]["environment"]["allocator"] = {name: 5}
    with pytest.raises(RecordError, match=r"allocator\[") as error:
        Run.from_json(document, f"{name}.json")
    assert is_one_line(str(error.value))
