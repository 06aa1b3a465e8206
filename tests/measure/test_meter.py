"""Samples of this very process."""

from __future__ import annotations

import mmap
import os
import threading
import time

import psutil
import pytest

from minga.measure.events import Event, Sampled
from minga.measure.meter import Meter, Metering


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Kept(list[Sampled]):
    def emit(self, event: Event) -> None:
        assert isinstance(event, Sampled)
        self.append(event)


def test_samples_cover_the_time_without_gaps_and_all_threads_count() -> None:
    kept = Kept()
    meter = Meter(kept.emit, Metering(interval_seconds=0.1, idle_watts=2.0, core_watts=4.0))
    began, cpu = time.perf_counter(), time.process_time()
    meter.start()
    other = threading.Thread(target=burn, args=(0.15,))
    other.start()
    burn(0.15)
    other.join()
    time.sleep(0.15)
    meter.stop()
    ended, used = time.perf_counter(), time.process_time() - cpu
    time.sleep(0.15)
    assert len(kept) >= 2  # not only the last; a busy machine wakes the meter late
    assert kept[-1].time == pytest.approx(ended, abs=0.02)  # cut short, and nothing after it
    assert kept[0].time - kept[0].seconds == pytest.approx(began, abs=0.02)
    for first, second in zip(kept, kept[1:], strict=False):  # noqa: RUF007
        assert second.time - second.seconds == pytest.approx(first.time, abs=1e-6)
    assert sum(sample.cpu_seconds for sample in kept) == pytest.approx(used, abs=0.05)
    assert used > 0.3  # of both threads
    joules = sum(sample.watts * sample.seconds for sample in kept)
    assert joules == pytest.approx(2 * (ended - began) + 4 * used, rel=0.1)
    assert all(sample.estimated for sample in kept)


def test_memory_is_what_is_resident_now() -> None:
    kept = Kept()
    meter = Meter(kept.emit, Metering(interval_seconds=60))
    meter.start()
    meter.pause()
    block = mmap.mmap(-1, 64_000_000)  # of its own: from the heap it might be memory that is resident already
    block.write(os.urandom(64_000_000))
    meter.resume()
    meter.stop()
    assert kept[1].memory_bytes - kept[0].memory_bytes > 50_000_000
    assert kept[1].memory_bytes == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
    block.close()


def test_what_happens_in_a_pause_is_in_no_sample() -> None:
    kept = Kept()
    meter = Meter(kept.emit, Metering(interval_seconds=0.05))
    meter.start()
    time.sleep(0.12)
    meter.pause()
    before = len(kept)
    burn(0.2)
    assert len(kept) == before
    meter.resume()
    time.sleep(0.12)
    meter.stop()
    assert sum(sample.cpu_seconds for sample in kept) < 0.1
    assert sum(sample.seconds for sample in kept) == pytest.approx(0.24, abs=0.08)


@pytest.mark.skipif(not os.path.exists("/proc/self/net/dev"), reason="needs /proc")  # noqa: PTH110
@pytest.mark.parametrize("alone", [True, False])
def test_interfaces_are_read_only_where_nobody_else_uses_them(alone: bool) -> None:
    kept = Kept()
    meter = Meter(kept.emit, Metering(interval_seconds=60, alone_on_host=alone))
    meter.start()
    meter.stop()
    (sample,) = kept
    assert (sample.bytes_sent is not None and sample.bytes_sent >= 0) == alone
    assert (sample.bytes_received is None) != alone


def test_a_meter_that_is_stopped_twice_or_was_never_started_is_quiet() -> None:
    kept = Kept()
    meter = Meter(kept.emit, Metering(interval_seconds=0.05))
    meter.stop()
    assert kept == []
    meter.start()
    meter.stop()
    meter.stop()
    assert len(kept) == 1
