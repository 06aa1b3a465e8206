"""What happens in a run, as it happens: a live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from minga.report.follow import Follower
from minga.report.numbers import shown_metric, size
from minga.report.terminal_tables import rank_table

__all__ = ["LiveView", "OnScreen", "PlainView", "RunPanel", "View", "WaitingView", "headline", "seldom", "view_for"]

_PLAIN_SECONDS = 5.0
_BETWEEN_TICKS = 0.1


class View:
    """Shows nothing; base of those that do. `tick` is called a few times a second."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def begin(self, run: Path, title: str) -> None:
        pass

    def tick(self) -> None:
        pass


class RunPanel:
    """One run in a terminal: progress, loss, accuracy, samples per second, and a table of ranks."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._task = self._progress.add_task("starting", total=1.0)
        self._follower: Follower | None = None
        self._title = ""
        self._shown: RenderableType = self._progress

    def begin(self, run: Path, title: str) -> None:
        self._follower, self._title = Follower(run), title
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

    def news(self) -> list[str]:
        """Who has come and gone since this was asked last."""
        return self._follower.news() if self._follower is not None else []

    def __rich__(self) -> RenderableType:
        return self._shown


class OnScreen(View):
    """What views on a terminal have in common: `_live` is shown as long as the `with` block lasts."""

    _live: Live

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()


class LiveView(OnScreen):
    """A run as it goes on, in a terminal."""

    def __init__(self, console: Console) -> None:
        self._panel = RunPanel()
        self._live = Live(self._panel, console=console, refresh_per_second=8, transient=True)

    def begin(self, run: Path, title: str) -> None:
        self._panel.begin(run, title)

    def tick(self) -> None:
        self._panel.tick()
        for change in self._panel.news():
            self._live.console.print(change, highlight=False, markup=False)  # it stays above


class WaitingView(View):
    """Says nothing but who comes and goes, and what a run waits for, when it does."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._follower: Follower | None = None
        self._waited = ""

    def begin(self, run: Path, title: str) -> None:
        self._follower = Follower(run)

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


def view_for(console: Console) -> View:
    return LiveView(console) if console.is_terminal else PlainView(console)


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
