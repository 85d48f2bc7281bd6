"""Records are read by their type hints; an error names the place of the value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import pytest

from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.reading import (
    OPTIONAL,
    FieldError,
    Members,
    Nanoseconds,
    Packed,
    Positive,
    Reader,
)
from mnistbench.core.units import LARGEST


class Point(NamedTuple):
    step: int
    value: float | None


class Name(NamedTuple):
    text: str

    @classmethod
    def from_stored(cls, stored: Packed[Mapping[str, str]]) -> Name:
        if "name" not in stored:
            raise FieldError("needs a name")
        return cls(stored["name"])


@dataclass(frozen=True)
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise UsageError(f"number {self.number} is odd")


@dataclass(frozen=True)
class Everything:
    text: str
    flag: bool
    view: Annotated[str, Literal["host", "device"]]
    times: tuple[Nanoseconds, ...]
    threads: Positive
    points: tuple[Point, ...]
    pair: Annotated[tuple[str, int], Members("a name and a number")]
    rates: Annotated[tuple[float, ...], Members("at least one")]
    settings: Mapping[str, tuple[int, ...]]
    packed: Packed[tuple[int, ...]]
    name: Name
    even: Even
    anything: Any
    elapsed: Annotated[float, OPTIONAL] = 0.0


SOUND: dict[str, Any] = {
    "text": "a",
    "flag": True,
    "view": "host",
    "times": [0, 5],
    "threads": 2,
    "points": [{"step": 1, "value": None}],
    "pair": ["a", 1],
    "rates": [1],
    "settings": {"a": [1]},
    "packed": "[1,2]",
    "name": '{"name": "b"}',
    "even": {"number": 2},
    "anything": {"x": [None]},
}


def test_every_kind_of_hint_is_read() -> None:
    found = Reader(SOUND).read(Everything)
    assert found == Everything(
        "a",
        True,
        "host",
        (0, 5),
        2,
        (Point(1, None),),
        ("a", 1),
        (1.0,),
        {"a": (1,)},
        (1, 2),
        Name("b"),
        Even(2),
        {"x": [None]},
    )
    assert type(found.rates[0]) is float
    assert Reader({**SOUND, "elapsed": 2}).read(Everything).elapsed == 2.0


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("text", 1, "text: needs text, found 1"),
        ("flag", 1, "flag: needs true or false, found 1"),
        ("view", "both", "view: needs host or device, found 'both'"),
        ("view", [], "view: needs host or device, found []"),
        ("times", [0, -1], "times[1]: needs a time of at least 0 ns, found -1"),
        ("times", [True], "times[0]: needs a whole number, found True"),
        ("times", [LARGEST + 1], f"times[0]: needs a whole number, found {LARGEST + 1}"),
        ("threads", 0, "threads: needs at least 1, found 0"),
        (
            "points",
            [{"step": 1, "value": float("nan")}],
            "points[0].value: needs a finite number, found nan",
        ),
        ("points", [{"value": 1}], "points[0].step: is missing"),
        ("points", [[1, 2]], "points[0]: needs an object, found [1, 2]"),
        ("pair", ["a"], "pair: needs a name and a number, found ['a']"),
        ("pair", ["a", "b"], "pair[1]: needs a whole number, found 'b'"),
        ("rates", [], "rates: needs at least one, found []"),
        ("rates", [10**400], "rates[0]: needs a finite number, found 1000"),
        ("settings", {"a": [1], "b": ["x"]}, "settings.b[0]: needs a whole number, found 'x'"),
        ("settings", [], "settings: needs an object, found []"),
        ("packed", [1], "packed: needs text, found [1]"),
        ("packed", "[1", "packed: is not JSON (Expecting"),
        ("packed", '[1,"x"]', "packed[1]: needs a whole number, found 'x'"),
        ("name", "{}", "name: needs a name"),
        ("even", {"number": 3}, "even: number 3 is odd"),
        ("even", {}, "even.number: is missing"),
        ("elapsed", "x", "elapsed: needs a finite number, found 'x'"),
    ],
)
def test_error_names_the_place_of_the_value(field: str, value: object, complaint: str) -> None:
    with pytest.raises(RecordError) as error:
        Reader({"all": [SOUND, {**SOUND, field: value}]})["all"].read(tuple[Everything, ...])
    assert str(error.value).startswith(f"all[1].{complaint}")


def test_fields_are_required_unless_optional() -> None:
    for name in SOUND:
        with pytest.raises(RecordError, match=f"^{name}: is missing$"):
            Reader({key: value for key, value in SOUND.items() if key != name}).read(Everything)


def test_a_document_without_a_path_is_called_file() -> None:
    with pytest.raises(RecordError, match=r"^file: needs an object, found 5$"):
        Reader(5).read(Everything)
