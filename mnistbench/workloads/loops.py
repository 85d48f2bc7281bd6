"""Loops that numba compiles for the fast step: sums over the few values and gradients that are not zero, and Adadelta's update.

Each runs in one thread and adds in the order that LLVM chose, so a sum is the same in each run. Indices are unsigned, because
numba checks for negative ones. Shapes: B samples, C channels of the inputs, O of the outputs; the images of the inputs are
H x W pixels, the weights k x l.
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
    import numba.extending

    numba.extending.register_jitable(update)  # ``update_elements`` calls it
    functions = (
        nonzero, add_to_weights, add_to_inputs, pool, sum_of_columns, gradients_of_columns, update, update_elements,
    )  # fmt: skip
    # So that LLVM uses vectors: the error model of Python checks each division, and a sum in the order of its loop is serial.
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc"}}
    try:
        jits = [numba.njit(cache=True, **options)(function) for function in functions]
    except RuntimeError:  # there is no directory for its cache
        jits = [numba.njit(**options)(function) for function in functions]
    return SimpleNamespace(**{function.__name__: jit for function, jit in zip(functions, jits, strict=True)})


def nonzero(gradient: Any, places: Any, width: Any) -> Any:
    """Return the elements of a max-pooling's gradient that are not zero: values [N] and indices in its argument [4, N].

    Args:
        gradient: of the result, [B, O, windows].
        places: of each window's maximum in its plane of the argument, [B, windows, O].
        width: of a plane of the argument.
    """
    n, size = np.uintp(0), gradient.size + 1
    values, indices = np.empty(size, gradient.dtype), np.empty((4, size), np.int64)
    for sample in range(np.uintp(gradient.shape[0])):
        for window in range(np.uintp(gradient.shape[2])):
            for channel in range(np.uintp(gradient.shape[1])):  # in the order in which the next function reads memory
                value = gradient[sample, channel, window]
                values[n] = value  # in any case: a branch would often be mispredicted
                indices[0, n], indices[1, n], indices[3, n] = sample, channel, window
                n += np.uintp(value != 0)
    for m in range(n):
        place = np.uint32(places[np.uintp(indices[0, m]), np.uintp(indices[3, m]), np.uintp(indices[1, m])])
        row = np.uint32(place // np.uint32(width))
        indices[2, m], indices[3, m] = row, place - row * np.uint32(width)
    return values[:n], indices[:, :n].copy()


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


def pool(image: Any, height: Any, width: Any, random: Any, dropped: Any, scale: Any) -> Any:
    """Return the values of max-pooling, ReLU and dropout that are not zero.

    Args:
        image: [h, w, O].
        height: of a window.
        width: of a window.
        random: bytes, one for each value, [O windows].
        dropped: a value is dropped if its byte is smaller than this.
        scale: of the other values.

    Returns:
        the values' numbers in [O, windows] flattened, [N]; the values, [N]; sample (0), channel, row and column in the image,
        [4, N].
    """
    n_channels, height, width = np.uintp(image.shape[2]), np.uintp(height), np.uintp(width)
    n_rows, n_columns = np.uintp(image.shape[0]) // height, np.uintp(image.shape[1]) // width
    size = n_channels * n_rows * n_columns + 1
    kept, values, places = np.empty(size, np.uint32), np.empty(size, image.dtype), np.empty(size, np.uint32)
    n, number = np.uintp(0), np.uintp(0)
    for y in range(n_rows):
        for x in range(n_columns):
            largest, of_largest = image[y * height, x * width].copy(), np.zeros(n_channels, np.uint32)
            for i in range(height):
                for j in range(width):
                    pixels = image[y * height + i, x * width + j]
                    for channel in range(n_channels):
                        is_larger = pixels[channel] > largest[channel] or np.isnan(pixels[channel])  # as max_pool2d
                        largest[channel] = pixels[channel] if is_larger else largest[channel]
                        of_largest[channel] = np.uint32(i * width + j) if is_larger else of_largest[channel]
            for channel in range(n_channels):
                kept[n], values[n], places[n] = number, largest[channel], of_largest[channel]  # in any case, as in ``nonzero``
                n += np.uintp((not largest[channel] <= 0) & (random[number] >= dropped))
                number += np.uintp(1)
    numbers, indices = np.empty(n, np.int64), np.zeros((4, n), np.int64)
    for m in range(n):
        window, i = np.uintp(kept[m]) // n_channels, np.uintp(places[m]) // width
        y, channel = window // n_columns, kept[m] - window * n_channels
        numbers[m] = channel * n_rows * n_columns + window
        values[m] *= scale
        indices[1, m], indices[2, m] = channel, y * height + i
        indices[3, m] = (window - y * n_columns) * width + places[m] - i * width
    return numbers, values[:n], indices


def sum_of_columns(columns: Any, values: Any, weights: Any) -> Any:
    """Return the sum of columns [N] of the weights, times values [N]. The weights are transposed, [I, M]."""
    sums = np.zeros(weights.shape[1], weights.dtype)
    for n in range(np.uintp(len(columns))):
        weight = weights[np.uintp(columns[n])]
        for m in range(np.uintp(len(sums))):
            sums[m] += values[n] * weight[m]
    return sums


def gradients_of_columns(columns: Any, values: Any, weights: Any, slopes: Any, scale: Any) -> Any:
    """Return the gradients of the arguments of ``sum_of_columns`` by those of its sums, ``slopes`` [M].

    Returns:
        gradients of the values, times ``scale``, [N]; row and column of the weights that have a gradient, [2, E]; these
        gradients, [E].
    """
    rows, of_values = np.flatnonzero(slopes), np.empty_like(values)
    elements, of_elements = np.empty((2, len(columns) * len(rows)), np.int64), np.empty(len(columns) * len(rows), values.dtype)
    e = np.uintp(0)
    for n in range(np.uintp(len(columns))):
        weight, total = weights[np.uintp(columns[n])], scale * 0
        for m in range(np.uintp(len(slopes))):
            total += weight[m] * slopes[m]
        of_values[n] = total * scale
        for r in range(np.uintp(len(rows))):
            elements[0, e], elements[1, e], of_elements[e] = rows[r], columns[n], values[n] * slopes[np.uintp(rows[r])]
            e += np.uintp(1)
    return of_values, elements, of_elements


def update(weights: Any, squares: Any, deltas: Any, gradient: Any, constants: Any) -> None:
    """Update the weights and both averages, [N], as ``fast.Adadelta`` does.

    Args:
        weights: to be updated.
        squares: S.
        deltas: D.
        gradient: of the weights.
        constants: of S, and of D as ``fast`` computes them, [5].
    """
    of_squares, eps_of_deltas, eps_of_squares, of_deltas, scale = constants
    for n in range(np.uintp(len(gradient))):
        slope, delta = gradient[n], deltas[n]
        square = squares[n] + of_squares * slope * slope
        change = np.sqrt((delta + eps_of_deltas) / (square + eps_of_squares)) * slope
        squares[n] = square
        deltas[n] = delta + of_deltas * change * change
        weights[n] += scale * change


def update_elements(weights: Any, squares: Any, deltas: Any, rows: Any, columns: Any, gradient: Any, constants: Any) -> Any:
    """Update elements [E] of the weights and of both averages, [N, M], as ``update`` does.

    Returns:
        whether it did so; not if an element occurs twice, as in a sum of sparse gradients.
    """
    found, n_found = np.empty((3, len(gradient)), weights.dtype), np.uintp(0)
    for e in range(np.uintp(len(gradient))):
        n, m = np.uintp(rows[e]), np.uintp(columns[e])
        if squares[n, m] < 0:
            break
        found[0, e], found[1, e], found[2, e] = weights[n, m], squares[n, m], deltas[n, m]
        squares[n, m] = -1  # no average of squares is negative: a mark
        n_found += np.uintp(1)
    if n_found == len(gradient):
        update(found[0], found[1], found[2], gradient, constants)
    for e in range(n_found):
        n, m = np.uintp(rows[e]), np.uintp(columns[e])
        weights[n, m], squares[n, m], deltas[n, m] = found[0, e], found[1, e], found[2, e]
    return n_found == len(gradient)
