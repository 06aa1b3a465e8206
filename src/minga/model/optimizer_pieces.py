"""The optimizer's state as JSON and named tensors, and the mean of several ranks' states.

listed, tensors = pieces_to(replica.optimizer_state())
replica.restore_optimizer(pieces_from(listed, tensors))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minga.base.lazy import Tensor, torch
from minga.errors import ProtocolError, UnsupportedError
from minga.model.sliced_optimizer import Piece

__all__ = ["mean_of_pieces", "pieces_from", "pieces_to"]


def pieces_to(pieces: Sequence[Piece]) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """JSON that mentions tensors by name, and these."""
    listed: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    for number, piece in enumerate(pieces):
        values: dict[str, Any] = {}
        for key, value in piece.values.items():
            if isinstance(value, Tensor):
                name = f"optimizer:{number}:{key}"
                tensors[name] = value
                values[key] = {"tensor": name}
            elif value is None or isinstance(value, bool | int | float | str):
                values[key] = value
            else:
                raise UnsupportedError(
                    f"the optimizer keeps {key!r} as a {type(value).__name__}, which a checkpoint can't have"
                )
        per_element = sorted(piece.per_element)
        listed.append({"start": piece.start, "stop": piece.stop, "values": values, "per_element": per_element})
    return listed, tensors


def pieces_from(listed: Any, tensors: Mapping[str, Tensor]) -> list[Piece]:
    pieces = []
    for entry in listed:
        values = {
            key: tensors[value["tensor"]] if isinstance(value, dict) else value
            for key, value in entry["values"].items()
        }
        per_element = frozenset(entry["per_element"])
        if not all(isinstance(values[name], Tensor) for name in per_element):
            raise ProtocolError("the optimizer's state has numbers where tensors should be")
        pieces.append(Piece(int(entry["start"]), int(entry["stop"]), values, per_element))
    return pieces


def mean_of_pieces(states: Sequence[Sequence[Piece]]) -> list[Piece]:
    """The mean of several ranks' states, which are cut alike; counters are those of the first."""
    mean = []
    for alike in zip(*states, strict=True):
        first = alike[0]
        values = dict(first.values)
        for name in first.per_element:
            if values[name].is_floating_point() and all(name in piece.values for piece in alike):
                values[name] = torch.stack([piece.values[name].double() for piece in alike]).mean(0).to(values[name])
        mean.append(Piece(first.start, first.stop, values, first.per_element))
    return mean
