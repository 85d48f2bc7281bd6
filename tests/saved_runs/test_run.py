"""A run is the same from a file and from the session.

A damaged file gives a run or an error.
"""

import contextlib
import dataclasses
import functools
import json
import os
import tempfile
from pathlib import Path

import builders
import pytest
import strategies
from builders import FORMATS, rendered
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.record import OpColumns, OpCounts, run_header
from mnistbench.saved_runs.report import history_table, list_table, run_csv
from mnistbench.saved_runs.run import Run
from mnistbench.saved_runs.storage import SavedRun, read_json
from mnistbench.showing.terminal import draw

SOURCE = "0001_base.json"
CRITERIA = Criteria(op_fail=(Threshold("", 0.10),))


def timed_records():
    """Records of a session: each has a timing, as measured cases do."""
    return st.builds(dataclasses.replace, strategies.case_records(), timing=strategies.timings())


# ---- a session and its file ----------------------------------------------------------------------


@given(st.lists(timed_records(), max_size=3), strategies.environments())
@settings(strategies.ANY_SPEED, max_examples=60)
def test_the_run_of_a_file_equals_that_of_the_session(records, environment):
    file = builders.saved_file(
        benchmarks=[builders.saved_benchmark(record) for record in records],
        mnistbench=run_header(environment),
    )
    read = Run.from_json(json.loads(json.dumps(file)), SOURCE)
    session = Run.of_session(environment, records)
    assert read.cases == session.cases
    # JSON has one kind of list, and what compares two environments must not see a difference in
    # that.
    assert read.environment == session.environment


def test_a_comparison_needs_medians_of_warm_tables_and_final_values_alone():
    row = builders.op_row(
        "aten::mm", (10, 20, 40), module="fc1", calls=2, memory_bytes=64, shapes=["[2, 2]"]
    )
    cold = builders.op_table(temperature="cold")
    record = builders.case_record(
        device_ns=(5, 7),
        tables=(builders.op_table(row, profiler_ns=3), cold),
        op_fail=("5%",),
        case_fail="10%",
    )
    [case] = Run.from_json(builders.saved_file(record), SOURCE, "medians").cases
    [table] = case.tables
    assert (table.temperature, table.times.profiler_ns) == ("warm", 3)
    assert table.keys == (("aten::mm", "forward", "fc1"),)
    assert table.net_ns == (20 - 2 * 3,)
    assert table.times.spread_ns == (15,)
    assert isinstance(table, OpColumns)
    assert (case.wall_ns, case.wall_spread_ns, case.device_ns) == (7_500_000, 300_000, (5, 7))
    assert case.scalars == dataclasses.replace(record.scalars, curves={})
    assert (case.op_fail, case.case_fail) == (("5%",), "10%")


@given(timed_records(), timed_records())
@settings(strategies.ANY_SPEED, max_examples=60)
def test_a_comparison_without_samples_is_that_of_the_whole_runs(base, head):
    head = dataclasses.replace(head, test=base.test, node_id=base.node_id, params=base.params)
    files = [builders.saved_file(record) for record in (base, head)]
    whole_runs = [Run.from_json(file, SOURCE) for file in files]
    lean_runs = [Run.from_json(file, SOURCE, "medians") for file in files]
    reports = [
        rendered(judge(compare(runs[:1], runs[1]), CRITERIA), "json", 3)
        for runs in (whole_runs, lean_runs)
    ]
    assert reports[0] == reports[1]


def test_a_case_is_found_by_its_label_params_node_id_or_the_end_of_that():
    [case] = builders.summary().cases
    assert case.names == (
        "step convnet-b16-cpu on digits",
        "step convnet-b16-cpu",
        "bench/test_step.py::test_step[convnet-b16-cpu]",
        "test_step[convnet-b16-cpu]",
        "step convnet-b16-cpu on digits",  # its label, if no other case has it
    )


@pytest.mark.parametrize("dirty", [True, False, None, "true", 1])
def test_only_true_says_that_the_tree_had_changes(dirty):
    run = Run.from_json(
        builders.saved_file(commit_info={"id": "1a2b3c4d5e", "dirty": dirty}), SOURCE
    )
    assert run.short_commit == ("1a2b3c4+" if dirty is True else "1a2b3c4")


@pytest.mark.parametrize(
    "commit", [{}, {"id": "unversioned", "branch": "unknown"}, {"id": None, "branch": 5}]
)
def test_where_git_failed_there_is_no_commit_and_no_branch(commit):
    run = Run.from_json(builders.saved_file(commit_info=commit), SOURCE)
    assert (run.commit, run.branch, run.short_commit) == ("", "", "")
    assert run.label == "2026-11-20 10:31 UTC"


def test_runs_of_the_same_code_share_the_counts_of_their_tables():
    texts = [json.dumps(builders.saved_file()) for _ in range(2)]
    base, head = (
        Run.from_json(json.loads(text), SOURCE, "medians").cases[0].columns("warm")
        for text in texts
    )
    assert base.counts is head.counts


# ---- files that somebody spoiled -----------------------------------------------------------------

ORDINARY = builders.saved_file(
    builders.case_record(
        op_fail=("5%", "aten::addmm:3%"),
        case_fail="5%",
        notes=("a note",),
        attached={"gpu": {"clock": 5}},
    ),
    builders.case_record(phase="train", tables=(), tables_in="step convnet-b16-cpu", scalars=None),
)
ON_A_DEVICE = builders.saved_file(
    builders.case_record(
        device="cuda",
        device_ns=(800_000, 810_000),
        tables=(
            builders.op_table(
                builders.op_row(self_device_ns=800_000), view="device", profiler_ns=40
            ),
            builders.op_table(profiler_ns=40),
        ),
    ),
    mnistbench=run_header(
        builders.environment(devices=({"device": "cuda", "name": "NVIDIA H200"},))
    ),
)
PLAIN = {
    **builders.saved_file(
        benchmarks=[{**builders.saved_benchmark(builders.case_record()), "extra_info": {"mine": 1}}]
    ),
    "machine_info": {"python_version": "3.12.1", "cpu": {"brand_raw": "AMD EPYC 9R14"}},
}
del PLAIN["mnistbench"]
DOCUMENTS = {"ordinary": ORDINARY, "on a device": ON_A_DEVICE, "plain": PLAIN}


@functools.cache
def sound(kind):
    return Run.from_json(DOCUMENTS[kind], SOURCE)


def run_or_complaint(read, source=SOURCE):
    """Return the result of ``read``.

    None if it raises an error, which must be one line that begins with the source.
    """
    try:
        return read()
    except RecordError as error:
        complaint = str(error)
    assert complaint.startswith(f"{source}: ")
    assert len(complaint.splitlines()) == 1
    return None


def survives_every_report(run, second_run):
    """Compare both ways, judge, and draw whatever a user can ask for."""
    for bases, head in (
        ([second_run], run),
        ([run], second_run),
        ([run, second_run], run),
        ([run] * 8, run),
    ):
        judgement = run_or_complaint(
            lambda head=head, bases=bases: judge(compare(bases, head), CRITERIA)
        )
        if judgement is None:  # a spoiled threshold
            continue
        for form in FORMATS:
            assert rendered(judgement, form, 3).endswith("\n")
        json.loads(
            rendered(judgement, "json", 3),
            parse_constant=lambda name: pytest.fail(f"{name} is not JSON"),
        )
    saved = [SavedRun(Path(SOURCE), run), SavedRun(Path("0002_now.json"), second_run)]
    assert draw(list_table(saved))
    for case in run.cases:
        with contextlib.suppress(UsageError):  # two cases of one name: their times are no series
            assert draw(history_table(saved, case.label, "", ""))
    run_csv(run)


def through_text(document):
    return Run.from_json(json.loads(json.dumps(document)), SOURCE)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_every_report_can_be_made_of_a_sound_file(kind):
    survives_every_report(sound(kind), sound(kind))


SPOILED = {kind: strategies.spoiled(document) for kind, document in DOCUMENTS.items()}


@pytest.mark.properties
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_file_with_any_field_spoiled_is_a_run_or_a_complaint(kind):
    drawn = {repr(sound(kind))}  # reports depend on the run alone
    fields = set()
    for path, document in strategies.each_field_spoiled(DOCUMENTS[kind]):
        run = run_or_complaint(lambda document=document: through_text(document))
        is_drawn = repr(run) in drawn or (
            strategies.dotted(path) in fields and not os.environ.get("THOROUGH")
        )
        if run is not None and not is_drawn:
            drawn.add(repr(run))
            fields.add(strategies.dotted(path))
            survives_every_report(run, sound(kind))
    assert len(fields) > 5


@given(
    st.sampled_from(list(DOCUMENTS)).flatmap(lambda kind: st.tuples(st.just(kind), SPOILED[kind]))
)
@strategies.many(600)
def test_a_file_with_one_place_spoiled_is_a_run_or_a_complaint(drawn):
    kind, (_, document) = drawn
    run = run_or_complaint(lambda: through_text(document))
    if run is not None and run != sound(kind):
        survives_every_report(run, sound(kind))


@given(
    st.binary(max_size=64)
    | st.binary(max_size=64).map(lambda tail: json.dumps(ORDINARY).encode()[:3_000] + tail)
)
@example(b"\xef\xbb\xbf{}")
@example(b"\xff\xfe")
@example(b"\0")
@example(b'{"benchmarks": [], "datetime": "\\ud800"}')
@strategies.many(2_000)
def test_any_bytes_are_a_run_or_a_complaint(content):
    # Not in tmp_path: Hypothesis runs all examples in one.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, SOURCE)
        path.write_bytes(content)
        run = run_or_complaint(lambda: Run.from_json(read_json(path), str(path)), str(path))
    if run is not None:
        survives_every_report(run, sound("ordinary"))


@given(timed_records(), timed_records())
@settings(strategies.ANY_SPEED, max_examples=100)
def test_every_report_can_be_made_of_any_session(base, head):
    # One identity, so that they are compared and not only listed.
    head = dataclasses.replace(head, test=base.test, node_id=base.node_id, params=base.params)
    survives_every_report(builders.summary(base), builders.summary(head))


@pytest.mark.parametrize(
    ("name", "cells", "complaint"),
    [
        ("shapes", None, "shapes: "),
        ("kernels", [[], [5]], "kernels[1][0]: "),
        ("calls", [10**400, 1.5], "calls[0]: "),
        ("calls", [1.5, float("nan")], "is not JSON (NaN is no number)"),
        ("calls", [1, -0.5], "calls needs numbers of calls"),
        ("self_ns", [1, 2.5], "self_ns[1]: "),
        ("memory_bytes", [0, 2**63], "memory_bytes needs sizes"),
        ("name", ["aten::mm"], "has columns of different length"),
        ("self_ns", [], "has columns of different length"),
        ("module", {"0": "fc1"}, "module: "),
    ],
    ids=str,
)
def test_a_column_that_no_profiler_wrote_is_refused_with_its_first_wrong_cell(
    name, cells, complaint
):
    document = builders.saved_file()
    [table] = document["benchmarks"][0]["extra_info"]["mnistbench"]["tables"]
    part = "operations" if name in OpCounts.__annotations__ else "times"
    columns = json.loads(table[part])
    columns[name] = cells
    table[part] = json.dumps(columns)
    with pytest.raises(RecordError) as error:
        Run.from_json(document, SOURCE)
    where = "benchmarks[0].extra_info.mnistbench.tables[0]"
    ours = [f"{where}: {complaint}", f"{where}.{part}: {complaint}", f"{where}.{part}.{complaint}"]
    assert str(error.value).startswith(tuple(f"{SOURCE}: {joined}" for joined in ours))
