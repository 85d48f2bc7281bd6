import dataclasses

import builders
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.core.record import Environment, run_header
from mnistbench.saved_runs.compatibility import (
    BLOCKING,
    MACHINES,
    VERSIONS,
    blocking_differences,
    described,
    differences,
)

CPU = builders.params()
H200 = {"device": "cuda", "name": "NVIDIA H200", "memory": "150000000000", "driver": "580.1"}

#: A value other than the builder's for every field of an Environment.
OTHERS = {
    "mnistbench": "0.2.0",
    "python": "3.12.1",
    "torch": "2.13.0",
    "torchvision": "0.29.0",
    "platform": "Linux 5.4",
    "cpu_model": "Intel Xeon 8488C",
    "cpu_count": 4,
    "threads": 2,
    "blas": "openblas",
    "allocator": {},
    "devices": (H200,),
}


def saved(**changes):
    """An environment in a summary."""
    return run_header(builders.environment(**changes))["environment"]


def blocking(params=CPU, *, across_versions=False, across_machines=False, base=None, **changes):
    allowed = {"across_versions": across_versions, "across_machines": across_machines}
    return blocking_differences(base or saved(), saved(**changes), params, **allowed)


def test_every_field_of_an_environment_is_listed():
    assert set(OTHERS) == {field.name for field in dataclasses.fields(Environment)}
    assert set(BLOCKING) == set(OTHERS) - {"mnistbench", "torchvision", "platform"}


@pytest.mark.parametrize("name", BLOCKING)
def test_a_field_that_decides_is_named_base_first(name):
    head = saved(**{name: OTHERS[name]})
    # On an accelerator everything decides.
    assert blocking(builders.params(device="cuda"), **{name: OTHERS[name]}) == {
        name: (saved()[name], head[name])
    }


@pytest.mark.parametrize("name", ["mnistbench", "torchvision", "platform"])
def test_a_field_that_does_not_make_times_differ_does_not_decide(name):
    assert blocking(**{name: OTHERS[name]}) == {}
    assert differences(saved(), saved(**{name: OTHERS[name]})) == {
        name: (saved()[name], OTHERS[name])
    }


def test_differences_are_all_named_as_text_too():
    several = blocking(cpu_count=4, torch="2.13.0", platform="x", allocator={})
    assert described(several) == [
        "torch 2.15.0 -> 2.13.0",
        "cpu count 2 -> 4",
        "allocator MALLOC_TRIM_THRESHOLD_=1073741824 -> none",
    ]


@pytest.mark.parametrize(
    ("base", "head", "decides"),
    [
        ("3.11.9", "3.11.10", False),
        ("3.11", "3.11.10", False),
        ("3.11.9", "3.12.9", True),
        ("3.1.9", "3.11.9", True),
        ("3.13.0", "3.13.0rc1", False),
    ],
)
def test_another_python_decides_and_a_patch_release_does_not(base, head, decides):
    assert blocking(python=head, base=saved(python=base)) == (
        {"python": (base, head)} if decides else {}
    )


@pytest.mark.parametrize(
    ("device", "decides"), [("cpu", False), ("cuda", True), ("cuda:1", True), ("mps", True)]
)
def test_an_accelerator_does_not_matter_to_a_case_on_the_cpu(device, decides):
    assert bool(blocking(builders.params(device=device), devices=(H200,))) is decides


def test_a_plain_benchmark_may_run_anywhere_so_that_an_accelerator_decides():
    assert list(blocking(None, devices=(H200,))) == ["devices"]


@pytest.mark.parametrize(
    ("option", "fields"), [("across_versions", VERSIONS), ("across_machines", MACHINES)]
)
def test_an_option_allows_its_own_fields_and_names_itself_in_their_advice(option, fields):
    params = builders.params(device="cuda")
    everything = {name: OTHERS[name] for name in BLOCKING}
    assert list(blocking(params, **everything)) == list(differences(saved(), saved(**everything)))
    assert set(blocking(params, **{option: True}, **everything)) == set(BLOCKING) - set(fields)
    flag = f"--{option.replace('_', '-')}"
    assert {name for name, advice in BLOCKING.items() if flag in advice} == set(fields)


@pytest.mark.parametrize("name", BLOCKING)
def test_a_field_that_one_side_lacks_is_no_difference(name):
    # Plain files of pytest-benchmark say little of the machine.
    less = {field: value for field, value in saved(**OTHERS).items() if field == name}
    assert list(blocking_differences(less, saved(), None)) == [name]
    without = {field: value for field, value in saved().items() if field != name}
    assert blocking_differences(without, saved(**{name: OTHERS[name]}), None) == {}


@given(strategies.environments(), strategies.environments(), strategies.params(), st.booleans())
def test_blocking_differences_are_the_same_in_both_directions(base, head, params, across_versions):
    base, head = (run_header(environment)["environment"] for environment in (base, head))
    forbids = blocking_differences(base, head, params, across_versions=across_versions)
    assert forbids.items() <= differences(base, head).items()
    assert set(forbids) <= set(BLOCKING)
    back = blocking_differences(head, base, params, across_versions=across_versions)
    assert back == {
        name: (head_value, base_value) for name, (base_value, head_value) in forbids.items()
    }
    assert blocking_differences(base, base, params, across_versions=across_versions) == {}
