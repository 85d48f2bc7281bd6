"""Lines of the program in tracebacks of the compiler."""

from __future__ import annotations

from pathlib import Path

import torch

from mnistbench.suite.measuring.compiled_graphs import Frame, innermost_frame

MODULE = str(Path(torch.__file__).parent / "nn/modules/activation.py")
OF_TORCH = f'  File "{MODULE}", line 140, in forward\n    return F.relu(input)\n'
RESUMED = "torch_dynamo_resume_in_forward_at_5"
OF_PROGRAM = f'  File "/home/me/model.py", line 7, in {RESUMED}\n    f(x)\n'


def test_the_innermost_line_of_the_program() -> None:
    frame = innermost_frame(OF_TORCH + OF_PROGRAM + OF_TORCH)
    assert frame == Frame("/home/me/model.py", 7, "forward")


def test_a_line_of_pytorch_is_none_of_the_program() -> None:
    assert innermost_frame(OF_TORCH) is None
    assert innermost_frame(OF_TORCH, or_of_torch=True) == Frame(MODULE, 140, "forward")
    assert innermost_frame("", or_of_torch=True) is None
