"""Read the process-wide state that a side's code can change: settings, hooks, modes, patched functions, threads."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import backends, overrides
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils import _device, _python_dispatch, deterministic

from mnistbench.gate.fingerprint import ENVIRON, Fingerprint


class ProcessState:
    """Reads the state of this process, relative to its state before any side was imported.

    Create one instance per process: it patches ``threading.Thread`` to record which code starts threads.

    Args:
        trees: of the sides; code below them belongs to the sides.
    """

    def __init__(self, trees: Sequence[Path]) -> None:
        self._trees = tuple(f"{tree}{os.sep}" for tree in trees)
        self._functions = [(name, owner, dict(vars(owner))) for name, owner in _owners()]
        self._hooks = {id(hook) for _, hook in _global_hooks()}
        self._callbacks = {id(callback) for callback in gc.callbacks}
        self._tracing = {name: get() for name, get in _TRACING.items()}
        self._threads = set(threading.enumerate())
        self._starters = _watch_threads()

    def fingerprint(self) -> Fingerprint:
        """Return the current state of the process."""
        packages: dict[str, str] = {}
        additions = dict(self._own_additions())
        for key, origin, value in (*self._replaced(), *self._started()):
            (additions if self._is_own(origin) else packages)[key] = value
        return Fingerprint(dict(self._settings()), packages, additions)

    def _settings(self) -> Iterator[tuple[str, str]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reading some flags warns that they are deprecated
            for expression, get in _readings():
                yield expression, _text(get)
        for name, value in os.environ.items():
            if name.startswith("_"):  # torch._inductor stores addresses there
                continue
            # A digest, because reports are public and a side may load secrets.
            digest = hashlib.sha256(self._without_trees(value).encode(errors="surrogateescape")).hexdigest()[:8]
            yield f"{ENVIRON}{name!r}]", f"a value of SHA-256 {digest}"

    def _own_additions(self) -> Iterator[tuple[str, str]]:
        hooks: dict[str, list[str]] = {}
        for kind, hook in _global_hooks():
            if id(hook) not in self._hooks:
                hooks.setdefault(kind, []).append(self._described(hook))
        for kind, described in hooks.items():
            yield kind, ", ".join(described)
        for kind, modes in _active_modes():
            if modes:
                yield kind, ", ".join(modes)
        for name, get in _TRACING.items():
            current = get()
            if current is not None and current is not self._tracing[name]:
                yield f"a function that {name} returns", self._described(current)
        callbacks = [callback for callback in gc.callbacks if id(callback) not in self._callbacks]
        if callbacks:
            yield "a function in gc.callbacks", ", ".join(map(self._described, callbacks))

    def _replaced(self) -> Iterator[tuple[str, str, str]]:
        """Yield functions and classes of torch that were replaced: a name, the file of the new code, a description."""
        for owner_name, owner, known in self._functions:
            for name, value in list(vars(owner).items()):
                if (name in known and known[name] is value) or not (callable(value) or isinstance(value, _DESCRIPTORS)):
                    continue
                origin = _file_of(value)
                if origin.endswith(_DYNAMOS_OWN) or not (name in known or self._is_own(origin)):
                    continue  # torch adds names late
                yield f"a patch of {owner_name}.{name}", origin, self._described(value)

    def _started(self) -> Iterator[tuple[str, str, str]]:
        """Yield threads that were started since: a name, the file of the code that started it, a description."""
        for thread in threading.enumerate():
            if thread not in self._threads:
                starter = self._starters.get(thread, "")
                name = re.sub(r"[-_ ]*\d+", "", thread.name)
                yield f"a thread {name!r}", starter, f"started by {self._shown(starter) or 'unknown code'}"

    def _is_own(self, file: str) -> bool:
        return file.startswith(self._trees)

    def _described(self, value: Any) -> str:
        name = getattr(value, "__qualname__", type(value).__qualname__)
        file = self._shown(_file_of(value))
        return f"{name} of {file}" if file else str(name)

    def _shown(self, file: str) -> str:
        """Return a file relative to its tree or to the folder of installed packages."""
        return re.sub(r"^.*[/\\](site|dist)-packages[/\\]", "", self._without_trees(file))

    def _without_trees(self, text: str) -> str:
        for tree in self._trees:
            text = text.replace(tree, "").replace(tree.removesuffix(os.sep), ".")
        return text


def _text(get: Callable[[], Any]) -> str:
    try:
        return str(get())
    except Exception as error:  # noqa: BLE001  # flags that contradict each other raise an exception when read
        return type(error).__name__


_DESCRIPTORS = (staticmethod, classmethod, property)

#: torch replaces torch.manual_seed when torch._dynamo is imported, which happens with the first optimizer.
_DYNAMOS_OWN = os.path.join("torch", "_compile.py")  # noqa: PTH118  # compared with code's plain strings

_TRACING: dict[str, Callable[[], Any]] = {
    "sys.gettrace()": sys.gettrace,
    "sys.getprofile()": sys.getprofile,
    "threading.gettrace()": threading.gettrace,
    "threading.getprofile()": threading.getprofile,
}


def _file_of(value: Any) -> str:
    """Return the file of a function, method, property or class; an empty text for compiled code."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, type):
        return str(getattr(sys.modules.get(value.__module__), "__file__", None) or "")
    value = getattr(value, "__func__", value)
    value = getattr(value, "func", value)  # functools.partial
    code = getattr(value, "__code__", None) or getattr(type(value).__call__, "__code__", None)
    return code.co_filename if isinstance(code, types.CodeType) else ""


def _owners() -> Iterator[tuple[str, Any]]:
    """Yield modules and classes whose attributes are often patched, with their names."""
    for module in (torch, torch.nn, torch.nn.functional, torch.optim, torch.autograd):
        yield module.__name__, module
    yield "torch.Tensor", torch.Tensor
    for name, value in vars(torch.nn).items():
        if isinstance(value, type):
            yield f"torch.nn.{name}", value


def _watch_threads() -> weakref.WeakKeyDictionary[threading.Thread, str]:
    """Return a mapping that from now on receives for each thread the file that started it, outside the standard library."""
    starters: weakref.WeakKeyDictionary[threading.Thread, str] = weakref.WeakKeyDictionary()
    thread_class: Any = threading.Thread
    original = thread_class.start

    def start(self: threading.Thread) -> None:
        frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001  # the only way to find the caller
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in sys.stdlib_module_names:
            frame = frame.f_back
        starters[self] = frame.f_code.co_filename if frame else ""
        original(self)

    thread_class.start = start
    return starters


# ---- What torch and Python can be set to -----------------------------------------------------------------------------


def _readings() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the expression and the getter of each setting that this version of torch has."""
    for name in _GETTERS:
        if get := getattr(torch, name, None):
            yield f"torch.{name}()", get
    for device in ("cpu", "cuda"):
        yield f"torch.is_autocast_enabled({device!r})", partial(torch.is_autocast_enabled, device)
        yield f"torch.get_autocast_dtype({device!r})", partial(torch.get_autocast_dtype, device)
    yield "torch.utils.deterministic.fill_uninitialized_memory", partial(getattr, deterministic, "fill_uninitialized_memory")
    yield "the nnpack flag of torch.backends", getattr(torch._C, "_get_nnpack_enabled", lambda: None)  # noqa: SLF001
    yield from _backend_flags()
    yield "flushing of denormal numbers", lambda: sys.float_info.min / 2 == 0.0  # torch.set_flush_denormal has no getter
    yield "gc.get_threshold()", gc.get_threshold
    yield "gc.isenabled()", gc.isenabled
    yield "sys.getrecursionlimit()", sys.getrecursionlimit
    yield "sys.getswitchinterval()", sys.getswitchinterval
    if hasattr(os, "sched_getaffinity"):
        yield "os.sched_getaffinity(0)", lambda: sorted(os.sched_getaffinity(0))


_GETTERS = (
    "get_num_threads", "get_num_interop_threads", "get_float32_matmul_precision", "are_deterministic_algorithms_enabled",
    "is_deterministic_algorithms_warn_only_enabled", "is_anomaly_enabled", "is_anomaly_check_nan_enabled",
    "is_grad_enabled", "is_inference_mode_enabled", "is_autocast_cache_enabled", "get_default_dtype", "get_default_device",
    "is_warn_always_enabled",
)  # fmt: skip

#: Flags of objects below torch.backends that do not list their attributes, as ``torch.backends.cuda.matmul``.
_INNER_FLAGS = (
    "fp32_precision", "allow_tf32", "allow_fp16_accumulation", "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
)  # fmt: skip


def _backend_flags() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield all public flags of torch.backends: plain values, properties, and functions that return a flag."""
    inner = vars(vars(backends).get("m", backends))  # torch replaces the module by an object with properties
    for module_name, module in {"": backends, **inner}.items():
        path = f"torch.backends.{module_name}".rstrip(".")
        if not isinstance(module, types.ModuleType) or not module.__name__.startswith("torch.backends"):
            continue
        declared = {name: value for part in type(module).__mro__ for name, value in vars(part).items()}
        behind = vars(module.m) if hasattr(type(module), "__getattr__") and hasattr(module, "m") else {}
        for name in sorted({*vars(module), *declared, *behind}):
            if name.startswith(("_", "set_")) or name.isupper() or name in {"m", "cufft_plan_cache"}:
                continue  # setters and constants; reading the plan cache starts the driver
            yield from _flags_of(f"{path}.{name}", module, name)


def _flags_of(path: str, module: Any, name: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    try:
        value = getattr(module, name)
    except AttributeError:
        return
    except Exception:  # noqa: BLE001  # two flags contradict each other, which is a state, too
        yield path, partial(getattr, module, name)
        return
    if value is None or isinstance(value, bool | int | float | str):
        yield path, partial(getattr, module, name)
    elif isinstance(value, types.FunctionType) and (name.endswith(("_enabled", "_allowed")) or name.startswith("preferred_")):
        yield f"{path}()", value
    elif not callable(value) and type(value).__module__.startswith("torch.backends"):
        for flag in _INNER_FLAGS:
            if _has(value, flag):
                yield f"{path}.{flag}", partial(getattr, value, flag)


def _has(value: Any, name: str) -> bool:
    try:
        getattr(value, name)
    except AttributeError:
        return False
    except Exception:  # noqa: BLE001  # it exists and cannot be read now
        return True
    return True


def _global_hooks() -> Iterator[tuple[str, Any]]:
    """Yield global hooks of modules and optimizers, of which torch has no public list."""
    for owner in (modules, optimizers):
        for name, hooks in vars(owner).items():
            if name.startswith("_global_") and name.endswith("_hooks") and isinstance(hooks, dict):
                kind = name.removeprefix("_global_").removesuffix("_hooks").replace("_", " ")
                for hook in hooks.values():
                    yield f"a global {kind} hook", hook


def _active_modes() -> Iterator[tuple[str, list[str]]]:
    """Yield active modes, of which torch has no public list."""
    functions: list[Any] = getattr(overrides, "_get_current_function_mode_stack", list)()
    dispatch: list[Any] = getattr(_python_dispatch, "_get_current_dispatch_mode_stack", list)()
    # A default device is a mode, too; it is read as a setting.
    yield "a torch function mode", [type(mode).__qualname__ for mode in functions if type(mode) is not _device.DeviceContext]
    yield "a torch dispatch mode", [type(mode).__qualname__ for mode in dispatch]
