"""Records are read by their type hints; an error names the place of the value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pytest

from mnistbench.core import reading
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.reading import (
    FieldError,
    Nanoseconds,
    Positive,
    member,
    place,
    read,
    read_text,
)
from mnistbench.core.units import LARGEST


class Point(NamedTuple):
    step: int
    value: float | None


class Names(set[str]):
    """Saved as an object of names."""

    @classmethod
    def from_saved(cls, saved: object) -> Names:
        names = read(saved, Mapping[str, int])
        if not names:
            raise FieldError("needs a name")
        return cls(names)


@dataclass(frozen=True)
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise FieldError("is odd", "number")


@dataclass(frozen=True)
class Everything:
    text: str
    flag: bool
    times: tuple[Nanoseconds, ...]
    threads: Positive
    points: tuple[Point, ...]
    settings: Mapping[str, tuple[int, ...]]
    names: Names
    even: Even
    anything: Any


SOUND: dict[str, Any] = {
    "text": "a",
    "flag": True,
    "times": [0, 5],
    "threads": 2,
    "points": [[1, None], [2, 3]],
    "settings": {"a": [1]},
    "names": {"b": 1},
    "even": {"number": 2},
    "anything": {"x": [None]},
}


@pytest.mark.versions
def test_every_kind_of_hint_is_read() -> None:
    everything = read(SOUND, Everything)
    assert everything == Everything(
        "a",
        True,
        (0, 5),
        2,
        (Point(1, None), Point(2, 3.0)),
        {"a": (1,)},
        Names({"b"}),
        Even(2),
        {"x": [None]},
    )
    assert type(everything.names) is Names
    assert type(everything.points[1].value) is float


@pytest.mark.versions
@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("text", 1, "text: "),
        ("flag", 1, "flag: "),
        ("times", [0, -1], "times[1]: "),
        ("times", [True], "times[0]: "),
        ("times", [LARGEST + 1], "times[0]: "),
        ("threads", 0, "threads: "),
        ("points", [[1]], "points[0]: "),
        ("points", [[1, "x"]], "points[0][1]: "),
        ("settings", {"a": [1], "b": ["x"]}, "settings[...][0]: "),
        ("names", {}, "names: needs a name"),
        ("names", [], "names: "),
        ("even", {"number": 3}, "even.number: is odd"),
        ("even", {}, "even.number: is missing"),
    ],
)
def test_error_names_the_place_of_the_value(field: str, value: object, complaint: str) -> None:
    with pytest.raises(FieldError) as error:
        member({"all": [SOUND, {**SOUND, field: value}]}, "all", tuple[Everything, ...])
    assert str(error.value).startswith(f"all[1].{complaint}")


def test_fields_without_a_default_are_required() -> None:
    for name in SOUND:
        with pytest.raises(FieldError, match=f"^{name}: is missing$"):
            read({key: value for key, value in SOUND.items() if key != name}, Everything)


def test_a_document_without_a_path_is_called_file() -> None:
    with pytest.raises(FieldError, match=r"^file: "):
        read(5, Everything)


@dataclass(frozen=True)
class Limited:
    def __post_init__(self) -> None:
        raise UsageError("too many")


def test_an_error_for_the_user_is_one_of_the_file() -> None:
    with pytest.raises(FieldError, match=r"^settings: too many$"):
        read({}, Limited, "settings")


@dataclass(frozen=True)
class Sample:
    times: tuple[int, ...]
    view: Literal["host", "device"] = "host"

    def __post_init__(self) -> None:
        if min(self.times, default=0) < 0:
            raise ValueError("times needs times of at least 0 ns")


def test_a_field_with_a_default_may_be_missing() -> None:
    assert read({"times": [1, 2]}, Sample) == Sample((1, 2))
    assert read_text('{"times": [1], "view": "device"}', Sample) == Sample((1,), "device")


@pytest.mark.versions
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "run.sample.times: is missing"),
        ({"times": [1, "x"]}, "run.sample.times[1]: "),
        ({"times": [-1]}, "run.sample: times needs times of at least 0 ns"),
        ({"times": [], "view": "both"}, "run.sample.view: "),
        (5, "run.sample: "),
    ],
)
def test_an_error_of_msgspec_has_the_place_and_the_paths_around_it(
    value: object, message: str
) -> None:
    with pytest.raises(FieldError) as error, place("run"):
        member({"sample": value}, "sample", Sample)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "text", ["[1", "[NaN]", "[1e999]", "", "[" * 100_000, "[" * 100_000 + "]" * 100_000]
)
def test_a_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match=r"^rates") as error:
        read_text(text, tuple[float, ...], "rates")
    assert len(str(error.value)) < 200


def test_half_of_a_surrogate_pair_in_a_text_is_read() -> None:
    assert read_text('["\\ud800"]', tuple[str, ...]) == ("\ud800",)


@pytest.mark.parametrize("value", ["a\ud800b", {"a": "\ud800"}])
def test_half_of_a_surrogate_pair_in_a_wrong_value_is_an_error_of_the_file(value: object) -> None:
    with pytest.raises(FieldError, match=r"^run: has a text with half a surrogate pair"):
        reading.read(value, dict[str, int] if isinstance(value, dict) else int, "run")


def test_json_that_needs_more_memory_than_there_is(monkeypatch):
    monkeypatch.setattr(reading, "available_bytes", lambda: 1_000_000.0)
    reading.check_memory(b"[]," * 1_000, "a.json")
    with pytest.raises(RecordError) as raised:
        reading.check_memory(b"[]," * 10_000, "a.json")
    assert str(raised.value) == (
        "a.json: needs at least 1.40 MiB of memory, and 977 KiB are available; read it on a "
        "machine with more"
    )
