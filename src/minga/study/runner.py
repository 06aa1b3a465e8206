"""`run_study(study, out)`: run what is missing of a study, and remember what came out.

    outcome = run_study(load_study("quito", quick=True), Path("studies/quito-quick"))
    outcome.failed, outcome.missing

It may be killed at any moment and started again: runs with a result are not run a second time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from minga.engines.local import run
from minga.errors import MingaError, RunStopped
from minga.model.weights import weights_file
from minga.report.live import View
from minga.study.cells import weights_name
from minga.study.description import CellRun, Study
from minga.study.directory import remove_runs_without_a_result, remove_tree, study_directory
from minga.study.estimate import Forecast
from minga.study.progress import Standing, StudyView
from minga.study.results import Result, Results

__all__ = ["Outcome", "outcome_of", "run_study", "weights_of"]


@dataclass(frozen=True)
class Outcome:
    """Where a study stands."""

    study: Study
    directory: Path
    results: list[Result]
    """The last result of each run that the study asks for and that came to an end."""

    @property
    def done(self) -> list[Result]:
        return [result for result in self.results if result.state == "done"]

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.results if result.state == "failed"]

    @property
    def missing(self) -> int:
        """Runs without any result yet."""
        return len(self.study.jobs) - len(self.results)


def run_study(study: Study, out: Path, view: StudyView | None = None, *, fresh: bool = False) -> Outcome:
    """Run what has no good result yet in `out`; a run that fails is remembered, and the study goes on."""
    view = view or StudyView()
    with study_directory(out, study, fresh=fresh) as directory:
        results = Results(directory / "results.jsonl")
        _clean_up(directory, results)  # of one that was killed
        done = {identity for identity, result in results.latest().items() if result.state == "done"}
        left = [job for job in study.jobs if job.identity not in done]
        try:
            if left:
                _run_all(study, directory, left, results, view)
        finally:  # Ctrl-C, a full disk: a run without a result leaves no directory either
            _clean_up(directory, results)
    return outcome_of(study, directory)


def _clean_up(directory: Path, results: Results) -> None:
    remove_runs_without_a_result(directory / "runs", {Path(line.run).name for line in results.lines if line.run})
    for folder in ("warm-up", "pretraining"):
        remove_tree(directory / folder)


def outcome_of(study: Study, directory: Path) -> Outcome:
    """What is there, without running anything."""
    directory = directory.expanduser().resolve()
    latest = Results(directory / "results.jsonl").latest()
    return Outcome(study, directory, [latest[job.identity] for job in study.jobs if job.identity in latest])


def _run_all(study: Study, directory: Path, left: list[CellRun], results: Results, view: StudyView) -> None:
    forecast = Forecast(study.cells)
    cells = {cell.identity: cell for cell in study.cells}
    for result in results.lines:
        if result.state == "done" and result.cell in cells:
            forecast.took(cells[result.cell], result.wall_seconds)
    standing = Standing(study, forecast, list(left), done=len(study.jobs) - len(left))
    standing.begin(None)
    view.study_begins(standing)
    weights = _pretrained(study, directory, view)
    for job in left[: study.warm_up]:
        view.preparation_begins(f"warm-up: {job.cell.label}")
        _run_one(job, directory, "warm-up", view, weights)
        remove_tree(directory / "warm-up")
    for number, job in enumerate(left):
        if number or study.warm_up:
            _rest(study.cool_down_seconds, view)
        standing.left.remove(job)
        standing.begin(job)
        view.cell_begins(standing)
        result = _run_one(job, directory, "runs", view, weights)
        results.append(result)
        standing.done += 1
        if result.state == "done":
            forecast.took(job.cell, result.wall_seconds)
        standing.begin(None)
        view.cell_ended(standing, result)


def weights_of(study: Study, directory: Path) -> Path:
    """Where the weights of a study's pretraining lie, or will."""
    assert study.pretrained is not None
    return directory / weights_name(study.pretrained)


def _pretrained(study: Study, directory: Path, view: StudyView) -> Path | None:
    """The file with the weights that all runs begin with, trained now if it is not there."""
    if study.pretrained is None:
        return None
    weights = weights_of(study, directory)
    if not weights.exists():
        view.preparation_begins("pretraining")
        summary = run(study.pretrained.for_repetition(0, directory / "pretraining"), _Watched(view))
        weights_file(Path(summary.run)).rename(weights)
        remove_tree(directory / "pretraining")
    return weights


def _run_one(job: CellRun, directory: Path, runs: str, view: StudyView, weights: Path | None) -> Result:
    watched = _Watched(view)
    began = time.monotonic()
    error: str | None = None
    try:
        run(job.cell.for_repetition(job.repetition, directory / runs, weights=weights), watched)
    except RunStopped:  # the study was asked to end, not just this run
        raise
    except MingaError as failure:
        error = str(failure)
    return Result(
        cell=job.cell.identity,
        label=job.cell.label,
        values=job.cell.values,
        environment=job.cell.environment,
        repetition=job.repetition,
        state="done" if error is None else "failed",
        error=error,
        run=f"{runs}/{watched.directory.name}" if watched.directory else None,
        wall_seconds=time.monotonic() - began,
    )


def _rest(seconds: float, view: View) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        view.tick()
        time.sleep(min(0.2, left))


class _Watched(View):
    """The study's view of a run, which also remembers where the run's directory is."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.directory: Path | None = None

    def begin(self, run: Path, title: str) -> None:
        self.directory = run
        self._view.begin(run, title)

    def tick(self) -> None:
        self._view.tick()
