"""Makes a rank as slow as its host is said to be.

    with pace.computing():
        replica.compute_gradients(...)

`cluster.speeds` pretends: the rank sleeps in proportion to the time that computing took. `cluster.cpu` gives the host
less time of a core, which the kernel enforces with a control group; but only on average over some milliseconds, so
short bursts of work between long waits would run at full speed, as they would on no slower machine. What the kernel has
not held back is made up for here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from minga.comm.transport import Transport
from minga.measure.kernel import ROOT, cpu_groups, throttled_seconds
from minga.measure.spans import Spans
from minga.runs.experiment import Experiment

__all__ = ["Pace"]


class Pace:
    """One rank's speed."""

    def __init__(self, experiment: Experiment, comm: Transport, spans: Spans) -> None:
        cluster, rank = experiment.cluster, comm.rank
        self._comm = comm
        self._spans = spans
        self._waited = 0.0
        self._speed = cluster.speeds[rank] if rank < len(cluster.speeds) else 1.0
        share = experiment.cpu_of(experiment.host_of(rank))
        self._share = 1.0 if share is None else min(1.0, share / cluster.threads)
        self._group = next(iter(cpu_groups(ROOT)[1]), None) if self._share < 1 else None

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """Around what a slower host takes longer for."""
        if self._speed == self._share == 1:
            yield
            return
        began, worked, throttled = self._comm.now(), time.thread_time(), self._throttled()
        self._waited = 0.0
        yield
        with self._spans.span("slowdown"):
            elapsed, work = self._comm.now() - began - self._waited, time.thread_time() - worked
            # Not `elapsed - work`: other processes that need the core hold everybody back, not this host alone.
            held_back = self._throttled() - throttled
            missing = max(0.0, work * (1 / self._share - 1) - held_back) if self._share < 1 else 0.0
            self._comm.sleep(missing + (elapsed + missing) * (1 / self._speed - 1))

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside of `computing`, around what no slower host takes longer for."""
        began = self._comm.now()
        yield
        self._waited += self._comm.now() - began

    def _throttled(self) -> float:
        return 0.0 if self._group is None else throttled_seconds(self._group) or 0.0
