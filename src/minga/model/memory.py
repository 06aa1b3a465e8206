"""What a strategy remembers, as data: a tree of plain values and the tensors in it, and back again.

    memory = remember(replica.state)
    replica.state = recall(memory, replica.state)

Numbers, strings, tensors, random generators, lists, tuples, dictionaries and dataclasses of these are kept by
themselves, with what is the same object in two places staying one. Of other objects those are kept whose class says
which attributes count (`remembers`); they are put back into the object that is there already. Nothing is imported,
called or executed because a memory says so: dataclasses are looked up by name among those that are there already, and
those that their fields and the attributes of `remembers` are declared to hold. So state is declared by its types.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from minga.base.lazy import Tensor, torch
from minga.base.spec import Named, describe
from minga.codecs.stream import Stream
from minga.comm.transport import Done, Pending
from minga.errors import ProtocolError, UnsupportedError

__all__ = ["Memory", "recall", "remember"]

_REMEDY = "; was it written by another version of Minga, or of the strategy? Go on with that version"


@dataclass
class Memory:
    """Plain values (JSON) and the tensors that they mention by number."""

    tree: Any = None
    tensors: dict[str, Tensor] = field(default_factory=dict)


def remember(value: Any) -> Memory:
    """A memory of a value; its tensors are those of the value, not copies. Raises `UnsupportedError` with the place."""
    writer = _Writer()
    tree = writer.write(value, "replica.state")
    return Memory(tree, writer.tensors)


def recall(memory: Memory, existing: Any) -> Any:
    """The value that a memory is of. `existing`: what is there now, which says what may appear.

    Raises `ProtocolError` where a memory can't be understood.
    """
    known = _Known()
    known.look_at(existing)
    reader = _Reader(memory.tensors, known)
    try:
        return reader.read(memory.tree, existing, "replica.state")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, ProtocolError):
            raise
        raise ProtocolError(f"what the strategy remembered can't be understood ({error!r})") from error


class _Known:
    """The dataclasses, by name, and the codecs, by description, that a memory may mention."""

    def __init__(self) -> None:
        self.kinds: dict[str, type[Any]] = {"Stream": Stream}
        """Those that may appear; a codec's streams may come into being at any step."""
        self.configurations: dict[str, Named] = {}
        self._seen: dict[int, Any] = {}
        """By `id`, with the value itself, so that no `id` is given twice."""

    def look_at(self, value: Any) -> None:
        if id(value) in self._seen or isinstance(value, Tensor | str | int | float | None):
            return
        self._seen[id(value)] = value
        if isinstance(value, Named):
            self.configurations.setdefault(describe(value), value)
        elif isinstance(value, Mapping):
            for each in value.values():
                self.look_at(each)
        elif isinstance(value, list | tuple | deque):
            for each in value:
                self.look_at(each)
        elif dataclasses.is_dataclass(value) or hasattr(type(value), "remembers"):
            self._declare(type(value))
            for each in vars(value).values():
                self.look_at(each)

    def _declare(self, kind: Any) -> None:
        """A class, and the dataclasses that its fields or attributes may hold."""
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__name__ not in self.kinds:
            self.kinds[kind.__name__] = kind
        elif not (isinstance(kind, type) and hasattr(kind, "remembers")):
            for part in typing.get_args(kind):
                self._declare(part)
            return
        for hint in typing.get_type_hints(kind).values():
            self._declare(hint)


class _Writer:
    """Turns values into trees; whatever can change and appears twice is written once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._seen: dict[int, tuple[int, Any]] = {}
        """By `id`: the number in the tree, and the value itself, so that no `id` is given twice."""

    def write(self, value: Any, place: str) -> Any:
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"is": "float", "value": repr(value)}
        if isinstance(value, tuple):
            return {"is": "tuple", "items": [self.write(item, f"{place}[{i}]") for i, item in enumerate(value)]}
        if isinstance(value, slice):
            return {"is": "slice", "items": [value.start, value.stop, value.step]}
        if isinstance(value, Named):
            return {"is": "configuration", "value": describe(value)}
        if isinstance(value, Done):
            return {"is": "done", "rank": value.wait()}
        if id(value) in self._seen:
            return {"is": "again", "number": self._seen[id(value)][0]}
        number = len(self._seen)
        self._seen[id(value)] = number, value
        return {"number": number, **self._write_changeable(value, place)}

    def _write_changeable(self, value: Any, place: str) -> dict[str, Any]:
        if isinstance(value, Tensor):
            return {"is": "tensor", "name": self._keep(value)}
        if isinstance(value, torch.Generator):
            return {"is": "generator", "name": self._keep(value.get_state())}
        if isinstance(value, dict):
            pairs = [[self.write(k, place), self.write(v, f"{place}[{k!r}]")] for k, v in value.items()]
            return {"is": "counter" if isinstance(value, Counter) else "dict", "items": pairs}
        if isinstance(value, list | deque):
            items = [self.write(item, f"{place}[{i}]") for i, item in enumerate(value)]
            if isinstance(value, deque):
                return {"is": "deque", "items": items, "longest": value.maxlen}
            return {"is": "list", "items": items}
        names = getattr(type(value), "remembers", None)
        if names is not None:
            held = {name: getattr(value, name) for name in names if hasattr(value, name)}
            return {"is": "own", "fields": {k: self.write(v, f"{place}.{k}") for k, v in held.items()}}
        if dataclasses.is_dataclass(value) and not isinstance(value, type | Pending):
            fields = {
                each.name: self.write(getattr(value, each.name), f"{place}.{each.name}")
                for each in dataclasses.fields(value)
            }
            return {"is": "object", "kind": type(value).__name__, "fields": fields}
        raise UnsupportedError(
            f"{place} is a {type(value).__name__}, which a checkpoint can't keep: keep tensors, numbers, strings, "
            "lists, dictionaries or dataclasses of these there, or give its class `remembers`, names of attributes"
        )

    def _keep(self, tensor: Tensor) -> str:
        name = str(len(self.tensors))
        self.tensors[name] = tensor
        return name


class _Reader:
    """Turns trees back into values."""

    def __init__(self, tensors: Mapping[str, Tensor], known: _Known) -> None:
        self._tensors = tensors
        self._known = known
        self._made: dict[int, Any] = {}

    def read(self, tree: Any, existing: Any, place: str) -> Any:
        if not isinstance(tree, dict):
            return tree
        match tree["is"]:
            case "float":
                return float(tree["value"])
            case "tuple":
                there = existing if isinstance(existing, tuple) else ()
                return tuple(self._items(tree, there, place))
            case "slice":
                return slice(*tree["items"])
            case "done":
                return Done(tree["rank"])
            case "configuration":
                if tree["value"] not in self._known.configurations:
                    raise ProtocolError(f"{place} was {tree['value']!r}, which this strategy does not know{_REMEDY}")
                return self._known.configurations[tree["value"]]
            case "again":
                return self._made[tree["number"]]
        return self._read_changeable(tree, existing, place)

    def _read_changeable(self, tree: dict[str, Any], existing: Any, place: str) -> Any:
        number = tree["number"]
        match tree["is"]:
            case "tensor":
                made: Any = self._tensors[tree["name"]].clone()
                if isinstance(existing, Tensor):
                    made = made.to(existing.device)
            case "generator":
                made = torch.Generator()
                made.set_state(self._tensors[tree["name"]].clone())
            case "dict" | "counter":
                made = self._made[number] = Counter() if tree["is"] == "counter" else {}
                there = existing if isinstance(existing, dict) else {}
                for k, v in tree["items"]:
                    key = self.read(k, None, place)
                    made[key] = self.read(v, there.get(key), f"{place}[{key!r}]")
            case "list":
                made = self._made[number] = []
                made.extend(self._items(tree, existing if isinstance(existing, list) else (), place))
            case "deque":
                made = self._made[number] = deque(maxlen=tree["longest"])
                made.extend(self._items(tree, (), place))
            case "own":
                if not hasattr(type(existing), "remembers"):
                    raise ProtocolError(f"{place} has no object to put its memory into")
                made = self._made[number] = existing
                self._fill(made, tree, set(type(existing).remembers), place)
            case "object":
                kind = self._known.kinds.get(tree["kind"])
                if kind is None:
                    raise ProtocolError(f"{place} was a {tree['kind']}, which this strategy does not know{_REMEDY}")
                made = self._made[number] = object.__new__(kind)
                self._fill(made, tree, {each.name for each in dataclasses.fields(kind)}, place, existing)
            case other:
                raise ProtocolError(f"{place} is a {other!r}, of which nothing is known")
        self._made[number] = made
        return made

    def _items(self, tree: dict[str, Any], existing: Any, place: str) -> list[Any]:
        there = [*existing, *([None] * max(0, len(tree["items"]) - len(existing)))]
        return [self.read(item, there[i], f"{place}[{i}]") for i, item in enumerate(tree["items"])]

    def _fill(self, made: Any, tree: dict[str, Any], allowed: set[str], place: str, existing: Any = None) -> None:
        existing = made if existing is None else existing
        if not set(tree["fields"]) <= allowed:
            raise ProtocolError(f"{place} has fields that are not its own: {sorted(set(tree['fields']) - allowed)}")
        for name, value in tree["fields"].items():
            read = self.read(value, getattr(existing, name, None), f"{place}.{name}")
            object.__setattr__(made, name, read)
