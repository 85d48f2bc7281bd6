"""The names that reports and options have for the cases, which are identified by their node ids."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

from mnistbench.core import units
from mnistbench.gate.words import ALL_CASES

#: Most characters of a name: parametrize may put a whole document into an id.
_MAX_LENGTH = 300


class CaseNames:
    """The names of cases, measured or not; what is no case, such as ALL_CASES, keeps its own."""

    def __init__(self, labels: Mapping[str, str], ambiguous: frozenset[str] = frozenset()) -> None:
        """Keep the labels.

        Args:
            labels: node id -> label.
            ambiguous: labels that several cases have, so that their node ids are their names.
        """
        self._labels = labels
        self._ambiguous = ambiguous

    @classmethod
    def of(cls, labels: Mapping[str, str], others: Iterable[str]) -> CaseNames:
        """Return the names of the cases of a gate.

        Args:
            labels: node id -> label, of the cases of both sides. That of a plain test is its node
                id without the folder.
            others: node ids of tests that are not compared; they may have a case's label, too.
        """
        without_folder = (
            node_id[node_id.rfind("/", 0, node_id.find("::")) + 1 :] for node_id in others
        )
        uses = Counter([*labels.values(), *without_folder])
        return cls(labels, frozenset(label for label, number in uses.items() if number > 1))

    def __getitem__(self, case: str) -> str:
        """Return the name of a case in reports.

        It is the label, or the node id if several cases have the label. A very long name is cut,
        and ends with a hash.
        """
        label = self._labels.get(case, case)
        name = case if label in self._ambiguous else label
        if len(name) <= _MAX_LENGTH:
            return name
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
        return f"{units.cut(name, _MAX_LENGTH)} {digest}"

    def for_accept(self, cases: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Return node id -> all names that ``--accept`` may call a case by.

        What identifies a case is no other name of another one: the title of a test in a folder is
        the node id of one that is in none.

        Args:
            cases: node id -> label, of the measured cases.
        """
        identity = {node_id: {self[node_id], node_id} for node_id in cases}
        identities = {name for own in identity.values() for name in own}
        return {
            node_id: (
                *identity[node_id],
                *(
                    name
                    for name in (label, label.partition(" on ")[0], node_id.rpartition("::")[2])
                    if name not in identities
                ),
            )
            for node_id, label in cases.items()
        }


#: Without a file each case is called by its identity.
NODE_IDS = CaseNames({})


def process_of_shard(shard: object) -> str:
    """Return what identifies the process of a shard among the cases of a gate with several."""
    return f"{ALL_CASES} of shard {shard}"
