"""Findings: JSON both ways, and what is wrong with a file in one line."""

import dataclasses
import json
import os

import pytest
from lab_builders import cluster, laptop

from mnistbench.core.errors import RecordError
from mnistbench.course.lab.lab_file import FILE, Findings, stored, write_file
from mnistbench.events.work.roofline import Ceilings


def write(directory, findings):
    write_file(directory / FILE, stored(findings))


@pytest.mark.parametrize("machine", [laptop, cluster])
def test_a_lab_is_read_as_it_was_written(tmp_path, machine):
    findings = machine(notes=("no model graph: RuntimeError",))
    write(tmp_path, findings)
    assert Findings.from_directory(tmp_path) == findings


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda data: data.pop("cases"), "cases: is missing"),
        (
            lambda data: data["iteration_times"][0].update(batch_size=0),
            "iteration_times[0].batch_size: ",
        ),
        (
            lambda data: data["cases"][0]["costs"][0].pop(),
            "cases[0].costs[0]: ",
        ),
        (
            lambda data: data["cases"][0]["tables"][0].update(times="{"),
            "cases[0].tables[0].times: is not JSON",
        ),
        (
            lambda data: data["first_iterations"][0]["cold"]["table"].update(samples="[]"),
            "first_iterations[0].cold.table.samples: ",
        ),
        (lambda data: data["cases"][0].update(ceilings={"flops_per_s": 0}), "cases[0].ceilings"),
        (lambda data: data["settings"].pop("epochs"), "settings.epochs: is missing"),
        (
            lambda data: data["settings"].update(devices=[]),
            "settings.devices: ",
        ),
        (
            lambda data: data.update(schema=2),
            "schema: needs 1, which this mnistbench reads, found 2",
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_file(tmp_path, change, fault):
    path = tmp_path / FILE
    write(tmp_path, laptop())
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(RecordError) as error:
        Findings.from_directory(tmp_path)
    assert str(error.value).startswith(f"{path}: {fault}")
    assert str(error.value).endswith(f"run mnistbench lab -o {tmp_path} again")


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(RecordError, match=r"lab\.json: is not a file; "):
        Findings.from_directory(tmp_path)


def test_a_file_that_is_missing_or_no_json_is_named(tmp_path):
    with pytest.raises(
        RecordError,
        match=r"lab\.json: cannot be read \(No such file or directory\); run mnistbench lab -o",
    ):
        Findings.from_directory(tmp_path)
    for content in (b"{", b"[" * 100_000, "\ufeff{}".encode(), b"\xff\xfe\x00"):
        (tmp_path / FILE).write_bytes(content)
        with pytest.raises(RecordError, match=r"lab\.json: file: is not JSON"):
            Findings.from_directory(tmp_path)


def test_ceilings_are_the_medians_of_those_measured_with_the_cases():
    """One lucky measurement of a lab that was resumed does not count."""
    [first, *rest] = laptop().cases
    lucky = dataclasses.replace(first, ceilings=Ceilings(9e11, 3e10, "float32"))
    assert (
        laptop(cases=(lucky, *rest)).ceilings
        == laptop().ceilings
        == {"cpu": Ceilings(2e11, 2e10, "float32")}
    )
