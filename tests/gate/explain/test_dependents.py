"""Unchanged functions that take longer because of what changed code hands them."""

from __future__ import annotations

import gate_builders
import pytest
from surveyed import write

from mnistbench.gate.copies import trees
from mnistbench.gate.explain.attribution import causes
from mnistbench.gate.explain.other_changes import with_others
from mnistbench.gate.explain.profiles import measure_profiles
from mnistbench.gate.explain.texts import named
from mnistbench.gate.listing import Reach
from mnistbench.gate.survey.reach.cases import affected
from mnistbench.gate.survey.reach.compared import ComparedCode
from mnistbench.gate.words import BASE

#: Text of the base -> text of the head.
EDITS = {
    "return hash((self.x, self.y))": "return hash(self.x)",
    "list(range(1_000))": "list(range(4_000))",
    "LIMIT = 1_000": "LIMIT = 4_000",
    "store.add(1_000)": "store.add(4_000)",
    "set(range(900))": "list(range(900))",
    "return 'a label'": "return 'another label'",
}

FILES = {
    "pkg/__init__.py": "",
    "pkg/point.py": """
class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __eq__(self, other):
        return self.x == other.x and self.y == other.y

    def __hash__(self):
        return hash((self.x, self.y))
""",
    "pkg/make.py": """
LIMIT = 1_000

def make():
    return list(range(1_000))

def limited():
    return list(range(LIMIT))

def known():
    return set(range(900))

def label():
    return 'a label'
""",
    "pkg/store.py": """
ITEMS = []

def add(number):
    ITEMS.extend(range(number))
""",
    "pkg/registry.py": "from pkg import store\n\nstore.add(1_000)\n",
    "pkg/work.py": """
def index(points):
    return {point: number for number, point in enumerate(points)}

def total(items):
    result = 0
    for item in items:
        result += item
    return result

def shared(items):
    return [number for number in range(500) if number in items]
""",
    "tests/conftest.py": """
import pytest

@pytest.fixture
def data():
    return list(range(1_000))
""",
    "tests/test_all.py": """
import json
from pathlib import Path

import pytest

from pkg import make
from pkg.point import Point
from pkg.store import ITEMS
from pkg.work import index, shared, total
import pkg.registry

DATA = Path(__file__).with_name("data.json")

@pytest.fixture
def read():
    return json.loads(DATA.read_text())

def test_hash(benchmark):
    benchmark(index, [Point(i % 10, i) for i in range(200)])

def test_fixture(benchmark, data):
    benchmark(total, data)

def test_file(benchmark, read):
    benchmark(total, read)

def test_producer(benchmark):
    benchmark(lambda: total(make.make()))

def test_producer_beside_a_harmless_change(benchmark):
    benchmark(lambda: make.label() and total(make.make()))

def test_producer_outside(benchmark):
    benchmark(total, make.make())

def test_constant(benchmark):
    benchmark(lambda: total(make.limited()))

def test_other_type(benchmark):
    benchmark(lambda: shared(make.known()))

def test_import(benchmark):
    benchmark(total, ITEMS)
""",
}

#: Name of the test -> its first cause, as reports name it.
FIRST = {
    "hash": "pkg/point.py:Point.__hash__ (changed)",
    "fixture": "the changed fixture tests/conftest.py:data",
    "file": "the changed file tests/data.json",
    "producer": "pkg/make.py:make (changed)",
    "producer_beside_a_harmless_change": "pkg/make.py:make (changed)",
    "producer_outside": "pkg/make.py:make (changed)",
    "constant": "pkg/make.py:limited, which uses LIMIT (pkg/make.py:2 changed)",
    "other_type": "pkg/make.py:known (changed)",
    "import": "pkg/registry.py:3 (changed), which runs at import",
}


def project(side):
    size = 1_000 if side == BASE else 4_000
    texts = dict(FILES)
    for old, new in EDITS.items() if side != BASE else ():
        texts = {path: text.replace(old, new) for path, text in texts.items()}
    return texts | {"tests/data.json": str(list(range(size)))}


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """Name of each test -> its causes, from one trial."""
    folder = tmp_path_factory.mktemp("dependents")
    plan = gate_builders.plan(folder, "tests")
    for side, tree in plan.setup.trees.items():
        write(tree.root, project(side))
    differing = trees.all_differing(tuple(plan.setup.trees.values()))
    result = gate_builders.surveyed(plan, folder)
    surveys = result.surveys
    code = ComparedCode(plan.setup.trees, surveys.imports, surveys.followed, differing)
    reasons = affected(code, surveys.listings, ())
    profiles = measure_profiles(result.trial_plan(), 2, list(reasons), folder / "log", code)
    header = gate_builders.header(reach=Reach(is_known=True, reasons=reasons))
    return {
        node_id.partition("::test_")[2]: causes(
            with_others(profile, node_id, header, code), only_tree=True
        )
        for node_id, profile in profiles.items()
    }


@pytest.mark.parametrize("test", FIRST)
def test_what_changed_is_the_first_cause_and_not_the_unchanged_function(explained, test):
    assert named(explained[test].functions[0].profiled) == FIRST[test]
    assert explained[test].spent is not None
