"""Loop nests with their sizes.

A function of loops, the shapes of its arrays, and where these are in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mnistbench.core.errors import UsageError
from mnistbench.course.studies.convolution.sizes import ConvolutionSizes
from mnistbench.course.studies.locality import loops
from mnistbench.course.studies.locality.caches import Cache

#: Bytes of an element: float32.
ITEM = 4

#: Order -> the loops of a matrix product.
PRODUCTS: Mapping[str, Callable[..., None]] = {
    order.__name__: order
    for order in (loops.ijk, loops.jik, loops.ikj, loops.kij, loops.jki, loops.kji, loops.tiled)
}

#: Order -> the loops of a convolution.
CONVOLUTIONS: Mapping[str, Callable[..., None]] = {
    order.__name__: order for order in (loops.columns_innermost, loops.filters_innermost)
}

#: All orders.
ORDERS = (*PRODUCTS, *CONVOLUTIONS)

#: Iterations of each loop but the innermost, in a nest whose data stay in L1: the most that leave
#: the arrays small enough.
_FEW = (8, 4, 2, 1)


@dataclass(frozen=True)
class Nest:
    """Loops on arrays of float32, in row-major order."""

    order: str
    loops: Callable[..., None]  # of three arrays, and of ``lengths``
    # Name of an array -> its shape, in the order of the arguments.
    shapes: Mapping[str, tuple[int, ...]]
    lengths: tuple[int, ...]
    multiply_adds: int

    @property
    def n_bytes(self) -> int:
        return ITEM * sum(map(math.prod, self.shapes.values()))


def product(order: str, rows: int, columns: int, inner: int, tile: int = 0) -> Nest:
    """Return the product of a [rows, inner] and b [inner, columns]."""
    shapes = {"a": (rows, inner), "b": (inner, columns), "c": (rows, columns)}
    lengths = (rows, columns, inner, *((tile,) if order == "tiled" else ()))
    return Nest(order, PRODUCTS[order], shapes, lengths, rows * columns * inner)


def convolution(order: str, sizes: ConvolutionSizes) -> Nest:
    """Return the convolution."""
    if sizes.stride != 1 or sizes.padding or sizes.groups != 1:
        raise UsageError(f"{sizes}: these loops need stride 1, no padding and one group")
    image = (sizes.out_height, sizes.out_width)
    kernel = (sizes.kernel_height, sizes.kernel_width)
    return _convolution(order, (sizes.batch, sizes.filters, sizes.channels, *image, *kernel))


def _convolution(order: str, lengths: tuple[int, ...]) -> Nest:
    """Return the convolution over all seven dimensions.

    Batch, filters, channels, height and width of the output, height and width of the kernel.
    """
    batch, filters, channels, height, width, kernel_height, kernel_width = lengths
    shapes = {
        "images": (batch, channels, height + kernel_height - 1, width + kernel_width - 1),
        "weights": (filters, channels, kernel_height, kernel_width),
        "outputs": (batch, filters, height, width),
    }
    return Nest(order, CONVOLUTIONS[order], shapes, lengths, math.prod(lengths))


def in_l1(nest: Nest, n_bytes: int) -> Nest | None:
    """Return a nest with the same innermost loop and few iterations of the others.

    Its data stay in L1.

    Its time for a multiply-add is that of the instructions, without misses. The arrays take at most
    ``n_bytes``: half of L1 leaves room for lines that are loaded for other reasons. None if even
    one iteration of each other loop takes more.
    """
    smaller = _few_products if nest.order in PRODUCTS else _few_outputs
    return next((small for few in _FEW if (small := smaller(nest, few)).n_bytes <= n_bytes), None)


def _few_products(nest: Nest, few: int) -> Nest:
    lengths = [min(few, length) for length in nest.lengths[:3]]
    if nest.order == "tiled":
        lengths[1] = min(nest.lengths[1], nest.lengths[3])
    else:
        innermost = "ijk".index(nest.order[-1])
        lengths[innermost] = nest.lengths[innermost]
    return product(nest.order, *lengths, *nest.lengths[3:])


def _few_outputs(nest: Nest, few: int) -> Nest:
    lengths = [*(min(few, length) for length in nest.lengths[:5]), *nest.lengths[5:]]
    innermost = 1 if nest.order == "filters_innermost" else 4
    lengths[innermost] = nest.lengths[innermost]
    return _convolution(nest.order, tuple(lengths))


def starts(nest: Nest, line: int) -> list[int]:
    """Return the first element of each array.

    One array after the other, each at the start of a line of ``line`` bytes.
    """
    line_elements = line // ITEM
    first_elements = [0]
    for shape in nest.shapes.values():
        first_elements.append(
            -(-(first_elements[-1] + math.prod(shape)) // line_elements) * line_elements
        )
    return first_elements[:-1]


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return how many elements an index of each dimension skips, in row-major order."""
    return tuple(math.prod(shape[dimension + 1 :]) for dimension in range(len(shape)))


def tile_that_fits(l1: Cache) -> int:
    """Return the side of the largest tiles, whole lines wide, of which L1 holds three.

    A side has at least one line.
    """
    line_elements = l1.line // ITEM
    side = math.isqrt(l1.size // (3 * ITEM))
    return max(side // line_elements * line_elements, line_elements)
