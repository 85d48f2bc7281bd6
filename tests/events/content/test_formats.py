"""A file of another format is named, with what to do about it."""

import contextlib
import gzip
import io
import json
import pickle
import sqlite3
import tarfile
import zipfile

import pytest
import trace_builders as build

from mnistbench.events.content.formats import NoTraceError
from mnistbench.events.from_file import read

TRACE = json.dumps(build.document([build.op("aten::mm", 1, 2)])).encode()


def zipped(name="trace.json"):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, TRACE)
    return stream.getvalue()


def tarred():
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("trace.json")
        member.size = len(TRACE)
        archive.addfile(member, io.BytesIO(TRACE))
    return stream.getvalue()


def database():
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table kernels (name text)")
        return connection.serialize()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (zipped(), "is a zip archive; unpack it"),
        (zipped("archive/data.pkl"), "is a file of torch.save"),
        (tarred(), "is a tar archive; unpack it"),
        (gzip.compress(tarred()), "is a tar archive; unpack it"),
        (gzip.compress(gzip.compress(TRACE)), "is compressed twice with gzip"),
        (b"\x28\xb5\x2f\xfd\x24\x06", "is compressed with Zstandard"),
        (b"BZh91AY&SY", "is compressed with bzip2"),
        (b"\xfd7zXZ\x00\x00\x04", "is compressed with xz"),
        (b"\x04\x22\x4d\x18\x64", "is compressed with LZ4"),
        (b"7z\xbc\xaf\x27\x1c\x00\x04", "is a 7z archive"),
        (database(), "is an SQLite database"),
        (
            pickle.dumps({"segments": [], "device_traces": []}),
            "is a pickle, such as a memory snapshot",
        ),
        (b"\n\x0f8\x01\x9a\x01\x00\x01", "is binary, maybe a trace of Perfetto"),
        (b"\n<!DOCTYPE html>\n<html>", "is an HTML page"),
        (b'<?xml version="1.0"?><Error/>', "is an XML document"),
        (
            b'{"schema":2,"mnistbench":"0.1.0"}\n{"seed":1}\n',
            "is a file of raw samples of a gate; judge it, or write its page, with: mnistbench",
        ),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "is a pointer of Git LFS"),
        (b'{"benchmarks": [], "machine_info": {}}', "is a saved run of pytest-benchmark"),
        (
            b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}',
            "is an execution trace of PyTorch",
        ),
        (b'{"segments": [], "device_traces": []}', "is a memory snapshot of PyTorch"),
        (b'{"rocprofiler-sdk-tool": []}', "is a file of rocprofv3"),
        (
            b'{"$schema": "https://www.speedscope.app/file-format-schema.json"}',
            "is a profile of a sampling profiler",
        ),
        (b"\x80\x81\x82", "is not a text file"),
        (b"\x7fELF\x02\x01\x01\x00", "is not JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_formats(tmp_path, content, name):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(Exception, match=f"trace.json: {name}") as raised:
        read(path)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, NoTraceError)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_a_trace_in_any_encoding_of_unicode_is_read(tmp_path, encoding):
    """A shell of Windows may write one again."""
    path = tmp_path / "trace.json"
    path.write_bytes(TRACE.decode().encode(encoding))
    assert [event.name for event in read(path).host] == ["aten::mm"]


def test_a_trace_may_begin_with_empty_lines(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(b"\n\n" + TRACE)
    assert [event.name for event in read(path).host] == ["aten::mm"]
