"""Read the code that Inductor generates: its kernels, the operations that each fuses, and the order of calls.

The code is a Python module. Kernels are defined with ``async_compile``, and a function calls them, and functions of libraries,
one after the other. The name of a generated kernel lists its operations in alphabetical order:
``cpp_fused_add_mul_0`` computes ``add`` and ``mul``.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable

from mnistbench.course.studies.graph.result import Kernel

_GENERATED = r"(?:cpp|triton_[a-z]+)_fused_\w*"
_LIBRARY = r"(?:extern_kernels|aten|torch\.ops\.\w+)"

#: A call of a kernel: ``cpp_fused_add_mul_0(...)``, ``triton_poi_fused_add_mul_0.run(...)``, ``buf1 = extern_kernels.mm(...)``,
#: ``buf2 = torch.ops.aten.convolution_backward.default(...)``.
_CALL = re.compile(
    rf"^\s+(?:\w+ = )?(?:(?P<generated>{_GENERATED})(?:\.run)?|{_LIBRARY}\.(?P<library>\w+)(?:\.\w+)?)\(",
    re.MULTILINE,
)
_NAME = re.compile(r"(?:cpp|triton_[a-z]+)_fused_(?:(?P<operations>\w*)_)?\d+")
_CALLS_BEGIN = "async_compile.wait("
_CALLS_END = re.compile(r"^def (?:get_args|benchmark_compiled_module)\(", re.MULTILINE)


def kernels(code: str, part: str, is_operation: Callable[[str], bool]) -> list[Kernel]:
    """Return the kernels that a module calls, in the order of their first calls.

    Args:
        code: a module that Inductor generated.
        part: what it computes, forward or backward.
        is_operation: whether a name is that of an operation, with which the name of a kernel is read.
    """
    calls = code.partition(_CALLS_BEGIN)[2] or code
    end = _CALLS_END.search(calls)
    found = [(match["generated"], match["library"]) for match in _CALL.finditer(calls[: end.start() if end else len(calls)])]
    launches = Counter(found)
    return [
        Kernel(part, name, launches[name, None], operations(name, is_operation), generated=True, code=_source(code, name))
        if name
        else Kernel(part, library, launches[None, library], (library,), generated=False)
        for name, library in launches
    ]


def operations(name: str, is_operation: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the operations that the name of a generated kernel lists; empty if it lists none.

    Names of operations contain underscores, too. The text is divided into the fewest that there are; if that is not possible,
    it is returned as one.
    """
    match = _NAME.fullmatch(name)
    listed = match["operations"] if match else name
    if not listed:
        return ()

    @functools.cache
    def divided(text: str) -> tuple[str, ...] | None:
        if is_operation(text):
            return (text,)
        ends = (position for position, sign in enumerate(text) if sign == "_" and is_operation(text[:position]))
        rests = [(text[:end], *rest) for end in ends if (rest := divided(text[end + 1 :]))]
        return min(rests, key=len, default=None)

    return divided(listed) or (listed,)


def _source(code: str, name: str) -> str:
    """Return the source of a generated kernel; empty if the module does not have it."""
    match = re.search(rf"^{name} = async_compile\.\w+\(.*?'''\n?(.*?)'''", code, re.MULTILINE | re.DOTALL)
    return match[1] if match else ""
