"""The values that a recipe gives, and the learning rate of each step."""

from __future__ import annotations

import pytest

from mnistbench.suite.train.recipe import learning_rate, with_recipe
from mnistbench.suite.train.result import FASTEST, Settings


def test_a_recipe_gives_the_options_that_the_command_line_does_not() -> None:
    settings = with_recipe(
        Settings(recipe=FASTEST, lr=0.02, given_fields=frozenset({"recipe", "lr"}))
    )
    assert settings.model == "smallnet"
    assert settings.batch_size == 128
    assert settings.epochs == 1
    assert settings.lr == 0.02
    assert settings.dtype == "auto"


def test_the_recipe_of_pytorch_examples_changes_no_option() -> None:
    settings = Settings(lr=0.02, given_fields=frozenset({"lr"}))
    assert with_recipe(settings) == settings


def test_without_warm_up_the_learning_rate_falls_after_each_epoch() -> None:
    settings = Settings(lr=0.5, gamma=0.5, epochs=3)
    steps = [(1, 1), (1, 4), (2, 5), (3, 12)]
    rates = [learning_rate(settings, epoch, step, 4) for epoch, step in steps]
    assert rates == [0.5, 0.5, 0.25, 0.125]


def test_with_warm_up_it_rises_in_a_quarter_of_the_run_and_then_falls() -> None:
    settings = Settings(recipe=FASTEST, lr=0.6, gamma=0.5, epochs=2)
    rates = [learning_rate(settings, 1 + (step > 4), step, 4) for step in range(1, 9)]
    shares = [4 / 9, 8 / 9, 8 / 9, 20 / 27, 16 / 27, 12 / 27, 8 / 27, 4 / 27]
    assert rates == pytest.approx([0.6 * share for share in shares])


def test_a_dry_run_has_one_epoch() -> None:
    settings = Settings(recipe=FASTEST, lr=0.6, epochs=9, dry_run=True)
    assert learning_rate(settings, 1, 2, 4) == pytest.approx(0.6 * (1 - 2 / 5) / (1 - 1 / 4))
