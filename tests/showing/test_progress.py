"""The progress of a command on a terminal and in a log, at times that the tests choose."""

import io
import re

import pytest

from mnistbench.showing.progress import Progress, about


class Terminal(io.StringIO):
    """A stream that is a terminal; 80 columns are assumed because it has no file descriptor."""

    def isatty(self):
        return True

    @property
    def updates(self):
        """The texts that were shown one after the other on the updated line."""
        return [text.rstrip() for text in self.getvalue().split("\r")[1:]]


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def measure(progress, clock, *, cases=("a", "b", "c", "d"), seconds=20):
    for case in cases:
        progress.step(case)
        clock.now += seconds
        progress.advance()


def test_terminal_shows_a_bar_the_step_and_the_remaining_time(clock):
    terminal = Terminal()
    with Progress(terminal, total=4, clock=clock) as progress:
        measure(progress, clock)
    assert terminal.updates[:3] == [
        "  0 % |                        | a",
        " 25 % |######                  | a, about 60 s left",
        " 25 % |######                  | b, about 60 s left",
    ]
    # The line is removed.
    assert terminal.updates[-3:] == ["100 % |########################| d", "", ""]
    assert "\n" not in terminal.getvalue()


def test_log_has_a_line_for_each_step(clock):
    log = io.StringIO()
    with Progress(log, total=4, clock=clock) as progress:
        measure(progress, clock)
    assert log.getvalue() == "a\nb, about 60 s left\nc, about 40 s left\nd, about 20 s left\n"


def test_steps_without_a_total_are_shown_without_a_bar(clock):
    terminal = Terminal()
    with Progress(terminal, clock=clock) as progress:
        measure(progress, clock, cases="ab")
    assert terminal.updates == ["a", "a", "b", "b", "", ""]


def test_a_command_gives_the_remaining_time_that_it_knows_better(clock):
    log = io.StringIO()
    progress = Progress(log, clock=clock)
    progress.step("trial 3 of 10", left_s=600)
    assert progress.left_s == 600
    progress.advance()
    assert progress.left_s is None
    assert log.getvalue() == "trial 3 of 10, about 10 min left\n"


def test_rate_has_the_unit_and_leaves_out_what_was_done_before(clock):
    terminal = Terminal()
    progress = Progress(terminal, total=4000, done=1000, unit="samples", clock=clock)
    progress.step("epoch 2 of 4")
    clock.now += 2
    progress.advance(1000)
    assert terminal.updates == [
        " 25 % |######                  | epoch 2 of 4",
        " 50 % |############            | epoch 2 of 4, 500 samples/s, about 4 s left",
    ]


def test_sentences_are_whole_lines_above_the_updated_one(clock):
    terminal = Terminal()
    progress = Progress(terminal, clock=clock)
    progress.step("measuring")
    progress.say("one case \x1b is slow")
    progress.step("measuring on")
    assert (
        re.sub(" {9,}", "", terminal.getvalue())
        == "\rmeasuring\r\rone case \\x1b is slow\n\rmeasuring on"
    )


def test_lines_go_to_a_stream_of_their_own(clock):
    terminal = Terminal()
    out = io.StringIO()
    progress = Progress(terminal, lines=out, clock=clock)
    progress.step("epoch 1", log="not shown on a terminal")
    progress.say("epoch 1: loss 0.5")
    assert out.getvalue() == "epoch 1: loss 0.5\n"
    assert terminal.updates == ["epoch 1", "", ""]


@pytest.mark.parametrize(
    ("log", "line"), [(None, "training\n"), ("", ""), ("loss 0.5", "loss 0.5\n")]
)
def test_log_shows_another_text_or_nothing(log, line):
    stream = io.StringIO()
    Progress(stream).step("training", log=log)
    assert stream.getvalue() == line


def test_quiet_log_has_sentences_only():
    log = io.StringIO()
    progress = Progress(log, quiet=True)
    progress.step("file 1")
    progress.say("file 2 is damaged")
    assert log.getvalue() == "file 2 is damaged\n"


def test_updates_are_at_most_ten_per_second_and_every_step_is_shown(clock):
    terminal = Terminal()
    progress = Progress(terminal, total=1000, clock=clock)
    progress.step("a")
    for _ in progress.over(range(100)):
        clock.now += 0.01
    progress.step("b")
    assert 10 <= len(terminal.updates) <= 13
    assert terminal.updates[-1].endswith("| b, about 9 s left")


def test_short_work_shows_nothing_and_long_work_begins_on_a_new_line(clock):
    terminal = Terminal()
    with Progress(terminal, total=3, after_s=2.0, below=True, clock=clock) as progress:
        measure(progress, clock, cases="ab", seconds=0.5)
        assert terminal.getvalue() == ""
        measure(progress, clock, cases="c", seconds=5)
    assert terminal.getvalue().startswith("\n\r100 % |")
    assert terminal.getvalue().count("\n") == 1


def test_line_is_cut_to_the_width_of_the_terminal(clock):
    terminal = Terminal()
    Progress(terminal, clock=clock).step("x" * 200)
    assert terminal.updates == [f"{'x' * 76}..."]


@pytest.mark.parametrize(
    ("step", "line"),
    [
        ("trial 3 of 8, test_a", " 25 % |######                  | trial 3 of 8, test_a"),
        (
            "trial 3 of 8, bench/test_step.py::test",
            " 25 % trial 3 of 8, bench/test_step.py::test",
        ),
        ("x" * 90, f" 25 % {'x' * 53}..."),
    ],
)
def test_the_remaining_time_is_shown_at_any_length_of_a_step(clock, step, line):
    terminal = Terminal()
    progress = Progress(terminal, total=4, clock=clock)
    clock.now += 20
    progress.advance()
    progress.step(step)
    assert terminal.updates[-1] == f"{line}, about 60 s left"
    assert len(terminal.updates[-1]) <= 79


def test_no_stream_shows_nothing():
    with Progress(None, total=2) as progress:
        progress.say("text")
        assert list(progress.over("ab")) == ["a", "b"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "about 0 s"), (89, "about 89 s"), (90, "about 2 min"), (3600, "about 60 min")],
)
def test_time_left_is_in_seconds_or_minutes(seconds, text):
    assert about(seconds) == text
