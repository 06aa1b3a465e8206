"""Training through all changes of who is in the run.

    with MemberSession(where, id="node-3", ..., stop=stop) as member_session:
        train_elastic(experiment, train_state, recorder, checkpoints, member_session, save=save)

When a generation is over, the ranks of the next one connect again, go on from the one that has come furthest, and redo
at most the step that was under way (with local steps, the period).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256

import torch

from minga._version import __version__
from minga.base.spec import describe
from minga.base.user_files import check_file
from minga.comm import barrier
from minga.data.fingerprint import fingerprint
from minga.errors import PeerLost, PeerWrong, WrongLength
from minga.measure.recorder import Recorder
from minga.measure.traffic import Traffic
from minga.membership.session import MemberSession
from minga.runs.experiment import Experiment
from minga.strategies.capabilities import trainers
from minga.strategies.parameter_server.state import ServerState
from minga.training.checkpoints.manager import NoCheckpoints
from minga.training.checkpoints.snapshot import layout_hash
from minga.training.given_up import GivenUp, Review
from minga.training.loop import train
from minga.training.recovery import recover
from minga.training.run_log import RunLog, traced
from minga.training.train_state import TrainState

__all__ = ["common_facts", "train_elastic"]


def train_elastic(
    experiment: Experiment,
    train_state: TrainState,
    recorder: Recorder,
    checkpoints: NoCheckpoints,
    member_session: MemberSession,
    *,
    save: Callable[[], None] = lambda: None,
) -> None:
    """Train to the end, with whoever is there; then the first rank of the last generation calls `save`."""
    strategy, timeout = experiment.chosen_strategy, experiment.cluster.timeout_seconds
    replica, servers = train_state.replica, ServerState.of(train_state.replica)
    run_log: RunLog | None = None
    checkpoints.goes_on, checkpoints.may_write = True, lambda: not member_session.member.lost_contact
    checkpoints.put_back_before_meeting(strategy)
    generation = member_session.first_generation(timeout)
    began = recorder.now()
    reason = ""
    review = Review()
    while True:
        steps = _Steps(train_state, recorder.traffic, member_session)
        members = [member.id for member in generation.members]
        try:
            comm = traced(member_session.connect(generation, timeout), recorder)
            servers.names = [f"{member.id} {member.incarnation}" for member in generation.members]
            servers.servers = len(generation.members) - generation.workers
            with recorder.traffic.paused():
                if generation.number > 1:
                    review.look(comm, members)
                member_session.formed()
                if recover(train_state, strategy, comm) is not None:
                    checkpoints.gone_on()
            if run_log is None:
                run_log = RunLog(replica, comm, recorder, experiment, train_state.workload)
            else:
                owed = sum(map(len, train_state.order.owed))
                run_log.recovered(comm, generation.number, members, recorder.now() - began, reason, owed)
                if review.same(members):
                    member_session.expect_steps()  # nobody has to be waited for who gets the state first
            with steps.counted():
                train(experiment, train_state, comm, recorder, checkpoints, run_log, when_stepped=steps.stepped)
            ranks = trainers(strategy, replica, comm)
            if comm.rank < ranks:
                if comm.rank == 0:
                    save()
                barrier(comm.group(range(ranks)))  # should it be killed before it has, another one does it
            return
        except PeerLost as lost:
            began, reason = recorder.now(), str(lost)
            if steps.broken_off:
                account = GivenUp.of(
                    lost,
                    rank=comm.rank,
                    step=replica.step,
                    fruitless=steps.fruitless,
                    short=steps.short,
                    ended=strategy.traits.lockstep and steps.ended,
                    accused=member_session.accused,
                    sent=comm.last_sent,
                )
                review.gave_up(account, members)
            # In mid-training another length is the program's mistake, and both sides are in it.
            wrong = isinstance(lost, PeerWrong) and not (steps.broken_off and isinstance(lost, WrongLength))
            generation, as_before = member_session.next_generation(lost, wrong=wrong)
            if as_before:
                # A rank may see the connection of another survivor end first; who is gone is the coordinator's to say.
                reason = member_session.why(generation) or reason
            else:
                train_state.beginning = None
                servers.pushes = servers.acknowledged = 0  # those of another incarnation


@dataclass
class _Steps:
    """The steps of one generation, and whether they have come to anything."""

    train_state: TrainState
    traffic: Traffic
    member_session: MemberSession
    received: list[int] = field(default_factory=list)
    """Messages until the end of the first step and of the last one."""
    began: float = 0.0
    last: float = 0.0
    broken_off: bool = False
    """Whether training has ended before its end."""
    ended: bool = False
    """Whether the last step was made, and others are waited for after it."""

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        self.began = self.last = time.monotonic()
        self.broken_off = True
        yield
        self.broken_off = False

    def stepped(self) -> None:
        state, self.last = self.train_state, time.monotonic()
        self.received = [*self.received[:1], self.traffic.received]
        self.ended = state.progress >= 1
        self.member_session.stepped(
            step=state.replica.step, epoch=state.order.epoch, offset=state.order.offset, last=self.ended
        )

    @property
    def fruitless(self) -> bool:
        """Whether nothing has come from others in any whole step after the first, which has the beginning in it."""
        return len(self.received) < 2 or self.received[0] == self.received[1]

    @property
    def short(self) -> bool:
        """Whether the step that was given up had taken longer than all whole ones together."""
        return self.last - self.began < time.monotonic() - self.last


def common_facts(experiment: Experiment, train_state: TrainState) -> dict[str, str]:
    """What must be the same on all members; who has something else is refused, with what it is."""
    workload = train_state.workload.name
    if ".py" in experiment.workload:
        workload += f" ({sha256(check_file(experiment.workload).read_bytes()).hexdigest()[:12]})"
    return {
        "version": f"{__version__}, torch {torch.__version__}",
        "workload": workload,
        "strategy": describe(experiment.chosen_strategy),
        "model": layout_hash(train_state.replica)[:16],
        "data": fingerprint(train_state.workload.train),
        "test data": fingerprint(train_state.workload.test) if train_state.workload.test is not None else "none",
        "seed": str(experiment.training.seed),
    }
