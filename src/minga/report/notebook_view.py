"""A run in a notebook's cell, while it goes on; elsewhere, in the terminal or as plain lines.

with live_view() as view:
    minga.run(experiment, view)
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from minga.report.follow import Follower
from minga.report.live import View, headline, view_for
from minga.report.pages.markup import bullets, grid, tag
from minga.report.terminal_tables import rank_cells

__all__ = ["NotebookView", "in_notebook", "live_view"]

_BETWEEN_UPDATES = 0.5


def in_notebook() -> bool:
    """Whether this is a kernel of Jupyter, with cells to show things in."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def live_view() -> View:
    """What fits here: a cell that changes, a terminal's live table, or lines."""
    return NotebookView() if in_notebook() else view_for(Console(stderr=True))


class NotebookView(View):
    """One output of a cell, which changes as the run goes on."""

    def __init__(self) -> None:
        self._follower: Follower | None = None
        self._title = ""
        self._handle: Any = None
        self._shown_at = 0.0
        self._ended = ""

    def begin(self, run: Path, title: str) -> None:
        self._show()  # what was before stays as it is
        self._follower, self._title, self._handle, self._ended = Follower(run), title, None, ""
        self._show()

    def tick(self) -> None:
        if time.monotonic() - self._shown_at >= _BETWEEN_UPDATES:
            self._show()

    def __exit__(self, *exception: object) -> None:
        self._ended = "ended by an error" if any(exception) else "done"
        self._show()

    def _show(self) -> None:
        if self._follower is None:
            return
        from IPython.display import display

        self._follower.read()
        self._shown_at = time.monotonic()
        if self._handle is None:
            self._handle = display(self, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(self)

    def __repr__(self) -> str:
        follower = self._follower
        if follower is None:
            return "no run yet"
        if not follower.ranks:
            return f"{self._title}: {self._ended or 'starting'}"
        return f"{self._title}: {self._state(follower)}   {headline(follower)}"

    def _state(self, follower: Follower) -> str:
        if self._ended or follower.waiting:
            return self._ended or f"waiting ({follower.waiting})"
        # A loop of one's own does not say where it ends.
        if follower.progress:
            return f"{100 * follower.progress:.0f} %"
        return f"epoch {max(state.epoch for state in follower.ranks.values()):.1f}"

    def _repr_html_(self) -> str:
        follower = self._follower
        if follower is None or not follower.ranks:
            return str(tag("p", tag("strong", self._title), f": {self._ended or 'starting'}"))
        full = 1.0 if self._ended == "done" else follower.progress
        bar = tag("progress", value=f"{full:.3f}", max="1", style="width: 20em")
        headings, *rows = rank_cells(follower.ranks.values())
        first = tag("div", tag("strong", self._title), " ", bar, " ", self._state(follower))
        changes = bullets(follower.changes)
        return str(tag("div", first, tag("div", str(headline(follower))), grid(headings, rows), changes))
