"""What a side's code changes in its process is read, and two sides share a process only where neither affects the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from mnistbench.core.errors import RecordError
from mnistbench.core.json_reader import Reader
from mnistbench.gate.fingerprint import BEFORE, ENDED, IMPORTED, Fingerprint, changes, difference


def fingerprint(settings=None, packages=None, additions=None):
    return Fingerprint({"a": "1", **(settings or {})}, packages or {}, additions or {})


def stages(before=None, imported=None, built=None, ended=None):
    """A side that changes nothing after what is given."""
    before = before or fingerprint()
    imported = imported or before
    built = built or imported
    return {BEFORE: before, IMPORTED: imported, "build t.py::t": built, ENDED: ended or built}


A2 = fingerprint({"a": "2"})


# ---- Comparing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (stages(), stages()),
        (stages(imported=A2), stages(imported=A2)),
        (stages(built=fingerprint({"a": "3"})), stages(built=fingerprint({"a": "3"}))),
        (stages(ended=fingerprint(packages={"a thread": "tqdm"})), stages(built=fingerprint(packages={"a thread": "tqdm"}))),
        (stages(ended=fingerprint({"os.environ['X']": "1"})), stages(ended=fingerprint({"os.environ['X']": "1"}))),
    ],
    ids=["nothing", "set alike", "set alike by a build", "packages used alike", "torch sets a variable late"],
)
def test_sides_that_change_nothing_or_the_same_share_a_process(base, head):
    assert difference(base, head) == []


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        (stages(), stages(imported=A2), "the head changes a from 1 to 2"),
        (stages(imported=A2), stages(), "the base changes a from 1 to 2"),
        (stages(), stages(built=A2), "the head changes a from 1 to 2"),
        (stages(), stages(ended=A2), "the head changes a from 1 to 2"),
        (stages(), stages(built=A2, ended=fingerprint()), "the head changes a from 1 to 2"),
        (stages(), stages(imported=fingerprint({"b": "x"})), "the head changes b from not set to x"),
        (stages(imported=A2), stages(imported=fingerprint({"a": "3"})), "a is 2 in the base and 3 in the head"),
        (stages(before=A2), stages(), "a is 2 in the base and 1 in the head"),
        (stages(ended=A2), stages(ended=A2), "the base changes a from 1 to 2 while it runs"),
        (
            stages(),
            stages(ended=fingerprint(additions={"a global forward hook": "spy of nets.py"})),
            "the head adds a global forward hook (spy of nets.py)",
        ),
        (
            stages(imported=fingerprint(additions={"a global forward hook": "spy of nets.py"})),
            stages(imported=fingerprint(additions={"a global forward hook": "spy of nets.py"})),
            "both sides add a global forward hook (spy of nets.py)",
        ),
        (
            stages(ended=fingerprint(packages={"a thread": "tqdm"})),
            stages(),
            "the base adds a thread (tqdm)",
        ),
    ],
)
def test_sides_that_affect_each_other_do_not_and_one_sentence_says_why(base, head, said):
    assert difference(base, head) == [said]


def test_each_kind_of_state_has_a_sentence_of_its_own():
    head = stages(imported=fingerprint({"a": "2", "b": "3"}, additions={"c": "d"}))
    found = ["the head adds c (d)", "the head changes a from 1 to 2", "the head changes b from not set to 3"]
    assert difference(stages(), head) == found


def test_a_case_that_one_side_has_alone_is_no_difference():
    head = {**stages(), "build t.py::new": fingerprint()}
    assert difference(stages(), head) == []


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (fingerprint(), []),
        (fingerprint({"os.environ['X']": "1"}), []),
        (fingerprint(packages={"a thread": "tqdm"}), []),
        (A2, ["a side changes a from 1 to 2 while it runs"]),
        (fingerprint(additions={"c": "d"}), ["the sides add c (d)"]),
    ],
)
def test_what_has_changed_in_a_process_with_both_sides(after, found):
    assert changes(fingerprint(), after) == found


def test_a_fingerprint_survives_being_sent():
    whole = fingerprint({"b": "2"}, {"c": "3"}, {"d": "4"})
    assert Fingerprint.read(Reader(json.loads(json.dumps(whole.json())))) == whole
    with pytest.raises(RecordError, match=r"settings\.a: needs text, found 1"):
        Fingerprint.read(Reader({"settings": {"a": 1}, "packages": {}, "additions": {}}))


# ---- Reading -----------------------------------------------------------------------------------------------------------

#: Code of a side -> what is read of it: where, the key, the value. In this order, in one process.
SETTINGS = [
    ("torch.set_num_threads(3)", "torch.get_num_threads()", "3"),
    ("torch.set_num_interop_threads(3)", "torch.get_num_interop_threads()", "3"),
    ("torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.benchmark", "True"),
    ("torch.backends.cudnn.enabled = False", "torch.backends.cudnn.enabled", "False"),
    ("torch.backends.mkldnn.enabled = False", "torch.backends.mkldnn.enabled", "False"),
    ("torch.backends.mkldnn.deterministic = True", "torch.backends.mkldnn.deterministic", "True"),
    ("torch.backends.cuda.matmul.allow_tf32 = True", "torch.backends.cuda.matmul.allow_tf32", "True"),
    (
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False",
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
        "False",
    ),
    ("torch.backends.cuda.enable_flash_sdp(False)", "torch.backends.cuda.flash_sdp_enabled()", "False"),
    ("torch.backends.mha.set_fastpath_enabled(False)", "torch.backends.mha.get_fastpath_enabled()", "False"),
    ("torch.backends.nnpack.set_flags(False)", "the nnpack flag of torch.backends", "False"),
    ("torch.backends.opt_einsum.strategy = 'greedy'", "torch.backends.opt_einsum.strategy", "greedy"),
    ("torch.backends.quantized.engine = 'onednn'", "torch.backends.quantized.engine", "onednn"),
    ("torch.set_float32_matmul_precision('high')", "torch.get_float32_matmul_precision()", "high"),
    ("torch.use_deterministic_algorithms(True)", "torch.are_deterministic_algorithms_enabled()", "True"),
    (
        "torch.use_deterministic_algorithms(True, warn_only=True)",
        "torch.is_deterministic_algorithms_warn_only_enabled()",
        "True",
    ),
    (
        "torch.utils.deterministic.fill_uninitialized_memory = False",
        "torch.utils.deterministic.fill_uninitialized_memory",
        "False",
    ),
    ("torch.autograd.set_detect_anomaly(True)", "torch.is_anomaly_enabled()", "True"),
    ("torch.set_grad_enabled(False)", "torch.is_grad_enabled()", "False"),
    ("MODE = torch.inference_mode(); MODE.__enter__()", "torch.is_inference_mode_enabled()", "True"),
    ("torch.autocast('cpu', torch.bfloat16).__enter__()", "torch.is_autocast_enabled('cpu')", "True"),
    ("torch.set_default_dtype(torch.float64)", "torch.get_default_dtype()", "torch.float64"),
    ("torch.set_default_device('meta')", "torch.get_default_device()", "meta"),
    ("torch.set_flush_denormal(True)", "flushing of denormal numbers", "True"),
    ("gc.set_threshold(10_000)", "gc.get_threshold()", "(10000, 10, 10)"),
    ("gc.disable()", "gc.isenabled()", "False"),
    ("sys.setrecursionlimit(5_000)", "sys.getrecursionlimit()", "5000"),
    ("sys.setswitchinterval(0.25)", "sys.getswitchinterval()", "0.25"),
    ("os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])", "os.sched_getaffinity(0)", "[*]"),
    ("os.environ['SECRET'] = 'hunter2'", "os.environ['SECRET']", "a value of SHA-256 f52fbd32"),
]
HOOKS = [
    ("modules.register_module_forward_hook(own)", "a global forward hook"),
    ("modules.register_module_forward_pre_hook(own)", "a global forward pre hook"),
    ("modules.register_module_full_backward_hook(own)", "a global backward hook"),
    ("modules.register_module_full_backward_pre_hook(own)", "a global backward pre hook"),
    ("modules.register_module_parameter_registration_hook(own)", "a global parameter registration hook"),
    ("modules.register_module_module_registration_hook(own)", "a global module registration hook"),
    ("modules.register_module_buffer_registration_hook(own)", "a global buffer registration hook"),
    ("optimizers.register_optimizer_step_pre_hook(own)", "a global optimizer pre hook"),
    ("gc.callbacks.append(own)", "a function in gc.callbacks"),
    ("torch.relu = own", "a patch of torch.relu"),
    ("torch.own_function = own", "a patch of torch.own_function"),
    ("torch.Tensor.add = own", "a patch of torch.Tensor.add"),
    ("torch.nn.functional.relu = functools.partial(own)", "a patch of torch.nn.functional.relu"),
    ("torch.nn.Linear.forward = own", "a patch of torch.nn.Linear.forward"),
    ("torch.nn.Module.__call__ = own", "a patch of torch.nn.Module.__call__"),
    ("torch.optim.SGD = Own", "a patch of torch.optim.SGD"),
    ("sys.setprofile(own)", "a function that sys.getprofile() returns"),
    ("threading.setprofile(own)", "a function that threading.getprofile() returns"),
    ("sys.settrace(own); threading.settrace(own)", "a function that threading.gettrace() returns"),
]
OTHERS = [
    ("Modes().__enter__()", "additions", "a torch function mode", "Modes"),
    ("Dispatch().__enter__()", "additions", "a torch dispatch mode", "Dispatch"),
    (
        "threading.Thread(target=Event().wait, daemon=True).start()",
        "additions",
        "a thread 'Thread (wait)'",
        "started by side.py",
    ),
    (
        "from concurrent.futures import ThreadPoolExecutor; POOL = ThreadPoolExecutor(1); POOL.submit(len, [])",
        "additions",
        "a thread 'ThreadPoolExecutor'",
        "started by side.py",
    ),
    ("installed.start(Event())", "packages", "a thread 'Thread (wait)'", "started by installed.py"),
    ("installed.patch()", "packages", "a patch of torch.sigmoid", "patch.<locals>.patched of installed.py"),
]

INSTALLED = """
import threading
import torch


def start(event):
    threading.Thread(target=event.wait, daemon=True).start()


def patch():
    def patched(*_):
        pass

    torch.sigmoid = patched
"""

SIDE = """
import functools, gc, os, sys, threading
from threading import Event

import torch
import torch.optim.optimizer as optimizers
from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import installed


def own(*_, **__):
    pass


class Own:
    pass


class Modes(TorchFunctionMode):
    pass


class Dispatch(TorchDispatchMode):
    pass
"""

PROGRAM = """
import json, os, sys, threading, time
from pathlib import Path

import torch

from mnistbench.gate.process_state import ProcessState

tree = Path(sys.argv[1])
sys.path[:0] = [str(tree), str(tree.parent / "site-packages")]
process = ProcessState([tree])
found = {"before": process.fingerprint().json(), "again": process.fingerprint().json()}
import side

own = side.own
for code in json.loads(sys.argv[2]):
    exec(compile(code, str(tree / "side.py"), "exec"), vars(side))
    found[code] = process.fingerprint().json()
    sys.setprofile(None), threading.setprofile(None), sys.settrace(None), threading.settrace(None)
start = time.perf_counter()
process.fingerprint()
found["seconds"] = time.perf_counter() - start
Path(sys.argv[3]).write_text(json.dumps(found))
os._exit(0)
"""


def read_in_a_process(folder, codes):
    """Return what is read after each of these lines of a side's code, in one process."""
    tree = folder / "tree"
    for path, text in ((tree / "side.py", SIDE), (folder / "site-packages/installed.py", INSTALLED)):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tree), json.dumps(codes), str(folder / "found")],
        capture_output=True, text=True, check=False, env={**os.environ, "KINETO_LOG_LEVEL": "99"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "found").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What is read after each line: torch's import takes seconds, so one process serves all tests."""
    codes = [line[0] for line in (*OTHERS[2:], *SETTINGS, *HOOKS, *OTHERS[:2])]
    return read_in_a_process(tmp_path_factory.mktemp("fingerprint"), codes)


@pytest.mark.parametrize(("code", "key", "value"), SETTINGS, ids=[line[0] for line in SETTINGS])
def test_a_setting_is_read(found, code, key, value):
    assert found["before"]["settings"].get(key) != value
    assert found[code]["settings"][key] == value or (value == "[*]" and "," not in found[code]["settings"][key])


@pytest.mark.parametrize(("code", "key"), HOOKS, ids=[line[0] for line in HOOKS])
def test_a_hook_or_patch_of_the_sides_own_code_is_an_addition(found, code, key):
    assert key not in found["before"]["additions"]
    name = "Own" if "Own" in code else "partial" if "partial" in code else "own"
    assert found[code]["additions"][key] == f"{name} of side.py"


@pytest.mark.parametrize(("code", "part", "key", "value"), OTHERS, ids=[line[0] for line in OTHERS])
def test_modes_threads_and_what_packages_do_are_read(found, code, part, key, value):
    assert key not in found["before"][part]
    assert found[code][part][key] == value


def test_a_process_that_nobody_changes_stays_what_it_is(found):
    assert found["before"] == found["again"]
    assert found["before"]["packages"] == found["before"]["additions"] == {}
    assert "hunter2" not in json.dumps(list(found.values()))


def test_reading_takes_little_time(found):
    assert found["seconds"] < 0.2  # 3 ms on a quiet machine
