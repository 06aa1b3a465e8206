"""Follows the event files of a run while they grow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minga.measure.events import event_files

__all__ = ["Follower", "RankState"]


@dataclass
class RankState:
    """What is known of one rank so far."""

    rank: int
    role: str = "worker"
    host: str | None = None
    """Events don't tell it: only a finished run's summary does."""
    steps: int = 0
    samples: int = 0
    progress: float = 0.0
    epoch: float = 0.0
    loss: float | None = None
    bytes_sent: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    first_time: float = 0.0
    last_time: float = 0.0
    finished: dict[str, Any] | None = None
    samplings: list[dict[str, Any]] = field(default_factory=list)
    """The `sample` events: what its process used."""

    @property
    def wait_seconds(self) -> float:
        return float(self.finished["wait_seconds"]) if self.finished else self.seconds.get("wait", 0.0)

    @property
    def work_seconds(self) -> float:
        if self.finished:
            return float(self.finished["work_seconds"])
        return sum(seconds for name, seconds in self.seconds.items() if name != "wait")


class Follower:
    """Reads what is new in a run's events; `ranks` and `evaluations` are the state."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._offsets: dict[Path, int] = {}
        self.ranks: dict[int, RankState] = {}
        self.evaluations: list[dict[str, Any]] = []
        self.started: dict[str, Any] | None = None
        self.waiting = ""
        """What those who can't go on wait for, in words; empty when they train."""
        self._waiting_since = 0.0
        self.leader = 0
        """Whose step and loss stand for all; another one when ranks form anew without the first."""
        self._leads_since = 0.0
        self.changes: list[str] = []
        """Who has gone and come, in words."""
        self._members: list[str] = []
        self._generation = 0
        self.damaged_lines = 0
        """Lines that are no event; they are passed over."""

    def read(self) -> None:
        for path in event_files(self._run):
            rank = int(path.stem.removeprefix("rank-"))
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]  # the last line may still be on its way
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            for line in whole.splitlines():
                try:
                    self._take(rank, json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError):
                    self.damaged_lines += 1

    def _take(self, rank: int, event: dict[str, Any]) -> None:
        state = self.ranks.setdefault(rank, RankState(rank))
        before, state.last_time = state.last_time, event["time"]
        if event["event"] in ("started", "resumed", "recovered") and event["time"] > self._waiting_since:
            self.waiting = ""
        match event["event"]:
            case "resumed":
                state.first_time += event["time"] - before  # nobody trained between the two
            case "waiting":
                self.waiting, self._waiting_since = event["message"], event["time"]
                state.last_time = before  # nothing was done until then
            case "started":
                state.first_time = event["time"]
                self.started = self.started or event
                self._members = self._members or [f"node-{each}" for each in range(event["ranks"])]
            case "recovered":
                if event["generation"] > self._generation:  # all of them tell of it
                    self.changes.append(_change(self._members, event))
                    self._generation, self._members = event["generation"], event["members"]
                if event["rank"] == 0 and event["time"] >= self._leads_since:
                    self.leader, self._leads_since = rank, event["time"]
            case "serving":
                state.role = "worker, then server" if state.samples else "server"
            case "step":
                state.steps = event["step"]
                state.samples += event["samples"]
                state.progress, state.epoch = event["progress"], event["epoch"]
                state.loss = event["loss"] if event["loss"] is not None else state.loss
                state.bytes_sent = event["bytes_sent"]
                for name, seconds in event["seconds"].items():
                    state.seconds[name] = state.seconds.get(name, 0.0) + seconds
            case "sample":
                state.samplings.append(event)
            case "evaluated":
                self.evaluations.append({**event, "metrics": dict(event["metrics"])})
            case "finished":
                state.finished = event
                state.steps = event["steps"]
                state.bytes_sent = event["bytes_sent"]


def _change(before: Sequence[str], event: Mapping[str, Any]) -> str:
    """Who is in another group than before, as a sentence."""
    now = event["members"]
    gone, come = [who for who in before if who not in now], [who for who in now if who not in before]
    words = [f"{', '.join(them)} {what}" for them, what in ((gone, "gone"), (come, "here")) if them]
    nodes = f"{len(now)} nodes" if len(now) > 1 else "1 node"
    return f"{'; '.join(words) or 'formed anew'}: {nodes} from step {event['step']:,}"
