"""Header and launches -> all that a report says. The same for what was just measured and for a file that is replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from mnistbench.compare import CaseComparison, OpChange, Side
from mnistbench.criteria import Acceptance
from mnistbench.digest import CaseDigest
from mnistbench.errors import RecordError
from mnistbench.gate import samples
from mnistbench.gate.decision import INCONCLUSIVE, PASSED, REGRESSED, Decision, Finding, Thresholds, decide
from mnistbench.gate.samples import BASE, NEW, Effect, Launch, SideSample
from mnistbench.reader import Reader
from mnistbench.record import median_ns
from mnistbench.witnesses import TOLERANCE, facts, shortened


@dataclass(frozen=True)
class Header:
    """What a file says before its launches."""

    base: str
    head: str
    arguments: tuple[str, ...]
    seed: int
    split: bool
    labels: Mapping[str, str]  # node id -> what people call the case
    exact: Mapping[str, bool]  # node id -> whether the same code computes the same to the bit
    only_base: tuple[str, ...]
    only_head: tuple[str, ...]
    changed: tuple[str, ...]  # one name, and other Params
    torch: str
    split_because: str = ""  # why the sides had processes of their own, where their code is the reason
    memory: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # node id -> side -> most bytes of tensors
    resident: Mapping[str, int] = field(default_factory=dict)  # side -> most bytes that its process had

    @classmethod
    def read(cls, header: Mapping[str, Any]) -> Header:
        """Check a header.

        Raises:
            RecordError: names the field.
        """
        reader = Reader(header)
        return cls(
            base=reader["base"].text(),
            head=reader["head"].text(),
            arguments=reader["arguments"].texts(),
            seed=reader["seed"].nanoseconds(),
            split=reader["split"].flag(),
            labels={case: label.text() for case, label in reader["labels"].mapping().items()},
            exact={case: reader["exact"][case].flag() for case in reader["labels"].mapping()},
            only_base=reader["only_base"].texts(),
            only_head=reader["only_head"].texts(),
            changed=reader["changed"].texts(),
            torch=reader["torch"].text(),
            split_because=reader["split_because"].text() if "split_because" in header else "",
            memory={case: _sizes(sizes) for case, sizes in reader["memory"].mapping().items()} if "memory" in header else {},
            resident=_sizes(reader["resident"]) if "resident" in header else {},
        )

    def name(self, case: str) -> str:
        """Return what people call a case: its label, or its node id where two have one label."""
        label = self.labels[case]
        return label if Counter(self.labels.values())[label] == 1 else case


@dataclass(frozen=True)
class Verdict:
    """The decision, and what is told beside it."""

    header: Header
    decision: Decision  # cases are called by their names for people
    thresholds: Thresholds
    accepted: tuple[Finding, ...]
    unused: tuple[str, ...]  # --accept that matched nothing
    reason: str  # why that is accepted
    facts: Mapping[str, tuple[str, ...]]  # case -> exact differences
    different: tuple[str, ...]  # cases in which the sides do not compute the same
    unmeasured: tuple[str, ...]  # cases without a time in every launch
    unprofiled: tuple[str, ...]  # cases with operations in some launches, and none in others
    missing_allowed: bool  # a case of the base that the head has not, or has otherwise, is no reason
    cut_short: str
    seconds: float  # measured

    @property
    def regressions(self) -> tuple[Finding, ...]:
        """What fails the gate."""
        return tuple(f for f in self.decision.findings if f.verdict == REGRESSED and f not in self.accepted)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it could not be judged."""
        short = (self.cut_short,) if self.cut_short else ()
        unmeasured = tuple(f"{case}: was not measured in every launch; measure again" for case in self.unmeasured)
        return (*short, *self._missing(), *unmeasured, *self.decision.reasons)

    def _missing(self) -> Iterator[str]:
        if self.missing_allowed:
            return
        for cases, what in ((self.header.only_base, "not in the head"), (self.header.changed, "not the same in the head")):
            if cases:
                more = f" and {len(cases) - 3} more" if len(cases) > 3 else ""
                yield f"{what}, so not judged: {', '.join(cases[:3])}{more}; add --allow-missing if that is meant"

    @property
    def outcome(self) -> str:
        """PASSED, REGRESSED or INCONCLUSIVE."""
        if self.decision.outcome == REGRESSED and self.regressions:
            return REGRESSED
        return INCONCLUSIVE if self.reasons else PASSED


def _sizes(sizes: Reader) -> dict[str, int]:
    return {side: size.whole() for side, size in sizes.mapping().items()}


def conclude(
    header: Mapping[str, Any],
    launches: Sequence[Launch],
    thresholds: Thresholds,
    *,
    accept: Sequence[Acceptance] = (),
    reason: str = "",
    cut_short: str = "",
    allow_missing: bool = False,
) -> Verdict:
    """Judge what was measured.

    Raises:
        RecordError: the header is spoiled, or a launch has a case that it does not name.
    """
    read = Header.read(header)
    unknown = [case for launch in launches for case in launch.cases if case not in read.labels]
    if unknown:
        raise RecordError(f"a launch has a case that the header does not name: {unknown[0]}")
    stages = [[launch for launch in launches if launch.stage == stage] for stage in (1, 2)]
    first = samples.effects(stages[0])
    held: dict[str, list[tuple[str, str, Sequence[samples.OpKey]]]] = {}
    for effect in first:
        if effect.kind != "call":
            held.setdefault(effect.case, []).append((effect.kind, effect.name, effect.members))
    second = samples.effects(stages[1], held)

    def matching(finding: Finding) -> list[str]:
        return [pattern for pattern in accept if _means(pattern, finding, read)]

    decision = decide(
        [_named(effect, read) for effect in first],
        [_named(effect, read) for effect in second],
        [[launch.control for launch in stage] for stage in stages],
        thresholds,
        read.seed,
        lambda finding: bool(matching(finding)),
    )
    accepted = {id(finding): matching(finding) for finding in decision.findings}
    used = {p for finding in decision.findings if finding.verdict == REGRESSED for p in accepted[id(finding)]}
    measured = {effect.case for effect in first if effect.kind == "call"}
    return Verdict(
        header=read,
        decision=decision,
        thresholds=thresholds,
        accepted=tuple(f for f in decision.findings if f.verdict == REGRESSED and accepted[id(f)]),
        unused=tuple(pattern for pattern in accept if pattern not in used),
        reason=reason,
        facts={
            read.name(case): found
            for launch in stages[0][-1:]
            for case, builds in launch.cases.items()
            if (found := facts(_compared(case, builds[0])))
        },
        different=tuple(
            read.name(case)
            for case in read.labels
            if any(_differs(build, read.exact[case]) for launch in launches for build in launch.cases.get(case, ()))
        ),
        unmeasured=tuple(read.name(case) for case in read.labels if case not in measured) if first else (),
        unprofiled=tuple(read.name(case) for case in read.labels if _partly_profiled(case, stages[0])),
        missing_allowed=allow_missing,
        cut_short=cut_short,
        seconds=sum(launch.seconds for launch in launches),
    )


def _partly_profiled(case: str, launches: Sequence[Launch]) -> bool:
    profiled = [bool(side.operations) for one in launches for build in one.cases.get(case, ()) for side in build.values()]
    return any(profiled) and not all(profiled)


def _named(effect: Effect, header: Header) -> Effect:
    return replace(effect, case=header.name(effect.case))


def _differs(build: Mapping[str, SideSample], exact: bool) -> bool:
    (base_bits, base_number), (new_bits, new_number) = build[BASE].outcome, build[NEW].outcome
    if base_bits == new_bits:
        return False
    return exact or abs(new_number - base_number) > TOLERANCE * max(abs(base_number), abs(new_number))


def _means(pattern: str, finding: Finding, header: Header) -> bool:
    """Whether an ``--accept CASE:OP`` means a finding; ``*`` alone is more than itself."""
    effect = finding.screened.effect
    node_id = next(case for case in header.labels if header.name(case) == effect.case)
    cases = {
        effect.case,
        header.labels[node_id],
        header.labels[node_id].partition(" on ")[0],
        node_id,
        node_id.rpartition("::")[2],
    }
    operations = {effect.name}
    if effect.kind != "other":
        operations |= {name for key in effect.members for name in (key[0], shortened(key[0]), key[2]) if name}
    if effect.kind == "call":
        operations = {"call", effect.name}
    literal = pattern.replace("[", "[[]").replace("?", "[?]")
    return any(fnmatchcase(f"{case}:{operation}", literal) for case in cases for operation in operations)


def _compared(case: str, build: Mapping[str, SideSample]) -> CaseComparison:
    """Return both sides of a build as what tells exact differences wants."""
    digests = [CaseDigest(case, case, None, 0, 0, parameter_count=build[side].parameters) for side in (BASE, NEW)]
    keys = {**build[BASE].operations, **build[NEW].operations}
    changes = [
        OpChange(*key, (side.ns,) if (side := _of(build[BASE], key)) else (), side, _of(build[NEW], key)) for key in keys
    ]
    changes.sort(key=lambda change: (-abs(change.change_ns), change.name, change.phase, change.module))
    return CaseComparison(digests[0], digests[1], "cpu", (0,), 0, tuple(changes), 0, {})


def _of(side: SideSample, key: samples.OpKey) -> Side | None:
    operation = side.operations.get(key)
    if operation is None:
        return None
    return Side(median_ns(operation.self_ns), 0, operation.calls, operation.memory_bytes, (), operation.kernels)
