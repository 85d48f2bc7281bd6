"""The provider of torch: what the gate and the pytest plug-in ask of it.

Importing this module does not import torch. Each method imports what it needs, because most
processes need little.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from mnistbench.core.machine import gc_paused
from mnistbench.core.operation import NO_MODULE
from mnistbench.measuring.calls import Call
from mnistbench.measuring.provider import PROVIDERS, Around, CallProfile, Provider, Turn
from mnistbench.measuring.timing import Sample

if TYPE_CHECKING:
    from mnistbench.core.operation import Callers, OpKey
    from mnistbench.core.record import Environment


#: Packages and modules of torch that compile functions: they read sources, to show them, and start
#: compilers of C++.
_COMPILERS = (
    "_dynamo/",
    "_functorch/",
    "_guards.py",
    "_inductor/",
    "_logging/",
    "_subclasses/",
    "fx/",
    "utils/_traceback.py",
)

#: The package that observes what is compiled.
_OBSERVERS = os.path.join(os.path.dirname(__file__), "measuring", "")  # noqa: PTH118, PTH120


class _Torch(Provider):
    framework = "torch"
    operator_library = "oneDNN"
    own_code = "PyTorch's own code"

    # ---- The process -----------------------------------------------------------------------------

    def load(self) -> None:
        with gc_paused():  # saves a fifth of the time
            import torch

            import mnistbench.suite.workload_case  # noqa: F401
        gc.freeze()  # each full collection of the session would traverse the modules, for 0.1 s
        torch.set_num_threads(1)

    def version(self) -> str:
        return str(getattr(sys.modules.get("torch"), "__version__", ""))

    def why_refused(self) -> str:
        oldest = PROVIDERS[self.framework].oldest  # that of other commands is in pyproject.toml
        version = self.version()
        if not version or sys.modules["torch"].__version__ >= oldest:
            return ""
        return (
            f"torch {version} of {sys.executable} is older than {oldest}, the oldest "
            "that the gate measures"
        )

    def seed(self, seed: int) -> None:
        import torch

        torch.manual_seed(seed)

    def set_threads(self, number: int) -> None:
        import torch

        torch.set_num_threads(number)

    def threads(self) -> int:
        import torch

        return torch.get_num_threads()

    def device(self) -> str:
        import torch

        return "cuda" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]

    def synchronize(self) -> None:
        import torch

        torch.accelerator.synchronize()

    def environment(self, threads: int) -> Environment:
        from mnistbench.suite.measuring.environment import read
        from mnistbench.suite.measuring.torch_import import import_torch

        import_torch()
        return read(threads)

    def cpu_paths(self) -> Mapping[str, str]:
        from mnistbench.suite.measuring.environment import cpu_paths

        return cpu_paths()

    def allocated_bytes(self) -> int:
        from mnistbench.suite.workload_case import live_storages

        return sum(live_storages().values())

    def compilations(self) -> int:
        # Without an import of torch: a process may not need it.
        utils = sys.modules.get("torch._dynamo.utils")
        return int(utils.counters["frames"]["total"]) if utils else 0

    @contextlib.contextmanager
    def compile_clock(self) -> Iterator[Callable[[], int]]:
        from mnistbench.suite.measuring.compile_log import logged

        with logged() as log:
            yield lambda: log.time(0).compile_ns

    def empty_compiler_cache(self) -> AbstractContextManager[object]:
        from mnistbench.suite.measuring.observing import empty_cache

        return empty_cache()

    def run_eagerly(self) -> AbstractContextManager[object]:
        from mnistbench.suite.measuring.observing import run_eagerly

        return run_eagerly()

    def is_made_by_compiler(self, name: str) -> bool:
        return "torch_dynamo_resume_in_" in name  # the rest of a function after a graph break

    def is_of_compiler(self, file: str) -> bool:
        folder = os.path.dirname(sys.modules["torch"].__file__ or "")  # noqa: PTH120
        compilers = tuple(os.path.join(folder, name) for name in _COMPILERS)  # noqa: PTH118
        return file.startswith((*compilers, _OBSERVERS))

    # ---- A call ----------------------------------------------------------------------------------

    def timed(self, work: Callable[[], object], device: str) -> Sample:
        import torch

        from mnistbench.suite.measuring.device_timing import timed

        return timed(work, torch.device(device))

    def operations_of(self, run: Callable[[], object]) -> tuple[bool, bool]:
        from mnistbench.suite.measuring.profiling import operations_of

        return operations_of(run)

    def implementations_of(self, run: Callable[[], object]) -> Mapping[str, int]:
        from mnistbench.suite.measuring.environment import onednn_report, onednn_runs

        return onednn_runs(onednn_report(run))

    def range_of_call(self) -> AbstractContextManager[object]:
        from mnistbench.suite.measuring.profiling import forward_range

        return forward_range()

    def marks_of_modules(self) -> AbstractContextManager[object]:
        from mnistbench.suite.measuring.profiling import marked_calls

        return marked_calls()

    def profiled(
        self,
        run: Callable[[], object],
        device: str,
        one_turn: Turn,
        turns: Iterable[None],
        *,
        is_compiled: bool,
        observes: bool = True,
        around: Around = lambda run: run(),
        loops: int = 1,
    ) -> dict[str, Any]:
        from mnistbench.suite.workload_case import columns, profiled

        profile = profiled(
            run,
            self._marks,
            device,
            one_turn,
            turns,
            compiled=lambda: is_compiled,
            observes=observes,
            outside=NO_MODULE,
            around=around,
        )
        return columns(profile, loops)

    def _marks(self, *, is_compiled: bool) -> AbstractContextManager[object]:
        return contextlib.nullcontext() if is_compiled else self.marks_of_modules()

    def callers_of_operations(
        self, run: Callable[[], object]
    ) -> Mapping[tuple[OpKey, Callers], int]:
        from mnistbench.suite.measuring.operation_callers import callers_of_operations

        return callers_of_operations(run)

    def profile_of_call(
        self, call: Call, *, iterations: int, duration_ns: float, shapes: bool
    ) -> CallProfile:
        from mnistbench.suite.measuring.profiling import profile_call

        return profile_call(
            call,
            iterations=iterations,
            duration_ns=duration_ns,
            device=self.device(),
            shapes=shapes,
        )

    def visible_operators(self) -> AbstractContextManager[object]:
        from mnistbench.suite.measuring.visible_operators import visible_operators

        return visible_operators()

    def is_operator(self, code: CodeType | str) -> bool:
        from mnistbench.suite.measuring.visible_operators import is_operator

        return is_operator(code)

    def tensor_types(self) -> tuple[type, ...]:
        tensor = vars(sys.modules["torch"]).get("Tensor")  # None while torch is being imported
        return (tensor,) if tensor is not None else ()

    def content_of(
        self, tensor: Any, parts_of: Callable[[int, int], Iterable[slice]]
    ) -> tuple[bytes, float | None] | str:
        import torch

        # https://pytorch.org/docs/stable/notes/extending.html: without this, a subclass of Tensor
        # runs its own code
        with warnings.catch_warnings(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
            warnings.simplefilter("ignore")
            plain = (
                tensor
                if type(tensor) is torch.Tensor
                else torch.Tensor.as_subclass(tensor, torch.Tensor)
            ).detach()
            if plain.layout is not torch.strided or plain.is_quantized or plain.is_meta:
                return f"torch.Tensor, {plain.layout}"
            item_bytes = plain.element_size()
            parts = parts_of(plain.numel(), item_bytes)  # before it is copied
            flat = plain.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
            hasher = hashlib.sha256()
            total = 0.0
            address = flat.view(torch.uint8).data_ptr() if flat.numel() else 0
            for part in parts:
                numbers = flat[part]
                start = address + part.start * item_bytes
                hasher.update(ctypes.string_at(start, numbers.numel() * item_bytes))
                # There is no abs of truth values.
                sizes = numbers.abs() if numbers.is_complex() else numbers.double().abs()
                total += float(sizes.double().nan_to_num(0.0, 0.0, 0.0).sum())
        content = f"{plain.dtype} {tuple(plain.shape)} {hasher.hexdigest()}".encode()
        return content, total / flat.numel() if flat.numel() else None

    # ---- Cases of op_benchmark, for the gate -----------------------------------------------------

    def case(self, build: Callable[[], Any], params: Any, threads: int) -> Any:
        from mnistbench.suite.workload_case import WorkloadCase

        return WorkloadCase(build, params.device, threads)

    def capture(self, job: Any, say: Callable[..., None]) -> None:
        from mnistbench.suite.reproducers.side_calls import capture

        capture(job, say)

    def write_scripts(self, verdict: Any, rounds: Any, folder: Path) -> Sequence[Any]:
        from mnistbench.suite.reproducers.write import reproducers_of

        return reproducers_of(verdict, rounds, folder)


PROVIDER = _Torch()
