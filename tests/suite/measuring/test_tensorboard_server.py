"""What we write for TensorBoard, as TensorBoard itself lists and shows it."""

import json
import re
import subprocess
import sys
import threading
import urllib.parse
import urllib.request

import pytest
from builders import params
from torch_builders import no_bar

from mnistbench.suite.measuring import tensorboard
from mnistbench.suite.measuring.tensorboard import Tracker
from mnistbench.suite.workloads.workload import builtin_workloads

#: Runs by their directories, each with its own colour.
RUNS = ["training-lenet5-b32-cpu-digits", "training-lenet5-b64-cpu-digits"]
SCALARS = {"train/loss", "train/accuracy", "test/loss", "test/accuracy"}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """TensorBoard on two short training runs on the digits; ends with the tests."""
    root = tmp_path_factory.mktemp("tensorboard")
    lenet5 = next(
        workload for workload in builtin_workloads("digits", None) if workload.name == "lenet5"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorboard, "CURVE_SAMPLES", 256)
        tracker = Tracker(root, no_bar)
        for batch_size in (32, 64):
            _, notes = tracker.training(params(workload="lenet5", batch_size=batch_size), lenet5)
            assert notes == ()
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        str(root),
        "--host",
        "127.0.0.1",
        "--port",
        "0",
    ]
    with subprocess.Popen(
        [*command, "--load_fast=false"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if match := re.search(r" at (http://127\.0\.0\.1:\d+/)", line):
                    break
            else:
                pytest.fail("TensorBoard did not start:\n" + "".join(lines))
            # What it goes on to say must not fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield match[1]
        finally:
            process.terminate()


def get(address, path, **query):
    """Return what TensorBoard's own page asks its server for, past any proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(
        f"{address}data/{path}?{urllib.parse.urlencode(query, doseq=True)}", timeout=60
    ) as answer:
        return answer.read()


def listed(address, path, **query):
    return json.loads(get(address, path, **query))


@pytest.mark.versions
def test_runs_are_listed_with_their_curves_images_and_graph(address):
    assert sorted(listed(address, "runs")) == RUNS
    tags = listed(address, "plugin/scalars/tags")
    assert {run: set(run_tags) for run, run_tags in tags.items()} == dict.fromkeys(RUNS, SCALARS)
    points = listed(address, "plugin/scalars/scalars", run=RUNS[1], tag="train/loss")
    assert [step for _, step, _ in points] == [1, 2, 3, 4]
    images = listed(address, "plugin/images/images", run=RUNS[0], tag="inputs/digits", sample=0)
    assert get(
        address, "plugin/images/individualImage", **urllib.parse.parse_qs(images[0]["query"])
    ).startswith(b"\x89PNG")
    info = listed(address, "plugin/graphs/info")
    assert {run: run_info["run_graph"] for run, run_info in info.items()} == dict.fromkeys(
        RUNS, True
    )


def test_its_page_shows_them(address, browser):
    with browser.new_context(viewport={"width": 1400, "height": 1000}) as context:
        tab = context.new_page()
        tab.set_default_timeout(60_000)
        tab.goto(f"{address}#scalars")
        for text in (*RUNS, "train", "test"):
            tab.get_by_text(text, exact=True).first.wait_for()
        tab.evaluate("location.hash = 'images'")
        tab.get_by_text("inputs", exact=True).first.wait_for()
        tab.evaluate("location.hash = 'graphs'")
        tab.locator("tf-graph-scene #svg").wait_for()
        tab.get_by_text("LeNet5", exact=True).first.wait_for(state="attached")
