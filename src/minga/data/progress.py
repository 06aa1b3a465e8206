"""How far long work on data has come, for whoever wants to show it.

with progress.task("train-images.gz", total=9_912_422, unit="bytes") as advance:
    advance(4096)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

__all__ = ["NO_PROGRESS", "ProgressDisplay"]


class ProgressDisplay:
    """Shows nothing; the command line has one that draws bars."""

    def task(self, name: str, *, total: int | None, unit: str) -> AbstractContextManager[Callable[[int], None]]:
        """Some work that begins; what it gives is called with each part that is done (less than 0: begun again).

        `unit`: "bytes", "files", "samples".
        """
        return contextlib.nullcontext(lambda done: None)


NO_PROGRESS = ProgressDisplay()
