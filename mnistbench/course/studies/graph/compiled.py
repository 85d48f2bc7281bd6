"""Compile a program with empty caches, and keep the generated code."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mnistbench.course.studies.graph.kernels import kernels
from mnistbench.course.studies.graph.programs import Program
from mnistbench.course.studies.graph.result import Kernel, Step
from mnistbench.course.studies.graph.steps import timed_step

#: Options of ``torch.compile``: write the files of each graph, to this directory, and name kernels in a profile.
_TRACE, _DIRECTORY, _NAMES = "trace.enabled", "trace.debug_dir", "cpp.enable_kernel_profile"

_WIDTH = 200  # characters of an error


class CompileError(Exception):
    """A program cannot be compiled; the message says why, in one line."""


@dataclass(frozen=True)
class Compiled:
    """A compiled program."""

    compute: Callable[..., Tensor]
    start_ns: int  # time of a first, tiny program: it imports the compiler, and tests which instructions it may use
    first: Step  # the step that compiled
    code: tuple[tuple[str, str], ...]  # (part, module)
    kernels: tuple[Kernel, ...]


def missing_compiler(device: str) -> str:
    """Return the C++ compiler that torch would call for code of the CPU, if it is missing."""
    name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    return name if device == "cpu" and shutil.which(name) is None else ""


def compiled(program: Program, folder: Path, device: str) -> Compiled:
    """Compile a program by its first step.

    Args:
        program: to be compiled.
        folder: empty directory for the files of Inductor.
        device: of the program.

    Raises:
        CompileError: there is no C++ compiler, this version of torch cannot show its code, or the compiler failed.
    """
    if name := missing_compiler(device):
        raise CompileError(
            f"no C++ compiler: {name!r} is not found, so the generated code and compiled times are left out; "
            "install g++, or set CXX"
        )
    options = _options(folder)
    compute = torch.compile(program.compute, dynamic=False, options=options)
    try:
        start_ns = _start(device)
        first = timed_step(program, compute)
    except Exception as error:  # a compiler fails in many ways, and what is eager can still be shown
        raise CompileError(f"the generated code and compiled times: the compiler failed ({_first_lines(error)})") from error
    modules = sorted(folder.rglob("output_code.py"), key=_number)
    if not modules:
        raise CompileError("the generated code and compiled times: torch.compile generated nothing")
    code = tuple((_part(path), path.read_text(encoding="utf-8")) for path in modules)
    found = tuple(each for part, text in code for each in kernels(text, part, _is_operation))
    return Compiled(compute, start_ns, first, code, found)


def _is_operation(name: str) -> bool:
    return bool(name) and (hasattr(torch.ops.aten, name) or hasattr(torch.ops.prims, name))


def _start(device: str) -> int:
    """Compile a tiny program and return the time that it took, in nanoseconds."""
    begin = time.perf_counter_ns()
    torch.compile(torch.neg)(torch.ones(16, device=device))
    return time.perf_counter_ns() - begin


def _options(folder: Path) -> dict[str, Any]:
    from torch._inductor import list_options  # the documentation of torch.compile names it

    present = list_options()
    for name in (_TRACE, _DIRECTORY):
        if name not in present:
            raise CompileError(f"the generated code: torch {torch.__version__} has no option {name!r} of torch.compile")
    found: dict[str, Any] = {_TRACE: True, _DIRECTORY: str(folder)}
    return found | ({_NAMES: True} if _NAMES in present else {})


def _part(module: Path) -> str:
    """Return what a module computes. Its directory has a name such as ``model__0_backward_3.1``."""
    return "backward" if "_backward_" in module.parent.name else "forward"


def _number(module: Path) -> int:
    number = module.parent.name.rpartition(".")[2]
    return int(number) if number.isdecimal() else 0


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)}"[:_WIDTH]
