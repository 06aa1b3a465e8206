"""A thread with an event loop, for what goes on beside training.

thread = LoopThread("minga-listener"); thread.begin(listener.serve); thread.do(print, "from there"); thread.close()
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["LoopThread"]


class LoopThread:
    """Runs until it is closed; then what was begun is cancelled."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, action: Callable[..., object], *arguments: object) -> None:
        """Soon, in the thread; nothing happens once it is closed. Takes no lock: a signal's handler may call this."""
        with contextlib.suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(action, *arguments)

    def begin(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Go through something that takes longer, from any thread."""
        self.do(self._begin, work)

    def watch(self, descriptor: int, action: Callable[[], object]) -> None:
        """Call `action` in the thread whenever something can be read there."""
        self.do(self._loop.add_reader, descriptor, action)

    def close(self) -> None:
        self.do(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._cancel())
        finally:
            self._loop.close()

    async def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
