"""Names of formats that are no trace, by the first bytes of a file or by the keys of its JSON."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from mnistbench.core.errors import RecordError


class NoTraceError(RecordError):
    """A file is whole, but it is of another format than a trace, or nothing of PyTorch is in it."""


class _Format(NamedTuple):
    begins: bytes  # regular expression for the first bytes
    name: str
    remedy: str


_UNPACK = "unpack it and give the trace in it"
_RECORD = "record with torch.profiler and give the file of export_chrome_trace"

#: Bytes that are looked at. The mark of a tar archive ends at 262.
_BEGINNING = 512

#: The first one that matches is the format.
_BINARY = (
    _Format(rb"PK\x03\x04.{0,200}data\.pkl", "a file of torch.save", _RECORD),
    _Format(rb"PK(\x03\x04|\x05\x06)", "a zip archive", _UNPACK),
    _Format(rb".{257}ustar", "a tar archive", _UNPACK),
    _Format(rb"\x28\xb5\x2f\xfd", "compressed with Zstandard", "unpack it with: zstd -d FILE"),
    _Format(rb"BZh[1-9]", "compressed with bzip2", "unpack it with: bunzip2 FILE"),
    _Format(rb"\xfd7zXZ\x00", "compressed with xz", "unpack it with: unxz FILE"),
    _Format(rb"\x04\x22\x4d\x18", "compressed with LZ4", "unpack it with: lz4 -d FILE"),
    _Format(rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    _Format(rb"Rar!\x1a\x07", "a rar archive", _UNPACK),
    _Format(rb"SQLite format 3\x00", "an SQLite database, as Nsight Systems and rocprof write it", _RECORD),
    _Format(rb"\x80[\x02-\x05]", "a pickle, such as a memory snapshot of torch.cuda", _RECORD),
    _Format(rb"\x1f\x8b", "compressed twice with gzip", "unpack it with: gunzip FILE"),
    _Format(
        rb"\n(?![\s{\[])[\x00-\xff]*?[\x00-\x08\x80-\xff]", "binary, maybe a trace of Perfetto (protobuf)",
        "export JSON instead",
    ),
    _Format(
        rb"version https://git-lfs", "a pointer of Git LFS, not the file itself", "get the file with: git lfs pull"
    ),
    _Format(rb"(?i)\s*<(!doctype html|html)", "an HTML page", "if you downloaded it, download the file itself"),
    _Format(rb"\s*<\?xml", "an XML document", "if you downloaded it, download the file itself"),
)  # fmt: skip


def of_bytes(content: bytes) -> str:
    """Return ``a zip archive; unpack it and give the trace in it``; empty for a format that is not known."""
    beginning = content[:_BEGINNING]
    for known in _BINARY:
        if re.match(known.begins, beginning, re.DOTALL):
            return f"{known.name}; {known.remedy}"
    return ""


def of_json(document: Any) -> str:
    """Return the same of a parsed JSON document that is no trace; empty for one that is not known."""
    if not isinstance(document, dict):
        return ""
    if "benchmarks" in document:
        return "a saved run of pytest-benchmark; compare two of them with: mnistbench compare BASE HEAD"
    if "nodes" in document and "schema" in document:
        return f"an execution trace of PyTorch, which has no kernels; {_RECORD}"
    if "device_traces" in document or "segments" in document:
        return f"a memory snapshot of PyTorch; {_RECORD}"
    if "rocprofiler-sdk-tool" in document:
        return f"a file of rocprofv3; {_RECORD}"
    if "speedscope" in str(document.get("$schema")) or ("nodes" in document and "samples" in document):
        return f"a profile of a sampling profiler; {_RECORD}"
    return ""
