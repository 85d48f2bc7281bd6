"""Verdicts of gates that reports and pages show: one of each outcome."""

from __future__ import annotations

from gate_builders import (
    ADD,
    CASE,
    GEMM,
    LABEL,
    MM,
    Measured,
    recorded,
    series,
)

from mnistbench.gate.decide.verdict.verdict import conclude
from mnistbench.gate.listing import Reach
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.samples.case_profile import (
    CalledBy,
    CallPath,
    CaseProfile,
    ProfiledFunction,
)
from mnistbench.gate.samples.raw_samples import COMPLETE, End, Reproducer
from mnistbench.judging.acceptance import Acceptance

OTHER_CASE = "bench/test_step.py::test_step[lenet5-b1-cpu]"
OTHER_LABEL = "step lenet5-b1-cpu on digits"
QUIET = Measured().operations


def concluded(cases, fresh=0, *, accept=(), reason="", end=COMPLETE, seed=3, once=None, **changes):
    """The verdict over eight trials of these cases, and so many fresh ones."""
    cases = cases if isinstance(cases, dict) else {CASE: cases}
    again = series(cases, stage=2, seed=4, count=fresh, once=once) if fresh else []
    trials = [*series(cases, seed=seed, once=once), *again]
    changes.setdefault(
        "labels", {CASE: LABEL, OTHER_CASE: OTHER_LABEL} if len(cases) > 1 else {CASE: LABEL}
    )
    options = JudgeOptions(accept=tuple(map(Acceptance.parse, accept)), reason=reason, top=3)
    return conclude(recorded(trials, end=end, **changes), options)


def slower(factor=1.3, **changes):
    """A quarter of the case takes longer, and so does the case."""
    return Measured(
        factor=1 + (factor - 1) / 4, operations={**QUIET, MM: (1_000_000, factor)}, **changes
    )


def passed():
    small = Measured(900_000, operations={key: (ns // 4, 1.0) for key, (ns, _) in QUIET.items()})
    return concluded(
        {CASE: Measured(), OTHER_CASE: small},
        only_head=["bench/test_step.py::test_step[mlp-b1-cpu]"],
    )


def regressed():
    """Twice the calls of one operation."""
    twice = {MM: {"calls": 2.0, "memory_bytes": 4_096}}
    scripts = (
        Reproducer(
            (CASE, "operation", "aten::mm, forward fc1"),
            ".benchmarks/gate/20261120_103105/aten_mm-forward-fc1.py",
            "",
        ),
        Reproducer((CASE, "other", "other"), "", "a group of small operations has no script"),
    )
    return concluded(
        {CASE: slower(new=twice), OTHER_CASE: Measured(900_000)}, 8, end=End(reproducers=scripts)
    )


def inconclusive():
    """A case whose trials differ by some percent.

    With a budget that was too small, and other numbers on both sides.
    """
    noisy = Measured(spread=0.03, outcomes=(("aa", 1.0), ("bb", 1.5)))
    cut_short = "the budget was used up after 8 of 10 trials"
    return concluded(
        {CASE: Measured(), OTHER_CASE: noisy},
        end=End(cut_short, elapsed_s=412.0),
        only_head=["bench/x.py::test_x"],
    )


def accepted():
    patterns = ("step convnet-b16-cpu:aten::mm:50%", "*:iteration:20%", "*:aten::gone:5%")
    return concluded(
        slower(new={MM: {"kernels": ("sm90",)}}), 8, accept=patterns, reason="it is exact now"
    )


BIAS = ("aten::add_", "forward", "fc1")
FUSED = ("aten::_fused_adam_", "optimizer", "")
COPY = ("aten::contiguous", "forward", "conv2")
RELU = ("aten::relu", "forward", "conv2")


def replaced():
    """A split and slower product, a fused optimizer, and a small new operation.

    The optimizer takes as long as before.
    """
    more = {GEMM: (900_000, 1.0), BIAS: (250_000, 1.0), FUSED: (400_000, 1.0), COPY: (8_000, 1.0)}
    case = Measured(
        factor=1.04, operations={**QUIET, **more}, only_base=[MM, ADD], only_new=[*more]
    )
    return concluded(case, 8)


THIRD_CASE = "tests/test_model.py::test_metrics"


def profile_of(name, base_ns, head_ns, line=0):
    """The call paths of a case in which a changed function takes all the time."""
    changed = ProfiledFunction(name, "changed", differs_itself=True, is_of_tree=True, line=line)
    paths = (CallPath(-1, 0, 1.0, 1.0, 0, 0), CallPath(0, 1, 1.0, 1.0, base_ns, head_ns))
    calls = (CalledBy(MM, 1, base_ns, head_ns),)
    return CaseProfile((ProfiledFunction("the case"), changed), paths, calls)


def caused():
    """A change makes two cases and an operation of each slower, another one a third case faster."""
    forward = profile_of("pkg/model.py:Net.forward", 100_000, 900_000, line=12)
    metrics = profile_of("pkg/metrics.py:mean", 900_000, 100_000, line=3)
    labels = {CASE: LABEL, OTHER_CASE: OTHER_LABEL, THIRD_CASE: "test_model.py::test_metrics"}
    return concluded(
        {CASE: slower(), OTHER_CASE: slower(1.5), THIRD_CASE: Measured(factor=0.8, operations={})},
        8,
        end=End(profiles={CASE: forward, OTHER_CASE: forward, THIRD_CASE: metrics}),
        labels=labels,
        reach=Reach(
            is_known=True,
            reasons=dict.fromkeys(labels, ("runs pkg/model.py:Net.forward (changed)",)),
            same={f"tests/test_other.py::test_{n}": f"test_other.py::test_{n}" for n in range(195)},
            uncovered=("pkg/a.py:f", "pkg/a.py:g", "pkg/b.py:LIMIT"),
        ),
    )


SCENES = {
    "passed": passed,
    "regressed": regressed,
    "inconclusive": inconclusive,
    "accepted": accepted,
    "replaced": replaced,
    "caused": caused,
}
