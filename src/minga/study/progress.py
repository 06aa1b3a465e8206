"""What happens in a study, as it happens: a bar over the whole of it with the run below, or plain lines.

with study_view_for(console) as view:
    run_study(study, out, view)
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from minga.report.live import LiveView, View, headline
from minga.report.numbers import duration
from minga.study.description import CellRun, Study
from minga.study.estimate import Forecast
from minga.study.results import Result

__all__ = ["LiveStudyView", "PlainStudyView", "Standing", "StudyView", "study_view_for"]

_PLAIN_SECONDS = 30.0


@dataclass
class Standing:
    """How far a study is."""

    study: Study
    forecast: Forecast
    left: list[CellRun]
    """What has not begun yet, in the order in which it will."""
    done: int
    """Of all runs of the study, those with a result; those of earlier days too."""
    job: CellRun | None = None
    """What runs now."""
    _began: float = field(default_factory=time.monotonic)
    _expected: float = 0.0
    """Of the current run."""
    _afterwards: float = 0.0

    def begin(self, job: CellRun | None) -> None:
        """Once for each run, since the forecast looks at all results."""
        self.job, self._began = job, time.monotonic()
        self._expected = self.forecast.seconds(job.cell) if job else 0.0
        rest = len(self.left) * self.study.cool_down_seconds
        self._afterwards = rest + sum(self.forecast.seconds(later.cell) for later in self.left)

    @property
    def seconds_left(self) -> float:
        """Estimated."""
        return self._afterwards + max(0.0, self._expected - (time.monotonic() - self._began))


class StudyView(View):
    """Shows nothing; base of those that do. Between `cell_begins` and `cell_ended` it is the view of a run."""

    def study_begins(self, standing: Standing) -> None:
        pass

    def preparation_begins(self, what: str) -> None:
        """A run that is none of the study's own: a warm-up, pretraining."""

    def cell_begins(self, standing: Standing) -> None:
        pass

    def cell_ended(self, standing: Standing, result: Result) -> None:
        pass


class LiveStudyView(LiveView, StudyView):
    """A bar over the whole study with the time left; below it, the run of the moment."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._study_progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._study = self._study_progress.add_task("study", total=None, left="")
        super().__init__(console, self._study_progress)
        self._standing: Standing | None = None
        self._what = ""

    def study_begins(self, standing: Standing) -> None:
        self._standing = standing
        self._study_progress.update(self._study, description=standing.study.name, total=len(standing.study.jobs))
        self.tick()

    def preparation_begins(self, what: str) -> None:
        self._what = what

    def cell_begins(self, standing: Standing) -> None:
        self._what = str(standing.job)
        self.tick()

    def cell_ended(self, standing: Standing, result: Result) -> None:
        self._console.print(_ended(standing, result), highlight=False)
        self.tick()

    def begin(self, run: Path, title: str) -> None:
        super().begin(run, self._what)

    def tick(self) -> None:
        super().tick()
        if self._standing is not None:
            left = f"about {duration(self._standing.seconds_left)} left (estimated)"
            self._study_progress.update(self._study, completed=self._standing.done, left=left)


class PlainStudyView(StudyView):
    """A line when a run begins and one when it ends; for long ones, where they are."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed_at = time.monotonic()

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)

    def study_begins(self, standing: Standing) -> None:
        total, study = len(standing.study.jobs), standing.study
        left = f"{len(standing.left)} to do, about {duration(standing.seconds_left)} (estimated)"
        done = f"{standing.done} done before, " if standing.done else ""
        self._print(f"{escape(study.title)}: {total} runs of {len(study.cells)} cells; {done}{left}")

    def preparation_begins(self, what: str) -> None:
        self._print(escape(what))

    def cell_begins(self, standing: Standing) -> None:
        left = f"about {duration(standing.seconds_left)} left (estimated)"
        self._print(f"{_count(standing, standing.done + 1)} {escape(str(standing.job))}: starting; {left}")

    def cell_ended(self, standing: Standing, result: Result) -> None:
        self._follower = None
        self._print(_ended(standing, result))

    def begin(self, run: Path, title: str) -> None:
        super().begin(run, title)
        self._printed_at = time.monotonic()

    def tick(self) -> None:
        if self._follower is not None and time.monotonic() - self._printed_at > _PLAIN_SECONDS:
            self._printed_at = time.monotonic()
            self._follower.read()
            self._print(f"{100 * self._follower.progress:3.0f} %  {headline(self._follower)}")


def study_view_for(console: Console) -> StudyView:
    return LiveStudyView(console) if console.is_terminal else PlainStudyView(console)


def _count(standing: Standing, number: int) -> str:
    total = len(standing.study.jobs)
    return f"{number:{len(str(total))}}/{total}"


def _ended(standing: Standing, result: Result) -> str:
    how = "done" if result.state == "done" else f"[red]failed[/]: {escape(result.error or '')}"
    return f"{_count(standing, standing.done)} {escape(str(result))}: {how} in {duration(result.wall_seconds)}"
