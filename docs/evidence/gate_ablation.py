"""Measure the quantity of each part of a launch.

The same code on both sides, with one part removed at a time.

    python docs/evidence/gate_ablation.py measure 12 FOLDER [ARM...]  # 12 launches of each arm
    python docs/evidence/gate_ablation.py judge FOLDER

Prints mean and standard deviation (SD) of the differences between the sides. A part without an
quantity can be removed.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace
from pathlib import Path

from mnistbench.gate import launcher
from mnistbench.gate import trees as gate_trees
from mnistbench.gate.launcher import Plan, launching, stage_home
from mnistbench.gate.statistics import quantities, raw_samples
from mnistbench.gate.words import BASE, HEAD

ROOT = Path(__file__).parents[2]

#: Arm -> what is edited in the code that measures: (file, text, text instead).
ARMS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "as built": (),
    "default allocator": (("worker.py", "    pin_allocator()\n", ""),),
    "huge pages": (),
    "untouched memory": (("worker.py", "    touch_heap()\n", ""),),
    "no coin": (
        (
            "worker.py",
            "self._order = self._coin.sample([BASE, HEAD], 2)",
            "self._order = [BASE, HEAD]",
        ),
        ("worker.py", "order = self._order[:: -1 if build % 2 else 1]", "order = self._order"),
        (
            "turns.py",
            "order = order[::-1] if pair % 2 else coin.sample(order, len(order))",
            "pass",
        ),
    ),
}


def measure(launches: int, folder: Path, arms: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    plain = launcher.environment
    with gate_trees.scratch() as scratch:
        trees = {
            name: gate_trees.of_revision(ROOT, "HEAD", scratch / name) for name in (BASE, HEAD)
        }
        plan = Plan(
            trees=trees,
            pythons=dict.fromkeys(trees, sys.executable),
            variables={name: {} for name in trees},
            home=stage_home(scratch),
            repository=ROOT,
            arguments=("bench/test_step.py", "--bench-model=convnet"),
            phases=(),
        )
        for number in range(launches):
            for arm in arms:
                home = stage_home(scratch / f"{arm.replace(' ', '-')}-{number}")
                for file, old, new in ARMS[arm]:
                    path = home / "mnistbench" / "gate" / "sides" / file
                    text = path.read_text()
                    assert old in text, f"{file} has no {old!r}"
                    path.write_text(text.replace(old, new))

                def environment(*arguments, arm=arm):
                    found = plain(*arguments)
                    if arm == "huge pages":
                        found["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
                    return found

                launcher.environment = environment
                with launching(replace(plan, home=home), number, None, scratch / "log") as launch:
                    launch.ready()
                    line = launch.measure().line(1)
                path = folder / f"{arm}.jsonl.gz"
                if not path.exists():
                    raw_samples.append(path, {"schema": raw_samples.SCHEMA})
                raw_samples.append(path, line)


def judge(folder: Path) -> None:
    found: dict[tuple[str, str, str], dict[str, quantities.Quantity]] = {}
    arms = [arm for arm in ARMS if (folder / f"{arm}.jsonl.gz").exists()]
    for arm in arms:
        launches = raw_samples.load(folder / f"{arm}.jsonl.gz").launches
        print(
            f"{arm}: {len(launches)} launches, "
            f"{statistics.fmean(launch.seconds for launch in launches):.1f} s each"
        )
        for quantity in quantities.quantities(launches):
            found.setdefault(quantity.key, {})[arm] = quantity
    print(f"{'':70}" + "".join(f"{arm:>20}" for arm in arms))
    for (case, kind, name), by_arm in found.items():
        measured = [by_arm.get(arm) for arm in arms]
        if all(measured) and (kind == "iteration" or measured[0].share >= 0.05):
            cells = (
                f"{statistics.fmean(e.logs):+7.2%} SD {statistics.stdev(e.logs):6.2%}"
                for e in measured
            )
            print(
                f"{case.removesuffix(' on digits')[:24]:24} {name[:44]:45}"
                + "".join(f"{cell:>20}" for cell in cells)
            )


def main() -> None:
    if sys.argv[1] == "measure":
        measure(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:] or list(ARMS))
    else:
        judge(Path(sys.argv[2]))


if __name__ == "__main__":
    main()
