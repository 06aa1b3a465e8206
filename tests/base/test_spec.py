"""Strategies and codecs as short strings: `parse` and `describe` are each other's inverse."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from minga.base.config import FieldError, fields_of
from minga.base.spec import Named, Preset, describe, parse
from minga.codecs import CODECS, BFloat16, Codec, Half, Plain
from minga.errors import ConfigError
from minga.strategies import STRATEGIES, AllReduce, Gossip, Hierarchical, ParameterServer, Single, Strategy, Switch

OWN = """
from dataclasses import dataclass

from minga import Strategy
from minga.codecs import Codec, Half, Plain


@dataclass(frozen=True, kw_only=True)
class Averaging(Strategy):
    '''Average every so often.'''

    period: int = 8
    rate: float = 0.5
    eager: bool = False

    def step(self, replica, comm):
        replica.update()


@dataclass(frozen=True, kw_only=True)
class Scaled(Half):
    factor: float = 1.0
    rounds: int = 1
    codec: Codec = Plain()


class Undecorated(Averaging):
    pass


number = 7
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's file with a strategy and a codec."""
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(OWN)
    before = sys.path.copy()
    yield path
    sys.path[:] = before


# --- parse -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("single", Single()),
        ("allreduce", AllReduce()),
        ("native", AllReduce(collective="native")),
        ("ring", AllReduce(collective="ring")),
        ("two_level:group_size=2", AllReduce(collective="two_level", group_size=2)),
        ("ps", ParameterServer()),
        ("ps:", ParameterServer()),
        ("ps:mode=async,servers=2", ParameterServer(mode="async", servers=2)),
        ("ps: mode = ssp , staleness = 4 ,", ParameterServer(mode="ssp", staleness=4)),
        ("switch:improvement=1e-3", Switch(improvement=0.001)),
        ("ring:codec=half", AllReduce(collective="ring", codec=Half())),
        ("ring:codec=(bfloat16),bucket_bytes=64", AllReduce(collective="ring", codec=BFloat16(), bucket_bytes=64)),
    ],
)
def test_a_string_means_an_object(text: str, meant: Strategy) -> None:
    assert parse(Strategy, text) == meant


@pytest.mark.parametrize("name", CODECS)
def test_every_codec_has_a_string_that_means_it(name: str) -> None:
    codec = parse(Codec, name)
    assert type(codec) is CODECS[name].cls
    assert describe(codec) == name


def test_a_table_means_the_same_as_a_string() -> None:
    table = {"name": "ps", "mode": "async", "codec": {"name": "half"}}
    assert Strategy.from_value(table) == parse(Strategy, "ps:mode=async,codec=half")


def test_an_object_is_taken_as_it_is() -> None:
    strategy = Single()
    assert Strategy.from_value(strategy) is strategy


def test_commas_in_parentheses_belong_to_the_inner_spec(own: Path) -> None:
    codec = f"{own}:Scaled:factor=2,rounds=3,codec=({own}:Scaled:factor=4,rounds=5)"
    strategy = parse(Strategy, f"ps:codec=({codec}),servers=2")
    assert isinstance(strategy, ParameterServer) and strategy.servers == 2
    outer: Any = strategy.codec
    assert (outer.factor, outer.rounds) == (2.0, 3)
    assert (outer.codec.factor, outer.codec.rounds) == (4.0, 5)


def test_a_class_in_a_file_is_a_strategy_too(own: Path) -> None:
    strategy: Any = parse(Strategy, f"{own}:Averaging:period=3,eager=true")
    assert isinstance(strategy, Strategy)
    assert (strategy.period, strategy.rate, strategy.eager) == (3, 0.5, True)


def test_a_file_may_be_given_relative_to_here(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.parent)
    assert parse(Strategy, "own.py:Averaging") == parse(Strategy, f"{own}:Averaging")


# --- errors ------------------------------------------------------------------------------------------------------


def test_an_unknown_strategy_is_answered_with_all_names_a_suggestion_and_the_way_to_ones_own() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Strategy, "rign:bucket_bytes=3")
    message = str(caught.value)
    assert message.startswith("unknown strategy 'rign'; known: ")
    assert all(name in message for name in STRATEGIES)
    assert "Did you mean 'ring'?" in message
    assert message.endswith("A strategy of your own: file.py:Class.")


def test_an_unknown_codec_is_named_with_the_field_it_stands_in() -> None:
    with pytest.raises(FieldError, match=r"unknown codec 'haf'; known: .*half.* Did you mean 'half'\?") as caught:
        parse(Strategy, "ring:codec=haf")
    assert caught.value.path == ("codec",)


def test_an_unknown_field_is_answered_with_a_suggestion() -> None:
    with pytest.raises(FieldError, match=r"unknown key 'sever'; known: .* Did you mean 'servers'\?"):
        parse(Strategy, "ps:sever=2")


def test_an_item_without_equals_is_shown() -> None:
    with pytest.raises(ConfigError, match=r"^'async' in strategy 'ps:async' should be field=value$"):
        parse(Strategy, "ps:async")


def test_a_field_that_the_name_fixes_is_refused() -> None:
    with pytest.raises(FieldError, match=r"'ring' means collective=ring already; leave it out") as caught:
        parse(Strategy, "ring:collective=tree")
    assert caught.value.path == ("collective",)


def test_fields_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(FieldError, match=r"^staleness: is for mode=ssp, not for mode=async$"):
        parse(Strategy, "ps:mode=async,staleness=3")


@pytest.mark.parametrize("table", [{}, {"mode": "async"}, {"name": 3}])
def test_a_table_without_a_name_is_refused_with_an_example(table: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"a table for a strategy needs a name, such as name = 'single'"):
        Strategy.from_value(table)


@pytest.mark.parametrize("value", [3, None, ["ring"], Plain()])
def test_neither_string_nor_table_is_no_strategy(value: object) -> None:
    with pytest.raises(ConfigError, match="is no strategy"):
        Strategy.from_value(value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("number", "is no strategy: make it a subclass of minga.Strategy"),
        ("Scaled", "is no strategy: make it a subclass of minga.Strategy"),
        ("Undecorated", r"should be decorated with @dataclass\(frozen=True, kw_only=True\)"),
        ("Averagin", "unknown name .*'Averagin'; known: .* Did you mean 'Averaging'"),
        ("", "should be file.py:name"),
    ],
)
def test_something_else_in_a_file_is_refused_with_a_remedy(own: Path, name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse(Strategy, f"{own}:{name}")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"there is no file 'nowhere/mine.py' \(looked for /.*nowhere/mine.py\)"):
        parse(Strategy, "nowhere/mine.py:Mine")


# --- describe, and the way back ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (Single(), "single"),
        (AllReduce(), "native"),
        (AllReduce(collective="tree"), "tree"),
        (AllReduce(collective="two_level", group_size=2), "two_level:group_size=2"),
        (ParameterServer(), "ps:mode=sync"),
        (ParameterServer(mode="ssp", staleness=3, codec=Half()), "ps:codec=half,mode=ssp,staleness=3"),
        (Switch(), "switch"),
        (Gossip(period=4), "gossip:algorithm=dpsgd,period=4"),
        (Hierarchical(across=AllReduce(collective="ring")), "hierarchical:across=ring"),
        (
            Hierarchical(across=Gossip(period=4, codec=Half())),
            "hierarchical:across=(gossip:codec=half,algorithm=dpsgd,period=4)",
        ),
    ],
)
def test_a_description_has_the_nearest_name_and_only_what_is_not_usual(strategy: Strategy, text: str) -> None:
    assert describe(strategy) == text


def test_an_inner_spec_with_commas_is_put_in_parentheses(own: Path) -> None:
    text = f"ring:codec=({own}:Scaled:factor=2.0,rounds=3)"
    assert describe(parse(Strategy, text)) == text


def test_an_inner_spec_with_an_inner_spec_needs_parentheses_only_for_its_commas(own: Path) -> None:
    codec = f"{own}:Scaled:factor=2.0,rounds=3"
    strategy = parse(Strategy, f"hierarchical:across=ring:codec=({codec})")
    assert strategy == parse(Strategy, f"hierarchical:across=(ring:codec=({codec}))")
    assert describe(strategy) == f"hierarchical:across=(ring:codec=({codec}))"


def test_a_class_in_a_file_is_described_by_its_whole_path(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.parent)
    assert describe(parse(Strategy, "own.py:Averaging:period=3")) == f"{own}:Averaging:period=3"


INNER = [
    AllReduce(),
    AllReduce(collective="ring", bucket_bytes=64),
    ParameterServer(),
    Gossip(period=8),
    Gossip(algorithm="push_sum", graph="ring", codec=Half()),
]
"""Strategies inside another one."""


def values_of(hint: Any, codecs: st.SearchStrategy[Codec]) -> st.SearchStrategy[Any]:
    """Values that a field of this type may have; its owner may still refuse some."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return st.one_of([values_of(choice, codecs) for choice in typing.get_args(hint)])
    if hint is Codec:
        return codecs
    if hint is Strategy:
        return st.sampled_from(INNER)
    if hint is int:
        return st.integers(0, 1 << 40)
    return st.floats(0, allow_nan=False) if hint is float else st.from_type(hint)


def tables(name: str, preset: Preset, codecs: st.SearchStrategy[Codec]) -> st.SearchStrategy[dict[str, Any]]:
    """Tables for a name: any of its fields, with any values."""
    hints = typing.get_type_hints(preset.cls)
    free = [field.name for field in dataclasses.fields(preset.cls) if field.name not in preset.fields]  # type: ignore[arg-type]
    return st.fixed_dictionaries({"name": st.just(name)}, optional={key: values_of(hints[key], codecs) for key in free})


def codecs_with(own: Path) -> st.SearchStrategy[Codec]:
    """Every built-in codec and a user's, with other codecs inside."""
    built_in = st.sampled_from([preset.cls(**preset.fields) for preset in CODECS.values()])
    scaled = {"factor": st.floats(allow_nan=False), "rounds": st.integers()}
    return st.recursive(
        built_in,
        lambda inner: st.fixed_dictionaries(
            {"name": st.just(f"{own}:Scaled")}, optional={**scaled, "codec": inner}
        ).map(Codec.from_value),
        max_leaves=3,
    )


def from_table(table: dict[str, Any]) -> Strategy:
    try:
        return Strategy.from_value(table)
    except FieldError:  # a combination that its class refuses
        reject()


@pytest.mark.parametrize("name", STRATEGIES)
@given(data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_every_strategy_comes_back_from_its_description(name: str, own: Path, data: st.DataObject) -> None:
    strategy = from_table(data.draw(tables(name, STRATEGIES[name], codecs_with(own))))
    again = parse(Strategy, describe(strategy))
    assert again == strategy
    assert describe(again) == describe(strategy)


@given(period=st.integers(), rate=st.floats(allow_nan=False), eager=st.booleans(), data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_users_strategy_comes_back_from_its_description(
    own: Path, period: int, rate: float, eager: bool, data: st.DataObject
) -> None:
    codec = data.draw(codecs_with(own))
    table = {"name": f"{own}:Averaging", "period": period, "rate": rate, "eager": eager, "codec": codec}
    strategy = from_table(table)
    assert parse(Strategy, describe(strategy)) == strategy


# --- the listings ------------------------------------------------------------------------------------------------

FAMILIES: list[tuple[type[Named], dict[str, Preset]]] = [(Strategy, STRATEGIES), (Codec, CODECS)]
PRESETS = [pytest.param(preset, id=name) for _, presets in FAMILIES for name, preset in presets.items()]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_name_has_a_summary_in_one_sentence(preset: Preset) -> None:
    assert preset.describe().endswith(".")
    assert "\n" not in preset.describe()


@pytest.mark.parametrize("preset", PRESETS)
def test_every_field_of_a_named_class_is_documented(preset: Preset) -> None:
    assert [name for name, _, _, description in fields_of(preset.cls) if not description] == []


def test_a_summary_of_its_own_goes_before_the_docstring() -> None:
    assert Preset(Single, summary="Mine.").describe() == "Mine."
    assert Preset(Single).describe() == "One node trains alone: the baseline of every comparison."


def test_fields_of_own_strategies_come_back_also_none_and_lists(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from minga import Strategy\n\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(Strategy):\n"
        "    period: int | None = 3\n"
        "    sizes: tuple[int, ...] = ()\n"
        "    def step(self, replica, comm):\n"
        "        replica.update()\n"
    )
    made = parse(Strategy, f"{file}:Mine:period=None,sizes=(1,2)")
    assert (made.period, made.sizes) == (None, (1, 2))  # type: ignore[attr-defined]
    assert parse(Strategy, describe(made)) == made


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ps,servers=2", "fields follow a colon"),
        ("ps:codec=(half,servers=2", "a parenthesis without its partner"),
        ("ps:servers=1,servers=2", "says servers twice"),
    ],
)
def test_strings_that_are_nearly_right(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(Strategy, text)


def test_a_strategy_without_a_step_is_no_strategy(tmp_path: Path) -> None:
    file = tmp_path / "half_done.py"
    file.write_text(
        "from dataclasses import dataclass\nfrom minga import Strategy\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass HalfDone(Strategy):\n    pass\n"
    )
    with pytest.raises(ConfigError, match="no complete strategy: it lacks step"):
        parse(Strategy, f"{file}:HalfDone")
