"""Which algorithms does oneDNN take? With ``torch.backends.mkldnn.verbose`` it prints a line for each primitive that it runs.

The lines go to the standard output of the process, past Python, so a child process runs the convolutions:
``python -m mnistbench.course.studies.convolution.onednn``, with a list of :class:`Case` as JSON on its standard input.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from mnistbench.core.errors import MnistbenchError
from mnistbench.course.studies.convolution.calls import backends_set, call_of
from mnistbench.course.studies.convolution.sizes import Sizes
from mnistbench.course.studies.convolution.ways import WAYS

_CASE = "mnistbench-case:"

#: A primitive that computes, not one that changes the layout of a tensor.
_COMPUTES = ("convolution", "matmul", "inner_product")

#: ``onednn_verbose,v1,primitive,exec,cpu,convolution,brgconv:avx512_core,forward_training,...``; older versions lack the second
#: and the third field.
_LINE = re.compile(r"^onednn_verbose(?:,v\d+)?(?:,primitive)?,exec,cpu,(?P<kind>\w+),(?P<algorithm>[^,]+),(?P<direction>\w+),")


class OneDnnError(MnistbenchError):
    """The child process failed."""


@dataclass(frozen=True)
class Case:
    """A way, a convolution and a dtype."""

    way: str
    sizes: Sizes
    dtype: str

    def run(self) -> None:
        """Compute it once."""
        with torch.inference_mode():
            call_of(WAYS[self.way], self.sizes, getattr(torch, self.dtype))()


def algorithms(cases: Sequence[Case], threads: int, settings: Mapping[str, str]) -> list[str]:
    """Return for each case the algorithms that oneDNN took; empty where PyTorch did not call it.

    Raises:
        OneDnnError: the child process failed.
    """
    job = {"cases": [asdict(case) for case in cases], "threads": threads, "settings": dict(settings)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mnistbench.course.studies.convolution.onednn"],
        input=json.dumps(job), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise OneDnnError(f"oneDNN was not asked for its algorithms: {lines[-1] if lines else f'exit code {done.returncode}'}")
    return [summary(lines) for lines in _by_case(done.stdout.splitlines())]


def summary(lines: Sequence[str]) -> str:
    """Return the algorithms in the lines of one case, and how many tensors were brought into another layout."""
    found = [match for line in lines if (match := _LINE.match(line))]
    computing = [match["algorithm"] for match in found if match["kind"] in _COMPUTES]
    reorders = sum(match["kind"] == "reorder" for match in found)
    names = " + ".join(dict.fromkeys(computing))
    return f"{names}, {reorders} reorder{'s' if reorders > 1 else ''}" if names and reorders else names


def _by_case(lines: Sequence[str]) -> Iterator[list[str]]:
    found: list[str] | None = None
    for line in lines:
        if line.startswith(_CASE):
            if found is not None:
                yield found
            found = []
        elif found is not None:
            found.append(line)
    if found is not None:
        yield found


def main() -> None:
    """Run the cases of the standard input."""
    job: dict[str, Any] = json.load(sys.stdin)
    torch.set_num_threads(job["threads"])
    with backends_set(job["settings"]):
        for found in job["cases"]:
            case = Case(found["way"], Sizes(**found["sizes"]), found["dtype"])
            case.run()  # weights may be packed once
            sys.stdout.write(f"{_CASE}\n")
            sys.stdout.flush()
            with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):  # type: ignore[no-untyped-call]
                case.run()


if __name__ == "__main__":
    main()
