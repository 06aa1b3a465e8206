"""All that training goes on from, as named tensors and JSON: taken from a rank and put back into it.

    state = take(train_state, strategy, comm)                    # copies; training goes on meanwhile
    put_back(state, train_state, strategy)                       # same rank of as many: the same bits from then on
    blob = state.to_bytes(); Snapshot.from_bytes(blob, train_state)      # for another process

Nothing in it is code, and whatever comes in is checked against the receiver's own model before it is used.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from minga.base.spec import describe
from minga.comm.transport import Transport
from minga.data.fingerprint import known_fingerprint
from minga.errors import ProtocolError
from minga.model.blob import parse, pieces_of
from minga.model.keras_parts import is_seed
from minga.model.memory import Memory, remember
from minga.model.replica import Replica
from minga.model.sliced_optimizer import pieces_from, pieces_to
from minga.strategies.base import Strategy
from minga.strategies.capabilities import Checkpointed, Remembering, capability, trainers
from minga.strategies.parameter_server.state import ServerState, optimizer_state
from minga.training.checkpoints.files import FORMAT
from minga.training.train_state import TrainState

__all__ = ["Snapshot", "layout_hash", "longest_blob", "put_back", "take"]

_MEMORY, _BUFFER = "memory:", "buffer:"


@dataclass
class Snapshot:
    """What one rank goes on from."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    """Everything that is no tensor: step, position in the data, learning rates, what the strategy remembers..."""

    @property
    def step(self) -> int:
        return int(self.facts["step"])

    @property
    def ranks(self) -> int:
        return int(self.facts["ranks"])

    def to_bytes(self) -> bytes:
        """One safetensors blob, with a SHA-256 of all that is in it."""
        text = json.dumps(self.facts)
        digest = _digest(self.tensors, text)
        return b"".join(pieces_of(self.tensors, {"minga": text, "sha256": digest}))

    @classmethod
    def from_bytes(cls, blob: bytes, train_state: TrainState) -> Self:
        """What `to_bytes` made, if it fits this train_state's model; otherwise `ProtocolError`."""
        limit = longest_blob(train_state.replica)
        if len(blob) > limit:
            raise ProtocolError(f"a state of {len(blob):,} bytes is too large for this model (at most {limit:,})")
        tensors, metadata = parse(blob)
        text = metadata.get("minga", "")
        if metadata.get("sha256") != _digest(tensors, text):
            raise ProtocolError("the state was changed on its way: its SHA-256 is another")
        state = cls.from_parts(tensors, text)
        check_fits(state, train_state)
        return state

    @classmethod
    def from_parts(cls, tensors: dict[str, Tensor], text: str) -> Self:
        try:
            facts = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"the state's facts are no JSON: {error}") from None
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            found = facts.get("format") if isinstance(facts, dict) else facts
            raise ProtocolError(f"the state has format {found!r}; this version of minga reads format {FORMAT}")
        return cls(tensors, facts)


def layout_hash(replica: Replica) -> str:
    """Of the names, shapes and type of the parameters."""
    places = [[place.name, list(place.shape)] for place in replica.layout.places]
    return hashlib.sha256(json.dumps([places, str(replica.parameters.dtype)]).encode()).hexdigest()


def take(train_state: TrainState, strategy: Strategy, comm: Transport, *, shared_only: bool = False) -> Snapshot:
    """A copy of all that this rank would go on from; exchanges must have come to their end (`Checkpointed.pause`).

    `shared_only`: without what its strategy remembers, for ranks that start over with it.
    """
    replica = train_state.replica
    served = ServerState.of(replica).shard
    tensors = {"parameters": replica.parameters if served is None else served.parameters}
    if served is None and not shared_only:
        share = capability(strategy, replica, Checkpointed).contribution(replica)
        if share is not replica.parameters:
            tensors["contribution"] = share
    tensors |= {_BUFFER + name: tensor for name, tensor in _untrained(replica).items()}
    optimizer, of_optimizer = pieces_to(optimizer_state(replica))
    memory = remember({}) if shared_only else capability(strategy, replica, Remembering).memory(replica)
    tensors |= of_optimizer
    tensors |= {_MEMORY + name: tensor for name, tensor in memory.tensors.items()}
    tensors["random"] = torch.get_rng_state()
    if train_state.device.type == "cuda":
        tensors["random of the GPU"] = torch.cuda.get_rng_state(train_state.device)
    facts = {
        "format": FORMAT,
        "workload": train_state.workload.name,
        "strategy": describe(strategy),
        "layout": layout_hash(replica),
        "step": replica.step,
        "rank": comm.rank,
        "ranks": comm.size,
        "trainers": comm.size if shared_only else trainers(strategy, replica, comm),
        "replicas_differ": strategy.traits.replicas_differ,
        "part": None if served is None else [served.part.start, served.part.stop],
        "order": train_state.order.position(),
        "data": known_fingerprint(train_state.workload.train),
        "learning_rates": replica.learning_rates,
        "base_learning_rates": list(train_state.base_learning_rates),
        "notes": {key: value for key, value in replica.notes.items() if isinstance(value, str | int | float)},
        "optimizer": optimizer,
        "memory": memory.tree,
    }
    # A copy also of what nothing changes: a view of a larger tensor would keep all of it.
    return Snapshot({name: tensor.detach().clone() for name, tensor in tensors.items()}, facts)


def put_back(state: Snapshot, train_state: TrainState, strategy: Strategy, *, shared_only: bool = False) -> None:
    """Go on from a state. `shared_only`: from what all ranks share, for a rank that is new or has another number.

    On the same rank of as many ranks call it after `Strategy.start`, for what is shared only before it.
    """
    check_fits(state, train_state)
    replica, facts = train_state.replica, state.facts
    part = slice(None) if facts["part"] is None else slice(*facts["part"])
    with torch.no_grad():
        replica.parameters[part].copy_(state.tensors["parameters"])
        for name, tensor in _untrained(replica).items():
            if not (shared_only and is_seed(name)):  # what is another rank's is not shared
                tensor.copy_(state.tensors[_BUFFER + name])
    replica.restore_optimizer(pieces_from(facts["optimizer"], state.tensors))
    replica.step = facts["step"]
    train_state.order.go_to(facts["order"])
    if shared_only:
        return
    replica.notes.update(facts["notes"])
    train_state.base_learning_rates = [float(rate) for rate in facts["base_learning_rates"]]
    for group, rate in zip(replica.optimizer.param_groups, facts["learning_rates"], strict=True):
        group["lr"] = float(rate)
    tensors = {k.removeprefix(_MEMORY): tensor for k, tensor in state.tensors.items() if k.startswith(_MEMORY)}
    capability(strategy, replica, Remembering).recall(replica, Memory(facts["memory"], tensors))
    torch.set_rng_state(state.tensors["random"])
    if train_state.device.type == "cuda" and "random of the GPU" in state.tensors:
        torch.cuda.set_rng_state(state.tensors["random of the GPU"], train_state.device)


def check_fits(state: Snapshot, train_state: TrainState) -> None:
    """`ProtocolError` unless the state is one of this very model, data set and kind of numbers."""
    try:
        _check(state, train_state)
    except ValueError as error:
        raise ProtocolError(f"the state can't be used: {error}") from None
    except (KeyError, TypeError, IndexError) as error:
        raise ProtocolError(f"the state lacks something or has it in another form: {error!r}") from None


def _check(state: Snapshot, train_state: TrainState) -> None:
    replica, facts = train_state.replica, state.facts
    if facts["layout"] != layout_hash(replica):
        raise ProtocolError("the state is of another model: its parameters have other names, shapes or another type")
    start, stop = (0, replica.layout.length) if facts["part"] is None else facts["part"]
    if not 0 <= start <= stop <= replica.layout.length:
        raise ProtocolError(f"the state is of the part {start} to {stop} of {replica.layout.length} parameters")
    _alike("parameters", state.tensors["parameters"], replica.parameters[start:stop])
    if "contribution" in state.tensors:
        _alike("contribution", state.tensors["contribution"], replica.parameters)
    buffers = _untrained(replica)
    found = {name.removeprefix(_BUFFER) for name in state.tensors if name.startswith(_BUFFER)}
    if found != set(buffers):
        raise ProtocolError(f"the state has other buffers than the model: {sorted(found ^ set(buffers))[:5]}")
    for name, tensor in buffers.items():
        _alike(name, state.tensors[_BUFFER + name], tensor)
    for piece in pieces_from(facts["optimizer"], state.tensors):
        if not 0 <= piece.start <= piece.stop <= replica.layout.length:
            raise ProtocolError(f"the optimizer's state has a part {piece.start} to {piece.stop}, which there is not")
        for name in piece.per_element:
            if piece.values[name].shape != (piece.stop - piece.start,):
                raise ProtocolError(f"{name} of the optimizer's state has {tuple(piece.values[name].shape)} values")
    train_state.order.copy().go_to(facts["order"])
    # A set that was prepared again may have as many samples, with some to train on that were to test on before.
    before, here = facts.get("data"), known_fingerprint(train_state.workload.train)
    if before is not None and here is not None and before != here:
        raise ProtocolError(
            f"the data set is another one now ({here}) than the one before ({before}); bring that one back, or start "
            "again with 'minga train'"
        )
    if type(facts["step"]) is not int or facts["step"] < 0:
        raise ProtocolError(f"the step can't be {facts['step']!r}")
    groups = len(replica.optimizer.param_groups)
    if len(facts["learning_rates"]) != groups or len(facts["base_learning_rates"]) != groups:
        raise ProtocolError(f"the state has {len(facts['learning_rates'])} learning rates, not {groups}")


def _alike(name: str, given: Tensor, own: Tensor) -> None:
    if given.shape != own.shape or given.dtype != own.dtype:
        raise ProtocolError(
            f"{name} is {tuple(given.shape)} {given.dtype} in the state, but {tuple(own.shape)} {own.dtype} here"
        )


def _untrained(replica: Replica) -> dict[str, Tensor]:
    """Buffers and frozen weights, by name."""
    frozen = {name: tensor for name, tensor in replica.model.named_parameters() if not tensor.requires_grad}
    return {**frozen, **dict(replica.model.named_buffers())}


def longest_blob(replica: Replica) -> int:
    """Parameters, some numbers of the optimizer and the strategy for each of them, buffers, and a little more."""
    buffers = sum(tensor.nbytes for tensor in _untrained(replica).values())
    return 64 * replica.parameters.nbytes + 2 * buffers + (64 << 20)


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for piece in pieces_of(tensors, {}):
        digest.update(piece)
    return digest.hexdigest()
