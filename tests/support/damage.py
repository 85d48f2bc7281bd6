"""Any damage to a file: JSON values replaced, removed or repeated, and bytes cut or changed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

#: Values of each type of JSON.
OF_EACH_TYPE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.builds(list),
    st.builds(dict),
)

VALUES = st.one_of(
    OF_EACH_TYPE,
    st.sampled_from(
        [
            10**400,
            2**63,
            5e-324,
            "9" * 5_000,
            "half a surrogate pair: \ud800",
            "\x1b[31m\n",
            "../../x",
            [[]],
            ["a"],
            {"": {}},
        ]
    ),
)

#: A place in a JSON document: names of members and positions in lists.
Place = tuple[Any, ...]


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every place in a document, except that of the whole."""
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for step, member in members:
        yield (*place, step)
        yield from places(member, (*place, step))


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> Any:
    """A copy of a document with some values replaced, removed or repeated."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 4))):
        remaining = list(places(document))
        if not remaining:
            break
        *outer, last = draw(st.sampled_from(remaining))
        container = document
        for step in outer:
            container = container[step]
        how = draw(st.sampled_from(["replaced", "removed", "repeated", "moved"]))
        if how == "replaced":
            container[last] = draw(VALUES)
        elif how == "removed":
            del container[last]
        elif isinstance(container, list):
            container.insert(last, copy.deepcopy(container[last]))
        else:
            name = draw(st.sampled_from([*container, "another"]))
            container[name] = copy.deepcopy(container[last])
    return document


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Some bytes of a file changed, left out or repeated, or its end cut off."""
    damaged_content = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        if not damaged_content:
            break
        start = draw(st.integers(0, len(damaged_content) - 1))
        end = min(len(damaged_content), start + draw(st.integers(1, 200)))
        how = draw(st.sampled_from(["changed", "left out", "repeated", "cut off"]))
        if how == "changed":
            damaged_content[start] = draw(st.integers(0, 255))
        elif how == "left out":
            del damaged_content[start:end]
        elif how == "repeated":
            damaged_content[start:start] = damaged_content[start:end]
        else:
            del damaged_content[start:]
    return bytes(damaged_content)
