"""Findings: JSON both ways, and what is wrong with a file in one line."""

import dataclasses
import gzip
import json
from pathlib import Path

import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from lab_builders import cluster, laptop

from mnistbench.core.document import Reader
from mnistbench.core.errors import RecordError
from mnistbench.course.lab.findings import FILE, Findings, Settings


@pytest.mark.parametrize("machine", [laptop, cluster])
def test_what_is_written_is_read_back(tmp_path, machine):
    found = machine(notes=("no model graph: RuntimeError",))
    (tmp_path / FILE).write_text(found.to_json(), encoding="utf-8")
    assert Findings.from_file(tmp_path / FILE) == found


def test_a_lab_that_an_earlier_version_wrote_is_read_whole(tmp_path):
    text = gzip.decompress((Path(__file__).parents[2] / "data" / "lab_0.1.0.json.gz").read_bytes()).decode()
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    assert json.loads(Findings.from_file(tmp_path / FILE).to_json()) == {**json.loads(text), "studies": []}


def written(tmp_path, change):
    data = json.loads(laptop().to_json())
    change(data)
    path = tmp_path / FILE
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.pop("model"), "model: is missing"),
        (lambda data: data["call_times"][0].update(median_ns=-1), "call_times[0].median_ns: needs a time of at least 0 ns"),
        (lambda data: data["call_times"][0].update(median_ns="5"), "call_times[0].median_ns: needs a whole number"),
        (lambda data: data["call_times"][0].update(batch_size=0), "call_times[0].batch_size: needs at least 1"),
        (lambda data: data["ceilings"][0].update(flops_per_s="fast"), "ceilings[0].flops_per_s: needs a finite number"),
        (lambda data: data["settings"].update(devices="cpu"), "settings.devices: needs a list"),
        (lambda data: data["settings"].update(batch_sizes=[]), "settings.batch_sizes: needs at least one"),
        (lambda data: data["settings"].update(devices=[]), "settings.devices: needs at least one"),
        (lambda data: data["environment"].update(allocator=[]), "environment.allocator: needs an object"),
        (lambda data: data.update(schema=2), "schema: needs 1, which this mnistbench reads, found 2"),
        (lambda data: data.update(schema="1"), "schema: needs a whole number"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(tmp_path, change, said):
    path = written(tmp_path, change)
    with pytest.raises(RecordError) as error:
        Findings.from_file(path)
    assert str(error.value).startswith(f"{path}: {said}")
    assert str(error.value).endswith(f"run mnistbench lab -o {tmp_path} again")


def test_a_file_that_is_missing_or_no_json_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"lab\.json: cannot be read \(No such file or directory\); run mnistbench lab -o"):
        Findings.from_file(tmp_path / FILE)
    for content in ("{", "[" * 100_000, "\ufeff{}"):
        (tmp_path / FILE).write_text(content, encoding="utf-8")
        with pytest.raises(RecordError, match=r"lab\.json: is not JSON"):
            Findings.from_file(tmp_path / FILE)
    (tmp_path / FILE).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match=r"lab\.json: is not JSON"):
        Findings.from_file(tmp_path / FILE)


@given(st.fixed_dictionaries({field.name: strategies.json_values() for field in dataclasses.fields(Settings)}))
@strategies.ANY_SPEED
def test_any_json_is_read_or_refused_by_name(data):
    try:
        settings = Reader(data).read(Settings)
    except RecordError:
        return
    assert dataclasses.asdict(settings) == {
        **data,
        "batch_sizes": tuple(data["batch_sizes"]),
        "devices": tuple(data["devices"]),
    }


def test_the_accelerator_is_the_first_device_that_is_no_cpu():
    assert laptop().settings.accelerator == ""
    assert cluster().settings.accelerator == "cuda"
