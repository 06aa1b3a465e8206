"""Why ranks in virtual time are greenlets: what it costs to hand over to another one, against threads.

python benchmarks/switching.py              # some seconds
"""

from __future__ import annotations

import statistics
import threading
import time

import harness
from greenlet import getcurrent, greenlet

HANDOVERS, REPETITIONS = 20_000, 7


def greenlets() -> float:
    """Seconds of a handover to a task and back."""
    hub = getcurrent()

    def body() -> None:
        while True:
            hub.switch()

    task = greenlet(body, hub)
    began = time.perf_counter()
    for _ in range(HANDOVERS):
        task.switch()
    return (time.perf_counter() - began) / HANDOVERS


def threads() -> float:
    """The same with a thread that waits for its turn."""
    turn, back = threading.Semaphore(0), threading.Semaphore(0)
    going = True

    def body() -> None:
        while True:
            turn.acquire()
            if not going:
                return
            back.release()

    other = threading.Thread(target=body)
    other.start()
    began = time.perf_counter()
    for _ in range(HANDOVERS):
        turn.release()
        back.acquire()
    seconds = (time.perf_counter() - began) / HANDOVERS
    going = False
    turn.release()
    other.join()
    return seconds


def main() -> None:
    seconds = harness.alternate({"greenlets": greenlets, "threads": threads}, REPETITIONS)
    rows = [
        {"tasks": name, "microseconds": round(1e6 * statistics.median(values), 2)} for name, values in seconds.items()
    ]
    ratio = harness.median_ratio(seconds, "threads", "greenlets")
    harness.save("switching", rows, f"handing over to another task and back; threads take {ratio:.0f} times as long")


if __name__ == "__main__":
    main()
