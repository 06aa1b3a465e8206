"""What has only sizes is the simulator's business: no other code looks whether a vector has values."""

from __future__ import annotations

from pathlib import Path

import torch

import minga
from minga.codecs import Codec, Half, Stream
from minga.codecs.base import CodecRuntime, carried_out_by

SOURCE = Path(minga.__file__).parent
OWN = ("simulate", "comm/simulated")


def test_nobody_else_asks_for_vectors_without_values() -> None:
    wrong = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if not path.relative_to(SOURCE).as_posix().startswith(OWN)
        and any(word in path.read_text(encoding="utf-8") for word in ("is_meta", '"meta")', 'device="meta"'))
    ]
    assert not wrong


def test_a_codec_is_carried_out_by_what_was_put_in_place_and_by_itself_again() -> None:
    class Counting(CodecRuntime):
        encoded = 0

        def encode(self, codec: Codec, vector: torch.Tensor, stream: Stream, *, once: bool = False) -> torch.Tensor:
            self.encoded += vector.numel()
            return super().encode(codec, vector, stream, once=once)

    vector, counting = torch.ones(5), Counting()
    with carried_out_by(counting):
        encoded = Half().encode(vector, Stream.of(vector))
    Half().encode(vector, Stream.of(vector))
    assert counting.encoded == 5
    assert torch.equal(encoded, vector.half())
