"""Which folders are measured if nobody names any."""

import pytest

from mnistbench.gate.survey.folders import folders_with_cases

CASE = "def test_sum(benchmark):\n    benchmark(sum, [1])\n"
ASV = "class TimeSum:\n    def time_sum(self, benchmark_size):\n        sum([1])\n"


@pytest.mark.parametrize(
    ("files", "folders"),
    [
        ({"bench/test_a.py": CASE}, ("bench",)),
        ({"benchmarks/deep/bench_a.py": CASE}, ("benchmarks",)),
        (
            {"bench/test_a.py": CASE, "tests/benchmarks/test_b.py": CASE, "tests/test_c.py": CASE},
            ("bench", "tests/benchmarks"),
        ),
        # A fixture that the tests use in place of it.
        ({"bench/conftest.py": "def timed(\n    request, op_benchmark\n):\n"}, ("bench",)),
        ({"benchmarks/bench_sum.py": ASV, "tests/test_c.py": CASE}, ()),
        ({"bench/run.sh": "benchmark", "bench/data.py/x.txt": ""}, ()),
        ({}, ()),
    ],
    ids=str,
)
def test_folders_with_a_function_that_gets_the_fixture(tmp_path, files, folders):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert folders_with_cases(tmp_path, tmp_path) == folders
    (tmp_path / "base").mkdir()
    assert folders_with_cases(tmp_path / "base", tmp_path) == (), "its cases are elsewhere"
