"""The file of raw samples, and the times that follow from what it stores."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import gate_builders
import pytest
import strategies
from full_disks import NO_ROOM, largest_file
from gate_builders import (
    ADD,
    CASE,
    MM,
    TINY,
    build,
    header,
    line,
    operation,
    side,
    trial,
    write_lines,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from mnistbench.core.errors import RecordError
from mnistbench.gate.decide.statistics.quantities import quantities
from mnistbench.gate.samples.raw_samples import (
    INTERRUPTED,
    NO_END,
    End,
    NotSavedError,
    Recorded,
    append,
    create,
    load,
)
from mnistbench.gate.words import ALL_CASES

# ---- the file ------------------------------------------------------------------------------------


def gzipped(*texts):
    return b"".join(
        gzip.compress(text.encode() if isinstance(text, str) else text, mtime=0) for text in texts
    )


def spoiled_file(tmp_path, data):
    path = tmp_path / "spoiled.jsonl.gz"
    path.write_bytes(data)
    return path


def refusal(path):
    """The one line that a file is refused with; it names the file once."""
    with pytest.raises(RecordError) as error:
        load(path)
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert text.count(str(path)) == 1
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def test_costs_that_occur_once_are_kept(tmp_path):
    trials = [
        trial(
            once={name: {"import": {ALL_CASES: 7}, "setup": {CASE: 3}} for name in ("base", "head")}
        ),
        trial(),
    ]
    without = {name: value for name, value in line(trials[1]).items() if name != "once"}
    path = write_lines(tmp_path / "x.jsonl.gz", header().line(), line(trials[0]), without)
    assert load(path) == Recorded(path, header(), trials, NO_END)
    # One trial has none.
    assert not any(quantity.is_once for quantity in quantities(load(path).trials))


def test_what_was_appended_is_loaded(tmp_path):
    times = {"wall": (5, 6), "cpu": (3, 4), "device": (1, 2), "busy": (1, 1)}
    device = side(times=times, outcome=("ffff", -1.5), parameters=3)
    rows = side(
        operations={
            MM: operation((1, 2), calls=1.5, memory_bytes=-8, kernels=("gemm",)),
            ADD: operation((0, 7)),
        }
    )
    trials = [
        trial(build(device, rows), build()),
        trial(build(side(operations={}), rows), stage=2, seconds=1.25),
    ]
    path = write_lines(
        tmp_path / "new" / "folder" / "x.jsonl.gz", header().line(), *map(line, trials)
    )
    assert load(path) == Recorded(path, header(), trials, NO_END)


def test_samples_that_an_earlier_version_saved_are_read():
    recorded = load(Path(__file__).parents[2] / "data" / "gate_samples_0.1.0.jsonl.gz")
    assert recorded.end == End("the budget allowed 4 of 10 launches", elapsed_s=61.5)
    assert recorded.header.labels == {CASE: gate_builders.LABEL}
    assert [trial.stage for trial in recorded.trials] == [1, 1, 1, 2]
    by_key = {quantity.key[1:]: quantity for quantity in quantities(recorded.trials[:3])}
    assert by_key["iteration", "wall"].logs == pytest.approx([0.0975, 0.0959, 0.0979], abs=1e-4)
    assert (
        by_key["operation", "aten::mm, forward fc1"].base,
        by_key["mean", "cpu"].head,
    ) == (
        1_012_105.5,
        5_357_994.0,
    )
    [build] = recorded.trials[3].cases[CASE]
    assert build["base"] == side(
        operations={},
        times={"wall": (5, 6), "cpu": (3, 4), "device": (1, 2)},
        outcome=("ffff", None),
    )


@pytest.mark.parametrize("kept", [1, 5, 12, 100, -9, -1])
def test_a_torn_last_line_is_left_out(tmp_path, kept):
    path = write_lines(tmp_path / "x.jsonl.gz", header().line(), line(trial()))
    whole = path.read_bytes()
    path.write_bytes(whole + gzipped(json.dumps(line(trial(stage=2))))[:kept])
    assert load(path) == Recorded(path, header(), [trial()], NO_END)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "is empty; name a file that mnistbench gate has written"),
        (
            gzipped(json.dumps(header().line()))[:-1],
            "is empty; name a file that mnistbench gate has written",
        ),
        (b'{"schema": 1}', "is not gzip; name a file that mnistbench gate has written"),
        (
            b"\x1f\x8b\x08\xff" + b"x" * 40,
            "is not gzip; name a file that mnistbench gate has written",
        ),
        (gzipped(b"\xff\xfe"), "is not text"),
        (gzipped("{"), "line 1: is not JSON ("),
        (gzipped(json.dumps(header().line()) + "\n", "{\n"), "line 2: is not JSON ("),
        (gzipped("[]"), "line 1: "),
        (gzipped("{}"), "schema: is missing"),
        (
            gzipped('{"schema": 3}'),
            "schema: 3 is not known to this version, which reads 2; update mnistbench",
        ),
        (
            gzipped(json.dumps(header().line()) + "\n", "7\n"),
            "line 2: ",
        ),
    ],
)
def test_a_file_that_is_none_of_ours_is_refused_in_one_line(tmp_path, data, expected):
    assert refusal(spoiled_file(tmp_path, data)).startswith(expected)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert refusal(tmp_path / "missing.jsonl.gz").startswith("cannot be read (")
    assert refusal(tmp_path).startswith("is not a file; ")


IN_CASE = f"cases.{CASE}[0].base"
SIDE_PATH = ("cases", CASE, 0, "base")


def changed(document, path, value):
    """A copy with one place replaced, or deleted where the value is ``...``."""
    copied = json.loads(json.dumps(document))
    place = copied
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copied


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("stage",), 4, "stage: "),
        (("cases",), [], "cases: "),
        (("once",), {"base": {"import": 5}}, "once[...][...]: "),
        (
            ("once",),
            {"base": {"import": {"x": -5}}},
            "once[...][...][...]: ",
        ),
        (("cases", CASE), [], f"cases.{CASE}: "),
        (("cases", CASE, 0, "base"), ..., f"{IN_CASE}: is missing"),
        ((*SIDE_PATH, "wall_ns"), ..., f"{IN_CASE}.wall_ns: is missing"),
        (
            (*SIDE_PATH, "wall_ns", 2),
            -1,
            f"{IN_CASE}.wall_ns[2]: ",
        ),
        ((*SIDE_PATH, "queued_ns"), [1], f"{IN_CASE}.queued_ns: needs 5 times, found [1]"),
        (
            (*SIDE_PATH, "outcome"),
            ["ffff"],
            f"{IN_CASE}.outcome: ",
        ),
        ((*SIDE_PATH, "keys"), [], f"{IN_CASE}: has columns of different length"),
        (
            (*SIDE_PATH, "keys", 0),
            ["aten::mm", "forward"],
            f"{IN_CASE}.keys[0]: ",
        ),
    ],
    ids=lambda value: ".".join(map(str, value[-2:])) if isinstance(value, tuple) else "",
)
def test_a_spoiled_field_of_a_trial_is_named(tmp_path, path, value, expected):
    file = write_lines(
        tmp_path / "x.jsonl.gz", header().line(), changed(line(trial()), path, value)
    )
    assert refusal(file).startswith(expected)


def test_operations_of_one_side_have_as_many_iterations_as_each_other(tmp_path):
    whole = line(trial(build(side(operations={MM: 5, TINY: 5}))))
    document = json.loads(json.dumps(whole))
    document["cases"][CASE][0]["base"]["self_ns"][1].pop()
    assert f"{IN_CASE}.self_ns[1]: needs 5 times" in refusal(
        write_lines(tmp_path / "x.jsonl.gz", header().line(), document)
    )


def loaded(path):
    """The trials of a file; none where it was refused, in one line that names the file."""
    try:
        return load(path).trials
    except RecordError as error:
        refused = str(error)
    assert refused.startswith(f"{path}: ")
    assert "\n" not in refused
    return []


LINES = [header().line(), line(trial(build(side(operations={MM: 5, TINY: 7})), seconds=1.5))]


@settings(parent=strategies.ANY_SPEED, max_examples=50)
@given(st.data())
def test_a_file_whose_bytes_were_spoiled_is_loaded_or_refused_in_a_line(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "bytes.jsonl.gz"
    whole = bytearray(gzipped(*(json.dumps(stored_line) + "\n" for stored_line in LINES)))
    position = data.draw(st.integers(0, len(whole) - 1))
    whole[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(whole))
    loaded(path)


@pytest.mark.parametrize("room", [0, 1, 40])
def test_a_full_disk_costs_only_the_line_that_it_had_no_room_for(tmp_path, room):
    path = write_lines(tmp_path / "x.jsonl.gz", header().line(), line(trial()))
    with largest_file(path.stat().st_size + room), pytest.raises(NotSavedError) as error:
        append(path, line(trial(stage=2)))
    assert str(error.value) == (
        f"{path}: cannot be written ({NO_ROOM}); free some space, or give another --storage"
    )
    assert load(path) == Recorded(path, header(), [trial()], NO_END)
    append(path, INTERRUPTED.line())  # for which there may be room
    assert load(path) == Recorded(path, header(), [trial()], INTERRUPTED)


def test_a_file_that_was_removed_is_not_written_without_its_header(tmp_path):
    path = write_lines(tmp_path / "x.jsonl.gz", header().line())
    path.unlink()
    with pytest.raises(NotSavedError, match=r"cannot be written \(No such file or directory\)"):
        append(path, line(trial()))
    assert not path.exists()


def test_a_file_that_exists_is_not_created_again(tmp_path):
    path = write_lines(tmp_path / "x.jsonl.gz", header().line(), line(trial()))
    with pytest.raises(FileExistsError):
        create(path, header().line())
    assert load(path) == Recorded(path, header(), [trial()], NO_END)


def test_a_file_that_cannot_be_created_is_a_line(tmp_path):
    with pytest.raises(NotSavedError, match=r"cannot be written \(No such file or directory\)"):
        create(tmp_path / "removed" / "x.jsonl.gz", header().line())


# ---- times ---------------------------------------------------------------------------------------


def test_busy_times_of_a_repeated_call_are_those_of_one_call_already(tmp_path):
    times = {"wall": (1_000,) * 5, "device": (1_000,) * 5, "busy": (25,) * 5}
    stored = line(trial(build(side(operations={MM: 20}, times=times))))
    for stored_side in stored["cases"][CASE][0].values():
        stored_side["loops"] = 10
    read = (
        load(write_lines(tmp_path / "x.jsonl.gz", header().line(), stored))
        .trials[0]
        .cases[CASE][0]["base"]
    )
    assert (read.times["device"][0], read.times["busy"][0], read.operations[MM].self_ns[0]) == (
        100,
        25,
        20,
    )


@pytest.mark.parametrize(
    ("cpu_ns", "wall_ns"),
    # The third lost its core outside of the wall time as well.
    [([80, 150, 290], (90, 180, 290)), ([], (90, 180, 0))],
)
def test_time_in_which_another_process_had_the_core_is_subtracted(tmp_path, cpu_ns, wall_ns):
    stored = line(trial(build(side((100, 200, 300)))))
    stored["cases"][CASE][0]["base"] |= {"queued_ns": [10, 20, 400], "cpu_ns": cpu_ns}
    [read] = load(write_lines(tmp_path / "x.jsonl.gz", header().line(), stored)).trials
    assert read.cases[CASE][0]["base"].times["wall"] == wall_ns
    assert read.cases[CASE][0]["head"].times["wall"] == (100, 200, 300)


# ---- the header ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("base",), None, "base: "),
        (("seed",), -1, "seed: "),
        (("sides", "head"), ..., "sides.head: is missing"),
        (("shard",), {"number": 1, "of": 10**9}, "file: shard 1/1000000000 is one of more parts"),
        (
            ("shard",),
            {"number": 1, "of": 2, "tests": ["t.py::t"]},
            "file: shard 1/2 is one of more parts than there are tests",
        ),
        (("reach",), {"reasons": {CASE: []}}, "reach: the case '"),
        (
            ("sides", "head", "cases", CASE, "label"),
            None,
            "sides.head.cases[...].label: ",
        ),
        (
            ("sides", "base", "packages"),
            {"torch": 2},
            "sides.base.packages[...]: ",
        ),
        (
            ("sides", "base", "resident"),
            "x",
            "sides.base.resident: ",
        ),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_a_spoiled_header_is_named_by_its_field(tmp_path, path, value, expected):
    spoiled = changed(header().line(), path, value)
    file = write_lines(tmp_path / "x.jsonl.gz", spoiled, line(trial()))
    assert refusal(file).startswith(f"{expected}")


def test_a_trial_of_a_case_that_the_header_does_not_name_is_refused(tmp_path):
    stray_case = "bench/test_step.py::test_step[lenet5-b1-cpu]"
    stray = trial(cases={stray_case: [build()]})
    assert stray_case in refusal(
        write_lines(tmp_path / "x.jsonl.gz", header().line(), line(trial()), line(stray))
    )
