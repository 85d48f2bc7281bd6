"""A convolution of stride 1 without padding, its loops in two orders.

Shapes: images [B, C, H, W], weights [F, C, KH, KW], outputs [B, F, OH, OW], as PyTorch keeps them.
"""

from __future__ import annotations

from mnistbench.course.studies.locality.elements import Elements


def columns_innermost(
    images: Elements, weights: Elements, outputs: Elements,
    batch: int, filters: int, channels: int, height: int, width: int, kernel_height: int, kernel_width: int,
) -> None:  # fmt: skip
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
    images: Elements, weights: Elements, outputs: Elements,
    batch: int, filters: int, channels: int, height: int, width: int, kernel_height: int, kernel_width: int,
) -> None:  # fmt: skip
    """Add to a pixel of all outputs: neighbors in the innermost loop are OH x OW and C x KH x KW elements apart in memory.

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
