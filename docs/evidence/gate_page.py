"""Size of the page of a gate with many cases, and how long Chromium takes to open it.

    python docs/evidence/gate_page.py [CASES [OPERATIONS [PROFILES]]]

Makes the samples of a gate of CASES cases (500) with OPERATIONS operations each (0), one case in 50
of them slower, and the page of its verdict. The first PROFILES cases (0) have 2,000 call paths
each, through functions that the cases share. Then opens the page ten times in the system's Chromium
and prints, as medians, the time from the start of the navigation until the page is loaded and a
frame with it is drawn, and the CPU time of the page's main thread until then, which other programs
on the machine do not make longer. With profiles, also how long the panel of such a case takes to be
drawn.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from gate_builders import Measured, recorded, series

from mnistbench.gate.decide.verdict.verdict import Verdict, conclude
from mnistbench.gate.listing import Reach
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.report.page.view import gate_page
from mnistbench.gate.samples.case_profile import CallPath, CaseProfile, ProfiledFunction
from mnistbench.gate.samples.raw_samples import COMPLETE
from mnistbench.gate.words import BASE, HEAD

#: Times that the page is opened.
VISITS = 10

#: Wait for a frame after the end of loading; return the time from the start, in ms.
DRAWN = """async () => {
    await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
    return performance.now();
}"""


#: Call paths of a case with a profile.
PATHS = 2_000

#: Functions of the project; a case runs a seventh of them.
FUNCTIONS = 2_100

#: Open the first case; return how long that takes until a frame is drawn, in ms.
OPENED = """async () => {
    const start = performance.now();
    document.querySelector("tr.case:has(+ .panel .functions) .open").click();
    await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
    return performance.now() - start;
}"""


def profile_of(seed: int) -> CaseProfile:
    """Return call paths with skewed times, one in twenty of them new and one gone."""
    coin = random.Random(seed)
    functions = [
        ProfiledFunction(
            f"library/part_{n % 9}.py:Class{n % 41}.method_{n}", "changed" if n % 97 == 0 else ""
        )
        for n in range(seed % 7, FUNCTIONS, 7)
    ]
    paths = [CallPath(-1, 0, 1, 1, 10_000, 10_000)]
    for position in range(1, PATHS):
        calls = round(coin.paretovariate(0.6))
        base_ns = round(2_000 * coin.paretovariate(1.1))
        head_ns = round(base_ns * coin.uniform(0.97, 1.05))
        lacks = coin.choice((BASE, HEAD, *[""] * 18))
        paths.append(
            CallPath(
                coin.randrange(max(0, position - 60), position),
                coin.randrange(1, len(functions)),
                0 if lacks == BASE else calls,
                0 if lacks == HEAD else calls,
                0 if lacks == BASE else base_ns,
                0 if lacks == HEAD else head_ns,
            )
        )
    return CaseProfile(tuple(functions), tuple(paths))


def verdict_of(number: int, operations: int, profiles: int) -> Verdict:
    """Return the verdict of a gate with so many cases."""
    rows = {
        (f"aten::op{n}", "forward", f"layer{n % 7}"): (1_000 * (n + 1), 1.0)
        for n in range(operations)
    }
    cases = {
        f"benchmarks/test_library_{n % 20}.py::test_operation[{n}-size{7 * n}]": Measured(
            1_000 * (n + 1), factor=1.3 if n % 50 == 0 else 1.0, operations=rows
        )
        for n in range(number)
    }
    slower = {case: measured for case, measured in cases.items() if measured.factor > 1}
    reasons = {
        case: (f"runs library/part_{n % 9}.py:Class.method_{n % 31} (changed)",)
        for n, case in enumerate(cases)
    }
    same = {f"b.py::test[{n}]": f"b.py::test[{n}]" for n in range(number // 2)}
    trials = [*series(cases), *series(slower, stage=2, count=8, seed=4)]
    reach = Reach(is_known=True, reasons=reasons, same=same)
    profiled = {case: profile_of(n) for n, case in enumerate([*cases][:profiles])}
    end = dataclasses.replace(COMPLETE, profiles=profiled)
    return conclude(
        recorded(trials, end=end, labels={case: case for case in cases}, reach=reach),
        JudgeOptions(),
    )


def main(number: int = 500, operations: int = 0, profiles: int = 0) -> None:
    """Print the size and the times."""
    verdict = verdict_of(number, operations, profiles)
    start = time.perf_counter()
    text = gate_page(verdict)
    made_s = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "gate.html"
        path.write_text(text, encoding="utf-8")
        browser = playwright.chromium.trial(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        visits = []
        opened_ms = []
        for _ in range(VISITS):
            with browser.new_context(viewport={"width": 1380, "height": 1000}) as context:
                tab = context.new_page()
                protocol = context.new_cdp_session(tab)
                protocol.send("Performance.enable", {"timeDomain": "threadTicks"})
                tab.goto(path.as_uri())
                loaded_ms = tab.evaluate(DRAWN)
                metrics = protocol.send("Performance.getMetrics")["metrics"]
                [busy_s] = [row["value"] for row in metrics if row["name"] == "TaskDuration"]
                visits.append((loaded_ms, 1e3 * busy_s))
                if profiles:
                    opened_ms.append(tab.evaluate(OPENED))
        browser.close()
    loaded_ms, busy_ms = (statistics.median(times) for times in zip(*visits, strict=True))
    contents = f"{operations} operations each, {profiles} of them with {PATHS:,} call paths"
    print(f"{number} cases with {contents}: {len(text) / 1e6:.2f} MB")
    print(f"made in {made_s:.2f} s; open after {loaded_ms:.0f} ms, {busy_ms:.0f} ms of CPU time")
    if profiles:
        print(f"call paths of a case drawn in {statistics.median(opened_ms):.0f} ms")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
