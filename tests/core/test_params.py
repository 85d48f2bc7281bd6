"""The parameters of a case: valid values and labels."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import params
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import ANY_SPEED
from strategies import params as any_params

from mnistbench.core.errors import UsageError
from mnistbench.core.params import CALL, PHASES, Params, params_of_call

#: What a test id shows of a case; seed, threads and dataset are one to a run.
SHOWN_IN_IDS = ("workload", "phase", "batch_size", "device", "dtype", "compile", "step")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("workload", None, "workload=None: needs str"),
        ("batch_size", "16", "batch_size='16': needs int"),
        ("batch_size", True, "batch_size=True: needs int"),
        (
            "phase",
            "warmup",
            "phase 'warmup' is not known: one of forward, step, train, eval, batch",
        ),
        ("dtype", "float16", "dtype 'float16' is not known: one of float32, bfloat16"),
        ("step", "quick", "step 'quick' is not known: one of reference, fast"),
        ("compile_with", None, "compile_with=None: needs str"),
        ("compile_with", "fullgraph", "compile_with 'fullgraph': needs compile True"),
        ("batch_size", 0, "batch size 0 is below 1: give a number of samples"),
        ("threads", -2, "threads -2 is below 1: give a number of threads"),
    ],
)
def test_error_names_the_parameter_and_the_value(field: str, value: object, expected: str) -> None:
    with pytest.raises(UsageError) as error:
        params(**{field: value})
    assert str(error.value) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("default", "is not the usual text; give ''"),
        ("fullgraph,static", "is not the usual text; give 'static,fullgraph'"),
        ("backend=", "is not the usual text; give ''"),
        (
            "quick,fullgraph",
            (
                "has the setting 'quick', which is not known; choose of default, reduce-overhead, "
                "max-autotune, max-autotune-no-cudagraphs, dynamic, static, fullgraph"
            ),
        ),
    ],
)
def test_settings_of_the_compiler_have_one_text(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as error:
        params(compile=True, compile_with=text)
    assert str(error.value) == f"compile_with {text!r} {complaint}"


@pytest.mark.parametrize("phase", PHASES)
def test_only_phases_that_update_weights_train(phase: str) -> None:
    assert params(phase=phase).trains is (phase in ("step", "train"))


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({}, "step convnet-b16-cpu"),
        ({"phase": "forward", "workload": "lenet5", "batch_size": 1}, "forward lenet5-b1-cpu"),
        ({"device": "cuda:1"}, "step convnet-b16-cuda:1"),
        ({"dtype": "bfloat16"}, "step convnet-b16-cpu-bfloat16"),
        ({"compile": True}, "step convnet-b16-cpu-compiled"),
        (
            {"compile": True, "compile_with": "reduce-overhead,static,fullgraph"},
            "step convnet-b16-cpu-compiled-reduce-overhead-static-fullgraph",
        ),
        (
            {"compile": True, "compile_with": "backend=aot_eager"},
            "step convnet-b16-cpu-compiled-backend=aot_eager",
        ),
        (
            {"dtype": "bfloat16", "compile": True, "device": "cuda"},
            "step convnet-b16-cuda-bfloat16-compiled",
        ),
        ({"step": "fast", "dtype": "bfloat16"}, "step convnet-b16-cpu-bfloat16-fast"),
        ({"seed": 7, "threads": 2, "dataset": "mnist"}, "step convnet-b16-cpu"),
    ],
)
def test_label_names_what_is_not_the_default(changes: dict[str, Any], label: str) -> None:
    assert params(**changes).label == label
    assert params(**changes).title == f"{label} on {changes.get('dataset', 'digits')}"


@given(any_params(), any_params(), st.sets(st.sampled_from(SHOWN_IN_IDS), min_size=1))
@ANY_SPEED
def test_labels_of_different_cases_differ(
    params: Params, source: Params, changed: set[str]
) -> None:
    if "compile" in changed:  # an eager case has no settings of the compiler
        changed = {*changed, "compile_with"}
    changed_params = dataclasses.replace(
        params, **{name: getattr(source, name) for name in changed}
    )
    assume(params != changed_params)
    assert params.label != changed_params.label


def test_a_plain_test_is_labelled_by_its_name() -> None:
    params = params_of_call("test_own.py::test_mm[8]", "cuda:1", 2)
    assert params.label == params.title == "test_own.py::test_mm[8]"
    assert (params.phase, params.device, params.threads, params.trains) == (
        CALL,
        "cuda:1",
        2,
        False,
    )


@pytest.mark.parametrize(
    ("changes", "variant"),
    [
        ({}, ""),
        ({"compile": True}, ", compiled"),
        ({"step": "fast"}, ", fast step"),
        (
            {"compile": True, "compile_with": "fullgraph", "step": "fast"},
            ", compiled with fullgraph, fast step",
        ),
    ],
)
def test_a_variant_is_in_words(changes: dict[str, Any], variant: str) -> None:
    assert params(**changes).variant == variant
