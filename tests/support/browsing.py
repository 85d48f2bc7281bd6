"""Pages in a browser."""

import functools

from gate_builders import LABEL

#: Pixels of a window, unless a test asks for others.
_SIZE = {"width": 1280, "height": 720}


@functools.cache
def _tab(browser, **window):
    """Return a tab that all pages of a browser share: a new one takes longer than most tests."""
    tab = browser.new_context(**window).new_page()
    tab.set_default_timeout(30_000)
    return tab


def visit(browser, address, *, embeds=False, viewport=_SIZE, **window):
    """Yield the page in a window.

    At the end, nothing has gone wrong and nothing was asked for outside the file. What a page
    embeds has addresses with ``data:``.
    """
    asked = []
    wrong = []
    listeners = {
        "request": lambda request: asked.append(request.url),
        "console": lambda message: wrong.append(message.text),
        "pageerror": lambda error: wrong.append(str(error)),
    }
    tab = _tab(browser, **window)
    tab.goto("about:blank")  # nothing of the page before it is left: scrolled, opened, pointed at
    tab.emulate_media(media="null")
    tab.set_viewport_size(viewport)
    tab.mouse.move(0, 0)
    for event, listener in listeners.items():
        tab.on(event, listener)
    try:
        tab.goto(address)
        yield tab
    finally:
        for event, listener in listeners.items():
            tab.remove_listener(event, listener)
    assert wrong == []
    assert [url for url in asked if not (embeds and url.startswith("data:"))] == [address]


def eventually(elements):
    """Return assertions about elements of a page, which wait until they hold.

    A click on a link and the event that follows it are not one step.
    """
    from playwright.sync_api import expect  # a test without it is skipped by the fixture browser

    expect.set_options(timeout=30_000)
    return expect(elements)


def open_case(tab, label=LABEL):
    """Open a case on the page of a gate; return its panel."""
    tab.locator("button.open").get_by_text(label, exact=True).click()
    return tab.locator(".panel:visible")


def cells(table, part="tbody"):
    """Text of every visible cell, row by row; of a first cell without the shapes below the name."""
    text = "(cell) => cell.firstChild?.textContent ?? ''"
    return table.locator(part).evaluate_all(
        f"parts => parts.flatMap(part => [...part.rows].map(row => [...row.cells].map({text})))"
    )


#: Red, green and blue of a property of an element, from 0 to 1; a mixed color has such numbers.
_COLOUR = """(element, name) => {
    const text = getComputedStyle(element)[name];
    const whole = text.startsWith("color(srgb ") ? 1 : 255;
    return text.match(/[\\d.]+/g).slice(0, 3).map((number) => number / whole);
}"""


def colour(element, name):
    """Return red, green and blue of a property, from 0 to 1."""
    return element.evaluate(_COLOUR, name)


def contrast(first, second):
    """Return the ratio of the luminances of two colors, 1 to 21 (WCAG 2.2)."""
    lighter, darker = sorted(map(_luminance, (first, second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(rgb):
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb
    ]
    return sum(
        weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )
