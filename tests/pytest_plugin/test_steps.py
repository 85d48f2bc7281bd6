"""``--bench-step``: the reference step, the fast step, or both."""

import json


def cases(saved):
    """Return what a run measured: (id, step, modules of the operations) of each case."""
    found = []
    for benchmark in saved["benchmarks"]:
        record = benchmark["extra_info"]["mnistbench"]
        modules = {module for table in record["tables"] for module in json.loads(table["operations"])["module"]}
        found.append((benchmark["name"], record["test"], record["params"]["step"], modules))
    return found


def test_both_steps_are_measured_as_cases_of_one_test_with_the_same_modules(project):
    project.measure_a_step()
    result, saved = project.run_saved("--bench-model=lenet5", "--bench-step=reference,fast")
    assert result.ret == 0
    reference, fast = cases(saved)
    assert reference[:3] == ("test_step[lenet5-b4-cpu-reference]", "test_bench.py::test_step", "reference")
    assert fast[:3] == ("test_step[lenet5-b4-cpu-fast]", "test_bench.py::test_step", "fast")
    layers = {"conv1", "relu1", "pool1", "conv2", "relu2", "pool2", "flatten", "fc1", "fc2", "fc3", "log_softmax", "(loss)"}
    assert layers <= fast[3]
    assert layers - {"flatten"} <= reference[3]  # flattening contiguous values is no operation


def test_the_reference_step_is_the_default_and_its_ids_are_as_before(project):
    _, saved = project.run_saved()
    [case] = cases(saved)
    assert case[:3] == ("test_forward[tiny-b4-cpu]", "test_bench.py::test_forward", "reference")


def test_data_has_no_fast_step(project):
    project.write("test_bench.py", "def test_batch(op_benchmark):\n    op_benchmark('batch')\n")
    result, saved = project.run_saved("--bench-step=reference,fast", "-rs")
    assert result.ret == 0
    assert [step for _, _, step, _ in cases(saved)] == ["reference"]
    result.stdout.fnmatch_lines("SKIPPED*a batch has no fast step")


def test_a_workload_without_a_fast_step_fails_with_what_to_do(project):
    result = project.run("--bench-step=fast", "--bench-batch-size=4")
    assert result.ret == 1
    result.stdout.fnmatch_lines("*workload 'tiny' has no fast step: give it make_fast_model=...; choose the reference step*")
