"""Loops that numba compiles for the fast step.

Max-pooling, sums over few values and gradients, and Adadelta's update.

Each runs in one thread and adds in the order that LLVM chose, so a sum is the same in each run.
Indices are unsigned, because numba checks for negative ones. Shapes: B samples, C channels of the
inputs, O of the outputs; the images of the inputs are H x W pixels, the weights k x l.
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

    for function in (pool_rows, update):  # others call them
        numba.extending.register_jitable(function)
    functions = pool, add_products, sum_of_columns, gradients_of_columns, update, update_elements
    # So that LLVM uses vectors: the error model of Python checks each division, and a sum in the
    # order of its loop is serial.
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc"}}
    try:
        jits = [numba.njit(cache=True, **options)(function) for function in functions]
    except RuntimeError:  # there is no directory for its cache
        jits = [numba.njit(**options)(function) for function in functions]
    return SimpleNamespace(
        **{function.__name__: jit for function, jit in zip(functions, jits, strict=True)}
    )


def pool(
    images: Any,
    random: Any,
    output: Any,
    first: Any,
    size: Any,
    grid: Any,
    strides: Any,
    dropped: Any,
    limits: Any,
) -> Any:
    """Compute max-pooling, ReLU and dropout from the bits of samples, [B, h, w, O].

    Dropout is without its factor.

    The bits of the result replace the zeros ``output``, [B, I] with I = O windows, where a window
    and a channel have these ``strides``. A value is dropped if its random byte is smaller than
    ``dropped``. ``first`` is the number of the first sample, ``size`` the height and width of a
    window, ``grid`` the numbers of rows and columns of windows, and ``limits`` the bits of -inf and
    of NaN.

    Returns:
        of the values that are not zero: sample, channel, row and column in the argument, and
        position in the result, [5, N].
    """
    n_channels = np.uintp(images.shape[3])
    height = np.uintp(size[0])
    width = np.uintp(size[1])
    maxima = np.empty((grid[1], images.shape[3]), images.dtype)
    kept = np.empty(images.shape[3], np.uint8)
    channels = np.empty(images.shape[3] + 1, np.uint32)
    places = np.empty((5, random.size), np.int64)
    n = np.uintp(0)
    step = np.uintp(1)
    for sample in range(np.uintp(len(images))):
        number = np.uintp(first) + sample
        for y in range(np.uintp(grid[0])):
            pool_rows(images[sample, y * height : (y + step) * height], width, limits, maxima)
            for x in range(np.uintp(grid[1])):
                largest = maxima[x]
                window = y * np.uintp(grid[1]) + x
                n_kept = np.uintp(0)
                drawn = random[sample, window * n_channels : (window + step) * n_channels]
                for channel in range(n_channels):
                    kept[channel] = (largest[channel] > 0) & (drawn[channel] >= dropped)
                for channel in range(n_channels):
                    channels[n_kept] = channel  # in any case: a branch would often be mispredicted
                    n_kept += np.uintp(kept[channel])
                for k in range(n_kept):
                    chosen = np.uintp(channels[k])  # a channel
                    position = window * np.uintp(strides[0]) + chosen * np.uintp(strides[1])
                    place = 0
                    # So that the first of equal values is places last.
                    for i in range(size[0] - 1, -1, -1):
                        for j in range(size[1] - 1, -1, -1):
                            value = images[
                                sample, y * height + np.uintp(i), x * width + np.uintp(j), chosen
                            ]
                            place = i * size[1] + j if value == largest[chosen] else place
                    output[sample, position] = largest[chosen]
                    places[0, n] = number
                    places[1, n] = chosen
                    places[4, n] = number * np.uintp(output.shape[1]) + position
                    places[2, n] = y * height + np.uintp(place) // width
                    places[3, n] = x * width + np.uintp(place) % width
                    n += step
    return places[:, :n]


def pool_rows(rows: Any, width: Any, limits: Any, maxima: Any) -> None:
    """Compute the maxima of 0 and the values of each window, [windows, O], by rows [height, w, O].

    Numbers that are not negative have the order of their bits as integers, so the maximum of
    integers is that of the numbers.
    """
    n_channels = np.uintp(rows.shape[2])
    minus_infinity = limits[0]
    nan = limits[1]
    column_maxima = np.zeros(rows.shape[1] * rows.shape[2], rows.dtype)
    for i in range(np.uintp(len(rows))):
        row = rows[i].reshape(-1)
        for k in range(np.uintp(len(row))):
            # NaN may be negative.
            pixel = nan if (row[k] > minus_infinity) & (row[k] < 0) else row[k]
            column_maxima[k] = max(column_maxima[k], pixel)
    maxima[:] = 0
    for x in range(np.uintp(len(maxima))):
        largest = maxima[x]
        for j in range(x * width, (x + np.uintp(1)) * width):
            column = column_maxima[j * n_channels : (j + np.uintp(1)) * n_channels]
            for channel in range(n_channels):
                largest[channel] = max(largest[channel], column[channel])


def add_products(
    indices: Any, values: Any, n_channels: Any, images: Any, weights: Any, bias: Any, to_images: Any
) -> None:
    """Add to the gradient of each weight the pixels that it meets.

    Times the values of the elements. Add the values to that of the bias.

    With ``to_images``, add to the gradient of each pixel the weights that it meets, times the
    values.

    Shapes: the elements' sample, channel, row and column [4, N] and their values [N]; padded images
    [B, H, W C] and weights [O, k, l C], one of which is a gradient; bias [O].
    """
    height = np.uintp(weights.shape[1])
    length = np.uintp(weights.shape[2])
    for n in range(np.uintp(len(values))):
        sample = np.uintp(indices[0, n])
        output = np.uintp(indices[1, n])
        row = np.uintp(indices[2, n])
        first = np.uintp(indices[3, n]) * np.uintp(n_channels)
        value = values[n]
        if not to_images:
            bias[output] += value
        for i in range(height):
            pixels = images[sample, row + i, first : first + length]
            weight = weights[output, i]
            if to_images:
                for j in range(length):
                    pixels[j] += value * weight[j]
            else:
                for j in range(length):
                    weight[j] += value * pixels[j]


def sum_of_columns(inputs: Any, weights: Any) -> tuple[Any, Any]:
    """Return the numbers of the inputs that are not zero, and a product with weights.

    Inputs are [I], the numbers [N], the weights [I, M] and the product [M].
    """
    columns = np.flatnonzero(inputs)
    sums = np.zeros(weights.shape[1], weights.dtype)
    for n in range(np.uintp(len(columns))):
        weight = weights[np.uintp(columns[n])]
        value = inputs[np.uintp(columns[n])]
        for m in range(np.uintp(len(sums))):
            sums[m] += value * weight[m]
    return columns, sums


def gradients_of_columns(
    columns: Any, inputs: Any, weights: Any, slopes: Any, input_gradient: Any
) -> tuple[Any, Any]:
    """Compute the gradients of the arguments of ``sum_of_columns``.

    ``slopes`` are the gradients of its sums [M].

    The gradients of the inputs are written into ``input_gradient``, at first zeros, [I].

    Returns:
        row and column of the weights that have a gradient, [2, E], and these gradients, [E].
    """
    rows = np.flatnonzero(slopes)
    indices = np.empty((2, len(columns) * len(rows)), np.int64)
    values = np.empty(len(columns) * len(rows), inputs.dtype)
    e = np.uintp(0)
    for n in range(np.uintp(len(columns))):
        column = np.uintp(columns[n])
        weight = weights[column]
        total = slopes[0] * 0
        for m in range(np.uintp(len(slopes))):
            total += weight[m] * slopes[m]
        input_gradient[column] = total
        for r in range(np.uintp(len(rows))):
            indices[0, e] = rows[r]
            indices[1, e] = columns[n]
            values[e] = inputs[column] * slopes[np.uintp(rows[r])]
            e += np.uintp(1)
    return indices, values


def update(weights: Any, squares: Any, deltas: Any, gradient: Any, constants: Any) -> None:
    """Update the weights, S and D, [N], as ``adadelta`` does, with its constants [5]."""
    square_share, delta_eps, square_eps, delta_share, scale = constants
    for n in range(np.uintp(len(gradient))):
        slope = gradient[n]
        delta = deltas[n]
        square = squares[n] + square_share * slope * slope
        change = np.sqrt((delta + delta_eps) / (square + square_eps)) * slope
        squares[n] = square
        deltas[n] = delta + delta_share * change * change
        weights[n] += scale * change


def update_elements(
    weights: Any, squares: Any, deltas: Any, rows: Any, columns: Any, gradient: Any, constants: Any
) -> Any:
    """Update elements [E] of the weights and of both averages, [N, M], as ``update`` does.

    Returns:
        whether it did so; not if an element occurs twice, as in a sum of sparse gradients.
    """
    elements = np.empty((3, len(gradient)), weights.dtype)
    n_marked = np.uintp(0)
    for e in range(np.uintp(len(gradient))):
        n = np.uintp(rows[e])
        m = np.uintp(columns[e])
        if squares[n, m] < 0:
            break
        elements[0, e] = weights[n, m]
        elements[1, e] = squares[n, m]
        elements[2, e] = deltas[n, m]
        squares[n, m] = -1  # no average of squares is negative: a mark
        n_marked += np.uintp(1)
    if n_marked == len(gradient):
        update(elements[0], elements[1], elements[2], gradient, constants)
    for e in range(n_marked):
        n = np.uintp(rows[e])
        m = np.uintp(columns[e])
        weights[n, m] = elements[0, e]
        squares[n, m] = elements[1, e]
        deltas[n, m] = elements[2, e]
    return n_marked == len(gradient)
