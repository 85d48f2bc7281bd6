"""The models and datasets that mnistbench has, by name; nothing here imports torch."""

from __future__ import annotations

from mnistbench.core.params import FAST, REFERENCE

#: The models that ``pytest bench`` measures unless ``--bench-model`` names others.
SUITE_MODELS = ("convnet", "lenet5")
#: The model of ``mnistbench train --recipe fastest``.
SMALLNET = "smallnet"
#: All models.
MODELS = (*SUITE_MODELS, SMALLNET)

DATASETS = ("digits", "mnist")


def default_step(device: str) -> str:
    """Return the step of complete training runs: the fast one where it was measured."""
    return FAST if device == "cpu" else REFERENCE
