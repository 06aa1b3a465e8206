"""What a server has applied: which pushes of which workers, in which stretch of the training.

    update_log.begin(shard, period)                      # ranks have formed: these workers, from this place in the data
    update_log.append(shard, update); shard.apply(update); update_log.applied()
    update_log.tidy_up(shard)                            # when the workers have their answers

An `UpdateLog` itself keeps this in memory, for as long as its process lives. `disk_log` keeps it on disk too, with all
that is needed to get the shard back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from minga.model.sliced_optimizer import Piece
from minga.net.strict import Count, StrictRecord
from minga.strategies.parameter_server.shard import Key, Shard, Update

__all__ = ["Book", "Entry", "Period", "UpdateLog"]

# How many of a worker's last pushes are known one by one. Servers differ by one or two at most: a worker pushes again
# only when all servers have answered.
_REMEMBERED = 8


@dataclass(frozen=True)
class Period(StrictRecord):
    """A stretch of training in which the workers stay the same, so that it is known who took which samples."""

    number: Count
    step: Count
    """The last step before it."""
    order: dict[str, Any]
    """The position in the data where it begins."""
    workers: tuple[str, ...]
    """Id and incarnation of each, in the order of ranks."""
    agreed_facts: dict[str, Any] = field(default_factory=dict)
    """What the strategy's ranks have agreed on before."""


class Entry(NamedTuple):
    """A push that was applied."""

    number: Count
    period: Count
    step: Count


class Book:
    """The last pushes of each worker that are in a shard."""

    def __init__(self, entries: Mapping[str, Iterable[Entry]] | None = None) -> None:
        self._entries = {member: deque(each, maxlen=_REMEMBERED) for member, each in (entries or {}).items()}

    @property
    def entries(self) -> dict[str, list[Entry]]:
        return {member: list(entries) for member, entries in self._entries.items()}

    def add(self, member: str, entry: Entry) -> None:
        self._entries.setdefault(member, deque(maxlen=_REMEMBERED)).append(entry)

    def last(self, member: str) -> int:
        """The number of a worker's last push; 0 if there is none."""
        entries = self._entries.get(member)
        return entries[-1].number if entries else 0

    def has(self, key: Key) -> bool:
        return any(entry.number == key[1] for entry in self._entries.get(key[0], ()))

    def remove(self, keys: AbstractSet[Key]) -> None:
        for member, entries in self._entries.items():
            kept = [entry for entry in entries if (member, entry.number) not in keys]
            self._entries[member] = deque(kept, maxlen=_REMEMBERED)


class UpdateLog:
    """Keeps what was applied in memory alone."""

    def __init__(self) -> None:
        self.book = Book()
        self.period: Period | None = None
        self.version = 0
        """Updates applied."""
        self.rescue: Callable[[], Sequence[Piece]] = tuple
        """The optimizer's state of the last checkpoint, for when everything else is lost."""

    @property
    def holds(self) -> bool:
        """Whether there is something to restore a shard from."""
        return False

    def restore(self, shard: Shard) -> bool:
        """In a process that was started again: bring a shard to where the last one was; False if that can't be."""
        return False

    def begin(self, shard: Shard, period: Period) -> None:
        """From now on, these workers push."""
        self.period = period

    def append(self, shard: Shard, update: Update) -> None:
        """Before an update is applied, and long before any worker gets the result."""
        assert self.period is not None
        for push in update.pushes:
            self.book.add(push.member, Entry(push.number, self.period.number, push.step))

    def applied(self) -> None:
        """After it was, if it has changed something."""
        self.version += 1

    def tidy_up(self, shard: Shard) -> None:
        """Between two updates, when nobody waits: whatever has to be done now and then."""

    def undo(self, shard: Shard, undone: AbstractSet[Key]) -> bool:
        """Bring a shard to where it would be without some of the last pushes; False if it stays as it is."""
        self.book.remove(undone)
        return False

    def reset(self) -> None:
        """Forget everything: the shard is no longer what counts."""
        self.book, self.period, self.version = Book(), None, 0

    def close(self, *, finished: bool = False) -> None:
        """`finished`: the training is over, and nothing of it will be needed."""

    def costs(self) -> dict[str, float]:
        """What it took so far, for the report; empty where that is nothing."""
        return {}
