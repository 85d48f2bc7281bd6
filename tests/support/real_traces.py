"""The traces of real accelerators. The project does not contain them.

A trace of 35 MB takes more than a second to read, so each is read once in a session. What is
returned here is shared by many tests, which must not change it.
"""

import functools
import os
from pathlib import Path

import pytest

from mnistbench.events import analysis

_DATA = os.environ.get("MNISTBENCH_DATA")

#: The folder that MNISTBENCH_TRACES names, else ``traces`` in that of MNISTBENCH_DATA.
FOLDER = Path(
    os.environ.get("MNISTBENCH_TRACES")
    or (Path(_DATA) / "traces" if _DATA else "traces of accelerators")
)

needs_traces = pytest.mark.skipif(
    not (FOLDER / "diff_control.json.gz").is_file(),
    reason="MNISTBENCH_TRACES names no folder with traces of accelerators",
)


def path(name):
    """The file of a trace."""
    return FOLDER / f"{name}.json.gz"


@functools.lru_cache(maxsize=1)  # the events of all traces would take a gigabyte
def linked(name):
    """The events of a trace with their links."""
    return analysis.linked(path(name))


@functools.cache
def analysed(name):
    """The tables of a trace, with the work of its operations."""
    trace = linked(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "linked", lambda _: trace)
        return analysis.analyse(path(name), counts_work=True)


def analysed_file(file):
    """The same of its file, in place of :func:`analysis.analyse`."""
    return analysed(file.name.removesuffix(".json.gz"))


ALL = (
    "a100_alexnet_training",
    "a100_triton_kernel",
    "b200_eager",
    "diff_control",
    "diff_test",
    "h100_bert_small",
    "h100_qwen_0.5b",
    "mi250_mlp_training",
    "mi300_bert_small",
    "mi300_qwen_0.5b",
    "mi300_resnet_training",
    "torch_compile_triton",
)
