"""Training that takes long shows a bar on a terminal and nothing in a log file."""

import re

import pytest
from forks import run_on_terminal

#: The 32 batches take longer than the time after which the bar is shown.
SLOW = """
from mnistbench.suite.op_benchmark import cases

cases.SHOW_PROGRESS_AFTER = 0.1

make_quick_batch = make_batch

def make_batch(batch_size, device, generator):
    time.sleep(0.02)
    return make_quick_batch(batch_size, device, generator)
"""

OPTIONS = ("--no-op-profile", "--bench-tensorboard=runs")

BAR = "| training tiny-b4-cpu on synthetic"


def slow_training(project):
    conftest = (project.path / "conftest.py").read_text(encoding="utf-8")
    project.write(
        "conftest.py",
        "import time\n"
        + conftest.replace("make_batch=make_batch", "make_batch=lambda *args: make_batch(*args)")
        + SLOW,
    )
    project.measure_a_step()


@pytest.mark.versions
def test_on_a_terminal_there_is_a_bar_on_a_line_of_its_own(project):
    slow_training(project)
    arguments = (*OPTIONS, "--benchmark-max-time=0.01", "-p", "no:cacheprovider")
    status, text = run_on_terminal("pytest", *arguments, columns=100, cwd=project.path)
    assert status == 0
    # The dots before it stay.
    assert re.search(rf"\n\r *\d+ % \|#* *{re.escape(BAR)}, about \d+ s left", text), text


def test_in_a_log_file_there_is_none(project):
    slow_training(project)
    result = project.run(*OPTIONS)
    result.assert_outcomes(passed=1)
    assert BAR not in result.stdout.str() + result.stderr.str()
