"""Sites with a fast network inside and a slow one between them: one strategy for each.

minga train digits --nodes 4 --strategy "hierarchical:site_size=2,inside=ring,across=(local_sgd:period=8)"
"""

from __future__ import annotations

from dataclasses import dataclass, field

from minga.base.config import FieldError
from minga.base.lazy import Tensor, torch
from minga.base.spec import describe
from minga.comm import Transport, broadcast
from minga.comm.collectives.two_level import neighbourhoods
from minga.model.layout import Bucket
from minga.model.replica import Replica
from minga.strategies.all_reduce import AllReduce
from minga.strategies.base import Strategy, Traits, check_least
from minga.strategies.capabilities import Anchored, Checkpointed, Periodic, capability, codecs_of
from minga.strategies.gossip import Gossip
from minga.strategies.local_sgd import LocalSGD
from minga.strategies.single import Single

__all__ = ["Hierarchical"]


@dataclass(frozen=True, kw_only=True)
class Hierarchical(Strategy, Checkpointed, Anchored):
    """One strategy inside each site, another across sites (as in Lin et al., arXiv:1808.07217).

    Inside, gradients are averaged in every step, so that the ranks of a site are one replica: while backward runs, or
    after it where `across` hides its exchanges behind computing, which they must not wait for. The first rank of each
    site runs `across` with those of the other sites, and hands on what that changes; meanwhile the others of the site
    do the same step alone, so their optimizers stay equal to its own. Where both levels average in every step, this
    is all-reduce to the last digits. A peer that fails ends the step for its site, and then for everybody.
    """

    inside: Strategy = field(default_factory=AllReduce)
    """How the ranks of a site average their gradients: allreduce of any kind."""

    across: Strategy = field(default_factory=LocalSGD)
    """What sites exchange: local_sgd, diloco, gossip or adaptive for parameters, or allreduce for gradients."""

    site_size: int = 0
    """Neighbours that make up a site (0: the ranks that share a site of the network, or a host)."""

    @property
    def traits(self) -> Traits:
        across = self.across.traits
        return Traits(
            lockstep=across.lockstep,
            averages_gradients=across.averages_gradients,
            codecs=(*codecs_of(self.inside), *codecs_of(self.across)),
            uses_buckets=True,
        )

    def check(self) -> None:
        check_least(self, site_size=0)
        if self.codec.changes_form:
            raise FieldError(
                ("codec",),
                f"say for which level {describe(self.codec)} is, such as across=(gossip:codec={describe(self.codec)})",
            )
        if not isinstance(self.inside, AllReduce):
            raise FieldError(
                ("inside",),
                f"{describe(self.inside)} does not keep the ranks of a site equal in every step; "
                "allreduce does, of any kind: native, ring, tree, mesh, ...",
            )
        if isinstance(self.across, AllReduce) and self.inside.codec.corrects_momentum:
            raise FieldError(
                ("inside", "codec"),
                f"{describe(self.inside.codec)} corrects momentum, in sites of several ranks only, before gradients "
                "meet those of other sites; leave momentum_correction out, or let sites exchange parameters",
            )
        reason = self._objection_to_across()
        if reason:
            raise FieldError(
                ("across",),
                f"{describe(self.across)} {reason}; possible are local_sgd with a period above 1, diloco, adaptive, "
                "gossip with algorithm=dpsgd or push_sum, allreduce, and your own that exchange parameters in step()",
            )

    def _objection_to_across(self) -> str:
        across = self.across
        if across.traits.servers or isinstance(across, Single | Hierarchical):
            return "can't connect sites"
        if isinstance(across, Gossip) and across.algorithm == "asynchronous":
            return "answers in the background, where a site averages its gradients"
        if across.codec.corrects_momentum:
            return "corrects momentum of gradients, which are averaged inside already"
        own_buckets = type(across).gradient_ready is not Strategy.gradient_ready and not isinstance(across, LocalSGD)
        if not isinstance(across, AllReduce) and (across.traits.uses_buckets or own_buckets):
            return "exchanges gradients while backward runs, which is when the inside does so"
        return ""

    def _site(self, comm: Transport) -> Transport:
        return comm.group(self._ranks_of_site(comm))

    def _ranks_of_site(self, comm: Transport) -> list[int]:
        return next(site for site in neighbourhoods(comm, self.site_size) if comm.rank in site)

    def _level_above(self, comm: Transport) -> Transport:
        """The first ranks of all sites; for the other ranks, nobody but themselves."""
        first = [site[0] for site in neighbourhoods(comm, self.site_size)]
        return comm.group(first if comm.rank in first else [comm.rank])

    def start(self, replica: Replica, comm: Transport) -> None:
        super().start(replica, comm)
        sites = neighbourhoods(comm, self.site_size)
        replica.notes["sites"] = replica.replicas = len(sites)
        replica.progress.act_in_groups(sites)
        self.inside.start(replica, self._site(comm))
        if not isinstance(self.across, AllReduce):
            self.across.start(replica, self._level_above(comm))

    def gradient_ready(self, replica: Replica, bucket: Bucket, comm: Transport) -> None:
        if not self.across.traits.hides_exchanges:
            self.inside.gradient_ready(replica, bucket, self._site(comm))

    def step(self, replica: Replica, comm: Transport) -> None:
        site, above = self._site(comm), self._level_above(comm)
        self._average_inside(replica, comm, site)
        if isinstance(self.across, AllReduce):
            if site.rank == 0:
                non_finite, stream = not replica.has_finite_gradients(), replica.stream("gradients of a site")
                self.across.average(above, replica.gradients, stream, non_finite=non_finite)
            broadcast(site, replica.gradients)
            replica.update(averaged=True)
            replica.progress.merge(replica.step)
            return
        info = replica.info
        share = info.weight, info.batch_fraction
        info.weight = info.batch_fraction = 1.0  # shares of the batch are in the gradients already
        self.across.step(replica, above)
        info.weight, info.batch_fraction = share
        replica.progress.merge_ranks(self._ranks_of_site(comm))
        if capability(self.across, replica, Periodic).exchanges(replica):
            self._hand_on(replica, site)

    def _average_inside(self, replica: Replica, comm: Transport, site: Transport) -> None:
        assert isinstance(self.inside, AllReduce)
        if self.across.traits.hides_exchanges:
            # What goes between sites is in the background, where one thing waits for the other.
            self.inside.average_gradients_now(replica, site)
        else:
            self.inside.average_gradients(replica)
        sites = len(neighbourhoods(comm, self.site_size))
        if site.size * sites != comm.size:
            # A larger site stands for more samples.
            replica.gradients.mul_(site.size * sites / comm.size)

    def _hand_on(self, replica: Replica, site: Transport) -> None:
        """Everybody of a site takes what its first rank has now: all of it, or nothing should a peer fail."""
        parameters = torch.empty_like(replica.parameters) if site.rank else replica.parameters
        broadcast(site, parameters)
        steps = torch.tensor(replica.progress.merged_steps)
        broadcast(site, steps)
        if site.rank:
            replica.parameters.copy_(parameters)
            replica.progress.merge(steps.tolist())

    def pause(self, replica: Replica, comm: Transport) -> None:
        capability(self.across, replica, Checkpointed).pause(replica, self._level_above(comm))

    def announce_checkpoint(self, replica: Replica, comm: Transport, number: int, *, leaving: bool) -> None:
        across = capability(self.across, replica, Checkpointed)
        across.announce_checkpoint(replica, self._level_above(comm), number, leaving=leaving)

    def resume(self, replica: Replica, comm: Transport) -> None:
        capability(self.across, replica, Checkpointed).resume(replica, self._level_above(comm))

    def contribution(self, replica: Replica) -> Tensor:
        return capability(self.across, replica, Checkpointed).contribution(replica)

    def anchor(self, replica: Replica, comm: Transport, since: int) -> Tensor | None:
        """The first ranks of sites know it, and hand it on."""
        site, found = self._site(comm), None
        if site.rank == 0:
            found = capability(self.across, replica, Anchored).anchor(replica, self._level_above(comm), since)
        known = torch.tensor([float(found is not None)])
        broadcast(site, known)
        if not known:
            return None
        point = torch.empty_like(replica.parameters) if found is None else found.clone()
        broadcast(site, point)
        return point

    def finish(self, replica: Replica, comm: Transport) -> None:
        site = self._site(comm)
        if not isinstance(self.across, AllReduce):
            if site.rank == 0:
                self.across.finish(replica, self._level_above(comm))
            self._hand_on(replica, site)
