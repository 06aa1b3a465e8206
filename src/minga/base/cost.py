"""Heavy work on vectors, told to whoever listens: the simulator, which lets virtual time pass for it.

    with listening(lambda work: world.work(profile.seconds(work))):
        ...                                          # encode, decode and update call `tell` when they are done

Nobody listens where time passes by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

__all__ = ["Work", "listening", "tell", "unheard"]


class Work(NamedTuple):
    """Something that takes time in proportion to the length of a vector."""

    kind: str
    """encode, decode or update."""
    what: Any
    """The codec; None for updates."""
    elements: int


_listener: Callable[[Work], None] | None = None


def tell(kind: str, what: Any, elements: int) -> None:
    if _listener is not None:
        _listener(Work(kind, what, elements))


@contextlib.contextmanager
def listening(listener: Callable[[Work], None] | None) -> Iterator[None]:
    """Tell `listener` of all work meanwhile; None: nobody."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


def unheard() -> bool:
    """Whether nobody listens."""
    return _listener is None
