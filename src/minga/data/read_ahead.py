"""Batches read before they are asked for, in threads, without ever changing which samples are used.

    ahead = ReadAhead(lambda share: fetch(dataset, share.indices, device), batches=4)
    batch = ahead.take(share, order, lambda copy: copy.take(rank, workers, batch))

What comes next is known from a copy of the order, since the order is a function. It is a guess: when ranks re-form, or
a run goes on from another place, what is asked for is not what was read ahead. Then that is dropped and read directly,
so positions, checkpoints and changes of membership know nothing of reading ahead.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from minga.data.order import Order, Share, Stretch

__all__ = ["ReadAhead", "in_advance"]

_IDLE_SECONDS = 0.5
# What a disk has to give is asked for at once by each read, so two keep it busy; more would only take memory.
_MOST_THREADS = 2
_LEAVING_SECONDS = 5.0

Item = TypeVar("Item")


class _ReaderThreads:
    """Threads that read what is submitted, and end when nothing was for a while: nobody has to close them."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        # Not `SimpleQueue`: there, who is late for an item when the time is over waits for ever (CPython 3.11).
        self._waiting: queue.Queue[tuple[Future[Any], Callable[[], Any]]] = queue.Queue()
        self._lock = threading.Lock()
        self._alive = 0
        self.unfinished = 0
        self.leaving = False
        _all_readers.add(self)

    def submit(self, read: Callable[[], Item]) -> Future[Item]:
        reading: Future[Item] = Future()
        with self._lock:
            self.unfinished += 1
            self._waiting.put((reading, read))
            if self._alive < min(self._threads, self.unfinished):
                self._alive += 1
                threading.Thread(target=self._work, name="minga-reader", daemon=True).start()
        return reading

    def _work(self) -> None:
        while True:
            try:
                reading, read = self._waiting.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._waiting.empty():  # nothing was put since; whoever puts from now on sees one fewer alive
                        self._alive -= 1
                        return
                continue
            if self.leaving:
                reading.cancel()
            if reading.set_running_or_notify_cancel():
                try:
                    reading.set_result(read())
                except BaseException as error:  # whoever asks for it gets it
                    reading.set_exception(error)
            del reading, read  # or the last batch would stay in memory until the next is read
            with self._lock:
                self.unfinished -= 1


_all_readers: weakref.WeakSet[_ReaderThreads] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    """A thread that Python ends in the middle of torch's work takes the whole process down with an abort."""
    for readers in list(_all_readers):
        readers.leaving = True  # it reads nothing more
    deadline = time.monotonic() + _LEAVING_SECONDS
    while any(readers.unfinished for readers in list(_all_readers)) and time.monotonic() < deadline:
        time.sleep(0.005)


class ReadAhead:
    """The next batches of one rank."""

    def __init__(self, read: Callable[[Share], Any], *, batches: int, threads: int = _MOST_THREADS) -> None:
        self._read = read
        self._batches = batches
        self._readers = _ReaderThreads(min(batches, threads))
        self._ahead: deque[tuple[tuple[Stretch, ...], Future[Any]]] = deque()
        self._order: Order | None = None
        """Where the last batch that is being read ahead ends."""
        self.hits = 0
        """Batches that had been read ahead, ..."""
        self.misses = 0
        """... and those that had not."""

    def take(self, share: Share, order: Order, coming: Callable[[Order], Share]) -> Any:
        """The batch of `share`, after which `order` stands; `coming` takes this rank's next share from a copy of it."""
        wanted = tuple(share.stretches)
        if self._ahead and self._ahead[0][0] == wanted:
            self.hits += 1
            reading = self._ahead.popleft()[1]
            self._read_on(coming)
            return reading.result()
        self.misses += 1
        for _, reading in self._ahead:
            reading.cancel()
        self._ahead.clear()
        self._order = order.copy()
        self._read_on(coming)
        return self._read(share)

    def _read_on(self, coming: Callable[[Order], Share]) -> None:
        assert self._order is not None
        for _ in range(2 * self._batches):  # not for ever: where samples are few, a rank may never get one
            if len(self._ahead) >= self._batches:
                return
            share = coming(self._order)
            if len(share.indices):  # otherwise nobody will ask for it
                self._ahead.append((tuple(share.stretches), self._readers.submit(partial(self._read, share))))


def in_advance(reads: Iterable[Callable[[], Item]], batches: int) -> Iterator[Item]:
    """What these functions return, in their order, some of them called in threads before they are asked for."""
    readers, ahead = _ReaderThreads(min(batches, _MOST_THREADS)), deque[Future[Item]]()
    try:
        for read in reads:
            ahead.append(readers.submit(read))
            if len(ahead) > batches:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for reading in ahead:
            reading.cancel()
