"""What ``mnistbench scale`` prints, against files in golden/.

Also its data, and where the figure has its points.
"""

from __future__ import annotations

import csv
import io
import json

import pytest
from scale_builders import MS, launched, scaling

from mnistbench.showing.output import render
from mnistbench.suite.train.scale.report import figure, report


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("strong", scaling()),
        ("weak", scaling(launched(1, 80), launched(2, 100, 102, samples=128), weak=True)),
        ("without_one", scaling(launched(2, 50, 45), launched(3, 40, 35), cores=8)),
    ],
)
def test_a_report(golden, name, result):
    golden(render(report(result), "terminal"), f"scale_{name}.txt")


def test_markdown(golden):
    golden(render(report(scaling()), "markdown"), "scale.markdown")


def test_json_has_the_times_of_every_step_on_every_rank():
    data = json.loads(report(scaling()).json)
    assert (data["report"], data["settings"]["ranks"], data["environment"]["cpu_count"]) == (
        "scale",
        [1, 2, 4],
        2,
    )
    single, two, four = data["launches"]
    assert [len(launch["steps_ns"]) for launch in (single, two, four)] == [1, 2, 4]
    assert two["steps_ns"] == [
        [49_500_000, 49 * MS, 50 * MS, 49_500_000],
        [48_500_000, 50 * MS, 49 * MS, 50_500_000],
    ]
    assert (two["step_ns"], two["no_sync_step_ns"], two["exposed_ns"], two["efficiency"]) == (
        50 * MS,
        45 * MS,
        5 * MS,
        0.8,
    )
    assert (single["exposed_ns"], single["no_sync_steps_ns"]) == (None, [])
    assert (four["oversubscribed"], four["efficiency"]) == (True, None)


def test_csv_has_a_row_for_each_number_of_ranks():
    rows = list(csv.DictReader(io.StringIO(render(report(scaling(launched(3, 50, 45))), "csv"))))
    assert [(row["ranks"], row["batch_sizes"], row["step_ns"]) for row in rows] == [
        ("3", "22 21 21", "50000000")
    ]
    assert rows[0]["efficiency"] == ""


def points(drawing):
    """Return the column and the height above the axis of each mark."""
    lines = [line.partition("|")[2] for line in drawing.split("\n") if "|" in line]
    places = {}
    for height, line in enumerate(reversed(lines)):
        for column, mark in enumerate(line):
            places.setdefault(mark, []).append((column, height))
    return places


def test_points_are_below_the_ideal_line_as_far_as_they_are_slower():
    marks = points(figure(scaling()))
    (_, single), (_, two) = sorted(marks["o"])
    [(right, four)] = marks["x"]
    assert (single, two, four) == pytest.approx(
        [1 / 4 * 14, 1.6 / 4 * 14, 80 / 60 / 4 * 14], abs=0.5
    )
    assert max(marks["."]) == (right, 14)


def test_one_number_of_ranks_is_a_figure_too():
    assert points(figure(scaling(launched(1, 80))))["o"] == [(56, 14)]
