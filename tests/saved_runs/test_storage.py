"""Which saved runs a reference means.

A file which cannot be read costs nothing but itself.
"""

import gzip
import json
import os
import shutil
from pathlib import Path

import builders
import pytest
from builders import rendered
from projects import git

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.record import nanoseconds
from mnistbench.saved_runs.storage import SAVED_RUN, Storage, read_json

MACHINE = "Linux-CPython-3.11-64bit"
pytestmark = pytest.mark.usefixtures("alone")

FIRST = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"
SECOND = "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c"


def save(
    name, *cases, folder=MACHINE, commit=FIRST, dirty=False, branch="main", minute=31, **changes
):
    """Write one file as pytest-benchmark would and return its path, relative as a user types it."""
    path = Path(".benchmarks", folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = builders.saved_file(
        *cases,
        commit_info={"id": commit, "dirty": dirty, "branch": branch},
        datetime=f"2026-11-20T10:{minute:02}:00+00:00",
        **changes,
    )
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def storage():
    return Storage(Path(".benchmarks"))


def paths_of(reference):
    return [run.path for run in storage().find(reference)]


def refusal(reference, of=None):
    with pytest.raises(UsageError) as error:
        (of or storage()).find(reference)
    message = str(error.value)
    assert len(message.splitlines()) == 1
    return message


def not_read(path):
    with pytest.raises(RecordError) as error:
        read_json(path)
    message = str(error.value)
    assert len(message.splitlines()) == 1
    return message


# ---- by file, number, glob and latest ------------------------------------------------------------


def test_a_file_is_found_by_its_path_wherever_it_lies(tmp_path):
    path = save("0001_base.json")
    elsewhere = tmp_path / "run.json"
    shutil.copy(path, elsewhere)
    assert paths_of(str(path)) == [path]
    assert paths_of(str(elsewhere)) == [elsewhere]
    assert storage().find("run.json")[0].number == ""


def test_a_run_is_found_by_its_number_with_or_without_leading_zeros():
    path = save("0003_now.json")
    assert paths_of("0003") == paths_of("3") == paths_of("003") == [path]
    path = save("10000_base.json")
    assert paths_of("10000") == paths_of("latest") == [path]
    assert storage().find("10000")[0].number == "10000"


def test_a_number_that_two_files_have_is_refused_with_both_names():
    # Two sessions that save at once may pick one number, and two machines share a storage.
    linux = save("0002_base.json")
    darwin = save("0002_other.json", folder="Darwin")
    assert refusal("2") == f"'2' is the number of 2 saved runs: {linux}, {darwin}; give one's file"


def test_a_glob_finds_every_run_it_matches_oldest_first():
    newer = save("0001_base.json", minute=50)
    older = save("0002_base.json", minute=10)
    save("0003_now.json")
    assert (
        paths_of("*_base")
        == paths_of("*_base.json")
        == paths_of(f"{MACHINE}/*_base")
        == [older, newer]
    )


def test_a_glob_of_paths_finds_files_that_are_not_in_the_storage(tmp_path):
    save("0001_base.json")
    shutil.copytree(".benchmarks", "artifacts")
    assert paths_of("artifacts/**/*.json") == [Path("artifacts", MACHINE, "0001_base.json")]


@pytest.mark.parametrize("compress", [False, True])
def test_a_glob_of_files_needs_no_storage(compress):
    path = save("0001_base.json")
    name = "result.json.gz" if compress else "result.json"
    Path(name).write_bytes(gzip.compress(path.read_bytes()) if compress else path.read_bytes())
    shutil.rmtree(".benchmarks")
    assert paths_of(name.replace("result", "*")) == [Path(name)]


@pytest.mark.parametrize("glob", ["*_gone", "*"])
def test_a_glob_that_matches_no_saved_run_is_refused_whatever_lies_here(
    glob,
):
    Path(".benchmarks").mkdir()
    Path("README.md").touch()
    assert (
        refusal(glob) == f"{glob!r} matches no saved run in .benchmarks; mnistbench list shows them"
    )


def test_latest_is_the_highest_number_that_can_be_read():
    path = save("0009_base.json", minute=1)
    save("0008_base.json", minute=59)
    save("0010_torn.json").write_text("")
    assert paths_of("latest") == [path]


def test_latest_of_nothing_that_can_be_read_says_how_to_save_a_run():
    save("0001_base.json").write_text("")
    assert refusal("latest") == (
        "'latest': no saved run in .benchmarks can be read; save one with: pytest bench "
        "--benchmark-autosave"
    )


def test_a_storage_that_does_not_exist_is_named():
    assert refusal("latest") == (
        ".benchmarks is not a folder of saved runs; name one with --storage, or save a run first"
    )


def test_files_of_other_names_are_no_saved_runs():
    path = save("0001_base.json")
    for name in (
        "notes.json",
        "001_short.json",
        "0002_base.json.tmp",
        "0003.json",
        "x0004_base.json",
    ):
        shutil.copy(path, path.with_name(name))
    assert storage().paths() == [path]


def test_runs_in_the_storage_itself_are_found_beside_those_of_machines():
    machine_run = save("0002_base.json")
    beside = save("0001_base.json", folder="")
    assert storage().paths() == [beside, machine_run]
    assert [run.number for run in storage().all()] == ["0001", "0002"]


# ---- by commit and branch ------------------------------------------------------------------------


def test_every_run_of_a_commit_is_found_by_its_whole_id_or_a_part():
    first = save("0001_base.json", minute=1)
    second = save("0002_base.json", minute=2)
    save("0003_now.json", commit=SECOND)
    assert paths_of(FIRST) == paths_of(FIRST[:7]) == paths_of(FIRST[:4]) == [first, second]


def test_a_part_of_an_id_that_two_commits_share_is_refused():
    # Runs of two commits are no samples of one base.
    save("0001_base.json", commit=FIRST)
    save("0002_base.json", commit=FIRST[:6] + SECOND[6:])
    assert refusal(FIRST[:6]) == (
        f"'1a2b3c' is the start of 2 commits: {FIRST}, {FIRST[:6] + SECOND[6:]}; give more of one"
    )
    assert paths_of(FIRST[:7]) == [Path(".benchmarks", MACHINE, "0001_base.json")]


def test_seven_digits_are_a_commit_and_not_a_number():
    path = save("0001_base.json", commit="1234567" + FIRST[7:])
    assert paths_of("1234567") == [path]


def test_a_run_with_changes_on_top_is_not_meant_by_its_commit():
    first = save("0001_base.json", dirty=True, minute=1)
    second = save("0002_base.json", dirty=True, minute=2)
    assert refusal(FIRST[:7]) == (
        f"'1a2b3c4' has saved runs only with changes on top of it: {first}, {second}; name one of "
        "these files"
    )
    clean = save("0003_base.json")
    assert paths_of(FIRST[:7]) == paths_of("main") == [clean]


def test_a_branch_is_its_newest_saved_commit():
    save("0001_base.json", commit=FIRST, minute=1)
    newest = [
        save("0002_base.json", commit=SECOND, minute=2),
        save("0003_base.json", commit=SECOND, minute=3),
    ]
    save("0004_base.json", commit=FIRST, branch="topic", minute=4)
    save("0005_base.json", commit="0" * 40, dirty=True, minute=5)
    assert paths_of("main") == newest


@pytest.mark.parametrize(
    "branch", ["feature/faster", "cafe"], ids=["with a slash", "like the start of a commit"]
)
def test_a_branch_is_found_where_there_is_no_git(monkeypatch, branch):
    path = save("0001_base.json", branch=branch)
    assert paths_of(branch) == [path]
    monkeypatch.setenv("PATH", "")
    assert shutil.which("git") is None
    assert paths_of(branch) == paths_of(FIRST[:7]) == [path]


@pytest.mark.parametrize("reference", ["", " ", "topic"])
def test_runs_of_no_known_commit_are_no_samples_of_each_other(reference):
    # pytest-benchmark writes "unknown" where git failed; the branch may be known all the same. An
    # unset variable is no branch.
    save("0001_base.json", commit="unknown", branch="topic")
    save("0002_base.json", commit="unversioned", branch="unknown")
    save("0003_base.json", branch="unknown")
    assert refusal(reference) == (
        f"{reference!r} has no saved run in .benchmarks; give a file, a number, a name, a glob, "
        "latest, a commit or a branch that has one (mnistbench list shows them)"
    )


@pytest.mark.parametrize(
    "reference",
    ["x" * 5_000, "main\nforged", "--all", "HEAD~1", "\x1b(31m", "../..", "\udcff"],
    ids=lambda reference: ascii(reference)[:20],
)
def test_whatever_is_no_reference_is_refused_in_one_line(reference):
    save("0001_base.json")
    assert refusal(reference).startswith(
        f"{reference!r} has no saved run in .benchmarks; give a file"
    )


@pytest.fixture
def commits(alone):
    """A scratch repository with two commits on ``main``.

    The first is tagged and is the tip of ``old``.
    """
    git(".", "init", "--quiet")
    ids = []
    for number in (1, 2):
        git(".", "commit", "--quiet", "--allow-empty", "--message", f"change {number}")
        ids.append(git(".", "rev-parse", "HEAD"))
        if number == 1:
            git(".", "branch", "old")
            git(".", "tag", "--annotate", "v1", "--message", "first")
    return ids


def test_whatever_git_calls_a_commit_finds_its_runs(commits):
    first = save("0001_base.json", commit=commits[0])
    second = save("0002_now.json", commit=commits[1])
    for reference in (
        "old",
        "v1",
        "HEAD~1",
        "main^",
        commits[0],
        commits[0][:8],
        "HEAD^{commit}~1",
    ):
        assert paths_of(reference) == [first], reference
    assert paths_of("HEAD") == paths_of("main") == [second]
    # A shallow clone in CI, or runs downloaded from another fork: a commit that this repository
    # lacks.
    third = save("0003_base.json", commit=SECOND)
    assert paths_of(SECOND[:9]) == [third]


def test_a_commit_without_a_clean_saved_run_is_named_by_its_id(commits):
    path = save("0001_base.json", commit=commits[0], dirty=True)
    of = f"'old' is commit {commits[0][:7]}, which"
    assert (
        refusal("old")
        == f"{of} has saved runs only with changes on top of it: {path}; name one of these files"
    )
    assert refusal("main").startswith(
        f"'main' is commit {commits[1][:7]}, which has no saved run in .benchmarks; give a file"
    )
    for reference in (commits[1], "--all"):
        assert refusal(reference).startswith(
            f"{reference!r} has no saved run in .benchmarks; give a file"
        )


# ---- files that cannot be read -------------------------------------------------------------------


def with_case(**changes):
    """A file whose only record has other entries."""
    document = builders.saved_file()
    document["benchmarks"][0]["extra_info"]["mnistbench"].update(changes)
    return document


def with_stats(**changes):
    document = builders.saved_file()
    document["benchmarks"][0]["stats"].update(changes)
    return document


WHOLE = json.dumps(builders.saved_file())
RECORD = "benchmarks[0].extra_info.mnistbench"
UNREADABLE = {
    "torn": (WHOLE[: len(WHOLE) // 2], "is not JSON (Unterminated string"),
    "empty": ("", "is empty; the run that should have written it was cut off"),
    "binary": (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "is not a text file"),
    "zeros": (b"\0" * 64, "is not JSON (Expecting value"),
    "nested deeply": ("[" * 100_000, "is not JSON (maximum recursion depth exceeded"),
    "number of 5,000 digits": (
        '{"benchmarks": ' + "1" * 5_000 + "}",
        "is not JSON (Exceeds the limit",
    ),
    "null": (None, "file: needs an object, found None"),
    "no benchmarks": (
        {},
        (
            "has no benchmarks and no traceEvents; it is neither a saved run of pytest-benchmark "
            "nor a trace"
        ),
    ),
    "benchmarks no list": (
        builders.saved_file(benchmarks={"a": 1}),
        "benchmarks: ",
    ),
    "a benchmark no object": (
        builders.saved_file(benchmarks=[7]),
        "benchmarks[0]: ",
    ),
    "median NaN": (
        with_stats(median=float("nan")),
        "benchmarks[0].stats.median: ",
    ),
    "median of an aeon": (
        with_stats(median=1e300),
        "benchmarks[0].stats.median: ",
    ),
    "iqr a text": (
        with_stats(iqr="0.1"),
        "benchmarks[0].stats.iqr: ",
    ),
    "schema newer": (
        with_case(schema=2),
        f"{RECORD}.schema: 2 is newer than the 1 that this mnistbench reads",
    ),
    "header newer": (
        builders.saved_file(mnistbench={"schema": 9}),
        "mnistbench.schema: 9 is newer than the 1",
    ),
    "tables a text": (with_case(tables="[]"), f"{RECORD}.tables: "),
    "device times negative": (
        with_case(device_ns="[-1]"),
        f"{RECORD}: device_ns needs times of at least 0 ns",
    ),
    "environment lacking": (
        builders.saved_file(mnistbench={"schema": 1}),
        "mnistbench.environment: is missing",
    ),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_file_that_cannot_be_read_is_named_with_its_field_and_the_others_are_read(kind):
    content, complaint = UNREADABLE[kind]
    before = save("0001_base.json")
    after = save("0003_base.json", minute=40)
    path = save("0002_spoiled.json")
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    runs = storage()
    assert [run.path for run in runs.all()] == [before, after]
    [line] = runs.refused
    assert line.startswith(f"{path}: {complaint}")
    assert len(line.splitlines()) == 1
    assert len(line) < 400  # one line of a terminal or three, not the file


def test_a_field_whose_name_has_a_line_end_gives_one_line():
    path = save("0001_base.json")
    document = builders.saved_file()
    document["mnistbench"]["environment"]["allocator"] = {"a\nb\x1b[31m": 1}
    path.write_text(json.dumps(document))
    runs = storage()
    assert runs.all() == []
    [line] = runs.refused
    assert line.startswith(f"{path}: mnistbench.environment.allocator[...]: ")
    assert line.endswith("; save the run again or leave the file out")
    assert line.isprintable()


def test_a_larger_file_than_any_run_is_not_read(monkeypatch):
    path = save("0001_base.json")
    os.truncate(path, SAVED_RUN.n_bytes + 1)  # sparse: it takes no room
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("64 MiB were read"))
    assert not_read(path) == (
        f"{path}: has more than 64.0 MiB, the most that is read of a saved run; leave it out"
    )


def test_folders_pipes_and_links_to_nothing_are_passed_over():
    path = save("0002_base.json")
    no_files = [
        path.with_name(name) for name in ("0001_folder.json", "0003_link.json", "0004_pipe.json")
    ]
    no_files[0].mkdir()
    no_files[1].symlink_to("gone.json")
    os.mkfifo(no_files[2])  # reading it would wait for a writer
    runs = storage()
    assert [run.path for run in runs.all()] == [run.path for run in runs.find("*")] == [path]
    beginnings = ("is not a file; ", "cannot be read (", "is not a file; ")
    for no_file, line, beginning in zip(no_files, runs.refused, beginnings, strict=True):
        assert line.startswith(f"{no_file}: {beginning}")


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_may_never_end_is_not_read_where_no_file_has_a_number(kind):
    path = save("base.json")
    endless = path.with_name("a.json")
    if kind == "pipe":
        os.mkfifo(endless)
    else:
        endless.symlink_to("/dev/zero")
    assert [run.path for run in storage().all()] == [path]


@pytest.fixture
def forbid(monkeypatch):
    """Make a method of one path raise an error, since an administrator may read everything."""

    def forbidden(name, path):
        really = getattr(Path, name)

        def method(self, *arguments):
            if self == path:
                raise PermissionError(13, "Permission denied", str(self))
            return really(self, *arguments)

        monkeypatch.setattr(Path, name, method)

    return forbidden


def test_a_file_that_may_not_be_read_is_passed_over_and_a_folder_is_refused(forbid):
    path = save("0001_base.json")
    forbidden = save("0002_base.json")
    forbid("open", forbidden)
    runs = storage()
    assert [run.path for run in runs.all()] == [path]
    assert runs.refused == [f"{forbidden}: cannot be read (Permission denied)"]
    forbid("iterdir", path.parent)
    assert (
        refusal("latest")
        == f".benchmarks/{MACHINE} cannot be read (Permission denied); name another with --storage"
    )


def test_files_that_were_named_and_cannot_be_read_are_refused():
    path = save("0001_base.json")
    path.write_text("{")
    runs = storage()
    assert refusal(str(path), runs) == f"'{path}' is {path}: nothing there can be read"
    assert [line.split(" (")[0] for line in runs.refused] == [f"{path}: is not JSON"]
    save("0002_base.json").write_text("{")
    assert refusal("*_base") == "'*_base' is 2 files: nothing there can be read"


def test_each_file_is_read_once(monkeypatch):
    paths = [save("0001_base.json"), save("0002_base.json", minute=40), save("0003_torn.json")]
    paths[2].write_text("{")
    read = []
    really = Path.open

    def counting(path, *arguments):
        read.append(path)
        return really(path, *arguments)

    monkeypatch.setattr(Path, "open", counting)
    runs = storage()
    for reference in ("latest", "main", FIRST[:7], "1", "*", str(paths[0]), "latest"):
        runs.find(reference)
    runs.all()
    assert sorted(read) == paths
    assert len(runs.refused) == 1


# ---- files of others -----------------------------------------------------------------------------


def test_a_plain_file_of_pytest_benchmark_has_its_cases_and_no_operations():
    plain = {
        "machine_info": {"python_version": "3.12.1", "cpu": {"brand_raw": "AMD EPYC 9R14"}},
        "commit_info": {"id": FIRST, "dirty": True, "branch": "main"},
        "datetime": "2026-11-20T10:31:05.123456+00:00",
        "version": "5.3.1",
        "benchmarks": [
            {
                "fullname": "test_a.py::test_a",
                "extra_info": {},
                "stats": {"median": 0.25, "iqr": 0.125},
            }
        ],
    }
    path = save("0001_base.json")
    path.write_text(json.dumps(plain))
    [found_run] = storage().find("latest")
    run = found_run.run
    assert (run.plain, run.dirty, run.short_commit) == (True, True, "1a2b3c4+")
    assert run.environment == {"python": "3.12.1", "cpu_model": "AMD EPYC 9R14"}
    assert [(case.label, case.wall_ns, case.wall_spread_ns, case.tables) for case in run.cases] == [
        ("test_a.py::test_a", 250_000_000, 125_000_000, ())
    ]


@pytest.mark.parametrize("extra", [{"mnistbench": "0.1"}, {"other": {"schema": 99}}], ids=str)
def test_entries_of_other_plug_ins_are_no_record(extra):
    document = builders.saved_file()
    benchmark = {**document["benchmarks"][0], "fullname": "test_b", "extra_info": extra}
    path = save("0001_base.json")
    path.write_text(json.dumps({**document, "benchmarks": [benchmark]}))
    [run] = storage().all()
    assert (run.run.plain, [case.params for case in run.run.cases]) == (True, [None])
    path.write_text(json.dumps({**document, "benchmarks": [*document["benchmarks"], benchmark]}))
    [run] = storage().all()
    assert [case.label for case in run.run.cases] == ["step convnet-b16-cpu on digits", "test_b"]
    assert not run.run.plain


@pytest.mark.parametrize(
    "changes",
    [
        {"datetime": None},
        {"machine_info": None},
        {"machine_info": {"cpu": None}},
        {"version": None},
    ],
    ids=str,
)
def test_what_pytest_benchmark_may_leave_out_is_not_needed(changes):
    path = save("0001_base.json")
    path.write_text(json.dumps(builders.saved_file(**changes)))
    [run] = storage().find("latest")
    assert run.run.saved_at == ("" if "datetime" in changes else "2026-11-20T10:31:05.123456+00:00")
    assert run.run.environment["torch"] == "2.15.0"


def test_runs_are_sorted_by_their_time_and_one_without_a_time_is_oldest():
    later = save("0001_a.json", minute=59)
    sooner = save("0002_b.json", minute=1)
    never = save("0003_c.json")
    never.write_text(json.dumps(builders.saved_file(datetime=None)))
    assert [run.path for run in storage().all()] == [never, sooner, later]
    assert storage().all()[0].run.label.startswith("unknown time")


@pytest.mark.parametrize("version", ["4.0.0", "5.1.0"])
def test_files_of_older_pytest_benchmarks_are_compared_by_case(version):
    # Written by that version, samples left out.
    path = Path(__file__).parents[1] / "data" / f"pytest_benchmark_{version}.json"
    [saved_run] = Storage(path.parent).find(str(path))
    run = saved_run.run
    assert run.plain
    assert [case.node_id for case in run.cases] == ["test_x.py::test_sum", "test_x.py::test_sort"]
    assert run.cases[0].wall_ns == nanoseconds(
        json.loads(path.read_text())["benchmarks"][0]["stats"]["median"]
    )
    assert (run.commit, run.branch) == ("", "")
    judgement = judge(compare([run], run), Criteria(case_fail=Threshold("", 5.0)))
    assert judgement.outcome == "passed"
    assert "a run without operation records is compared by case only" in rendered(
        judgement, "terminal", 10
    )
    judgement = judge(compare([run], run), Criteria(op_fail=(Threshold("", 0.05),)))
    assert judgement.outcome == "inconclusive"
