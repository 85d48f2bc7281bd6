"""The line of a finding that says what probably caused it."""

from __future__ import annotations

from mnistbench.core import units
from mnistbench.gate.statistics.case_profile import CaseProfile
from mnistbench.gate.verdict.causes import CallCounts, Cause, Causes, causes
from mnistbench.gate.verdict.findings import LaunchFinding
from mnistbench.gate.verdict.verdict import Verdict
from mnistbench.judging.exact import arrow
from mnistbench.judging.verdicts import IMPROVED, REGRESSED

#: Beginning of a line that names a cause.
LIKELY = "likely cause: "

#: What the times of a cause are.
_PROFILED = "in a profiled iteration"


def causes_of(finding: LaunchFinding, verdict: Verdict) -> Causes | None:
    """Return the functions that explain a finding about the time of a case; None if unknown."""
    profile = _profile(finding, verdict)
    if profile is None or profile.why_not:
        return None
    explained = causes(profile)
    goes_along = (explained.change_ns > 0) == (finding.verdict == REGRESSED)
    return explained if goes_along else Causes(explained.change_ns, ())


def cause_text(finding: LaunchFinding, verdict: Verdict) -> str:
    """Return what probably made a case slower or faster; empty if there is nothing to say."""
    profile = _profile(finding, verdict)
    if profile is None:
        return ""
    if profile.why_not:
        return f"cause not known: {profile.why_not}"
    explained = causes_of(finding, verdict)
    assert explained is not None, "there are call paths"
    change = units.duration(explained.change_ns, signed=True)
    if not explained.functions:
        return f"no cause found: {change} {_PROFILED}"
    first = explained.functions[0]
    if explained.are_enough:
        return f"{LIKELY}{_described(first, change)}"
    return f"no function explains half of the change; most of it: {_described(first, change)}"


def cause_name(cause: Cause) -> str:
    """Return a function, and how it differs between the sides."""
    if cause.differs_itself:
        return f"{cause.function} ({cause.change})"
    return f"{cause.function}, which {cause.change}" if cause.change else cause.function


def _profile(finding: LaunchFinding, verdict: Verdict) -> CaseProfile | None:
    quantity = finding.quantity
    if not quantity.is_case or finding.verdict not in (REGRESSED, IMPROVED):
        return None
    return verdict.end.profiles.get(verdict.header.node_id(quantity.case))


def _described(cause: Cause, change: str) -> str:
    part = units.duration(cause.change_ns, signed=True)
    calls = [f"{part} of {change} {_PROFILED}"]
    if cause.calls.base != cause.calls.head:
        calls.append(f"called {_calls(cause.calls)} times")
    if cause.makes:
        calls.append(f"calls {cause.makes.function} {_calls(cause.makes)} times")
    return f"{cause_name(cause)}: {'; '.join(calls)}"


def _calls(calls: CallCounts) -> str:
    return arrow(calls.base, calls.head, units.count)
