import dataclasses

import builders
import pytest

from mnistbench.compare.diff import compare
from mnistbench.compare.exact import exact_differences, final_value, is_exact
from mnistbench.core.operation import NOT_OPERATIONS, OUTSIDE
from mnistbench.judging.exact import TOLERANCE

ENGINE = "autograd::engine::evaluate_function: AddmmBackward0"


def compared(base, head, by="op,module"):
    [case] = compare([builders.summary(base)], builders.summary(head), by=by).cases
    return case


def differences_of_rows(base, head, by="op,module", **changes):
    """The exact differences of a case whose table has these rows."""
    base, head = (
        builders.case_record(tables=(builders.op_table(*rows),), **changes) for rows in (base, head)
    )
    return exact_differences(compared(base, head, by))


def differences_of_final(before, after, *, tag="train/loss", **changes):
    """The exact differences of a case that ended with these values."""
    base, head = (
        builders.case_record(scalars=builders.scalars(final={tag: value}), **changes)
        for value in (before, after)
    )
    return exact_differences(compared(base, head))


row = builders.op_row


def test_equal_runs_and_other_times_have_no_exact_difference():
    assert exact_differences(compared(builders.case_record(), builders.case_record())) == ()
    sides = [
        builders.case_record(
            tables=(builders.op_table(row("aten::mm", ns)),), timing=builders.timing(median_ns=ns)
        )
        for ns in (900, 100)
    ]
    assert exact_differences(compared(*sides)) == ()


def test_other_rows_in_the_same_place_are_named_new_and_vanished():
    base = [
        row("aten::mm", module="fc1"),
        row("aten::t", module="fc1"),
        row(ENGINE, module="fc1", phase="backward"),
    ]
    head = [
        row("aten::mm", module="fc1"),
        row("aten::clone", module="fc2", calls=2.0),
        row("aten::relu", module="", phase="loss"),
    ]
    assert differences_of_rows(base, head) == (
        "aten::clone, forward fc2: new, 2 calls",
        "aten::relu, loss: new, 1 call",
        "aten::t, forward fc1: vanished",
        "evaluate_function: AddmmBackward0, backward fc1: vanished",
    )


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        (
            [row("aten::mm", calls=16.0)],
            [row("aten::mm", calls=1.5)],
            ["aten::mm, forward fc1: 16 -> 1.5 calls"],
        ),
        (
            [row("aten::mm", calls=1000.0)],
            [row("aten::mm", calls=2000.0)],
            ["aten::mm, forward fc1: 1,000 -> 2,000 calls"],
        ),
        (
            [row("aten::mm", memory_bytes=1_000), row("aten::t", memory_bytes=-500)],
            [row("aten::mm", memory_bytes=2_048_000), row("aten::t", memory_bytes=-500)],
            [
                "bytes allocated less freed per iteration: 500 -> 2,047,500",
                "aten::mm, forward fc1: 1,000 -> 2,048,000 bytes",
            ],
        ),
        (  # bytes that another operation allocates now leave the sum as it is
            [row("aten::mm", memory_bytes=10), row("aten::t", memory_bytes=20)],
            [row("aten::mm", memory_bytes=20), row("aten::t", memory_bytes=10)],
            ["aten::mm, forward fc1: 10 -> 20 bytes", "aten::t, forward fc1: 20 -> 10 bytes"],
        ),
        (  # bytes outside operations count for the case
            [row("aten::mm")],
            [row("aten::mm"), row(OUTSIDE, module="", calls=0, memory_bytes=7)],
            ["bytes allocated less freed per iteration: 0 -> 7"],
        ),
        (
            [row(shapes=["[16, 9216]", "[128]"])],
            [row(shapes=["[16, 4608]"])],
            ["aten::addmm, forward fc1: input shapes [128]; [16, 9216] -> [16, 4608]"],
        ),
        ([row(shapes=["[1]", "[2]"])], [row(shapes=["[2]", "[1]"])], []),  # only the order differs
        ([row(shapes=["[1]"])], [row()], []),  # one side did not record them
        ([row()], [row(shapes=["[1]"])], []),
    ],
)
def test_differences_of_counts(base, head, expected):
    assert differences_of_rows(base, head) == tuple(expected)


def average(name="step", **changes):
    """An operation whose calls or bytes are not the same in every iteration."""
    names = changes.pop("varying", ("calls",))
    return dataclasses.replace(row(name, **changes), varying=names)


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        ([average(calls=1005.2)], [average(calls=999.2)], []),
        ([average(calls=1005)], [row("step", calls=999)], []),
        ([average(calls=0.2)], [], []),  # it may be missing by chance
        ([], [average(calls=0.2)], []),
        ([], [average(calls=1005.2)], ["step, forward fc1: new, about 1,005.2 calls"]),
        ([average(calls=1005.2)], [], ["step, forward fc1: vanished"]),
        (  # it cannot be known whether the calls are the same
            [average(calls=2)],
            [average("other", calls=2)],
            ["other, forward fc1: new, about 2 calls", "step, forward fc1: vanished"],
        ),
        (
            [average(memory_bytes=64, varying=("bytes",)), row("aten::t", memory_bytes=8)],
            [row("step", memory_bytes=65, calls=2), row("aten::t", memory_bytes=8)],
            ["step, forward fc1: 1 -> 2 calls"],
        ),
    ],
)
def test_a_count_that_differs_between_iterations_is_no_exact_one(base, head, expected):
    kept = row("kept", 900_000)
    assert differences_of_rows([kept, *base], [kept, *head]) == tuple(expected)


def test_a_count_that_differs_between_base_runs_is_no_exact_one():
    runs = [
        builders.summary(
            builders.case_record(
                tables=(builders.op_table(row("step", calls=calls), row("aten::mm")),)
            ),
            commit="abc",
        )
        for calls in (1005, 999, 1001)
    ]
    *bases, head = runs
    [case] = compare(bases, head).cases
    assert exact_differences(case) == ()
    assert [change.base.varying for change in case.changes if change.name == "step"] == [("calls",)]


@pytest.mark.parametrize("name", sorted(NOT_OPERATIONS))
def test_numbers_of_runtime_calls_and_unattributed_kernels_are_not_exact(name):
    """A runtime polls and synchronises as often as it has to."""
    few = row(name, phase="", module="", calls=310)
    many = row(name, phase="", module="", calls=312.5)
    kept = row("aten::mm")
    assert (
        differences_of_rows([kept, few], [kept, many])
        == differences_of_rows([kept, few], [kept])
        == differences_of_rows([kept], [kept, many])
        == ()
    )


def on_device(*kernels):
    operation = dataclasses.replace(row("aten::mm", self_device_ns=900), kernels=kernels)
    return builders.case_record(
        device="cuda",
        device_ns=(1_000,),
        scalars=None,
        tables=(builders.op_table(operation, view="device"),),
    )


def test_other_kernels_are_listed():
    assert exact_differences(compared(on_device("sm80_gemm"), on_device("sm90_gemm", "fill"))) == (
        "aten::mm, forward fc1: kernels sm80_gemm -> fill; sm90_gemm",
    )
    assert exact_differences(compared(on_device("sm80_gemm"), on_device("sm80_gemm"))) == ()
    assert exact_differences(compared(on_device("sm80_gemm"), on_device())) == ()


def brief(base, head):
    return exact_differences(compared(base, head), brief=True)


def test_a_brief_sentence_has_what_one_side_alone_has_and_a_few_of_it():
    shapes = [f"[{number}]" for number in range(9)]
    both = [
        builders.case_record(tables=(builders.op_table(row(shapes=part)),))
        for part in (shapes[:2], shapes)
    ]
    assert brief(*both) == ("aten::addmm, forward fc1: input shapes also [2]; [3]; 5 more",)
    assert brief(*reversed(both)) == (
        "aten::addmm, forward fc1: input shapes no longer [2]; [3]; 5 more",
    )
    assert brief(on_device("gemm", "fill"), on_device("gemm", "copy")) == (
        "aten::mm, forward fc1: kernels fill -> copy",
    )
    long = on_device("a" * 81), on_device("b" * 80)
    assert brief(*long) == (f"aten::mm, forward fc1: kernels {'a' * 77}... -> {'b' * 80}",)
    assert exact_differences(compared(*long)) == (
        f"aten::mm, forward fc1: kernels {'a' * 81} -> {'b' * 80}",
    )


def test_another_number_of_parameters_comes_first_and_without_tables_too():
    base = builders.case_record(parameter_count=1_199_882, tables=())
    head = builders.case_record(
        parameter_count=61_706, tables=(), scalars=builders.scalars(final={"train/loss": 2.0})
    )
    assert exact_differences(compared(base, head)) == (
        "parameters: 1,199,882 -> 61,706",
        "final train/loss: 1.5 -> 2",
    )


# ---- renamed operations --------------------------------------------------------------------------


def test_a_renamed_operation_is_listed_once_and_not_as_new_and_vanished():
    base = [
        row("aten::mm"),
        row("aten::old", calls=3.0, memory_bytes=8),
        row("aten::b", module="fc2"),
    ]
    head = [
        row("aten::mm"),
        row("aten::new", 900, calls=3.0, memory_bytes=8),
        row("aten::d", module="fc2"),
    ]
    assert differences_of_rows(base, head) == (
        "aten::b, forward fc2: is now aten::d, with the same calls and bytes",
        "aten::old, forward fc1: is now aten::new, with the same calls and bytes",
    )


@pytest.mark.parametrize(
    "changes",
    [{"calls": 2.0}, {"memory_bytes": 8}, {"module": "fc2"}, {"phase": "backward"}],
    ids=str,
)
def test_an_operation_with_other_calls_bytes_or_place_is_another(changes):
    facts = differences_of_rows([row("aten::old")], [row("aten::new", **changes)])
    assert not any("is now" in text for text in facts)
    assert "aten::old, forward fc1: vanished" in facts
    assert any(text.startswith("aten::new") and ": new, " in text for text in facts)


def test_which_of_two_was_renamed_is_not_guessed():
    assert differences_of_rows([row("aten::old")], [row("aten::new1"), row("aten::new2")]) == (
        "aten::new1, forward fc1: new, 1 call",
        "aten::new2, forward fc1: new, 1 call",
        "aten::old, forward fc1: vanished",
    )


def test_a_module_summed_has_no_operation_to_rename():
    assert differences_of_rows([row("aten::a")], [row("aten::b", module="fc2")], by="module") == (
        "fc1 forward: vanished",
        "fc2 forward: new, 1 call",
    )


# ---- training ------------------------------------------------------------------------------------


def test_on_one_thread_of_a_cpu_final_values_are_the_same_to_the_bit():
    assert differences_of_final(1.5, 1.5) == ()
    assert differences_of_final(1.5, 1.5000000000000002) == (
        "final train/loss: 1.5 -> 1.5000000000000002",
    )
    assert differences_of_final(1.5, 1.25) == ("final train/loss: 1.5 -> 1.25",)


@pytest.mark.parametrize(
    "where", [{"threads": 2}, {"device": "cuda"}, {"device": "mps", "threads": 1}], ids=str
)
def test_elsewhere_final_values_may_differ_by_a_little(where):
    assert differences_of_final(2.0, 2.0 * (1 - 0.99 * TOLERANCE), **where) == ()
    assert differences_of_final(1.5, 1.5 * (1 + 2 * TOLERANCE), **where) == (
        "final train/loss: 1.5 -> 1.53",
    )
    assert differences_of_final(0.0, 0.0, **where) == ()
    assert differences_of_final(-1.5, 1.5, **where) == ("final train/loss: -1.5 -> 1.5",)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_value_that_is_not_finite_differs_from_every_number(threads):
    assert differences_of_final(0.5, None, threads=threads) == (
        "final train/loss: 0.5 -> not finite",
    )
    assert differences_of_final(None, 0.5, threads=threads) == (
        "final train/loss: not finite -> 0.5",
    )
    assert differences_of_final(None, None, threads=threads) == ()


def test_an_accuracy_is_a_percentage():
    assert differences_of_final(50.0, 62.5, tag="test/accuracy") == (
        "final test/accuracy: 50.0 % -> 62.5 %",
    )
    assert final_value("test/accuracy", None) == "not finite"
    assert final_value("train/loss", 0.123456789) == "0.123457"


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (
            builders.scalars(dataset="mnist", final={"train/loss": 0.1}),
            builders.scalars(final={"train/loss": 0.9}),
        ),
        (builders.scalars(), None),
        (None, builders.scalars()),
        tuple(builders.scalars(final={"timing/ms_per_iteration": value}) for value in (2.0, 3.0)),
    ],
    ids=["other datasets", "no curves now", "no curves in the base", "timings"],
)
def test_final_values_that_are_not_compared(base, head):
    assert (
        exact_differences(
            compared(builders.case_record(scalars=base), builders.case_record(scalars=head))
        )
        == ()
    )


def test_values_that_one_side_has_are_not_compared():
    base = builders.case_record(scalars=builders.scalars(final={"train/loss": 1.5, "old": 1.0}))
    head = builders.case_record(scalars=builders.scalars(final={"new": 2.0, "train/loss": 1.25}))
    assert exact_differences(compared(base, head)) == ("final train/loss: 1.5 -> 1.25",)


def test_two_plain_benchmarks_have_nothing_that_is_counted():
    [case] = compare([builders.plain_summary("test_x")], builders.plain_summary("test_x")).cases
    assert exact_differences(case) == ()
    assert not is_exact(case)
    [case] = compare(
        [builders.plain_summary(builders.case_record().node_id)], builders.summary()
    ).cases
    assert exact_differences(case) == ()  # parameters of one side
