"""Which files belong to an asv suite, and how asv imports them."""

import pytest

from mnistbench.gate.processes.asv.suites import benchmark_dir, suite_of


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ('{"version": 1}', "benchmarks"),
        ('{"benchmark_dir": "bench/asv", "repo": ".."}', "bench/asv"),
        ('{\n // "benchmark_dir": "old",\n "benchmark_dir": "new",\n}', "new"),
        ('{/* "benchmark_dir": "old"\n */ "repo": "https://a/b", "benchmark_dir": "b"}', "b"),
        ('{"repo": "//", "benchmark_dir": "c" // the suite\n}', "c"),
        ("{benchmark_dir: 'd'}", "d"),
        ('{"old_benchmark_dir": "e"}', "benchmarks"),
    ],
)
def test_the_folder_is_read_from_json_with_comments(text, folder):
    assert benchmark_dir(text) == folder


def write(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")


@pytest.mark.parametrize(
    ("configuration", "folder"),
    [
        ("asv.conf.json", "a/suite"),
        ("a/asv.conf.json", "suite"),
        ("a/asv.conf.jsonc", "../a/suite/"),
        ("a/suite/asv.conf.json", "."),
    ],
)
def test_the_configuration_is_in_a_folder_above(tmp_path, configuration, folder):
    write(tmp_path, "a/suite/bench_x.py", "a/other.py", configuration)
    (tmp_path / configuration).write_text(f'{{"benchmark_dir": "{folder}"}}')
    suite = suite_of(tmp_path / "a/suite/bench_x.py", tmp_path)
    assert suite.folder == tmp_path / "a/suite"
    assert suite_of(tmp_path / "a/suite", tmp_path) == suite
    assert suite_of(tmp_path / "a/other.py", tmp_path) is None


def test_a_configuration_above_the_tree_does_not_count(tmp_path):
    write(tmp_path, "asv.conf.json", "tree/bench_x.py")
    (tmp_path / "asv.conf.json").write_text('{"benchmark_dir": "tree"}')
    assert suite_of(tmp_path / "tree/bench_x.py", tmp_path / "tree") is None


def test_asv_imports_modules_of_packages(tmp_path):
    write(tmp_path, "asv.conf.json", "benchmarks/sub/__init__.py", "benchmarks/none/bench_z.py")
    suite = suite_of(tmp_path / "benchmarks", tmp_path)
    names = {
        name: suite.module_of(tmp_path / "benchmarks" / name)
        for name in ("bench_x.py", "__init__.py", "sub/bench_y.py", "sub/__init__.py")
    }
    assert names == {
        "bench_x.py": "benchmarks.bench_x",
        "__init__.py": "benchmarks",
        "sub/bench_y.py": "benchmarks.sub.bench_y",
        "sub/__init__.py": "benchmarks.sub",
    }
    assert suite.module_of(tmp_path / "benchmarks/none/bench_z.py") == ""
