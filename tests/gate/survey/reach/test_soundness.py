"""Drawn projects and changes: each case that then does something else is affected.

What a case does is traced without any code of ours, instruction by instruction, in a process of its
own. Surveys and reach are the gate's.
"""

from __future__ import annotations

from hypothesis import given, note
from hypothesis import strategies as st
from small_programs import draw_change, draw_harmless_change, draw_project
from strategies import many
from surveyed import SurveyError

#: Changes of each project.
CHANGES = 3

#: Kind of a harmless change -> the reasons of what reads it all the same: packages that get the
#: function, what lists names, and a test that runs the import.
READERS = {
    "annotations": ("has another annotation",),
    "order of imports": ("another order",),
    "unused": ("uses names that it lists", "imports pkg/"),
}
#: The reason of a test that runs other code without those of the reasons above.
WITHOUT_OTHERS = "that other tests are left out"

RANDOMS = st.randoms(use_true_random=False)


def traced(surveyor, files):
    """Return what each case of a project does; None if one fails."""
    traces = surveyor.trace(surveyor.write(files))
    return None if isinstance(traces, str) else traces


@many(90)
@given(RANDOMS)
def test_a_case_that_does_something_else_is_reached(surveyor, random):
    files = draw_project(random)
    base = traced(surveyor, files)
    for _ in range(CHANGES if base else 0):
        changed_files, description = draw_change(random, files)
        head = traced(surveyor, changed_files)
        if head is None:
            continue
        note(description)
        try:
            reach = surveyor.reached(files, changed_files)
        except SurveyError:  # it calls functions more often than the trace
            continue
        for node_id in reach.same:
            assert base[node_id] == head[node_id]


@many(60)
@given(RANDOMS)
def test_a_change_that_no_case_sees_reaches_none(surveyor, random):
    files = draw_project(random)
    base = traced(surveyor, files)
    for _ in range(CHANGES if base else 0):
        changed_files, description = draw_harmless_change(random, files)
        head = traced(surveyor, changed_files)
        assert head == base
        note(description)
        reasons = surveyor.reached(files, changed_files).reasons
        expected = READERS.get(description.partition(": ")[2], ())
        of_readers = {
            node_id: why
            for node_id, why in reasons.items()
            if all(any(reader in reason for reader in expected) for reason in why)
        }
        others = {node_id: why for node_id, why in reasons.items() if node_id not in of_readers}
        if of_readers:
            others = {key: why for key, why in others.items() if WITHOUT_OTHERS not in why[0]}
        assert others == {}
