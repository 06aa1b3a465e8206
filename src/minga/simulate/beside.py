"""Code that can't be left and come back to, in a world of greenlets: it runs on a thread, and waits there.

    beside_greenlets(add_up, compute)      # compute(add_up) on a thread; each call of add_up is made by the caller

Torch's backward pass keeps its state in the thread that it runs on, so two of them can't be under way on one thread.
Either this thread or the other one runs, never both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from torch import Tensor

from minga.model.sync_batch_norm.normalise import AddUp

__all__ = ["beside_greenlets"]


def beside_greenlets(add_up: AddUp, compute: Callable[[AddUp], None]) -> None:
    """Run `compute` to its end; errors on either side come out here."""
    asked: SimpleQueue[Tensor | BaseException | None] = SimpleQueue()
    answered: SimpleQueue[BaseException | None] = SimpleQueue()

    def ask(vector: Tensor) -> None:
        asked.put(vector)
        error = answered.get()
        if error is not None:
            raise error

    def body() -> None:
        try:
            compute(ask)
        except BaseException as error:  # whatever it is, the caller should have it
            asked.put(error)
        else:
            asked.put(None)

    thread = threading.Thread(target=body, name="computing beside greenlets", daemon=True)
    thread.start()
    while isinstance(request := asked.get(), Tensor):
        try:
            add_up(request)
        except BaseException as error:  # also a world that ends: the thread must end with it
            answered.put(error)
        else:
            answered.put(None)
    thread.join()
    if request is not None:
        raise request
