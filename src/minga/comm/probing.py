"""Measuring the links between ranks, over any transport: how many bytes a second, how long a word takes, what it costs.

    links = probe(comm)                     # the same on every rank; about two seconds for a few ranks

Pairs are measured one after the other, so that nobody disturbs anybody.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

from minga.base.config import Config
from minga.base.lazy import Tensor, torch
from minga.comm.collectives import all_reduce_sum, barrier
from minga.comm.transport import Transport

__all__ = ["Links", "probe", "usual_cost_of_a_byte"]

_WORDS = 9
_MESSAGES, _TRIALS = 50, 3
# On the link a short message is a packet with its headers.
_PACKET_BYTES = 100
_FIRST_BYTES, _MOST_BYTES = 1 << 16, 1 << 25
# A message that takes less says little of the link's bandwidth.
_LONG_ENOUGH_SECONDS, _JUST_LONG_ENOUGH = 0.08, 0.03
# Of more ranks than this, only neighbours and the first rank's links are measured; or, in a hurry, neighbours alone.
_ALL_PAIRS, _ALL_PAIRS_IN_A_HURRY = 5, 3
_BUSY_SECONDS = 0.05
_MOST_TURNS = 1 << 16
_PARTS = 5
# What a byte that is sent and one that is received cost on the core that trains, seen in a laboratory on two cores: on
# a link of 1 Gbit/s, where the kernel moves 64 kB at a time, and on one of 100 Mbit/s, packet by packet. Elsewhere a
# guess.
_FAST_SECONDS, _SLOW_SECONDS = 4e-9, 1.2e-8
_SLOW_LINK = 2e-8


@dataclass(frozen=True, kw_only=True)
class Links(Config):
    """What was measured. From rank to rank: the first index sends; 0 where nothing was measured."""

    kind = "measured links"

    bandwidth: tuple[tuple[float, ...], ...]
    """Bytes a second."""
    delay: tuple[tuple[float, ...], ...]
    """Seconds of a word's way, half of a round trip."""
    stolen_seconds_per_byte: float
    """What a byte that is sent and one that is received take from a rank that computes meanwhile."""
    message_seconds: float = 0.0
    """What a message costs however short it is: so far apart are short ones that follow each other."""

    def of_host(self, rank: int) -> tuple[float, float]:
        """Bytes a second away from a rank and towards it: the most that any pair has reached."""
        return max(self.bandwidth[rank]), max(row[rank] for row in self.bandwidth)


def usual_cost_of_a_byte(seconds_on_the_link: float) -> float:
    """What sending one and receiving one take from a rank that computes, where it was not measured."""
    return _SLOW_SECONDS if seconds_on_the_link > _SLOW_LINK else _FAST_SECONDS


def probe(comm: Transport, *, thorough: bool = True) -> Links:
    """Measure the links between all ranks; not `thorough`: in less than a second where they are few."""
    size = comm.size
    bandwidth, delay = torch.zeros(size, size, dtype=torch.float64), torch.zeros(size, size, dtype=torch.float64)
    costs: list[float] = []
    pairs = list(itertools.combinations(range(size), 2))
    if size > (_ALL_PAIRS if thorough else _ALL_PAIRS_IN_A_HURRY):
        hub = {(0, other) for other in range(1, size)} if thorough else {(0, size - 1)}
        pairs = sorted(hub | {(rank, rank + 1) for rank in range(size - 1)})
    for first, second in pairs:
        barrier(comm)
        if comm.rank in (first, second):
            other = second if comm.rank == first else first
            half = _round_trip(comm, other, leads=comm.rank == first) / 2
            for source, target in ((first, second), (second, first)):
                enough = _LONG_ENOUGH_SECONDS if thorough else _JUST_LONG_ENOUGH
                reached = _rate(comm, other, sends=comm.rank == source, way=half, long_enough=enough)
                if comm.rank == first:
                    bandwidth[source, target] = reached
                    delay[source, target] = half
            cost = _cost_of_a_message(
                comm, other, sends=comm.rank == first, way=half, rate=float(bandwidth[first, second])
            )
            costs += [cost] if comm.rank == first else []
    barrier(comm)
    stolen = 0.0
    if size > 1:
        # Every link was timed by the first of its two ranks; the mean is enough to choose how much to send.
        rate, measured = all_reduce_sum(comm, float(bandwidth.sum()), float((bandwidth > 0).sum()))
        mean = rate / measured
        stolen = _stolen(comm, mean) if thorough else usual_cost_of_a_byte(1 / mean)
    matrices = [*bandwidth.view(-1).tolist(), *delay.view(-1).tolist()]
    *told, stolen, cost = all_reduce_sum(comm, *matrices, stolen, sum(costs))
    rates, ways = torch.tensor(told[: size * size]), torch.tensor(told[size * size :])
    return Links(
        bandwidth=tuple(tuple(row) for row in rates.view(size, size).tolist()),
        delay=tuple(tuple(row) for row in ways.view(size, size).tolist()),
        stolen_seconds_per_byte=stolen / size,
        message_seconds=cost / max(1, len(pairs)),
    )


def _there_and_back(comm: Transport, other: int, message: Tensor, *, sends: bool) -> float:
    """Seconds of a message one way and a word the other way, on the clock of either rank."""
    word, began = torch.zeros(1, dtype=torch.float64), comm.now()
    if sends:
        comm.send(message, other)
        comm.receive(word, other)  # it has arrived
    else:
        comm.receive(message, other)
        comm.send(word, other)
    return comm.now() - began


def _round_trip(comm: Transport, other: int, *, leads: bool) -> float:
    word = torch.zeros(1, dtype=torch.float64)
    seconds = [_there_and_back(comm, other, word, sends=leads) for _ in range(_WORDS)]
    return statistics.median(seconds) if leads else 0.0


def _rate(comm: Transport, other: int, *, sends: bool, way: float, long_enough: float) -> float:
    """Bytes a second of messages that grow until one takes long enough; the first rank of the pair takes the time."""
    nbytes = _FIRST_BYTES
    leads = comm.rank < other
    while True:
        took = _there_and_back(comm, other, torch.zeros(nbytes, dtype=torch.uint8), sends=sends)
        seconds = max(took - (2 * way if sends else way), 1e-9)
        enough = seconds >= long_enough or nbytes >= _MOST_BYTES
        growth = torch.tensor([0 if enough else 4 if seconds < long_enough / 4 else 2])
        # The one that leads decides for both whether to go on, and how.
        if leads:
            comm.send(growth, other)
        else:
            comm.receive(growth, other)
        if int(growth) == 0:
            return nbytes / seconds
        nbytes *= int(growth)


def _cost_of_a_message(comm: Transport, other: int, *, sends: bool, way: float, rate: float) -> float:
    """How far apart short messages are that follow each other, beyond what their packets take on the link."""
    words = torch.zeros(_MESSAGES, dtype=torch.float64)
    seconds = []
    for _ in range(_TRIALS):
        if sends:
            comm.receive(words[:1], other)  # it is ready
            began = comm.now()
            for pending in [comm.isend(word, other) for word in words.view(-1, 1)]:
                pending.wait()
            comm.receive(words[:1], other)  # all are there
            seconds.append((comm.now() - began - 2 * way) / _MESSAGES)
        else:
            arrivals = [comm.ireceive(word, other) for word in words.view(-1, 1)]
            comm.send(torch.zeros(1, dtype=torch.float64), other)
            for arrival in arrivals:
                arrival.wait()
            comm.send(torch.zeros(1, dtype=torch.float64), other)
    return max(0.0, statistics.median(seconds) - _PACKET_BYTES / rate) if sends else 0.0


def _stolen(comm: Transport, rate: float) -> float:
    """How much longer computing takes beside messages, for each byte that is sent and received."""
    vector = torch.ones(1 << 14)

    def compute(turns: int) -> float:
        began = comm.now()
        for _ in range(turns):
            vector.mul_(1.0)
        return comm.now() - began

    turns = 1
    while turns < _MOST_TURNS and compute(turns) < _BUSY_SECONDS:
        turns *= 2
    if all_reduce_sum(comm, float(turns < _MOST_TURNS))[0] == 0:  # a simulation, in which this takes no time
        return 0.0
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    nbytes = int(min(_MOST_BYTES, max(1024.0, rate * _BUSY_SECONDS)))
    alone, beside = [], []
    for _ in range(_PARTS):
        barrier(comm)
        alone.append(compute(turns))
        barrier(comm)

        def swap(background: Transport) -> None:
            arrival = background.ireceive(torch.zeros(nbytes, dtype=torch.uint8), left)
            background.send(torch.zeros(nbytes, dtype=torch.uint8), right)
            arrival.wait()

        job = comm.start(swap)
        beside.append(compute(turns))
        job.wait()
    return max(0.0, statistics.median(beside) - statistics.median(alone)) / nbytes
