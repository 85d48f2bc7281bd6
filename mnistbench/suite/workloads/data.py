"""Digits and MNIST as resident uint8 tensors, and batches made of them on the device.

Nothing is decoded, converted or copied from the host in a training step: the images lie on the
device as bytes, and a batch is a gather and a normalisation there. ``mnistbench study graph``
compares this with a DataLoader.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import math
import os
import tempfile
import textwrap
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from mnistbench.core.errors import DataError, RecordError, UsageError
from mnistbench.core.files import check_is_file
from mnistbench.suite.workloads.builtin import DATASETS
from mnistbench.suite.workloads.digits import digit_rows, legacy_permutation

#: Images (float32 [B, 1, 28, 28], normalised) and labels (int64 [B]).
Batch = tuple[Tensor, Tensor]

#: Mean of MNIST's training images scaled to 0..1, as in pytorch/examples `mnist/main.py`.
MNIST_MEAN = 0.1307
#: Standard deviation of MNIST's training images scaled to 0..1, as there.
MNIST_STD = 0.3081

#: Mean of the 1,437 training images of digits scaled to 0..1; a test recomputes it.
DIGITS_MEAN = 0.2244
#: Standard deviation of the 1,437 training images of digits; a test recomputes it.
DIGITS_STD = 0.3491

#: Of 1,797, drawn at random: the file seems ordered by writer, and training on its first part is
#: worse.
_DIGITS_TRAIN = 1437
_DIGITS_SEED = 0
_DIGITS_LEVELS = 16  # the file's pixels go from 0 to 16

_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # torchvision's first mirror
_NETWORK_TIMEOUT_S = 30.0
_LARGEST_DOWNLOAD = 16 * 2**20  # bytes; the largest packed file has 9.5 MiB
_CAUSE_WIDTH = 240  # largest number of characters kept of an exception's message


class _MnistFile(NamedTuple):
    """What identifies an unpacked file of MNIST."""

    n_bytes: int
    # Files of Fashion-MNIST, KMNIST and QMNIST have the same names and sizes. The MD5 of a packed
    # file depends on the program that packed it.
    md5: str


_MNIST_FILES = {
    "train-images-idx3-ubyte": _MnistFile(47_040_016, "6bbc9ace898e44ae57da46a324031adb"),
    "train-labels-idx1-ubyte": _MnistFile(60_008, "a25bea736e30d166cdddb491f175f624"),
    "t10k-images-idx3-ubyte": _MnistFile(7_840_016, "2646ac647ad5339dbf082846283269ea"),
    "t10k-labels-idx1-ubyte": _MnistFile(10_008, "27ae3e4e09519cfbb04c329615203637"),
}
#: Bytes of the header of a file of images.
_IMAGES_HEADER = 16
#: Bytes of the header of a file of labels.
_LABELS_HEADER = 8


@dataclass(frozen=True, eq=False)  # comparing tensors gives tensors, not a bool
class Split:
    """The training or the test part of a dataset."""

    images: Tensor  # uint8 [N, 1, 28, 28]
    labels: Tensor  # int64 [N], 0 to 9

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.labels)

    def to(self, device: str | torch.device) -> Split:
        """Return the same samples on another device."""
        return Split(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset in the memory of one device, with its normalisation constants."""

    name: str  # one of params.DATASETS
    train: Split
    test: Split
    mean: float  # of the training images scaled to 0..1
    std: float

    def to(self, device: str | torch.device) -> Dataset:
        """Return the same dataset on another device."""
        return replace(self, train=self.train.to(device), test=self.test.to(device))

    def batch(self, split: Split, indices: Tensor) -> Batch:
        """Gather samples and normalise them on the split's device.

        ``indices`` is int64 [B], on any device. Returns images, float32 [B, 1, 28, 28], and labels,
        int64 [B].
        """
        indices = indices.to(split.images.device)
        # The same order of operations as torchvision's ToTensor and Normalize, so that pixels are
        # equal bit for bit.
        images = (
            split.images.index_select(0, indices).float().div_(255).sub_(self.mean).div_(self.std)
        )
        return images, split.labels.index_select(0, indices)

    def draw(self, split: Split, batch_size: int, generator: torch.Generator) -> Tensor:
        """Draw the indices of one batch, int64 [batch_size] on the CPU, with a CPU generator.

        No sample is drawn twice before all were drawn once: a batch larger than the split consists
        of permutations. Each call permutes the whole split; use ``epoch`` to iterate over all
        batches.
        """
        permutations = math.ceil(batch_size / len(split))
        return torch.cat(
            [torch.randperm(len(split), generator=generator) for _ in range(permutations)]
        )[:batch_size]

    def epoch(
        self,
        split: Split,
        batch_size: int,
        generator: torch.Generator | None = None,
        fraction: float = 1.0,
    ) -> Iterator[Batch]:
        """Return the batches of an epoch by ``order``."""
        return (
            self.batch(split, indices)
            for indices in self.order(split, batch_size, generator, fraction)
        )

    def order(
        self,
        split: Split,
        batch_size: int,
        generator: torch.Generator | None = None,
        fraction: float = 1.0,
    ) -> tuple[Tensor, ...]:
        """Return the indices of the batches of an epoch, int64 [B] each on the split's device.

        Each sample occurs once, and the last batch may be short.

        Args:
            split: the samples.
            batch_size: samples per batch.
            generator: CPU generator that shuffles, during this call; without it the order is the
                file's.
            fraction: use only this first part of the order, above 0 and up to 1, rounded up to
                whole samples.
        """
        if not 0 < fraction <= 1:
            raise UsageError(f"fraction {fraction} of an epoch: give a number above 0 and up to 1")
        # Decimal arithmetic: as a float, 0.07 of 60,000 is slightly above 4,200 and would give
        # 4,201 samples.
        n_samples = math.ceil(Fraction(str(fraction)) * len(split))
        order = (
            torch.arange(len(split))
            if generator is None
            else torch.randperm(len(split), generator=generator)
        )
        # One transfer per epoch instead of one per batch.
        order = order[:n_samples].to(split.images.device)
        return torch.split(order, batch_size)


def load(
    name: str, data_dir: str | Path | None = None, device: str | torch.device = "cpu"
) -> Dataset:
    """Return ``digits`` or ``mnist`` on a device.

    MNIST is read from, or downloaded to, ``data_root(data_dir)``.

    Raises:
        UsageError: the name is unknown.
        DataError: MNIST is incomplete or another dataset, or missing and cannot be downloaded.
    """
    if name not in DATASETS:
        raise UsageError(f"dataset {name!r} is not known: one of {', '.join(DATASETS)}")
    if name == "digits":
        return _digits().to(device)
    raw = _raw_dir(data_dir)
    with _with_advice(raw):
        if _is_empty(raw):
            _download(raw)
        train_images, train_labels, test_images, test_labels = (
            _read(raw, name) for name in _MNIST_FILES
        )
    train = _parse(train_images, train_labels)
    test = _parse(test_images, test_labels)
    return Dataset("mnist", train, test, MNIST_MEAN, MNIST_STD).to(device)


def data_root(option: str | Path | None) -> Path:
    """Return the parent folder of torchvision's ``MNIST/raw``.

    It is the option, else the environment variable MNISTBENCH_DATA, else the user's cache
    directory.
    """
    chosen = option or os.environ.get("MNISTBENCH_DATA")
    if chosen:
        return Path(os.path.expanduser(chosen))  # noqa: PTH111 - Path.expanduser raises on an unknown ~user
    import platformdirs

    return platformdirs.user_cache_path("mnistbench")


def mnist_is_to_be_downloaded(data_dir: str | Path | None = None) -> bool:
    """Return whether ``load`` would try to download MNIST. Reads and downloads nothing."""
    return _is_empty(_raw_dir(data_dir))


def _digits() -> Dataset:
    """Return the 1,797 digits, 8x8 in 17 levels, as 28x28 bytes.

    The same bytes on every machine.
    """
    table = torch.tensor(digit_rows())  # int64 [N, 65]
    levels = table[:, :-1].reshape(-1, 1, 8, 8)
    labels = table[:, -1]
    # Integers only: interpolation rounds differently on other machines or in other releases.
    pixels = levels.mul(255).add(_DIGITS_LEVELS // 2).floor_divide(_DIGITS_LEVELS).to(torch.uint8)
    images = functional.pad(
        pixels.repeat_interleave(3, dim=2).repeat_interleave(3, dim=3), (2, 2, 2, 2)
    )
    order = torch.tensor(legacy_permutation(_DIGITS_SEED, len(labels)))
    train = order[:_DIGITS_TRAIN]
    test = order[_DIGITS_TRAIN:]
    return Dataset(
        "digits",
        Split(images[train], labels[train]),
        Split(images[test], labels[test]),
        DIGITS_MEAN,
        DIGITS_STD,
    )


def _parse(images: bytearray, labels: bytearray) -> Split:
    return Split(
        torch.frombuffer(images, dtype=torch.uint8, offset=_IMAGES_HEADER).view(-1, 1, 28, 28),
        torch.frombuffer(labels, dtype=torch.uint8, offset=_LABELS_HEADER).to(torch.int64),
    )


def _raw_dir(data_dir: str | Path | None) -> Path:
    return data_root(data_dir) / "MNIST" / "raw"


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except FileNotFoundError:
        return True


def _read(raw: Path, name: str) -> bytearray:
    """Return a file's content after a check that it is MNIST's.

    A .gz is unpacked in memory, because the folder may be read-only.
    """
    n_bytes, md5 = _MNIST_FILES[name]
    path = raw / name
    try:
        try:
            check_is_file(path)
            stream: io.BufferedIOBase = path.open("rb")
        except FileNotFoundError:
            path = raw / f"{name}.gz"
            check_is_file(path)
            stream = gzip.open(path)  # noqa: SIM115 - closed by the with below, like the plain file
        with stream:
            # One byte more detects a longer file without reading all of it.
            content = bytearray(stream.read(n_bytes + 1))
    except FileNotFoundError:
        raise DataError(f"{raw / name}: missing, and no .gz of it either") from None
    except RecordError as error:
        raise DataError(str(error)) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: {_cause(error)}") from None
    unpacked = " unpacked" if path.suffix == ".gz" else ""
    if len(content) != n_bytes:
        size = f"{len(content):,}" if len(content) < n_bytes else "more"
        raise DataError(f"{path}: expected {n_bytes:,} bytes{unpacked}, found {size}")
    if (found := hashlib.md5(content, usedforsecurity=False).hexdigest()) != md5:
        raise DataError(f"{path}: is not of MNIST: expected the MD5{unpacked} {md5}, found {found}")
    return content


def _download(raw: Path) -> None:
    """Download and unpack the files to a temporary folder beside ``raw``.

    Move it in place when all files are complete.
    """
    try:
        raw.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix="download-", dir=raw.parent, ignore_cleanup_errors=True
        ) as scratch:
            fetched = Path(scratch, "raw")
            fetched.mkdir()
            for name in _MNIST_FILES:
                packed = fetched / f"{name}.gz"
                packed.write_bytes(_fetch(f"{_MNIST_URL}{name}.gz"))
                # Unpacked, as torchvision reads them.
                fetched.joinpath(name).write_bytes(_read(fetched, name))
                packed.unlink()
            try:
                fetched.rename(raw)  # atomic: other processes never see half a download
            except OSError:
                if _is_empty(raw):
                    raise
                # Another process was faster; its files are read like any others.
    except Exception as error:  # noqa: BLE001 - sockets, TLS, proxies, http.client, gzip, the disk
        raise DataError(
            f"{raw}: nothing there, and the download failed ({_cause(error)})"
        ) from None


def _fetch(url: str) -> bytes:
    """Return what the server sends, at most LARGEST_DOWNLOAD bytes.

    Without an answer for a time, as of a firewall that drops packets, this raises.
    """
    import urllib.error  # here: only who has no MNIST needs them
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=_NETWORK_TIMEOUT_S) as answer:  # noqa: S310  # a constant
            content: bytes = answer.read(_LARGEST_DOWNLOAD)
    except urllib.error.HTTPError as error:
        error.close()  # it is an open answer, too
        raise
    return content


@contextlib.contextmanager
def _with_advice(raw: Path) -> Iterator[None]:
    """Turn any failure to read into one line that has the ways to fix it."""
    try:
        yield
    except (DataError, OSError) as error:
        problem = (
            str(error)
            if isinstance(error, DataError)
            else f"{error.filename or raw}: {_cause(error)}"
        )
        raise DataError(
            f"{problem}. Three ways out: (1) start from an empty {raw}: run once with a network, "
            f"or download the four .gz files of {_MNIST_URL} there; (2) let MNISTBENCH_DATA or "
            "--data-dir (pytest: --bench-data-dir) name a folder that has them in MNIST/raw; (3) "
            "--dataset digits (pytest: --bench-dataset digits), which needs no files."
        ) from None


def _cause(error: Exception) -> str:
    """Return an exception's message as one line of bounded length."""
    text = (
        error.strerror
        if isinstance(error, OSError) and error.strerror
        else str(error) or type(error).__name__
    )
    return textwrap.shorten(text, _CAUSE_WIDTH, placeholder=" ...")
