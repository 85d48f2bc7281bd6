"""A fault of ours must not look like a verdict."""

from __future__ import annotations

import pytest

from mnistbench import cli


@pytest.mark.parametrize(("arguments", "code"), [(["env"], 2), (["gate", "--bisect", "--base", "HEAD"], 128)], ids=str)
def test_a_fault_of_ours_is_a_traceback_and_no_regression(monkeypatch, capsys, arguments, code):
    def fault(_):
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(cli, "_env", fault)
    monkeypatch.setattr(cli, "_gate", fault)
    assert cli.main(arguments) == code
    assert capsys.readouterr().err.splitlines()[-1] == "ZeroDivisionError: a fault"


@pytest.mark.parametrize("word", ["--bisect", "--bis"])
def test_an_interrupted_bisection_blames_no_commit(monkeypatch, word):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_gate", interrupted)
    assert cli.main(["gate", word, "--base", "HEAD"]) == 128
    assert cli.main(["gate", "--base", "HEAD"]) == 2
