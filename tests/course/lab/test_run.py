"""The flow of a lab with a stand-in that measures nothing: steps, files, what is kept and what is refused."""

import dataclasses
import io
import json

import pytest
from builders import environment
from lab_builders import LAYERS, call_time, epoch_time, first_calls, forward_rows, step_rows, table, training
from mnistbench.course.lab.progress import Bar, Lines
from mnistbench.course.lab.studies import LIMIT_S, STUDIES

from mnistbench.core.errors import UsageError
from mnistbench.course.lab.findings import FILE, Ceiling, Findings, ProfiledCase, Settings, Study
from mnistbench.course.lab.run import BEGUN, STEPS, Lab

MS = 1_000_000


class Counting:
    """Measures nothing, and stops where it is told to."""

    def __init__(self, stop_at=None):
        self.asked = []
        self.stop_at = stop_at

    def _ask(self, *what):
        if what == self.stop_at:
            raise KeyboardInterrupt
        self.asked.append(what)

    def samples(self):
        return 1437, 360

    def training(self, device, threads, size, output, advance):
        self._ask("training", device, size)
        assert not output.exists()
        output.mkdir(parents=True)
        advance(0.5)
        return dataclasses.replace(training(device, size, 98.0), directory=f"tensorboard/{output.name}"), ("a note",)

    def profiled(self, phase, device, threads, size, trace):
        self._ask("profiled", phase, device, size)
        if trace:
            trace.parent.mkdir(exist_ok=True)
            trace.write_text("{}", encoding="utf-8")
        rows = forward_rows if phase == "forward" else step_rows
        operations = table(rows(400_000, 100_000, 20_000, size), phase=phase, device=device, batch_size=size, threads=threads)
        return ProfiledCase((operations,), 1_199_882, LAYERS, Ceiling(device, 2e11, 2e10))

    def first_calls(self, phase, device, threads, size):
        self._ask("first", phase, device, size)
        return tuple(first_calls(device, phase, size, first=20 * MS, warm=1 * MS, trained=20 * MS))

    def calls(self, wanted, advance):
        self._ask("calls")
        advance(1.0)
        return tuple(
            call_time(phase, size, size * MS, device=device, threads=threads) for phase, device, threads, size in wanted
        )

    def epoch(self, phase, device, threads, size):
        self._ask("epoch", phase, device, threads, size)
        return epoch_time(phase, size, 100 * MS, device=device, threads=threads)

    def study(self, name, limit_s):
        self._ask("study", name)
        return (Study(name, ("way", "seconds"), (("im2col", "0.001"),)),), ()


class Told:
    """Keeps what it is told."""

    def __init__(self):
        self.steps, self.kept, self.notes = [], 0, []

    def begin(self, seconds, steps):
        self.seconds, self.planned = seconds, steps

    def step(self, what, seconds):
        self.steps.append(what)
        return lambda part: None

    def done(self, *, kept):
        self.kept += kept

    def note(self, text):
        self.notes.append(text)


SETTINGS = Settings("digits", (4, 16), ("cpu",), 3, "convnet", 1)


def lab(directory, measuring, settings=SETTINGS, *, studies=False, **machine):
    return Lab(directory, settings, environment(threads=2, **machine), measuring, studies=studies)


def test_a_lab_measures_every_part_once(tmp_path):
    measuring, told = Counting(), Told()
    found = lab(tmp_path / "new", measuring).run(told)
    assert len(measuring.asked) == len(set(measuring.asked)) == told.planned == len(told.steps)
    assert [run.batch_size for run in found.trainings] == [4, 16]
    assert {(t.phase, t.batch_size) for t in found.operations} == {(p, s) for p in ("forward", "step") for s in (4, 16)}
    assert {(t.threads, t.phase, t.batch_size) for t in found.call_times} == {
        (n, p, s) for n in (1, 2) for p in ("forward", "step") for s in (4, 16)
    }
    assert {(c.phase, c.batch_size) for c in found.first_calls} == {
        ("forward", 1), ("forward", 4), ("forward", 16), ("step", 1), ("step", 16),
    }  # fmt: skip
    assert found.notes == ("a note",)
    assert found.traces == ("traces/forward-cpu-b16.json.gz", "traces/step-cpu-b16.json.gz")
    assert Findings.from_file(tmp_path / "new" / FILE) == found


def test_an_interrupted_lab_goes_on_where_it_was(tmp_path):
    first = Counting(stop_at=("calls",))
    with pytest.raises(KeyboardInterrupt):
        lab(tmp_path, first).run(Told())
    assert not (tmp_path / FILE).exists()
    second, told = Counting(), Told()
    found = lab(tmp_path, second).run(told)
    assert not set(first.asked) & set(second.asked)
    assert told.kept == len(first.asked)
    assert found.notes == ("a note",)  # of the step that was not repeated
    third = Counting()
    assert lab(tmp_path, third).run(Told()) == found
    assert third.asked == []


def test_studies_are_measured_when_they_are_asked_for(tmp_path):
    without = lab(tmp_path, Counting()).run(Told())
    assert without.studies == ()
    measuring = Counting()
    found = lab(tmp_path, measuring, studies=True).run(Told())
    assert measuring.asked == [("study", name) for name in STUDIES]  # the rest is kept
    assert [study.name for study in found.studies] == list(STUDIES)
    assert Findings.from_file(tmp_path / FILE) == found


def test_all_studies_have_one_time_limit(tmp_path, monkeypatch):
    clock = [1_000.0]
    limits = []

    class Slow(Counting):
        def study(self, name, limit_s):
            limits.append(limit_s)
            clock[0] += 80
            return super().study(name, limit_s)

    monkeypatch.setattr("mnistbench.course.lab.run.time.monotonic", lambda: clock[0])
    lab(tmp_path, Slow(), studies=True).run(Told())
    assert limits == [LIMIT_S, LIMIT_S - 80, LIMIT_S - 160, 0]


def test_a_study_without_a_table_has_a_note_and_is_measured_again(tmp_path):
    class Failing(Counting):
        def study(self, name, limit_s):
            self._ask("study", name)
            return (), (f"the study of {name} failed",)

    found = lab(tmp_path, Failing(), studies=True).run(Told())
    assert found.studies == ()
    assert found.notes[-1] == f"the study of {list(STUDIES)[-1]} failed"
    again = lab(tmp_path, Counting(), studies=True).run(Told())
    assert [study.name for study in again.studies] == list(STUDIES)
    assert again.notes == ("a note",)


def test_a_step_that_is_interrupted_while_it_is_measured_again_is_not_done(tmp_path):
    """Its run was gone, and half of a new one is there: the old result belongs to neither."""
    lab(tmp_path, Counting()).run(Told())
    run = tmp_path / "tensorboard" / "convnet-cpu-b4"
    run.rmdir()

    class Stopping(Counting):
        def training(self, device, threads, size, output, advance):
            super().training(device, threads, size, output, advance)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab(tmp_path, Stopping()).run(Told())
    assert run.exists()
    measuring = Counting()
    lab(tmp_path, measuring).run(Told())
    assert measuring.asked == [("training", "cpu", 4)]


def test_a_resumed_lab_reports_the_median_of_its_measured_ceilings(tmp_path):
    """One lucky measurement of an earlier start must not stay for good."""

    class Lucky(Counting):
        def profiled(self, phase, device, threads, size, trace):
            found = super().profiled(phase, device, threads, size, trace)
            rate = 9e11 if (phase, size) == ("step", 16) else 2e11
            return dataclasses.replace(found, ceiling=Ceiling(device, rate, None))

    assert lab(tmp_path, Lucky()).run(Told()).ceilings == (Ceiling("cpu", 2e11, None),)


def test_an_interrupted_training_begins_anew(tmp_path):
    lab(tmp_path, Counting())
    half = tmp_path / "tensorboard" / "convnet-cpu-b4"
    half.mkdir(parents=True)
    (half / "events").write_text("half", encoding="utf-8")
    lab(tmp_path, Counting()).run(Told())
    assert not (half / "events").exists()


@pytest.mark.parametrize(
    "content", ["", "{", '{"schema": 1}', "[]", '{"schema": 1, "what": {"step": "fast"}, "notes": [], "items": [{}]}']
)
def test_a_damaged_step_is_measured_again_and_named(tmp_path, content):
    lab(tmp_path, Counting()).run(Told())
    damaged = tmp_path / STEPS / "training-cpu-b4.json"
    damaged.write_text(content, encoding="utf-8")
    measuring, told = Counting(), Told()
    lab(tmp_path, measuring).run(told)
    assert measuring.asked == [("training", "cpu", 4)]
    assert len(told.notes) == 1
    assert told.notes[0].startswith(f"{damaged} is damaged (")


def test_a_trace_that_is_gone_is_made_again(tmp_path):
    lab(tmp_path, Counting()).run(Told())
    (tmp_path / "traces" / "step-cpu-b16.json.gz").unlink()
    measuring, told = Counting(), Told()
    lab(tmp_path, measuring).run(told)
    assert measuring.asked == [("profiled", "step", "cpu", 16)]
    assert "is missing; measuring it again" in told.notes[0]


def test_more_batch_sizes_cost_only_what_is_new(tmp_path):
    lab(tmp_path, Counting()).run(Told())
    measuring = Counting()
    found = lab(tmp_path, measuring, dataclasses.replace(SETTINGS, batch_sizes=(4, 16, 64))).run(Told())
    assert ("training", "cpu", 64) in measuring.asked
    assert ("calls",) in measuring.asked  # what is compared is timed together
    assert ("training", "cpu", 4) not in measuring.asked
    assert found.traces == ("traces/forward-cpu-b64.json.gz", "traces/step-cpu-b64.json.gz")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"dataset": "mnist"},
            "contains a lab with dataset digits, not mnist; use the same settings or name another directory",
        ),
        ({"epochs": 5}, "contains a lab with epochs 3, not 5"),
        ({"seed": 2}, "contains a lab with seed 1, not 2"),
    ],
)
def test_another_lab_in_the_directory_is_refused(tmp_path, change, said):
    lab(tmp_path, Counting())
    with pytest.raises(UsageError, match=said):
        lab(tmp_path, Counting(), dataclasses.replace(SETTINGS, **change))


def test_a_lab_of_another_machine_is_refused(tmp_path):
    lab(tmp_path, Counting())
    with pytest.raises(UsageError, match=r"another machine or with other software: torch was '2\.15\.0' and is '2\.16\.0'"):
        lab(tmp_path, Counting(), torch="2.16.0")


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="contains files that are not a lab's; name a new or an empty directory"):
        lab(tmp_path, Counting())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_lab_that_was_killed_before_it_began_is_begun_anew(tmp_path):
    (tmp_path / STEPS).mkdir()
    lab(tmp_path, Counting())
    assert (tmp_path / BEGUN).exists()


@pytest.mark.parametrize("content", [("steps/mine",), ("steps", "thesis.tex")])
def test_steps_of_something_else_are_left_alone(tmp_path, content):
    for name in content:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(UsageError, match="contains files that are not a lab's"):
        lab(tmp_path, Counting())
    assert not (tmp_path / BEGUN).exists()


@pytest.mark.parametrize("content", ["", "{}", '{"settings": {}, "environment": {}}', "\x00"])
def test_a_damaged_beginning_is_one_line(tmp_path, content):
    lab(tmp_path, Counting())
    (tmp_path / BEGUN).write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=r"begun\.json cannot be read"):
        lab(tmp_path, Counting())


def test_one_thread_and_accelerators_are_not_compared_with_one_thread(tmp_path):
    found = Lab(tmp_path / "one", SETTINGS, environment(threads=1), Counting()).run(Told())
    assert {time.threads for time in found.call_times} == {1}
    both = dataclasses.replace(SETTINGS, devices=("cpu", "cuda"))
    found = lab(tmp_path / "both", Counting(), both).run(Told())
    assert {(time.device, time.threads) for time in found.call_times} == {("cpu", 2), ("cuda", 2)}


def test_lines_name_each_step_and_the_time_left(tmp_path):
    stream = io.StringIO()
    lab(tmp_path, Counting()).run(Lines(stream))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("[ 1/")
    assert "training, cpu, batch size 4: 0.0 s; about" in lines[0]
    assert lines[-1].endswith("done")
    again = io.StringIO()
    lab(tmp_path, Counting()).run(Lines(again))
    assert all("already done" in line for line in again.getvalue().splitlines())


def test_the_bar_reaches_its_end(tmp_path):
    stream = io.StringIO()
    bar = Bar(stream)
    try:
        lab(tmp_path, Counting()).run(bar)
        assert bar._left.share == pytest.approx(1.0)
    finally:
        bar.close()
    assert "training, cpu, batch size 4" in stream.getvalue()


def test_steps_are_json_that_a_person_can_read(tmp_path):
    lab(tmp_path, Counting()).run(Told())
    data = json.loads((tmp_path / STEPS / "calls.json").read_text(encoding="utf-8"))
    assert data["schema"] == 1
    assert {"phase", "device", "threads", "batch_size", "median_ns", "iqr_ns", "calls"} == set(data["items"][0])
