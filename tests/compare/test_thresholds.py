import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.compare.settings import SETTINGS, Setting
from mnistbench.compare.thresholds import Acceptance, Criteria, Threshold, mark_thresholds, plain_threshold
from mnistbench.core.errors import UsageError

NOTHING = {setting.name: setting.empty for setting in SETTINGS}

#: Texts near what a threshold looks like, so that drawing finds more than refusals.
NEARLY = st.text("019.:% \t\n-+eaeé٣²conv", max_size=12)


def flag(name):
    return f"--{name.replace('_', '-')}"


def read(**texts):
    return Criteria.from_texts({**NOTHING, **texts}, flag)


def result_of(function, *arguments, **keywords):
    """What a function returns, and nothing; or None, and why it refused."""
    try:
        return function(*arguments, **keywords), ""
    except (ValueError, UsageError) as error:
        return None, str(error)


def error_of(**texts):
    with pytest.raises(UsageError) as caught:
        read(**texts)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "name", "share"),
    [
        ("10%", "", 0.1),
        ("10 %", "", 0.1),
        ("  10%\t", "", 0.1),
        ("0.5%", "", 0.005),
        ("010%", "", 0.1),
        ("250%", "", 2.5),
        ("1000000%", "", 10_000),
        ("aten::addmm:5%", "aten::addmm", 0.05),
        ("aten::addmm : 5 %", "aten::addmm", 0.05),
        ("conv2:5%", "conv2", 0.05),
        ("features.0:5%", "features.0", 0.05),
        ("features.0:12.5%", "features.0", 0.125),
        # Operations have colons and spaces in their names: the last colon divides.
        ("autograd::engine::evaluate_function: X:5%", "autograd::engine::evaluate_function: X", 0.05),
        ("aten::mm, backward fc1:5%", "aten::mm, backward fc1", 0.05),
        ("50%:5%", "50%", 0.05),
    ],
)
def test_a_threshold_is_a_percentage_that_a_name_may_stand_before(text, name, share):
    assert Threshold.parse(text) == Threshold(name, share)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "%", "10", "10.", ".5%", "5.%", "-5%", "+5%", "- 5%", "0%", "0.0%", "conv2:0%", "nan%", "inf%", "1e3%", "0x5%",
        "5%%", "5 5%", "5,5%", "5%:conv2", "conv2 5%", "conv2", "conv2:", "conv2:%", "conv2:5", "conv2:-5%",
        ":5%",  # a name was meant and is missing: that is not "every operation"
        " :5%",
        "1000001%",  # holds nothing
        "9" * 400 + "%",  # no float is that large
        "²%",
        "conv\n2:5%",  # no name has a line end
    ],
)  # fmt: skip
def test_anything_else_is_no_threshold(text):
    with pytest.raises(ValueError, match=r"^not a threshold; give 10%, or 'aten::addmm:5%' for one operation or module$"):
        Threshold.parse(text)


@given(st.integers(min_value=1, max_value=100_000))
def test_a_threshold_is_the_nearest_number_to_what_was_written(thousandths):
    # A change of exactly 0.7 % must not be above a limit of 0.7 %: dividing 0.7 by 100 makes a limit just below it.
    assert Threshold.parse(f"{thousandths // 1000}.{thousandths % 1000:03}%").share == thousandths / 100_000


@given(NEARLY | strategies.TEXTS)
def test_any_text_is_a_threshold_or_an_error_of_one_line(text):
    threshold, refusal = result_of(Threshold.parse, text)
    assert refusal.isprintable()
    if threshold:
        assert 0 < threshold.share <= 10_000
        assert threshold.name == threshold.name.strip()


def test_a_call_has_no_named_threshold():
    assert plain_threshold(" 2.5 % ") == Threshold("", 0.025)
    for text in ("conv2:5%", "5", "0%", ""):
        with pytest.raises(ValueError, match=r"^not a threshold for an iteration; give 10%$"):
            plain_threshold(text)


# ---- a test's own thresholds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        (("5%",), {}, (("5%",), "")),
        (("5%", "aten::addmm:3%"), {"case": "4%"}, (("5%", "aten::addmm:3%"), "4%")),
        ((), {"case": "4 %"}, ((), "4 %")),
        (("5%",), {"case": ""}, (("5%",), "")),
    ],
)
def test_a_mark_holds_operations_and_the_call(arguments, options, expected):
    assert mark_thresholds(arguments, options) == expected


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, 'opgate(): needs thresholds: @pytest.mark.opgate("10%", "aten::addmm:5%", case="5%")'),
        ((), {"case": ""}, "opgate(case=''): needs thresholds: @pytest.mark.opgate("),
        (("5%",), {"op": "5%"}, "opgate('5%', op='5%'): needs thresholds: @pytest.mark.opgate("),
        (("5%", "5"), {}, "opgate('5%', '5'): is not a threshold; give 10%, or 'aten::addmm:5%' for one operation or module"),
        ((5,), {}, "opgate('5'): is not a threshold; give 10%"),
        ((None,), {}, "opgate('None'): is not a threshold; give 10%"),
        (("5%",), {"case": "conv2:5%"}, "opgate('5%', case='conv2:5%'): is not a threshold for an iteration; give 10%"),
        ((), {"case": 5}, "opgate(case=5): is not a threshold for an iteration; give 10%"),
        (("a\nb",), {}, "opgate('a\\nb'): is not a threshold"),
    ],
)
def test_a_mark_that_holds_nothing_is_an_error_that_shows_it(arguments, options, message):
    with pytest.raises(UsageError) as caught:
        mark_thresholds(arguments, options)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@given(st.lists(NEARLY | st.integers() | st.none(), max_size=3), st.dictionaries(st.sampled_from(["case", "x"]), NEARLY))
def test_any_mark_is_read_or_refused_in_one_line(arguments, options):
    found, refusal = result_of(mark_thresholds, arguments, options)
    if found is None:
        assert refusal.startswith("opgate(")
        assert "\n" not in refusal
    else:
        # What a record keeps is read once more when it is judged.
        texts, case = found
        assert [Threshold.parse(text) for text in texts] or plain_threshold(case)


# ---- settings -----------------------------------------------------------------------------------------------------------


def test_without_settings_nothing_fails_and_the_limits_are_those_that_help_shows():
    assert read() == Criteria()
    assert Criteria() == Criteria(op_fail=(), case_fail=None, min_share=0.02, min_cost=20, by="op,module")
    shown = {setting.name: setting.default for setting in SETTINGS if setting.default}
    assert shown == {"op_min_share": "2%", "op_min_cost": "20", "by": "op,module", "inconclusive": "fail"}


def test_all_settings_are_read():
    criteria = read(
        op_fail=["10%", "conv2:5%"],
        case_fail="3%",
        op_min_share="0.5%",
        op_min_cost="7.5",
        by="module",
        across_versions=True,
        across_machines=True,
        allow_missing=True,
        allow_incomparable=True,
        pool_commits=True,
        inconclusive="ok",
        accept=["a:b:5%", "a:c"],
        reason="  exact  ",
    )
    assert criteria == Criteria(
        op_fail=(Threshold("", 0.1), Threshold("conv2", 0.05)),
        case_fail=Threshold("", 0.03),
        min_share=0.005,
        min_cost=7.5,
        by="module",
        across_versions=True,
        across_machines=True,
        allow_missing=True,
        allow_incomparable=True,
        pool_commits=True,
        noise_passes=True,
        accept=(Acceptance("a:b", 0.05), Acceptance("a:c", None)),
        reason="exact",
    )


@pytest.mark.parametrize("name", ["across_versions", "across_machines", "pool_commits", "allow_missing", "allow_incomparable"])
def test_each_switch_sets_itself_alone(name):
    assert read(**{name: True}) == Criteria(**{name: True})


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"op_fail": ["10%", "5"]},
            "--op-fail: '5' is not a threshold; give 10%, or 'aten::addmm:5%' for one operation or module",
        ),
        ({"op_fail": ["a\nb"]}, "--op-fail: 'a\\nb' is not a threshold; give 10%"),
        ({"case_fail": "conv2:5%"}, "--case-fail: 'conv2:5%' is not a threshold for an iteration; give 10%"),
        ({"case_fail": " "}, "--case-fail: ' ' is not a threshold for an iteration; give 10%"),
        ({"op_min_share": "2"}, "--op-min-share: '2' is not a share of a case; give 2%"),
        ({"op_min_share": ""}, "--op-min-share: '' is not a share of a case; give 2%"),
        ({"op_min_share": "100.1%"}, "--op-min-share: '100.1%' is not a share of a case; give 2%"),
        ({"op_min_share": "-1%"}, "--op-min-share: '-1%' is not a share of a case; give 2%"),
        ({"op_min_share": "conv2:2%"}, "--op-min-share: 'conv2:2%' is not a share of a case; give 2%"),
        ({"op_min_cost": "x"}, "--op-min-cost: 'x' is not a number of times; give 20"),
        ({"op_min_cost": ""}, "--op-min-cost: '' is not a number of times; give 20"),
        ({"op_min_cost": "-1"}, "--op-min-cost: '-1' is not a number of times; give 20"),
        ({"op_min_cost": "nan"}, "--op-min-cost: 'nan' is not a number of times; give 20"),
        ({"op_min_cost": "1e3"}, "--op-min-cost: '1e3' is not a number of times; give 20"),
        ({"op_min_cost": "1234567"}, "--op-min-cost: '1234567' is not a number of times; give 20"),
        ({"by": "name"}, "--by: 'name' is not known; choose op or module or op,module"),
        ({"by": ""}, "--by: '' is not known; choose op or module or op,module"),
        ({"by": "op,op"}, "--by: 'op,op' is not known; choose op or module or op,module"),
        ({"inconclusive": "yes"}, "--inconclusive: 'yes' is not known; choose fail or ok"),
        ({"accept": ["a:b"]}, "--accept: 'a:b' needs a reason for the report; add --reason TEXT"),
        ({"accept": ["a:b"], "reason": " \n"}, "--accept: 'a:b' needs a reason for the report; add --reason TEXT"),
        ({"reason": "exact"}, "--reason: 'exact' is given without --accept; add --accept CASE:OP:LIMIT"),
        ({"accept": ["a:b", "conv2"], "reason": "x"}, "--accept: 'conv2' needs a case, an operation and a limit: CASE:OP:5%"),
        ({"accept": ["case:"], "reason": "x"}, "--accept: 'case:' needs a case, an operation and a limit: CASE:OP:5%"),
        ({"accept": [":op"], "reason": "x"}, "--accept: ':op' needs a case, an operation and a limit: CASE:OP:5%"),
        ({"accept": [""], "reason": "x"}, "--accept: '' needs a case, an operation and a limit: CASE:OP:5%"),
    ],
)
def test_an_error_names_the_setting_and_the_value(texts, message):
    assert error_of(**texts).startswith(message)
    assert "\n" not in error_of(**texts)


def test_an_error_names_a_setting_as_its_file_calls_it():
    with pytest.raises(UsageError, match=r"^case_fail in pyproject\.toml: '5' is not a threshold for an iteration; give 10%$"):
        Criteria.from_texts({**NOTHING, "case_fail": "5"}, lambda name: f"{name} in pyproject.toml")


@pytest.mark.parametrize(
    ("text", "grouping"),
    [
        ("op", "op"),
        (" module ", "module"),
        ("op,module", "op,module"),
        ("op, module", "op,module"),
        ("module,op", "op,module"),
        ("module , op", "op,module"),
    ],
)
def test_keys_may_stand_in_any_order(text, grouping):
    assert read(by=text).by == grouping


@pytest.mark.parametrize(("text", "share"), [("0%", 0), ("0 %", 0), (" 0% ", 0), ("0.1%", 0.001), ("100%", 1)])
def test_the_least_share_is_between_nothing_and_all(text, share):
    assert read(op_min_share=text).min_share == share


@pytest.mark.parametrize(("text", "times"), [("0", 0), ("0.5", 0.5), ("999999", 999_999), (" 20 ", 20)])
def test_the_least_cost_is_any_number_of_times(text, times):
    assert read(op_min_cost=text).min_cost == times


@given(
    st.fixed_dictionaries(
        {
            "op_fail": st.lists(NEARLY, max_size=2),
            "accept": st.lists(NEARLY, max_size=2),
            **{
                name: NEARLY | st.sampled_from(["2%", "op", "20"])
                for name in ("case_fail", "op_min_share", "op_min_cost", "by")
            },
            "reason": NEARLY,
        }
    )
)
def test_any_settings_are_read_or_refused_in_one_line(texts):
    criteria, refusal = result_of(read, **texts)
    if criteria is None:
        assert refusal.startswith("--")
        assert "\n" not in refusal
    else:
        assert 0 <= criteria.min_share <= 1
        assert criteria.min_cost >= 0
        assert bool(criteria.accept) == bool(criteria.reason)


def test_settings_have_names_of_their_own():
    names = [setting.name for setting in SETTINGS]
    assert len(set(names)) == len(names) == 13
    assert all(setting.flag == flag(setting.name) for setting in SETTINGS)


def test_what_excuses_a_failure_is_said_by_hand_and_stands_in_no_file():
    fixed = {setting.name for setting in SETTINGS if not setting.configurable}
    assert fixed == {
        "across_versions", "across_machines", "pool_commits", "allow_missing", "allow_incomparable", "inconclusive", "accept",
        "reason",
    }  # fmt: skip


def test_help_shows_the_default_with_percent_signs_that_argparse_leaves_alone():
    shown = {setting.name: setting.shown for setting in SETTINGS}
    assert shown["op_min_share"] == "group operations below this share of their case (default: 2%%)"
    assert shown["op_fail"].endswith("'aten::addmm:5%%', 'conv2:5%%'; repeatable")
    assert shown["reason"] == "reason for --accept, shown in the report"


@pytest.mark.parametrize(
    ("setting", "empty"),
    [
        (Setting("--a-b", "X", "help", repeatable=True), []),
        (Setting("--a-b", "X", "help", "2%"), "2%"),
        (Setting("--a-b", "X", "help"), ""),
        (Setting("--a-b", "", "help"), False),
    ],
)
def test_a_setting_that_is_not_given_is_empty_as_its_kind_is(setting, empty):
    assert setting.name == "a_b"
    assert setting.empty == empty
    assert type(setting.empty) is type(empty)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("step[b1]:aten::mm", True), ("other:fc1", True), ("*:*", True), ("st*:*mm", True),
        ("step?b1?:aten::mm", False), ("step[b1]:aten::m", False), ("b1:aten::mm", False), ("STEP[b1]:fc1", False),
    ],
)  # fmt: skip
def test_an_acceptance_matches_any_name_and_star_is_its_only_wildcard(pattern, matched):
    assert Acceptance(pattern, None).matches(["step[b1]", "other"], {"aten::mm", "fc1"}) is matched
