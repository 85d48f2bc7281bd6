"""Repositories of git that know nothing of this machine, verdicts of each outcome, and surveys.

And a folder for temporary files that no other gate uses.
"""

import os
import tempfile

import pytest
from gate_scenes import SCENES
from surveyed import Surveyor

from mnistbench.gate.decide.statistics import permutation


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """No configuration of git, and no repository around the folder of the test."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("LC_ALL", "C")  # git's messages in English
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "somebody@example.org")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture(scope="module")
def scenes():
    """Each verdict once, its sixteen trials by all their exchanges.

    Golden files depend on numpy's uniform random numbers.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(permutation, "EXCHANGES", 2**16)
        return {name: scene() for name, scene in SCENES.items()}


@pytest.fixture(scope="session")
def surveyor(tmp_path_factory):
    """One process that surveys trees in forks."""
    surveyor = Surveyor(tmp_path_factory.mktemp("surveys"))
    yield surveyor
    surveyor.close()
