"""The file of a trace -> its JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mnistbench.core.errors import RecordError
from mnistbench.core.files import Limit, read_limited
from mnistbench.core.reading import check_memory
from mnistbench.events.content import formats
from mnistbench.events.content.formats import NoTraceError
from mnistbench.events.content.repair import repaired

#: Traces of large models with Python stacks have 1 GiB and more. By a
#: trace of 35 MB, which took 2 s and 180 MB, each GiB takes about a minute and 5 GiB of memory.
TRACE = Limit(4 * 1024**3, "a trace", "record fewer steps, or without with_stack and record_shapes")

#: A damaged file without one of these keys is no damaged trace.
_KEY_OF_TRACE = re.compile(rb'"(traceEvents|ph)"')

#: What a user is told to do about a file that is no trace.
ADVICE = "give a file that torch.profiler's export_chrome_trace wrote"


class TraceDocument(NamedTuple):
    """The object in a file. It has a list of traceEvents."""

    content: Mapping[str, Any]
    repairs: tuple[str, ...]  # phrases; empty for valid JSON


def read_document(path: Path) -> TraceDocument:
    """Read a file, plain or compressed with gzip.

    A list of events is read as an object that has nothing else.

    Raises:
        RecordError: one line with the file and what is wrong with it. It is a NoTraceError if the
            file is of another format or has no part of a trace.
    """
    content = read_limited(path, TRACE)
    if not content.strip():
        raise NoTraceError(
            f"{path}: is empty; the program may have ended before the profiler wrote the trace"
        )
    check_memory(content, str(path))
    document, repairs = _parsed(path, content)
    if isinstance(document, list) and any(
        isinstance(event, dict) and "ph" in event for event in document
    ):
        document = {"traceEvents": document}  # Chrome's array form, also of torch's legacy profiler
    if isinstance(document, dict) and isinstance(document.get("traceEvents"), list):
        return TraceDocument(document, repairs)
    if known := formats.of_json(document):
        raise NoTraceError(f"{path}: is {known}")
    raise NoTraceError(f"{path}: has no list of traceEvents, so it is no trace; {ADVICE}")


def _parsed(path: Path, content: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return the parsed JSON and the repairs that it needed."""
    try:
        # torch 2.0 writes names of code with line breaks as they are.
        return json.loads(content, strict=False), ()
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        mistake = error
    if known := formats.of_bytes(content):
        raise NoTraceError(f"{path}: is {known.name}; {known.remedy or formats.RECORD}")
    if repaired_document := repaired(content):
        return repaired_document
    if isinstance(mistake, UnicodeDecodeError) and not content.lstrip().startswith((b"{", b"[")):
        raise NoTraceError(f"{path}: is not a text file; {ADVICE}")
    # UTF-16 has a zero byte beside each letter of a key.
    is_trace = _KEY_OF_TRACE.search(content.replace(b"\0", b""))
    kind_of_error = RecordError if is_trace else NoTraceError
    raise kind_of_error(
        f"{path}: is not JSON ({mistake}); the file is cut off or damaged, or {ADVICE}"
    )
