"""D-PSGD and CHOCO-SGD: every round, a replica moves towards its neighbours."""

from __future__ import annotations

from minga.base.lazy import Tensor, torch
from minga.codecs.reference_copy import ReferenceCopy
from minga.comm import Pending, Transport
from minga.model.replica import Replica
from minga.strategies.gossip_graphs import Neighbours
from minga.strategies.gossip_rounds import GossipInRounds

__all__ = ["DecentralizedSGD", "PubliclyCopied"]


class DecentralizedSGD(GossipInRounds):
    """D-PSGD (Lian et al., arXiv:1705.09056): a replica becomes the mean of itself and its neighbours.

    It is computed as x_i += sum over j of (y_j - y_i) / (neighbours + 1), y being what arrives of x. What one gains
    another loses, so the mean over all ranks stays what it is, however roughly a codec encodes x.
    """

    def take_in(self, replica: Replica) -> None:
        replica.parameters.add_(self._change)

    def exchange(self, vector: Tensor, comm: Transport, neighbours: Neighbours) -> None:
        stream = self.streams("gossip")
        encoded = self.codec.encode_once(vector, stream)
        landings = {sender: self.codec.encoded_like(vector, stream) for sender in neighbours.senders}
        swap(comm, encoded, landings, neighbours)
        own = torch.empty_like(vector) if self.codec.changes_form else vector
        self.codec.decode(encoded, own, stream)
        other = torch.empty_like(vector)
        self._change = torch.zeros_like(vector)
        for landing in landings.values():
            self.codec.decode(landing, other, stream)
            self._change.add_(other.sub_(own), alpha=1 / (len(landings) + 1))


class PubliclyCopied(DecentralizedSGD):
    """CHOCO-SGD (Koloskova et al., arXiv:1902.00340), for codecs that leave much out and neighbours that stay.

    Everybody keeps a public copy of its own vector and of its neighbours', brought up to date by encoded differences,
    and moves by the differences between those: x_i += step * sum over j of (copy_j - copy_i) / (neighbours + 1).
    Copies are the same bits at both ends, so the mean over all ranks stays what it is.
    """

    consensus_step: float = 1.0
    """How far to go: copies are behind, so the full way may overshoot."""

    remembers = (*GossipInRounds.remembers, "_copies")

    _copies: dict[int, ReferenceCopy] | None = None

    def exchange(self, vector: Tensor, comm: Transport, neighbours: Neighbours) -> None:
        assert self._copies is not None, "copies start from what all ranks have in common"
        own = self._copies[comm.rank]
        encoded = own.encode(vector)
        landings = {sender: self._copies[sender].landing() for sender in neighbours.senders}
        swap(comm, encoded, landings, neighbours)
        self._change = torch.zeros_like(vector)
        for sender, landing in landings.items():
            self._copies[sender].apply(landing)
            self._change.add_(self._copies[sender].known - own.known)
        self._change.mul_(self.consensus_step / (len(landings) + 1))

    def know(self, vector: Tensor, rank: int, neighbours: Neighbours) -> None:
        """Start the copies from a vector that all ranks have in common."""
        self._copies = {
            # The same name at both ends: random choices that a codec makes alike everywhere follow from it.
            member: ReferenceCopy(vector.clone(), self.codec, self.streams(f"gossip of rank {member}"))
            for member in (rank, *neighbours.senders)
        }


def swap(comm: Transport, outgoing: Tensor, landings: dict[int, Tensor], neighbours: Neighbours, tag: int = 0) -> None:
    """Send one vector to all receivers, and get one from each sender."""
    arrivals: list[Pending] = [comm.ireceive(landing, sender, tag) for sender, landing in landings.items()]
    sends = [comm.isend(outgoing, receiver, tag) for receiver in neighbours.receivers]
    for pending in [*arrivals, *sends]:
        pending.wait()
