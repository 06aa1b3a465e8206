"""Virtual time: tasks run one at a time, each until it waits, and time goes from event to event.

    engine = Engine()
    engine.spawn(program, name="rank 0"); engine.run()

A task is ordinary code on a greenlet of its own. Its clock may be ahead of the engine's: what it does in its own future
(send, compute) is an event of that future, and only who looks at what others have done must wait until the engine is
there. The order of events is their time, then the order in which they were made: the same program gives the same run.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from greenlet import GreenletExit, getcurrent, greenlet

from minga.comm.transport import Pending
from minga.errors import Deadlock

__all__ = ["Engine", "RankTask", "VirtualPending"]


@dataclass(eq=False, slots=True)
class RankTask:
    """Code that runs in virtual time."""

    engine: Engine
    function: Callable[[], None]
    name: str
    owner: Any
    """The rank that it belongs to."""
    clock: float
    beside: bool
    """Whether it runs beside the rank's training."""
    waiting_for: Callable[[], str] | None = None
    """What it is blocked on, in words."""
    finished: bool = False
    _greenlet: greenlet = field(init=False)

    def __post_init__(self) -> None:
        self._greenlet = greenlet(self._run, self.engine.hub)

    def _run(self) -> None:
        torch._C._set_grad_enabled(self.engine.gradients_wanted)  # somebody who waits may not want them
        try:
            self.function()
        except GreenletExit:  # the run is over, or its host is lost
            pass
        finally:
            self.finished = True
            self.engine.tasks.pop(self, None)

    def block(self, waiting_for: Callable[[], str]) -> None:
        """Let others run until `resume`; only for the task that runs now."""
        self.waiting_for = waiting_for
        gradients_wanted = torch.is_grad_enabled()  # belongs to the thread, which all tasks share
        self.engine.hub.switch()
        torch._C._set_grad_enabled(gradients_wanted)
        self.waiting_for = None

    def resume(self) -> None:
        """Run it until it blocks again; only for the engine's own events."""
        if self.finished:
            return
        engine = self.engine
        engine.look_at_owner(self.owner)
        before, engine.current = engine.current, self
        try:
            self._greenlet.switch()
        finally:
            engine.current = before

    def reach(self, time: float) -> None:
        """Let time pass, events included, until `time`; only for the task that runs now."""
        self.clock = max(self.clock, time)
        if self.clock > self.engine.now:
            self.engine.at(self.clock, self.resume)
            self.block(lambda: "for time to pass")

    def kill(self) -> None:
        """It does not go on. From the engine's own events only."""
        self.finished = True
        if self._greenlet:
            self._greenlet.throw(GreenletExit)


class VirtualPending(Pending):
    """Something under way in virtual time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._completed = False
        self._waiting: list[RankTask] = []

    def wait_in_words(self, waiting_for: Callable[[], str]) -> None:
        """Let others run until it is done."""
        if not self._completed:
            task = self._engine.task
            self._waiting.append(task)
            task.block(waiting_for)

    @property
    def done(self) -> bool:
        task = self._engine.task
        task.reach(task.clock)
        return self._completed

    def complete(self) -> None:
        """It is done now; from the engine's own events only."""
        self._completed = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            task.clock = max(task.clock, self._engine.now)
            task.resume()


class Engine:
    """The clock, the events to come, and the tasks."""

    def __init__(self, *, when_owner_changes: Callable[[Any, Any], None] | None = None) -> None:
        """`when_owner_changes`: called with the owner of the last task and that of the next one, if they differ."""
        self.now = 0.0
        self.hub = getcurrent()
        self.current: RankTask | None = None
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = itertools.count()
        self.tasks: dict[RankTask, None] = {}
        """Those that have not ended, in the order in which they began."""
        self._when_owner_changes = when_owner_changes
        self._owner: object = None
        self.gradients_wanted = torch.is_grad_enabled()
        """Whether torch keeps track of gradients where it was made: so tasks begin."""

    @property
    def task(self) -> RankTask:
        """The one that runs now."""
        assert self.current is not None, "only ranks work, send and wait"
        return self.current

    def at(self, time: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call `function(*arguments)` at this time, which must not be past; it must not block."""
        heapq.heappush(self._events, (time, next(self._number), function, arguments))

    def spawn(
        self, function: Callable[[], None], *, name: str, owner: Any = None, clock: float = 0.0, beside: bool = False
    ) -> None:
        """A task that begins at this time."""
        task = RankTask(self, function, name, owner, clock, beside)
        self.tasks[task] = None
        self.at(max(clock, self.now), task.resume)

    def look_at_owner(self, owner: Any) -> None:
        """A task of this one goes on."""
        if self._when_owner_changes is not None and owner is not self._owner:
            self._when_owner_changes(self._owner, owner)
            self._owner = owner

    def run(self) -> None:
        """Go from event to event until there are none; `Deadlock` if tasks still wait then.

        What a task raises ends everything, and is raised here.
        """
        assert self.hub is getcurrent(), "an engine runs where it was made"
        gradients_wanted = torch.is_grad_enabled()
        try:
            self._run()
        finally:
            torch._C._set_grad_enabled(gradients_wanted)
            self.close()

    def _run(self) -> None:
        events, pop = self._events, heapq.heappop
        while events:
            time, _, function, arguments = pop(events)
            self.now = time
            function(*arguments)
        lines = [f"{task.name} waits {task.waiting_for()}" for task in self.tasks if task.waiting_for is not None]
        if lines:
            more = f"; and {len(lines) - 16} more" if len(lines) > 16 else ""
            raise Deadlock(f"nobody can go on at {self.now:g} s: {'; '.join(lines[:16])}{more}")

    def kill(self, which: Callable[[Any], bool]) -> None:
        """End the tasks of some owners, from an event."""
        for task in list(self.tasks):
            if task is not self.current and which(task.owner):
                task.kill()

    def close(self) -> None:
        """End the tasks that are left."""
        for task in list(self.tasks):
            task.kill()
        self.tasks.clear()
        self._events.clear()
