"""Values of the command line: what is read, what is refused, and with which words."""

import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from mnistbench.core.errors import UsageError
from mnistbench.showing.arguments import LARGEST, given, one_of, parts, whole, wholes


@pytest.mark.parametrize(("text", "value"), [(None, "else"), ("DIR", "DIR"), (" x", " x")])
def test_an_option_that_was_left_out_is_what_it_is_otherwise(text, value):
    assert given("-o", text, "else") == value


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: given("-o", " "), "-o: ' ' is no value; give one, or leave the option out"),
        (lambda: one_of("--by", "name", ("op", "module")), "--by: 'name' is not known; choose op or module"),
        (lambda: whole("--epochs", "0", 1), "--epochs: '0' cannot be used; give a whole number, at least 1"),
        (lambda: whole("--threads", "5", 1, 4), "--threads: '5' cannot be used; give a whole number, 1 to 4"),
        (lambda: whole("-n", "2147483649", 1), "-n: '2147483649' cannot be used; give a whole number, 1 to 2147483648"),
        (lambda: whole("-n", "9" * 5_000, 1), f"-n: '{'9' * 5_000}' cannot be used; give a whole number, 1 to 2147483648"),
        (lambda: whole("-n", "9" * 20, 1), f"-n: '{'9' * 20}' cannot be used; give a whole number, 1 to 2147483648"),
        (lambda: whole("-n", "-3", 1), "-n: '-3' cannot be used; give a whole number, at least 1"),
        (lambda: wholes("-n", "1,,2", 1), "-n: '1,,2' has an empty entry; give a comma list such as its default"),
        (lambda: wholes("-n", "2,0", 1), "-n: '0' cannot be used; give a whole number, at least 1"),
        (lambda: parts("--device", "cpu,"), "--device: 'cpu,' has an empty entry; give a comma list such as its default"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line(call, complaint):
    with pytest.raises(UsageError) as error:
        call()
    assert str(error.value) == complaint


def test_a_comma_list_has_each_entry_once():
    assert parts("--batch-size", "16, 1,16") == ("16", "1")


def test_a_comma_list_of_numbers_has_each_number_once():
    assert wholes("--batch-size", "16, 1,01,16", 1) == (16, 1)


def test_a_number_may_have_zeros_before_it():
    assert whole("-n", "0" * 5_000 + "7", 1) == 7
    assert whole("--seed", "0", 0) == 0


@given_any(st.text(max_size=30))
def test_a_whole_number_is_read_or_refused(text):
    try:
        number = whole("--epochs", text, 1)
    except UsageError:
        return
    assert 1 <= number <= LARGEST
    assert int(text) == number
