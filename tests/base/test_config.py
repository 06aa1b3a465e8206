"""Configuration objects check and convert their fields when they are made."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest

from minga.base.config import Config, FieldError, build, default_of, fields_of, limits
from minga.errors import ConfigError, UsageError


@dataclass(frozen=True, kw_only=True)
class Engine(Config):
    kind = "engine"

    cylinders: int = 4
    """How many there are."""

    fuel: Literal["petrol", "diesel"] = "petrol"
    """What it burns."""

    def check(self) -> None:
        if self.cylinders < 1:
            raise FieldError(("cylinders",), f"should be at least 1, not {self.cylinders}")


@dataclass(frozen=True, kw_only=True)
class Car(Config):
    kind = "car"

    owner: str
    """Who drives."""

    engine: Engine = field(default_factory=Engine)
    """What drives."""

    loads: tuple[float, ...] = ()
    """What it carries,
    on each axle."""

    doors: Annotated[int, limits(1)] | None = None

    speed: Annotated[float, limits(0, 300)] = 0.0


@dataclass(frozen=True, kw_only=True)
class Taxi(Car):
    meter: bool = False
    """Whether it counts."""


@pytest.mark.parametrize(
    ("given", "converted"), [({"cylinders": "6"}, 6), ({"cylinders": 6.0}, 6), ({"cylinders": 6}, 6)]
)
def test_a_value_becomes_the_type_of_its_field(given: dict[str, object], converted: int) -> None:
    cylinders = Engine(**given).cylinders  # type: ignore[arg-type]
    assert (cylinders, type(cylinders)) == (converted, int)


def test_a_list_becomes_a_tuple_of_converted_values() -> None:
    assert build(Car, {"owner": "Ana", "loads": ["1", 2]}).loads == (1.0, 2.0)


def test_an_optional_field_takes_a_value_or_none() -> None:
    assert [Car(owner="Ana", doors=doors).doors for doors in (None, 3)] == [None, 3]


def test_a_value_of_the_wrong_type_is_named_with_its_field() -> None:
    with pytest.raises(FieldError, match=r"^cylinders: input should be a valid integer.*, not 'many'$") as caught:
        Engine(cylinders="many")  # type: ignore[arg-type]
    assert caught.value.path == ("cylinders",)


def test_a_wrong_choice_is_answered_with_the_choices() -> None:
    with pytest.raises(FieldError, match=r"^fuel: input should be 'petrol' or 'diesel', not 'coal'$"):
        Engine(fuel="coal")  # type: ignore[arg-type]


def test_check_sees_converted_values() -> None:
    with pytest.raises(FieldError, match=r"^cylinders: should be at least 1, not 0$"):
        Engine(cylinders="0")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"doors": 0}, "doors: should be at least 1, not 0"),
        ({"doors": "-1"}, "doors: should be at least 1, not -1"),
        ({"speed": -0.5}, "speed: should be 0 to 300, not -0.5"),
        ({"speed": 301}, "speed: should be 0 to 300, not 301"),
        ({"speed": math.nan}, "speed: should be 0 to 300, not nan"),
        ({"speed": math.inf}, "speed: should be 0 to 300, not inf"),
    ],
)
def test_limits_of_a_number_stand_in_its_type(given: dict[str, object], message: str) -> None:
    with pytest.raises(FieldError) as caught:
        Car(owner="Ana", **given)  # type: ignore[arg-type]
    assert str(caught.value) == message
    assert (Car(owner="Ana", doors=1, speed=300).doors, Car(owner="Ana").doors) == (1, None)


def test_replacing_a_field_checks_again() -> None:
    with pytest.raises(FieldError, match="should be at least 1, not -1"):
        dataclasses.replace(Engine(), cylinders=-1)


def test_a_table_becomes_the_object_that_the_field_wants() -> None:
    car = build(Car, {"owner": "Ana", "engine": {"fuel": "diesel"}})
    assert car == Car(owner="Ana", engine=Engine(fuel="diesel"))


def test_an_object_is_taken_as_it_is() -> None:
    engine = Engine(cylinders=8)
    assert Car(owner="Ana", engine=engine).engine is engine


@pytest.mark.parametrize("engine", [{"cylinders": 0}, {"cylinders": "x"}, {"cylindres": 4}])
def test_an_error_inside_has_the_whole_path(engine: dict[str, object]) -> None:
    with pytest.raises(FieldError) as caught:
        build(Car, {"owner": "Ana", "engine": engine})
    assert caught.value.path == ("engine", next(iter(engine)))
    assert str(caught.value).startswith(f"engine.{next(iter(engine))}: ")


def test_neither_object_nor_table_is_an_error_that_says_what_was_wanted() -> None:
    with pytest.raises(FieldError, match=r"^engine: 7 is no engine; give a table of its fields$"):
        build(Car, {"owner": "Ana", "engine": 7})


def test_an_unknown_key_is_answered_with_the_known_ones_and_a_suggestion() -> None:
    with pytest.raises(FieldError) as caught:
        build(Engine, {"cylindres": 4})
    assert caught.value.path == ("cylindres",)
    assert "unknown key 'cylindres'; known: cylinders, fuel. Did you mean 'cylinders'?" in str(caught.value)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(FieldError, match=r"car needs a value for 'owner'") as caught:
        build(Car, {})
    assert caught.value.path == ("owner",)


def test_a_field_error_is_a_usage_error() -> None:
    assert issubclass(FieldError, ConfigError) and issubclass(ConfigError, UsageError)
    assert issubclass(UsageError, ValueError)


def test_a_field_error_without_a_path_is_its_message() -> None:
    error = FieldError((), "does not work")
    assert str(error) == "does not work"
    assert str(error.inside("inner").inside("outer")) == "outer.inner: does not work"


def test_listings_have_name_type_default_and_description() -> None:
    assert fields_of(Engine) == [
        ("cylinders", "int", 4, "How many there are."),
        ("fuel", "petrol|diesel", "petrol", "What it burns."),
    ]


def test_listings_include_inherited_fields_with_their_descriptions() -> None:
    listed = {name: (default, description) for name, _, default, description in fields_of(Taxi)}
    assert listed["engine"] == (Engine(), "What drives.")
    assert listed["loads"] == ((), "What it carries,\non each axle.")
    assert listed["doors"] == (None, "")
    assert listed["meter"] == (False, "Whether it counts.")


def test_a_field_without_default_has_none() -> None:
    owner, engine, *_ = dataclasses.fields(Car)
    assert default_of(owner) is dataclasses.MISSING
    assert default_of(engine) == Engine()
