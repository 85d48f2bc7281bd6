"""Names of formats that are no trace and no saved run.

A format is known by the first bytes of a file or by the keys of its JSON.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from mnistbench.core.errors import RecordError


class NoTraceError(RecordError):
    """A file is whole, but it is of another format than a trace, or nothing of PyTorch is in it."""


class Format(NamedTuple):
    """A format of files that is neither that of a trace nor that of a saved run."""

    begins: bytes  # regular expression for the first bytes
    name: str
    remedy: str = ""  # how to get the file that is in it; empty if none can be


_UNPACK = "unpack it and give the file in it"

#: What to do about a file from which no trace can be made.
RECORD = "record with torch.profiler and give the file of export_chrome_trace"

#: Bytes that are looked at. The mark of a tar archive ends at 262.
_BEGINNING = 512

#: The first one that matches is the format.
_BINARY = (
    Format(rb"PK\x03\x04.{0,200}data\.pkl", "a file of torch.save"),
    Format(rb"PK(\x03\x04|\x05\x06)", "a zip archive", _UNPACK),
    Format(rb".{257}ustar", "a tar archive", _UNPACK),
    Format(rb"\x28\xb5\x2f\xfd", "compressed with Zstandard", "unpack it with: zstd -d FILE"),
    Format(rb"BZh[1-9]", "compressed with bzip2", "unpack it with: bunzip2 FILE"),
    Format(rb"\xfd7zXZ\x00", "compressed with xz", "unpack it with: unxz FILE"),
    Format(rb"\x04\x22\x4d\x18", "compressed with LZ4", "unpack it with: lz4 -d FILE"),
    Format(rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    Format(rb"Rar!\x1a\x07", "a rar archive", _UNPACK),
    Format(rb"SQLite format 3\x00", "an SQLite database, as Nsight Systems and rocprof write it"),
    Format(rb"\x80[\x02-\x05]", "a pickle, such as a memory snapshot of torch.cuda"),
    Format(rb"\x1f\x8b", "compressed twice with gzip", "unpack it with: gunzip FILE"),
    Format(
        rb"\n(?![\s{\[])[\x00-\xff]*?[\x00-\x08\x80-\xff]",
        "binary, maybe a trace of Perfetto (protobuf)",
        "export JSON instead",
    ),
    Format(
        rb"version https://git-lfs",
        "a pointer of Git LFS, not the file itself",
        "get the file with: git lfs pull",
    ),
    Format(
        rb"(?i)\s*<(!doctype html|html)",
        "an HTML page",
        "if you downloaded it, download the file itself",
    ),
    Format(
        rb'{"schema":\d+,"mnistbench"',
        "a file of raw samples of a gate",
        "judge it, or write its page, with: mnistbench judge FILE --format html -o gate.html",
    ),
    Format(rb"\s*<\?xml", "an XML document", "if you downloaded it, download the file itself"),
)


def of_bytes(content: bytes) -> Format | None:
    """Return the format of a file by its first bytes; None if it is not known."""
    beginning = content[:_BEGINNING]
    for known in _BINARY:
        if re.match(known.begins, beginning, re.DOTALL):
            return known
    return None


def of_json(document: Any) -> str:
    """Return the format of JSON that is no trace, and what to do; empty if it is not known."""
    if not isinstance(document, dict):
        return ""
    if "benchmarks" in document:
        return (
            "a saved run of pytest-benchmark; compare two of them with: mnistbench compare BASE "
            "HEAD"
        )
    if "nodes" in document and "schema" in document:
        return f"an execution trace of PyTorch, which has no kernels; {RECORD}"
    if "device_traces" in document or "segments" in document:
        return f"a memory snapshot of PyTorch; {RECORD}"
    if "rocprofiler-sdk-tool" in document:
        return f"a file of rocprofv3; {RECORD}"
    if "speedscope" in str(document.get("$schema")) or (
        "nodes" in document and "samples" in document
    ):
        return f"a profile of a sampling profiler; {RECORD}"
    return ""
