"""Training by several processes: each computes a part of every batch, and they add their gradients.

DistributedDataParallel and ``torch.distributed`` do the work. Nothing of them is imported for a
process by itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mnistbench.core.errors import MnistbenchError, UsageError, first_line
from mnistbench.suite.workloads.torchrun import Rank

_T = TypeVar("_T")

#: A collective operation fails if a rank does not join it in this time: the first of a run waits
#: for the slowest import.
TIMEOUT = timedelta(minutes=5)

#: Difference between two seeds of dropout masks: large, so that ranks of runs with neighbouring
#: seeds differ, too.
_SEEDS_APART = 1_000_003

#: Exit code of a rank that failed.
_FAILED = 2


def seed_of_masks(seed: int, number: int) -> int:
    """Return a seed of dropout masks, another one for each number, such as a rank.

    That of number 0 is ``seed``.
    """
    return seed + _SEEDS_APART * number


def run_as_rank(
    rank: Rank,
    device: torch.device,
    work: Callable[[Ranks], _T],
    print_error: Callable[[str], None],
) -> _T:
    """Join the other ranks, if there are any, and return ``work(ranks)``.

    If a rank of several fails, it records the error where torchrun finds it, prints it and ends its
    process. torchrun then ends the other ranks and reports the first failure.
    """
    if rank.world_size == 1:
        return work(OneProcess())
    from torch.distributed.elastic.multiprocessing.errors import record

    try:
        return record(_joined)(rank, device, work)  # type: ignore[return-value]
    except KeyboardInterrupt:
        print_error(f"rank {rank.rank} of {rank.world_size} was interrupted")
    except (MnistbenchError, OSError) as error:
        print_error(f"rank {rank.rank} of {rank.world_size}: {error}")
    except Exception:  # noqa: BLE001  # whatever it is, the other ranks wait for this one
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    # Python's own end could wait for threads of PyTorch, which wait for ranks that have ended.
    os._exit(_FAILED)


def _joined(rank: Rank, device: torch.device, work: Callable[[Ranks], _T]) -> _T:
    try:
        ranks = ProcessGroup(rank, device)
        result = work(ranks)
        ranks.end()
    except Exception:
        # torchrun ends this rank as soon as another one has failed. It fails itself, and reports
        # no rank, if it then reads a part of the recorded error.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    return result


class Ranks(ABC):
    """The processes that train together, as one of them sees them."""

    rank: int  # of this process, from 0
    world_size: int  # number of processes

    @abstractmethod
    def model(self, model: nn.Module) -> nn.Module:
        """Return the model whose backward pass adds the gradients of all ranks."""

    @abstractmethod
    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return a context in which the backward pass adds no gradients of other ranks.

        ``model`` is what :meth:`model` returned. The weights of the ranks then differ: the caller
        sets them to the same values again.
        """

    @abstractmethod
    def barrier(self) -> None:
        """Wait until all ranks have reached this call."""

    @contextlib.contextmanager
    def rank_0_first(self) -> Iterator[None]:
        """Run the body on rank 0, then on the other ranks.

        The others read what rank 0 downloads.
        """
        if self.rank:
            self.barrier()
        yield
        if not self.rank:
            self.barrier()

    @abstractmethod
    def part(self, indices: Tensor) -> Tensor:
        """Return this rank's part of the next batch, int64 [n] of int64 [B], n and B at least 1.

        If a batch has fewer samples than ranks, a rank gets one padding sample, which
        :meth:`counted` leaves out.
        """

    @abstractmethod
    def counted(self, samples: int) -> int:
        """Return how many of the samples of the last part count: all but padding."""

    @abstractmethod
    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the ranks, float64 [n]."""

    @abstractmethod
    def agree_to_stop(self, stop: Callable[[], bool]) -> bool:
        """Return whether all ranks stop.

        One of them had ``stop()`` true before the last :meth:`sum`.
        """

    @abstractmethod
    def gather(self, value: _T) -> list[_T]:
        """Return the values of all ranks on rank 0, and an empty list on the others."""


class OneProcess(Ranks):
    """A process by itself: it computes whole batches and waits for nobody."""

    rank = 0
    world_size = 1

    def model(self, model: nn.Module) -> nn.Module:
        """Return the model itself."""
        return model

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return a context without an effect."""
        return contextlib.nullcontext()

    def barrier(self) -> None:
        """Return at once."""

    def part(self, indices: Tensor) -> Tensor:
        """Return the whole batch."""
        return indices

    def counted(self, samples: int) -> int:
        """Return all samples."""
        return samples

    def sum(self, values: Tensor) -> Tensor:
        """Return the values themselves."""
        return values

    def agree_to_stop(self, stop: Callable[[], bool]) -> bool:
        """Return ``stop()``."""
        return stop()

    def gather(self, value: _T) -> list[_T]:
        """Return the value alone."""
        return [value]


class ProcessGroup(Ranks):
    """A process among several, which communicate over gloo, or over NCCL on CUDA devices."""

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
        self.weight = 1.0  # share of the last batch that is this rank's part
        self._counted = 0  # samples of the last part without padding
        self._stop_requested = False  # by this rank
        self._stop_agreed = False  # by all ranks
        try:
            store, _, _ = next(rendezvous("env://", timeout=TIMEOUT))
            nccl = device.type == "cuda"
            dist.init_process_group(
                "nccl" if nccl else "gloo",
                store=store,
                rank=self.rank,
                world_size=self.world_size,
                timeout=TIMEOUT,
                device_id=device if nccl else None,
            )
        except (dist.DistError, RuntimeError, ValueError, OSError) as error:
            where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
            raise UsageError(
                f"the other ranks cannot be reached at {where} ({first_line(error)})"
            ) from None

    def model(self, model: nn.Module) -> nn.Module:
        """Return the model in DistributedDataParallel."""
        from torch.nn.parallel import DistributedDataParallel

        wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
        wrapped.register_comm_hook(self, _weighted_sum)
        return wrapped

    @contextlib.contextmanager
    def no_sync(self, model: nn.Module) -> Iterator[None]:
        """Return the context of that name of DistributedDataParallel."""
        from torch.nn.parallel import DistributedDataParallel

        assert isinstance(model, DistributedDataParallel), "the result of self.model"
        with model.no_sync():
            yield

    def barrier(self) -> None:
        """Wait for the other ranks."""
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

        values_and_stop = torch.cat(
            [
                values.detach().cpu().double(),
                torch.tensor([float(self._stop_requested)], dtype=torch.float64),
            ]
        )
        if self._device.type == "cuda":
            values_and_stop = values_and_stop.to(self._device)
        dist.all_reduce(values_and_stop)
        values_and_stop = values_and_stop.cpu()
        self._stop_agreed = bool(values_and_stop[-1])
        return values_and_stop[:-1]

    def agree_to_stop(self, stop: Callable[[], bool]) -> bool:
        """Return whether all ranks stop."""
        self._stop_requested = self._stop_requested or stop()
        return self._stop_agreed

    def gather(self, value: _T) -> list[_T]:
        """Return the values of all ranks on rank 0, and an empty list on the others."""
        import torch.distributed as dist

        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values if self.rank == 0 else []

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


# DDP refuses ours, which are texts.
def _weighted_sum(group, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Sum the ranks' mean gradients, weighted by their samples.

    This is the mean over the whole batch, also where the parts differ.
    """
    import torch.distributed as dist

    reduced = dist.all_reduce(bucket.buffer().mul_(group.weight), async_op=True)
    return reduced.get_future().then(lambda future: future.value()[0])
