"""``git bisect run mnistbench gate --bisect``.

The exit codes lead to the commit that slowed an operation.
"""

import sys
import textwrap

import pytest
from projects import git

#: The command with trials that are made up: the time of a call is what the tree's file says.
GATE = textwrap.dedent("""
    import contextlib, random, sys

    from mnistbench.cli import main
    from mnistbench.gate.measure import rounds
    from mnistbench.gate.survey import surveying
    from mnistbench.gate.processes.starting import GateError, TrialResult
    from mnistbench.gate.listing import ListedCase, Listing, Listings
    from mnistbench.gate.processes.messages import Efforts, Followed, Spent, Surveys
    from mnistbench.gate.processes.sides.stray import Imports
    from mnistbench.gate.survey.side_surveys import SurveyResult

    CASE = "bench.py::test_step"
    LISTING = Listing({CASE: ListedCase("step", {"device": "cpu", "threads": 1})})

    def speeds(trees):
        return {side: (tree.root / "speed.txt").read_text().strip() for side, tree in trees.items()}

    def survey(request, seed, log, *, shows):
        trees = request.setup.trees
        if "broken" in speeds(trees).values():
            raise GateError("head: speed.txt cannot be measured")
        imports = {side: Imports(str(tree.root)) for side, tree in trees.items()}
        followed = {side: Followed() for side in trees}
        surveys = Surveys(Listings(LISTING, LISTING), imports, followed)
        return SurveyResult(request, surveys, 600.0)

    class Trial:
        def __init__(self, plan, seed):
            self.speeds_us = speeds(plan.setup.trees)
            self.noise = random.Random(seed)

        def ready(self):
            pass

        def measure(self, begins=None):
            def sample(us, spread=0.002):
                return [
                    round(1000 * float(us) * (1 + self.noise.gauss(0, spread))) for _ in range(5)
                ]

            build = {
                side: {
                    "wall_ns": sample(us),
                    "cpu_ns": [],
                    "device_ns": [],
                    "outcome": ["0", 0.0],
                    "parameters": 1,
                    "keys": [["aten::mm", "forward", "fc1"]],
                    "calls": [1],
                    "memory_bytes": [0],
                    "kernels": [[]],
                    "self_ns": [sample(us, 0.01)],
                }
                for side, us in self.speeds_us.items()
            }
            return TrialResult(
                cases={CASE: [build]},
                seconds=1.0,
                once={},
                unmeasurable={},
                spent={CASE: Spent(1.0, Efforts(1, 1), 0, 0)},
            )

    surveying.survey_in_processes = survey
    rounds.running_trial = lambda plan, seed, only, log, cores, *, efforts: contextlib.nullcontext(
        Trial(plan, seed)
    )
    sys.exit(main())
""")


@pytest.mark.usefixtures("alone")
def test_bisecting_finds_the_commit_that_slowed_an_operation(tmp_path):
    repository = tmp_path / "repository"
    script = tmp_path / "gate.py"
    repository.mkdir()
    script.write_text(GATE, encoding="utf-8")
    git(repository, "init", "--quiet")
    (repository / ".gitignore").write_text(".benchmarks\n", encoding="utf-8")
    for number, speed in enumerate(["100", "100", "broken", "100", "110", "110", "110"]):
        (repository / "speed.txt").write_text(f"{speed}\n", encoding="utf-8")
        (repository / "number.txt").write_text(f"{number}\n", encoding="utf-8")
        git(repository, "add", "--all")
        git(repository, "commit", "--quiet", "--message", f"commit {number}")
    good = git(repository, "rev-list", "--max-parents=0", "HEAD")
    git(repository, "bisect", "start", "HEAD", good)
    printed = git(
        repository, "bisect", "run", sys.executable, str(script), "gate", "--bisect", "--base", good
    )
    assert "is the first bad commit" in printed
    assert "commit 4" in printed.split("is the first bad commit", 1)[1]
    assert "regressed: 1 case (" in printed
