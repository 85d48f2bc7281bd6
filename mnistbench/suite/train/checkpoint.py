"""The state of a training run after an epoch, in a file that is written whole or not at all.

A run that continues from it has the losses of a run that was never interrupted.
"""

from __future__ import annotations

import io
import pickle
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mnistbench.core.errors import RecordError, UsageError, first_line
from mnistbench.core.files import check_is_file, replace_file
from mnistbench.core.reading import Nanoseconds, Positive, member
from mnistbench.suite.train.result import CHECKPOINT, EpochResult, Point, Settings
from mnistbench.suite.workloads.adadelta import Optimizer

#: Version of the file.
SCHEMA = 1


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a run needs to continue after an epoch."""

    settings: Settings
    model: dict[str, Any]  # state_dict
    optimizer: dict[str, Any]  # state_dict
    order: torch.Tensor  # state of the generator of the samples' order
    random: tuple[tuple[torch.Tensor, ...], ...]  # of each rank, the result of random_state
    steps: int  # training batches so far
    epochs: tuple[EpochResult, ...]
    points: tuple[Point, ...]
    wall_ns: int

    def save(self, directory: Path) -> None:
        """Replace the checkpoint of a run's directory.

        Raises:
            OSError: it cannot be written; the previous one is unchanged.
        """
        values = {
            name: getattr(self, name)
            for name in ("model", "optimizer", "order", "random", "steps", "wall_ns")
        }
        results = {
            name: [asdict(result) for result in getattr(self, name)]
            for name in ("epochs", "points")
        }
        stream = io.BytesIO()
        torch.save({"schema": SCHEMA, "settings": self.settings.saved, **values, **results}, stream)
        replace_file(directory / CHECKPOINT, stream.getvalue())

    def restore(self, model: nn.Module, optimizer: Optimizer) -> torch.Generator:
        """Give model and optimizer their state, and return the generator of the samples' order.

        Raises:
            UsageError: it is the state of others.
        """
        try:
            model.load_state_dict(self.model)
            optimizer.load_state_dict(self.optimizer)
        except (RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"--resume: {CHECKPOINT} has the state of another model or optimizer "
                f"({first_line(error)[:120]}); train anew"
            ) from None
        generator = torch.Generator()
        generator.set_state(self.order)
        return generator


def load(directory: Path) -> Checkpoint:
    """Read the checkpoint of a run's directory."""
    path = directory / CHECKPOINT
    if path.exists():
        try:
            check_is_file(path)
        except RecordError as error:
            raise UsageError(f"--resume: {error}") from None
    try:
        _check_sums(path)
        values = torch.load(path, map_location="cpu", weights_only=True)
        schema = values.pop("schema")
        if schema != SCHEMA:
            raise UsageError(
                f"--resume: {path} has version {schema}, and this mnistbench reads {SCHEMA}; "
                "train anew"
            )
        records = {name: values.pop(name) for name in ("settings", "epochs", "points")}
        settings = Settings(**member(records, "settings", Mapping[str, Any]))
        epochs = member(records, "epochs", tuple[EpochResult, ...])
        points = member(records, "points", tuple[Point, ...])
        member(values, "steps", Positive)
        member(values, "wall_ns", Nanoseconds)
        torch.Generator().set_state(values["order"])
        return Checkpoint(settings=settings, epochs=epochs, points=points, **values)
    except FileNotFoundError:
        raise UsageError(
            f"--resume: {directory} has no {CHECKPOINT}, which a run writes after each epoch; "
            "name the directory of a run"
        ) from None
    except OSError as error:
        raise UsageError(f"--resume: {path} cannot be read ({error.strerror or error})") from None
    except (
        RuntimeError,
        pickle.UnpicklingError,
        EOFError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecordError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise UsageError(
            f"--resume: {path} is damaged or no checkpoint ({first_line(error)[:120]}); train anew"
        ) from None


def _check_sums(path: Path) -> None:
    """Compare the checksums of a file of torch, which writes them and does not compare them.

    Raises:
        RecordError: a part of the file is another one.
        zipfile.BadZipFile: it is no such file.
    """
    with zipfile.ZipFile(path) as archive:
        # A small file could become a large one.
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise RecordError("it has compressed parts, which torch does not write")
        if damaged := archive.testzip():
            raise RecordError(f"the checksum of {damaged} is another one")


def random_state(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return the states of the generators that training draws from.

    Those are the generator of the CPU and that of another device.
    """
    own = torch.get_rng_state()
    return (
        (own,)
        if device.type == "cpu"
        else (own, torch.get_device_module(device).get_rng_state(*_of(device)))
    )


def set_random_state(states: Sequence[torch.Tensor], device: torch.device) -> None:
    """Set what :func:`random_state` returned."""
    torch.set_rng_state(states[0])
    if device.type != "cpu" and len(states) > 1:
        torch.get_device_module(device).set_rng_state(states[1], *_of(device))


def _of(device: torch.device) -> tuple[torch.device, ...]:
    """Return the argument that names a device; mps has one device and no such argument."""
    return () if device.type == "mps" else (device,)
