"""Loops that numba compiles: sums over the few gradients of a convolution's output that are not zero, and Adadelta's update.

Each runs in one thread and adds in one order, so a sum is the same in each run. Indices are unsigned, because numba checks for
negative ones. Shapes: B samples, C channels of the inputs, O of the outputs; the images of the inputs are H x W pixels, the
weights k x l.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


def compiled() -> Any:
    """Return the functions of this module as numba compiles them.

    Raises:
        ImportError: there is no numba for this NumPy.
    """
    import numba

    functions = nonzero, coordinates, add_to_weights, add_to_inputs, update
    options = {"nogil": True, "error_model": "numpy"}  # that of Python checks each division, so that LLVM does not vectorize it
    try:
        jits = [numba.njit(cache=True, **options)(function) for function in functions]
    except RuntimeError:  # there is no directory for its cache
        jits = [numba.njit(**options)(function) for function in functions]
    return SimpleNamespace(**{function.__name__: jit for function, jit in zip(functions, jits, strict=True)})


def nonzero(gradient: Any, kept: Any, values: Any) -> Any:
    """Write numbers and values of the elements of ``gradient`` that are not zero, and return how many there are.

    Args:
        gradient: of the result of a max-pooling, [B, O, windows].
        kept: is written, [B windows O + 1]. An element's number counts the channels of a window first, as they are in memory
            for the next function.
        values: is written, of the same size.
    """
    n, number = np.uintp(0), np.uintp(0)
    for sample in range(np.uintp(gradient.shape[0])):
        for window in range(np.uintp(gradient.shape[2])):
            for channel in range(np.uintp(gradient.shape[1])):
                value = gradient[sample, channel, window]
                kept[n] = number  # in any case: a branch would often be mispredicted
                values[n] = value
                n += np.uintp(value != 0)
                number += np.uintp(1)
    return n


def coordinates(kept: Any, places: Any, n_channels: Any, n_windows: Any, width: Any, indices: Any) -> None:
    """Write sample, channel, row and column of elements [N] of a max-pooling's argument.

    Args:
        kept: their numbers.
        places: position in its plane of each window's maximum, [B windows O].
        n_channels: O.
        n_windows: of a plane.
        width: of a plane of the argument.
        indices: is written, [4, N].
    """
    for n in range(np.uintp(len(kept))):
        number = np.uint32(kept[n])
        window = np.uint32(number // np.uint32(n_channels))
        sample = np.uint32(window // np.uint32(n_windows))
        place = np.uint32(places[np.uintp(number)])
        row = np.uint32(place // np.uint32(width))
        indices[0, n] = sample
        indices[1, n] = number - window * np.uint32(n_channels)
        indices[2, n] = row
        indices[3, n] = place - row * np.uint32(width)


def add_to_weights(indices: Any, values: Any, images: Any, n_channels: Any, sums: Any, bias: Any) -> None:
    """Add to the gradient of each weight the pixels that it meets, times the values of the elements; to the bias, the values.

    Args:
        indices: sample, channel, row and column of each element, [4, N].
        values: of the elements, [N].
        images: of the convolution, padded, [B, H, W C].
        n_channels: C.
        sums: to which is added, [O, k, l C].
        bias: to which is added, [O].
    """
    height, length = np.uintp(sums.shape[1]), np.uintp(sums.shape[2])
    for n in range(np.uintp(len(values))):
        sample, output, row = np.uintp(indices[0, n]), np.uintp(indices[1, n]), np.uintp(indices[2, n])
        first, value = np.uintp(indices[3, n]) * np.uintp(n_channels), values[n]
        bias[output] += value
        for i in range(height):
            pixels = images[sample, row + i, first : first + length]
            total = sums[output, i]
            for j in range(length):
                total[j] += value * pixels[j]


def add_to_inputs(indices: Any, values: Any, weights: Any, n_channels: Any, sums: Any) -> None:
    """Add to the gradient of each pixel the weights that it meets, times the values of the elements.

    As ``add_to_weights``, with ``weights`` [O, k, l C] and ``sums`` [B, H, W C].
    """
    height, length = np.uintp(weights.shape[1]), np.uintp(weights.shape[2])
    for n in range(np.uintp(len(values))):
        sample, output, row = np.uintp(indices[0, n]), np.uintp(indices[1, n]), np.uintp(indices[2, n])
        first, value = np.uintp(indices[3, n]) * np.uintp(n_channels), values[n]
        for i in range(height):
            weight = weights[output, i]
            total = sums[sample, row + i, first : first + length]
            for j in range(length):
                total[j] += value * weight[j]


def update(weights: Any, squares: Any, deltas: Any, rows: Any, gradient: Any, constants: Any) -> None:
    """Update rows of the weights and of both averages, [N, M], as ``fast.Adadelta`` does.

    Args:
        weights: to be updated.
        squares: S.
        deltas: D.
        rows: that have a gradient, [R].
        gradient: of these rows, [R, M].
        constants: of S, and of D as ``fast`` computes them, [5].
    """
    of_squares, eps_of_deltas, eps_of_squares, of_deltas, scale = constants
    for n in range(np.uintp(len(rows))):
        row = np.uintp(rows[n])
        for m in range(np.uintp(weights.shape[1])):
            slope, delta = gradient[n, m], deltas[row, m]
            square = squares[row, m] + of_squares * slope * slope
            change = np.sqrt((delta + eps_of_deltas) / (square + eps_of_squares)) * slope
            squares[row, m] = square
            deltas[row, m] = delta + of_deltas * change * change
            weights[row, m] += scale * change
