"""A tensor -> what a script needs to make one like it, as JSON: its place in memory, and how its values are distributed."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

#: Most elements whose distribution is computed; of a larger tensor every nth.
SAMPLE = 1_000_000

#: Most bytes of a tensor that are saved. Of a larger one the first rows are saved, and a script repeats them.
LARGEST_SAVED = 2 * 2**20

#: Share of zeros from which on a script makes zeros, too: those of a ReLU, not a chance one.
FEWEST_ZEROS = 0.01

#: Bytes to which torch aligns the memory of a tensor on a CPU. An offset matters only by what is left after this multiple.
_ALIGNED = 64

_DIGITS = 3  # of means and standard deviations


def why_not_described(tensor: Tensor) -> str:
    """Return why a script cannot make a tensor like this one; empty if it can."""
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        return f"has an argument of the type {type(tensor).__module__}.{type(tensor).__qualname__}"
    if tensor.layout is not torch.strided:
        return f"has an argument with the layout {tensor.layout}"
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.device.type == "meta":
        return "has an argument that is quantized, conjugated, negated or on the device meta"
    return ""


def description(tensor: Tensor, *, values_matter: bool) -> tuple[dict[str, Any], Tensor | None]:
    """Return the description of a strided tensor, and its values if they have to be saved.

    Args:
        tensor: any shape, dtype and strides. Overlapping ones (of ``expand``) are made from the memory that they share.
        values_matter: save values of floating point, too. Integers and truth values are always saved, unless all are the same.

    Returns:
        The description: ``shape``, ``stride``, ``offset`` (elements, less what alignment ignores), ``elements`` (in memory,
        from the first one of the tensor to the last), ``dtype``, ``device`` and ``values``, the distribution of these elements.
        The saved values have one dimension, are on the CPU, and take at most LARGEST_SAVED bytes.
    """
    flat = _memory(tensor)
    values = distribution(flat)
    saved = None
    is_counted = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    if values["kind"] != "constant" and (values_matter or is_counted):
        saved = flat[: _whole_rows(tensor, flat.numel())].cpu().clone()
    described = {
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset() % max(1, _ALIGNED // tensor.element_size()),
        "elements": flat.numel(),
        "dtype": _name(tensor.dtype),
        "device": tensor.device.type,
        "values": values,
    }
    return described, saved


def distribution(flat: Tensor) -> dict[str, Any]:
    """Return how the values of a tensor of one dimension are distributed.

    Returns:
        ``kind`` and what it needs: ``constant`` (``value``), ``booleans`` (``share`` of true), ``integers`` (``least``,
        ``most``), ``normal`` or, if all are positive, ``lognormal`` (``mean`` and ``std`` of the values, ``least``, ``most``,
        and the share of ``zeros``, which the other numbers leave out).
    """
    sample = flat[:: max(1, flat.numel() // SAMPLE)]
    if not sample.numel():
        return {"kind": "constant", "value": 0}
    if sample.dtype == torch.bool:
        share = float(sample.double().mean())
        if share in (0.0, 1.0):
            return {"kind": "constant", "value": bool(share)}
        return {"kind": "booleans", "share": _short(share)}
    if sample.dtype.is_complex:
        sample = torch.view_as_real(sample).reshape(-1)
    if not sample.dtype.is_floating_point:
        smallest, largest = int(flat.min()), int(flat.max())
        if smallest == largest:
            return {"kind": "constant", "value": smallest}
        return {"kind": "integers", "least": smallest, "most": largest}
    finite = sample.double()
    finite = finite[finite.isfinite()]
    other = finite[finite != 0]
    zeros = 1 - other.numel() / max(1, finite.numel())
    if not other.numel():
        return {"kind": "constant", "value": 0.0}
    least, most = float(other.min()), float(other.max())
    if least == most and not zeros:
        return {"kind": "constant", "value": least}
    mean, std = float(other.mean()), float(other.std(correction=0))
    return {
        "kind": "lognormal" if least > 0 else "normal",
        "mean": _short(mean),
        "std": _short(std),
        "least": _short(least),
        "most": _short(most),
        "zeros": round(zeros, 2) if zeros >= FEWEST_ZEROS else 0.0,
    }


def _memory(tensor: Tensor) -> Tensor:
    """Return the elements in memory from the first that the tensor has to the last, in one dimension."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    elements = 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0
    return tensor.as_strided((elements,), (1,))  # begins where the tensor does


def _whole_rows(tensor: Tensor, elements: int) -> int:
    """Return how many elements are saved: all, or those of the first rows, whose number of bytes is limited."""
    most = LARGEST_SAVED // tensor.element_size()
    row = max(tensor.stride(), default=0)
    if elements <= most:
        return elements
    return most // row * row if 0 < row <= most else most


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else value


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
