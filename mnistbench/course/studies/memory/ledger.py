"""The bytes that are live after each allocation, and the largest number of them. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from mnistbench.course.studies.memory.result import Place


@dataclass
class Ledger:
    """Adds up allocations and frees, in the order in which they happen."""

    live: int  # bytes now; first the bytes that are held before
    peak: int = 0  # the largest number of live bytes after an allocation
    place: Place = field(default_factory=Place)  # of the peak
    peaks: dict[str, int] = field(default_factory=dict)  # layer -> the largest number of live bytes after an allocation in it

    def __post_init__(self) -> None:
        self.peak = self.live

    def change(self, n_bytes: int, place: Place) -> None:
        """Add an allocation, or subtract a free.

        Args:
            n_bytes: below 0 for a free.
            place: of the operation that allocates.
        """
        self.live += n_bytes
        if n_bytes <= 0:
            return
        self.peaks[place.layer] = max(self.live, self.peaks.get(place.layer, 0))
        if self.live > self.peak:
            self.peak, self.place = self.live, place
