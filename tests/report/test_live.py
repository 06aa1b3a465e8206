"""What people see while a run goes on, from events on disk."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from minga.report.live import LiveView, PlainView, WaitingView, view_for


def write_events(run: Path, *, cut_short: bool = False) -> None:
    (run / "events").mkdir(parents=True)
    step = {"event": "step", "time": 12.0, "step": 7, "progress": 0.5, "epoch": 1.0, "loss": 0.25, "samples": 160}
    step |= {"seconds": {"forward": 1.0, "wait": 3.0}, "bytes_sent": 2_500_000, "messages_sent": 9}
    started = {"event": "started", "time": 10.0, "rank": 0, "ranks": 2, "samples": 320, "parameters": 10, "batch": 8}
    evaluated = {"event": "evaluated", "time": 12.0, "step": 7, "metrics": {"loss": 0.3, "accuracy": 0.875}}
    lines = [json.dumps(event) + "\n" for event in (started, step, evaluated)]
    (run / "events" / "rank-0.jsonl").write_text("".join(lines) + ('{"event": "st' if cut_short else ""))
    serving = [started, {"event": "serving", "time": 10.5}]
    (run / "events" / "rank-1.jsonl").write_text("".join(json.dumps(event) + "\n" for event in serving))


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, height=30, color_system=None)


def text_of(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


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
    regrouped = {"event": "regrouped", "time": 13.0, "rank": 0, "ranks": 1, "generation": 2}
    with (tmp_path / "events" / "rank-1.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in (regrouped, step))
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
            {"event": "regrouped", "time": 20.0, "rank": 0, "ranks": 2},
        ):
            with (tmp_path / "events" / "rank-0.jsonl").open("a") as file:
                file.write(json.dumps(event) + "\n")
            for _ in range(2):
                quiet.tick()
                live.tick()
                live._live.refresh()
    assert text_of(plain).splitlines() == ["waiting: 1 worker is here, at least 2 needed", "training goes on"]
    assert "waiting (1 worker is here" in text_of(screen)
