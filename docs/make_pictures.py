"""Make the pictures in docs/images with the system's Chromium.

    python docs/make_pictures.py REPORT.html CHANGES.html GATE.html LAB.html CLASS.html PROFILE.txt

REPORT.html: ``mnistbench report`` of a run of the suite; CHANGES.html: of two runs; GATE.html:
``mnistbench judge --format html`` of a gate with operations that got slower, and functions of a
case without operations; LAB.html: ``mnistbench lab``; CLASS.html: ``mnistbench class merge``;
PROFILE.txt: the output of ``mnistbench profile``.
"""

import html
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parent / "images"
WIDTH = 1180
HEIGHT = 760
CHANGED = "summary:has-text('step convnet-b16-cpu on digits')"
SLOWER = ".case:has(.worse):has(+ .panel .operations) .open"
FUNCTIONS = ".panel:has(.functions):not(:has(.operations))"
SLOWER_FUNCTIONS = f".case:has(.worse):has(+ {FUNCTIONS}) .open"
TERMINAL = (
    '<body style="margin: 0; background: #17181c">'
    '<pre style="display: inline-block; margin: 0; padding: 20px;\n'
    "color: #e6e6e6; font: 13px/1.35 'DejaVu Sans Mono', monospace\">{}</pre></body>"
)


def reduce(name: str) -> None:
    """Store a picture with 128 colors, rare ones among them: a third of the size."""
    Image.open(IMAGES / name).convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE).save(
        IMAGES / name, optimize=True
    )


def screenshot(
    browser: Browser,
    address: str,
    name: str,
    steps: list[str],
    top: str = "",
    width: int = WIDTH,
    hovered: str = "",
) -> None:
    """Open the page, click each of the steps, scroll to ``top``, and save the picture."""
    window = {"width": width, "height": HEIGHT}
    with browser.new_context(viewport=window, color_scheme="light") as context:
        tab = context.new_page()
        tab.goto(address)
        for element in steps:
            tab.locator(element).first.click()
        if top:
            tab.locator(top).first.evaluate("element => element.scrollIntoView()")
        if hovered:
            tab.locator(hovered).first.hover()
        tab.screenshot(path=IMAGES / name)
    reduce(name)


def terminal(browser: Browser, text: str, name: str) -> None:
    """Save a picture of the text as a terminal shows it."""
    with browser.new_context() as context:
        tab = context.new_page()
        tab.set_content(TERMINAL.format(html.escape(text)))
        tab.locator("pre").screenshot(path=IMAGES / name)
    reduce(name)


def selection(profile: str) -> str:
    """Return the first table and the last roofline of the output of ``mnistbench profile``."""
    table, _, rest = profile.partition("\n\n")
    roofline = rest[rest.rindex("Roofline,") :].partition("\n\n")[0]
    return f"$ mnistbench profile --batch-size 1,16\n{table}\n...\n{roofline}"


def main(report: str, changes: str, gate: str, lab: str, students: str, profile: str) -> None:
    """Make all pictures."""
    chromium = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page, compared, gated, document, merged = (
            Path(file).resolve().as_uri() for file in (report, changes, gate, lab, students)
        )
        screenshot(browser, page, "report.png", ["text=step convnet-b16-cpu on digits"])
        screenshot(browser, compared, "report-changes.png", [CHANGED], top=CHANGED)
        screenshot(browser, gated, "gate.png", [SLOWER], top="#cases", width=1320)
        screenshot(
            browser,
            gated,
            "gate-functions.png",
            [SLOWER_FUNCTIONS],
            top=".panel:visible h4",
            width=1320,
            hovered=".boxes .new",
        )
        screenshot(browser, document, "lab.png", [], top="#training")
        screenshot(browser, merged, "class.png", [], top="figure")
        terminal(browser, selection(Path(profile).read_text(encoding="utf-8")), "terminal.png")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
