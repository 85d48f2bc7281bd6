"""The rules that people use today, on runs one after the other of the same code, as long as a gate's verdict takes.

    python docs/studies/gate_rules.py measure 16 FOLDER 35   # sessions, folder, seconds per case: two sessions are a verdict
    pip install asv pyperf && python docs/studies/gate_rules.py judge FOLDER

Each rule is the library's own code: pytest-benchmark's check for ``mean:5%`` and ``min:5%``, asv's Mann-Whitney test with
factor 1.1, pyperf's t-test. TorchBench's is a formula: more than 7 % between two medians. A session is pytest-benchmark's of
ConvNet's training step at batch 1, 16 and 64, with the allocator pinned. Power: the later session's samples are scaled.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mnistbench.allocator import PINNED

Samples = Sequence[float]


def measure(sessions: int, folder: Path, seconds: float) -> None:
    for _ in range(sessions):
        command = [
            sys.executable, "-m", "pytest", "bench/test_step.py", "-k", "convnet", "-q", "--bench-tensorboard=off",
            "--no-op-profile", f"--benchmark-max-time={seconds}", "--benchmark-save-data",
            f"--benchmark-storage={folder.absolute()}", "--benchmark-save=session",
        ]  # fmt: skip
        subprocess.run(command, env={**os.environ, **PINNED}, check=True, stdout=subprocess.DEVNULL)


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
            for samples in (new, base):
                stats = Stats()
                for sample in samples:
                    stats.update(sample)
                both.append(stats.as_dict())
            return bool(check.fails(*both))

        return fails

    def of_asv(base: Samples, new: Samples) -> bool:
        (old_time, old), (new_time, newer) = (compute_stats(list(samples), 1) for samples in (base, new))
        return bool(_is_result_better(old_time, new_time, (old, list(base)), (newer, list(new)), 1.1))

    return {
        "pytest-benchmark mean:5%": of_pytest_benchmark("mean:5%"),
        "pytest-benchmark min:5%": of_pytest_benchmark("min:5%"),
        "asv, Mann-Whitney and 1.1": of_asv,
        "pyperf, t-test": lambda base, new: (
            is_significant(list(base), list(new))[0] and statistics.fmean(new) > statistics.fmean(base)
        ),
        "TorchBench, 7 %": lambda base, new: statistics.median(new) > 1.07 * statistics.median(base),
    }


def sessions_of(folder: Path) -> list[dict[str, list[float]]]:
    files = sorted(folder.rglob("*_session.json"))
    return [{bench["name"]: bench["stats"]["data"] for bench in json.loads(file.read_text())["benchmarks"]} for file in files]


def judge(folder: Path) -> None:
    sessions = sessions_of(folder)
    pairs = list(itertools.pairwise(sessions))
    print(f"{len(sessions)} sessions, {len(pairs)} neighbouring pairs, {len(sessions[0])} cases")
    heads = ("any case alarmed", "cases alarmed", "+2 % caught", "+5 % caught", "+10 % caught")
    print(f"{'rule':28} " + " ".join(f"{head:>16}" for head in heads))
    for name, fails in rules().items():
        alarms = [[fails(base[case], new[case]) for case in base] for base, new in pairs]
        caught = [
            [fails(base[case], [sample * change for sample in new[case]]) for base, new in pairs for case in base]
            for change in (1.02, 1.05, 1.10)
        ]
        any_case = f"{sum(map(any, alarms))} of {len(pairs)}"
        cases = f"{sum(map(sum, alarms))} of {sum(map(len, alarms))}"
        shares = (f"{sum(hits) / len(hits):.0%}" for hits in caught)
        print(f"{name:28} " + " ".join(f"{cell:>16}" for cell in (any_case, cases, *shares)))


def main() -> None:
    if sys.argv[1] == "measure":
        measure(int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
    else:
        judge(Path(sys.argv[2]))


if __name__ == "__main__":
    main()
