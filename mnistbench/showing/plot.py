"""Plots made of characters: marks over two axes, and bars.

They are drawn in terminals, and in Markdown as preformatted text.

::

    plot = Plot((0, 4), (0, 8.5))
    for ranks in (1, 2, 4):
        plot.put(ranks, speedup[ranks], "o")
    Block("Speedup over ranks", drawing=plot.drawn("0", "8.5", "0", "4 ranks"))

An axis that is to be logarithmic gets logarithms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: Width of a plot in characters, without its axes.
WIDTH = 57
#: Height of a plot in characters, without its axes.
HEIGHT = 15

#: Length of the longest bar, in characters.
BAR = 24
#: Width of the number before a bar, in characters.
NUMBER = 6


class Plot:
    """A grid of characters.

    Args:
        x: the values at the left and right ends.
        y: the values at the lower and upper ends.
        width: number of columns.
        height: number of lines.
    """

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        width: int = WIDTH,
        height: int = HEIGHT,
    ) -> None:
        self._x = x
        self._y = y
        self._grid = [[" "] * width for _ in range(height)]

    def put(self, x: float, y: float, mark: str, *, beside: str = "") -> None:
        """Put a mark, one character.

        To the right of where one of the marks ``beside`` is, which stay visible.
        """
        (left, right) = self._x
        (low, high) = self._y
        line = self._grid[-1 - round((y - low) / (high - low) * (len(self._grid) - 1))]
        column = round((x - left) / (right - left) * (len(line) - 1))
        while line[column] in beside and column < len(line) - 1:
            column += 1
        line[column] = mark

    def drawn(self, low: str, high: str, left: str, right: str, legend: Iterable[str] = ()) -> str:
        """Return the plot with the labels of the ends of both axes, and lines of text below."""
        labels = [high, *[""] * (len(self._grid) - 2), low]
        margin = max(map(len, labels))
        width = len(self._grid[0])
        lines = [
            f"{label:>{margin}} |{''.join(line).rstrip()}"
            for label, line in zip(labels, self._grid, strict=True)
        ]
        axis = [
            f"{'':{margin}} +{'-' * width}",
            f"{'':{margin}}  {left}{right:>{width - len(left)}}",
        ]
        return "\n".join([*lines, *axis, *legend])


def bars(
    title: str, rows: Sequence[tuple[str, Sequence[tuple[float, str]]]], longest: float
) -> list[str]:
    """Return a title, and for each row a number and a bar.

    All texts have one width, so that :func:`beside` can join them.

    A row has the text of the number, and the parts of the bar: length and mark. ``longest`` takes
    BAR characters.
    """
    drawn = [f"{'':{NUMBER}}  {title}"]
    for number, parts in rows:
        ends = [
            0,
            *(
                round(sum(length for length, _ in parts[: end + 1]) / longest * BAR)
                for end in range(len(parts))
            ),
        ]
        bar = "".join(
            mark * (end - start)
            for (_, mark), start, end in zip(parts, ends, ends[1:], strict=False)
        )
        drawn.append(f"{number:>{NUMBER}} |{bar}")
    return [f"{line:<{NUMBER + 2 + BAR}}" for line in drawn]


def beside(names: Sequence[str], *panels: Sequence[str]) -> str:
    """Return panels of :func:`bars` beside each other, with the names of their rows at the left."""
    width = max(map(len, names))
    return "\n".join(
        "  ".join([f"{name:<{width}}", *parts]).rstrip()
        for name, *parts in zip(["", *names], *panels, strict=True)
    )
