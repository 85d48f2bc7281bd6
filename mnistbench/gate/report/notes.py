"""What a reader has to know beside the findings: the head of a report, its notes, its scripts."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from mnistbench.core import units
from mnistbench.gate.decide.verdict.verdict import Verdict
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.report.rows import Rows
from mnistbench.gate.samples.raw_samples import GateHeader
from mnistbench.gate.words import BASE, COLD, HEAD
from mnistbench.judging.verdicts import UNCONFIRMED

# ---- The head ------------------------------------------------------------------------------------


def head_lines(verdict: Verdict) -> Iterable[str]:
    """Yield what was measured, on which machine, and what differs beside the code."""
    header = verdict.header
    decision = verdict.shown
    trials = units.counted(decision.trials, "trial", "trials")
    fresh = f" and {units.counted(decision.fresh, 'fresh one')}" if decision.fresh else ""
    yield from compared_lines(header)
    count = units.counted(len(header.labels), "case")
    same = len(header.reach.same)
    count = f"{len(header.labels)} of {len(header.labels) + same} cases" if same else count
    time = units.duration(verdict.recorded.seconds * 1e9)
    if verdict.end.elapsed_s:
        time = f"{units.duration(verdict.end.elapsed_s * 1e9)} from start to finish"
    frameworks = "".join(f", {name} {version}" for name, version in header.sides.frameworks.items())
    yield f"measured: {count}, {trials}{fresh}, {time}{frameworks}"
    if parts := ", ".join(
        f"{name} {units.duration(part_s * 1e9)}"
        for name, part_s in verdict.end.parts_s.items()
        if part_s
    ):
        yield f"time: {parts}"
    yield from _surroundings(verdict)
    for side, variables in header.variables.items():
        if variables:
            yield (
                f"{side} with "
                f"{' '.join(f'{name}={shlex.quote(value)}' for name, value in variables.items())}"
            )
    both = [
        f"{name} {base} -> {head}"
        for name, (base, head) in header.sides.packages.items()
        if base and head
    ]
    only_base, only_head = (
        [name for name, versions in header.sides.packages.items() if not versions[missing]]
        for missing in (1, 0)
    )
    for what, names in (
        ("packages of other versions", both),
        ("packages only in the base", only_base),
        ("packages only in the head", only_head),
    ):
        if names:
            yield f"{what}: {units.counted_names(names, verdict.options.top)}"
    machines: dict[str, list[str]] = {}
    for part in verdict.recorded.shards:
        machines.setdefault(part.header.machine, []).append(str(part.header.shard.number))
    for machine, numbers in machines.items():
        yield (
            f"shard{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} of {header.shard.of}: "
            f"{machine}"
        )


def compared_lines(header: GateHeader) -> Iterable[str]:
    """Yield what is compared, and why the base was chosen if no option names it."""
    yield f"base {header.base} -> head {header.head}"
    if header.base_rule:
        yield f"base: {header.base}, {header.base_rule}"


def _surroundings(verdict: Verdict) -> Iterable[str]:
    """Yield which interpreter and which code for the processor run the sides, as far as known."""
    if verdict.header.interpreter:
        yield f"interpreter: {verdict.header.interpreter}"
    cpus = (_cpu(part.header.sides.cpu) for part in verdict.recorded.shards or (verdict.recorded,))
    yield from (f"cpu: {cpu}" for cpu in dict.fromkeys(cpus) if cpu)


def _cpu(cpu: Mapping[str, Mapping[str, str]]) -> str:
    """Return what decides which code runs on the CPU, of both sides where they differ."""
    base, head = (cpu.get(side, {}) for side in (BASE, HEAD))
    values = {
        name: dict.fromkeys(side.get(name, "none") for side in (base, head))
        for name in {**base, **head}
    }
    return "; ".join(f"{name} {' -> '.join(side_values)}" for name, side_values in values.items())


# ---- Scripts -------------------------------------------------------------------------------------


def reproducers(verdict: Verdict) -> Iterable[str]:
    """Yield the script of each operation that was found slower, or why there is none."""
    titles = {finding.quantity.key: finding.quantity.title for finding in verdict.shown.findings}
    for reproducer in verdict.end.reproducers:
        case, _, name = reproducer.key
        name = f"{titles.get(reproducer.key, name)} ({verdict.names[case]})"
        yield (
            f"reproducer: {reproducer.script} for {name}"
            if reproducer.script
            else f"no reproducer for {name}: {reproducer.why_not}"
        )


# ---- Notes ---------------------------------------------------------------------------------------


def exact_differences(rows: Rows) -> list[str]:
    """Return the first exact differences of each case, those of cases with a finding first."""
    ranked = sorted(rows.exact_differences.items(), key=lambda item: item[0] not in rows.notable)
    return _grouped_by_text(
        (
            (rows.names[case], text)
            for case, texts in ranked
            for text in rows.limited(texts, always=True)
        ),
        rows,
    )


def reach_lines(rows: Rows) -> Iterable[str]:
    """Yield why each measured case is affected, and which differences no case shows."""
    reach = rows.verdict.reach
    reasons = ((rows.names[case], reasons[0]) for case, reasons in reach.reasons.items())
    yield from _grouped_by_text(reasons, rows)
    yield from rows.limited(f"{name}: run or used by no case" for name in reach.uncovered)
    yield from rows.limited(f"{name}: {why}" for name, why in reach.not_followed.items())
    yield from rows.limited(f"{path}: changed, and not seen in use" for path in reach.unused)


def note_lines(rows: Rows) -> Iterable[str]:
    """Yield which tests are not judged, what differs beside the code, and the notes about cases."""
    header = rows.verdict.header
    for what, tests in (
        ("only in the base", header.sides.only_base),
        ("only in the head", header.sides.only_head),
        ("other parameters in the head, so not compared", header.sides.changed),
        ("measured on both sides as the head has them", header.carried),
        ("ignored by git, and copied from the working tree", header.generated),
    ):
        if tests:
            yield f"{what}: {units.counted_names(tests, rows.verdict.options.top)}"
    yield from header.remarks
    new = header.sides.base.cannot_run.items()
    yield from _grouped_by_text(
        ((case, f"new, as the base cannot run it: {why}") for case, why in new), rows, "tests"
    )
    yield from _grouped_by_text(_left_out(rows), rows, "tests")
    for notes in _notes_of_cases(rows):
        yield from _grouped_by_text(notes, rows)
    yield from (f"--accept {pattern!r} matched no regression" for pattern in rows.verdict.unused)
    yield from (
        f"accept in pyproject.toml: {acceptance.text!r} held until {acceptance.until} and does not "
        f"any longer ({acceptance.reason}); remove it, or give another date"
        for acceptance in rows.verdict.options.expired
    )
    yield from _far_trials(rows)


def _left_out(rows: Rows) -> Iterable[tuple[str, str]]:
    """Yield the tests that are not measured, each with the reason."""
    base, head = (rows.verdict.header.sides.left_out.get(side, {}) for side in (BASE, HEAD))
    reasons = {
        case: base[case]
        if base.get(case) == head.get(case)
        else "; ".join(
            f"{texts[case]} in the {side}"
            for side, texts in ((BASE, base), (HEAD, head))
            if case in texts
        )
        for case in (*base, *head)
    }
    for case, why in (reasons | dict(rows.verdict.unmeasurable)).items():
        yield rows.names[case], f"left out: {why}"


def _compiled_once(base_ns: int, head_ns: int) -> str:
    """Return the times of compilations that are not judged.

    A test does not compile what another one has compiled before it.
    """
    once = "timed once and not judged"
    if base_ns and head_ns:
        times = f"{units.duration(base_ns)} -> {units.duration(head_ns)}"
        return f"was compiled with an empty cache in {times}, {once}"
    side = BASE if base_ns else HEAD
    took = units.duration(base_ns or head_ns)
    return f"was compiled in the {side} alone, in {took} with an empty cache, {once}"


def _thresholds_of_marks(options: JudgeOptions) -> Iterable[tuple[str, str]]:
    """Yield the thresholds of marks that are not those of the gate."""
    for case, mark in options.of_marks.items():
        differing = []
        if mark.case not in (None, options.case):
            differing.append(f"{units.percent(mark.case)} of the time")
        differing += [
            f"{units.percent(threshold.share)} of {threshold.name or 'operations'}"
            for threshold in mark.operations
            if threshold.share != options.operation
        ]
        if differing:
            yield case, ", ".join(differing)


def _notes_of_cases(rows: Rows) -> Iterable[list[tuple[str, str]]]:
    """Yield one kind of notes after the other: the names of cases, each with a text."""
    verdict = rows.verdict
    sides = verdict.header.sides
    names = rows.names
    sources = "other tests or data, from which a difference in time may come"
    yield [
        (names[case], f"{sources}: {', '.join(files)}")
        for case, files in verdict.header.sources.items()
    ]
    yield [
        (names[case], f"its mark opgate has other thresholds than the gate: {text}")
        for case, text in _thresholds_of_marks(verdict.options)
    ]
    yield [(names[case], note) for case, note in sides.notes.items()]
    judged = {
        estimate.quantity.case
        for estimate in verdict.decision.once
        if estimate.quantity.name == COLD
    }
    yield [
        (names[case], _compiled_once(*times))
        for case, times in sides.compile_times.items()
        if case not in judged
    ]
    yield [(names[case], what) for case, what in sides.outlives.items()]
    types = units.counted_names(
        dict.fromkeys(sides.uncompared.values()), verdict.options.top, "types"
    )
    uncompared = f"{types}, so the results of the sides are not compared"
    yield [(names[case], uncompared) for case in sides.uncompared]
    other_types = (
        "the base returns {} and the head {}, so a difference in time may come from the result"
    )
    yield [(names[case], other_types.format(*types)) for case, types in verdict.returned.items()]
    numbers = "the sides compute different numbers, so a difference in time may come from the data"
    yield [(names[case], numbers) for case in verdict.different if case not in verdict.returned]
    not_finite = "NaN or infinity in the {}; times may depend on it"
    yield [
        (names[case], not_finite.format(" and in the ".join(with_infinity)))
        for case, with_infinity in verdict.not_finite.items()
    ]
    fresh = units.counted(verdict.shown.fresh, "fresh trial", "fresh trials")
    yield [
        (names[quantity.case], f"{quantity.title} was flagged, and {fresh} did not confirm it")
        for finding in verdict.shown.findings
        for quantity in [finding.quantity]
        if finding.verdict == UNCONFIRMED and finding.could_be_confirmed
    ]


def _far_trials(rows: Rows) -> list[str]:
    """Return the sentence about a case; of several the worst and their number, or --verbose all."""
    cases = rows.far_trials
    if len(cases) < 2 or rows.verdict.options.everything:
        return [case.text for case in cases]
    worst = max(cases, key=lambda case: case.distance)
    return [f"trials far from the others in {len(cases)} cases; the worst is {worst.text}"]


def _grouped_by_text(
    notes: Iterable[tuple[str, str]], rows: Rows, what: str = "cases"
) -> list[str]:
    """Return a line for each text, with the cases that have it.

    Args:
        notes: name of a case, or of a test, and a text.
        rows: the content of the report.
        what: the notes are about, in the plural.
    """
    names_of_text: dict[str, list[str]] = {}
    for name, text in notes:
        names_of_text.setdefault(text, []).append(name)
    options = rows.verdict.options
    most = options.top if options.everything else units.NAMED
    return rows.limited(
        f"{units.counted_names(names, most, what)}: {text}" for text, names in names_of_text.items()
    )
