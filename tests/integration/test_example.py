"""The example of a user's own model, run as the separate project that it is."""

import json
import shutil
from pathlib import Path

import pytest
from projects import run_pytest

pytestmark = pytest.mark.usefixtures("torch")

EXAMPLE = Path(__file__).parent.parent / "examples" / "own_model"


def test_records_of_a_users_own_model_carry_everything_that_ours_do(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    result = run_pytest(
        tmp_path,
        "--benchmark-json=saved.json",
        "--benchmark-max-time=0.05",
        "--bench-tensorboard=runs",
    )
    result.assert_outcomes(passed=2)
    saved = json.loads((tmp_path / "saved.json").read_text(encoding="utf-8"))
    assert "environment" in saved["mnistbench"]
    forward, step = (benchmark["extra_info"]["mnistbench"] for benchmark in saved["benchmarks"])

    for record in (forward, step):
        assert record["params"]["dataset"] == "sine"
        assert record["notes"] == []
        assert [table["temperature"] for table in record["tables"]] == ["cold", "warm"]

    warm = json.loads(step["tables"][1]["operations"])
    places = set(zip(warm["phase"], warm["module"], strict=True))
    assert places >= {
        ("forward", "encoder"),
        ("forward", "head"),
        ("backward", "head"),
        ("forward", "(loss)"),
        ("optimizer", ""),
    }

    scalars = json.loads(step["scalars"])
    assert set(scalars["final"]) == {"train/loss"}  # without a metric there is no accuracy
    first, *_, last = (value for _, value in json.loads(step["curves"])["train/loss"])
    assert last < first
    assert list((tmp_path / scalars["directory"]).glob("events.*"))
    result.stdout.fnmatch_lines(
        ["step forecaster on sine, cpu, float32: self CPU time per iteration", "TensorBoard: *"]
    )


def test_the_bench_file_is_five_lines():
    lines = (EXAMPLE / "test_forecaster.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= 5
