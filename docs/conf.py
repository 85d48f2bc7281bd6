"""Configuration of the documentation site: ``tox -e docs``."""

from pathlib import Path

from sphinx.application import Sphinx

REPOSITORY = Path(__file__).parent.parent

#: Page of the site -> the file at the top of the repository that it shows.
PAGES = {
    "index": "README.md",
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "security": "SECURITY.md",
}

project = "mnistbench"
extensions = ["myst_parser"]
exclude_patterns = ["evidence"]
myst_heading_anchors = 3  # links to headings, as on GitHub
highlight_language = "text"
html_theme = "furo"
html_title = "mnistbench"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["_static"]
#: Beside each other at the top of the site, because one refers to another by its name.
html_extra_path = ["schema"]
html_css_files = ["site.css"]
smartquotes = False  # options are --op-fail, not an en dash; values are in straight quotes


def site_text(page: str, text: str) -> str:
    """Return the text of a page.

    Links between files of the repository become links between pages of the site.
    """
    if page in PAGES:
        text = (REPOSITORY / PAGES[page]).read_text(encoding="utf-8") + "\n" + text
    text = text.replace("](docs/", "](")
    for target, file in PAGES.items():
        text = text.replace(f"]({file}", f"]({target}.md").replace(f"](../{file}", f"]({target}.md")
    return text


def _replace_source(_: Sphinx, page: str, source: list[str]) -> None:
    source[0] = site_text(page, source[0])


def setup(app: Sphinx) -> None:
    """Register the replacement of links (called by Sphinx)."""
    app.connect("source-read", _replace_source)
