"""Which rows of a group of operations a script has."""

from mnistbench.suite.reproducers.capture import CapturedCall, CapturedRow
from mnistbench.suite.reproducers.side_calls import MAX_ROWS, _largest


def row(**elements):
    """A row whose calls have these positions (``at5``) and numbers of elements.

    Each takes as many nanoseconds.
    """
    return CapturedRow(
        tuple(
            CapturedCall(
                "aten::x",
                "default",
                elements=number,
                self_ns=number,
                position=int(name.removeprefix("at")),
            )
            for name, number in elements.items()
        )
    )


def test_a_call_is_made_once_and_has_the_time_of_all_rows_that_run_in_it():
    chosen = _largest(
        [
            ("inner", row(at1=7)),
            ("none", CapturedRow((), why_not="was not called")),
            ("outer", row(at1=7, at2=3)),
        ]
    )
    assert [
        (key, [(call.elements, call.self_ns) for call in captured.calls])
        for key, captured in chosen
    ] == [
        ("outer", [(7, 14), (3, 3)]),
        ("inner", []),
    ]


def test_rows_with_few_elements_are_left_out():
    chosen = _largest(
        [(str(number), row(**{f"at{number}": number + 1})) for number in range(MAX_ROWS + 3)]
    )
    assert [key for key, _ in chosen] == [
        str(number) for number in reversed(range(3, MAX_ROWS + 3))
    ]
