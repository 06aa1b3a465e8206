"""What happens in a run, as it happens: in a notebook's cell that changes, in a terminal, elsewhere as plain lines.

with live_view() as view:
    minga.run(experiment, view)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from minga.report.follow import Follower
from minga.report.numbers import shown_metric, size
from minga.report.pages.markup import bullets, grid, tag
from minga.report.terminal_tables import rank_cells, rank_table

__all__ = [
    "LiveView",
    "NotebookView",
    "PlainView",
    "View",
    "WaitingView",
    "headline",
    "in_notebook",
    "live_view",
    "seldom",
    "view_for",
]

_PLAIN_SECONDS = 5.0
_BETWEEN_TICKS = 0.1
_BETWEEN_UPDATES = 0.5


class View:
    """Shows nothing; base of those that do. `tick` is called a few times a second."""

    _follower: Follower | None = None
    """Of the run, once it has begun."""
    _title = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def begin(self, run: Path, title: str) -> None:
        self._follower, self._title = Follower(run), title

    def tick(self) -> None:
        pass


class LiveView(View):
    """A run in a terminal: progress, loss, accuracy, samples per second, and a table of ranks."""

    def __init__(self, console: Console, *above: RenderableType) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._task = self._progress.add_task("starting", total=1.0)
        self._shown: RenderableType = self._progress
        self._live = Live(Group(*above, self), console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def begin(self, run: Path, title: str) -> None:
        super().begin(run, title)
        self._progress.reset(self._task, description=f"{title}: starting")
        self._shown = self._progress

    def tick(self) -> None:
        follower = self._follower
        if follower is None:
            return
        follower.read()
        if follower.waiting:
            self._progress.update(self._task, description=f"{self._title}: waiting ({follower.waiting})")
        elif follower.ranks:
            self._progress.update(self._task, completed=follower.progress, description=self._title)
            # Made here and not when it is shown: that happens in another thread, while the follower changes.
            table = rank_table(follower.ranks.values())
            self._shown = Group(self._progress, headline(follower), table)
        for change in follower.news():
            self._live.console.print(change, highlight=False, markup=False)  # it stays above

    def __rich__(self) -> RenderableType:
        return self._shown


class WaitingView(View):
    """Says nothing but who comes and goes, and what a run waits for, when it does."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._waited = ""

    def tick(self) -> None:
        follower = self._follower
        if follower is None:
            return
        follower.read()
        lines = follower.news()
        if follower.waiting != self._waited:
            self._waited = follower.waiting
            lines.append(f"waiting: {self._waited}" if self._waited else "training goes on")
        for line in lines:
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)


class PlainView(WaitingView):
    """A line at each evaluation, and every few seconds between them."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._shown_evaluations = 0
        self._last = time.monotonic()

    def begin(self, run: Path, title: str) -> None:
        super().begin(run, title)
        self._shown_evaluations = 0
        self._console.print(f"{title}: starting; events in {run}", highlight=False, soft_wrap=True)

    def tick(self) -> None:
        super().tick()
        follower = self._follower
        if follower is None or follower.waiting:
            return
        news = len(follower.evaluations) > self._shown_evaluations or time.monotonic() - self._last > _PLAIN_SECONDS
        if follower.ranks and news:
            self._shown_evaluations = len(follower.evaluations)
            self._last = time.monotonic()
            line = f"{100 * follower.progress:3.0f} %  {headline(follower)}"
            self._console.print(line, highlight=False, soft_wrap=True)


class NotebookView(View):
    """One output of a cell, which changes as the run goes on."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown_at = 0.0
        self._ended = ""

    def begin(self, run: Path, title: str) -> None:
        self._show()  # what was before stays as it is
        super().begin(run, title)
        self._handle, self._ended = None, ""
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


def view_for(console: Console) -> View:
    return LiveView(console) if console.is_terminal else PlainView(console)


def in_notebook() -> bool:
    """Whether this is a kernel of Jupyter, with cells to show things in."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def live_view() -> View:
    """What fits here: a cell that changes, a terminal's live table, or lines."""
    return NotebookView() if in_notebook() else view_for(Console(stderr=True))


def headline(follower: Follower) -> Text:
    """Where a run is, in one line."""
    states = follower.ranks.values()
    # A node that has joined others sees only itself.
    worker = follower.ranks.get(follower.leader) or max(states, key=lambda state: state.steps, default=None)
    parts = []
    if worker is not None and worker.loss is not None:
        parts.append(f"step {worker.steps:,}   loss {worker.loss:.4f}")
    if follower.evaluations:
        metrics = follower.evaluations[-1].metrics
        parts += [f"{name} {shown_metric(name, value)}" for name, value in metrics.items() if name != "loss"]
    elapsed = max((state.last_time - state.first_time for state in states if state.samples), default=0.0)
    if elapsed > 0:
        parts.append(f"{sum(state.samples for state in states) / elapsed:,.0f} samples/s")
    parts.append(f"{size(sum(state.bytes_sent for state in states))} sent")
    return Text("   ".join(parts))


def seldom(tick: Callable[[], None]) -> Callable[[], None]:
    """`tick` for those who would call it thousands of times a second: a few times, and a tenth of the time at most."""
    due = 0.0

    def perhaps() -> None:
        nonlocal due
        began = time.monotonic()
        if began >= due:
            tick()
            ended = time.monotonic()
            due = ended + max(_BETWEEN_TICKS, 9 * (ended - began))

    return perhaps
