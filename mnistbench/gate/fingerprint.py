"""The process-wide state that a side's code leaves behind: two sides share a process only where they cannot affect each other.

``process_state`` reads a fingerprint in a side's process; here two sides' fingerprints are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

from mnistbench.core.json_reader import Reader

#: Names of the stages at which a side's process is looked at; between the last two, one for each case that was built.
BEFORE, IMPORTED, ENDED = "before", "import", "end"

NOT_SET = "not set"

ENVIRON = "os.environ["


@dataclass(frozen=True)
class Fingerprint:
    """Process-wide state, as texts."""

    #: Values that are harmless if both sides set them alike: thread counts, flags, environment variables.
    settings: Mapping[str, str]
    #: What installed packages have replaced or started; harmless if both sides use these packages alike.
    packages: Mapping[str, str] = field(default_factory=dict)
    #: What a side's own code has put there; in one process it acts on both sides, or two of a kind add up.
    additions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Check what a launch sent.

        Raises:
            RecordError: names the field.
        """
        parts = ("settings", "packages", "additions")
        return cls(*({key: text.text() for key, text in reader[part].mapping().items()} for part in parts))

    def json(self) -> dict[str, dict[str, str]]:
        """Return it as a launch sends it."""
        return {name: dict(texts) for name, texts in asdict(self).items()}


def difference(base: Mapping[str, Fingerprint], head: Mapping[str, Fingerprint]) -> list[str]:
    """Return why two sides must not share a process, a sentence for each kind of state; nothing if they may.

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
    """Return what has changed in a process that holds both sides, a sentence for each kind of state."""
    return [
        *(f"the sides add {key} ({value})" for key, value in after.additions.items()),
        *(f"a side changes {key} from {one} to {other} while it runs" for key, one, other in _changed(before, after)),
    ]


def _changed(before: Fingerprint, after: Fingerprint) -> Iterator[tuple[str, str, str]]:
    """Yield the settings that have changed; but for environment variables, of which torch sets some when it is first used."""
    for key in _keys([before.settings, after.settings]):
        one, other = before.settings.get(key, NOT_SET), after.settings.get(key, NOT_SET)
        if one != other and not key.startswith(ENVIRON):
            yield key, one, other


def _keys(texts: Sequence[Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(key for of_one in texts for key in of_one))


def _last(stages: Mapping[str, Fingerprint], key: str) -> str:
    return next((state.additions[key] for state in reversed(list(stages.values())) if key in state.additions), "")


def _added(key: str, values: Mapping[str, str]) -> str:
    """Return a sentence on a key that one side has, or both."""
    having = [name for name, value in values.items() if value]
    who = f"the {having[0]} adds" if len(having) == 1 else "both sides add"
    return f"{who} {key} ({values[having[-1]]})"


def _set(key: str, stage: str, sides: Mapping[str, Mapping[str, Fingerprint]]) -> str:
    """Return a sentence on a setting that differs at a stage: which side has changed it, as far as that is known."""
    before = {name: stages[BEFORE].settings.get(key, NOT_SET) for name, stages in sides.items()}
    after = {name: stages[stage].settings.get(key, NOT_SET) for name, stages in sides.items()}
    changing = [name for name in sides if before[name] != after[name]]
    if len(changing) == 1:
        [name] = changing
        return f"the {name} changes {key} from {before[name]} to {after[name]}"
    return f"{key} is {after['base']} in the base and {after['head']} in the head"
