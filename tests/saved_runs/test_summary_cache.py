"""Summaries from the cache are those of the files.

Whatever happened to the files or to the cache.
"""

import dataclasses
import json
import os
import tempfile
from pathlib import Path

import builders
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from mnistbench.core.record import run_header
from mnistbench.saved_runs.storage import Storage
from mnistbench.saved_runs.summary import FEWEST, FOLDER, RunSummary, Shared, SummaryCache

PLAIN = {"fullname": "test_x.py::test_sum", "extra_info": {}, "stats": {"median": 0.25, "iqr": 0.5}}


def save(root, number, wall_ns=7_500_000, **changes):
    document = builders.saved_file(
        builders.case_record(timing=builders.timing(median_ns=wall_ns)), **changes
    )
    path = root / "machine" / f"{number:04}_run.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture
def root(tmp_path):
    """A storage of just as many runs as are cached, one of them plain; no two are equal."""
    for number in range(1, FEWEST):
        save(tmp_path, number, 1_000 * number)
    save(tmp_path, FEWEST, benchmarks=[PLAIN])
    return tmp_path


def cached(root):
    return root / FOLDER / "summaries"


@pytest.fixture
def parsed(monkeypatch):
    """The files that were parsed, in order."""
    found = []
    from_json = RunSummary.from_json

    def noted(data, source, shared):
        found.append(source)
        return from_json(data, source, shared)

    monkeypatch.setattr(RunSummary, "from_json", noted)
    return found


def read(root):
    """Return all runs, and check that they are those of the files, in value and in type."""
    runs = [saved.run for saved in Storage(root).find("*")]
    alone = [Storage(root).find(run.source)[0].run for run in runs]  # the cache is for many files
    assert runs == alone
    assert repr(runs) == repr(alone)
    return runs


@given(
    st.lists(
        st.builds(dataclasses.replace, strategies.case_records(), timing=strategies.timings()),
        max_size=3,
    ),
    strategies.environments(),
)
@settings(strategies.ANY_SPEED, max_examples=40)
def test_a_cached_summary_equals_the_one_that_was_written(records, environment):
    header = run_header(environment)
    document = builders.saved_file(
        benchmarks=[builders.saved_benchmark(record) for record in records], mnistbench=header
    )
    with tempfile.TemporaryDirectory() as name:
        shared = Shared()
        run = RunSummary.from_json(json.loads(json.dumps(document)), "0001_base.json", shared)
        cache = SummaryCache(Path(name), shared)
        for number in range(FEWEST):
            cache.add(str(number).encode(), run)
        cache.save()
        again = SummaryCache(Path(name), Shared()).get(b"0", "0001_base.json")
    assert again == run
    assert repr(again) == repr(run)


def test_a_second_command_parses_new_files_only(root, parsed):
    before = [saved.run for saved in Storage(root).find("*")]
    assert len(parsed) == FEWEST
    parsed.clear()
    path = save(root, FEWEST + 1, 5)
    assert [saved.run for saved in Storage(root).find("*")][:-1] == before
    assert parsed == [str(path)]
    assert (root / FOLDER / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_runs_that_were_copied_elsewhere_are_found_in_a_copied_cache(
    root, parsed, tmp_path_factory
):
    read(root)
    parsed.clear()
    copy = tmp_path_factory.mktemp("copy") / "storage"
    root.rename(copy)
    runs = [saved.run for saved in Storage(copy).find("*")]
    assert parsed == []
    assert [run.source for run in runs] == [str(path) for path in Storage(copy).paths()]


def test_two_files_with_one_content_are_two_runs_with_their_own_names(root):
    save(root, FEWEST + 1, 1_000)
    for _ in range(2):
        runs = read(root)
        assert len({id(run) for run in runs}) == len({run.source for run in runs}) == FEWEST + 1


def test_a_file_that_changed_without_a_trace_in_its_size_and_times_is_read_again(root):
    read(root)
    path = Storage(root).paths()[0]
    before = path.stat()
    save(root, 1, 2_000)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert read(root)[0].cases[0].wall_ns == 2_000


def damaged(content):
    """Ways in which a file may be damaged."""
    return {
        "empty": b"",
        "truncated": content[:-20],
        "one digit": content.replace(b"1000", b"1001"),
        "no line": content.replace(b"\n", b""),
        "another version": content.replace(b"mnistbench ", b"mnistbench 9", 1),
    }


@pytest.mark.parametrize("damage", damaged(b""))
def test_a_damaged_cache_is_not_used_and_is_written_anew(root, parsed, damage):
    read(root)
    content = cached(root).read_bytes()
    cached(root).write_bytes(damaged(content)[damage])
    assert cached(root).read_bytes() != content
    parsed.clear()
    Storage(root).find("*")
    assert len(parsed) == FEWEST
    assert cached(root).read_bytes() == content
    read(root)


def test_where_no_cache_can_be_written_runs_are_read_as_without_it(root):
    (root / FOLDER).write_text("in the way", encoding="utf-8")
    assert len(read(root)) == FEWEST
    (root / FOLDER).unlink()
    cached(root).mkdir(parents=True)
    assert len(read(root)) == FEWEST


def test_few_runs_leave_no_cache_behind(tmp_path):
    for number in range(1, FEWEST):
        save(tmp_path, number, number)
    read(tmp_path)
    assert not (tmp_path / FOLDER).exists()


def test_a_cache_that_grows_keeps_the_runs_nobody_asked_for_and_drops_those_removed(root, parsed):
    read(root)
    Storage(root).paths()[0].unlink()
    for number in range(1_001, 1_001 + FEWEST):
        save(root, number, number)
    Storage(root).find("1*")
    size = cached(root).stat().st_size
    parsed.clear()
    assert len(Storage(root).find("*")) == 2 * FEWEST - 1
    assert parsed == []
    assert b"/0001_run.json" not in cached(root).read_bytes()
    assert size == cached(root).stat().st_size


def test_a_file_that_cannot_be_read_is_named_in_every_command(root):
    (root / "machine" / "0900_run.json").write_text("{", encoding="utf-8")
    for _ in range(2):
        storage = Storage(root)
        assert len(storage.find("*")) == FEWEST
        [line] = storage.refused
        assert "0900_run.json" in line


def test_runs_of_the_same_code_share_their_counts_with_a_run_that_is_not_cached_yet(root):
    read(root)
    save(root, FEWEST + 1, 5)
    runs = [saved.run for saved in Storage(root).find("*") if not saved.run.plain]
    assert len({id(run.cases[0].tables["host"].counted) for run in runs}) == 1
    assert len({id(run.environment) for run in runs}) == 1
