"""Compare the process-wide state of two sides: they share a process only if they cannot affect each other.

``process_state`` reads a fingerprint in the process of a side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

from mnistbench.core.json_reader import Reader

#: Stages of a survey at which the state is read; between the last two there is one for each case that is built.
BEFORE, IMPORTED, ENDED = "before", "import", "end"

NOT_SET = "not set"

ENVIRON = "os.environ["


@dataclass(frozen=True)
class Fingerprint:
    """Process-wide state, as texts."""

    #: Values that are harmless if equal on both sides: thread counts, flags, environment variables.
    settings: Mapping[str, str]
    #: Patches and threads of installed packages; harmless if equal on both sides.
    packages: Mapping[str, str] = field(default_factory=dict)
    #: Hooks, patches and threads of a side's own code, which in a shared process would act on both sides.
    additions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Check and read the JSON of a launch.

        Raises:
            RecordError: names the field.
        """
        parts = ("settings", "packages", "additions")
        return cls(*({key: text.text() for key, text in reader[part].mapping().items()} for part in parts))

    def json(self) -> dict[str, dict[str, str]]:
        """Return the JSON that a launch sends."""
        return {name: dict(texts) for name, texts in asdict(self).items()}


def difference(base: Mapping[str, Fingerprint], head: Mapping[str, Fingerprint]) -> list[str]:
    """Return why two sides must not share a process, a sentence for each kind of state; empty if they may.

    Args:
        base: stage -> state of the base's process: ``before`` its import, after ``import``, after each build, at the ``end``.
        head: the same of the head's process.
    """
    sides = {"base": base, "head": head}
    found: dict[str, str] = {}
    for key in _keys([state.additions for stages in sides.values() for state in stages.values()]):
        found[key] = _added(key, {name: _last(stages, key) for name, stages in sides.items()})
    for stage in (stage for stage in base if stage in head and stage != BEFORE):
        one, other = base[stage].settings, head[stage].settings
        for key in _keys([one, other]):
            if one.get(key) != other.get(key):
                found.setdefault(key, _set(key, stage, sides))
    for key in _keys([base[ENDED].packages, head[ENDED].packages]):
        users = {name: stages[ENDED].packages.get(key, "") for name, stages in sides.items()}
        if users["base"] != users["head"]:
            found.setdefault(key, _added(key, users))
    for name, stages in sides.items():
        built = next((state for stage, state in stages.items() if stage not in {BEFORE, IMPORTED}), stages[ENDED])
        for key, first, last in _changed(built, stages[ENDED]):
            found.setdefault(key, f"the {name} changes {key} from {first} to {last} while it runs")
    return list(found.values())


def changes(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Return what has changed in a process with both sides, a sentence for each kind of state."""
    return [
        *(f"the sides add {key} ({value})" for key, value in after.additions.items()),
        *(f"a side changes {key} from {one} to {other} while it runs" for key, one, other in _changed(before, after)),
    ]


def _changed(before: Fingerprint, after: Fingerprint) -> Iterator[tuple[str, str, str]]:
    """Yield changed settings, without environment variables, of which torch sets some when it is first used."""
    for key in _keys([before.settings, after.settings]):
        one, other = before.settings.get(key, NOT_SET), after.settings.get(key, NOT_SET)
        if one != other and not key.startswith(ENVIRON):
            yield key, one, other


def _keys(texts: Sequence[Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(key for of_one in texts for key in of_one))


def _last(stages: Mapping[str, Fingerprint], key: str) -> str:
    return next((state.additions[key] for state in reversed(list(stages.values())) if key in state.additions), "")


def _added(key: str, values: Mapping[str, str]) -> str:
    """Return a sentence about an addition of one side or of both."""
    having = [name for name, value in values.items() if value]
    who = f"the {having[0]} adds" if len(having) == 1 else "both sides add"
    return f"{who} {key} ({values[having[-1]]})"


def _set(key: str, stage: str, sides: Mapping[str, Mapping[str, Fingerprint]]) -> str:
    """Return a sentence about a setting that differs at a stage, with the side that changed it if that is known."""
    before = {name: stages[BEFORE].settings.get(key, NOT_SET) for name, stages in sides.items()}
    after = {name: stages[stage].settings.get(key, NOT_SET) for name, stages in sides.items()}
    changing = [name for name in sides if before[name] != after[name]]
    if len(changing) == 1:
        [name] = changing
        return f"the {name} changes {key} from {before[name]} to {after[name]}"
    return f"{key} is {after['base']} in the base and {after['head']} in the head"
