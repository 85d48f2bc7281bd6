"""Options that say what is measured: a model, its data, and how it is computed.

They are declared without torch: the plug-in has them in every session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mnistbench.core.options import Kind, one_of, option, path, several, some_of, whole
from mnistbench.core.params import DTYPES, REFERENCE, STEPS
from mnistbench.suite.workloads.builtin import DATASETS, MODELS

#: The largest number of threads: OpenMP crashes if the system cannot create that many.
MAX_THREADS = 1024

#: The largest seed of torch's generators that is the same number in all of them.
LARGEST_SEED = 2**63 - 1


def model() -> Any:
    """Declare the model."""
    return option("--model", one_of(*MODELS), "convnet", "convnet, lenet5 or smallnet", "NAME")


def phases(default: str) -> Any:
    """Declare the phases of the cases."""
    kind = some_of("forward", "step")
    return option("--phase", kind, default, "comma list of forward and step", "NAMES")


def batch_size(text: str = "samples of a step") -> Any:
    """Declare the samples of a step."""
    return option("--batch-size", whole(1), "64", text, "N")


def batch_size_per_rank(text: str, default: str | None = None) -> Any:
    """Declare the samples of a step of each rank."""
    return option("--batch-size-per-rank", whole(1), default, text, "N")


def batch_sizes(
    flag: str = "--batch-size",
    text: str = "comma list of batch sizes",
    default: str | None = "1,16,64",
    *,
    configurable: bool = False,
) -> Any:
    """Declare the batch sizes of the cases."""
    return option(flag, several(whole(1)), default, text, "SIZES", configurable=configurable)


def device(
    text: str = "auto, cpu, cuda, cuda:1, mps", default: str = "cpu", kind: Kind[str] = str
) -> Any:
    """Declare the device."""
    return option("--device", kind, default, text, "NAME")


def devices(
    flag: str = "--device",
    text: str = "comma list of auto, cpu, cuda, cuda:1, mps",
    *,
    configurable: bool = False,
) -> Any:
    """Declare the devices of the cases."""
    return option(flag, several(str), "auto", text, "NAMES", configurable=configurable)


def threads(
    flag: str = "--threads",
    text: str = "intra-op threads of torch on the CPU",
    default: str | None = "1",
    *,
    configurable: bool = False,
) -> Any:
    """Declare the number of threads."""
    return option(flag, whole(1, MAX_THREADS), default, text, "N", configurable=configurable)


def dtype(
    flag: str = "--dtype",
    text: str = "float32, or bfloat16 by autocast",
    more: Iterable[str] = (),
    *,
    configurable: bool = False,
) -> Any:
    """Declare the number format: one of DTYPES, or one of ``more``."""
    kind = one_of(*DTYPES, *more)
    return option(flag, kind, "float32", text, "NAME", configurable=configurable)


def step(text: str, default: str = REFERENCE, more: Iterable[str] = ()) -> Any:
    """Declare how a training step is computed: one of ``more``, or one of STEPS."""
    return option("--step", one_of(*more, *STEPS), default, text, "NAME")


def dataset(
    flag: str = "--dataset",
    text: str = "digits, which needs no network, or mnist",
    default: str = "digits",
    *,
    configurable: bool = False,
) -> Any:
    """Declare the dataset."""
    return option(flag, one_of(*DATASETS), default, text, "NAME", configurable=configurable)


def seed(text: str, flag: str = "--seed", *, configurable: bool = False) -> Any:
    """Declare the seed; the help says of what."""
    return option(flag, whole(0, LARGEST_SEED), "1", text, "N", configurable=configurable)


def data_dir(flag: str = "--data-dir", *, configurable: bool = False) -> Any:
    """Declare the directory of MNIST."""
    text = "torchvision root of MNIST (default: MNISTBENCH_DATA, else the user's cache)"
    return option(flag, path, None, text, "DIR", configurable=configurable)
