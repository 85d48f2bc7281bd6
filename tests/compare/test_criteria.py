import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.compare.criteria import Criteria, Threshold, mark_thresholds
from mnistbench.core.errors import UsageError
from mnistbench.core.options import options_of, read
from mnistbench.judging.acceptance import Acceptance, Waivers

#: Texts near what a threshold looks like, so that drawing finds more than refusals.
NEARLY = st.text("019.:% \t\n-+eaeé٣²conv", max_size=12)


def result_of(function, *arguments, **keywords):
    """What a function returns, and nothing; or None, and why it refused."""
    try:
        return function(*arguments, **keywords), ""
    except (ValueError, UsageError) as error:
        return None, str(error)


@pytest.mark.parametrize(
    ("text", "name", "share"),
    [
        ("10%", "", 0.1),
        ("  0.5 %\t", "", 0.005),
        ("1000000%", "", 10_000),
        ("aten::addmm : 5 %", "aten::addmm", 0.05),
        ("features.0:12.5%", "features.0", 0.125),
        # Operations have colons and spaces in their names: the last colon divides.
        (
            "autograd::engine::evaluate_function: X:5%",
            "autograd::engine::evaluate_function: X",
            0.05,
        ),
        ("aten::mm, backward fc1:5%", "aten::mm, backward fc1", 0.05),
        ("50%:5%", "50%", 0.05),
    ],
)
def test_a_threshold_is_a_percentage_with_or_without_a_name(text, name, share):
    assert Threshold.parse(text) == Threshold(name, share)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "0%",
        "conv2:0%",
        "5%:conv2",
        "conv2 5%",
        "conv2",
        "conv2:",
        "conv2:5",
        " :5%",  # a name was meant and is missing: that is not "every operation"
        "1000001%",  # would let anything pass
        "9" * 400 + "%",  # no float is that large
        "conv\n2:5%",  # no name has a line end
    ],
)
def test_anything_else_is_no_threshold(text):
    with pytest.raises(
        ValueError,
        match=r"^is not a threshold; give 10%, or 'aten::addmm:5%' for one operation or module$",
    ):
        Threshold.parse(text)


def test_the_threshold_of_an_iteration_has_no_name():
    assert Threshold.of_case(" 2.5 % ") == Threshold("", 0.025)
    for text in ("conv2:5%", "5", "0%", ""):
        with pytest.raises(ValueError, match=r"^is not a threshold for an iteration; give 10%$"):
            Threshold.of_case(text)


# ---- Thresholds of a test ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        (("5%",), {}, (("5%",), "")),
        (("5%", "aten::addmm:3%"), {"case": "4%"}, (("5%", "aten::addmm:3%"), "4%")),
        ((), {"case": "4 %"}, ((), "4 %")),
        (("5%",), {"case": ""}, (("5%",), "")),
    ],
)
def test_a_mark_has_thresholds_of_operations_and_of_the_iteration(arguments, options, expected):
    assert mark_thresholds(arguments, options) == expected


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            (),
            {},
            'opgate(): needs thresholds: @pytest.mark.opgate("10%", "aten::addmm:5%", case="5%")',
        ),
        ((), {"case": ""}, "opgate(case=''): needs thresholds: @pytest.mark.opgate("),
        (("5%",), {"op": "5%"}, "opgate('5%', op='5%'): needs thresholds: @pytest.mark.opgate("),
        (
            ("5%", "5"),
            {},
            (
                "opgate('5%', '5'): is not a threshold; give 10%, or 'aten::addmm:5%' for one "
                "operation or module"
            ),
        ),
        ((None,), {}, "opgate('None'): is not a threshold; give 10%"),
        (
            ("5%",),
            {"case": "conv2:5%"},
            "opgate('5%', case='conv2:5%'): is not a threshold for an iteration; give 10%",
        ),
        ((), {"case": 5}, "opgate(case=5): is not a threshold for an iteration; give 10%"),
        (("a\nb",), {}, "opgate('a\\nb'): is not a threshold"),
    ],
)
def test_a_mark_that_cannot_be_used_is_shown_in_the_error(arguments, options, message):
    with pytest.raises(UsageError) as caught:
        mark_thresholds(arguments, options)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@given(
    st.lists(NEARLY | st.integers() | st.none(), max_size=3),
    st.dictionaries(st.sampled_from(["case", "x"]), NEARLY),
)
@strategies.ANY_SPEED
def test_any_mark_is_read_or_refused_in_one_line(arguments, options):
    thresholds, refusal = result_of(mark_thresholds, arguments, options)
    if thresholds is None:
        assert refusal.startswith("opgate(")
        assert "\n" not in refusal
    else:
        # The texts in a record are read once more when it is judged.
        texts, case = thresholds
        assert [Threshold.parse(text) for text in texts] or Threshold.of_case(case)


# ---- Options -------------------------------------------------------------------------------------


def test_all_options_are_read():
    texts = {
        "op_fail": ["10%", "conv2:5%"],
        "case_fail": "3%",
        "min_share": "0.5%",
        "by": "module",
        "across_versions": True,
        "across_machines": True,
        "allow_missing": True,
        "allow_incomparable": True,
        "pool_commits": True,
        "inconclusive": "warn",
        "accept": ["a:b:5%", "a:c:12.5%"],
        "reason": "  exact  ",
    }
    assert set(texts) == set(options_of(Criteria))
    assert read(Criteria, texts) == Criteria(
        op_fail=(Threshold("", 0.1), Threshold("conv2", 0.05)),
        case_fail=Threshold("", 0.03),
        min_share=0.005,
        by="module",
        across_versions=True,
        across_machines=True,
        allow_missing=True,
        allow_incomparable=True,
        pool_commits=True,
        inconclusive="warn",
        accept=(Acceptance("a:b", 0.05), Acceptance("a:c", 0.125)),
        reason="exact",
    )


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"op_fail": ["10%", "5"]},
            "--op-fail: '5' is not a threshold; give 10%, or 'aten::addmm:5%' for one operation",
        ),
        (
            {"case_fail": "conv2:5%"},
            "--case-fail: 'conv2:5%' is not a threshold for an iteration; give 10%",
        ),
        (
            {"accept": ["a:b:5%"]},
            "--accept: 'a:b:5%' needs a reason for the report; add --reason TEXT",
        ),
        (
            {"reason": "exact"},
            "--reason: 'exact' is given without --accept; add --accept CASE:OP:LIMIT",
        ),
        (
            {"accept": ["a:b:5%", "conv2"], "reason": "x"},
            "--accept: 'conv2' needs a case, an operation and a limit: CASE:OP:5%",
        ),
    ],
)
def test_an_error_names_the_option_and_the_value(texts, message):
    with pytest.raises(UsageError) as caught:
        read(Criteria, texts)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"case_fail": "x"}, "--op-case-fail: 'x' is not a threshold for an iteration; give 10%"),
        ({"reason": "x"}, "--op-reason: 'x' is given without --op-accept; add --op-accept CASE"),
        ({"accept": ["a:b:5%"]}, "--op-accept: 'a:b:5%' needs a reason for the report; add --op-r"),
    ],
)
def test_an_error_of_a_session_of_pytest_has_its_spelling(texts, message):
    with pytest.raises(UsageError) as caught:
        read(Criteria, texts, in_pytest=True)
    assert str(caught.value).startswith(message)


def test_excuses_come_from_the_command_line_only():
    fixed = {name for name, option in options_of(Criteria).items() if not option.configurable}
    assert fixed >= set(options_of(Waivers))
    assert set(options_of(Criteria)) - fixed == {"op_fail", "case_fail", "min_share", "by"}
