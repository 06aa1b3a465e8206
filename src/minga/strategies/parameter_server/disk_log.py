"""A server's shard, restorable to the same bits: a snapshot now and then, and a log of every update since.

    update_log = DiskUpdateLog(run / "servers" / "server-0")
    update_log.append(shard, update)  # returns when the kernel has it: a killed process loses nothing

An update is in the log before it is applied and before any worker is answered, so what a worker knows of is on disk.
The same log takes an update back: the last snapshot before it is read, and all others are applied again. That costs
nothing until it is needed, where a copy of the last state would cost memory and time in every step. Snapshots are
written when the workers have their answers; the log before one goes when nobody can want it undone any more.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from minga.base.lazy import Tensor, torch
from minga.errors import MingaError, ProtocolError
from minga.model.sliced_optimizer import pieces_from, pieces_to
from minga.net.strict import parse
from minga.strategies.parameter_server.files import ShardFiles
from minga.strategies.parameter_server.shard import Key, Push, Shard, Update
from minga.strategies.parameter_server.update_log import Book, Entry, Period, UpdateLog

__all__ = ["DiskUpdateLog", "SnapshotRule"]

_LOG = logging.getLogger("minga.strategies.parameter_server")


@dataclass(frozen=True)
class SnapshotRule:
    """When a new snapshot is due; the log never gets much longer than this."""

    updates: int = 1000
    """Updates in the log: they are applied again when the shard is restored."""
    seconds: float = 60.0
    log_bytes: int = 64 << 20
    log_factor: float = 4.0
    """The log may have `log_bytes`, or this many times the size of a snapshot if that is more."""
    unsettled_factor: float = 4.0
    """It may be this many times as long where a worker has not pushed since the last snapshot: what it pushed before
    may have to be undone."""


class DiskUpdateLog(UpdateLog):
    """Keeps what was applied on disk. When that fails, training goes on with what is in memory."""

    def __init__(
        self, folder: Path, rule: SnapshotRule | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._files = ShardFiles(folder)
        self._rule = rule or SnapshotRule()
        self._clock = clock
        self._number = 0
        """Of the last snapshot, whose log is open; 0: none yet."""
        self._undone: set[Key] = set()
        """What was undone and is not yet said to be in the log."""
        self._marks: dict[str, int] = {}
        """For each worker, the last push before the last snapshot: until it pushes again, it may have to be undone."""
        self._older = False
        """Whether there are files from before the last snapshot."""
        self._broken = False
        self._since = 0
        self._taken = 0.0
        self._snapshot_bytes = 0
        self._costs = {"updates": 0, "bytes": 0, "seconds": 0.0, "snapshots": 0, "snapshot_seconds": 0.0}

    @property
    def holds(self) -> bool:
        return bool(self._files.numbers())

    def costs(self) -> dict[str, float]:
        return {name: float(value) for name, value in self._costs.items()}

    # --- while all is well --------------------------------------------------------------------------------------

    def begin(self, shard: Shard, period: Period) -> None:
        super().begin(shard, period)
        self._broken = False  # there may be space again
        with self._what_the_disk_takes():
            if self._number == 0 or self._undone:
                # The last snapshot may have what is undone in it, and older ones are about to go. The new one has a
                # number that no log has either: what is in an old log must not follow on it.
                self._write_snapshot(shard, self._files.last_number + 1)
                self._remove_older()
            self._files.append({"kind": "begin", "period": asdict(period), "undone": sorted(self._undone)})
            self._undone.clear()
            self._marks.clear()  # all servers have agreed on what is in it

    def append(self, shard: Shard, update: Update) -> None:
        super().append(shard, update)
        if self._broken:
            return
        began = self._clock()
        pushes = [[*push[:3], push.share if math.isfinite(push.share) else None] for push in update.pushes]
        facts = {
            "kind": "update",
            "pushes": pushes,
            "rates": list(update.learning_rates),
            "together": update.together,
            "gradients": len(update.gradients),
        }
        with self._what_the_disk_takes():
            before = self._files.log_bytes
            self._files.append(facts, update.gradients)
            self._since += 1
            self._costs["updates"] += 1
            self._costs["bytes"] += self._files.log_bytes - before
        self._costs["seconds"] += self._clock() - began

    def tidy_up(self, shard: Shard) -> None:
        if self._broken or self._number == 0:
            return
        began, rule = self._clock(), self._rule
        length = self._files.log_bytes / max(rule.log_bytes, rule.log_factor * self._snapshot_bytes)
        due = length >= 1 or self._since >= rule.updates or began - self._taken >= rule.seconds
        with self._what_the_disk_takes():
            if self._older and (self._settled() or length >= rule.unsettled_factor):
                self._remove_older()
            if due and not self._older:
                self._write_snapshot(shard, self._number + 1)
                assert self.period is not None
                self._marks = {member: self.book.last(member) for member in self.period.workers}
                self._costs["snapshots"] += 1
                self._costs["snapshot_seconds"] += self._clock() - began

    def _write_snapshot(self, shard: Shard, number: int) -> None:
        assert self.period is not None
        listed, tensors = pieces_to(shard.optimizer_state())
        facts = {
            "part": [shard.part.start, shard.part.stop],
            "version": self.version,
            "period": asdict(self.period),
            "book": self.book.entries,
            "rates": shard.learning_rates,
            "optimizer": listed,
        }
        tensors = {"parameters": shard.parameters, **tensors}
        self._snapshot_bytes = self._files.write_snapshot(number, facts, tensors)
        self._files.open_log(number)
        self._number, self._since, self._taken, self._older = number, 0, self._clock(), True

    def _settled(self) -> bool:
        """Whether nothing that is in the last snapshot can have to be undone."""
        return all(self.book.last(member) > number for member, number in self._marks.items() if number)

    def _remove_older(self) -> None:
        self._files.remove_before(self._number)
        self._older = False

    # --- when it is not -----------------------------------------------------------------------------------------

    def restore(self, shard: Shard) -> bool:
        began = self._clock()
        if not self._replay(shard, frozenset()):
            return False
        self._number = 0  # the log's end may be torn: begin() makes a snapshot and a log of its own
        _LOG.warning(
            "a server's shard was restored to version %d from %s in %.2f s",
            self.version,
            self._files.folder,
            self._clock() - began,
        )
        return True

    def undo(self, shard: Shard, undone: AbstractSet[Key]) -> bool:
        if not self._broken and self._replay(shard, undone | self._undone):
            self._undone |= undone
            return True
        return super().undo(shard, undone)

    def _replay(self, shard: Shard, undone: AbstractSet[Key]) -> bool:
        """Bring `shard` and this update_log to the state that the files are of, without some pushes."""
        for number in reversed(self._files.numbers()):
            try:
                facts, tensors = self._files.read_snapshot(number)
                if facts["part"] != [shard.part.start, shard.part.stop]:
                    raise ProtocolError(f"it is of the part {facts['part']}, not of {shard.part}")
            except MingaError as error:
                _LOG.warning("snapshot %d of a server's shard can't be used: %s; looking for another", number, error)
                continue
            undone_keys = [each.get("undone", ()) for each in self._files.all_facts(number)]
            skipped = {*undone, *((str(member), int(push)) for keys in undone_keys for member, push in keys)}
            book = Book({member: [Entry(*each) for each in entries] for member, entries in facts["book"].items()})
            if any(book.has(key) for key in skipped):
                continue  # it has them already: an older one is needed
            shard.go_to(tensors["parameters"], pieces_from(facts["optimizer"], tensors))
            shard.learning_rates = [float(rate) for rate in facts["rates"]]
            self.book, self.version = book, int(facts["version"])
            self.period = parse(Period, facts["period"], "a period")
            for record, content in self._files.records(number):
                self._again(shard, record, content, skipped)
            return True
        return False

    def _again(self, shard: Shard, facts: dict[str, Any], content: bytes, skipped: AbstractSet[Key]) -> None:
        if facts["kind"] == "begin":
            self.period = parse(Period, facts["period"], "a period")
            return
        update = _update_from(facts, content, shard.gradients).without(skipped)
        if update is None:
            return
        super().append(shard, update)
        if shard.apply(update):
            self.version += 1

    def reset(self) -> None:
        super().reset()
        self._files.remove()
        self._number = 0
        self._undone.clear()

    @contextlib.contextmanager
    def _what_the_disk_takes(self) -> Iterator[None]:
        """What it does not take must not end the training."""
        try:
            yield
        except (OSError, MingaError) as error:
            # What is there is soon too old, and must not be taken for the truth.
            self._broken = True
            _LOG.warning(
                "a server can't keep its updates in %s (%s). Training goes on, but if this server is lost now, it will "
                "go on from the workers' parameters and the last checkpoint; free some space, or have runs somewhere "
                "else",
                self._files.folder,
                error,
            )
            self._files.remove()
            self._number = 0

    def close(self, *, finished: bool = False) -> None:
        self._files.close()
        if finished:
            self._files.remove()


def _update_from(facts: dict[str, Any], content: bytes, like: Tensor) -> Update:
    """What `append` has written."""
    pushes = tuple(
        Push(str(member), int(number), int(step), math.nan if share is None else float(share))
        for member, number, step, share in facts["pushes"]
    )
    number = int(facts["gradients"])
    if len(content) != number * like.nbytes:
        raise ProtocolError(f"an update in the log has {len(content)} bytes, not {number} times {like.nbytes}")
    gradients: tuple[Tensor, ...] = ()
    if number and like.numel():
        flat = torch.frombuffer(bytearray(content), dtype=like.dtype)
        gradients = tuple(torch.unbind(flat.view(number, -1)))
    elif number:
        gradients = tuple(torch.empty_like(like) for _ in range(number))
    return Update(pushes, tuple(float(rate) for rate in facts["rates"]), gradients, bool(facts["together"]))
