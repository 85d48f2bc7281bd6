"""Training by several processes: each computes a part of every batch, and they add their gradients.

DistributedDataParallel and ``torch.distributed`` do the work. Nothing of them is imported for a
process by itself.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor, nn

from mnistbench.core.errors import MnistbenchError, UsageError, first_line
from mnistbench.core.ranks import Rank

_T = TypeVar("_T")

#: A collective operation fails if a rank does not join it in this time: the first of a run waits
#: for the slowest import.
TIMEOUT = timedelta(minutes=5)

#: Difference between two seeds of dropout masks: large, so that ranks of runs with neighbouring
#: seeds differ, too.
_SEEDS_APART = 1_000_003

#: Exit code of a rank that failed.
_FAILED = 2

#: How long a rank looks for the one that ended, in seconds.
_SEARCH_S = 3.0
#: Time between two looks, in seconds.
_PAUSE_S = 0.05


def seed_of_masks(seed: int, number: int) -> int:
    """Return a seed of dropout masks, another one for each number, such as a rank.

    That of number 0 is ``seed``.
    """
    return seed + _SEEDS_APART * number


class Alone:
    """A process by itself: it computes whole batches."""

    rank = 0
    world_size = 1

    def model(self, model: nn.Module) -> nn.Module:
        """Return the model whose backward pass adds the gradients of all ranks."""
        return model

    # Group's.
    def no_sync(self, model: nn.Module) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        """Return a context in which the backward pass adds no gradients of other ranks.

        It is that of the result of ``model``.

        The weights of the ranks then differ: their caller sets them to the same values again.
        """
        return contextlib.nullcontext()

    def barrier(self) -> None:
        """Wait until all ranks have reached this call."""

    @contextlib.contextmanager
    def rank_0_first(self) -> Iterator[None]:
        """Run the body on rank 0, then on the other ranks.

        What rank 0 downloads, the others read.
        """
        if self.rank:
            self.barrier()
        yield
        if not self.rank:
            self.barrier()

    def part(self, indices: Tensor) -> Tensor:
        """Return this rank's part of a batch of at least one sample.

        The batch is the next to be computed.

        It is never empty: a rank without a sample computes one that does not count.
        """
        return indices

    def counted(self, samples: int) -> int:
        """Return how many samples of the last part count."""
        return samples

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the ranks, float64 [n]."""
        return values

    def agree_to_stop(self, stop: Callable[[], bool]) -> bool:
        """Return whether all ranks stop.

        One of them had ``stop()`` true before the last :meth:`sum`.
        """
        return stop()

    def gather(self, value: _T) -> list[_T]:
        """Return the values of all ranks on rank 0, and an empty list on the others."""
        return [value]


class Group(Alone):
    """A process among several: see :class:`Alone`."""

    def __init__(self, rank: Rank, device: torch.device) -> None:
        """Join the other ranks."""
        import torch.distributed as dist

        # If it is imported later, its functions keep the process group: see `end`.
        import torch.distributed.nn.functional
        from torch.distributed.rendezvous import rendezvous

        if device.type == "cuda":
            torch.cuda.set_device(device)  # where NCCL puts the objects that are gathered
            # NCCL refuses a device without an index.
            device = torch.device("cuda", torch.cuda.current_device())
        self.rank = rank.rank
        self.world_size = rank.world_size
        self._device = device
        # The share of the last batch that is this rank's part; its samples that count.
        self.weight = 1.0
        self._counted = 0
        self._stop_requested = self._stop_agreed = False  # by this rank; by all ranks
        try:
            self._store, _, _ = next(rendezvous("env://", timeout=TIMEOUT))
            nccl = device.type == "cuda"
            dist.init_process_group(
                "nccl" if nccl else "gloo",
                store=self._store,
                rank=self.rank,
                world_size=self.world_size,
                timeout=TIMEOUT,
                device_id=device if nccl else None,
            )
        except (dist.DistError, RuntimeError, ValueError, OSError) as error:
            where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
            raise UsageError(
                f"rank {self.rank} does not reach the other ranks at {where} ({first_line(error)})"
            ) from None
        self._store.set(f"process {self.rank}", json.dumps([socket.gethostname(), os.getpid()]))

    def model(self, model: nn.Module) -> nn.Module:
        """Return the model in DistributedDataParallel."""
        from torch.nn.parallel import DistributedDataParallel

        wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
        wrapped.register_comm_hook(self, _weighted_sum)
        return wrapped

    @contextlib.contextmanager
    def no_sync(self, model: nn.Module) -> Iterator[None]:
        """Return a context in which the backward pass adds no gradients of other ranks.

        It is that of the wrapped model.
        """
        from torch.nn.parallel import DistributedDataParallel

        assert isinstance(model, DistributedDataParallel), "the result of self.model"
        with model.no_sync():
            yield

    def barrier(self) -> None:
        """Wait until all ranks have reached this call."""
        import torch.distributed as dist

        dist.barrier()

    def part(self, indices: Tensor) -> Tensor:
        """Return this rank's part of a batch; the parts differ by one sample at most."""
        mine = indices.tensor_split(self.world_size)[self.rank]
        self._counted = len(mine)
        self.weight = len(mine) / len(indices)
        return mine if len(mine) else indices[:1]

    def counted(self, samples: int) -> int:
        """Return how many samples of the last part count."""
        return min(samples, self._counted)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the ranks, float64 [n].

        Exchange whether one of them is requested to stop.
        """
        import torch.distributed as dist

        both = torch.cat(
            [
                values.detach().cpu().double(),
                torch.tensor([float(self._stop_requested)], dtype=torch.float64),
            ]
        )
        if self._device.type == "cuda":
            both = both.to(self._device)
        dist.all_reduce(both)
        both = both.cpu()
        self._stop_agreed = bool(both[-1])
        return both[:-1]

    def agree_to_stop(self, stop: Callable[[], bool]) -> bool:
        """Return whether all ranks stop."""
        self._stop_requested = self._stop_requested or stop()
        return self._stop_agreed

    def gather(self, value: _T) -> list[_T]:
        """Return the values of all ranks on rank 0, and an empty list on the others."""
        import torch.distributed as dist

        found: list[Any] = [None] * self.world_size
        dist.all_gather_object(found, value)
        return found if self.rank == 0 else []

    def end(self) -> None:
        """Leave the other ranks, and end the threads of gloo.

        The results of :meth:`model` are no longer referenced.

        A thread of gloo that frees a tensor while Python ends aborts the process. A model that is
        freed after its process group holds Python's lock while it waits for such a thread, and in
        PyTorch 2.11 that thread may wait for the lock: the process never ends.
        """
        import torch.distributed as dist

        gc.collect()  # a model may be in a reference cycle
        dist.destroy_process_group()

    # ---- Failure of a rank ----

    @contextlib.contextmanager
    def failing_together(self, print_error: Callable[[str], None]) -> Iterator[None]:
        """Run the body.

        If a rank fails, every rank ends its process, and one of them prints which rank failed and
        why.

        The launcher terminates the other ranks as soon as one has ended. A rank that waits for the
        others inside of PyTorch runs no signal handler of Python, so a thread waits for the number
        of the signal in a pipe. Blocking the signal would not suffice: threads that PyTorch has
        already started do not block it, so it would end the process.
        """
        self._print_error = print_error
        self._ending = threading.Lock()
        numbers, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda *_: None)
        threading.Thread(target=self._wait_for_termination, args=(numbers,), daemon=True).start()
        me = f"rank {self.rank} of {self.world_size}"
        try:
            yield
        except MnistbenchError as error:
            self._fail(f"{me}: {error}")
        except KeyboardInterrupt:
            self._fail(f"{me} was interrupted")
        except OSError as error:
            self._fail(f"{me} cannot write or read ({error.strerror or error})")
        # Whatever it is, the other ranks wait for this one.
        except Exception as error:  # noqa: BLE001
            text = str(error)
            is_of_gloo = isinstance(error, RuntimeError) and (
                "gloo" in text or "Connection" in text
            )
            if not isinstance(error, torch.distributed.DistError) and not is_of_gloo:
                traceback.print_exc()
                self._fail(f"{me} failed: {type(error).__name__}: {first_line(error)}")
            line: str | None = None
            elsewhere: list[str] = []
            with contextlib.suppress(Exception):  # the store may have ended, too
                line = self._who_ended()
                # Processes of other nodes cannot be looked up.
                elsewhere = [
                    f"rank {rank} on {host}"
                    for rank, (host, _) in self._others()
                    if host != socket.gethostname()
                ]
            if line is None:
                # The message of gloo or NCCL without the place in their source, its prefix and its
                # advice.
                reason = re.sub(
                    r"^\[\S+\] ", "", first_line(error).rpartition("RuntimeError: ")[2]
                ).partition(". ")[0]
                line = (
                    f"{me} lost the connection to {' or '.join(elsewhere) or 'another rank'} "
                    f"({reason})"
                )
            self._end_with(line, _FAILED)

    def _wait_for_termination(self, numbers: int) -> None:
        """Wait until the pipe has the number of SIGTERM, then end the process."""
        while os.read(numbers, 1) != bytes([signal.SIGTERM]):
            pass
        line = None
        with contextlib.suppress(Exception):  # the store may have ended, too
            self._store.set(f"failed {self.rank}", "")
            line = self._who_ended()
        line = f"rank {self.rank} of {self.world_size} was terminated" if line is None else line
        self._end_with(line, 128 + signal.SIGTERM)

    def _fail(self, line: str) -> NoReturn:
        """Store the line for the other ranks, print it, and end the process."""
        with contextlib.suppress(Exception):
            self._store.set(f"failed {self.rank}", line)
        self._end_with(line, _FAILED)

    def _end_with(self, line: str, code: int) -> NoReturn:
        """Print the line if it has text and no rank has printed one; end the process at once.

        Threads of PyTorch may wait for ranks that have ended.
        """
        # Never released: the other thread waits here until the process has ended.
        with self._ending:
            first = bool(line)
            with contextlib.suppress(Exception):
                first = bool(line) and self._store.add("lines", 1) == 1
            if first:
                self._print_error(line)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)

    def _others(self) -> list[tuple[int, tuple[str, int]]]:
        """Return (rank, (host, process id)) of the other ranks that have joined."""
        ranks = (
            rank
            for rank in range(self.world_size)
            if rank != self.rank and self._store.check([f"process {rank}"])
        )
        return [(rank, tuple(json.loads(self._store.get(f"process {rank}")))) for rank in ranks]

    def _who_ended(self) -> str | None:
        """Return a line about the other rank that failed; empty if that rank prints one itself.

        None if it is not known.

        Processes of other nodes cannot be looked up.
        """
        until = time.monotonic() + _SEARCH_S
        others = self._others()
        while True:
            failed = {
                rank: self._store.get(f"failed {rank}")
                for rank, _ in others
                if self._store.check([f"failed {rank}"])
            }
            if any(failed.values()):
                return ""
            for rank, (host, pid) in others:
                if rank not in failed and host == socket.gethostname() and not _runs(pid):
                    return (
                        f"rank {rank} of {self.world_size} was killed or crashed (process {pid} "
                        f"on {host}), so all ranks end; out of memory is the usual cause"
                    )
            if time.monotonic() > until or len(failed) == len(others):
                return None
            time.sleep(_PAUSE_S)


@contextlib.contextmanager
def joined(rank: Rank, device: torch.device, print_error: Callable[[str], None]) -> Iterator[Alone]:
    """Join the other ranks, if there are any, for the body.

    They fail together, see :meth:`Group.failing_together`.
    """
    if rank.world_size == 1:
        yield Alone()
        return
    ranks = Group(rank, device)
    with ranks.failing_together(print_error):
        yield ranks
        ranks.end()


# DDP refuses ours, which are texts.
def _weighted_sum(group, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Sum the ranks' mean gradients, weighted by their samples.

    The mean over the whole batch, also where parts differ.
    """
    import torch.distributed as dist

    reduced = dist.all_reduce(bucket.buffer().mul_(group.weight), async_op=True)
    return reduced.get_future().then(lambda future: future.value()[0])


def _runs(pid: int) -> bool:
    """Return whether a process of this machine runs.

    One that has ended but was not waited for does not.
    """
    try:
        os.kill(pid, 0)
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            != "Z"
        )
    except ProcessLookupError:
        return False
    except OSError:  # another user's, or a system without /proc
        return True
