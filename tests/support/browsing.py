"""Pages in a browser."""


def visit(browser, address, *, embeds=False, **window):
    """Yield the page in a window.

    At the end, nothing has gone wrong and nothing was asked for outside the file. What a page
    embeds has addresses with ``data:``.
    """
    asked = []
    wrong = []
    with browser.new_context(**window) as context:
        tab = context.new_page()
        tab.set_default_timeout(30_000)
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.goto(address)
        yield tab
    assert wrong == []
    assert [url for url in asked if not (embeds and url.startswith("data:"))] == [address]


def cells(table, part="tbody"):
    """Text of every visible cell, row by row; of a first cell without the shapes below the name."""
    text = "(cell) => cell.firstChild?.textContent ?? ''"
    return table.locator(part).evaluate_all(
        f"parts => parts.flatMap(part => [...part.rows].map(row => [...row.cells].map({text})))"
    )
