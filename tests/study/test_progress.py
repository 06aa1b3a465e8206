"""What people see while a study goes on."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from minga.study import Batch, Result, Study, study_view_for
from minga.study.estimate import Forecast
from minga.study.progress import LiveStudyView, PlainStudyView, Standing


@pytest.fixture
def standing() -> Standing:
    study = Study(
        name="mine",
        question="?",
        experiment={"workload": "digits", "training": {"steps": 10}},
        batch=Batch(policy="total", size=8),
        grid={"cluster.nodes": [1, 2]},
        repetitions=2,
        cool_down_seconds=1.0,
    )
    return Standing(study, Forecast(study.cells), list(study.jobs), done=0)


def result(standing: Standing, **changes: str) -> Result:
    job = standing.study.jobs[0]
    return Result(
        cell=job.cell.identity,
        label=job.cell.label,
        values=job.cell.values,
        environment=None,
        repetition=0,
        state="failed" if changes else "done",
        error=changes.get("error"),
        run="runs/x",
        wall_seconds=12.3,
    )


def screen(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, height=30, color_system=None)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def write_events(run: Path) -> None:
    (run / "events").mkdir(parents=True)
    started = {"event": "started", "time": 10.0, "rank": 0, "ranks": 1, "samples": 320, "parameters": 10, "batch": 8}
    step = {"event": "step", "time": 12.0, "step": 7, "progress": 0.5, "epoch": 1.0, "loss": 0.25, "samples": 160}
    step |= {"seconds": {"forward": 1.0}, "bytes_sent": 0, "messages_sent": 0}
    (run / "events" / "rank-0.jsonl").write_text("".join(json.dumps(event) + "\n" for event in (started, step)))


def test_in_a_terminal_it_is_a_bar_over_the_study_with_the_run_below(standing: Standing, tmp_path: Path) -> None:
    console = screen(terminal=True)
    write_events(tmp_path)
    with study_view_for(console) as view:
        assert isinstance(view, LiveStudyView)
        view.study_begins(standing)
        standing.begin(standing.left.pop(0))
        view.cell_begins(standing)
        view.begin(tmp_path, "as the run calls it")
        view.tick()
        view._live.refresh()
        standing.done = 1
        view.cell_ended(standing, result(standing, error="the [network] is away"))
        view._live.refresh()
    text = text_of(console)
    label = str(standing.study.jobs[0])
    for words in ("mine", "0/4", "1/4", "left (estimated)", label, "50%", "step 7", "failed: the [network] is away"):
        assert words in text


def test_without_a_terminal_it_is_plain_lines(standing: Standing, tmp_path: Path) -> None:
    console = screen(terminal=False)
    write_events(tmp_path)
    view = study_view_for(console)
    assert isinstance(view, PlainStudyView)
    view.study_begins(standing)
    standing.begin(standing.left.pop(0))
    view.cell_begins(standing)
    view.begin(tmp_path, "as the run calls it")
    view.tick()  # a short run says nothing of itself
    standing.done = 1
    view.cell_ended(standing, result(standing))
    lines = text_of(console).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("mine: 4 runs of 2 cells; 4 to do")
    assert lines[1].startswith(f"1/4 {standing.study.jobs[0]}: starting; about ")
    assert lines[2] == f"1/4 {standing.study.jobs[0]}: done in 12.3 s"


def test_the_time_left_is_that_of_all_runs_and_rests(standing: Standing) -> None:
    for cell in standing.study.cells:
        standing.forecast.took(cell, 10.0)
    standing.begin(None)
    assert standing.seconds_left == pytest.approx(4 * 10 + 4 * 1)
    standing.begin(standing.left.pop(0))
    assert standing.seconds_left == pytest.approx(4 * 10 + 3 * 1, abs=0.5)
