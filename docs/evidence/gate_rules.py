"""Apply the rules of other tools to consecutive runs of the same code.

They get as many iterations as the gate uses.

    pip install asv pyperf
    python docs/evidence/gate_rules.py RAW.jsonl.gz...  # of gates over the same code

The base run has the iterations of the base in five consecutive trials, the new run those of the
other side in the next five. Each rule is the library's own code: pytest-benchmark's check for
``mean:5%`` and ``min:5%``, asv's Mann-Whitney test with factor 1.1, pyperf's t-test. TorchBench's
rule is a formula: a difference of more than 7 % between two medians. For power, the samples of the
new run are scaled.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mnistbench.gate.samples import raw_samples
from mnistbench.gate.samples.raw_samples import Trial
from mnistbench.gate.words import BASE, HEAD, WALL

Samples = Sequence[float]

#: Trials of a run: two runs are a gate's first stage.
TRIALS = 5


def rules() -> Mapping[str, Callable[[Samples, Samples], bool]]:
    from asv.commands.compare import _is_result_better
    from asv_runner.statistics import compute_stats
    from pyperf._utils import is_significant
    from pytest_benchmark.stats import Stats
    from pytest_benchmark.utils import parse_compare_fail

    def of_pytest_benchmark(text: str) -> Callable[[Samples, Samples], bool]:
        check = parse_compare_fail(text)

        def fails(base: Samples, new: Samples) -> bool:
            both = []
            for run in (new, base):
                stats = Stats()
                for sample in run:
                    stats.update(sample)
                both.append(stats.as_dict())
            return bool(check.fails(*both))

        return fails

    def of_asv(base: Samples, new: Samples) -> bool:
        (base_time, base_stats), (new_time, new_stats) = (
            compute_stats(list(run), 1) for run in (base, new)
        )
        return bool(
            _is_result_better(
                base_time, new_time, (base_stats, list(base)), (new_stats, list(new)), 1.1
            )
        )

    def of_pyperf(base: Samples, new: Samples) -> bool:
        size = min(len(base), len(new))  # it wants as many of both
        return is_significant(list(base[:size]), list(new[:size]))[0] and statistics.fmean(
            new
        ) > statistics.fmean(base)

    return {
        "pytest-benchmark mean:5%": of_pytest_benchmark("mean:5%"),
        "pytest-benchmark min:5%": of_pytest_benchmark("min:5%"),
        "asv, Mann-Whitney and 1.1": of_asv,
        "pyperf, t-test": of_pyperf,
        "TorchBench, 7 %": lambda base, new: (
            statistics.median(new) > 1.07 * statistics.median(base)
        ),
    }


def run_of(trials: Sequence[Trial], side: str) -> dict[str, list[float]]:
    """Return the seconds of every call of a side, case by case."""
    return {
        case: [
            ns / 1e9
            for trial in trials
            for build in trial.cases[case]
            for ns in build[side].times[WALL]
        ]
        for case in trials[0].cases
    }


def main() -> None:
    trials = [
        trial
        for file in sys.argv[1:]
        for trial in raw_samples.load(Path(file)).trials
        if trial.stage == 1
    ]
    starts = range(0, len(trials) - 2 * TRIALS + 1, TRIALS)
    pairs = [
        (
            run_of(trials[start : start + TRIALS], BASE),
            run_of(trials[start + TRIALS : start + 2 * TRIALS], HEAD),
        )
        for start in starts
    ]
    print(f"{len(trials)} trials, {len(pairs)} pairs of runs, {len(pairs[0][0])} cases")
    heads = ("any case alarmed", "cases alarmed", "+2 % caught", "+5 % caught", "+10 % caught")
    print(f"{'rule':28} " + " ".join(f"{head:>16}" for head in heads))
    for name, fails in rules().items():
        alarms = [[fails(base[case], new[case]) for case in base] for base, new in pairs]
        caught = [
            [
                fails(base[case], [sample * change for sample in new[case]])
                for base, new in pairs
                for case in base
            ]
            for change in (1.02, 1.05, 1.10)
        ]
        any_case = f"{sum(map(any, alarms))} of {len(pairs)}"
        cases = f"{sum(map(sum, alarms))} of {sum(map(len, alarms))}"
        shares = (f"{sum(hits) / len(hits):.0%}" for hits in caught)
        print(f"{name:28} " + " ".join(f"{cell:>16}" for cell in (any_case, cases, *shares)))


if __name__ == "__main__":
    main()
