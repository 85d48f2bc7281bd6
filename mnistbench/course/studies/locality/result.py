"""The result of ``mnistbench study locality``: misses and times of loop nests. Does not import torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mnistbench.course.studies.locality.caches import Cache, Caches
from mnistbench.course.studies.locality.measured import Counts, Measured, Problem
from mnistbench.course.studies.locality.ranking import agreement, disagreements, rank_by_misses, rank_by_time

#: Version of the JSON. A new one removes or renames a key, or changes its meaning.
SCHEMA = 1

#: What compiles the loops, so that they can be timed.
INSTALL = "pip install 'mnistbench[studies]'"


@dataclass(frozen=True)
class Study:
    """All problems, and the caches that were simulated."""

    caches: Caches
    numba: str  # version; empty if it is not installed, and then there are no times
    problems: tuple[Problem, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything."""
        return {
            "schema": SCHEMA,
            "l1": _cache_json(self.caches.l1),
            "l2": _cache_json(self.caches.l2),
            "numba": self.numba or None,
            "problems": [_problem_json(problem) for problem in self.problems],
        }


def _cache_json(cache: Cache) -> dict[str, int]:
    return {**asdict(cache), "sets": cache.sets}


def _problem_json(problem: Problem) -> dict[str, Any]:
    pairs = agreement(problem.nests)
    return {
        "name": problem.name,
        "text": problem.text,
        "n_bytes": problem.n_bytes,
        "lines": problem.lines,
        "nests": [_nest_json(nest, problem) for nest in problem.nests],
        "pairs": {**asdict(pairs), "kendall_tau": pairs.kendall_tau},
        "disagreements": [
            {
                "slower": found.slower.order,
                "faster": found.faster.order,
                "slower_has_fewer_misses": found.fewer,
                "share_of_difference_in_l1": found.in_l1,
                "cause": found.cause,
            }
            for found in disagreements(problem.nests)
        ],
    }


def _nest_json(nest: Measured, problem: Problem) -> dict[str, Any]:
    return {
        "order": nest.order,
        "multiply_adds": nest.multiply_adds,
        **_counts_json(nest.counts),
        "ns_per_multiply_add": nest.ns,
        "ns_per_multiply_add_in_l1": nest.in_l1_ns,
        "rank_by_misses": rank_by_misses(nest, problem.nests),
        "rank_by_time": rank_by_time(nest, problem.nests),
        "rounds_ns": list(nest.rounds_ns),
        "arrays": {name: _counts_json(counts) for name, counts in nest.arrays.items()},
    }


def _counts_json(counts: Counts) -> dict[str, int]:
    return {
        "accesses": counts.accesses,
        "l1_hits": counts.l1_hits,
        "l1_misses": counts.l1_misses,
        "l2_hits": counts.l2_hits,
        "l2_misses": counts.l2_misses,
    }


def dumps(study: Study) -> str:
    """Return the JSON."""
    return json.dumps(study.to_json(), indent=1) + "\n"


#: Columns of the CSV.
COLUMNS = (
    "problem", "order", "multiply_adds", "accesses", "l1_hits", "l1_misses", "l2_hits", "l2_misses", "ns_per_multiply_add",
    "ns_per_multiply_add_in_l1", "rank_by_misses", "rank_by_time",
)  # fmt: skip


def csv_rows(study: Study) -> Iterator[Sequence[Any]]:
    """Yield a row for each loop nest."""
    for problem in study.problems:
        for nest in problem.nests:
            values = {"problem": problem.name, **_nest_json(nest, problem)}
            yield [values[column] for column in COLUMNS]
