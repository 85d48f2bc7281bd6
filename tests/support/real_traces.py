"""Where the traces of real accelerators are. The project does not contain them."""

import os
from pathlib import Path

import pytest

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
