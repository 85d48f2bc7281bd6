"""A page as a tree of elements, and what holds of each page that is one file."""

import base64
import hashlib
import json
from html.parser import HTMLParser

VOID = {"br", "meta", "link", "input"}


class Element:
    def __init__(self, tag, attributes, within):
        self.tag = tag
        self.attributes = dict(attributes)
        self.within = within
        self.children = []

    def all(self, tag="", **attributes):
        """Every element below of that tag and with those attributes.

        ``class_`` is one of the classes.
        """
        matching = []
        for child in self.children:
            if isinstance(child, Element):
                wanted = {name.rstrip("_"): value for name, value in attributes.items()}
                has = all(
                    value in (child.attributes.get(name) or "").split()
                    for name, value in wanted.items()
                )
                matching += ([child] if tag in ("", child.tag) and has else []) + child.all(
                    tag, **attributes
                )
        return matching

    @property
    def text(self):
        return "".join(child if isinstance(child, str) else child.text for child in self.children)


class Document(HTMLParser):
    """A page as a tree; every element must be closed where it was opened."""

    def __init__(self, text):
        super().__init__()
        self.root = self._at = Element("", (), None)
        self.feed(text)
        self.close()
        assert self._at is self.root

    def handle_starttag(self, tag, attrs):
        element = Element(tag, attrs, self._at)
        self._at.children.append(element)
        if tag not in VOID:
            self._at = element

    def handle_startendtag(self, tag, attrs):
        self._at.children.append(Element(tag, attrs, self._at))

    def handle_endtag(self, tag):
        assert tag == self._at.tag
        self._at = self._at.within

    def handle_data(self, data):
        self._at.children.append(data)


def read(text):
    return Document(text).root


def rows_of(table, cells=("td", "th")):
    return [
        [cell.text for cell in row.children if isinstance(cell, Element) and cell.tag in cells]
        for row in table.all("tr")
    ]


def data_of(root):
    """Id of each element with JSON -> its value."""
    return {
        script.attributes["id"]: json.loads(script.text)
        for script in root.all("script")
        if script.attributes.get("type") == "application/json"
    }


def check_one_file(root):
    """Check that a page refers to nothing outside itself, and that its policy forbids it."""
    references = {
        value
        for element in root.all()
        for name, value in element.attributes.items()
        if name in ("src", "href", "srcset", "action", "data", "poster", "style")
        or name.startswith("on")
    }
    assert {value for value in references if not value.startswith("#")} == {"data:,"}
    [script] = [script.text for script in root.all("script") if not script.attributes]
    [style] = [style.text for style in root.all("style")]
    assert "url(" not in style
    assert "@import" not in style
    [policy] = [
        meta.attributes["content"] for meta in root.all("meta") if meta.attributes.get("http-equiv")
    ]

    def source(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert dict(part.split(" ", 1) for part in policy.split("; ")) == {
        "default-src": "'none'",
        "style-src": source(style),
        "script-src": source(script),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def check_references(root):
    """Check that ids are unique, and that what refers to an id has one."""
    ids = [element.attributes["id"] for element in root.all() if "id" in element.attributes]
    assert len(set(ids)) == len(ids)
    # An option has an id of a run as its value; a grid of a forest plot is named by a script.
    for name in ("href", "aria-controls", "aria-labelledby", "data-source", "data-filters"):
        targets = {
            element.attributes[name].lstrip("#")
            for element in root.all()
            if element.attributes.get(name)
        }
        assert targets - {"data:,"} <= set(ids), name


def skeleton(root):
    """Return the elements and their attributes, without texts and values."""
    return [(element.tag, sorted(element.attributes)) for element in root.all()]
