"""Size of the page of a gate with many cases, and how long Chromium takes to open it.

    python docs/evidence/gate_page.py [CASES [OPERATIONS]]

Makes the samples of a gate of CASES cases (500) with OPERATIONS operations each (0), one case in 50
of them slower, and the page of its verdict. Then opens the page ten times in the system's Chromium
and prints, as medians, the time from the start of the navigation until the page is loaded and a
frame with it is drawn, and the CPU time of the page's main thread until then, which other programs
on the machine do not make longer.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from gate_builders import Measured, recorded, series

from mnistbench.gate.listing import Reach
from mnistbench.gate.options import JudgeOptions
from mnistbench.gate.page.view import gate_page
from mnistbench.gate.verdict.verdict import Verdict, conclude

#: Times that the page is opened.
VISITS = 10

#: Wait for a frame after the end of loading; return the time from the start, in ms.
DRAWN = """async () => {
    await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
    return performance.now();
}"""


def verdict_of(number: int, operations: int) -> Verdict:
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
    launches = [*series(cases), *series(slower, stage=2, count=8, seed=4)]
    reach = Reach(is_known=True, reasons=reasons, same=same)
    return conclude(
        recorded(launches, labels={case: case for case in cases}, reach=reach), JudgeOptions()
    )


def main(number: int = 500, operations: int = 0) -> None:
    """Print the size and the times."""
    verdict = verdict_of(number, operations)
    start = time.perf_counter()
    text = gate_page(verdict)
    made_s = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "gate.html"
        path.write_text(text, encoding="utf-8")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        visits = []
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
        browser.close()
    loaded_ms, busy_ms = (statistics.median(times) for times in zip(*visits, strict=True))
    print(f"{number} cases with {operations} operations each: {len(text) / 1e6:.2f} MB")
    print(f"made in {made_s:.2f} s; open after {loaded_ms:.0f} ms, {busy_ms:.0f} ms of CPU time")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
