"""What people see while a run goes on, from events on disk."""

from __future__ import annotations

import io
import itertools
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from minga.report.live import LiveView, PlainView, WaitingView, seldom, view_for


def write_events(run: Path, *, cut_short: bool = False) -> None:
    (run / "events").mkdir(parents=True)
    step = {"event": "step", "time": 12.0, "step": 7, "progress": 0.5, "epoch": 1.0, "loss": 0.25, "samples": 160}
    step |= {"seconds": {"forward": 1.0, "wait": 3.0}, "bytes_sent": 2_500_000, "messages_sent": 9}
    started = {"event": "started", "time": 10.0, "rank": 0, "ranks": 2, "samples": 320, "parameters": 10, "batch": 8}
    started |= {"pid": 1, "epochs": 2, "steps": None}
    evaluated = {"event": "evaluated", "time": 12.0, "step": 7, "metrics": {"loss": 0.3, "accuracy": 0.875}}
    evaluated |= {"epoch": 1.0, "seconds": 0.5}
    lines = [json.dumps(event) + "\n" for event in (started, step, evaluated)]
    (run / "events" / "rank-0.jsonl").write_text("".join(lines) + ('{"event": "st' if cut_short else ""))
    serving = [started, {"event": "serving", "time": 10.5}]
    (run / "events" / "rank-1.jsonl").write_text("".join(json.dumps(event) + "\n" for event in serving))


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, height=30, color_system=None)


def text_of(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def recovered(time: float, *members: str, generation: int = 2, rank: int = 0) -> dict[str, Any]:
    """What a rank says when it goes on with these."""
    counts = {"ranks": len(members), "generation": generation, "step": 8, "seconds": 0.1, "reason": ""}
    return {"event": "recovered", "time": time, "rank": rank, "members": list(members), **counts}


def test_who_is_lost_and_who_comes_is_told_once(tmp_path: Path) -> None:
    write_events(tmp_path)
    plain, screen = console(terminal=False), console(terminal=True)
    with view_for(screen) as live, view_for(plain) as lines:
        for view in (live, lines):
            view.begin(tmp_path, "digits, 2 nodes, ring")
        for name, event in (
            ("rank-1", recovered(13.0, "node-1")),
            ("rank-1", recovered(14.0, "node-1", "laptop", generation=3)),
            ("rank-2", recovered(14.0, "node-1", "laptop", generation=3, rank=1)),  # the same, told by another
        ):
            with (tmp_path / "events" / f"{name}.jsonl").open("a") as file:
                file.write(json.dumps(event) + "\n")
            for view in (live, lines):
                view.tick()
    for shown in (text_of(plain), text_of(screen)):
        assert shown.count("node-0 gone: 1 node from step 8") == 1
        assert shown.count("laptop here: 2 nodes from step 8") == 1


def test_without_a_terminal_it_is_plain_lines(tmp_path: Path) -> None:
    screen = console(terminal=False)
    view = view_for(screen)
    assert isinstance(view, PlainView)
    write_events(tmp_path, cut_short=True)
    view.begin(tmp_path, "digits, 2 nodes, ring")
    view.tick()
    view.tick()  # nothing new, nothing said
    text = text_of(screen)
    assert "digits, 2 nodes, ring: starting" in text
    assert text.count("50 %  step 7   loss 0.2500   accuracy 87.5 %   80 samples/s   2.5 MB sent") == 1
    assert "\x1b" not in text


def test_when_the_first_rank_is_lost_another_one_stands_for_all(tmp_path: Path) -> None:
    screen = console(terminal=False)
    write_events(tmp_path)
    step = {"event": "step", "time": 14.0, "step": 9, "progress": 0.75, "epoch": 1.0, "loss": 0.125, "samples": 160}
    step |= {"seconds": {"forward": 1.0}, "bytes_sent": 2_500_000, "messages_sent": 9}
    with (tmp_path / "events" / "rank-1.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in (recovered(13.0, "node-1"), step))
    view = view_for(screen)
    view.begin(tmp_path, "digits, 2 nodes, ring")
    view.tick()
    assert "75 %  step 9   loss 0.1250" in text_of(screen)


def test_in_a_terminal_it_is_a_bar_a_headline_and_a_table_of_ranks(tmp_path: Path) -> None:
    screen = console(terminal=True)
    write_events(tmp_path)
    with view_for(screen) as view:
        assert isinstance(view, LiveView)
        view.begin(tmp_path, "digits, 2 nodes, ring")
        view.tick()
        view._live.refresh()
    text = text_of(screen)
    for part in ("digits, 2 nodes, ring", "50%", "accuracy 87.5 %", "own work", "waiting", "3.0 s", "2.5 MB", "server"):
        assert part in text


def test_before_anything_has_happened_nothing_is_shown(tmp_path: Path) -> None:
    screen = console(terminal=False)
    view = PlainView(screen)
    view.tick()
    view.begin(tmp_path, "digits")
    view.tick()
    assert text_of(screen).count("\n") == 1


def test_what_a_run_waits_for_is_said_once(tmp_path: Path) -> None:
    write_events(tmp_path)
    plain, screen = console(terminal=False), console(terminal=True)
    quiet = WaitingView(plain)
    quiet.begin(tmp_path, "digits, 2 nodes, ring")
    with view_for(screen) as live:
        assert isinstance(live, LiveView)
        live.begin(tmp_path, "digits, 2 nodes, ring")
        for event in (
            {"event": "waiting", "time": 13.0, "rank": 0, "message": "1 worker is here, at least 2 needed"},
            recovered(20.0, "node-0", "node-1"),
        ):
            with (tmp_path / "events" / "rank-0.jsonl").open("a") as file:
                file.write(json.dumps(event) + "\n")
            for _ in range(2):
                quiet.tick()
                live.tick()
                live._live.refresh()
    assert text_of(plain).splitlines() == [
        "waiting: 1 worker is here, at least 2 needed",
        "recovered: 2 nodes from step 8",
        "training goes on",
    ]
    assert "waiting (1 worker is here" in text_of(screen)


def test_who_has_news_all_the_time_is_looked_at_now_and_then() -> None:
    """As a simulation of a thousand ranks: looking at all of them at each of their steps took longer than the rest."""
    looks: list[float] = []

    def look() -> None:
        looks.append(time.monotonic())
        time.sleep(0.02)

    tick, end = seldom(look), time.monotonic() + 1.0
    while time.monotonic() < end:
        tick()
    assert 2 <= len(looks) <= 5
    assert all(later - earlier > 0.2 for earlier, later in itertools.pairwise(looks))
