import builders
import pytest
import strategies
from hypothesis import given

from mnistbench.compare import compare
from mnistbench.record import OUTSIDE


def only_case(base, now):
    [case] = compare(builders.run(base), builders.run(now)).cases
    return case


def test_the_changes_of_operations_and_the_remainder_add_up_to_the_change_of_the_call():
    base = builders.case_record(
        tables=(builders.op_table(builders.op_row("aten::mm", 100_000), builders.op_row("aten::add", 50_000, module="")),),
        timing=builders.timing(median_ns=1_000_000),
    )
    now = builders.case_record(
        tables=(builders.op_table(builders.op_row("aten::mm", 340_000), builders.op_row("aten::mul", 5_000, module="")),),
        timing=builders.timing(median_ns=1_250_000),
    )
    case = only_case(base, now)
    assert [(change.name, change.change_ns) for change in case.operations] == [
        ("aten::mm", 240_000),
        ("aten::add", -50_000),
        ("aten::mul", 5_000),
    ]
    assert case.explained_ns == 195_000
    assert case.change_ns == 250_000
    assert case.remainder_ns == 55_000


@given(strategies.case_records(), strategies.case_records())
def test_the_ledger_always_adds_up(base, now):
    comparison = compare(
        builders.run(base), builders.run(builders.case_record(**{**vars(now), "test": base.test, "params": base.params}))
    )
    for case in comparison.cases:
        assert sum(change.change_ns for change in case.operations) + case.remainder_ns == case.change_ns


def test_the_median_over_iterations_counts_so_that_one_slow_iteration_does_not():
    base = builders.case_record(tables=(builders.op_table(builders.op_row(self_cpu_ns=(100, 100, 100))),))
    now = builders.case_record(tables=(builders.op_table(builders.op_row(self_cpu_ns=(100, 900_000, 101))),))
    assert only_case(base, now).operations[0].change_ns == 1


def test_new_and_vanished_operations_have_one_side_only():
    base = builders.case_record(tables=(builders.op_table(builders.op_row("aten::add", 7)),))
    now = builders.case_record(tables=(builders.op_table(builders.op_row("aten::mul", 9, calls=2)),))
    mul, add = only_case(base, now).operations
    assert (mul.base_ns, mul.now_ns, mul.base_calls, mul.now_calls, mul.relative) == (None, 9, None, 2, None)
    assert (add.base_ns, add.now_ns, add.base_calls, add.now_calls, add.relative) == (7, None, 1, None, None)


def test_one_name_in_two_modules_is_two_operations():
    rows = [builders.op_row("aten::addmm", 10, module="fc1"), builders.op_row("aten::addmm", 20, module="fc2")]
    slower = [builders.op_row("aten::addmm", 10, module="fc1"), builders.op_row("aten::addmm", 25, module="fc2")]
    case = only_case(
        builders.case_record(tables=(builders.op_table(*rows),)), builders.case_record(tables=(builders.op_table(*slower),))
    )
    assert [(change.module, change.change_ns) for change in case.operations] == [("fc2", 5), ("fc1", 0)]


def test_time_outside_operations_is_compared_too():
    outside = [builders.op_table(builders.op_row(OUTSIDE, ns, phase="forward", module="", calls=0)) for ns in (10, 30)]
    case = only_case(builders.case_record(tables=(outside[0],)), builders.case_record(tables=(outside[1],)))
    assert case.explained_ns == 20


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"test": "bench/test_step.py::test_other"}, "test"),
        ({"batch_size": 64}, "batch size"),
        ({"seed": 2}, "seed"),
        ({"threads": 2}, "threads"),
        ({"dataset": "mnist"}, "dataset"),
        ({"workload": "lenet5"}, "workload"),
    ],
)
def test_a_case_is_the_same_only_with_equal_test_and_params(change, field):
    comparison = compare(builders.run(builders.case_record()), builders.run(builders.case_record(**change)))
    assert comparison.cases == (), field
    assert len(comparison.only_base) == len(comparison.only_now) == 1


def test_a_renamed_node_is_still_the_same_case():
    comparison = compare(builders.run(builders.case_record()), builders.run(builders.case_record(node_id="elsewhere[x]")))
    assert len(comparison.cases) == 1
    assert comparison.redefined == ()


def test_one_node_with_other_params_is_said_to_be_redefined():
    now = builders.case_record(threads=4, node_id=builders.case_record().node_id)
    [(node_id, differences)] = compare(builders.run(builders.case_record()), builders.run(now)).redefined
    assert node_id == builders.case_record().node_id
    assert differences == {"threads": (1, 4)}


def test_differences_of_the_environment_are_named_base_first():
    base = builders.run(environment=builders.environment(torch="2.13.0"))
    now = builders.run(environment=builders.environment(torch="2.15.0", cpu_count=4))
    assert compare(base, now).environment == {"torch": ("2.13.0", "2.15.0"), "cpu_count": (2, 4)}


def test_a_run_without_an_environment_has_no_differences_to_name():
    assert compare(builders.run(environment=None), builders.run()).environment == {}


def device_case(device_ns, kernel_ns, host_ns=900_000):
    row = builders.op_row("aten::mm", host_ns, self_device_ns=kernel_ns)
    return builders.case_record(
        device="cuda",
        device_ns=(device_ns,) * 3,
        tables=(builders.op_table(builders.op_row("aten::mm", 5)), builders.op_table(row, view="device")),
    )


def test_on_an_accelerator_the_device_clock_is_compared():
    case = only_case(device_case(1_000, 600), device_case(1_500, 1_000))
    assert case.clock == "device"
    assert (case.base_ns, case.now_ns) == (1_000, 1_500)
    assert case.operations[0].change_ns == 400


def test_where_one_side_lacks_device_times_both_are_compared_by_host_views():
    base = device_case(1_000, 600)
    now = builders.case_record(device="cuda", tables=(builders.op_table(builders.op_row("aten::mm", 25)),))
    case = only_case(base, now)
    assert case.clock == "cpu"
    assert case.operations[0].change_ns == 20


def test_a_case_without_a_table_on_one_side_is_compared_by_its_wall_time_alone():
    case = only_case(builders.case_record(tables=()), builders.case_record(timing=builders.timing(median_ns=8_000_000)))
    assert case.operations == ()
    assert case.remainder_ns == case.change_ns == 500_000
