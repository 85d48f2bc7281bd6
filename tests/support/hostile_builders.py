"""Names that attack a terminal, a spreadsheet, Markdown or HTML.

Any saved file may contain them.
"""

NAMES = {
    "path upwards": "../../etc/passwd",
    "absolute path": "/etc/passwd",
    "line end": "a\nthresholds: passed",
    "other line ends": "a\r\nb\x0bc\x0cd\x85e\u2028f\u2029g",
    "escape": "\x1b[31mred\x1b[0m\x1b]8;;http://evil.example\x07link",
    "one-byte escape": "\x9b31mred",
    "bell and backspace": "a\x07b\x08\x08\x08c\x7f",
    "null": "a\0b",
    "null before a formula": "\0=1+1",
    "tab": "\ta\tb",
    "bidi": "\u202eevil\u202c\u2066x\u2069\u200f",
    "no width": "a\u200bb\ufeffc\u00add",
    "lone surrogate": "a\ud800b",
    "markdown cell": "a | b | c",
    "markdown": "`code` **bold** _it_ ~~no~~ [x](http://evil.example) ![i](x) $x$ \\| \\`",
    "backticks": "a``<img src=x onerror=a>``b",
    "html": "<script>alert(1)</script></details><img src=x onerror=a>&lt;b&gt;",
    "mention": "@octocat and @org/team",
    "reference": "#1 GH-2 org/repo#3 http://evil.example www.evil.example",
    "formula": '=HYPERLINK("http://evil.example";"x")',
    "formula plus": "+1+1",
    "formula minus": "-1+1",
    "formula at": "@SUM(1)",
    "formula after a line end": "\n=1+1",
    "formula after a return": "\r=1+1",
    "csv quote": 'a","b',
    "format": "{0} %s %(x)s",
    "separating line": "\x01",
    "long": "x" * 1_000,
}


def is_clean(text):
    """Every character but our own line ends can be printed, and written to any file."""
    text.encode("utf-8")
    return all(line.isprintable() for line in text.split("\n"))
