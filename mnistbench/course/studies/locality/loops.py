"""Loops in several orders, to be read: a matrix product and a convolution."""

from __future__ import annotations

from typing import Any

#: An array, or its stand-in that counts misses.
Elements = Any


# ---- The matrix product c += a b, in the six orders of its three loops and tiled -----------------

# ``i`` is a row of c, ``j`` a column of c, and ``k`` the index of the sum. A function has the name
# of its order, from the outermost loop to the innermost. An element that is the same in the whole
# innermost loop is read before it and stays in a register.
#
# Source of the six orders and of their misses: Bryant and O'Hallaron, "Computer Systems: A
# Programmer's Perspective", section 6.6.2.
#
# Shapes: a [rows, inner], b [inner, columns], c [rows, columns].


def ijk(a: Elements, b: Elements, c: Elements, rows: int, columns: int, inner: int) -> None:
    """Add the products of a row of a and a column of b.

    A is read along its rows, b down its columns.
    """
    for i in range(rows):
        for j in range(columns):
            total = c[i, j]
            for k in range(inner):
                total += a[i, k] * b[k, j]
            c[i, j] = total


def jik(a: Elements, b: Elements, c: Elements, rows: int, columns: int, inner: int) -> None:
    """Do the same, one column of c after the other."""
    for j in range(columns):
        for i in range(rows):
            total = c[i, j]
            for k in range(inner):
                total += a[i, k] * b[k, j]
            c[i, j] = total


def ikj(a: Elements, b: Elements, c: Elements, rows: int, columns: int, inner: int) -> None:
    """Add a multiple of a row of b to a row of c: both are read along their rows."""
    for i in range(rows):
        for k in range(inner):
            value = a[i, k]
            for j in range(columns):
                c[i, j] += value * b[k, j]


def kij(a: Elements, b: Elements, c: Elements, rows: int, columns: int, inner: int) -> None:
    """Do the same, one row of b after the other."""
    for k in range(inner):
        for i in range(rows):
            value = a[i, k]
            for j in range(columns):
                c[i, j] += value * b[k, j]


def jki(a: Elements, b: Elements, c: Elements, rows: int, columns: int, inner: int) -> None:
    """Add a multiple of a column of a to a column of c: both are read down their columns."""
    for j in range(columns):
        for k in range(inner):
            value = b[k, j]
            for i in range(rows):
                c[i, j] += a[i, k] * value


def kji(a: Elements, b: Elements, c: Elements, rows: int, columns: int, inner: int) -> None:
    """Do the same, one column of a after the other."""
    for k in range(inner):
        for j in range(columns):
            value = b[k, j]
            for i in range(rows):
                c[i, j] += a[i, k] * value


def tiled(
    a: Elements, b: Elements, c: Elements, rows: int, columns: int, inner: int, tile: int
) -> None:
    """Multiply tiles of a, b and c, each in the order ikj.

    A tile is used again while it is in the cache.
    """
    for first_i in range(0, rows, tile):
        for first_k in range(0, inner, tile):
            for first_j in range(0, columns, tile):
                for i in range(first_i, min(first_i + tile, rows)):
                    for k in range(first_k, min(first_k + tile, inner)):
                        value = a[i, k]
                        for j in range(first_j, min(first_j + tile, columns)):
                            c[i, j] += value * b[k, j]


# ---- A convolution of stride 1 without padding, its loops in two orders --------------------------

# Shapes: images [B, C, H, W], weights [F, C, KH, KW], outputs [B, F, OH, OW], as PyTorch keeps
# them.


def columns_innermost(
    images: Elements,
    weights: Elements,
    outputs: Elements,
    batch: int,
    filters: int,
    channels: int,
    height: int,
    width: int,
    kernel_height: int,
    kernel_width: int,
) -> None:
    """Add to a row of the output a multiple of a row of the image: both are read along their rows.

    ``height`` and ``width`` are those of the output, OH and OW.
    """
    for b in range(batch):
        for f in range(filters):
            for c in range(channels):
                for h in range(height):
                    for kh in range(kernel_height):
                        for kw in range(kernel_width):
                            weight = weights[f, c, kh, kw]
                            for w in range(width):
                                outputs[b, f, h, w] += images[b, c, h + kh, w + kw] * weight


def filters_innermost(
    images: Elements,
    weights: Elements,
    outputs: Elements,
    batch: int,
    filters: int,
    channels: int,
    height: int,
    width: int,
    kernel_height: int,
    kernel_width: int,
) -> None:
    """Add to a pixel of all outputs.

    Neighbors in the innermost loop are OH x OW and C x KH x KW elements apart in memory.

    ``height`` and ``width`` are those of the output, OH and OW.
    """
    for b in range(batch):
        for h in range(height):
            for w in range(width):
                for c in range(channels):
                    for kh in range(kernel_height):
                        for kw in range(kernel_width):
                            pixel = images[b, c, h + kh, w + kw]
                            for f in range(filters):
                                outputs[b, f, h, w] += pixel * weights[f, c, kh, kw]
