"""What is said of the cause of a finding."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from gate_builders import CASE, LABEL, MM, Measured, rendered
from gate_scenes import concluded, slower
from hypothesis import given
from hypothesis import strategies as st

from mnistbench.core.compiled.compilation import (
    FORWARD_PART,
    CodePlace,
    Compilation,
    CompiledGraph,
    GraphBreak,
    GraphOperation,
    Recompilation,
    differences,
)
from mnistbench.gate.explain.attribution import causes
from mnistbench.gate.explain.other_changes import with_graphs
from mnistbench.gate.samples.case_profile import (
    COMPILED,
    FILE,
    FIXTURE,
    FUNCTION,
    IMPORT,
    PACKAGE,
    SETTING,
    STATEMENT,
    VARIABLE,
    CalledBy,
    CallPath,
    CaseProfile,
    OtherChange,
    ProfiledFunction,
)
from mnistbench.gate.samples.raw_samples import End
from mnistbench.gate.words import ALL_CASES
from mnistbench.gate.words import IMPORT as IMPORT_COST

FUNCTIONS = (
    ProfiledFunction("the case"),
    ProfiledFunction("pkg/parse.py:read", "changed", differs_itself=True),
    ProfiledFunction("pkg/parse.py:word", "uses LIMIT (pkg/parse.py:3 changed)"),
    ProfiledFunction("re.compile"),
)
SLOWER = Measured(factor=1.5)
ROOT = CallPath(-1, 0, 1, 1, 0, 0)


def profile(*paths, **changes):
    return CaseProfile(FUNCTIONS, (ROOT, *paths), **changes)


def verdict(case, case_profile):
    """A gate of a case with a profile."""
    return concluded(case, 8, end=End(profiles={CASE: case_profile}))


def lines(gate):
    """Findings and what is said below each."""
    text = rendered(gate, "terminal", 3)
    return text.partition("Found:\n")[2].partition("\n\n")[0].splitlines()


READ = profile(CallPath(0, 1, 20, 41, 1_000_000, 2_050_000), CallPath(1, 3, 20, 41, 10_000, 20_500))


def test_a_regression_has_its_cause_in_the_next_line():
    finding, cause, *_ = lines(verdict(SLOWER, READ))
    assert finding.startswith("regressed: wall time")
    assert cause == (
        "likely cause: pkg/parse.py:read (changed): all of +1.06 ms in a profiled iteration; "
        "called 20 -> 41 times"
    )


def test_an_improvement_has_its_cause_in_the_next_line():
    finding, cause, *_ = lines(
        verdict(Measured(factor=0.7), profile(CallPath(0, 1, 1, 1, 2_000_000, 500_000)))
    )
    assert finding.startswith("improved: wall time")
    assert cause == (
        "likely cause: pkg/parse.py:read (changed): all of -1.50 ms in a profiled iteration"
    )


@pytest.mark.parametrize(
    ("case_profile", "cause"),
    [
        (
            profile(CallPath(0, 2, 1, 1, 10_000, 10_000), CallPath(1, 3, 1, 20, 50_000, 1_000_000)),
            (
                "likely cause: pkg/parse.py:word, which uses LIMIT (pkg/parse.py:3 changed): all "
                "of +950 us in a profiled iteration; calls re.compile 1 -> 20 times"
            ),
        ),
        (
            profile(CallPath(0, 1, 1, 1, 50_000, 40_000), CallPath(0, 2, 1, 1, 9_000, 9_000)),
            (
                "no cause found: -10.0 us in a profiled iteration, which runs pkg/parse.py:read "
                "(changed)"
            ),
        ),
        (
            profile(CallPath(0, 1, 1, 1, 50_000, 40_000)),
            (
                "likely cause: pkg/parse.py:read (changed): nothing else that the case runs "
                "differs, but a profiled iteration does not show it (-10.0 us)"
            ),
        ),
        (
            profile(CallPath(0, 1, 1, 1, 9_000, 9_000), CallPath(1, 3, 1, 1, 50_000, 1_000_000)),
            (
                "likely cause: pkg/parse.py:read (changed): all of +950 us in a profiled "
                "iteration; in re.compile"
            ),
        ),
        (
            profile(CallPath(0, 3, 1, 1, 50_000, 10_000)),
            "no cause found: -40.0 us in a profiled iteration",
        ),
        # The other function got faster.
        (
            profile(CallPath(0, 1, 1, 1, 50_000, 1_000_000), CallPath(0, 2, 1, 1, 400_000, 20_000)),
            "likely cause: pkg/parse.py:read (changed): all of +570 us in a profiled iteration",
        ),
        (CaseProfile(why_not="interrupted"), "cause not known: interrupted"),
    ],
)
def test_the_likely_cause_is_one_line(case_profile, cause):
    assert lines(verdict(SLOWER, case_profile))[1] == cause


WORK = ProfiledFunction("pkg/b.py:work", is_of_tree=True)


def dependent(*paths, others=()):
    """A profile with an unchanged function of the tree."""
    functions = (*FUNCTIONS[:2], WORK, *FUNCTIONS[3:])
    return CaseProfile(functions, (ROOT, *paths), others=others)


MADE = CallPath(0, 1, 1, 1, 10_000, 20_000)
WORKED = CallPath(0, 2, 1, 1, 50_000, 1_000_000)
ONLY_WORKED = CaseProfile((FUNCTIONS[0], WORK), (ROOT, CallPath(0, 1, 1, 1, 50_000, 1_000_000)))


@pytest.mark.parametrize(
    ("case_profile", "cause"),
    [
        (
            dependent(MADE, WORKED),
            (
                "likely cause: pkg/parse.py:read (changed): +950 us of +960 us in a profiled "
                "iteration, in pkg/b.py:work, which did not change"
            ),
        ),
        (
            dependent(CallPath(0, 1, 1, 9, 10_000, 310_000), WORKED),
            (
                "likely cause: pkg/parse.py:read (changed): +300 us of +1.25 ms in a profiled "
                "iteration; called 1 -> 9 times; +950 us in pkg/b.py:work, which did not change"
            ),
        ),
        (
            dependent(
                CallPath(0, 1, 1, 1, 9_000, 9_000),
                CallPath(0, 2, 1, 20, 50_000, 1_000_000),
                others=(OtherChange(FILE, "data/x.json", "changed"),),
            ),
            (
                "likely cause: pkg/parse.py:read (changed), or the changed file data/x.json: "
                "all of +950 us in a profiled iteration, in pkg/b.py:work, which did not "
                "change and is called 1 -> 20 times"
            ),
        ),
        (
            ONLY_WORKED,
            (
                "nothing that is known to differ explains it: all of +950 us in a profiled "
                "iteration, in pkg/b.py:work, which did not change"
            ),
        ),
    ],
)
def test_an_unchanged_function_is_where_the_time_is_and_not_the_cause(case_profile, cause):
    assert lines(verdict(SLOWER, case_profile))[1] == cause


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (OtherChange(FIXTURE, "c.py:data", "changed"), "the changed fixture c.py:data"),
        (OtherChange(FIXTURE, "c.py:data", "new"), "the fixture c.py:data (new)"),
        (
            OtherChange(FIXTURE, "c.py:data", "uses N (c.py:1 changed)", differs_itself=False),
            "the fixture c.py:data, which uses N (c.py:1 changed)",
        ),
        (OtherChange(FUNCTION, "a.py:make", "gone"), "a.py:make (gone)"),
        (OtherChange(FILE, "x.json", "changed"), "the changed file x.json"),
        (OtherChange(STATEMENT, "a.py:6", "changed"), "a.py:6 (changed), which runs at import"),
        (
            OtherChange(STATEMENT, "a.py:6", "uses N (a.py:1 changed)", differs_itself=False),
            "a.py:6, which uses N (a.py:1 changed) at import",
        ),
        (OtherChange(IMPORT, "a.py", "a.py:6 changed"), "the import of a.py (a.py:6 changed)"),
        (OtherChange(COMPILED, "pkg/_c.so", "changed"), "the changed module pkg/_c.so"),
        (OtherChange(PACKAGE, "numpy", "2.0 -> 2.1"), "numpy 2.0 -> 2.1"),
        (OtherChange(VARIABLE, "MODE", "not set -> 1"), "MODE (not set -> 1)"),
        (OtherChange(SETTING, "other parameters", ""), "other parameters"),
    ],
)
def test_each_kind_of_change_has_a_name(other, name):
    said = lines(verdict(SLOWER, replace(ONLY_WORKED, others=(other,))))[1]
    assert said.removeprefix("likely cause: ").startswith(f"{name}: all of +950 us")


def test_what_differs_is_said_where_the_profile_does_not_show_the_change():
    others = (OtherChange(FILE, "x.json", "changed"),)
    case_profile = replace(dependent(CallPath(0, 3, 1, 1, 50_000, 10_000)), others=others)
    assert lines(verdict(SLOWER, case_profile))[1] == (
        "no cause found: -40.0 us in a profiled iteration; what differs: the changed file x.json"
    )


def test_a_cause_that_explains_less_than_half_is_said_to():
    functions = [ProfiledFunction(name, "changed", differs_itself=True) for name in "abc"]
    paths = [CallPath(0, position + 1, 1, 1, 1_000_000, 2_000_000) for position in range(3)]
    case_profile = CaseProfile((FUNCTIONS[0], *functions), (ROOT, *paths))
    assert lines(verdict(SLOWER, case_profile))[1] == (
        "no function explains half of the change; the largest part: a (changed): +1.00 ms of "
        "+3.00 ms in a profiled iteration"
    )


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=3, max_size=3))
def test_no_part_of_a_cause_is_larger_than_the_change(times_ns):
    paths = [CallPath(0, number, 1, 1, *both_ns) for number, both_ns in enumerate(times_ns, 1)]
    explained = causes(profile(*paths)).within_the_change()
    for cause in (*explained.functions, *explained.suspects):
        assert cause.share <= 1
        assert cause.share == pytest.approx(cause.change_ns / explained.change_ns)


def test_a_slower_operation_names_what_calls_it():
    operations = (CalledBy(MM, 2, 1_000, 1_500), CalledBy(MM, 1, 1_000, 9_000))
    said = lines(verdict(slower(), profile(operations=operations)))
    [position] = [
        number for number, line in enumerate(said) if line.startswith("regressed: aten::mm")
    ]
    assert said[position + 1] == (
        "likely cause: called by pkg/parse.py:read (changed), pkg/parse.py:word, which uses LIMIT "
        "(pkg/parse.py:3 changed)"
    )


def test_a_caller_whose_calls_got_faster_is_not_named_for_a_slower_operation():
    operations = (CalledBy(MM, 2, 90_000, 1_500), CalledBy(MM, 1, 1_000, 9_000))
    said = lines(verdict(slower(), profile(operations=operations)))
    assert "likely cause: called by pkg/parse.py:read (changed)" in said


def test_json_has_all_causes():
    report = json.loads(rendered(verdict(SLOWER, READ), "json", 3))
    finding = next(
        finding for finding in report["findings"] if finding["screened"]["kind"] == "iteration"
    )
    assert finding["cause"].startswith("likely cause: pkg/parse.py:read (changed): ")
    assert finding["profiled_change_ns"] == 1_060_500
    assert finding["causes"] == [
        {
            "function": "pkg/parse.py:read",
            "how": "changed",
            "change_ns": pytest.approx(1_060_500),
            "calls": [20, 41],
            "makes": None,
            "inside": "",
        }
    ]


def test_json_has_the_changes_that_are_no_functions_of_the_profile():
    others = (OtherChange(FILE, "x.json", "changed"),)
    gate = verdict(SLOWER, replace(ONLY_WORKED, others=others))
    report = json.loads(rendered(gate, "json", 3))
    causes = next(finding["causes"] for finding in report["findings"] if finding["causes"])
    assert [(cause["function"], cause["how"], cause["change_ns"]) for cause in causes] == [
        ("x.json", "changed", 0.0),
        ("pkg/b.py:work", "", pytest.approx(950_000)),
    ]


def test_json_says_why_there_is_no_cause():
    report = json.loads(rendered(verdict(SLOWER, CaseProfile(why_not="interrupted")), "json", 3))
    assert {finding["cause"] for finding in report["findings"]} == {"cause not known: interrupted"}


def test_calls_of_functions_are_exact_differences_after_those_of_operations():
    gate = verdict(slower(new={MM: {"calls": 2.0}}), READ)
    text = rendered(gate, "terminal", 3)
    differences = text.partition("Exact differences:\n")[2].partition("\n\n")[0].splitlines()
    assert differences == [
        f"{LABEL}: aten::mm, forward fc1: 1 -> 2 calls",
        f"{LABEL}: pkg/parse.py:read: 20 -> 41 calls",
        f"{LABEL}: re.compile: 20 -> 41 calls",
    ]


def test_a_function_of_one_side_is_new_or_vanished():
    case_profile = profile(CallPath(0, 1, 0, 60, 0, 50), CallPath(0, 3, 2, 0, 40, 0))
    report = json.loads(rendered(verdict(SLOWER, case_profile), "json", 3))
    assert report["exact"][LABEL] == ["pkg/parse.py:read: new, 60 calls", "re.compile: vanished"]


def test_calls_of_a_function_that_vary_are_no_exact_difference():
    case_profile = profile(CallPath(0, 1, 20, 60, 0, 50), CallPath(0, 3, 2, 3, 40, 0))
    read, *others = case_profile.functions[1:]
    varying = replace(read, calls_vary=True)
    case_profile = replace(case_profile, functions=(case_profile.functions[0], varying, *others))
    report = json.loads(rendered(verdict(SLOWER, case_profile), "json", 3))
    assert report["exact"][LABEL] == ["re.compile: 2 -> 3 calls"]


def test_without_a_profile_nothing_is_said_of_functions():
    assert "cause" not in "".join(lines(concluded(SLOWER, 8)))


def test_a_compiled_module_is_the_likely_cause_where_the_profiler_sees_no_function():
    module = OtherChange(COMPILED, "pkg/core.so", "changed")
    unseen = profile(others=(module,))
    assert lines(verdict(SLOWER, unseen))[1] == (
        "likely cause: the changed module pkg/core.so, whose functions the profiler does not see"
    )


FORWARD = CodePlace("models.py", 28, "forward")
WHOLE = Compilation(
    graphs=(
        CompiledGraph(
            FORWARD,
            FORWARD_PART,
            operations=2,
            kernels=1,
            external_calls=1,
            calls=(GraphOperation("addmm", "float32[16, 8]", FORWARD, "y = self.fc(x)", 1),),
        ),
    )
)
BROKEN = replace(WHOLE, breaks=(GraphBreak("Tensor.item", replace(FORWARD, line=29)),))
WIDER = replace(
    WHOLE,
    graphs=(
        replace(
            WHOLE.graphs[0],
            calls=(GraphOperation("addmm", "float32[16, 9]", FORWARD, "y = self.fc(x)", 1),),
        ),
    ),
)
LONGER = replace(
    WHOLE,
    graphs=(
        replace(
            WHOLE.graphs[0],
            operations=3,
            calls=(
                *WHOLE.graphs[0].calls,
                GraphOperation("gelu", "float32[16, 8]", replace(FORWARD, line=30), "gelu(y)", 1),
            ),
        ),
    ),
)


RECOMPILED = replace(WHOLE, recompilations=(Recompilation("size of x: 8", FORWARD),))


@dataclass
class Code:
    """Compared code: whether the functions of compiled lines are edited, and in which tree."""

    is_edited: bool

    def path_in_tree(self, side, place):
        return f"src/{place.path}"

    def is_edited_at(self, side, place):
        return self.is_edited


INIT = OtherChange(FUNCTION, "src/models.py:Net.__init__", "changed", line=20)
WIDTH = OtherChange(STATEMENT, "src/models.py:3", "changed")
USING = OtherChange(
    FUNCTION,
    "src/models.py:Net.reset",
    "uses WIDTH (src/models.py:3 changed)",
    differs_itself=False,
)
TORCH = OtherChange(PACKAGE, "torch", "2.14.0 -> 2.15.0")
GUARD = "new recompilation of forward at models.py:28 (size of x: 8 fails)"
WIDER_ADDMM = "models.py:28 (forward): addmm of another size, type or number"


@pytest.mark.parametrize(
    ("head", "is_edited", "others", "cause"),
    [
        (
            BROKEN,
            True,
            [INIT],
            "new graph break at models.py:29 (Tensor.item): graph breaks: 0 -> 1",
        ),
        (
            LONGER,
            True,
            [INIT],
            "models.py:30 (forward): gelu new in the graph: operations of the graphs: 2 -> 3",
        ),
        (RECOMPILED, True, [INIT], f"{GUARD}: recompilations: 0 -> 1"),
        # What hands other values to code that is not edited comes first.
        (
            RECOMPILED,
            False,
            [INIT],
            f"src/models.py:Net.__init__ (changed): {GUARD}; recompilations: 0 -> 1",
        ),
        (
            WIDER,
            True,
            [WIDTH, INIT],
            (
                "src/models.py:Net.__init__ (changed), or src/models.py:3 (changed), which runs at "
                f"import: {WIDER_ADDMM}; all counts are the same"
            ),
        ),
        (
            WIDER,
            False,
            [TORCH, USING],
            (
                "src/models.py:Net.reset, which uses WIDTH (src/models.py:3 changed), or torch "
                f"2.14.0 -> 2.15.0: {WIDER_ADDMM}; all counts are the same"
            ),
        ),
        (WIDER, False, [], f"{WIDER_ADDMM}: all counts are the same"),
    ],
)
def test_the_line_that_changes_a_compiled_graph_is_the_likely_cause(head, is_edited, others, cause):
    measured = replace(SLOWER, compilations=(WHOLE, head))
    profiled = with_graphs(profile(others=others), [*differences(WHOLE, head)], Code(is_edited))
    assert lines(verdict(measured, profiled))[1] == f"likely cause: {cause}"


def test_a_changed_function_of_the_iterations_may_hand_other_values_to_compiled_code():
    called = [
        ProfiledFunction("the case"),
        ProfiledFunction("ops.py:similarity", "changed", differs_itself=True),
    ]
    paths = [CallPath(-1, 0, 1, 1, 0, 0), CallPath(0, 1, 1, 1, 1_000, 2_000)]
    profiled = CaseProfile(tuple(called), tuple(paths))
    profiled = with_graphs(profiled, [*differences(WHOLE, RECOMPILED)], Code(is_edited=False))
    measured = replace(SLOWER, compilations=(WHOLE, RECOMPILED))
    assert lines(verdict(measured, profiled))[1] == (
        f"likely cause: ops.py:similarity (changed): {GUARD}; recompilations: 0 -> 1"
    )


def test_a_line_of_compiled_code_has_the_path_of_the_tree():
    [graph] = with_graphs(CaseProfile(), [*differences(WHOLE, BROKEN)][:1], Code(True)).others
    assert (graph.path, graph.line) == ("src/models.py", 29)
    [gone] = with_graphs(CaseProfile(), [*differences(BROKEN, WHOLE)][:1], Code(True)).others
    assert (gone.path, gone.line) == ("src/models.py", 0)


def test_compilations_of_both_sides_are_exact_differences_before_those_of_operations():
    counted = {MM: {"calls": 2.0}}
    gate = concluded(replace(SLOWER, compilations=(WHOLE, BROKEN), new=counted), 8)
    [texts] = gate.exact_differences.values()
    assert texts[:2] == (
        "new graph break at models.py:29 (Tensor.item)",
        "graph breaks: 0 -> 1",
    )
    assert "2 calls" in texts[-1]


def test_the_likely_cause_of_a_slower_import_is_what_runs_outside_of_tests():
    gate = concluded(Measured(), 8, once={(IMPORT_COST, ALL_CASES): (100_000_000, 2.0)})
    outside = (
        "runs pkg/a.py:make_table (changed) outside of tests",
        "pkg/a.py:6 changed",
        "tests/data.json (changed) is read outside of tests",
        "a reason that names nothing",
    )
    header = replace(gate.header, reach=replace(gate.header.reach, outside=outside))
    recorded = replace(gate.recorded, header=header)
    finding, cause, *_ = lines(replace(gate, recorded=recorded))
    assert finding.startswith("regressed: import (all cases)")
    assert cause == (
        "likely cause: pkg/a.py:make_table (changed), or pkg/a.py:6 (changed), which runs at "
        "import, or the changed file tests/data.json, outside of tests"
    )
