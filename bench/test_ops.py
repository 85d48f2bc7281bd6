"""How long does one operation take?

Those of ops.toml, by shape, dtype, layout, number of threads and direction.

Left out of ``pytest bench``: name this file, and select cases with ``-k``::

    pytest bench/test_ops.py -k "[sinh-512x512-float32"
    mnistbench gate --base-with torch==2.9.1 --base HEAD -- bench/test_ops.py -k "[scatter and 1t"
"""

import tomllib
from itertools import product
from pathlib import Path

import pytest
import torch

from mnistbench.core.machine import cpu_info, usable_cpus
from mnistbench.suite.measuring.case import thread_count

TABLE = tomllib.loads(Path(__file__).with_name("ops.toml").read_text(encoding="utf-8"))


def cases():
    """Yield the parameters of each case: those of ``test_op``."""
    defaults = TABLE["defaults"]
    for group in [defaults | group for key, group in TABLE.items() if key != "defaults"]:
        contents = {
            name: [content] if isinstance(content, str) else content
            for name, content in group["tensors"].items()
        }
        threads = dict.fromkeys(count or usable_cpus() for count in group["threads"])
        directions = ["forward", "backward"] if group["backward"] else ["forward"]
        for (name, call), number in product(
            group["calls"].items(), range(max(map(len, contents.values())))
        ):
            tensors = {
                key: choices[min(number, len(choices) - 1)] for key, choices in contents.items()
            }
            shape = next(iter(tensors.values())).split()[0]
            for dtype, layout, count, direction in product(
                group["dtypes"], group["layouts"], threads, directions
            ):
                case = f"{name}-{shape}-{dtype}-{layout}-{count}t-{direction}"
                yield pytest.param(
                    call, tensors, dtype, layout, count, direction, group.get("needs"), id=case
                )


def expression(content, dtype, layout):
    """Return the Python expression of a tensor; ``ops.toml`` describes its content."""
    shape, *words = content.split()
    sizes = shape.replace("x", ", ")
    if "of" in words:
        return f"torch.randint({words[-1]}, [{sizes}])"
    dtype = next((word for word in words if word != "constant"), dtype)
    if dtype == "quint8":
        source = f"torch.quantize_per_tensor(torch.rand({sizes}), 0.01, 0, torch.quint8)"
    elif dtype == "bool":
        source = f"(torch.rand({sizes}) < 0.5)"
    elif getattr(torch, dtype).is_floating_point:
        source = f"torch.rand({sizes})" + (f".to(torch.{dtype})" if dtype != "float32" else "")
    else:
        source = f"torch.randint(1, 100, [{sizes}], dtype=torch.{dtype})"
    if layout == "transposed" and "," in sizes:
        return f"{source}.transpose(-1, -2).contiguous().transpose(-1, -2)"
    if layout == "channels_last" and sizes.count(",") == 3:
        return f"{source}.contiguous(memory_format=torch.channels_last)"
    return source


def tensor(content, dtype, layout):
    """Make a tensor."""
    return eval(expression(content, dtype, layout), {"torch": torch})  # noqa: S307  # our own table


def prepared(call, contents, dtype, layout, direction):
    """Return the function to measure and its arguments; that of the gradient has none."""
    tensors = {name: tensor(content, dtype, layout) for name, content in contents.items()}
    # Our own table.
    modules = {"torch": torch, "F": torch.nn.functional}
    function = eval(f"lambda {', '.join(tensors)}: {call}", modules)  # noqa: S307
    if direction == "forward":
        return function, list(tensors.values())
    inputs = [
        tensors[name]
        for name, content in contents.items()
        if tensors[name].is_floating_point() and "constant" not in content
    ]
    results = function(
        *(
            argument.requires_grad_() if any(argument is part for part in inputs) else argument
            for argument in tensors.values()
        )
    )
    outputs = [
        result
        for result in (results if isinstance(results, tuple) else [results])
        if result.requires_grad
    ]
    weights = [torch.ones_like(output) for output in outputs]
    return lambda: torch.autograd.grad(
        outputs, inputs, weights, retain_graph=True, allow_unused=True
    ), []


@pytest.mark.study
@pytest.mark.op_benchmark
@pytest.mark.benchmark(min_rounds=5, max_time=0.1)
@pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning")  # deprecated, and still in use
@pytest.mark.parametrize(
    ("call", "tensors", "dtype", "layout", "threads", "direction", "needs"), list(cases())
)
def test_op(benchmark, call, tensors, dtype, layout, threads, direction, needs):
    if needs and needs not in cpu_info().get("flags", ()):
        pytest.skip(f"needs a processor with {needs}")
    torch.manual_seed(0)
    with thread_count(threads):
        try:
            function, args = prepared(call, tensors, dtype, layout, direction)
            function(*args)
        except RuntimeError as error:
            if "not implemented for" not in str(error):
                raise
            pytest.skip(f"torch {torch.__version__}: {error}")
        benchmark(function, *args)
