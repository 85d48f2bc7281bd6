"""Changes of code that torch.compile compiles, so that its functions are not seen to run."""

from __future__ import annotations

import pytest
from changed_projects import SECOND, edited

pytestmark = pytest.mark.usefixtures("torch")

#: Called by the second test: compiled by Dynamo without Inductor, which needs a compiler of C++.
COMPILED = """
## pkg/b.py
import torch
from pkg.c import work

X = torch.ones(100)
compiled = torch.compile(work, backend="eager")

def run():
    return float(compiled(X).sum())
"""

CHANGES = {
    "a function that a compiled one calls": edited(
        f"""{COMPILED}
## pkg/c.py
def step(x):
    return x + 1

def work(x):
    return step(x) * 2
""",
        "x + 1",
        "x + 2",
        reached={SECOND},
    ),
    "a function that the compiled one does not call": edited(
        f"""{COMPILED}
## pkg/c.py
def other(x):
    return x + 1

def work(x):
    return x * 2
""",
        "x + 1",
        "x + 2",
        reached=set(),
    ),
    "the rest of a function after a graph break": edited(
        f"""{COMPILED}
## pkg/c.py
def work(x):
    if x.sum().item() > 0:
        x = x + 1
    return x * 2
""",
        "x * 2",
        "x * 3",
        reached={SECOND},
    ),
    "a branch of code that asks whether it is compiled": edited(
        f"""{COMPILED}
## pkg/c.py
import torch

def fast(x):
    return x + 1

def work(x):
    if torch.compiler.is_compiling():
        return fast(x)
    return x * 2
""",
        "x + 1",
        "x + 2",
        reached={SECOND},
    ),
    "a backend of the project": edited(
        """
## pkg/b.py
import torch
from pkg.c import backend

X = torch.ones(100)

@torch.compile(backend=backend)
def work(x):
    return x * 2

def run():
    return float(work(X).sum())
## pkg/c.py
def backend(graph, inputs):
    return graph.forward
""",
        "    return graph.forward",
        "    graph.recompile()\n    return graph.forward",
        reached={SECOND},
    ),
    "a function that fails unless it is compiled": edited(
        f"""{COMPILED}
## pkg/c.py
import torch

def work(x):
    if not torch.compiler.is_dynamo_compiling():
        raise RuntimeError("only compiled")
    return x * 2
""",
        "x * 2",
        "x * 3",
        reached={SECOND},
    ),
}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(change, id=name, marks=() if position < 2 else pytest.mark.thorough)
        for position, (name, change) in enumerate(CHANGES.items())
    ],
)
def test_compiled_functions_are_followed(surveyor, change):
    reach = surveyor.reached(*change.sides)
    assert {*reach.reasons} == change.reached, reach.reasons
