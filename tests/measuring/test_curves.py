"""Training curves that a later session takes from disk.

The same result, and never one of another computation.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_builders import (
    LossSpy,
    Untraceable,
    no_bar,
    read_back,
    scalars_in,
    tiny_batch,
    tiny_params,
    tiny_set,
    tiny_workload,
    whole_tiny_set,
)

from mnistbench.core.record import Scalars
from mnistbench.measuring import curves
from mnistbench.measuring import tensorboard as tracking
from mnistbench.measuring.curves import CurveStore, sources
from mnistbench.measuring.tensorboard import CHECKED_STEPS, Tracker
from mnistbench.workloads.data import Batch, Dataset
from mnistbench.workloads.workload import Workload, number_correct

STEPS = 8


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training run of eight batches of four."""
    monkeypatch.setattr(tracking, "CURVE_SAMPLES", 4 * STEPS)


class Sessions:
    """Sessions one after the other with one store.

    The number of steps that each took is in ``steps``.
    """

    def __init__(self, root: Path) -> None:
        self.store = root / "curves"
        self.steps: list[int] = []
        self._root = root

    def run(
        self, workload: Workload | None = None, *, tensorboard: bool = True, **changes: Any
    ) -> Scalars:
        workload = workload or with_set
        spy = LossSpy()
        loss = workload.loss

        def spied(output: Tensor, targets: Tensor) -> Tensor:
            if torch.is_grad_enabled():
                spy(output, targets)
            return loss(output, targets)

        directory = self._root / f"session{len(self.steps)}" if tensorboard else None
        tracker = Tracker(directory, no_bar, CurveStore(self.store))
        scalars, self.notes = tracker.training(
            tiny_params(**changes), dataclasses.replace(workload, loss=spied)
        )
        self.steps.append(len(spy.values))
        return scalars

    def entries(self) -> list[Path]:
        return sorted(self.store.iterdir())


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path)


with_set = tiny_workload(load=whole_tiny_set, dataset="tiny")
REUSED = CHECKED_STEPS
COMPUTED = STEPS
#: A stored curve was found, and its check failed.
REFUSED = CHECKED_STEPS + STEPS


def without_directory(scalars: Scalars) -> Scalars:
    return dataclasses.replace(scalars, directory="")


@pytest.mark.parametrize("tensorboard", [True, False])
def test_a_later_session_takes_the_curve_from_disk(sessions: Sessions, tensorboard: bool) -> None:
    first, later = (sessions.run(tensorboard=tensorboard) for _ in range(2))
    assert sessions.steps == [COMPUTED, REUSED]
    assert without_directory(first) == without_directory(later)


def test_tensorboard_shows_the_curve_graph_and_images_in_the_directory_of_the_later_session(
    sessions: Sessions,
) -> None:
    first, later = (sessions.run() for _ in range(2))
    assert Path(later.directory).parent.name == "session1"
    one = read_back(first.directory)
    other = read_back(later.directory)
    assert scalars_in(later.directory) == scalars_in(first.directory)
    assert len(other.Scalars("train/loss")) == STEPS
    [tag] = other.Tags()["images"]
    assert other.Images(tag)[0].encoded_image_string == one.Images(tag)[0].encoded_image_string
    assert "hidden" in str(other.Graph())
    assert str(other.Graph()) == str(one.Graph())


def test_notes_are_kept(sessions: Sessions) -> None:
    workload = dataclasses.replace(with_set, make_model=Untraceable)
    for _ in range(2):
        sessions.run(workload)
        assert sessions.notes == ("no model graph: RuntimeError: cannot be traced",)
    assert sessions.steps == [COMPUTED, REUSED]


def test_the_random_state_is_restored(sessions: Sessions) -> None:
    sessions.run()
    before = torch.random.get_rng_state()
    sessions.run()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_training_run_of_one_step(sessions: Sessions) -> None:
    first, later = (sessions.run(batch_size=4 * STEPS) for _ in range(2))
    assert sessions.steps == [1, 1]
    assert without_directory(first) == without_directory(later)


def test_a_loss_that_is_not_finite_is_kept_as_none(sessions: Sessions) -> None:
    def diverged(output: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.nll_loss(output, targets) + math.nan

    first, later = (sessions.run(tiny_workload(loss=diverged)) for _ in range(2))
    assert sessions.steps == [COMPUTED, REUSED]
    assert later.final["train/loss"] is None
    assert without_directory(first) == without_directory(later)


# ---- What makes a curve another one --------------------------------------------------------------


def sgd(**settings: Any) -> Callable[..., torch.optim.Optimizer]:
    return functools.partial(torch.optim.SGD, **{"lr": 0.5, **settings})


def brighter(device: torch.device) -> Dataset:
    """The test set is another one, the training set is not."""
    whole = tiny_set()
    return dataclasses.replace(
        whole, test=dataclasses.replace(whole.test, images=whole.test.images + 1)
    )


def brighter_batch(*arguments: Any) -> Batch:
    images, labels = tiny_batch(*arguments)
    return images + 0.001, labels


def wider_model() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 9), nn.ReLU(), nn.Linear(9, 3), nn.LogSoftmax(dim=1)
    )


@pytest.mark.parametrize(
    "change",
    [
        {"make_model": wider_model},
        {"make_batch": brighter_batch},
        {"make_optimizer": sgd(lr=0.501)},
        {"make_optimizer": sgd(weight_decay=0.001)},
        {"make_optimizer": sgd(momentum=0.1)},
        {"loss": functools.partial(nn.functional.nll_loss, weight=torch.tensor([1.0, 1.0, 1.1]))},
        {"metric": lambda output, targets: number_correct(output, targets) * 0},
        {"metric": None},
        {"load": brighter},
        {"load": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_that_the_key_does_not_have_is_found_by_the_first_steps(
    sessions: Sessions, change: dict[str, Any]
) -> None:
    """Of a setting in a file that the workload reads, nothing is said.

    Parameters, versions and sources do not have it.
    """
    sessions.run()
    changed = dataclasses.replace(with_set, **change)
    found = sessions.run(changed)
    assert sessions.steps == [COMPUTED, REFUSED]
    assert without_directory(found) == Tracker(None, no_bar).training(tiny_params(), changed)[0]
    sessions.run(changed)
    assert sessions.steps[-1] == REUSED  # it took the place of the other


@pytest.mark.parametrize(
    "changes", [{"batch_size": 8}, {"dtype": "bfloat16"}, {"seed": 2}, {"threads": 2}]
)
def test_other_parameters_have_an_entry_of_their_own(
    sessions: Sessions, changes: dict[str, Any]
) -> None:
    sessions.run()
    sessions.run(**changes)
    assert sessions.steps[-1] >= STEPS // 2
    assert len(sessions.entries()) == 2
    sessions.run()
    assert sessions.steps[-1] == REUSED


@pytest.mark.parametrize("name", ["_versions", "sources"])
def test_other_code_has_an_entry_of_its_own(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    sessions.run()
    monkeypatch.setattr(curves, name, lambda: "other")
    sessions.run()
    assert sessions.steps == [COMPUTED, COMPUTED]


def test_a_module_that_training_loads_does_not_change_the_entry(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = iter(["before", "after", "before"])
    monkeypatch.setattr(curves, "sources", lambda: next(hashes))
    sessions.run()
    next(hashes)
    sessions.run()
    assert sessions.steps == [COMPUTED, REUSED]


def test_sources_are_those_of_loaded_modules_that_are_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str, text: str) -> str:
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec
        monkeypatch.setitem(sys.modules, name, importlib.util.module_from_spec(spec))
        return sources()

    before = sources()
    with_module = load("of_a_project", "RATE = 1")
    assert len({before, with_module, load("of_a_project", "RATE = 2")}) == 3
    assert load("of_a_project", "RATE = 1") == with_module
    (tmp_path / "of_a_project.py").unlink()
    assert sources() != with_module  # and no error
    monkeypatch.delitem(sys.modules, "of_a_project")
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    with_site = sources()
    assert load("installed", "RATE = 1") == with_site


# ---- Files ---------------------------------------------------------------------------------------


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def of_other_fields(content: bytes) -> bytes:
    fields = b'{"check": 1}\n'
    return curves._sha256(fields).encode() + b"\n" + fields


@pytest.mark.parametrize(
    "damage", [cut, flip, of_other_fields, lambda _: b"", lambda _: b"\xff\n\xff"]
)
def test_a_damaged_entry_is_computed_again_and_replaced(
    sessions: Sessions, damage: Callable[[bytes], bytes]
) -> None:
    first = sessions.run()
    [entry] = sessions.entries()
    entry.write_bytes(damage(entry.read_bytes()))
    again = sessions.run()
    later = sessions.run()
    assert sessions.steps == [COMPUTED, COMPUTED, REUSED]
    assert without_directory(first) == without_directory(again) == without_directory(later)


def test_a_store_that_cannot_be_written_costs_only_time(sessions: Sessions) -> None:
    sessions.store.write_text("a file in the way")
    first, later = (sessions.run() for _ in range(2))
    assert sessions.steps == [COMPUTED, COMPUTED]
    assert without_directory(first) == without_directory(later)


def test_a_curve_without_event_file_is_computed_again_for_tensorboard(sessions: Sessions) -> None:
    for tensorboard in (False, True, False, True):
        sessions.run(tensorboard=tensorboard)
    assert sessions.steps == [COMPUTED, COMPUTED, REUSED, REUSED]


def test_entries_that_were_used_last_are_kept(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1_000, 2_000))
    monkeypatch.setattr(curves, "MAX_ENTRIES", 2)
    utime = curves.os.utime

    def at_a_time_of_its_own(path: Path) -> None:
        utime(path, (now := next(clock), now))

    monkeypatch.setattr(curves.os, "utime", at_a_time_of_its_own)
    for seed in (1, 2):
        sessions.run(seed=seed)
        utime(max(sessions.entries(), key=lambda path: path.stat().st_mtime), (seed, seed))
    sessions.run(seed=1)  # now older than 2 in its making, not in its use
    sessions.run(seed=3)
    assert len(sessions.entries()) == 2
    sessions.run(seed=1)
    sessions.run(seed=2)
    assert sessions.steps[-2:] == [REUSED, COMPUTED]
