"""One rank's training through all changes of who is in the run: each generation has a transport of its own.

    with MemberSession.take(arguments, experiment, train_state) as member_session:
        train_through_changes(experiment, train_state, recorder, checkpoints, member_session, save=save)

When somebody dies, hangs, leaves or joins, the coordinator announces the next generation. The transport of the last one
is given up, which ends whatever a rank waits for; then the ranks connect anew, go on from the one that has come
furthest, and redo at most the step that was under way (with local steps, the period).
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from types import TracebackType
from typing import Any, Self

import torch

from minga._version import __version__
from minga.base.spec import describe
from minga.base.user_files import check_file
from minga.comm import barrier
from minga.comm.tcp import DataListener, TcpTransport
from minga.comm.traced import TracedTransport
from minga.data.fingerprint import fingerprint
from minga.errors import LeftBehind, PeerLost, PeerTimeout, PeerWrong, Refused, RunStopped
from minga.measure.recorder import Recorder
from minga.membership.member import Change, Member
from minga.membership.protocol import CoordinatorAddress
from minga.membership.suspicion import StepTimes
from minga.net.generation import Generation, MemberInfo, new_incarnation
from minga.net.tls import load_tls
from minga.runs.experiment import Experiment
from minga.strategies.capabilities import trainers
from minga.strategies.parameter_server.state import ServerState
from minga.training.checkpoints.manager import NoCheckpoints
from minga.training.checkpoints.snapshot import layout_hash
from minga.training.loop import run_log_of, train
from minga.training.recovery import recover
from minga.training.run_log import RunLog
from minga.training.train_state import Beginning, TrainState

__all__ = ["MemberSession", "train_through_changes"]

_log = logging.getLogger("minga.launch")

# How long a rank alone waits for a coordinator that has to be restarted before it gives up.
_WITHOUT_COORDINATOR_SECONDS = 60.0
_TICK_SECONDS = 1.0
# Connecting takes a few milliseconds; whom others can't reach for so long is suspected.
_CONNECTING_SECONDS = 5.0


class MemberSession:
    """A process's place in the run: its door for data, and its connection to the coordinator."""

    def __init__(
        self,
        contact: Callable[[MemberInfo], Member],
        info: MemberInfo,
        door: DataListener,
        leaving: Callable[[], bool] = lambda: False,
        patient: bool = False,
        told: Callable[[str], None] = lambda message: None,
        heartbeat_timeout_seconds: float = 5.0,
    ) -> None:
        """`leaving`: whether this process was asked to go, while the others go on.

        `patient`: whether it waits for people to start the others, however long that takes; `told` hears what it waits
        for, once.
        """
        self._contact = contact
        self._leaving = leaving
        self._patient = patient
        self._tell = told
        self._left = False
        self._info = info
        self._transport: TcpTransport | None = None
        self._timeout_seconds = _WITHOUT_COORDINATOR_SECONDS
        self._steps = StepTimes(heartbeat_timeout_seconds)
        self._over = threading.Event()
        self._workers = 0
        self.door = door
        self.member = self._join_as(info)
        self._watch = threading.Thread(target=self._look_for_hanging, name="minga-hanging", daemon=True)
        self._watch.start()

    @classmethod
    def take(
        cls,
        arguments: Mapping[str, Any],
        experiment: Experiment,
        train_state: TrainState,
        *,
        host: str = "localhost",
        leaving: Callable[[], bool] = lambda: False,
        told: Callable[[str], None] = lambda message: None,
    ) -> Self:
        """As `arguments` say: address and port of the coordinator, token, id, role, own address, certificates."""
        tls = load_tls(arguments["tls"]) if arguments.get("tls") else None
        door = DataListener(arguments["address"], tls)
        info = MemberInfo(
            id=arguments["id"],
            incarnation=new_incarnation(),
            address=arguments["address"],
            port=door.port,
            host=host,
            role=arguments.get("role", "worker"),
        )
        facts = facts_of(experiment, train_state)

        def contact(info: MemberInfo) -> Member:
            address, port = arguments["coordinator"]
            where = CoordinatorAddress(
                address=address,
                port=port,
                token=arguments["token"],
                run=arguments.get("name"),
                tls=tls,
                source_address=arguments["address"] if arguments.get("interface") else None,
            )
            return Member(where, info, facts)

        return cls(
            contact,
            info,
            door,
            leaving,
            patient=bool(arguments.get("listening")),
            told=told,
            heartbeat_timeout_seconds=experiment.cluster.heartbeat_timeout_seconds,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._left:  # first of all: the others wait for this process until they know
            self.interrupt()
            self.member.leave()
        if self._transport is not None:
            self._transport.close()
        if not self._left and (error is None or isinstance(error, RunStopped)):
            # Who was asked to stop is not missed either: all have been, and need not form anew for it.
            self.member.leave(finished=True)
        self.member.close()
        self.door.close()
        self._watch.join()

    def _join_as(self, info: MemberInfo) -> Member:
        member = self._contact(info)
        member.on_change(self._changed)
        return member

    def _changed(self, change: Change) -> None:
        """In the member's thread."""
        transport, announced = self._transport, change.announcement
        if transport is not None and (announced is None or announced.generation.number > self._number):
            transport.abort(change.reason)

    _number = 0

    def connect(self, generation: Generation, timeout_seconds: float) -> TcpTransport:
        """The transport of a generation, with everybody connected."""
        if self._transport is not None:
            self._transport.abort("the generation is over")
            self._transport.close()
        self._number, self._workers, self._timeout_seconds = generation.number, generation.workers, timeout_seconds
        self._steps.pause()
        rank = generation.rank_of(self._info.id)
        self._transport = transport = TcpTransport(generation, rank, self.door, timeout_seconds)
        latest = self.member.generation
        if latest is not None and latest.number > generation.number:
            transport.abort("another generation was announced meanwhile")
        if self._steps.longest:
            # Nothing tells of packets that a firewall drops: the coordinator decides who has to go. Others may be in
            # the middle of a step and not know yet; who has made none can't tell how long that takes.
            seconds = max(_CONNECTING_SECONDS, 3 * self._steps.longest)
            for missing in transport.not_connected_within(seconds):
                self.member.suspect(missing, f"no connection within {seconds:.0f} s", generation=generation.number)
        transport.wait_until_connected()
        self.member.formed(generation.number)
        return transport

    def first_generation(self, timeout_seconds: float, *, again: bool = False) -> Generation:
        """The first one with this process, within `timeout_seconds`; people who start others are waited for.

        `again`: it was in the run before, and waits as long as the coordinator says so.
        """
        if self._patient:  # for people, but not for a coordinator that has answered before and is gone
            timeout_seconds = min(timeout_seconds, _WITHOUT_COORDINATOR_SECONDS)
        deadline = time.monotonic() + timeout_seconds
        told = ""
        while True:
            try:
                return self.member.join(_TICK_SECONDS)
            except PeerTimeout:
                self.leave_if_asked()
                if self.member.connected and (self._patient or (again and self.member.message)):
                    deadline = time.monotonic() + timeout_seconds
                elif time.monotonic() > deadline:
                    why = self.member.message or "the coordinator has said nothing"
                    raise PeerTimeout(f"nothing began within {timeout_seconds:g} s: {why}") from None
                told = self._tell_waiting(told)

    def leave_if_asked(self) -> None:
        """`RunStopped` if this process was asked to go; the others then form anew."""
        if self._leaving():
            self._left = True
            raise RunStopped(f"{self._info.id} was asked to leave the run; the others go on")

    def interrupt(self) -> None:
        """End what this process waits for, since it is to leave; also from a signal's handler."""
        if self._transport is not None:
            self._transport.abort("asked to leave")

    def next_generation(self, lost: PeerLost) -> tuple[Generation, bool]:
        """After `lost`: the next generation, and whether this process is in it as before (or as new)."""
        self.leave_if_asked()
        if lost.rank is not None:
            wrong = isinstance(lost, PeerWrong)
            self.member.suspect(lost.rank, str(lost), generation=self._number, broken=True, wrong=wrong)
        began = alone_since = time.monotonic()
        told = ""
        while True:
            try:
                return self.member.wait_for_generation(self._number, _TICK_SECONDS), True
            except Refused as refused:
                return self._come_again(refused), False
            except PeerTimeout:
                self.leave_if_asked()
                if self.member.connected:
                    alone_since = time.monotonic()
                elif time.monotonic() - alone_since > _WITHOUT_COORDINATOR_SECONDS:
                    raise LeftBehind(
                        f"{lost}; and the coordinator did not answer for {_WITHOUT_COORDINATOR_SECONDS:g} s: "
                        f"{self.member.message}"
                    ) from None
                told = self._tell_waiting(told)
                if not told and isinstance(lost, PeerTimeout) and time.monotonic() - began > self._timeout_seconds:
                    raise lost from None  # nobody knows whom to go on without

    def why(self, generation: Generation) -> str:
        """Why it was announced, in the coordinator's words; empty if there is a later one already."""
        announcement = self.member.announcement
        return announcement.reason if announcement is not None and announcement.generation == generation else ""

    def _look_for_hanging(self) -> None:
        """Tell the coordinator of workers whose processes live, and whose answers don't come."""
        while not self._over.wait(_TICK_SECONDS):
            transport, number = self._transport, self._number
            if transport is None or transport.aborted:
                continue
            patience = self._steps.patience
            for rank in transport.awaited(patience):
                if rank < self._workers:  # a server waits for workers itself
                    why = f"no answer for {patience:.0f} s, ten times as long as a step"
                    self.member.suspect(rank, why, generation=number)

    def _tell_waiting(self, told: str) -> str:
        """What there is to say, if it is not what was said before."""
        message = self.member.message
        if message != told:
            _log.warning("%s waits: %s", self._info.id, message)
            self._tell(message)
        return message

    def _come_again(self, refused: Refused) -> Generation:
        """The others have gone on without this process: it comes as a new one."""
        _log.warning("%s was left behind (%s) and joins anew", self._info.id, refused)
        self.member.close()
        self._info = dataclasses.replace(self._info, incarnation=new_incarnation())
        self.member = self._join_as(self._info)
        try:
            return self.first_generation(_WITHOUT_COORDINATOR_SECONDS, again=True)
        except (Refused, PeerTimeout) as error:
            raise LeftBehind(f"{self._info.id} was left behind ({refused}) and can't come back: {error}") from None

    def stepped(self, train_state: TrainState) -> None:
        """After each step: say how far it has come, or go."""
        order = train_state.order
        self._steps.stepped()
        if train_state.progress >= 1:
            self._steps.pause()  # now the model is tested and saved, which takes as long as it takes
        self.member.report(train_state.replica.step, order.epoch, order.offset)
        self.leave_if_asked()
        if self._transport is not None and self._transport.aborted and train_state.progress < 1:
            raise PeerLost(self._transport.aborted)  # others need not wait until there is something to exchange


def facts_of(experiment: Experiment, train_state: TrainState) -> dict[str, str]:
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


def train_through_changes(
    experiment: Experiment,
    train_state: TrainState,
    recorder: Recorder,
    checkpoints: NoCheckpoints,
    member_session: MemberSession,
    *,
    save: Callable[[], None] = lambda: None,
) -> None:
    """Train to the end, with whoever is there; then the first rank of the last generation calls `save`."""
    strategy, timeout, spans = experiment.chosen_strategy, experiment.cluster.timeout_seconds, recorder.spans
    replica, servers = train_state.replica, ServerState.of(train_state.replica)
    run_log: RunLog | None = None
    checkpoints.goes_on, checkpoints.may_write = True, lambda: not member_session.member.lost_contact
    if checkpoints.put_back_before_meeting(strategy):
        # Whoever has the state hands it to all others when they come together.
        train_state.beginning = Beginning(train_state.replica.step, train_state.order.copy(), 0, 1)
    generation = member_session.first_generation(timeout)
    began = recorder.now()
    reason = ""
    while True:
        try:
            transport = member_session.connect(generation, timeout)
            comm = TracedTransport(transport, recorder.traffic, waiting=lambda: spans.span("wait"))
            servers.names = [f"{member.id} {member.incarnation}" for member in generation.members]
            servers.servers = len(generation.members) - generation.workers
            with recorder.traffic.paused():
                if recover(train_state, strategy, comm) is not None:
                    checkpoints.gone_on()
            if run_log is None:
                run_log = run_log_of(experiment, train_state, comm, recorder)
            else:
                members = [member.id for member in generation.members]
                owed = sum(map(len, train_state.order.owed))
                run_log.recovered(comm, generation.number, members, recorder.now() - began, reason, owed)
            train(
                experiment,
                train_state,
                comm,
                recorder,
                checkpoints,
                run_log,
                when_stepped=lambda: member_session.stepped(train_state),
            )
            ranks = trainers(strategy, replica, comm)
            if comm.rank < ranks:
                if comm.rank == 0:
                    save()
                barrier(comm.group(range(ranks)))  # should it be killed before it has, another one does it
            return
        except PeerLost as lost:
            began, reason = recorder.now(), str(lost)
            generation, as_before = member_session.next_generation(lost)
            if as_before:
                # A rank may see the connection of another survivor end first; who is gone is the coordinator's to say.
                reason = member_session.why(generation) or reason
            else:
                train_state.beginning = None
                servers.pushes = servers.acknowledged = 0  # those of another incarnation
