"""A training's state as bytes: for another process, which believes nothing that it has not checked."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
import torch

from helpers.trained_states import STRATEGY, trained
from minga.comm.threads import ThreadWorld
from minga.errors import ProtocolError
from minga.model.blob import parse, pieces_of
from minga.testing.problems import adam, blobs
from minga.training.checkpoints.snapshot import Snapshot, put_back, take
from minga.training.train_state import TrainState


def blob_of(train_state: TrainState) -> bytes:
    return take(train_state, STRATEGY, ThreadWorld(1).transport(0)).to_bytes()


def test_bytes_make_another_process_the_same() -> None:
    one, other = trained(), trained(0, seed=1)
    assert not torch.equal(one.replica.parameters, other.replica.parameters)
    put_back(Snapshot.from_bytes(blob_of(one), other), other, STRATEGY, shared_only=True)
    assert torch.equal(one.replica.parameters, other.replica.parameters)
    assert (other.replica.step, other.order.epoch, other.order.offset) == (5, 0, 40)
    for mine, theirs in zip(one.replica.model.buffers(), other.replica.model.buffers(), strict=True):
        assert torch.equal(mine, theirs)
    for train_state in (one, other):
        train_state.replica.gradients.fill_(0.5)
        train_state.replica.update()
    assert torch.equal(one.replica.parameters, other.replica.parameters)  # Adam's memory too


def test_a_state_is_a_copy() -> None:
    train_state = trained()
    state = take(train_state, STRATEGY, ThreadWorld(1).transport(0))
    before = {name: tensor.clone() for name, tensor in state.tensors.items()}
    train_state.replica.gradients.fill_(1.0)
    train_state.replica.update()
    for name, tensor in state.tensors.items():
        assert torch.equal(tensor, before[name]), name


def changed(blob: bytes, tensors: dict[str, Any] | None = None, **facts: Any) -> bytes:
    """With other contents, and the hash that fits these: from somebody who knows the format and means no good."""
    held, metadata = parse(blob)
    state = Snapshot({**held, **(tensors or {})}, {**json.loads(metadata["minga"]), **facts})
    return state.to_bytes()


def wrong_hash(blob: bytes) -> bytes:
    content = bytearray(blob)
    content[-3] ^= 4
    return bytes(content)


DOUBLE = torch.float64
WRONG = {
    "a bit": (wrong_hash, "SHA-256 is another"),
    "cut short": (lambda blob: blob[:-10], "no state of a training"),
    "empty": (lambda blob: b"", "no state of a training"),
    "garbage": (lambda blob: b"\x00" * 100, "no state of a training"),
    "a long header": (lambda blob: struct.pack("<Q", 1 << 62) + blob[8:], "can't be"),
    "no JSON": (lambda blob: struct.pack("<Q", 3) + b"{{{" + blob, "no state of a training"),
    "too long": (lambda blob: blob + bytes(70 << 20), "too large"),
    "format": (lambda blob: changed(blob, format=2), "format 2; this version of minga reads format 1"),
    "layout": (lambda blob: changed(blob, layout="0"), "another model"),
    "shape": (lambda blob: changed(blob, {"parameters": torch.zeros(3, dtype=DOUBLE)}), "parameters is .3,."),
    "dtype": (lambda blob: changed(blob, {"parameters": torch.zeros(80)}), "torch.float32 in the state"),
    "buffer": (lambda blob: changed(blob, {"buffer:x": torch.zeros(1)}), "other buffers"),
    "buffer's shape": (
        lambda blob: changed(blob, {"buffer:1.running_mean": torch.zeros(8, dtype=DOUBLE)}),
        "1.running_mean is",
    ),
    "optimizer": (lambda blob: changed(blob, {"optimizer:0:exp_avg": torch.zeros(2)}), "exp_avg of the optimizer"),
    "pieces": (lambda blob: changed(blob, optimizer=[{"start": -1}]), "lacks something"),
    "samples": (lambda blob: changed(blob, order={"epoch": 0, "offset": 0, "samples": 7}), "7 samples"),
    "offset": (lambda blob: changed(blob, order={"epoch": 0, "offset": 999, "samples": 150, "owed": []}), "can't be"),
    "step": (lambda blob: changed(blob, step="5"), "can't be"),
    "part": (lambda blob: changed(blob, part=[0, 10**9]), "the part 0 to 1000000000"),
    "rates": (lambda blob: changed(blob, learning_rates=[]), "0 learning rates"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused(name: str) -> None:
    spoil, words = WRONG[name]
    train_state = trained()
    before = train_state.replica.parameters.clone()
    with pytest.raises(ProtocolError, match=words):
        Snapshot.from_bytes(spoil(blob_of(train_state)), train_state)
    assert torch.equal(train_state.replica.parameters, before)


def test_the_layout_of_another_model_is_another() -> None:
    plain, normed = trained(workload=blobs(optimizer=adam)), trained()
    with pytest.raises(ProtocolError, match="another model"):
        Snapshot.from_bytes(blob_of(plain), normed)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
def test_blobs_keep_all_kinds_of_numbers(dtype: torch.dtype) -> None:
    tensors = {
        "some": torch.arange(7).to(dtype),
        "one": torch.tensor(1).to(dtype),
        "none": torch.empty(0, dtype=dtype),
        "matrix": torch.ones(3, 4).to(dtype).t(),
    }
    back, metadata = parse(b"".join(pieces_of(tensors, {"minga": "ä"})))
    assert metadata == {"minga": "ä"}
    for name, tensor in tensors.items():
        assert torch.equal(back[name], tensor) and back[name].dtype == dtype, name
