"""The mean of a vector over all ranks, in whatever form a codec gives it on the wire."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minga.codecs.base import Codec
from minga.codecs.plain import Plain
from minga.codecs.stream import Stream
from minga.comm.collectives.ring import ring
from minga.comm.transport import Transport
from minga.errors import UnsupportedError

__all__ = ["Averaging", "all_reduce_mean", "average_in_place"]

_PLAIN = Plain()


def all_reduce_mean(
    comm: Transport,
    vector: Tensor,
    collective: Callable[[Transport, Tensor], None] = ring,
    codec: Codec = _PLAIN,
    stream: Stream | None = None,
) -> None:
    """`vector` becomes its mean over all ranks, the same bits everywhere; should a peer fail, it stays as it is.

    Where it is a replica's parameters or gradients, or a part of them, `comm.merges` is notified. A codec that leaves
    something out needs the stream in which it remembers that: `replica.stream()`.
    """
    if comm.size > 1:
        mean = vector.clone()
        average_in_place(comm, mean, collective, codec, stream)
        vector.copy_(mean)
        if comm.merges is not None:
            comm.merges.averaged(vector, range(comm.size))


def average_in_place(
    comm: Transport,
    vector: Tensor,
    collective: Callable[[Transport, Tensor], None] = ring,
    codec: Codec = _PLAIN,
    stream: Stream | None = None,
) -> None:
    """The same without a copy, and without notifying anybody: should a peer fail, `vector` is something in between.

    Codecs whose sums make sense are added up by the collective on the way; what others make is sent to everybody.
    """
    if comm.size == 1:
        return
    if stream is None:
        if codec.biased:
            raise UnsupportedError(
                f"codec {type(codec).__name__} must remember what it left out: call "
                "all_reduce_mean(..., codec=self.codec, stream=replica.stream())"
            )
        stream = Stream.of(vector, rank=comm.rank)
    if codec.linear:
        codec.mean_by_sums(vector, comm.size, stream, lambda encoded: collective(comm, encoded))
    else:
        averaging = Averaging(vector, comm.rank, comm.size, codec, stream)
        averaging.communicate(comm)
        averaging.finish()


class Averaging:
    """A mean in three parts, everybody sending to everybody: encode, communicate, decode.

    The first and the last compute, the one between only waits, so it can run in the background without taking the
    core from training.
    """

    def __init__(self, vector: Tensor, rank: int, ranks: int, codec: Codec, stream: Stream) -> None:
        """Encode; `vector` is left as it is until the end."""
        self._vector = vector
        self._rank = rank
        self._ranks = ranks
        self._codec = codec
        self._stream = stream
        own = codec.encode(vector, stream)
        if own is vector:
            own = vector.clone()
        self._encoded = [own if other == rank else torch.empty_like(own) for other in range(ranks)]

    def communicate(self, comm: Transport) -> None:
        """Exchange what was encoded."""
        comm.all_gather(self._encoded)

    def finish(self) -> None:
        """Decode, and add up in the order of ranks, so that everybody has the same bits."""
        decoded = torch.empty_like(self._vector)
        self._codec.decode(self._encoded[0], self._vector, self._stream)
        for encoded in self._encoded[1:]:
            self._codec.decode(encoded, decoded, self._stream)
            self._vector.add_(decoded)
        self._vector.div_(self._ranks)
        residual = self._stream.residual
        if residual is not None and not bool(torch.isfinite(self._vector.sum())):
            # Somebody's vector was non-finite, so nobody's is used: what was sent goes back to the residual.
            self._codec.decode(self._encoded[self._rank], decoded, self._stream)
            residual.add_(decoded)
