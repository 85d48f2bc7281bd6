"""Imported by the fork server before it forks: all that a first iteration needs.

Nothing else imports it: what it notes at the end is the state of the server at that moment.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

from mnistbench.suite.measuring.torch_import import import_torch

import_torch()  # before all that imports torch: it pins the allocator

import torch._dynamo  # by the constructor of an optimizer  # noqa: E402, F401

import mnistbench.suite.measuring.profiling  # noqa: E402
import mnistbench.suite.workloads.workload  # noqa: E402, F401

#: Advice of madvise to populate pages for reading, from Linux 5.14; Python's mmap does not name it.
POPULATE_READ = 22
#: Advice of madvise to populate pages for writing, from Linux 5.14; Python's mmap does not name it.
POPULATE_WRITE = 23


def present_pages() -> list[tuple[int, int, int]]:
    """Return the private memory that this process has used.

    The address, the number of bytes and the advice for madvise.

    A fork maps these pages again when it first uses them, and copies those that it writes. That
    would happen in its first iteration, but a process that has imported the modules itself has the
    pages.
    """
    used = []
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        for line in Path("/proc/self/maps").read_text().splitlines():
            addresses, rights = line.split()[:2]
            first, last = (int(address, 16) // mmap.PAGESIZE for address in addresses.split("-"))
            # [vdso] and the like belong to the kernel.
            if rights[0] != "r" or rights[3] != "p" or "[v" in line:
                continue
            pagemap.seek(8 * first)
            present = np.frombuffer(pagemap.read(8 * (last - first)), np.uint64) >> np.uint64(63)
            edges = np.flatnonzero(np.diff(present.astype(np.int8), prepend=0, append=0)).tolist()
            advice = POPULATE_WRITE if rights[1] == "w" else POPULATE_READ
            for begin, end in zip(edges[::2], edges[1::2], strict=True):
                used.append(
                    ((first + begin) * mmap.PAGESIZE, (end - begin) * mmap.PAGESIZE, advice)
                )
    return used


#: Process id of the server.
SERVER = os.getpid()

#: Threads of the server. A fork has one: its libraries would wait for the others.
THREADS = sum(1 for _ in Path("/proc/self/task").iterdir())

#: Memory that the server has used.
PAGES = present_pages()
