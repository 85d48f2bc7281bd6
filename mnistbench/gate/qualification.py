"""``mnistbench gate --qualify``.

Launches of the same code on both sides, and what gates find on this machine, resampled from them.

The roles of each launch are drawn anew, which is allowed because both sides ran the same code. This
makes the null hypothesis true by construction, so such gates cannot show a false alarm that the
roles themselves cause; gates with the roles as recorded can. A slowdown is simulated by adding
log(1 + change) to the differences of a case, or of an operation and, weighted by its share, of its
case; a one-time cost becomes longer. Launches in which each iteration of the head is really
made longer check this.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from mnistbench.core import units
from mnistbench.core.errors import RecordError
from mnistbench.gate.listing import reasons_with_cases
from mnistbench.gate.options import LAUNCHES, GateOptions, Thresholds
from mnistbench.gate.rounds import Rounds, Stage
from mnistbench.gate.statistics import quantities, raw_samples
from mnistbench.gate.statistics.permutation import simultaneous_bounds
from mnistbench.gate.statistics.quantities import LEAST_ONCE_NS, Quantity
from mnistbench.gate.statistics.raw_samples import (
    ENDING,
    FIRST_STAGE,
    LONGER_STAGE,
    End,
    Recorded,
)
from mnistbench.gate.verdict.decision import Decision, decide, is_settled
from mnistbench.gate.verdict.estimates import Estimate
from mnistbench.gate.verdict.findings import least_fresh, looks
from mnistbench.gate.words import ALL_CASES, CPU, WALL
from mnistbench.judging.distributions import binomial_interval
from mnistbench.judging.kinds import ITERATION, ONCE
from mnistbench.judging.verdicts import INCONCLUSIVE, PASSED
from mnistbench.showing.report import Block, Report, document
from mnistbench.showing.table import Column, Table

#: Time of a qualification without --launches and --budget, in seconds.
QUALIFYING_S = 600.0
#: Time of the resampling of a qualification, in seconds.
RESAMPLING_S = 60.0
#: Share of a qualification for launches of the same code.
SAME_SHARE = 0.75
#: Most launches of the same code that a qualification makes by itself, as a multiple of the fewest.
MOST_SAME = 5
#: Launches with LIVE added.
LIVE_LAUNCHES = 4
#: Start of the names of the files of a qualification.
PREFIX = "qualification_"

#: Slowdowns of a case that gates look for, as shares. The last one is measured, too.
AMOUNTS = (0.01, 0.02, 0.05, 0.10)
#: Share of gates that have to find the last slowdown.
LEAST_FOUND = 0.8
LIVE = AMOUNTS[-1]

#: Gates with each of these slowdowns; there are twice as many of the same code.
GATES = 200

#: A case is named as disturbed from this share of the time in which others had the core.
DISTURBED = 0.02
#: A case is named as noisy if its bound is this multiple of the next largest.
NOISY = 1.5

_change = partial(units.percent, signed=True)


def least_launches(limits: Thresholds) -> int:
    """Return the most launches of a gate, which are the fewest that a qualification needs."""
    return LAUNCHES + max(looks(limits))


# ---- Measure -------------------------------------------------------------------------------------


def measure_to_qualify(cases: Sequence[str], options: GateOptions, rounds: Rounds) -> End:
    """Measure the same code on both sides, then with time added to the head.

    Return what gates of the former find.
    """
    budget = rounds.budget
    least = least_launches(options)
    launches = options.launches
    same = Stage(FIRST_STAGE, launches, least, cases, budget.deadline)
    if "launches" not in options.given_fields:
        rounds.run(replace(same, launches=budget.at_once))
        same_s = SAME_SHARE * (options.budget_s or QUALIFYING_S)
        rounds_that_fit = (
            int(same_s / budget.mean_round_s(FIRST_STAGE)) if budget.rounds_s[FIRST_STAGE] else 0
        )
        most = MOST_SAME * least
        same = replace(same, launches=max(least, min(most, rounds_that_fit * budget.at_once)))
    longer = replace(same, number=LONGER_STAGE, launches=LIVE_LAUNCHES, min_launches=LIVE_LAUNCHES)
    for stage, added in ((same, 0.0), (longer, LIVE)):
        if cut_short := rounds.run(stage, added=added):
            return End(cut_short)
    rounds.progress.say("resampling gates")
    gate_s = budget.survey_s + budget.rounds(LAUNCHES) * budget.mean_round_s(FIRST_STAGE)
    until = min(budget.deadline, budget.now() + RESAMPLING_S)
    qualification = qualify(rounds.measured, options, gate_s, lambda: budget.now() < until)
    return End(qualification=qualification)


# ---- Resample gates ------------------------------------------------------------------------------


class Pool:
    """Launches of the same code, from which gates are drawn."""

    def __init__(self, quantities: Sequence[Quantity], seed: int = 1) -> None:
        self.quantities = quantities
        self.launches = len(quantities[0].logs)
        self._logs = np.array([quantity.logs for quantity in quantities])
        self._seed = seed
        self._draw = np.random.default_rng(seed)

    def gate(
        self,
        limits: Thresholds,
        hit: Quantity | None = None,
        change: float = 0.0,
        *,
        launches: int = LAUNCHES,
        start: int | None = None,
    ) -> tuple[list[Estimate], Decision]:
        """Return what the first stage flags, and the decision.

        Args:
            limits: the thresholds.
            hit: the case or operation that is slower.
            change: of it, as a share.
            launches: of the first stage.
            start: number of the first launch; all keep their roles. If not given, it is drawn, with
                new roles.
        """
        size = launches + max(looks(limits))
        drawn = np.arange(size) + (self._draw.integers(self.launches) if start is None else start)
        logs = self._logs[:, drawn % self.launches] * (
            self._draw.choice([-1.0, 1.0], size) if start is None else 1.0
        )
        for row, quantity in enumerate(self.quantities):
            if hit and (
                quantity.key == hit.key
                or (quantity.is_case and quantity.case == hit.case and not hit.is_once)
            ):
                part = hit.share if quantity.is_case and not hit.is_case else 1
                part = (
                    hit.base_ns / (hit.base_ns + LEAST_ONCE_NS) if quantity.kind == ONCE else part
                )
                logs[row] += math.log1p(change * part)
        sampled = [
            replace(quantity, logs=tuple(row))
            for quantity, row in zip(self.quantities, logs, strict=True)
        ]
        first = [replace(quantity, logs=quantity.logs[:launches]) for quantity in sampled]
        decision = decide(first, [], limits, self._seed)
        flagged = [finding.screened for finding in decision.findings]
        cases = {estimate.quantity.case for estimate in flagged}
        first_look = least_fresh(launches, limits)
        for look in (first_look, *looks(limits)[1:]) if cases else ():
            fresh = [
                replace(quantity, logs=quantity.logs[launches : launches + look])
                for quantity in sampled
                if {quantity.case, ALL_CASES} & cases
            ]
            decision = decide(first, fresh, limits, self._seed)
            if is_settled(decision, limits):
                break
        return flagged, decision


def is_found(result: Decision, hit: Quantity) -> bool:
    """Whether a gate reports that this case, or this operation, got slower."""
    slower = [finding.quantity for finding in result.findings if finding.is_slower]
    return any(
        (quantity.case, quantity.is_case) == (hit.case, hit.is_case)
        and (hit.is_case or quantity.name == hit.name)
        for quantity in slower
    )


def _has_slower(result: Decision) -> bool:
    """Whether a gate reports that anything got slower: of the same code it is a false alarm."""
    return any(finding.is_slower for finding in result.findings)


def share(hits: int, trials: int) -> str:
    """Return a share with its 95 % interval as text."""
    low, high = map(units.percent, binomial_interval(hits, trials))
    return f"{units.percent(hits / trials)} ({low} to {high})"


def qualify(
    measured: Recorded,
    limits: Thresholds,
    gate_s: float,
    may_go_on: Callable[[], bool],
) -> dict[str, Any]:
    """Return what gates with these limits find on this machine, as JSON.

    Empty if no case has times in every launch.

    Args:
        measured: ``least_launches(limits)`` of the same code or more, and LIVE_LAUNCHES of the
            stage LONGER_STAGE.
        limits: the thresholds of the gates.
        gate_s: duration of a gate without fresh launches, in seconds.
        may_go_on: whether there is time for more gates, asked after a tenth of them.
    """
    same, live = (
        quantities.quantities([launch for launch in measured.launches if launch.stage == stage])
        for stage in (FIRST_STAGE, LONGER_STAGE)
    )
    # CPU if it has both.
    live_logs = {
        quantity.case: quantity.logs
        for quantity in live
        if quantity.kind == ITERATION and quantity.clock in (WALL, CPU)
    }
    hits = [quantity for quantity in same if (quantity.kind, quantity.clock) == (ITERATION, WALL)]
    hits = [
        quantity
        for quantity in hits
        if np.isfinite([*quantity.logs, *live_logs.get(quantity.case, (math.nan,))]).all()
    ]
    if not hits:
        return {}
    pool = Pool(same, measured.header.seed)
    gates = list[Decision]()
    times_found = [[0] * len(AMOUNTS) for _ in hits]
    while len(gates) < 2 * GATES and (len(gates) < GATES // 5 or may_go_on()):
        number = len(gates) // 2 % len(hits)
        for position, added in enumerate(AMOUNTS):
            times_found[number][position] += is_found(
                pool.gate(limits, hits[number], added)[1], hits[number]
            )
        gates += [pool.gate(limits)[1] for _ in range(2)]
    windows = [
        _has_slower(pool.gate(limits, start=start)[1])
        for start in range(pool.launches - least_launches(limits) + 1)
    ]
    logs = np.array([live_logs[hit.case] for hit in hits])
    changes = np.expm1(
        [logs.mean(axis=1), *simultaneous_bounds(logs, measured.header.seed)]
    ).T.tolist()
    highs = [
        {
            (estimate.quantity.case, estimate.quantity.kind, estimate.quantity.clock): estimate.high
            for estimate in gate.cases
        }
        for gate in gates
    ]
    cases = [
        {
            "case": measured.header.name(hit.case),
            "rules_out": statistics.median(
                gate_highs[hit.case, ITERATION, WALL] for gate_highs in highs
            ),
            "gates": len(range(number, len(gates) // 2, len(hits))),
            "found": times_found[number],
            "measured": changes[number],
        }
        for number, hit in enumerate(hits)
    ]
    data = {
        "rules_out": statistics.median(gate.bound for gate in gates),
        "gate_seconds": gate_s,
        "gates": len(gates),
        "regressed": sum(map(_has_slower, gates)),
        "inconclusive": sum(
            gate.outcome == INCONCLUSIVE and not _has_slower(gate) for gate in gates
        ),
        "windows": len(windows),
        "windows_regressed": sum(windows),
        "other_programs": statistics.fmean(
            side.queued
            for launch in measured.launches
            for case in launch.cases.values()
            for build in case
            for side in build.values()
        ),
        "added": [*AMOUNTS],
        "found": [sum(case_counts) for case_counts in zip(*times_found, strict=True)],
        "cases": cases,
    }
    # The latter say nothing of the machine.
    judged = {*(hit.case for hit in hits), *measured.unmeasurable}
    without = [measured.header.name(case) for case in measured.header.labels if case not in judged]
    reasons = [f"{name} has no usable time in every launch" for name in without]
    return {
        **data,
        "reasons": [*reasons, *_reasons(data)],
        "improvements": list(_improvements(data, limits)),
    }


def _reasons(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a machine cannot judge a slowdown of LIVE."""
    if data["rules_out"] >= LIVE:
        yield f"it cannot rule out {_change(LIVE)}"
    for case in ({**data, "case": "a case", "gates": data["gates"] // 2}, *data["cases"]):
        if case["gates"] and binomial_interval(case["found"][-1], case["gates"])[1] < LEAST_FOUND:
            yield f"it finds {_change(LIVE)} in {case['case']} in {_found(-1, case)} gates"
    for case in data["cases"]:
        _, least, most = case["measured"]
        if most < LIVE / 2 or least > 2 * LIVE:
            yield (
                f"{_change(LIVE)} was added to {case['case']}, and {_change(least)} to "
                f"{_change(most)} measured"
            )


def _improvements(data: Mapping[str, Any], limits: Thresholds) -> Iterator[str]:
    """Yield what limits the machine, as its launches show."""
    if data["rules_out"] > limits.case:
        needed = math.ceil(
            LAUNCHES * (math.log1p(data["rules_out"]) / math.log1p(limits.case)) ** 2
        )
        yield (
            f"about {needed} --launches would rule out {units.percent(limits.case)}: bounds fall "
            "with their square root"
        )
    noisiest, *quieter = sorted(data["cases"], key=itemgetter("rules_out"), reverse=True)
    if quieter and noisiest["rules_out"] > NOISY * quieter[0]["rules_out"]:
        bounds = [units.percent_up(case["rules_out"]) for case in (noisiest, quieter[0])]
        yield (
            f"the noisiest case is {noisiest['case']}: {bounds[0]} is ruled out there, {bounds[1]} "
            "in the next one"
        )
    if data["other_programs"] > DISTURBED:
        yield f"other programs had the core for {units.percent(data['other_programs'])} of the time"


# ---- Report --------------------------------------------------------------------------------------


def report(measured: Recorded, top: int) -> tuple[str, Report]:
    """Return the outcome of a qualification, PASSED or INCONCLUSIVE, and its report.

    ``top`` limits the rows.
    """
    data = measured.end.qualification
    sentence = last_line(measured)
    elapsed = units.duration(measured.end.elapsed_s * 1e9)
    cases = units.counted(len(measured.header.labels), "case")
    count = f"{cases}, {len(measured.launches)} launches, {elapsed} from start to finish"
    blocks = [
        Block(
            "",
            (
                f"{measured.header.head} on both sides, {measured.header.machine}",
                f"measured: {count}",
            ),
        )
    ]
    if data:
        columns = (
            Column[Any]("case", itemgetter("case")),
            Column[Any]("rules out", itemgetter("rules_out"), units.percent_up),
            *(
                Column[Any](f"finds {_change(added)}", partial(_found, number))
                for number, added in enumerate(AMOUNTS)
            ),
            Column[Any](
                f"measured {_change(LIVE)} as",
                lambda row: "{} ({} to {})".format(*map(_change, row["measured"])),
            ),
        )
        rows = sorted(data["cases"], key=itemgetter("rules_out"), reverse=True)[:top]
        blocks += [
            Block(
                "Cases",
                tables=(
                    Table("cases, the noisiest first; gates that find a slowdown", columns, rows),
                ),
            )
        ]
        blocks += [Block("What limits it", tuple(data["improvements"]))]
    blocks += [Block("Not measured", tuple(reasons_with_cases(measured.unmeasurable)))]
    outcome = PASSED if data and not data["reasons"] else INCONCLUSIVE
    data_of_report = document(
        "qualification",
        outcome=outcome,
        sentence=sentence,
        machine=measured.header.machine,
        found=data or None,
    )
    return outcome, Report(
        sentence, [*blocks, Block("Result", (sentence,))], data_of_report, drawn=True
    )


def _found(position: int, row: Mapping[str, Any]) -> str:
    return f"{row['found'][position]} of {row['gates']}"


def last_line(measured: Recorded, day: str = "") -> str:
    """Return whether the machine is qualified, and what it rules out and finds.

    With 95 % intervals, and its false alarms.
    """
    data = measured.end.qualification
    if not data:
        return (
            "this runner is not qualified: "
            f"{measured.end.cut_short or 'no case has usable times in every launch'}"
        )
    verb, when = ("was", f" on {day}") if day else ("is", "")
    because = ", and ".join(data["reasons"])
    is_qualified = (
        f"{verb} not qualified{when}, because {because}" if because else f"{verb} qualified{when}"
    )
    finds = ", ".join(
        f"{_change(added)} in {share(hits, data['gates'] // 2)}"
        for added, hits in zip(AMOUNTS, data["found"], strict=True)
    )
    return (
        f"this runner {is_qualified}: it rules out {units.percent_up(data['rules_out'])} in "
        f"{units.duration(data['gate_seconds'] * 1e9)}; it finds {finds} of gates; false alarms "
        f"in {share(data['regressed'], data['gates'])} of {data['gates']} resampled gates, of "
        f"which {units.percent(data['inconclusive'] / data['gates'])} are inconclusive, and in "
        f"{data['windows_regressed']} of {data['windows']} with the roles as recorded"
    )


def newest(folder: Path, machine: str, cases: Sequence[str]) -> str:
    """Return the last line of the newest qualification of a machine with these cases, and its date.

    Empty if there is none.
    """
    for path in sorted(folder.glob(f"{PREFIX}*{ENDING}"), reverse=True):
        with suppress(RecordError, KeyError):  # damaged, or of a version with other keys
            recorded = raw_samples.load(path)
            if recorded.end.qualification and (
                recorded.header.machine,
                set(recorded.header.labels),
            ) == (
                machine,
                set(cases),
            ):
                return last_line(recorded, recorded.header.started[:10])
    return ""
