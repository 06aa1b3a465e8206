"""AD-PSGD: pairs average whenever one of the two likes to, and nobody waits for a slow one."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from minga.base.lazy import Tensor, torch
from minga.codecs import Codec, Stream
from minga.comm import Pending, Transport
from minga.model.replica import Replica
from minga.strategies.capabilities import Checkpointed
from minga.strategies.gossip_graphs import Graph, partners

__all__ = ["AsynchronousGossip"]

_HEADER, _QUESTION, _ANSWER, _ANSWERED_STEPS = 1, 2, 3, 4
_MEET, _FINISH = 0.0, 1.0
# A fast rank waits at the end for the slowest one, and one that answers receives nothing while others compute.
_PATIENCE = 30.0


class AsynchronousGossip(Checkpointed):
    """One rank's side of AD-PSGD (Lian et al., arXiv:1710.06952).

    Even ranks ask: they send their parameters to an odd neighbour, get its own back, and both move half the way, each
    by the same difference, so that the sum of the two stays what it is. All this happens in the background, on
    copies: what a meeting changes is added by the owner's own thread at its next step, and a meeting that is not over
    by then is taken in later. So neither a slow rank nor a slow link holds anybody up. Parameters travel with the steps
    of all ranks that are in them, so that each rank knows what of a lost one has come to it, and what has to be done
    again.
    """

    remembers: ClassVar[tuple[str, ...]] = ("_chance", "_meetings")

    def __init__(self, replica: Replica, comm: Transport, graph: Graph, period: int, codec: Codec, seed: int) -> None:
        self._partners = partners(graph, rank=comm.rank, size=comm.size)
        self._period = period
        self._codec = codec
        self._stream = replica.stream("gossip")
        self._asks = comm.rank % 2 == 0
        self._chance = torch.Generator().manual_seed(seed + comm.rank)
        self._arrived: deque[_Change] = deque()
        """What a meeting of an asking rank has brought."""
        self._job: Pending | None = None
        self._answers: _Answers | None = None
        self._meetings = 0
        if not self._asks and self._partners:
            steps = torch.tensor(replica.progress.merged_steps, dtype=torch.float64)
            answers = self._answers = _Answers(self._partners, codec, self._stream, replica.parameters.clone(), steps)
            self._job = comm.start(answers.run)

    def step(self, replica: Replica, comm: Transport) -> None:
        if replica.info.batch_fraction:
            # A batch that the end of an epoch cut short counts less: there is no global batch to weigh it against.
            replica.gradients.mul_(min(1.0, replica.info.batch_fraction))
            replica.update()
        replica.progress.merge_ranks([comm.rank])
        self._take_in(replica)
        if self._job is not None and self._job.done and not self._arrived:
            self._job.wait()  # raises what went wrong in the background
        if self._asks and self._partners and self._job is None and replica.step % self._period == 0:
            self._meet(replica, comm)

    def settle(self, replica: Replica, comm: Transport) -> None:
        """At the end: no meeting is under way any more, and everybody has come so far."""
        if self._asks:
            if self._job is not None:
                self._job.wait()
                self._take_in(replica)
            comm.start(self._say_goodbye).wait(_PATIENCE)
        elif self._job is not None:
            self._job.wait(_PATIENCE)
            self._take_in(replica)
        replica.notes["meetings"] = self._answers.meetings if self._answers is not None else self._meetings
        _wait_for_all(comm)

    def announce_checkpoint(self, replica: Replica, comm: Transport, number: int, *, leaving: bool) -> None:
        if leaving:
            self.settle(replica, comm)  # nobody is left alone in the middle of a meeting

    def resume(self, replica: Replica, comm: Transport) -> None:
        """Nobody is answered with other parameters than those of the checkpoint."""
        if self._answers is not None:
            self._answers.take_in(replica)
        _wait_for_all(comm)

    def _take_in(self, replica: Replica) -> None:
        if self._answers is not None:
            self._answers.take_in(replica)
        elif self._arrived:
            self._arrived.popleft().apply(replica)
            self._job = None

    def _meet(self, replica: Replica, comm: Transport) -> None:
        partner = self._partners[int(torch.randint(len(self._partners), (1,), generator=self._chance))]
        mine = replica.parameters.clone()
        header = torch.tensor([_MEET, *replica.progress.merged_steps], dtype=torch.float64)
        self._meetings += 1

        def meeting(background: Transport) -> None:
            encoded = self._codec.encode_once(mine, self._stream)
            answer = self._codec.encoded_like(mine, self._stream)
            steps = torch.empty(len(header) - 1, dtype=torch.float64)
            arrivals = [
                background.ireceive(answer, partner, _ANSWER),
                background.ireceive(steps, partner, _ANSWERED_STEPS),
            ]
            # The header comes last, as a doorbell: who answers never waits for a question on a slow link.
            sends = [
                background.isend(encoded, partner, _QUESTION),
                background.isend(header, partner, _HEADER),
            ]
            for pending in [*sends, *arrivals]:
                pending.wait()
            self._arrived.append(_Change(_half_way(self._codec, self._stream, encoded, answer, mine), steps))

        self._job = comm.start(meeting)

    def _say_goodbye(self, background: Transport) -> None:
        header = torch.full((1 + background.size,), _FINISH, dtype=torch.float64)
        for pending in [background.isend(header, partner, _HEADER) for partner in self._partners]:
            pending.wait(_PATIENCE)


@dataclass
class _Change:
    """What meetings have brought: how far the parameters move, and the steps of all ranks that are in them then."""

    delta: Tensor
    steps: Tensor

    def apply(self, replica: Replica) -> None:
        replica.parameters.add_(self.delta)
        replica.progress.merge([int(step) for step in self.steps])

    def add(self, other: _Change) -> None:
        self.delta.add_(other.delta)
        self.steps = torch.maximum(self.steps, other.steps)


class _Answers:
    """The background of a rank that answers: as if the parameters were here, and averaging were one operation.

    The owner publishes its parameters after every step, and says which changes it has taken in so far. What it has not
    taken in yet is added to them for the next answer, so that several who ask between two steps of a slow owner meet
    each other's parameters too, and never pull it beyond their mean.
    """

    def __init__(
        self, partners: Sequence[int], codec: Codec, stream: Stream, parameters: Tensor, steps: Tensor
    ) -> None:
        self._partners = partners
        self._codec = codec
        self._stream = stream
        self._published = (parameters, steps, 0)
        """The owner's parameters, the steps and the number of the last change in them; replaced as a whole."""
        self._untaken: deque[tuple[int, _Change]] = deque()
        """At most one change, which the owner takes or this side adds to: who gets hold of it has it alone."""
        self._changes: dict[int, _Change] = {}
        """Changes that may not be in the published parameters yet, by number."""
        self._last = 0
        self.meetings = 0

    def take_in(self, replica: Replica) -> None:
        """By the owner, after its step: apply what has come, and publish."""
        number = self._published[2]
        try:
            number, change = self._untaken.popleft()
            change.apply(replica)
        except IndexError:
            pass
        steps = torch.tensor(replica.progress.merged_steps, dtype=torch.float64)
        self._published = (replica.parameters.clone(), steps, number)

    def run(self, background: Transport) -> None:
        like = self._published[0]
        inbox = {partner: self._codec.encoded_like(like, self._stream) for partner in self._partners}
        # Posted before anybody asks, so that a question travels at once.
        coming = {partner: background.ireceive(inbox[partner], partner, _QUESTION) for partner in self._partners}
        replies: dict[int, list[Pending]] = {}
        header = torch.empty(1 + background.size, dtype=torch.float64)
        while coming:
            partner = background.receive(header, None, _HEADER, patience=_PATIENCE)
            if float(header[0]) == _FINISH:
                coming.pop(partner).cancel()
                continue
            coming[partner].wait()
            for reply in replies.pop(partner, []):
                reply.wait()
            mine = self._current()
            encoded = self._codec.encode_once(mine.delta, self._stream)
            replies[partner] = [
                background.isend(encoded, partner, _ANSWER),
                background.isend(mine.steps, partner, _ANSWERED_STEPS),
            ]
            half_way = _half_way(self._codec, self._stream, encoded, inbox[partner], mine.delta)
            self._owe(_Change(half_way, header[1:].clone()))
            coming[partner] = background.ireceive(inbox[partner], partner, _QUESTION)
            self.meetings += 1
        for reply in itertools.chain(*replies.values()):
            reply.wait()

    def _current(self) -> _Change:
        """The parameters and steps of this moment, from zero on."""
        parameters, steps, included = self._published
        self._changes = {number: change for number, change in self._changes.items() if number > included}
        mine = _Change(parameters.clone(), steps.clone())
        for change in self._changes.values():
            mine.add(change)
        return mine

    def _owe(self, change: _Change) -> None:
        try:
            number, earlier = self._untaken.popleft()
            earlier.add(change)
            change = earlier
        except IndexError:
            self._last += 1
            number = self._last
        self._changes[number] = change
        self._untaken.append((number, change))


def _half_way(codec: Codec, stream: Stream, own: Tensor, other: Tensor, like: Tensor) -> Tensor:
    """Half of the difference between two encoded vectors: the other side has exactly the opposite."""
    mine, theirs = torch.empty_like(like), torch.empty_like(like)
    codec.decode(own, mine, stream)
    codec.decode(other, theirs, stream)
    return theirs.sub_(mine).div_(2)


def _wait_for_all(comm: Transport) -> None:
    """As a barrier, with the patience that the slowest rank needs."""
    token = torch.zeros(1)
    others = range(1, comm.size)
    if comm.rank == 0:
        for other in others:
            comm.receive(token, other, patience=_PATIENCE)
        for other in others:
            comm.send(token, other)
    else:
        comm.isend(token, 0).wait(_PATIENCE)
        comm.receive(token, 0, patience=_PATIENCE)
