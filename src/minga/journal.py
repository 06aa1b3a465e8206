"""Turns what a training loop does into events."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager

from minga.comm.transport import Transport
from minga.measure.events import Evaluated, Finished, Serving, Started, Stepped
from minga.measure.recorder import Recorder
from minga.replica import Replica

__all__ = ["Journal"]


class Journal:
    """One rank's account of a run."""

    def __init__(self, replica: Replica, comm: Transport, recorder: Recorder) -> None:
        self._replica = replica
        self._comm = comm
        self._recorder = recorder
        self._began = 0.0
        self._waited = 0.0
        self._samples = 0

    def started(self, *, samples: int, batch: int, epochs: int | None, steps: int | None) -> None:
        comm = self._comm
        self._recorder.spans.take()
        self._recorder.traffic.reset()  # handing out the first parameters is not training
        self._began = comm.now()
        self._recorder.emit(
            Started(
                time=comm.now(),
                rank=comm.rank,
                ranks=comm.size,
                pid=os.getpid(),
                parameters=self._replica.layout.length,
                samples=samples,
                batch=batch,
                epochs=epochs,
                steps=steps,
            )
        )
        self._recorder.flush()

    def serving(self) -> None:
        self._recorder.emit(Serving(time=self._comm.now()))
        self._recorder.flush()

    def stepped(self, *, samples: int, progress: float, epoch: float) -> None:
        traffic = self._recorder.traffic
        self._samples += samples
        self._recorder.emit(
            Stepped(
                time=self._comm.now(),
                step=self._replica.step,
                progress=progress,
                epoch=epoch,
                loss=self._replica.loss if math.isfinite(self._replica.loss) else None,
                samples=samples,
                seconds=self._take(),
                bytes_sent=traffic.bytes,
                messages_sent=traffic.messages,
            )
        )

    @contextmanager
    def evaluation(self, epoch: float) -> Iterator[dict[str, float]]:
        """Around an evaluation, which fills in the metrics; neither its time nor its messages count as training."""
        self._take()
        began = self._comm.now()
        metrics: dict[str, float] = {}
        with self._recorder.traffic.paused():
            yield metrics
        self._recorder.spans.take()
        seconds = self._comm.now() - began
        self._began += seconds
        if self._comm.rank == 0 and metrics:
            self._recorder.emit(
                Evaluated(time=self._comm.now(), step=self._replica.step, epoch=epoch, metrics=metrics, seconds=seconds)
            )
            self._recorder.flush()

    def finished(self) -> None:
        self._take()
        seconds = self._comm.now() - self._began
        traffic = self._recorder.traffic
        self._recorder.emit(
            Finished(
                time=self._comm.now(),
                steps=self._replica.step,
                samples=self._samples,
                seconds=seconds,
                work_seconds=seconds - self._waited,
                wait_seconds=self._waited,
                bytes_sent=traffic.bytes,
                messages_sent=traffic.messages,
                notes=self._replica.notes,
            )
        )
        self._recorder.flush()

    def _take(self) -> dict[str, float]:
        taken = self._recorder.spans.take()
        self._waited += taken.get("wait", 0.0)
        return taken
