"""``docs/make_class.py``: a generated class, which the teacher's commands read as a real one."""

import dataclasses
import importlib.util
from pathlib import Path

import pytest
from lab_builders import laptop
from lab_runs import Counting, measure, predict

from mnistbench import cli
from mnistbench.course.classroom import submission
from mnistbench.course.classroom.submission import DOUBTFUL, INCOMPLETE, INCONSISTENT
from mnistbench.course.classroom.teacher.cohort import COMPLETE, copies, gather, places
from mnistbench.course.lab.lab_file import FILE, stored, write_file

STUDENTS = 12

SCRIPT = Path(__file__).parents[3] / "docs" / "make_class.py"


class Uneven(Counting):
    """Measures tables whose iterations differ, as all real ones do."""

    def profiled(self, *arguments):
        profiled = super().profiled(*arguments)
        [table] = profiled.tables
        whole_ns = table.iteration_ns[0]
        uneven = dataclasses.replace(
            table, iteration_ns=tuple(whole_ns + 997 * number for number in range(10))
        )
        return dataclasses.replace(profiled, tables=(uneven,))


@pytest.fixture(scope="module")
def make_class():
    """The script, imported."""
    spec = importlib.util.spec_from_file_location("make_class", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lab")
    predict(directory, "teacher")
    measure(directory, Uneven())
    return directory


@pytest.fixture(scope="module")
def generated(make_class, lab, tmp_path_factory):
    """The folder of a class."""
    folder = tmp_path_factory.mktemp("demo") / "class"
    make_class.main([str(folder), "--lab", str(lab), "--size", str(STUDENTS)])
    return folder


@pytest.fixture(scope="module")
def entries(generated):
    return {entry.name: entry for entry in gather(generated)[0]}


def test_honest_students_have_no_problem(entries):
    complete = {name for name, entry in entries.items() if entry.state == COMPLETE}
    assert complete == {"s001", "s002", "s003", "s005", "s007", "s008", "s010"}
    assert all(entries[name].problems == () for name in complete)


def test_the_others_have_what_they_are_generated_for(entries):
    states = {name: entry.state for name, entry in entries.items() if entry.state != COMPLETE}
    assert states == {
        "s004": INCOMPLETE,
        "s006": DOUBTFUL,
        "s009": INCOMPLETE,
        "s011": INCONSISTENT,
        "s012": INCONSISTENT,
    }
    assert "explain" in entries["s004"].complaint
    assert "score.json is missing" in entries["s009"].complaint
    assert "trainings" in entries["s012"].complaint


def test_the_copies_are_found_and_no_others(entries):
    groups = copies(list(entries.values()))
    assert {tuple(entry.name for entry in group.entries) for group in groups} == {("s010", "s011")}


def test_operation_tables_have_the_factor_and_the_noise_of_their_machine(lab, entries):
    def self_ns(findings):
        table = findings.cases[0].tables[0]
        return {row.key: row.self_ns("cpu") for row in table.rows}

    before = self_ns(submission.pack(lab).findings)
    tables = [self_ns(entries[name].findings) for name in ("s002", "s003", "s005")]
    for key, ns in before.items():
        times = [table[key] for table in tables]
        assert len({*times, ns}) == 4
        assert all(0.3 * ns < time < 3.5 * ns for time in times)


def test_machines_and_predictions_differ_and_some_speedups_are_ties(entries):
    assert len({submitted.machine for submitted in entries.values() if submitted.machine}) == 3
    assert entries["s007"].speedup["tie"]
    place = places(entries.values())
    assert len(set(place.values())) > 3
    overconfident, careful = (
        [entries[f"s{number:03}"].judged for number in numbers]
        for numbers in ((1, 4, 7, 10), (2, 3, 5, 8))
    )
    assert sum(map(sum, overconfident)) < 0.5 * sum(map(len, overconfident))
    assert sum(map(sum, careful)) > 0.7 * sum(map(len, careful))


def test_a_student_has_the_drawn_batch_size_of_the_name(lab, entries):
    was = submission.pack(lab).findings.predictions.batch_size
    for name in ("s001", "s002", "s003"):
        findings = entries[name].findings
        assert findings.predictions.batch_size in findings.settings.batch_sizes
        assert was not in findings.settings.batch_sizes
        assert {time.batch_size for time in findings.iteration_times} == set(
            findings.settings.batch_sizes
        )


def test_a_slower_machine_takes_longer(entries):
    def median(name):
        times = entries[name].findings.iteration_times
        return next(
            time.median_ns
            for time in times
            if (time.phase, time.batch_size, time.threads) == ("step", 64, 2)
        )

    assert median("s002") / median("s003") == pytest.approx(1.7 / 0.8, rel=0.1)  # demo CPU C and A


def test_the_same_seed_gives_the_same_student(make_class, lab):
    files = [
        make_class.DemoStudent(submission.pack(lab), 5, "s005", seed).submission().files
        for seed in (1, 1, 2)
    ]
    assert files[0] == files[1]
    assert files[0] != files[2]


@pytest.mark.usefixtures("matplotlib")
def test_the_page_says_that_it_is_generated(generated, tmp_path):
    assert cli.main(["class", "merge", str(generated), "-o", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "class.html").read_text(encoding="utf-8")
    assert "generated submissions" in page


@pytest.mark.parametrize("lab_directory", ["missing", "no_predictions"])
def test_a_directory_that_is_no_lab_with_predictions_is_refused(
    make_class, tmp_path, capsys, lab_directory
):
    (tmp_path / "no_predictions").mkdir()
    write_file(tmp_path / "no_predictions" / FILE, stored(laptop()))
    with pytest.raises(SystemExit, match="2"):
        make_class.main([str(tmp_path / "new"), "--lab", str(tmp_path / lab_directory)])
    assert f"error: --lab: {tmp_path / lab_directory} cannot be used (" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_directory_with_files_is_refused(make_class, lab, generated, capsys):
    with pytest.raises(SystemExit, match="2"):
        make_class.main([str(generated), "--lab", str(lab)])
    assert "contains files of something else" in capsys.readouterr().err
