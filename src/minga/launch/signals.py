"""Signals that ask a run to stop, in the process that has started it.

with stop_when_asked() as stopping:
    ... stopping() ...   # the signal's number as soon as there was one
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

__all__ = ["stop_when_asked"]


@contextlib.contextmanager
def stop_when_asked(*signals: signal.Signals) -> Iterator[Callable[[], int]]:
    """Until the block ends, signals ask the run to stop instead of ending this process; which one has come.

    By default SIGTERM, and SIGHUP of a terminal that is closed, unless somebody (nohup) has said to go on then.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's business
        yield lambda: 0
        return
    asked: list[int] = []
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]  # one that is gone does not say what it was

    def ask(number: int, frame: object) -> None:
        asked.append(number)
        if number == signal.SIGHUP:
            _write_nowhere(terminals)

    chosen = signals or (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in chosen if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield lambda: asked[0] if asked else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_nowhere(streams: Sequence[int]) -> None:
    """Their terminal is gone: writing to it would fail, in the middle of what is still to be done."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream)
    os.close(nowhere)
