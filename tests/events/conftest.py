"""Traces of a few events."""

import pytest
import trace_builders as build

from mnistbench.events.analysis import analyse


@pytest.fixture
def timeline(tmp_path):
    """Return the timeline of the only accelerator of a trace of these events."""

    def of_events(*events):
        [line] = analyse(build.trace_file(tmp_path, events)).timeline.devices
        return line

    return of_events
