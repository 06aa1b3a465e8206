"""All-reduce while it pays, then an asynchronous parameter server, in one run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from minga.base.config import FieldError
from minga.comm import Transport, all_reduce_sum
from minga.comm.collectives import CollectiveName
from minga.model.layout import Bucket
from minga.model.replica import Replica
from minga.strategies.all_reduce import AllReduce
from minga.strategies.base import Strategy, Traits, check_least
from minga.strategies.capabilities import Agreeing, Delegating
from minga.strategies.parameter_server.server import KEY, ServerMemory
from minga.strategies.parameter_server.strategy import ParameterServer

__all__ = ["Switch"]

_KEY = "switch"


@dataclass(frozen=True, kw_only=True)
class Switch(Strategy, Delegating, Agreeing):
    """All-reduce first, then a parameter server, without a restart (the strategy switch of O.N.O., Buenos Aires).

    Early, when every step moves far, all ranks train in lock step, the later servers too. From step `at`, or when the
    loss stops falling, the last `servers` ranks become servers: they have the parameters and the optimizer's state
    already, so nothing is sent and nothing is lost. When a peer fails the others go on, as with all-reduce before the
    switch and with parameter servers after it.
    """

    at: int = 0
    """The step after which to switch (0: when the loss stops falling)."""

    collective: CollectiveName = "ring"
    """How gradients are added up before the switch."""

    mode: Literal["async", "ssp", "sync"] = "async"
    """How the servers work after the switch."""

    servers: int = 1
    """How many ranks become servers."""

    staleness: int | None = None
    """For mode=ssp: how many steps a worker may be ahead of the slowest one."""

    window: int = 20
    """The loss is looked at as its mean over this many steps of all ranks."""

    improvement: float = 0.01
    """A window counts as progress if its loss is lower than the best by this fraction of the first window's."""

    patience: int = 3
    """Switch after this many windows without progress."""

    def check(self) -> None:
        check_least(self, at=0, servers=1, window=1, patience=1)
        if not 0 <= self.improvement < 1:
            raise FieldError(("improvement",), f"should be 0 or more and below 1, not {self.improvement:g}")
        self._second()  # its own checks
        if self.codec.corrects_momentum:
            raise FieldError(("codec",), "can't correct momentum across a switch; leave momentum_correction out")

    def _first(self) -> AllReduce:
        return AllReduce(collective=self.collective, codec=self.codec)

    def _second(self) -> ParameterServer:
        return ParameterServer(mode=self.mode, servers=self.servers, staleness=self.staleness, codec=self.codec)

    @property
    def traits(self) -> Traits:
        return Traits(
            replicas_differ=False,
            uses_buckets=True,
            changes_roles=True,
            servers=self.servers,
            servers_in_lockstep=self._second().traits.servers_in_lockstep,
        )

    def active(self, replica: Replica) -> Strategy:
        return self._second() if self._switched(replica) else self._first()

    def _switched(self, replica: Replica) -> bool:
        return bool(replica.state.get(_KEY, {}).get("switched_after"))

    def agreed_facts(self, replica: Replica) -> dict[str, Any]:
        return dict(replica.state.get(_KEY, {}))

    def go_on_with(self, replica: Replica, facts: dict[str, Any]) -> None:
        if facts:
            replica.state[_KEY] = dict(facts)

    def start(self, replica: Replica, comm: Transport) -> None:
        beginning = {
            "switched_after": 0,
            "sum": 0.0,
            "count": 0,
            "first": None,
            "best": None,
            "without_progress": 0,
        }
        replica.state.setdefault(_KEY, beginning)
        replica.state.setdefault(KEY, ServerMemory())  # of ranks that become servers
        self.active(replica).start(replica, comm)

    def gradient_ready(self, replica: Replica, bucket: Bucket, comm: Transport) -> None:
        self.active(replica).gradient_ready(replica, bucket, comm)

    def step(self, replica: Replica, comm: Transport) -> None:
        switched = self._switched(replica)
        self.active(replica).step(replica, comm)
        if switched:
            return
        if 0 < self.at <= replica.step or (self.at == 0 and self._on_plateau(replica, comm)):
            replica.state[_KEY]["switched_after"] = replica.notes["switched_after"] = replica.step

    def _on_plateau(self, replica: Replica, comm: Transport) -> bool:
        """Whether the loss has stopped falling; the same answer on every rank."""
        state: dict[str, Any] = replica.state[_KEY]
        if replica.info.batch_fraction and math.isfinite(replica.info.loss):  # a rank without samples has no loss
            state["sum"] += replica.info.loss
            state["count"] += 1
        if replica.step % self.window:
            return False
        total, count = all_reduce_sum(comm, state["sum"], state["count"])
        loss = total / max(count, 1)
        state["sum"], state["count"] = 0.0, 0
        if state["first"] is None:
            state["first"] = state["best"] = loss
        elif loss < state["best"] - self.improvement * state["first"]:
            state["best"] = loss
            state["without_progress"] = 0
        else:
            state["without_progress"] += 1
        return bool(state["without_progress"] >= self.patience)

    def finish(self, replica: Replica, comm: Transport) -> None:
        self.active(replica).finish(replica, comm)
