"""Numbers as text: rounding, units, signs."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shown_numbers import half_a_last_digit, read_back
from strategies import ANY_SPEED

from mnistbench.core import units


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (-0.0, "0 ns"),
        (99.96, "100 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 us"),
        (1_234, "1.23 us"),
        (999_600, "1.00 ms"),
        (27_500_000, "27.5 ms"),
        (999_600_000, "1.00 s"),
        (3_600_000_000_000, "3,600 s"),
        (-1_234, "-1.23 us"),
        (-999.6, "-1.00 us"),
    ],
)
def test_duration_has_three_digits_and_the_unit_that_fits(nanoseconds: float, text: str) -> None:
    assert units.duration(nanoseconds) == text


@given(st.floats(min_value=0, max_value=999e9, exclude_min=True))
@ANY_SPEED
def test_duration_never_shows_a_thousand_of_a_unit(nanoseconds: float) -> None:
    number, _ = units.duration(nanoseconds).split(" ")
    assert Fraction(number) < 1000
    assert len(number.replace(".", "")) == 3


@pytest.mark.parametrize("function", [units.duration, units.size])
@given(number=st.integers(min_value=-(10**15), max_value=10**15))
@ANY_SPEED
def test_a_number_reads_back_within_rounding(function: Callable[[float], str], number: int) -> None:
    text = function(number)
    assert abs(read_back(text) - number) <= half_a_last_digit(text)


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1023.6, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (1024**2 - 1, "1.00 MiB"),
        (1024**3 - 1, "1.00 GiB"),
        (2 * 1024**4, "2,048 GiB"),
        (-1536, "-1.50 KiB"),
    ],
)
def test_size_is_in_binary_units(n_bytes: float, text: str) -> None:
    assert units.size(n_bytes) == text


@pytest.mark.parametrize(
    ("nanoseconds", "unsigned", "signed"),
    [
        (0, "0 ns", "0 ns"),
        (0.4, "0.40 ns", "+0.40 ns"),
        (0.001, "0.00 ns", "0.00 ns"),
        (-0.001, "0.00 ns", "0.00 ns"),
        (41.4, "41.4 ns", "+41.4 ns"),
        (999.5, "1.00 us", "+1.00 us"),
        (-999.5, "-1.00 us", "-1.00 us"),
        (7_279_000, "7.28 ms", "+7.28 ms"),
        (-614_200, "-614 us", "-614 us"),
    ],
)
def test_a_difference_of_times_has_a_sign(nanoseconds: float, unsigned: str, signed: str) -> None:
    assert units.duration(nanoseconds) == unsigned
    assert units.duration(nanoseconds, signed=True) == signed


@pytest.mark.parametrize(
    ("fraction", "unsigned", "signed"),
    [
        (0, "0.0 %", "0.0 %"),
        (0.25, "25.0 %", "+25.0 %"),
        (0.00049, "0.0 %", "0.0 %"),
        (0.0006, "0.1 %", "+0.1 %"),
        (-0.0006, "-0.1 %", "-0.1 %"),
        (4.1, "410.0 %", "+410.0 %"),
        (-1, "-100.0 %", "-100.0 %"),
    ],
)
def test_percent_of_a_fraction(fraction: float, unsigned: str, signed: str) -> None:
    assert units.percent(fraction) == unsigned
    assert units.percent(fraction, signed=True) == signed


@pytest.mark.parametrize(
    "function", [units.duration, units.size, units.kibibytes, units.percent, units.count]
)
@given(number=st.floats(min_value=-100, max_value=0))
@ANY_SPEED
def test_nothing_reads_as_negative_zero(function: Callable[[float], str], number: float) -> None:
    assert not re.match(r"-[0.]+( |$)", function(number))


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        (0.25, 0.05, "0.25"),
        (0.1 * 3, 0.1, "0.3"),
        (-0.0, 0.5, "0.0"),
        (1_000.0, 200.0, "1,000"),
        (20.0, 10.0, "20"),
        (2e-9, 1e-9, "2e-09"),
        (3e12, 1e12, "3e+12"),
    ],
)
def test_a_tick_has_the_decimals_of_its_step(value, step, text):
    assert units.tick(value, step) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            (units.count(number), text)
            for number, text in (
                (0, "0"),
                (1.0, "1"),
                (2.5, "2.5"),
                (2.96, "3.0"),
                (1234, "1,234"),
                (1234.5, "1,234.5"),
                (-0.0, "0"),
            )
        ),
        *(
            (units.kibibytes(size), text)
            for size, text in (
                (0, "0.0"),
                (51, "0.0"),
                (52, "0.1"),
                (1024, "1.0"),
                (1_264_128, "1,234.5"),
            )
        ),
        *(
            (units.size(size, signed=True), text)
            for size, text in ((192, "+192 B"), (-2048, "-2.00 KiB"), (0, "0 B"))
        ),
        *(
            (units.factor(ratio), text)
            for ratio, text in (
                (4.166, "4.17"),
                (0.012, "0.01"),
                (16.16, "16.2"),
                (99.96, "100"),
                (1234.5, "1,234"),
            )
        ),
        *(
            (units.percent_up(bound), text)
            for bound, text in ((0.0201, "2.1 %"), (0.02, "2.0 %"), (float("inf"), "inf %"))
        ),
        *(
            (units.growth(bound, up=up), text)
            for bound, up, text in (
                (0.1234, False, "12.3 %"),
                (0.1234, True, "12.4 %"),
                (0.9999, False, "100.0 %"),
                (1.0, True, "a factor of 2.00"),
                (10.2749, False, "a factor of 11.3"),
                (10.2449, False, "a factor of 11.2"),
                (10.2449, True, "a factor of 11.3"),
                (1033.2, True, "a factor of 1,035"),
                (float("inf"), True, "inf %"),
            )
        ),
        *((units.threads(number), text) for number, text in ((1, "1 thread"), (2, "2 threads"))),
        *(
            (units.counted(number, "case"), text)
            for number, text in ((0, "0 cases"), (1, "1 case"), (1234, "1,234 cases"))
        ),
        *(
            (units.counted(number, "trial", "trials"), text)
            for number, text in ((1, "1 trial"), (2, "2 trials"))
        ),
        (units.flops(1.15e9), "1.15 GFLOP"),
        (units.bytes_per_s(20.1e9), "20.1 GB/s"),
        (units.decimal_size(12.538e9), "12.5 GB"),
        (units.decimal_size(512), "512 B"),
    ],
)
def test_other_numbers(text, expected):
    assert text == expected


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 cases"), (1, "1 case"), (2, "2 cases"), (1_000, "1,000 cases")]
)
def test_things_are_counted_in_singular_and_plural(number: int, text: str) -> None:
    assert units.counted(number, "case") == text


# ---- lists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "shortened"), [(1, "a and 2 more"), (2, "a, b and 1 more"), (3, "a, b, c")]
)
def test_the_number_of_items_that_are_left_out_is_said(most, shortened):
    assert units.and_more(("a", "b", "c"), most) == shortened


def test_items_may_have_another_separator():
    assert units.and_more(("a", "b", "c"), 2, "; ", "; ") == "a; b; 1 more"


@pytest.mark.parametrize(("most", "shortened"), [(2, "a, b, ..."), (3, "a, b, c")])
def test_a_list_goes_on(most, shortened):
    assert units.and_so_on(("a", "b", "c"), most) == shortened


@pytest.mark.parametrize(
    ("most", "what", "shortened"),
    [(2, "tests", "3 tests (a, b, ...)"), (2, "", "3 (a, b, ...)"), (3, "tests", "a, b, c")],
)
def test_a_long_list_of_names_begins_with_its_length(most, what, shortened):
    assert units.counted_names(iter("abc"), most, what) == shortened


def test_of_many_lines_the_first_are_shown():
    assert units.first_lines(iter("abc"), 2, "see --all") == ["a", "b", "1 more; see --all"]
    assert units.first_lines(iter("abc"), 3, "see --all") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("most", "texts"), [(3, ["a", "b", "c"]), (2, ["a", "2 others"]), (1, ["3 others"])]
)
def test_the_number_of_others(most: int, texts: list[str]) -> None:
    assert units.and_others(("a", "b", "c"), most) == texts


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("<function f at 0x7f14d53aa8e0>", "<function f>"),
        ("[<A object at 0x1F>, <B object at 0x2>]", "[<A object>, <B object>]"),
        ("meet at 0x", "meet at 0x"),
        ("at 12", "at 12"),
    ],
)
def test_addresses_are_left_out(text: str, without: str) -> None:
    assert units.without_addresses(text) == without
