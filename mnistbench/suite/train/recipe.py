"""Recipes of ``mnistbench train``: values of options, and the learning rate of each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mnistbench.suite.train.result import AUTO, EXAMPLES, FASTEST, Settings
from mnistbench.suite.workloads.builtin import SMALLNET


@dataclass(frozen=True)
class Recipe:
    """What a recipe sets."""

    values: Mapping[str, Any]  # of options that the command line does not give, by field
    # Share of the steps of a run in which the learning rate rises; 0: it is constant in an epoch.
    warm_up: float = 0.0


RECIPES = {
    EXAMPLES: Recipe({}),
    FASTEST: Recipe(
        {"model": SMALLNET, "batch_size": 128, "epochs": 1, "lr": 0.01, "dtype": AUTO}, warm_up=0.25
    ),
}


def with_recipe(settings: Settings) -> Settings:
    """Return the settings of a new run.

    Options that were not given have the values of its recipe.
    """
    values = RECIPES[settings.recipe].values
    return replace(
        settings,
        **{name: value for name, value in values.items() if name not in settings.given_fields},
    )


def learning_rate(settings: Settings, epoch: int, step: int, steps_per_epoch: int) -> float:
    """Return the learning rate of a step, by the recipe of the run.

    Without warm-up ``--gamma`` reduces it after each epoch, as StepLR in pytorch/examples. With
    warm-up it rises to ``--lr`` and then falls to 0 in one cycle over all epochs: Smith and Topin,
    "Super-convergence" (2018), with straight lines.

    Args:
        settings: of the run.
        epoch: of the step, from 1.
        step: of the run, from 1.
        steps_per_epoch: training batches of an epoch.
    """
    warm_up = RECIPES[settings.recipe].warm_up
    if not warm_up:
        rate = settings.lr
        for _ in range(epoch - 1):
            rate *= settings.gamma
        return rate
    share = step / (settings.epochs_to_train * steps_per_epoch + 1)  # neither 0 nor 1
    return settings.lr * (share / warm_up if share < warm_up else (1 - share) / (1 - warm_up))
