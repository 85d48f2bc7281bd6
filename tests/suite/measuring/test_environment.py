"""What machine this is, and which devices a request comes down to."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import mnistbench
from mnistbench.core.errors import UsageError
from mnistbench.suite.measuring import environment
from mnistbench.suite.measuring.environment import (
    accelerators,
    cpu_paths,
    device_of_rank,
    onednn_report,
    onednn_runs,
    read,
    resolve_devices,
)
from mnistbench.suite.workloads.torchrun import Rank

pytestmark = pytest.mark.versions


def pretend(monkeypatch: pytest.MonkeyPatch, present: list[str]) -> None:
    monkeypatch.setattr(environment, "accelerators", lambda: present)


def pretend_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, ["cuda"])
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(name="", total_memory=0)
    )


# ---- Devices -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "present", "resolved"),
    [
        (["auto"], [], ["cpu"]),
        (["auto"], ["cuda"], ["cpu", "cuda"]),
        (["auto"], ["cuda", "cuda:1"], ["cpu", "cuda"]),
        (["auto"], ["mps"], ["cpu", "mps"]),
        (["cpu"], ["cuda"], ["cpu"]),
        (["cpu:0"], [], ["cpu"]),
        (["cuda:1"], ["cuda", "cuda:1"], ["cuda:1"]),
        (["cuda:1", "cuda:0", "cuda:1", "cuda"], ["cuda", "cuda:1"], ["cuda:1", "cuda"]),
        (["auto", "cuda:1"], ["cuda", "cuda:1"], ["cpu", "cuda", "cuda:1"]),
        ([], ["cuda"], []),
    ],
)
def test_requested_devices_are_resolved_to_those_present(
    monkeypatch: pytest.MonkeyPatch, requested: list[str], present: list[str], resolved: list[str]
) -> None:
    pretend(monkeypatch, present)
    assert resolve_devices(requested) == resolved


def refusal(*requested: str) -> str:
    with pytest.raises(UsageError) as refused:
        resolve_devices(requested)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("name", ["gpu", "CUDA", "", "0", "cuda:x", "cuda:-1"])
def test_a_name_that_torch_does_not_know_is_refused(name: str) -> None:
    assert (
        refusal("cpu", name) == f"device {name!r} is not known: use auto, cpu, cuda, cuda:1 or mps"
    )


@pytest.mark.parametrize(
    ("name", "present", "sees"),
    [
        ("cuda", [], "cpu"),
        ("cuda:2", ["cuda", "cuda:1"], "cpu, cuda, cuda:1"),
        ("mps", ["cuda"], "cpu, cuda"),
    ],
)
def test_a_missing_device_is_refused_with_a_list_of_those_present(
    monkeypatch: pytest.MonkeyPatch, name: str, present: list[str], sees: str
) -> None:
    pretend(monkeypatch, present)
    assert refusal("cpu", name) == (
        f"device {name!r} is not available: torch {torch.__version__} sees {sees} here; "
        "choose one of these, or check the driver and that this torch was built for the device"
    )


@pytest.mark.parametrize(
    ("available", "kind", "count", "names"),
    [
        (False, "cuda", 0, []),  # torch was built for it, and there is none
        (False, None, 0, []),  # torch was built for the CPU alone
        (True, "cuda", 1, ["cuda"]),
        (True, "cuda", 3, ["cuda", "cuda:1", "cuda:2"]),
        (True, "mps", 1, ["mps"]),
    ],
)
def test_accelerators_are_named_as_devices(
    monkeypatch: pytest.MonkeyPatch, available: bool, kind: str | None, count: int, names: list[str]
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: available)
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda: kind and torch.device(kind)
    )
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
    assert accelerators() == names


# ---- What is read --------------------------------------------------------------------------------


SECOND = Rank(rank=1, world_size=2, local_rank=1, local_world_size=2)


@pytest.mark.parametrize(
    ("present", "requested", "device"),
    [
        (["cuda", "cuda:1"], "auto", "cuda:1"),
        (["cuda", "cuda:1"], "cuda", "cuda:1"),
        (["cuda", "cuda:1"], "cpu", "cpu"),
        ([], "auto", "cpu"),
        (["mps"], "auto", "cpu"),
    ],
)
def test_each_rank_has_its_own_device(
    monkeypatch: pytest.MonkeyPatch, present: list[str], requested: str, device: str
) -> None:
    pretend(monkeypatch, present)
    assert device_of_rank([requested], SECOND) == device


@pytest.mark.parametrize(
    ("requested", "problem"),
    [
        (["auto"], "--device: rank 1 is number 2 of its node, which has 1 CUDA device; "),
        (["cuda"], "--device: rank 1 is number 2 of its node, which has 1 CUDA device; "),
        (
            ["cuda:1"],
            (
                "--device: 'cuda:1' cannot be used by 2 ranks, each on its own device; give cpu "
                "or cuda"
            ),
        ),
        (["cpu", "cuda"], "--device: 'cpu,cuda' cannot be used by 2 ranks"),
    ],
)
def test_a_rank_without_a_device_of_its_own_is_refused(
    monkeypatch: pytest.MonkeyPatch, requested: list[str], problem: str
) -> None:
    pretend(monkeypatch, ["cuda"])
    with pytest.raises(UsageError, match=f"^{problem}"):
        device_of_rank(requested, SECOND)


def test_software_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "123")
    environment = read(threads=3)
    assert environment.mnistbench == mnistbench.__version__
    assert environment.python == platform.python_version()
    assert environment.torch == torch.__version__
    assert environment.torchvision[0].isdigit()
    assert environment.platform.split()[0] == platform.system()
    assert environment.platform.partition(",")[0].split()[-1] == platform.machine()
    assert environment.cpu_model
    assert 1 <= environment.cpu_count <= (os.cpu_count() or 1)
    assert environment.threads == 3
    assert environment.allocator["MALLOC_ARENA_MAX"] == "123"
    assert [device["device"] for device in environment.devices] == accelerators()


PARALLEL_INFO = (
    "ATen/Parallel:\n"
    "\tat::get_num_threads() : 2\n"
    "OpenMP 201511 (a.k.a. OpenMP 4.5)\n"
    "\tomp_get_max_threads() : 2\n"
    "Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for "
    "Intel(R) 64 architecture applications\n"
    "\tmkl_get_max_threads() : 2\n"
    "Intel(R) MKL-DNN v3.13.3 (Git Hash b38f97eb6f2173513112f15a0481750b8a66e901)\n"
)


@pytest.mark.parametrize(
    ("built", "parallel", "named"),
    [
        (
            "Build settings: BLAS_INFO=mkl, BUILD_TYPE=Release",
            PARALLEL_INFO,
            (
                "BLAS mkl, Intel(R) oneAPI Math Kernel Library Version 2024.2-Product, Intel(R) "
                "MKL-DNN v3.13.3"
            ),
        ),
        ("Build settings: BLAS_INFO=open, BUILD_TYPE=Release", "ATen/Parallel:\n", "BLAS open"),
        ("", "", "unknown"),
    ],
)
def test_libraries_behind_matrix_products(
    monkeypatch: pytest.MonkeyPatch, built: str, parallel: str, named: str
) -> None:
    monkeypatch.setattr(torch.__config__, "show", lambda: built)
    monkeypatch.setattr(torch.__config__, "parallel_info", lambda: parallel)
    assert read(threads=1).blas == named


def test_a_cuda_device_has_versions_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def properties(device: str) -> Any:
        asked.append(device)
        return SimpleNamespace(name="NVIDIA H200", total_memory=150_754_820_096)

    pretend(monkeypatch, ["cuda", "cuda:1"])
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 92600)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setattr(environment, "_driver", lambda: "580.65.06")
    first, second = read(threads=1).devices
    assert asked == ["cuda", "cuda:1"]
    assert (first["device"], second["device"]) == ("cuda", "cuda:1")
    assert dict(second) == {
        "device": "cuda:1",
        "name": "NVIDIA H200",
        "memory": "150754820096",
        "driver": "580.65.06",
        "cuda": "13.2",
        "cudnn": "92600",
        "matmul_fp32": torch.backends.cuda.matmul.fp32_precision,
        "conv_fp32": torch.backends.cudnn.conv.fp32_precision,
        "cudnn_benchmark": "True",
    }
    assert all(type(value) is str for value in second.values())


@pytest.mark.parametrize(
    ("cuda", "hip", "named"),
    [("13.2", None, "13.2"), (None, "7.1.0", "7.1.0"), (None, None, "unknown")],
)
def test_version_of_cuda_or_hip_of_torch(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, hip: str | None, named: str
) -> None:
    pretend_gpu(monkeypatch)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(environment, "_driver", lambda: "unknown")
    [gpu] = read(threads=1).devices
    assert gpu["cuda"] == named


def test_another_accelerator_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, ["mps"])
    assert read(threads=1).devices == ({"device": "mps", "name": "mps"},)


# ---- The driver's own tool -----------------------------------------------------------------------


def install_tool(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Make ``nvidia-smi`` a shell script, and the only program there is."""
    tool = folder / "nvidia-smi"
    tool.write_text(script)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.skipif(os.name != "posix", reason="the tool is a shell script here")
@pytest.mark.parametrize(
    ("script", "driver"),
    [
        ("#!/bin/sh\necho 580.65.06\n", "580.65.06"),
        ("#!/bin/sh\necho 580.65.06\necho 580.65.06\n", "580.65.06"),  # a line for each device
        (
            (
                '#!/bin/sh\n[ "$*" = "--query-gpu=driver_version --format=csv,noheader" ] && echo '
                "1.2\n"
            ),
            "1.2",
        ),
        ("#!/bin/sh\n", "unknown"),
        ("#!/bin/sh\necho NVIDIA-SMI has failed\nexit 9\n", "unknown"),
        ("#!/not/there\n", "unknown"),
    ],
    ids=["one device", "two devices", "asks for the driver", "silent", "failing", "broken"],
)
def test_driver_is_the_output_of_its_tool(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, driver: str
) -> None:
    pretend_gpu(monkeypatch)
    install_tool(monkeypatch, tmp_path, script)
    [gpu] = read(threads=1).devices
    assert gpu["driver"] == driver


def test_driver_is_unknown_without_its_tool_or_where_it_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(*arguments: Any, timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired("nvidia-smi", timeout)

    pretend_gpu(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    [without_tool] = read(threads=1).devices
    install_tool(monkeypatch, tmp_path, "#!/bin/sh\n")
    monkeypatch.setattr(subprocess, "run", run)
    [with_tool_that_hangs] = read(threads=1).devices
    assert without_tool["driver"] == with_tool_that_hangs["driver"] == "unknown"


# ---- Operations on a CPU -------------------------------------------------------------------------

#: What PyTorch 2.6 and 2.15 print of two convolutions, in float32 and in bfloat16, and a product in
#: bfloat16, on one machine.
REPORTS = {
    version: (Path(__file__).parents[2] / "data" / f"onednn_{version}.txt").read_text(
        encoding="utf-8"
    )
    for version in ("3.5.3", "3.13.3")
}
OLDER = (
    "onednn_verbose,exec,cpu,convolution,jit:avx2,forward_training,src_f32::blocked:acdb:f0,,"
    "alg:direct,mb1,0.02"
)
OTHERS = (
    "a line\nonednn_verbose,v1,primitive,create:cache_miss,cpu,matmul,ref:any,undef,"
    "src:f32::blocked:ab::f0,,,2x2:2x2\n"
)


@pytest.mark.parametrize("version", REPORTS)
def test_the_runs_of_each_implementation_are_counted(version: str) -> None:
    assert list(onednn_runs(REPORTS[version]).items()) == [
        ("reorder", 4),
        ("convolution jit:avx512_core", 1),
        ("convolution jit_bf16:avx512_core_bf16", 1),
        ("matmul brg_matmul:avx512_core_bf16", 1),
    ]


def test_lines_of_an_older_version_count_and_those_of_other_events_do_not() -> None:
    assert onednn_runs(f"{OTHERS}{OLDER}\n{OLDER}\n{OTHERS}") == {"convolution jit:avx2": 2}


def convolution() -> torch.Tensor:
    return torch.nn.functional.conv2d(torch.ones(2, 8, 16, 16), torch.ones(8, 8, 3, 3))


with_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="PyTorch is built without oneDNN"
)


@with_onednn
def test_what_onednn_reports_is_not_printed_and_all_else_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    sys.stdout.write("before, ")
    runs = onednn_runs(onednn_report(convolution))
    os.write(1, b"after")
    assert [name for name in runs if name.startswith("convolution ")]
    assert onednn_runs(onednn_report(lambda: torch.ones(3) + 1)) == {}
    assert capfd.readouterr().out == "before, after"


@with_onednn
def test_the_standard_output_is_restored_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        onednn_report(lambda: 1 // 0)
    convolution()
    os.write(1, b"after")
    assert capfd.readouterr().out == "after"


def test_without_onednn_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert onednn_report(lambda: 1 // 0) == ""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not tell")
def test_instruction_set_and_libraries_of_the_cpu_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """oneDNN prints its instruction set once in a process, perhaps before this test."""
    for report in REPORTS.values():
        monkeypatch.setattr(environment, "onednn_report", lambda _, report=report: report)
        paths = cpu_paths()
        assert paths["instruction set"] == torch.backends.cpu.get_cpu_capability()
        assert paths["oneDNN"] == "Intel AVX-512 with Intel DL Boost and bfloat16 support"
        assert re.fullmatch(r"lib\w*omp\S+( and lib\w*omp\S+)*", paths["OpenMP"])
    monkeypatch.setattr(environment, "onednn_report", lambda _: "")
    assert "oneDNN" not in cpu_paths()


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (
            (
                "PyTorch built with:\n  - GCC 9.3\n  - C++ Version: 201703\n  - Intel(R) MKL-DNN "
                "v3.5.3 (Git Hash 66f0)\n"
            ),
            ("GCC 9.3", "3.5.3"),
        ),
        ("PyTorch built with:\n  - clang 15.0.0\n  - OpenMP 202011\n", ("clang 15.0.0", None)),
        ("PyTorch built with:\n  - C++ Version: 201703\n", (None, None)),
    ],
)
def test_the_compiler_of_torch_and_the_release_of_onednn_are_part_of_it(
    monkeypatch, built, expected
) -> None:
    monkeypatch.setattr(torch.__config__, "show", lambda: built)
    paths = cpu_paths()
    assert (paths.get("compiler"), paths.get("oneDNN release")) == expected
