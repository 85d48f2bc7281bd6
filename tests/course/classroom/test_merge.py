"""``mnistbench class merge``: places, likely copies and distributions.

Folders with files that are no submissions.
"""

import csv
import io
import json
import os
import random

import pytest
from class_builders import entry, noisy, outcome, speedup
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab_builders import MS, iteration_time, laptop
from lab_runs import whole_lab
from score_builders import score, trial

from mnistbench import cli
from mnistbench.core.errors import UsageError
from mnistbench.course.classroom import submission
from mnistbench.course.classroom.submission import (
    DISTURBED,
    DOUBTFUL,
    INCOMPLETE,
    INCONSISTENT,
    Flaw,
)
from mnistbench.course.classroom.teacher.cohort import (
    COMPLETE,
    UNREADABLE,
    Entry,
    copies,
    gather,
    places,
)
from mnistbench.course.classroom.teacher.merge_command import page
from mnistbench.course.lab.texts import Texts
from mnistbench.showing.html import html_document
from mnistbench.showing.markdown import markdown_document
from mnistbench.showing.table import Table

# ---- Places --------------------------------------------------------------------------------------


def flaw(kind, text):
    return Flaw.of_error(kind, "lab", text)


def placed(*intervals):
    entries = [
        entry(f"s{number}", measured_speedup=speedup(*interval))
        for number, interval in enumerate(intervals)
    ]
    return [places(entries).get(item.file) for item in entries]


def test_students_whose_intervals_overlap_that_of_the_fastest_share_a_place():
    assert placed((1.2, 1.1, 1.3), (1.5, 1.4, 1.6), (1.35, 1.29, 1.41)) == [3, 1, 1]


def test_the_next_place_counts_all_before_it():
    assert placed((2.0, 1.9, 2.1), (1.9, 1.8, 1.95), (1.5, 1.4, 1.6), (1.0, 0.9, 1.1)) == [
        1,
        1,
        3,
        4,
    ]


def test_an_overlap_with_another_than_the_fastest_of_a_place_is_not_enough():
    assert placed((1.5, 1.4, 1.6), (1.35, 1.29, 1.41), (1.25, 1.2, 1.3)) == [1, 1, 3]


def test_equal_speedups_share_a_place():
    assert placed((1.0, 0.9, 1.1), (1.0, 0.9, 1.1)) == [1, 1]


TASKS = (
    {"batch_size": 64},
    {"batch_size": 256},
    {"dtype": "bfloat16"},
    {"dtype": "bfloat16", "batch_size": 256},
)


def test_places_compare_only_equal_batch_sizes_and_number_formats():
    entries = [
        entry(
            f"s{number}{at}",
            score=score(**task),
            measured_speedup=speedup(ratio, ratio - 0.01, ratio + 0.01),
        )
        for number, task in enumerate(TASKS)
        for at, ratio in enumerate((1.1 + number, 1.2 + number))
    ]
    assert list(places(entries).values()).count(1) == len(TASKS)
    assert {
        item.file: place for item in entries if (place := places(entries)[item.file]) == 2
    }.keys() == {f"s{number}0.json" for number in range(len(TASKS))}


def test_places_of_a_machine_compare_its_students_alone():
    entries = [
        entry(
            f"s{number}",
            machine=f"CPU {number % 2}",
            measured_speedup=speedup(2.0 - number / 4, 1.9 - number / 4, 2.1 - number / 4),
        )
        for number in range(4)
    ]
    assert list(places(entries).values()) == [1, 2, 3, 4]
    assert list(places(entries, by_machine=True).values()) == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("kind", "place"),
    [(INCOMPLETE, 1), (DISTURBED, 1), (DOUBTFUL, None), (INCONSISTENT, None)],
)
def test_only_scores_that_count_have_a_place(kind, place):
    entry_read = entry("s1", measured_speedup=speedup(1.5, 1.4, 1.6), problems=(flaw(kind, "why"),))
    assert places([entry_read, entry("s2")]).get("s1.json") == place


def test_the_state_is_the_worst_of_the_problems():
    assert entry("s1").state == COMPLETE
    assert (
        entry("s1", problems=tuple(map(flaw, (INCOMPLETE, INCONSISTENT, DOUBTFUL), "abc"))).state
        == INCONSISTENT
    )


# ---- Copies --------------------------------------------------------------------------------------


def work(student, seed, *, times=None, **changes):
    """An entry with times of its own."""
    draw = random.Random(seed)
    step = iteration_time("step", 64, MS, times_ns=times or noisy(20 * MS, 20, draw))
    trials = (
        trial(1.2, reference_ns=noisy(400 * MS, 6, draw), student_ns=noisy(300 * MS, 6, draw)),
    )
    findings = laptop(iteration_times=(step,), epoch_times=(), cases=())
    return entry(student, findings=findings, score=score(trials=trials), **changes)


def found_copies(*entries):
    return [([entry.name for entry in group.entries], group.number) for group in copies(entries)]


def test_own_work_is_no_copy():
    assert found_copies(work("s1", 1), work("s2", 2)) == []


def test_equal_times_are_found_also_if_they_are_multiplied():
    times = noisy(20 * MS, 20, random.Random(0))
    for factor in (1, 1.3):
        times_of_other = tuple(round(factor * ns) for ns in times)
        assert found_copies(work("s1", 1, times=times), work("s2", 2, times=times_of_other)) == [
            (["s1", "s2"], 1)
        ]


def test_equal_turns_of_scores_are_found():
    assert found_copies(work("s1", 1), work("s2", 1)) == [(["s1", "s2"], 2)]


@pytest.mark.parametrize(
    "times", [(MS,) * 20, (MS, 2 * MS, 3 * MS) * 9, (MS, 2 * MS, 3 * MS, 4 * MS), (0, 1, 2, 3) * 5]
)
def test_times_that_may_be_equal_by_chance_do_not_count(times):
    assert found_copies(work("s1", 1, times=times), work("s2", 2, times=times)) == []


def test_all_who_have_the_same_are_one_group():
    times = noisy(20 * MS, 20, random.Random(0))
    students = [work(f"s{number}", number, times=times) for number in range(3)]
    assert found_copies(*students) == [(["s0", "s1", "s2"], 1)]


def test_two_files_of_a_student_are_no_copy_of_each_other():
    assert found_copies(work("s1", 1, file="a.json"), work("s1", 1, file="b.json")) == []


# ---- The page ------------------------------------------------------------------------------------


SLOW = score(1.0, text="a = 3", batch_size=256, dtype="bfloat16")


def small_class():
    """Six files.

    Two who share a place, a tie in bfloat16, one without a score, one edited, one unreadable.
    """
    right = (
        outcome("image", (2, 5, 12), 5.0),
        outcome("operation_small", ("addmm", "relu"), "aten::mkldnn_convolution"),
    )
    wrong = (
        outcome("image", (2, 3, 4), 6.0),
        outcome("operation_small", ("convolution",), "aten::mkldnn_convolution"),
    )
    return [
        Entry("folder/lost.json", problems=(flaw(UNREADABLE, "is not UTF-8 text"),)),
        entry(
            "s001",
            machine="CPU A",
            score=score(1.52, text="a = 1"),
            outcomes=right,
            measured_speedup=speedup(1.52, 1.48, 1.56),
        ),
        entry(
            "s002",
            machine="CPU A",
            score=score(1.49, text="a = 2"),
            outcomes=wrong,
            measured_speedup=speedup(1.49, 1.45, 1.53),
        ),
        entry(
            "s003",
            machine="CPU B",
            score=SLOW,
            outcomes=wrong[:1],
            measured_speedup=speedup(1.0, 0.98, 1.02),
        ),
        entry(
            "s004",
            machine="CPU B",
            outcomes=right,
            problems=(flaw(INCOMPLETE, "score.json is missing"),),
        ),
        entry(
            "=s005|<b>",
            machine="CPU B",
            measured_speedup=speedup(9.0, 8.0, 10.0),
            problems=(flaw(INCONSISTENT, "lab.json was changed"),),
        ),
    ]


def test_the_page_of_a_small_class(golden):
    document, rows = page(small_class(), ["notes.txt"], Texts("en"), ("speedups",))
    golden(markdown_document(document), "class_en.md")
    golden(rows.csv(), "class.csv")


def test_both_languages_have_the_same_numbers(tmp_path):
    pages = [page(small_class(), [], Texts(language), ())[0] for language in ("en", "zh")]
    lengths = [
        [
            len(part.rows)
            for section in document.sections
            for part in section.parts
            if isinstance(part, Table)
        ]
        for document in pages
    ]
    assert lengths[0] == lengths[1] == [6, 2, 3]
    assert all(
        "<b>" not in html_document(document, tmp_path).replace("<b></b>", "") for document in pages
    )


def test_problems_are_in_the_language_of_the_page():
    words = {"file": "score.json", "command": "mnistbench lab score my_step.py"}
    entries = [entry("s001", problems=(Flaw(INCOMPLETE, "score", "missing", words),))]
    shown = [
        markdown_document(page(entries, [], Texts(language), ())[0]) for language in ("en", "zh")
    ]
    assert "s001 (s001.json): score.json is missing; run mnistbench lab score" in shown[0].replace(
        "\\", ""
    )
    assert "缺少 score.json\uff1b请运行 mnistbench lab score" in shown[1].replace("\\", "")


def test_numbers_over_the_class_are_medians_and_quartiles():
    guesses = [outcome("image", (1, guess, 9), 4.0 + guess) for guess in (1, 2, 3, 4, 5)]
    document, _ = page(
        [entry(f"s{number}", outcomes=(result,)) for number, result in enumerate(guesses)],
        [],
        Texts("en"),
        (),
    )
    [line] = [
        line
        for line in markdown_document(document).splitlines()
        if line.startswith("| time per image of a training step")
    ]
    assert line.split(" | ")[1:] == ["5", "100.0 %", "3 (2 - 4)", "7 (6 - 8) |"]


def test_a_class_without_predictions_scores_and_copies_says_so():
    document, _ = page([entry("s1")], [], Texts("en"), ())
    assert "No submission has a speed-up that counts" in (text := markdown_document(document))
    assert "No submission has a prediction" in text
    assert "No two submissions" in text


# ---- Folders -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    """A submission with a lab and predictions."""
    return submission.pack(whole_lab(tmp_path_factory.mktemp("lab"), "s001"))


def test_files_of_the_folder_and_of_its_folders_are_read(tmp_path, handed_in):
    names = (
        "a.json",
        "Name_1_assignsubmission_file_/b.JSON",
        "Name_2/report/c.json",
        "far/too/deep/f.json",
        ".hidden/d.json",
        "._e.json",
        "x/notes.txt",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        submission.write(tmp_path / name, handed_in)
    entries, unread = gather(tmp_path)
    assert [item.file for item in entries] == [
        "a.json",
        "Name_1_assignsubmission_file_/b.JSON",
        "Name_2/report/c.json",
    ]
    assert unread == ["notes.txt"]
    assert {item.student for item in entries} == {"s001"}
    assert ["s001 has 3 submissions; remove all but one" in item.complaint for item in entries] == [
        True
    ] * 3


def test_a_submission_has_the_outcomes_of_its_predictions(tmp_path, handed_in):
    submission.write(tmp_path / "a.json", handed_in)
    [gathered] = gather(tmp_path)[0]
    assert (gathered.student, gathered.machine, gathered.state) == (
        "s001",
        handed_in.findings.environment.cpu_model,
        COMPLETE,
    )
    assert len(gathered.outcomes) == 11
    assert gathered.judged.count(False) == 1


def hostile(folder):
    """Write files that are no submissions; return what is wrong with each."""
    (folder / "huge.json").touch()
    os.truncate(folder / "huge.json", 10 * 2**30)
    (folder / "link.json").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe.json")
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "bytes.json").write_bytes(b"\xff\xfe\0")
    (folder / "list.json").write_text("[1]")
    (folder / "file.json").write_text(
        json.dumps({"schema": 1, "student": "s1", "files": {"../../x": ""}})
    )
    (folder / f"{'n' * 200}\u202e\x1b[31m.json").write_text("{}")
    (folder / "out").symlink_to("/etc", target_is_directory=True)
    return {
        "huge": "10737418240 bytes",
        "link": "not a regular file",
        "pipe": "not a regular file",
        "deep": "JSON",
        "bytes": "UTF-8",
        "list": "object",
        "file": "../../x",
        "nnn": "schema",
    }


def test_a_file_that_cannot_be_read_is_a_row_with_the_reason(tmp_path):
    reasons = hostile(tmp_path)
    entries, _ = gather(tmp_path)
    assert {entry.state for entry in entries} == {UNREADABLE}
    assert len(entries) == len(reasons)
    for start, reason in reasons.items():
        [unreadable] = [entry for entry in entries if entry.file.startswith(start)]
        assert reason in unreadable.complaint
        assert unreadable.file.isprintable()
        assert len(unreadable.file) <= 80


@pytest.mark.usefixtures("matplotlib")
def test_a_page_has_hostile_files_and_names_as_text(tmp_path, capsys):
    hostile(tmp_path)
    name = "<script>alert(1)</script>\u202e=../../" + "x" * 100
    submission.write(tmp_path / "name.json", submission.Submission(name.replace("\u202e", ""), {}))
    assert cli.main(["class", "merge", str(tmp_path), "-o", str(tmp_path / "out-page")]) == 0
    shown = (tmp_path / "out-page" / "class.html").read_text()
    assert shown.count("<script>") == 1  # that of the page
    assert "&lt;script&gt;" in shown
    assert "\u202e" not in shown + (tmp_path / "out-page" / "class.md").read_text()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out-page" / "class.csv").read_text())))
    assert len(rows) == 9
    assert not [row for row in rows if row["student"].startswith(("=", "+", "-", "@"))]
    assert "1 incomplete" in capsys.readouterr().out


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=5,
)


@given(VALUES, st.integers(0))
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_made_up_findings_never_end_the_merge(tmp_path, handed_in, value, seed):
    def replaced(value_of_file):
        if isinstance(value_of_file, dict | list) and value_of_file and draw.random() < 0.9:
            key = draw.choice(
                list(value_of_file)
                if isinstance(value_of_file, dict)
                else range(len(value_of_file))
            )
            value_of_file[key] = replaced(value_of_file[key])
            return value_of_file
        return value

    draw = random.Random(seed)
    changed = json.dumps(replaced(json.loads(handed_in.files["lab.json"])))
    path = tmp_path / "made-up.json"
    try:
        submission.write(
            path, submission.Submission("s1", {**handed_in.files, "lab.json": changed})
        )
    except ValueError:  # a value that JSON does not have
        return
    [item] = gather(tmp_path)[0]
    page([item], [], Texts("en"), ())


# ---- The command ---------------------------------------------------------------------------------


def test_a_folder_without_submissions_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()
    for folder, problem in (
        (tmp_path, r"has no \*\.json"),
        (tmp_path / "missing", "missing does not exist; name the folder of the submissions$"),
        (tmp_path / "notes.txt", "notes.txt is a file; name the folder of the submissions$"),
    ):
        with pytest.raises(UsageError, match=problem):
            gather(folder)


@pytest.mark.usefixtures("matplotlib")
def test_the_output_may_be_a_page_before_but_no_other_directory(tmp_path, capsys, handed_in):
    (tmp_path / "in").mkdir()
    submission.write(tmp_path / "in" / "a.json", handed_in)
    command = ["class", "merge", str(tmp_path / "in"), "-o"]
    assert cli.main([*command, str(tmp_path / "in")]) == 2
    assert "contains files of something else" in capsys.readouterr().err
    for _ in range(2):
        assert cli.main([*command, str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "class.csv",
        "class.html",
        "class.md",
        "figures",
    ]


def test_problems_of_one_file_leave_the_others(tmp_path, handed_in):
    files = {**handed_in.files, "score.json": "no JSON"}
    submission.write(tmp_path / "a.json", submission.Submission("s001", files))
    [gathered] = gather(tmp_path)[0]
    assert (gathered.state, gathered.score, gathered.speedup) == (INCONSISTENT, None, {})
    assert len(gathered.outcomes) == 11
