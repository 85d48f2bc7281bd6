"""Recipes of ``mnistbench train``.

Values of options that the command line does not give, and the learning rate of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mnistbench.core.params import SMALLNET
from mnistbench.train.result import AUTO, EXAMPLES, FASTEST, Settings


@dataclass(frozen=True)
class Recipe:
    """Values of options, by field; and the learning rate over a run."""

    values: Mapping[str, Any]
    # Share of the steps; 0: the rate is constant in an epoch, and ``gamma`` reduces it after each.
    warm_up: float = 0.0

    def rate(self, done: float) -> float:
        """Return the factor of the learning rate after a share of the steps.

        It rises to 1, then falls to 0 (one cycle).

        Smith and Topin, "Super-convergence" (2018), with straight lines.
        """
        return done / self.warm_up if done < self.warm_up else (1 - done) / (1 - self.warm_up)


RECIPES = {
    EXAMPLES: Recipe({}),
    FASTEST: Recipe(
        {"model": SMALLNET, "batch_size": 128, "epochs": 1, "lr": 0.01, "dtype": AUTO}, warm_up=0.25
    ),
}


def with_recipe(settings: Settings) -> Settings:
    """Return the settings of a new run.

    With the values of its recipe for options that were not given.
    """
    values = RECIPES[settings.recipe].values
    return replace(
        settings, **{name: value for name, value in values.items() if name not in settings.given}
    )
