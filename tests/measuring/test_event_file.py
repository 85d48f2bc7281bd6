"""Event files, against the reader and the writer of TensorBoard."""

import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from torch.utils.tensorboard import SummaryWriter

from mnistbench.measuring.event_file import framed, scalar_events, write_event_file

CURVES = {"timing/a": [(1, 0.5), (200, 1e-9), (40_000, 3e8)], "timing/b": [(1, 2.0), (2, -0.0)]}


def events_in(directory):
    """Return the events of the only file, and its name without the time."""
    [file] = directory.iterdir()
    found = list(LegacyEventFileLoader(str(file)).Load())
    for event in found:
        event.wall_time = 0
        event.ClearField("source_metadata")
    return found, file.name.split(".")[:3]


@pytest.mark.versions
def test_events_are_those_of_summary_writer(tmp_path):
    write_event_file(tmp_path / "not" / "there", scalar_events(CURVES))
    with SummaryWriter(str(tmp_path / "writer")) as writer:
        for tag, points in CURVES.items():
            for step, value in points:
                writer.add_scalar(tag, value, step)
    assert events_in(tmp_path / "not" / "there") == events_in(tmp_path / "writer")


@pytest.mark.parametrize("records", [[], [b""], [b"a", b"", b"bc", b"d"], [bytes(range(256)) * 3] * 2])
def test_a_file_is_lengths_records_and_their_checksums_in_order(records):
    expected = b""
    for record in records:
        length = len(record).to_bytes(8, "little")
        for part in (length, record):
            expected += part + masked_crc32c(part).to_bytes(4, "little")
    assert framed(records) == expected
