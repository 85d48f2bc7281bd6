"""Description of machine and software as an ``Environment``.

It includes the devices that torch can use, and what oneDNN runs on a CPU.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from mnistbench.core.errors import UsageError
from mnistbench.core.machine import cpu_info, machine_and_python
from mnistbench.core.operation import REORDER
from mnistbench.core.record import Environment
from mnistbench.suite.workloads.torchrun import Rank

AUTO = "auto"

#: Flags of processors with instructions that multiply bfloat16, as Linux names them: x86's AVX-512
#: and AMX, and Arm's.
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def read(threads: int) -> Environment:
    """Describe this machine and its software.

    The number of intra-op threads is that of the cases.
    """
    return Environment(
        **machine_and_python(),
        torch=torch.__version__,
        torchvision=_version("torchvision"),  # its import takes seconds
        threads=threads,
        blas=_blas(),
        devices=tuple(_describe(device) for device in accelerators()),
    )


def _version(package: str) -> str:
    """Return the version of an installed package; empty if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def accelerators() -> list[str]:
    """Return the names of the accelerators that torch can use here.

    ``cuda``, ``cuda:1``, ``mps``.
    """
    if (
        not torch.accelerator.is_available()
    ):  # current_accelerator() names the kind that torch was built for, even if none is present
        return []
    kind = torch.accelerator.current_accelerator()
    assert kind is not None
    return [
        kind.type if index == 0 else f"{kind.type}:{index}"
        for index in range(torch.accelerator.device_count())
    ]


def resolve_devices(requested: Sequence[str]) -> list[str]:
    """Return the devices that the names mean; ``auto`` means the CPU and the first accelerator.

    Raises:
        UsageError: a name is unknown, or the device is not present.
    """
    present = accelerators()
    devices: list[str] = []
    for name in requested:
        for device in ["cpu", *present[:1]] if name == AUTO else [_canonical(name)]:
            if device != "cpu" and device not in present:
                here = ", ".join(["cpu", *present])
                raise UsageError(
                    f"device {name!r} is not available: torch {torch.__version__} sees {here} "
                    "here; choose one of these, or check the driver and that this torch was "
                    "built for the device"
                )
            if device not in devices:
                devices.append(device)
    return devices


def device_of_rank(requested: Sequence[str], rank: Rank) -> str:
    """Return the device of one of several ranks.

    ``auto`` means a CUDA device for each rank, or the CPU if there is none.
    """
    if tuple(requested) not in ((AUTO,), ("cpu",), ("cuda",)):
        raise UsageError(
            f"--device: {','.join(requested)!r} cannot be used by {rank.world_size} ranks, each "
            "on its own device; give cpu or cuda"
        )
    [name] = requested
    present = [device for device in accelerators() if device.startswith("cuda")]
    if name == "cpu" or (name == AUTO and not present):
        return "cpu"
    if rank.local_rank >= len(present):
        raise UsageError(
            f"--device: rank {rank.rank} is number {rank.local_rank + 1} of its node, which has "
            f"{len(present)} CUDA device{'' if len(present) == 1 else 's'}; start one rank for "
            "each with --nproc-per-node, or give --device cpu"
        )
    return present[rank.local_rank]


def multiplies_bfloat16(device: str) -> bool:
    """Return whether the hardware of a device multiplies bfloat16.

    Elsewhere bfloat16 is emulated and slower than float32.
    """
    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device == "cpu" and not _BFLOAT16_FLAGS.isdisjoint(cpu_info().get("flags", ()))


def _canonical(name: str) -> str:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(
            f"device {name!r} is not known: use auto, cpu, cuda, cuda:1 or mps"
        ) from None
    return (
        device.type if device.type == "cpu" or not device.index else f"{device.type}:{device.index}"
    )


def _blas() -> str:
    """Return the libraries of matrix products and convolutions.

    They are read from torch's description of its build.
    """
    line = r"^Intel\(R\) (?:oneAPI Math Kernel Library|MKL-DNN) (?:Version )?\S+"
    libraries = re.findall(line, torch.__config__.parallel_info(), re.MULTILINE)
    built_with = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return ", ".join([*([f"BLAS {built_with[1]}"] if built_with else []), *libraries]) or "unknown"


def _describe(device: str) -> Mapping[str, str]:
    if not device.startswith("cuda"):
        return {"device": device, "name": device}
    properties = torch.cuda.get_device_properties(device)
    return {
        "device": device,
        "name": properties.name,
        "memory": str(properties.total_memory),  # bytes
        "driver": _driver(),
        "cuda": torch.version.cuda or torch.version.hip or "unknown",
        "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        # "tf32", or "none" and "ieee" for full precision.
        "matmul_fp32": torch.backends.cuda.matmul.fp32_precision,
        "conv_fp32": torch.backends.cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
        "cudnn_benchmark": str(torch.backends.cudnn.benchmark),
    }


def _driver() -> str:
    """Return the driver's version from its command-line tool, because torch does not have it."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "unknown"
    query = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=20, check=True
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return answer[0] if answer else "unknown"


# ---- Operations on a CPU -------------------------------------------------------------------------

#: A primitive that oneDNN has run:
#: ``onednn_verbose,v1,primitive,exec,cpu,convolution,brgconv:avx512_core,...``; older versions lack
#: the second and the third field.
_RUN = re.compile(r"^onednn_verbose(?:,v\d+)?(?:,primitive)?,exec,cpu,(\w+),([^,]+),", re.MULTILINE)

#: The instruction set in the header of oneDNN's report.
_ISA = re.compile(r"^onednn_verbose(?:,v\d+)?,info,cpu,isa:(.+)", re.MULTILINE)

#: The file of an OpenMP library in ``/proc/self/maps``: of GNU, Intel or LLVM, perhaps with a hash
#: in its name.
_OPENMP = re.compile(r"/(lib(?:gomp|iomp5|omp)[-.][^/\n]*)$", re.MULTILINE)

#: The compiler of torch, and oneDNN's release, in ``torch.__config__.show()``.
_COMPILER = re.compile(r"^ *- ((?:GCC|clang|MSVC) .+)", re.MULTILINE)
_ONEDNN = re.compile(r"MKL-DNN v([\d.]+)")


def cpu_paths() -> dict[str, str]:
    """Return what decides which code computes operations on this CPU.

    Name in reports -> value, without what is not known.

    Call it before :func:`onednn_report`: oneDNN prints its instruction set once in a process.
    """
    maps = Path("/proc/self/maps")
    built = torch.__config__.show()
    paths = {
        "instruction set": torch.backends.cpu.get_cpu_capability(),
        "oneDNN": "".join(_ISA.findall(onednn_report(torch.ones(1).to_mkldnn))),
        "OpenMP": " and ".join(sorted(set(_OPENMP.findall(maps.read_text()))))
        if maps.exists()
        else "",
        "compiler": "".join(_COMPILER.findall(built)),
        "oneDNN release": "".join(_ONEDNN.findall(built)),
    }
    return {name: value for name, value in paths.items() if value}


def onednn_report(run: Callable[[], object]) -> str:
    """Run, and return what oneDNN reports of it.

    If torch has no oneDNN, nothing runs and the text is empty.

    oneDNN prints to the standard output of the process, past Python. What others print there
    meanwhile is in the text, too.
    """
    mkldnn = torch.backends.mkldnn
    if not mkldnn.is_available():  # type: ignore[no-untyped-call]
        return ""
    flush = ctypes.CDLL(None).fflush
    own = os.dup(1)
    with tempfile.TemporaryFile() as printed:
        sys.stdout.flush()
        flush(None)
        os.dup2(printed.fileno(), 1)
        try:
            with mkldnn.verbose(mkldnn.VERBOSE_ON):  # type: ignore[no-untyped-call]
                run()
        finally:
            flush(None)
            os.dup2(own, 1)
            os.close(own)
        printed.seek(0)
        return printed.read().decode(errors="replace")


def onednn_runs(report: str) -> dict[str, int]:
    """Return how often each implementation ran, in the order of the first runs.

    ``convolution brgconv:avx512_core``.
    """
    return dict(
        Counter(
            kind if kind == REORDER else f"{kind} {name}" for kind, name in _RUN.findall(report)
        )
    )
