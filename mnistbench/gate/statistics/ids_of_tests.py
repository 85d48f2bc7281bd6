"""Ids of parametrized tests that are not the same in each process.

The gate cannot tell which tests belong together.

The text of an id may contain the order of a set, an address, the time or a random number. An id
such as ``test_a[value0]`` is the position of a parameter: if the parameters come from a set, it
belongs to another one in another process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

#: Why a case with such an id cannot be measured.
OTHER_ID = (
    "its id differs between processes, as it contains the order of a set, an address, the time or "
    "a random number; "
    'sort what it is made of, or name it: pytest.param(..., id="...")'
)
OTHER_PARAMETERS = (
    "its id belongs to other parameters in another process, as their order is that of a set, or "
    "random; "
    'sort them, or name each: pytest.param(..., id="...")'
)
REORDERED = (
    "its id belongs to other parameters in the head, as their order has changed; "
    'name each of them on both sides: pytest.param(..., id="...")'
)


def name_of_test(node_id: str) -> str:
    """Return the id of a test without its parameters.

    A folder may have a bracket in its name, and a parameter two colons.
    """
    file, colons, test = node_id.partition("::")
    return f"{file}{colons}{test.partition('[')[0]}"


def moved(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """Return the ids whose parameters belonged to another id of the same test before.

    Args:
        before: node id -> hash of its parameters.
        now: the same, of another process or of the other side.
    """
    known: dict[str, set[str]] = defaultdict(set)
    for node_id, digest in before.items():
        known[name_of_test(node_id)].add(digest)
    return {
        node_id
        for node_id, digest in now.items()
        if digest
        and before.get(node_id, digest) != digest
        and digest in known[name_of_test(node_id)]
    }


def unstable(
    expected: Iterable[str], before: Mapping[str, str], now: Mapping[str, str]
) -> dict[str, str]:
    """Return the expected ids that are missing now or belong to other parameters, with the reason.

    Args:
        expected: node ids.
        before: node id -> hash of its parameters, in the process that found them.
        now: the same, of this process.
    """
    elsewhere = moved(before, now)
    return {
        node_id: OTHER_PARAMETERS if node_id in elsewhere else OTHER_ID
        for node_id in expected
        if node_id not in now or node_id in elsewhere
    }


def without_counterpart(of_base: Iterable[str], of_head: Iterable[str]) -> set[str]:
    """Return the parametrized ids that one side alone has.

    Of tests of which both sides have such ids.
    """
    only_base = {*of_base} - {*of_head}
    only_head = {*of_head} - {*of_base}
    tests = {name_of_test(node_id) for node_id in only_base if node_id.endswith("]")}
    tests &= {name_of_test(node_id) for node_id in only_head if node_id.endswith("]")}
    return {node_id for node_id in only_base | only_head if name_of_test(node_id) in tests}
