"""Of pytest's arguments, what a side has.

Folders, files and single tests that only the other side has are left out.
"""

from types import SimpleNamespace

import pytest

from mnistbench.gate.processes.sides.requested import Requested


@pytest.fixture
def requested(tmp_path):
    for file in ("bench/test_a.py", "bench/test_b.py", "tests/test_c.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    return Requested(tmp_path)


def item(tmp_path, node_id):
    return SimpleNamespace(path=tmp_path / node_id.partition("::")[0], nodeid=node_id)


@pytest.mark.parametrize(
    ("arguments", "existing", "missing"),
    [
        (["bench"], ["bench"], ()),
        (["benchmarks", "bench"], ["bench"], ("benchmarks",)),
        (["benchmarks", "bench/test_n.py"], [], ("benchmarks", "bench/test_n.py")),
        (["bench/test_n.py::test"], [], ("bench/test_n.py::test",)),
        (
            ["./bench/test_a.py::test", "bench/test_b.py"],
            ["./bench/test_a.py", "bench/test_b.py"],
            (),
        ),
        (
            ["bench/test_a.py::test", "bench/test_a.py::other"],
            ["bench/test_a.py"],
            ("bench/test_a.py::other",),
        ),
        (["bench/test_a.py::test[1]"], ["bench/test_a.py"], ()),
        (
            ["bench/test_a.py::test[a/b::c]"],
            ["bench/test_a.py"],
            ("bench/test_a.py::test[a/b::c]",),
        ),
    ],
)
def test_what_a_side_lacks_is_left_out_and_named(requested, tmp_path, arguments, existing, missing):
    assert requested.existing(arguments) == existing
    requested.note(item(tmp_path, "bench/test_a.py::test[1]"))
    assert requested.missing == missing


@pytest.mark.parametrize(
    ("argument", "selected"),
    [
        ("bench/test_a.py::test", ["::test", "::test[1]", "::test[2]"]),
        ("bench/test_a.py::test[1]", ["::test[1]"]),
        ("bench/test_a.py::TestClass", ["::TestClass::test"]),
        ("bench/test_a.py::TestClass::test", ["::TestClass::test"]),
        (
            "bench/test_a.py",
            ["::test", "::test[1]", "::test[2]", "::test_other", "::TestClass::test"],
        ),
        (
            "bench/test_b.py::test",
            ["::test", "::test[1]", "::test[2]", "::test_other", "::TestClass::test"],
        ),
    ],
)
def test_the_tests_of_a_file_are_selected_as_by_pytest(requested, tmp_path, argument, selected):
    requested.existing([argument])
    names = ["::test", "::test[1]", "::test[2]", "::test_other", "::TestClass::test"]
    selected_names = [
        name for name in names if requested.selects(item(tmp_path, f"bench/test_a.py{name}"))
    ]
    assert selected_names == selected


@pytest.mark.parametrize("folder", ["bench", "bench/test_a.py", "."])
def test_a_test_of_a_folder_that_is_named_as_well_selects_nothing_alone(
    requested, tmp_path, folder
):
    requested.existing(["bench/test_a.py::test", folder])
    assert requested.selects(item(tmp_path, "bench/test_a.py::other"))
    assert requested.missing == ()
