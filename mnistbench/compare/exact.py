"""Exact differences between two runs of a case: counts, and final values of its training.

On one thread of a CPU the same code reaches the same loss bit for bit.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace

from mnistbench.compare.diff import CaseComparison, OpTotals
from mnistbench.core import units
from mnistbench.core.compiled import compilation
from mnistbench.judging.exact import (
    TOLERANCE,
    Counts,
    arrow,
    model_differences,
    operation_differences,
)
from mnistbench.saved_runs.compatibility import MACHINES


def exact_differences(case: CaseComparison, *, brief: bool = False) -> tuple[str, ...]:
    """Return a sentence for each exact difference, in the order of the operations of the case.

    What differs between compilations comes first, because it causes other differences. If it is
    ``brief``, long lists of shapes and kernels are shortened, kernels of different machines only
    counted, and so are operations that differ because one side alone is compiled.
    """
    parameters = (case.base.parameter_count, case.head.parameter_count)
    operations = {
        change.key: (_counts(change.base), _counts(change.head)) for change in case.changes
    }
    same_machine = not case.across_machines and not set(MACHINES).intersection(case.incomparable)
    with_kernels = same_machine or not brief
    kernels = []
    if not with_kernels:
        number = sum(
            bool(base and head and base.kernels and head.kernels and base.kernels != head.kernels)
            for base, head in operations.values()
        )
        if number:
            which = units.counted(number, "operation")
            kernels = [f"kernels of {which} differ between the machines"]
    different = list(operation_differences(operations, with_kernels=with_kernels, brief=brief))
    if brief and different and case.compiled_side:
        counted = units.counted(len(different), "difference")
        side = f"the {case.compiled_side} alone is compiled"
        different = [f"{counted} of operations, because {side}; --format json has all"]
    return (
        *_compilation_differences(case),
        *model_differences(parameters, operations),
        *_training_differences(case),
        *kernels,
        *different,
    )


def _counts(side: OpTotals | None) -> Counts | None:
    return side and Counts(side.calls, side.memory_bytes, side.shapes, side.kernels, side.varying)


def _compilation_differences(case: CaseComparison) -> Iterable[str]:
    base = case.base.compilation
    head = case.head.compilation
    if base and head:
        yield from (difference.text for difference in compilation.differences(base, head))
    elif case.compiled_side and (compiled := base or head):
        yield f"compiled in the {case.compiled_side} alone: {compiled.summary}"
        # Only breaks and recompilations: all graphs and counts of one side are new.
        causes = (
            replace(side, graphs=()) if side else compilation.Compilation() for side in (base, head)
        )
        for difference in compilation.differences(*causes):
            if difference.place:
                yield difference.text


def _training_differences(case: CaseComparison) -> Iterable[str]:
    for tag, (before, after) in final_values(case).items():
        if before == after:
            continue
        if before is None or after is None:
            yield f"final {tag}: {final_value(tag, before)} -> {final_value(tag, after)}"
        elif is_exact(case) or abs(after - before) > TOLERANCE * max(abs(before), abs(after)):
            yield f"final {tag}: {arrow(before, after, functools.partial(final_value, tag))}"


def final_values(case: CaseComparison) -> dict[str, tuple[float | None, float | None]]:
    """Return final losses and accuracies of both sides by tag; none if their datasets differ."""
    base = case.base.scalars
    head = case.head.scalars
    if not base or not head or not base.dataset or base.dataset != head.dataset:
        return {}
    return {
        tag: (base.final[tag], value)
        for tag, value in head.final.items()
        if tag in base.final and not tag.startswith("timing/")
    }


def is_exact(case: CaseComparison) -> bool:
    """Whether the case ran on one CPU thread, where final values are the same bit for bit."""
    params = case.head.params
    return params is not None and params.device == "cpu" and params.threads == 1


def final_value(tag: str, value: float | None) -> str:
    """Return a final loss or accuracy as text."""
    if value is None:
        return "not finite"
    return units.percent(value / 100) if tag.endswith("accuracy") else f"{value:.6g}"
