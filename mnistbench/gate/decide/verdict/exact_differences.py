"""Trials and surveys -> the exact differences of each case: counts, implementations, memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mnistbench.core import units
from mnistbench.core.compiled.compilation import CompilationDifference
from mnistbench.core.compiled.compilation import differences as compilation_differences
from mnistbench.core.operation import REORDER, OpKey
from mnistbench.core.record import median_ns
from mnistbench.gate import words
from mnistbench.gate.listing import Listings, change_of_versions
from mnistbench.gate.options import MEMORY_SHARE
from mnistbench.gate.samples import raw_samples
from mnistbench.gate.samples.raw_samples import GateHeader, SideSample, Trial
from mnistbench.gate.words import BASE, HEAD
from mnistbench.judging.exact import (
    Counts,
    model_differences,
    operation_differences,
)
from mnistbench.measuring.provider import PLAIN, provider_of

#: How a sentence begins if the sides ran other implementations: of a library, or for want of
#: a package.
OTHER_PATH = "another path was taken: "


def compilations_of_cases(
    trials: Sequence[Trial],
) -> dict[str, tuple[CompilationDifference, ...]]:
    """Return what torch.compile made differently of each case, in its last trial."""
    last = {case: builds[0] for trial in trials for case, builds in trial.cases.items()}
    found = {
        case: tuple(compilation_differences(base, head))
        for case, build in last.items()
        if (base := build[BASE].compilation) and (head := build[HEAD].compilation)
    }
    return {case: differences for case, differences in found.items() if differences}


def differences_of_cases(
    header: GateHeader,
    trials: Sequence[Trial],
    compilations: Mapping[str, Sequence[CompilationDifference]],
) -> dict[str, tuple[str, ...]]:
    """Return the exact differences of each case: in the last trial, and in the survey.

    The survey shows implementations of operations, and peak memory.

    Args:
        header: of the gate.
        trials: of its first stage.
        compilations: what :func:`compilations_of_cases` returns for the trials.
    """
    last = {case: builds[0] for trial in trials for case, builds in trial.cases.items()}
    counted = {case: _counted_differences(build) for case, build in last.items()}
    sides = header.sides
    differences_of = {
        case: (
            *(difference.text for difference in compilations.get(case, ())),
            *(OTHER_PATH + text for text in _other_facts(sides, case)),
            *_other_paths(sides.implementations.get(case, {}), sides.frameworks),
            *_more_memory("peak memory of tensors", sides.memory.get(case, {})),
            *counted.get(case, ()),
        )
        for case in header.labels
    }
    differences_of[words.ALL_CASES] = (
        *(OTHER_PATH + text for text in _lacking_packages(sides)),
        *_more_memory("peak memory of the process", sides.resident),
    )
    return {case: differences for case, differences in differences_of.items() if differences}


def _other_facts(sides: Listings, case: str) -> Iterator[str]:
    """Yield the facts of a case that decide which code it runs, where they differ."""
    facts = sides.of_sides(case, "facts")
    for name, base in facts[BASE].items():
        if facts[HEAD].get(name, base) != base:
            yield f"{name}: {base} -> {facts[HEAD][name]}"


def _lacking_packages(sides: Listings) -> Iterator[str]:
    """Yield the packages that one side lacks and the tests of the other import."""
    for name, (base, head) in sides.packages.items():
        having = HEAD if head else BASE
        if not (base and head) and name in sides[having].loaded:
            yield f"{name} {change_of_versions(base, head)}"


def _more_memory(memory: str, sizes: Mapping[str, int]) -> Iterator[str]:
    base = sizes.get(BASE, 0)
    new = sizes.get(HEAD, 0)
    if base > 0 and abs(new - base) >= MEMORY_SHARE * base:
        yield f"{memory}: {base:,} -> {new:,} bytes ({units.percent(new / base - 1, signed=True)})"


def _other_paths(runs: Mapping[str, Mapping[str, int]], frameworks: Iterable[str]) -> Iterator[str]:
    """Yield which implementations of a framework's library differ, and the number of reorders.

    The text has all implementations of the same kinds of primitives.
    """
    base, head = (runs.get(side, {}) for side in (BASE, HEAD))
    kinds = {name.partition(" ")[0] for name in {*base} ^ {*head}} - {REORDER}
    paths = [
        " + ".join(sorted(name for name in side if name.partition(" ")[0] in kinds))
        for side in (base, head)
    ]
    reorders = [side.get(REORDER, 0) for side in (base, head)]
    if not kinds and reorders[0] == reorders[1]:
        return
    provider = next((provider_of(framework) for framework in frameworks), PLAIN)
    computed_by = provider.operator_library
    if kinds:
        named = [f"{computed_by} {path}" if path else provider.own_code for path in paths]
        yield OTHER_PATH + " -> ".join(paths if all(paths) else named)
    if reorders[0] != reorders[1]:
        yield f"changes of layouts by {computed_by}: {reorders[0]} -> {reorders[1]} reorders"


def _counted_differences(build: Mapping[str, SideSample]) -> tuple[str, ...]:
    """Return the exact differences of a build, the operations with the largest change first."""
    base = build[BASE]
    head = build[HEAD]

    def growth_ns(key: OpKey) -> int:
        base_ns, head_ns = (
            median_ns(side.operations[key].self_ns) if key in side.operations else 0
            for side in (base, head)
        )
        return abs(head_ns - base_ns)

    keys = sorted({*base.operations, *head.operations}, key=lambda key: (-growth_ns(key), key))
    operations = {
        key: (_counts(base.operations.get(key)), _counts(head.operations.get(key))) for key in keys
    }
    parameters = (base.parameters, head.parameters)
    return (*model_differences(parameters, operations), *operation_differences(operations))


def _counts(operation: raw_samples.Operation | None) -> Counts | None:
    return operation and Counts(
        operation.calls,
        operation.memory_bytes,
        kernels=operation.kernels,
        varying=operation.varying,
    )
