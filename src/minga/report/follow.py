"""Follows the event files of a run while they grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from minga.measure.event_reader import EventReader, event_files, machine_event_file, rank_of
from minga.measure.events import (
    Evaluated,
    Event,
    Failed,
    Finished,
    Powered,
    RankRecovered,
    RankServing,
    RankWaiting,
    Resumed,
    RunFacts,
    Sampled,
    Started,
    Stepped,
)

__all__ = ["Follower", "RankProgress"]


@dataclass
class RankProgress:
    """What is known of one rank so far."""

    rank: int
    role: str = "worker"
    host: str | None = None
    """In a lab, its name."""
    steps: int = 0
    samples: int = 0
    progress: float = 0.0
    epoch: float = 0.0
    loss: float | None = None
    bytes_sent: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    first_time: float = 0.0
    last_time: float = 0.0
    finished: Finished | None = None
    samplings: list[Sampled] = field(default_factory=list)
    """What its process used."""

    @property
    def training_seconds(self) -> float:
        """As the rank counted them, or (if it never said that it finished) from its first event to its last."""
        return self.finished.seconds if self.finished else self.last_time - self.first_time

    @property
    def wait_seconds(self) -> float:
        return self.finished.wait_seconds if self.finished else self.seconds.get("wait", 0.0)

    @property
    def work_seconds(self) -> float:
        if self.finished:
            return self.finished.work_seconds
        return sum(seconds for name, seconds in self.seconds.items() if name != "wait")


class Follower:
    """Reads what is new in a run's events; `ranks` and `evaluations` are the state."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._readers: dict[Path, EventReader] = {}
        self.ranks: dict[int, RankProgress] = {}
        self.evaluations: list[Evaluated] = []
        self.failures: list[Failed] = []
        self.started: Started | None = None
        """Of the first rank."""
        self.facts = RunFacts()
        """As the first rank said them last."""
        self.waiting = ""
        """What those who can't go on wait for, in words; empty when they train."""
        self._waiting_since = 0.0
        self.leader = 0
        """Whose step and loss stand for all; another one when ranks recover without the first."""
        self._leads_since = 0.0
        self._together = (0.0, 0)
        self.changes: list[str] = []
        """Who has gone and come, in words."""
        self._told = 0
        self._members: list[str] = []
        self._generation = 0

    @property
    def expected(self) -> int:
        """How many ranks there are, as was said last."""
        return self._together[1]

    @property
    def progress(self) -> float:
        """How far the furthest rank is, 0 to 1."""
        return max((state.progress for state in self.ranks.values()), default=0.0)

    @property
    def malformed(self) -> dict[str, int]:
        """How many lines were no events and were passed over, by file."""
        return {path.name: reader.malformed for path, reader in self._readers.items() if reader.malformed}

    def read(self) -> None:
        for path in event_files(self._run):
            rank = rank_of(path)
            for event in self._reader(path).read():
                if rank not in self.ranks:
                    self.ranks[rank] = RankProgress(rank)
                self._take(self.ranks[rank], event)

    def news(self) -> list[str]:
        """Who has gone and come since this was asked last."""
        new, self._told = self.changes[self._told :], len(self.changes)
        return new

    def read_machine_power(self) -> list[Powered]:
        """What has come since the last time of the counters of the whole machine, where there are any."""
        path = machine_event_file(self._run)
        events = self._reader(path).read() if path.is_file() else []
        return [event for event in events if isinstance(event, Powered)]

    def _reader(self, path: Path) -> EventReader:
        if path not in self._readers:
            self._readers[path] = EventReader(path)
        return self._readers[path]

    def _take(self, state: RankProgress, event: Event) -> None:
        before, state.last_time = state.last_time, event.time
        if type(event) is Stepped:  # first, since there are most of these
            state.steps = event.step
            state.samples += event.samples
            state.progress, state.epoch = event.progress, event.epoch
            state.loss = event.loss if event.loss is not None else state.loss
            state.bytes_sent = event.bytes_sent
            spent = state.seconds
            for name, seconds in event.seconds.items():
                spent[name] = spent.get(name, 0.0) + seconds
            return
        if isinstance(event, Started | Resumed | RankRecovered):
            self._together = max(self._together, (event.time, event.ranks))
            if event.time > self._waiting_since:
                self.waiting = ""
        if isinstance(event, Started | Resumed):
            state.host = event.host or state.host
            if state.rank == 0 or self.facts.strategy is None:
                self.facts = event
        match event:
            case Started():
                state.first_time = event.time
                self.started = self.started or event
                self._members = self._members or [f"node-{each}" for each in range(event.ranks)]
            case Resumed():
                state.first_time += event.time - before  # nobody trained between the two
            case RankWaiting():
                self.waiting, self._waiting_since = event.message, event.time
                state.last_time = before  # nothing was done until then
            case RankRecovered():
                if event.generation > self._generation:  # all of them have this event
                    self.changes.append(_change(self._members, event))
                    self._generation, self._members = event.generation, event.members
                if event.rank == 0 and event.time >= self._leads_since:
                    self.leader, self._leads_since = state.rank, event.time
            case RankServing():
                state.role = "worker, then server" if state.samples else "server"
            case Sampled():
                state.samplings.append(event)
            case Evaluated():
                self.evaluations.append(event)
            case Failed():
                self.failures.append(event)
            case Finished():
                state.finished = event
                state.steps = event.steps
                state.bytes_sent = event.bytes_sent


def _change(before: Sequence[str], event: RankRecovered) -> str:
    """Who is in another group than before, as a sentence."""
    now = event.members
    gone, come = [who for who in before if who not in now], [who for who in now if who not in before]
    words = [f"{', '.join(them)} {what}" for them, what in ((gone, "gone"), (come, "here")) if them]
    nodes = f"{len(now)} nodes" if len(now) > 1 else "1 node"
    return f"{'; '.join(words) or 'recovered'}: {nodes} from step {event.step:,}"
