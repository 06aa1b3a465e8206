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

__all__ = ["all_reduce_mean"]

_PLAIN = Plain()


def all_reduce_mean(
    comm: Transport,
    vector: Tensor,
    collective: Callable[[Transport, Tensor], None] = ring,
    codec: Codec = _PLAIN,
    stream: Stream | None = None,
) -> None:
    """`vector` becomes its mean over all ranks, in place; the same bits everywhere.

    Codecs whose sums make sense are added up by the collective on the way; what others make is sent to everybody.
    A codec that leaves something out needs the stream in which it remembers that.
    """
    if comm.size == 1:
        return
    if stream is None:
        if codec.biased:
            raise UnsupportedError(
                f"codec {type(codec).__name__} must remember what it left out: call "
                "all_reduce_mean(..., codec=self.codec, stream=self.stream(replica))"
            )
        stream = Stream.of(vector, rank=comm.rank)
    if not codec.linear:
        _sum_of_all(comm, vector, codec, stream)
        vector.div_(comm.size)
        return

    def add_up(encoded: Tensor) -> None:
        if codec.summands is None:
            collective(comm, encoded)
        else:
            _sum_of_all(comm, encoded, codec.summands, Stream.of(encoded, rank=comm.rank))

    codec.mean_by_sums(vector, comm.size, stream, add_up)


def _sum_of_all(comm: Transport, vector: Tensor, codec: Codec, stream: Stream) -> None:
    """Everybody gets everybody's encoded vector, and adds them up in the order of ranks."""
    own = codec.encode(vector, stream)
    others = [(comm.rank + shift) % comm.size for shift in range(1, comm.size)]
    landing = {other: torch.empty_like(own) for other in others}
    arrivals = [comm.ireceive(landing[other], other) for other in others]
    sends = [comm.isend(own, other) for other in others]
    landing[comm.rank] = own
    for pending in arrivals:
        pending.wait()
    decoded = torch.empty_like(vector)
    vector.zero_()
    for rank in range(comm.size):
        codec.decode(landing[rank], decoded, stream)
        vector.add_(decoded)
    for pending in sends:
        pending.wait()
