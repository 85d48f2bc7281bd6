"""How much a report says of many cases, operations or tests."""

from __future__ import annotations

from collections.abc import Iterable

from mnistbench.gate.verdict.verdict import Verdict

#: Where everything is that a report leaves out.
SEE_ALL = "to see all: mnistbench judge FILE --all"


#: Names of the cases of which a sentence is said.
NAMES = 3


def is_long(verdict: Verdict) -> bool:
    """Whether a report lists only what was found: there are more cases than --top, and no --all."""
    return len(verdict.header.labels) > verdict.options.top


def limited(lines: Iterable[str], verdict: Verdict, *, always: bool = False) -> list[str]:
    """Return the lines, of many cases (or always) at most --top, and how many more there are."""
    found = list(lines)
    most = verdict.options.top
    if len(found) <= most or not (always or is_long(verdict)):
        return found
    return [*found[:most], f"{len(found) - most} more; {SEE_ALL}"]


def named(names: Iterable[str], most: int, what: str = "") -> str:
    """Return names, or the number of them and the first ones."""
    found = list(names)
    return (
        ", ".join(found)
        if len(found) <= most
        else f"{len(found)} {what}({', '.join(found[:most])}, ...)"
    )


def said_once(said: Iterable[tuple[str, str]], verdict: Verdict, what: str = "cases ") -> list[str]:
    """Return a line for each text, with the cases of which it is said."""
    cases: dict[str, list[str]] = {}
    for case, text in said:
        cases.setdefault(text, []).append(case)
    most = verdict.options.top if verdict.options.everything else NAMES
    return limited(
        (f"{named(names, most, what)}: {text}" for text, names in cases.items()), verdict
    )
