"""A folder with the trace of each rank -> one distributed run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mnistbench.core.errors import RecordError, UsageError
from mnistbench.traces.analysis import Analysis, analyse
from mnistbench.traces.reader import ENDINGS


@dataclass(frozen=True)
class RanksRun:
    """The traces of one run, by rank. ``rank`` of each is a number."""

    folder: str
    ranks: tuple[Analysis, ...]
    missing: tuple[int, ...]  # ranks of the run without a file

    @property
    def slowest(self) -> Analysis:
        """The rank with the longest time outside collectives: the others wait for it in a collective."""
        return max(self.ranks, key=lambda rank: rank.outside_collectives_ns)


def read_ranks(folder: Path, progress: Callable[[str], None]) -> RanksRun:
    """Read every trace in a folder.

    Args:
        folder: its files that end in .json or .json.gz are the traces of one run.
        progress: called with the name of each file before it is read.

    Raises:
        UsageError: the folder has no trace, or the files are not the ranks of one run.
        RecordError: a file is no trace, or damaged.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS) and path.is_file())
    except OSError as error:
        raise RecordError(f"{folder}: cannot be read ({error.strerror})") from None
    if not files:
        raise UsageError(f"{folder}: has no file that ends in .json or .json.gz; name a folder with a trace of each rank")
    found = []
    for path in files:
        progress(path.name)
        found.append(analyse(path))
    return _run(folder, found)


def _run(folder: Path, found: Sequence[Analysis]) -> RanksRun:
    advice = "leave one run in the folder, or name its files one by one"
    of_rank: dict[int, Analysis] = {}
    for trace in found:
        if trace.rank is None:
            raise UsageError(f"{trace.source}: has no rank (distributedInfo), so it is of no distributed run; {advice}")
        if trace.rank in of_rank:
            raise UsageError(f"{of_rank[trace.rank].source} and {trace.source} are both rank {trace.rank}; {advice}")
        of_rank[trace.rank] = trace
    sizes = sorted({str(trace.ranks) for trace in found})
    if len(sizes) > 1:
        raise UsageError(f"{folder}: the files are of runs with {' and '.join(sizes)} ranks; {advice}")
    missing = tuple(rank for rank in range(found[0].ranks or 0) if rank not in of_rank)
    return RanksRun(str(folder), tuple(of_rank[rank] for rank in sorted(of_rank)), missing)
