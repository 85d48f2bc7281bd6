"""Benchmarks of the head that measure the base as well."""

from pathlib import Path

import gate_builders
import pytest

from mnistbench.gate.decide.verdict.reasons import probable_new_name
from mnistbench.gate.options import OWN_TESTS, GateOptions
from mnistbench.gate.survey.surveying import survey_sides
from mnistbench.gate.words import BASE, HEAD
from mnistbench.showing.progress import Progress

#: Of both sides; the head's differs.
WORK = {
    BASE: "def work(n):\n    return sum(range(n))\n",
    HEAD: "def work(n):\n    return sum(list(range(n)))\n\n\ndef other():\n    return 1\n",
}

ALIKE = "from work import work\n\n\ndef test_alike(benchmark):\n    benchmark(work, 100)\n"
RENAMED = ALIKE.replace("test_alike", "test_small")

HELPED = """
def helper():
    return {}


def test_helped(benchmark):
    benchmark(helper)
"""

#: Text of a benchmark -> of the base and of the head.
FILES = {
    "benchmarks/test_new_folder.py": {
        HEAD: "from helpers import work\n\n\ndef test_helped(benchmark, size):\n"
        "    benchmark(work, size)\n"
    },
    "benchmarks/helpers.py": {HEAD: "from work import work as work\n"},
    "benchmarks/conftest.py": {
        HEAD: "import pathlib\n\nimport pytest\n\n\n@pytest.fixture\ndef size():\n"
        "    return len(list(pathlib.Path(__file__).with_name('data').glob('*')))\n"
    },
    "benchmarks/data/a.txt": {HEAD: "a"},
    "test_alike.py": {BASE: ALIKE, HEAD: ALIKE},
    "test_new.py": {HEAD: ALIKE.replace("alike", "new")},
    "test_new_module.py": {
        HEAD: "from new_module import made\n\n\ndef test_made(benchmark):\n    benchmark(made)\n"
    },
    "test_new_function.py": {
        HEAD: "import work\n\n\ndef test_other(benchmark):\n    benchmark(work.other)\n"
    },
    "test_text.py": {
        BASE: ALIKE.replace("alike", "text"),
        HEAD: ALIKE.replace("alike", "text").replace("100", "50 + 50"),
    },
    "test_api.py": {
        BASE: ALIKE.replace("alike", "api"),
        HEAD: "import work\n\n\ndef test_api(benchmark):\n    benchmark(work.other)\n",
    },
    "test_helper.py": {
        BASE: HELPED.format(1),
        HEAD: HELPED.format(2),
    },
    "test_renamed.py": {
        BASE: RENAMED,
        HEAD: RENAMED.replace("small", "smaller"),
    },
}


@pytest.fixture(scope="module")
def header_of(tmp_path_factory):
    """Return what a gate begins with, by the value of ``--tests``."""

    def surveyed(tests: str | None):
        folder = tmp_path_factory.mktemp("gate")
        setup = gate_builders.plan(folder).setup
        for side, tree in setup.trees.items():
            (tree.root / "pytest.ini").write_text("[pytest]\n")
            (tree.root / "work.py").write_text(WORK[side])
            for name, texts in FILES.items():
                if side in texts:
                    (tree.root / name).parent.mkdir(parents=True, exist_ok=True)
                    (tree.root / name).write_text(texts[side])
        (setup.trees[HEAD].root / "new_module.py").write_text("made = list\n")
        (setup.trees[HEAD].root / "pkg").mkdir()
        (setup.trees[HEAD].root / "pkg/rules.json").write_text("{}")
        options = GateOptions(tests=tests)
        result = survey_sides(options, setup, 0.0, folder, 1, folder / "log", Progress(None))
        return result.header, setup.trees[BASE].root

    known = {}

    def surveyed_once(tests):
        if tests not in known:
            known[tests] = surveyed(tests)
        return known[tests]

    return surveyed_once


def texts(base: Path) -> dict[str, str]:
    return {name: (base / name).read_text() for name in FILES if (base / name).exists()}


def own_texts(side: str) -> dict[str, str]:
    return {name: both[side] for name, both in FILES.items() if side in both}


def test_new_benchmarks_and_those_whose_text_changed_measure_both_sides(header_of):
    header, base = header_of(None)
    assert header.carried == (
        "benchmarks/conftest.py",
        "benchmarks/data/a.txt",
        "benchmarks/helpers.py",
        "benchmarks/test_new_folder.py",
        "test_new.py",
        "test_new_function.py",
        "test_text.py",
    )
    assert not (base / "pkg").exists(), "it is the product's"
    assert {
        "test_alike.py::test_alike",
        "test_new.py::test_new",
        "test_text.py::test_text",
        "benchmarks/test_new_folder.py::test_helped",
    } <= {*header.labels}
    carried = {name: FILES[name][HEAD] for name in header.carried}
    assert texts(base) == own_texts(BASE) | carried


def test_a_benchmark_that_the_base_cannot_run_is_new(header_of):
    header, _ = header_of(None)
    assert {"test_new_module.py::test_made", "test_new_function.py::test_other"} <= {
        *header.sides.only_head
    }
    why = header.sides.base.cannot_run
    assert why["test_new_module.py"].startswith("ModuleNotFoundError: No module named 'new_module'")
    assert "has no attribute 'other'" in why["test_new_function.py::test_other"]
    assert not header.sides.fails_in_head
    assert not header.sides.unmeasurable


def test_a_benchmark_for_which_the_base_needs_its_own_text_keeps_it(header_of):
    header, _ = header_of(None)
    assert "test_api.py::test_api" in header.labels
    assert "test_api.py" not in header.carried


def test_a_file_whose_other_functions_differ_is_not_carried(header_of):
    header, _ = header_of(None)
    assert header.reach.reasons["test_helper.py::test_helped"]
    assert "test_helper.py" not in header.carried


def test_a_missing_benchmark_still_lacks(header_of):
    header, _ = header_of(None)
    assert header.sides.only_base == ("test_renamed.py::test_small",)


def test_all_benchmarks_of_the_head_measure_both_sides_if_they_are_asked_for(header_of):
    header, base = header_of(HEAD)
    assert texts(base) == {
        name: text for name, text in own_texts(HEAD).items() if name != "test_new_module.py"
    }
    assert "test_renamed.py::test_smaller" in header.labels
    assert "test_api.py::test_api" in header.sides.base.cannot_run
    lost = ("test_api.py::test_api", "test_renamed.py::test_small")
    assert header.sides.base.left_out == dict.fromkeys(
        lost, "is in the base's own benchmarks alone"
    )


def test_each_side_may_run_its_own(header_of):
    header, base = header_of(OWN_TESTS)
    assert header.carried == ()
    assert texts(base) == own_texts(BASE)


@pytest.mark.parametrize(
    ("case", "new", "renamed"),
    [
        ("a.py::test_small", ["a.py::test_smaller", "a.py::test_other"], "a.py::test_smaller"),
        ("a.py::test_small", ["b.py::test_small"], "b.py::test_small"),
        ("a.py::test_small", ["a.py::test_network", "b.py::test_smaller"], ""),
        ("a.py::test_small[1]", ["a.py::test_small[2]"], "a.py::test_small[2]"),
        ("a.py::test_small", [], ""),
    ],
)
def test_a_renamed_benchmark_is_known_by_its_name(case, new, renamed):
    assert probable_new_name(case, new) == renamed


def test_the_base_runs_its_own_benchmarks_if_it_cannot_be_surveyed_with_those_of_the_head(tmp_path):
    setup = gate_builders.plan(tmp_path).setup
    for side, tree in setup.trees.items():
        (tree.root / "pytest.ini").write_text("[pytest]\n")
        (tree.root / "work.py").write_text(WORK[side])
        (tree.root / "test_alike.py").write_text(ALIKE)
    new = setup.trees[HEAD].root / "benchmarks"
    new.mkdir()
    (new / "test_new.py").write_text(ALIKE.replace("alike", "new"))
    (new / "conftest.py").write_text("from work import other\n")
    options = GateOptions(pytest=(".",))
    log = tmp_path / "log"
    header = survey_sides(options, setup, 0.0, tmp_path, 1, log, Progress(None)).header
    assert header.carried == ()
    assert not (setup.trees[BASE].root / "benchmarks").exists() or not list(
        (setup.trees[BASE].root / "benchmarks").glob("*.py")
    )
    assert header.sides.only_head == ("benchmarks/test_new.py::test_new",)
