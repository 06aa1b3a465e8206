"""Every codec's work is told to whoever listens, and vectors without values get an encoding without values.

A codec's author writes `encode` and `decode`; this is put around them when the class is made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from minga.base.cost import listening, tell, unheard

if TYPE_CHECKING:
    from minga.codecs.base import Codec
    from minga.codecs.stream import Stream

__all__ = ["accounted"]


def accounted(cls: type[Codec]) -> None:
    """Put accounts around the methods that a class itself defines."""
    for name, wrap in (
        ("encode", _encoding),
        ("encode_once", _encoding),
        ("decode", _decoding),
        ("compress_to_mean", _first_part),
        ("mean_by_sums", _summing),
    ):
        method = vars(cls).get(name)
        if method is not None:
            setattr(cls, name, wrap(method))


def _encoding(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(method)
    def encode(self: Codec, vector: Tensor, stream: Stream) -> Tensor:
        if vector.is_meta:
            encoded = self.encoded_like(vector, stream) if self.changes_form else vector
        elif unheard():
            return method(self, vector, stream)
        else:
            with listening(None):  # what it consists of is told as a whole; nothing waits in it
                encoded = method(self, vector, stream)
        tell("encode", self, vector.numel())
        return encoded

    return encode


def _decoding(method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def decode(self: Codec, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        if not into.is_meta:
            if unheard():
                method(self, encoded, into, stream)
                return
            with listening(None):
                method(self, encoded, into, stream)
        if encoded is not into:
            tell("decode", self, into.numel())

    return decode


def _first_part(method: Callable[..., Any]) -> Callable[..., Any]:
    """Of a codec that encodes while its parts are added up over ranks."""

    @functools.wraps(method)
    def compress_to_mean(self: Codec, vector: Tensor, *arguments: Any) -> Any:
        tell("encode", self, vector.numel())
        return method(self, vector, *arguments)

    return compress_to_mean


def _summing(method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def mean_by_sums(self: Codec, vector: Tensor, ranks: int, stream: Stream, add_up: Callable[[Tensor], None]) -> None:
        if not vector.is_meta:
            method(self, vector, ranks, stream, add_up)
            return
        tell("encode", self, vector.numel())
        for part in self.summed_like(vector, stream):
            add_up(part)
        if self.changes_form:
            tell("decode", self, vector.numel())

    return mean_by_sums
