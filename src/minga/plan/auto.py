"""`auto`: look at computing and at the links, plan, train as planned, and look again when something has changed."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from minga.base.config import FieldError
from minga.base.lazy import Tensor, torch
from minga.base.spec import describe
from minga.codecs import Codec, Int8
from minga.comm import Transport, all_reduce_sum, broadcast
from minga.comm.probing import probe
from minga.errors import ProtocolError
from minga.model.layout import Bucket
from minga.model.memory import Memory, recall, remember
from minga.model.replica import Replica
from minga.plan.candidates import Candidate, candidates_among_peers
from minga.plan.own_steps import SelfProfile, Watch
from minga.strategies import LocalSGD, Single, Strategy
from minga.strategies.base import Traits
from minga.strategies.capabilities import Checkpointed, Delegating, Remembering, capability, codecs_of
from minga.strategies.delta import average_optimizers

__all__ = ["Auto"]

_KEY = "auto"
# How everybody trains while computing is looked at: alone, and then the mean of all, in 8 bits.
_ALONE = LocalSGD(period=1_000_000_000, codec=Int8(rounding="nearest", feedback=True))
# At least so long after a plan nobody looks again; twice as long each time that it has led to nothing new.
_PATIENCE = 5.0


@dataclass
class AutoState:
    inner: str = ""
    """The strategy in use."""
    own: SelfProfile | None = None
    """While computing is looked at."""
    watch: Watch | None = None
    """While it is trained as planned, if that does not follow changes by itself."""
    patience: float = _PATIENCE
    memory: Memory | None = field(default=None, repr=False)
    """Of a checkpoint that is being put back."""


@dataclass(frozen=True, kw_only=True)
class Auto(Strategy, Delegating, Checkpointed, Remembering):
    """Plans by itself: looks at computing and at the links for a moment, then trains as is predicted to be best there.

    The first steps are trained alone, to see how long they take on every node; then the links are measured, the first
    rank simulates what might be best, and all go on with that. Strategies with servers are not among it, since ranks
    keep their roles; `minga plan` knows them too. When steps become slower or faster than they were, or nodes go and
    come, this is done again. What a failing peer does is as with the strategy in use. The run's notes say what was
    planned, and when.
    """

    @property
    def traits(self) -> Traits:
        return Traits(uses_buckets=True)

    def active(self, replica: Replica) -> Strategy:
        state: AutoState | None = replica.state.get(_KEY)
        return _strategy(state.inner) if state is not None and state.inner else _ALONE

    def check(self) -> None:
        if self.codec.changes_form:
            raise FieldError(("codec",), "auto chooses codecs by itself; leave it out, or say adaptive")

    def start(self, replica: Replica, comm: Transport) -> None:
        replica.state[_KEY] = AutoState()
        if comm.size == 1:
            self._begin(replica, comm, Single(), agreed=False)
        else:
            self._look(replica, comm, agreed=False)

    def _begin(self, replica: Replica, comm: Transport, strategy: Strategy, *, agreed: bool) -> None:
        """Go on with a strategy; `agreed`: nobody needs parameters of another."""
        state: AutoState = replica.state[_KEY]
        state.inner, state.own, state.watch = describe(strategy), None, None
        replica.state = {_KEY: state}
        replica.replicas = comm.size
        replica.progress.begin(replica.step, comm.size)
        replica.drop_buckets()
        replica.in_sync = agreed
        try:
            strategy.start(replica, comm)
        finally:
            replica.in_sync = False

    def gradient_ready(self, replica: Replica, bucket: Bucket, comm: Transport) -> None:
        state: AutoState = replica.state[_KEY]
        if state.own is not None:
            state.own.ready(bucket, comm.now())
        self.active(replica).gradient_ready(replica, bucket, comm)

    def step(self, replica: Replica, comm: Transport) -> None:
        state: AutoState = replica.state[_KEY]
        began = comm.now()
        self.active(replica).step(replica, comm)
        if state.own is not None:
            state.own.stepped(began, comm.now())
            if state.own.complete:
                self._plan(replica, comm, state)
        elif state.watch is not None and state.watch.changed(comm):
            self.active(replica).finish(replica, comm)
            self._look(replica, comm, agreed=True)

    def _look(self, replica: Replica, comm: Transport, *, agreed: bool) -> None:
        """Everybody trains alone for some steps."""
        self._begin(replica, comm, _ALONE, agreed=agreed)
        replica.state[_KEY].own = SelfProfile.of(replica, comm.now())

    def _plan(self, replica: Replica, comm: Transport, state: AutoState) -> None:
        """Agree on the parameters, measure the links, and go on with what is best on them."""
        from minga.plan.cluster import cluster_of
        from minga.plan.planner import plan  # and the simulator, which those who only list strategies need not import

        own = state.own
        assert own is not None
        self.active(replica).finish(replica, comm)
        links = probe(comm, thorough=False)
        steps = [0.0] * comm.size
        steps[comm.rank] = own.step_seconds
        steps = all_reduce_sum(comm, *steps)
        candidates = candidates_among_peers(comm.size)
        number = torch.zeros(1, dtype=torch.float64)
        if comm.rank == 0:
            profile = own.profile(replica, comm, _codecs(candidates))
            cluster = cluster_of(links, speeds=[own.step_seconds / seconds for seconds in steps])
            found = plan(profile, cluster, candidates=candidates, ranks_may_move=False)
            number[0] = candidates.index(found.best.candidate)
        broadcast(comm, number)
        strategy = candidates[int(number)].strategy
        planned: list[dict[str, Any]] = replica.notes.setdefault("planned", [])
        again = bool(planned) and planned[-1]["strategy"] == describe(strategy)
        state.patience = 2 * state.patience if again else _PATIENCE
        planned.append({"step": replica.step, "strategy": describe(strategy)})
        if strategy.traits.averages_gradients:
            average_optimizers(replica, comm)
        self._begin(replica, comm, strategy, agreed=True)
        if not strategy.traits.adapts:
            now = comm.now()
            state.watch = Watch(until=now + state.patience, last=now)

    def finish(self, replica: Replica, comm: Transport) -> None:
        state: AutoState = replica.state[_KEY]
        self.active(replica).finish(replica, comm)
        if state.watch is not None:
            state.watch.complete()

    # --- what the strategy in use does ------------------------------------------------------------------------------

    def contribution(self, replica: Replica) -> Tensor:
        return capability(self.active(replica), replica, Checkpointed).contribution(replica)

    def pause(self, replica: Replica, comm: Transport) -> None:
        state: AutoState = replica.state[_KEY]
        capability(self.active(replica), replica, Checkpointed).pause(replica, comm)
        if state.watch is not None:
            state.watch.complete()

    def memory(self, replica: Replica) -> Memory:
        kept = remember(replica.state)
        return Memory({"inner": replica.state[_KEY].inner, "state": kept.tree}, kept.tensors)

    def recall(self, replica: Replica, memory: Memory) -> None:
        replica.state[_KEY].memory = memory

    def resume(self, replica: Replica, comm: Transport) -> None:
        """Begin with the strategy that was in use, and only then put its memory back."""
        memory = replica.state[_KEY].memory
        if memory is not None:
            # Nobody takes the parameters of another: every rank has got its own back.
            self._begin(replica, comm, _known(memory.tree["inner"], comm.size), agreed=True)
            replica.state = recall(Memory(memory.tree["state"], memory.tensors), replica.state)
        state: AutoState = replica.state[_KEY]
        capability(self.active(replica), replica, Checkpointed).resume(replica, comm)
        if state.own is not None:  # what was seen so far has the time of another process
            state.own = SelfProfile.of(replica, comm.now())
        if state.watch is not None:
            state.watch.resume(comm.now())


def _known(text: Any, nodes: int) -> Strategy:
    """What a checkpoint says was in use, if it is something that could have been."""
    possible = [_ALONE, Single(), *(candidate.strategy for candidate in candidates_among_peers(nodes))]
    if text not in map(describe, possible):
        raise ProtocolError(f"{text!r} is nothing that auto would have chosen")
    return _strategy(text)


@functools.cache
def _strategy(text: str) -> Strategy:
    return Strategy.from_value(text)


def _codecs(candidates: list[Candidate]) -> list[Codec]:
    return list(dict.fromkeys(codec for candidate in candidates for codec in codecs_of(candidate.strategy)))
