"""A new algorithm outside of Minga: elastic averaging SGD, in about 20 lines.

minga train digits --nodes 4 --strategy examples/own_strategy.py:ElasticAveraging:period=4
"""

from dataclasses import dataclass

from minga import Replica, Strategy, Transport, all_reduce_mean


@dataclass(frozen=True, kw_only=True)
class ElasticAveraging(Strategy):
    """Workers explore on their own, tied by a spring to a common centre (Zhang et al., arXiv:1412.6651).

    The centre is the same on all ranks at any time. When a peer fails, the others go on from the mean of their
    replicas, with a new centre there, and the peer's samples are given out again.
    """

    period: int = 8
    """Local steps between two pulls of the spring."""

    pull: float = 0.5
    """How far a worker moves towards the centre, and the centre towards the workers' mean: 0 to 1."""

    def start(self, replica: Replica, comm: Transport) -> None:
        super().start(replica, comm)
        replica.state["centre"] = replica.parameters.clone()

    def step(self, replica: Replica, comm: Transport) -> None:
        replica.update()
        if replica.step % self.period == 0:
            centre, mean = replica.state["centre"], replica.parameters.clone()
            all_reduce_mean(comm, mean, codec=self.codec)
            replica.parameters.lerp_(centre, self.pull)
            centre.lerp_(mean, self.pull)

    def finish(self, replica: Replica, comm: Transport) -> None:
        all_reduce_mean(comm, replica.parameters)
