"""The command ``mnistbench``."""

import forks
import pytest

import mnistbench

pytestmark = pytest.mark.versions


def run(*arguments):
    return forks.run("mnistbench", *arguments)


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"mnistbench {mnistbench.__version__}\n")


def test_env_says_what_a_bug_report_needs():
    done = run("env")
    assert done.returncode == 0
    assert done.stderr == ""
    fields = [line.split("  ")[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert fields[:10] == [
        "mnistbench", "python", "torch", "torchvision", "platform", "cpu model", "cpu count", "threads", "blas", "allocator",
    ]  # fmt: skip
    assert "accelerator" in fields


def test_a_wrong_command_is_a_usage_error_without_a_traceback():
    for arguments in (["profle"], ["env", "--loud"]):
        done = run(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("usage: mnistbench")
        assert "Traceback" not in done.stderr
