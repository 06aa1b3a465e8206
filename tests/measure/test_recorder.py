"""Events on disk, from several threads; spans."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from pathlib import Path

import pytest

from minga.measure.event_reader import event_files, machine_event_file, read_events
from minga.measure.events import Event, Finished, RankServing, Stepped
from minga.measure.recorder import Recorder
from minga.measure.spans import NO_SPANS, Spans


def test_events_of_many_threads_all_arrive_as_whole_lines(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "events.jsonl")

    def emit(sender: int) -> None:
        for number in range(2000):
            recorder.emit(RankServing(time=float(10_000 * sender + number)))
            if number % 3 == 0:
                recorder.flush()

    threads = [threading.Thread(target=emit, args=(sender,)) for sender in range(4)]
    patience = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # take turns as often as possible
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(patience)
    recorder.close()
    recorder.emit(RankServing(time=0.0))  # too late, and no error
    times = [event.time for event in read_events(tmp_path / "events.jsonl")]
    assert sorted(times) == [10_000 * sender + number for sender in range(4) for number in range(2000)]
    for sender in range(4):
        own = [time for time in times if time // 10_000 == sender]
        assert own == sorted(own)


def test_what_is_no_json_is_an_error_once_and_later_events_are_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "events.jsonl")
    bad = Finished(
        time=1.0,
        steps=1,
        samples=1,
        seconds=1.0,
        work_seconds=1.0,
        wait_seconds=0.0,
        bytes_sent=0,
        messages_sent=0,
        notes={"what": object()},
    )
    recorder.emit(bad)
    with pytest.raises(TypeError):
        recorder.flush()
    recorder.emit(RankServing(time=2.0))
    recorder.close()
    assert [event.time for event in read_events(tmp_path / "events.jsonl")] == [2.0]


@pytest.mark.parametrize("loss", [None, 0.1 + 0.2, 1e-12, 3.0])
def test_a_step_written_by_hand_is_what_json_would_write(loss: float | None) -> None:
    step = Stepped(
        time=12345.678901,
        step=7,
        progress=1 / 3,
        epoch=0.0,
        loss=loss,
        samples=16,
        seconds={"data": 1.5e-5, "forward": 2.0},
        bytes_sent=2**40,
        messages_sent=0,
    )
    by_hand, by_json = json.loads(step.to_json()), json.loads(Event.to_json(step))
    assert list(by_hand) == list(by_json)
    assert by_hand.pop("seconds") == pytest.approx(by_json.pop("seconds"), abs=1e-7)
    assert by_hand.pop("loss") == by_json.pop("loss")
    assert by_hand.pop("event") == by_json.pop("event")
    assert by_hand == pytest.approx(by_json, rel=1e-8)


def test_the_machine_is_no_rank(tmp_path: Path) -> None:
    for path in (machine_event_file(tmp_path), tmp_path / "events" / "rank-10.jsonl", tmp_path / "events/rank-9.jsonl"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert [path.name for path in event_files(tmp_path)] == ["rank-9.jsonl", "rank-10.jsonl"]


def test_spans_count_without_what_is_nested_in_them() -> None:
    now = 0.0
    spans = Spans(lambda: now)
    with spans.span("exchange"):
        now = 1.0
        with spans.span("wait"):
            now = 3.0
            with spans.span("wait"):  # inside itself
                now = 4.0
        now = 4.5
        assert spans.take() == {"exchange": 1.5, "wait": 3.0}
        now = 6.0
    now = 10.0  # in no span
    with spans.span("data"):
        pass
    assert spans.take() == {"exchange": 1.5}
    assert spans.take() == {}


def test_a_span_ends_with_an_error_too() -> None:
    now = 0.0
    spans = Spans(lambda: now)
    with pytest.raises(ValueError), spans.span("wait"):
        now = 1.0
        raise ValueError
    now = 5.0
    assert spans.take() == {"wait": 1.0}


def test_no_spans_keep_nothing() -> None:
    with NO_SPANS.span("data"), NO_SPANS.span("data"):
        pass
    assert NO_SPANS.take() == {}


def test_a_full_disk_keeps_nobody_from_training_and_what_fits_later_is_whole(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(small_disk / "events.jsonl")
    for number in range(100):
        recorder.emit(RankServing(time=float(number)))
    recorder.flush()
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    for number in range(100, 400):
        recorder.emit(RankServing(time=float(number)))
        recorder.flush()
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # once
    filler.unlink()
    recorder.emit(RankServing(time=400.0))
    recorder.close()
    lines = (small_disk / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["time"] for line in lines] == [float(number) for number in range(401)]


def test_what_a_full_disk_does_not_take_does_not_fill_memory(small_disk: Path) -> None:
    recorder = Recorder(small_disk / "events.jsonl")
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    for number in range(60_000):
        recorder.emit(RankServing(time=float(number)))
    recorder.flush()
    assert len(recorder._unwritten) <= 1 << 20
    (small_disk / "filler").unlink()
    recorder.flush()
    recorder.close()
    assert all(json.loads(line) for line in (small_disk / "events.jsonl").read_text().splitlines())
