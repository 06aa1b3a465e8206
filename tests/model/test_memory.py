"""What strategies remember, as data and back."""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from minga.codecs import Half, Stream
from minga.comm import Done
from minga.errors import ProtocolError, UnsupportedError
from minga.model.memory import Memory, recall, remember


@dataclass
class Spring:
    centre: torch.Tensor
    pulls: list[int] = field(default_factory=list)
    stream: Stream | None = None


class Wheel:
    remembers = ("turns", "spokes")

    def __init__(self) -> None:
        self.turns = 0
        self.hub = object()


def there_and_back(value: Any, existing: Any = None) -> Any:
    """`existing`: what says which classes and codecs may appear; by default the value itself."""
    memory = remember(value)
    tree = json.loads(json.dumps(memory.tree))  # it must be JSON, without numbers that JSON does not know
    assert "NaN" not in json.dumps(memory.tree)
    return recall(Memory(tree, memory.tensors), value if existing is None else existing)


def test_plain_values() -> None:
    value = {
        "a": [1, 2.5, None, True, "text"],
        7: (1, (2, 3), slice(1, 5)),
        (1, 2): {"inner": {}},
        "counts": Counter({3: 4}),
        "last": deque([1, 2], maxlen=2),
        "codec": Half(),
        "done": Done(3),
    }
    back = there_and_back(value)
    assert list(back) == list(value)
    assert back["a"] == value["a"]
    assert back[7] == value[7]
    assert back["counts"] == Counter({3: 4}) and isinstance(back["counts"], Counter)
    assert back["last"].maxlen == 2
    assert back["codec"] == Half()
    assert back["done"].wait() == 3


def test_numbers_that_are_none_and_tensors() -> None:
    back = there_and_back({"worst": float("inf"), "vector": torch.arange(3), "none": -float("inf")})
    assert (back["worst"], back["none"]) == (float("inf"), -float("inf"))
    assert torch.equal(back["vector"], torch.arange(3))


def test_random_numbers_go_on() -> None:
    generator = torch.Generator().manual_seed(5)
    torch.rand(3, generator=generator)
    back = there_and_back({"chance": generator})
    assert torch.equal(torch.rand(4, generator=generator), torch.rand(4, generator=back["chance"]))


def test_dataclasses_and_what_is_the_same_stays_one() -> None:
    stream = Stream(((2, 3),), residual=torch.ones(6))
    spring = Spring(torch.zeros(2), [1], stream)
    back = there_and_back({"streams": {"main": stream}, "springs": [spring, spring]})
    assert back["springs"][0] is back["springs"][1]
    assert back["springs"][0].stream is back["streams"]["main"]
    assert back["streams"]["main"].shapes == ((2, 3),)
    back["streams"]["main"].residual.zero_()
    assert float(stream.residual.sum()) == 6  # a copy


def test_objects_that_say_what_counts_are_filled_in_place() -> None:
    wheel, existing = Wheel(), Wheel()
    wheel.turns = 5
    back = there_and_back({"wheel": wheel}, {"wheel": existing})
    assert back["wheel"] is existing
    assert existing.turns == 5


def test_what_can_not_be_kept_is_named_with_its_place() -> None:
    with pytest.raises(UnsupportedError, match=r"replica.state\['a'\]\[1\] is a object, which a checkpoint can't keep"):
        remember({"a": [1, object()]})


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"is": "object", "number": 0, "kind": "Popen", "fields": {}}, "was a Popen, which this strategy"),
        ({"is": "object", "number": 0, "kind": "Spring", "fields": {"__class__": 1}}, "fields that are not its own"),
        ({"is": "configuration", "value": "/tmp/evil.py:Codec"}, "which this strategy does not know"),
        ({"is": "again", "number": 7}, "can't be understood"),
        ({"is": "tensor", "number": 0, "name": "9"}, "can't be understood"),
        ({"is": "own", "number": 0, "fields": {}}, "no object to put its memory into"),
        ({"is": "module", "number": 0, "name": "os"}, "of which nothing is known"),
        ({}, "can't be understood"),
    ],
)
def test_memories_that_make_no_sense_are_refused(tree: Any, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        recall(Memory(tree, {}), {"spring": Spring(torch.zeros(1))})


@dataclass
class Mattress:
    """Holds springs sooner or later."""

    springs: list[Spring]
    best: Spring | None = None


def test_what_fields_are_declared_to_hold_may_come_into_being() -> None:
    value = {"mattress": Mattress([Spring(torch.ones(2))], Spring(torch.zeros(1), [3]))}
    back = there_and_back(value, {"mattress": Mattress([])})
    assert back["mattress"].best.pulls == [3]
    assert torch.equal(back["mattress"].springs[0].centre, torch.ones(2))


def test_what_no_field_is_declared_to_hold_is_refused() -> None:
    with pytest.raises(
        ProtocolError, match=r"replica.state\['other'\] was a Spring, which this strategy does not know"
    ):
        there_and_back({"other": Spring(torch.ones(2))}, {"mattress": "something else"})
