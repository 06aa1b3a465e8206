"""Fresh processes for pieces of one job. They never hear of Ctrl-C, and end with the process that started them.

    with Pool(processes=4, begin=prepare, arguments=(profile,)) as pool:
        answers = [pool.submit(work, piece) for piece in pieces]
        for answer in answers:
            answer.result()

Nothing is left of them when the block is left early: what has not begun is dropped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from typing import Any, ParamSpec, TypeVar

__all__ = ["Pool"]

P = ParamSpec("P")
Answer = TypeVar("Answer")


class Pool(ProcessPoolExecutor):
    """`begin(*arguments)` runs first in each process. A process that is killed raises `BrokenProcessPool` here."""

    def __init__(self, processes: int, begin: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        # Fresh processes instead of forked ones: forks of a process with threads can hang.
        super().__init__(processes, get_context("spawn"), initializer=_begin, initargs=(begin, arguments))

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel_futures=True)

    def submit(self, fn: Callable[P, Answer], /, *args: P.args, **kwargs: P.kwargs) -> Future[Answer]:
        with _deaf_to_interrupts():
            return super().submit(fn, *args, **kwargs)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that start meanwhile never hear of Ctrl-C, which is for this one; it hears of it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(begin: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    begin(*arguments)


def _end_with_parent() -> None:
    """The processes of a pool are not notified when their parent is killed: they would wait for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
