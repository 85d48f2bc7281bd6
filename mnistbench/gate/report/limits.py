"""How much a report says of many cases, operations or tests."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace

from mnistbench.core import units
from mnistbench.gate.verdict.verdict import Verdict

#: Where everything is that a report leaves out.
SEE_ALL = "to see all: mnistbench judge FILE --all"


def with_everything(verdict: Verdict) -> Verdict:
    """Return a verdict whose report shows everything."""
    return replace(verdict, options=replace(verdict.options, everything=True, top=sys.maxsize))


def is_long(verdict: Verdict) -> bool:
    """Whether a report lists only what was found: there are more cases than --top, and no --all."""
    return len(verdict.header.labels) > verdict.options.top


def limited(lines: Iterable[str], verdict: Verdict, *, always: bool = False) -> list[str]:
    """Return the lines, of many cases (or always) at most --top, and how many more there are."""
    if not (always or is_long(verdict)):
        return list(lines)
    return units.first_lines(lines, verdict.options.top, SEE_ALL)


def said_once(notes: Iterable[tuple[str, str]], verdict: Verdict, what: str = "cases") -> list[str]:
    """Return a line for each text, with the cases of which it is said.

    Args:
        notes: case and text.
        verdict: the content of the report.
        what: the notes are about, in the plural.
    """
    cases: dict[str, list[str]] = {}
    for case, text in notes:
        cases.setdefault(text, []).append(case)
    most = verdict.options.top if verdict.options.everything else units.NAMED
    return limited(
        (f"{units.counted_names(names, most, what)}: {text}" for text, names in cases.items()),
        verdict,
    )
