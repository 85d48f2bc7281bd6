"""Saved runs that other programs wrote.

What they leave out, how they are encoded, and names that occur twice.
"""

import gzip
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import builders
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from pytest_benchmark.storage.file import FileStorage

from mnistbench.core.errors import MnistbenchError
from mnistbench.saved_runs.plain import measures_time
from mnistbench.saved_runs.run import Run
from mnistbench.saved_runs.storage import SAVED_RUN, Storage

pytestmark = pytest.mark.usefixtures("alone")

EXIT_PASSED = 0
EXIT_REGRESSED = 1
EXIT_INCONCLUSIVE = 2


def benchmark(name="test_a", median=1e-3, **changes):
    """A benchmark with nothing but what a comparison needs; a value ``...`` leaves a field out."""
    members = {
        "fullname": f"test_a.py::{name}",
        "name": name,
        "stats": {"median": median, "iqr": 0.0, "ops": 1.0},
        **changes,
    }
    return {field: value for field, value in members.items() if value is not ...}


def run_file(*benchmarks, **top):
    members = {
        "benchmarks": list(benchmarks or [benchmark()]),
        "datetime": "2026-01-01T00:00:00+00:00",
        **top,
    }
    return {field: value for field, value in members.items() if value is not ...}


def write(name, document, encode=str.encode):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(json.dumps(document)))
    return name


def summary(*benchmarks, **top):
    return Run.from_json(json.loads(json.dumps(run_file(*benchmarks, **top))), "x.json")


def times(run):
    return {case.node_id: case.wall_ns for case in run.cases}


# ---- what is left out ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "extra_info", [..., None, [], "text", {"mnistbench": None}, {"machine": "ci"}]
)
def test_a_run_without_extra_info_is_compared(run, extra_info):
    base = write("base.json", run_file(benchmark(extra_info=extra_info)))
    head = write(
        "head.json",
        run_file(benchmark(median=2e-3, extra_info=extra_info), datetime="2026-01-02T00:00:00"),
    )
    code, out, err = run("compare", base, head, "--case-fail", "10%")
    assert (code, err) == (EXIT_REGRESSED, "")
    assert "+100.0 %" in out


@pytest.mark.parametrize("value", [..., None, [], "text", {}, 5])
@pytest.mark.parametrize("field", ["machine_info", "commit_info", "datetime", "version"])
def test_what_says_where_a_run_is_from_may_be_missing_or_of_another_form(field, value):
    assert times(summary(**{field: value})) == {"test_a.py::test_a": 1_000_000}


def test_a_machine_without_a_processor_is_a_machine():
    for machine in (
        {"cpu": None},
        {"cpu": "x"},
        {"cpu": {"brand_raw": None}},
        {"python_version": 3},
    ):
        assert summary(machine_info=machine).environment == {}


@pytest.mark.parametrize("params", [None, {}, {"size": [1, {"a": None}]}, "text"])
def test_parameters_of_a_plain_test_are_not_read(params):
    assert summary(benchmark(params=params, param=params, group=params)).cases


def test_without_a_whole_name_the_short_one_counts():
    assert times(summary(benchmark(fullname=...), benchmark("b", fullname=None))) == {
        "test_a": 1_000_000,
        "b": 1_000_000,
    }


@pytest.mark.parametrize(
    ("stats", "median_ns", "range_ns"),
    [
        ({"median": 1e-3}, 1_000_000, 0),
        ({"median": 1e-3, "iqr": None, "q1": 0.9e-3, "q3": 1.2e-3}, 1_000_000, 300_000),
        ({"median": 1e-3, "iqr": math.nan, "q1": "x", "q3": 1.2e-3}, 1_000_000, 0),
        ({"median": 1e-3, "iqr": -1.0, "q1": 3.0, "q3": 1.0}, 1_000_000, 0),
        ({"data": [1e-3, 2e-3, 3e-3, 4e-3]}, 2_500_000, 1_500_000),
        ({"median": math.nan, "data": [4e-3, math.inf, None]}, 4_000_000, 0),
        ({"median": 0}, 0, 0),
    ],
)
def test_statistics_that_are_missing_follow_from_others(stats, median_ns, range_ns):
    [case] = summary(benchmark(stats=stats)).cases
    # Seconds are subtracted.
    assert (case.wall_ns, case.wall_spread_ns) == pytest.approx((median_ns, range_ns), rel=1e-12)


UNUSABLE = {
    "no statistics": (
        benchmark("b", stats=None),
        "benchmarks[1].stats: ",
    ),
    "no median": (
        benchmark("b", stats={"mean": 1e-3}),
        "benchmarks[1].stats.median: is missing",
    ),
    "NaN": (
        benchmark("b", math.nan),
        "benchmarks[1].stats.median: ",
    ),
    "infinite": (
        benchmark("b", math.inf),
        "benchmarks[1].stats.median: ",
    ),
    "negative": (
        benchmark("b", -1),
        "benchmarks[1].stats.median: ",
    ),
    "no name": (benchmark(fullname=..., name=...), "benchmarks[1].fullname: is missing"),
    "no object": (7, "benchmarks[1]: "),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_a_benchmark_without_a_usable_time_is_named_and_the_others_are_compared(run, kind):
    damaged, complaint = UNUSABLE[kind]
    head = write("head.json", run_file(benchmark(), damaged, datetime="2026-01-02T00:00:00"))
    code, out, err = run("compare", write("base.json", run_file()), head, "--case-fail", "10%")
    assert code == EXIT_PASSED
    assert "within 10.0 %" in out
    assert err.startswith(f"mnistbench: skipped: head.json: {complaint}")
    name = "" if kind in ("no name", "no object") else " (test_a.py::b)"
    assert err.endswith(f"{name}; this benchmark is left out\n")
    assert len(err.splitlines()) == 1


def test_a_benchmark_that_is_left_out_is_missing(run):
    base = write("base.json", run_file(benchmark(), benchmark("b")))
    head = write(
        "head.json", run_file(benchmark(), benchmark("b", math.nan), datetime="2026-01-02T00:00:00")
    )
    code, out, _ = run("compare", base, head, "--case-fail", "10%")
    assert code == EXIT_INCONCLUSIVE
    assert re.search(r"^missing: .*: test_a\.py::b", out, re.MULTILINE)


@pytest.mark.parametrize("which", ["base", "head"])
def test_a_run_without_benchmarks_is_compared_with_one_that_has_some(run, which):
    write("base.json", run_file())
    write("head.json", run_file(datetime="2026-01-02T00:00:00"))
    write(f"{which}.json", {"benchmarks": []})
    code, out, err = run("compare", "base.json", "head.json", "--case-fail", "10%")
    assert (code, err) == (EXIT_INCONCLUSIVE, "")
    problem = {
        "base": "no case in common with the base",
        "head": "no benchmark ran: the new run has no benchmark in it",
    }
    assert f"missing: {problem[which]}" in out


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"extra_info": None},
        {"params": None, "param": None, "group": None},
        {"name": ...},
        {"stats": {"mean": 1e-3, "median": 1e-3}},
        {"stats": {"mean": 1e-3, "median": 0.0, "ops": None, "iqr": None}},
    ],
)
@pytest.mark.parametrize(
    "top", [{}, {"machine_info": None, "commit_info": None}, {"datetime": ..., "version": 3}]
)
def test_every_file_that_pytest_benchmark_compares_is_read(changes, top):
    write("runs/0001_a.json", run_file(benchmark(**changes), **top))
    problems = []
    theirs = FileStorage("runs", SimpleNamespace(warning=problems.append, info=problems.append))
    [(_, data)] = theirs.load("0001")
    assert problems == []
    [saved] = Storage(Path("runs")).all()
    assert [case.node_id for case in saved.run.cases] == [
        benchmark["fullname"] for benchmark in data["benchmarks"]
    ]


def test_a_running_session_numbers_the_benchmarks_of_one_test():
    session = Run.of_session(None, [], [benchmark(), benchmark(median=2e-3)])
    assert times(session) == {"test_a.py::test_a": 1_000_000, "test_a.py::test_a (2)": 2_000_000}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)
_STATS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("median", "iqr", "q1", "q3", "data"), _JSON | st.floats(0, 1))
)
_BENCHMARK = st.fixed_dictionaries(
    {},
    optional={
        "fullname": _JSON | st.just("a"),
        "name": _JSON,
        "stats": _JSON | _STATS,
        "extra_info": _JSON,
    },
)
_TOP = st.fixed_dictionaries(
    {"benchmarks": st.lists(_JSON | _BENCHMARK, max_size=3)},
    optional=dict.fromkeys(("datetime", "commit_info", "machine_info", "version"), _JSON),
)


@strategies.ANY_SPEED
@given(_TOP)
def test_any_file_is_read_or_refused_in_one_line(document):
    try:
        run = Run.from_json(document, "x.json")
    except MnistbenchError as error:
        lines = [str(error)]
    else:
        assert len(run.cases) + len(run.left_out) == len(document["benchmarks"])
        assert len({case.key for case in run.cases}) == len(run.cases)
        lines = list(run.left_out)
    assert all(len(line.splitlines()) == 1 for line in lines)


# ---- encodings -----------------------------------------------------------------------------------


def utf16(text):
    return text.encode("utf-16")


ENCODINGS = {
    "plain.json": str.encode,
    "utf-8-with-a-mark.json": lambda text: text.encode("utf-8-sig"),
    "utf-16.json": utf16,
    "utf-16-be.json": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "utf-32.json": lambda text: text.encode("utf-32"),
    "compressed.json.gz": lambda text: gzip.compress(text.encode()),
    "compressed-without-the-ending.json": lambda text: gzip.compress(text.encode()),
    "compressed-utf-16.json.gz": lambda text: gzip.compress(utf16(text)),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_run_is_read_however_its_text_is_encoded(run, name):
    base = write("base.json", run_file(benchmark("größer")))
    head = write(
        name, run_file(benchmark("größer"), datetime="2026-01-02T00:00:00"), ENCODINGS[name]
    )
    code, out, err = run("compare", base, head)
    assert (code, err) == (EXIT_PASSED, "")
    assert "größer" in out
    assert "trace" not in out


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (
            b"# Notes\n",
            (
                "is not JSON (Expecting value: line 1 column 1 (char 0)); it is neither a saved "
                "run of pytest-benchmark"
            ),
        ),
        (
            b"\x89PNG\r\n\x1a\n\x00\xff",
            "is not a text file; it is neither a saved run of pytest-benchmark nor a trace of to",
        ),
        (
            b'{"a": 1}',
            (
                "has no benchmarks and no traceEvents; it is neither a saved run of "
                "pytest-benchmark nor a trace of torch"
            ),
        ),
        (
            b'{"benchmarks": [',
            (
                "is not JSON (Expecting value: line 1 column 17 (char 16)); the run that wrote it "
                "was cut off"
            ),
        ),
        (b"PK\x03\x04rest", "is a zip archive; unpack it and give the file in it"),
        (b"BZh91AY", "is compressed with bzip2; unpack it with: bunzip2 FILE"),
        (b"7z\xbc\xaf\x27\x1c\x00", "is a 7z archive; unpack it and give the file in it"),
        (
            b"version https://git-lfs.github.com/spec/v1",
            "is a pointer of Git LFS, not the file itself; get the file with: ",
        ),
        (
            b"\x80\x04\x95rest",
            (
                "is a pickle, such as a memory snapshot of torch.cuda; it is neither a saved run "
                "of pytest"
            ),
        ),
        (
            gzip.compress(gzip.compress(b'{"benchmarks": []}')),
            "is compressed twice with gzip; unpack it with: gunzip FILE",
        ),
        (b'{"name": "caf\xe9"}', "has bytes that are not UTF-8; save it as UTF-8"),
        (gzip.compress(b'{"benchmarks": []}')[:-9], "is cut off; copy the whole file again"),
        (
            gzip.compress(b"text"),
            "is not JSON (Expecting value: line 1 column 1 (char 0)); it is neither a saved run",
        ),
    ],
    ids=[
        "text",
        "binary",
        "other JSON",
        "cut off",
        "zip",
        "bzip2",
        "7z",
        "pointer",
        "pickle",
        "compressed twice",
        "Latin-1",
        "cut off gzip",
        "compressed text",
    ],
)
def test_a_file_that_is_neither_a_run_nor_a_trace_is_refused_with_the_reason(
    refused, content, complaint
):
    Path("file.json").write_bytes(content)
    assert refused("compare", write("base.json", run_file()), "file.json").startswith(
        f"file.json: {complaint}"
    )


def test_a_small_file_that_becomes_large_is_refused(refused):
    Path("bomb.json.gz").write_bytes(gzip.compress(b" " * (SAVED_RUN.n_bytes + 1)))
    assert refused("export", "bomb.json.gz").startswith(
        "bomb.json.gz: has more than 64.0 MiB, the most that is read of a saved run; leave it out"
    )


# ---- folders without numbers ---------------------------------------------------------------------


def test_a_folder_of_plain_files_can_be_listed_compared_and_followed(
    run,
):
    write("results/after.json", run_file(benchmark(median=2e-3), datetime="2026-01-02T00:00:00"))
    write("results/before.json.gz", run_file(), lambda text: gzip.compress(text.encode()))
    write("results/other.json", {"rows": []})
    write("results/trace.json", {"traceEvents": []})
    Path("results/notes.txt").touch()
    code, out, err = run("list", "--storage", "results")
    assert (code, err) == (EXIT_PASSED, "")
    assert [line.split()[0] for line in out.splitlines()[3:]] == ["before.json.gz", "after.json"]
    for names in (("before", "after"), ("before.json.gz", "after.json"), ("before", "latest")):
        assert (
            run("compare", *names, "--storage", "results", "--case-fail", "10%")[0]
            == EXIT_REGRESSED
        )
    assert "+100.0 %" in run("history", "test_a", "--storage", "results")[1]


def test_files_in_folders_are_named_with_the_folder_where_names_repeat(run):
    for day, folder in enumerate(("old", "new"), 1):
        write(
            f"results/{folder}/run.json",
            run_file(benchmark(median=day * 1e-3), datetime=f"2026-01-0{day}"),
        )
    assert [
        line.split()[0] for line in run("list", "--storage", "results")[1].splitlines()[3:]
    ] == [
        "old/run.json",
        "new/run.json",
    ]
    assert "+100.0 %" in run("compare", "old/run", "new/run.json", "--storage", "results")[1]


def test_a_numbered_file_may_be_compressed(run):
    write(".benchmarks/m/0001_a.json.gz", run_file(), lambda text: gzip.compress(text.encode()))
    write(
        ".benchmarks/m/0002_b.json",
        run_file(benchmark(median=2e-3), datetime="2026-01-02T00:00:00"),
    )
    for base in ("1", "0001", "a", "*_a", "m/0001*"):
        assert "+100.0 %" in run("compare", base, "2")[1]


def test_numbered_files_hide_the_copies_beside_them():
    write(".benchmarks/machine/0001_base.json", run_file())
    write(".benchmarks/copy.json", run_file())
    assert [saved.name for saved in Storage(Path(".benchmarks")).all()] == ["0001"]


# ---- names and folders ---------------------------------------------------------------------------


def test_a_list_has_the_names_that_were_given_and_folders_where_numbers_repeat(run, refused):
    names = (
        "3.10/0001_before",
        "3.11/0001_before",
        "3.11/0002_new-parser",
        f"3.11/0003_{'1' * 40}_20260101_000000",
    )
    for day, name in enumerate(names, 1):
        write(
            f".benchmarks/{name}.json",
            run_file(benchmark(median=day * 1e-3), datetime=f"2026-01-0{day}T00:00:00"),
        )
    rows = [line.split()[:2] for line in run("list")[1].splitlines()[3:]]
    assert rows == [
        ["3.10/0001", "before"],
        ["3.11/0001", "before"],
        ["0002", "new-parser"],
        ["0003", "-"],
    ]
    assert "+200.0 %" in run("compare", "3.10/0001", "new-parser")[1]
    assert "+100.0 %" in run("compare", "3.11/before", "3.11/0003")[1]
    assert refused("compare", "before", "2").startswith("'before' is the name of 2 saved runs: ")
    assert [line.split()[0] for line in run("history", "test_a")[1].splitlines()[4:]] == [
        row[0] for row in rows
    ]


def test_a_branch_comes_before_a_name(run):
    commit = {"id": "1" * 40, "branch": "main", "dirty": False}
    write(".benchmarks/m/0001_x.json", run_file(commit_info=commit))
    write(
        ".benchmarks/m/0002_main.json",
        run_file(benchmark(median=2e-3), datetime="2026-01-02T00:00:00"),
    )
    assert [saved.number for saved in Storage(Path(".benchmarks")).find("main")] == ["0001"]


# ---- a name twice --------------------------------------------------------------------------------


def test_benchmarks_of_one_name_are_compared_in_their_order(run):
    base = write("base.json", run_file(benchmark(median=1e-3), benchmark(median=2e-3)))
    head = write(
        "head.json",
        run_file(benchmark(median=5e-3), benchmark(median=2e-3), datetime="2026-01-02T00:00:00"),
    )
    code, out, err = run("compare", base, head, "--case-fail", "10%")
    assert (code, err) == (EXIT_REGRESSED, "")
    assert (
        "several benchmarks of one name, compared in their order: test_a.py::test_a (2 in the "
        "base, 2 in the head)"
    ) in out
    assert [line.split()[-1] for line in out.splitlines() if line.startswith("regressed:")] == ["%"]
    assert "regressed: iteration (test_a.py::test_a), " in out


def test_a_benchmark_that_was_repeated_on_one_side_only_is_new_or_missing(run):
    once = write("once.json", run_file())
    twice = write("twice.json", run_file(benchmark(), benchmark(), datetime="2026-01-02T00:00:00"))
    code, out, _ = run("compare", once, twice, "--case-fail", "10%")
    assert code == EXIT_PASSED
    assert "new, not compared: test_a.py::test_a (2)" in out
    code, out, _ = run("compare", twice, once, "--case-fail", "10%")
    assert code == EXIT_INCONCLUSIVE
    assert re.search(r"^missing: .*: test_a\.py::test_a \(2\)", out, re.MULTILINE)


def test_cases_with_records_are_numbered_too():
    record = builders.case_record()
    first, second = builders.summary(record, record).cases
    assert (first.label, second.label) == (
        "step convnet-b16-cpu on digits",
        "step convnet-b16-cpu on digits (2)",
    )
    assert first.key != second.key
    assert not set(first.names) & set(second.names)


# ---- timers --------------------------------------------------------------------------------------


def timed(timer, **changes):
    return benchmark(options={"disable_gc": False, "timer": timer}, **changes)


def test_times_of_two_timers_are_not_compared(run):
    base = write("base.json", run_file(timed("perf_counter")))
    head = write("head.json", run_file(timed("process_time")))
    code, out, _ = run("compare", base, head, "--case-fail", "10%")
    assert code == EXIT_INCONCLUSIVE
    assert "cases without operation tables: process time of one iteration" in out
    assert (
        "incomparable: 1 case: timer wall -> process; measure both sides with the same "
        "--benchmark-timer" in out
    )


def test_an_export_and_the_page_name_a_clock_that_is_not_wall_time(run):
    file = write("run.json", run_file(timed("process_time")))
    _, csv, _ = run("export", file)
    assert csv.splitlines()[1].endswith(",process")
    run("report", file, "--output=page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "Times (process time) of one iteration." in page
    assert "<dt>times, process time</dt>" in page


@pytest.mark.parametrize(
    ("base", "head"),
    [
        ("perf_counter", "time.monotonic"),  # both measure wall time
        ("process_time", "process_time"),
        ("process_time", ...),  # one that is not known
    ],
)
def test_times_of_one_timer_are_compared(run, base, head):
    files = [
        write(f"{number}.json", run_file(benchmark() if timer is ... else timed(timer)))
        for number, timer in enumerate((base, head))
    ]
    code, _, _ = run("compare", *files, "--case-fail", "10%")
    assert code == EXIT_PASSED


@pytest.mark.parametrize(
    ("timer", "is_time"),
    [
        ("perf_counter", True),
        ("process_time", True),
        ("CudaTimer", True),
        ("ticks", True),
        ("<lambda>", True),
        ("memory_mb", False),
        ("peak_rss", False),
        ("get_traced_memory", False),
        ("allocated", False),
        ("bytes_per_op", False),
    ],
)
def test_names_of_timers_say_if_they_measure_no_time(timer, is_time):
    assert measures_time(timer) is is_time


def test_what_a_timer_of_no_time_measured_is_left_out():
    run = summary(timed("perf_counter"), timed("memory_mb", name="test_memory", median=120.0))
    assert [case.node_id for case in run.cases] == ["test_a.py::test_a"]
    [line] = run.left_out
    assert line == (
        "benchmarks[1].options.timer: needs a timer that measures time "
        "(test_a.py::test_memory), found 'memory_mb'"
    )


# ---- several runs of the head --------------------------------------------------------------------


def commit(letter, minute):
    return {
        "commit_info": {"id": letter * 40, "dirty": False, "branch": "main"},
        "datetime": f"2026-01-01T00:{minute:02}:00+00:00",
    }


def several_heads(*medians, letters="b"):
    write(".benchmarks/m/0001_base.json", run_file(benchmark(median=1e-3), **commit("a", 0)))
    for number, median in enumerate(medians, 2):
        letter = letters[min(number - 2, len(letters) - 1)]
        document = run_file(benchmark(median=median), **commit(letter, number))
        write(f".benchmarks/m/{number:04}_head.json", document)


def test_the_runs_of_the_head_are_samples(run):
    several_heads(1.2e-3, 1.21e-3, 1.19e-3, 1e-3)
    code, out, _ = run("compare", "*base*", "*head*", "--case-fail", "10%")
    assert code == EXIT_REGRESSED
    assert "head: 2026-01-01 00:05 UTC, commit bbbbbbb and 3 older saved runs" in out
    assert "head runs used: 4 of 4, commit bbbbbbb" in out
    assert "1.00 ms -> 1.20 ms, +19.5 %" in out
    code, out, _ = run("compare", "*base*", "0005", "--case-fail", "10%")
    assert code == EXIT_PASSED
    assert "head runs used" not in out


def test_runs_of_another_commit_are_no_samples_of_the_head(run):
    several_heads(1.2e-3, 1e-3, letters="cb")
    code, out, _ = run("compare", "*base*", "*head*", "--case-fail", "10%")
    assert code == EXIT_PASSED
    assert "head runs used: 1 of 2, commit bbbbbbb; left out: 1 (other commit)" in out


def test_a_run_that_both_sides_name_is_one_of_the_base(run):
    several_heads(1e-3, 1e-3)
    code, out, _ = run("compare", "*", "*")
    assert code == EXIT_PASSED
    assert "base runs used: 1 of 2" in out
    assert "head runs used" not in out


def test_the_spread_of_the_runs_of_the_head_counts(run):
    several_heads(0.9e-3, 1e-3, 1.1e-3)
    code, out, _ = run("compare", "*base*", "*head*", "--case-fail", "10%")
    assert code == EXIT_INCONCLUSIVE
    assert "spread" in out
