"""Turns what a training loop does into events.

    run_log = RunLog(replica, comm, recorder, experiment, workload)
    run_log.started(...); good = run_log.stepped(...); run_log.finished()

What counts is training: from `started` to `finished`, without evaluations. That holds for times, messages, samples of
the process and the counters of interfaces alike.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from minga.base.spec import describe
from minga.comm.traced import TracedTransport
from minga.comm.transport import Transport
from minga.measure.events import (
    Evaluated,
    Event,
    Finished,
    FoundNonFinite,
    RankRecovered,
    RankServing,
    Resumed,
    RunFacts,
    Started,
)
from minga.measure.interfaces import InterfaceMeter
from minga.measure.meter import Metering
from minga.measure.recorder import Recorder
from minga.metrics.evaluation import Findings
from minga.model.non_finite import NonFiniteSteps
from minga.model.replica import Replica
from minga.runs.experiment import Experiment, Training
from minga.runs.workload import Workload
from minga.strategies import Strategy

__all__ = ["RunLog", "metering_of", "run_facts", "traced"]


def metering_of(experiment: Experiment, rank: int) -> Metering:
    """How the process of a rank is measured: by the rank itself, unless it lives beside a worker, which does it."""
    if experiment.host_of(rank) != rank:
        return Metering()
    measuring = experiment.measuring
    return Metering(
        interval_seconds=measuring.interval_seconds,
        idle_watts=measuring.idle_watts,
        core_watts=measuring.core_watts,
        alone_on_host=experiment.in_lab,
    )


def traced(transport: Transport, recorder: Recorder) -> TracedTransport:
    """A rank's transport for training: what is sent, and how long is waited, is counted by its recorder."""
    return TracedTransport(transport, recorder.traffic, waiting=lambda: recorder.spans.span("wait"))


def run_facts(
    experiment: Experiment, workload: Workload | None, rank: int, strategy: Strategy | None = None
) -> RunFacts:
    """What readers of a rank's events need to know; a user's own loop has no workload, and may choose the strategy."""
    strategy = strategy or experiment.chosen_strategy
    traits = strategy.traits
    return RunFacts(
        strategy=describe(strategy),
        lockstep=traits.lockstep and traits.servers_in_lockstep and not traits.changes_roles,
        elastic=experiment.elastic,
        servers=traits.servers,
        host=f"h{experiment.host_of(rank) + 1}" if experiment.in_lab else None,
        main_metric=workload.main_metric if workload is not None else None,
        lower_is_better=workload.lower_is_better if workload is not None else [],
    )


class RunLog:
    """One rank's account of a run."""

    def __init__(
        self,
        replica: Replica,
        comm: Transport,
        recorder: Recorder,
        experiment: Experiment | None = None,
        workload: Workload | None = None,
        strategy: Strategy | None = None,
    ) -> None:
        """Without an experiment there is nothing but the events of training; `strategy`: see `run_facts`."""
        self._replica = replica
        self._comm = comm
        self._recorder = recorder
        self._metering, self._facts, settings = Metering(), RunFacts(), Training()
        if experiment is not None:
            self._metering, settings = metering_of(experiment, replica.rank), experiment.training
            self._facts = run_facts(experiment, workload, replica.rank, strategy)
        self._interfaces = InterfaceMeter()
        """Counts nothing before it is resumed, which needs a host of this rank's own."""
        self._began = 0.0
        self._waited = 0.0
        self._before: Mapping[str, float] = {}
        self._samples = 0
        self._started = False
        self._finished = False
        self._non_finite = NonFiniteSteps(settings.non_finite_steps_in_a_row)
        self._resumed: tuple[int, str] | None = None

    def totals(self) -> dict[str, float]:
        """What has been counted so far, for a checkpoint."""
        traffic = self._recorder.traffic
        self._take()
        return {
            "seconds": self._comm.now() - self._began,
            "waited": self._waited,
            "samples": self._samples,
            "bytes": traffic.bytes,
            "messages": traffic.messages,
        }

    def go_on(self, totals: Mapping[str, float], step: int, checkpoint: str) -> None:
        """Before `started`: count on from a checkpoint's totals (none on another number of ranks)."""
        self._before = totals
        self._resumed = (step, checkpoint)

    def started(self, *, samples: int | None, batch: int, epochs: int | None, steps: int | None) -> None:
        """Training begins; nothing where it only goes on with others."""
        if self._started:
            return
        self._started, comm = True, self._comm
        if self._metering.alone_on_host:
            self._interfaces.resume()
        self._recorder.spans.take()
        self._recorder.traffic.reset()  # handing out the first parameters is not training
        before = self._before
        self._recorder.traffic.count(int(before.get("bytes", 0)), int(before.get("messages", 0)))
        self._samples, self._waited = int(before.get("samples", 0)), before.get("waited", 0.0)
        self._began = comm.now() - before.get("seconds", 0.0)
        who: dict[str, Any] = {"rank": comm.rank, "ranks": comm.size, "pid": os.getpid(), **vars(self._facts)}
        if self._resumed is not None and self._recorder.has_history:
            step, checkpoint = self._resumed
            self._say(Resumed(time=comm.now(), step=step, checkpoint=checkpoint, **who))
        else:
            length = self._replica.layout.length
            self._say(
                Started(
                    time=comm.now(), parameters=length, samples=samples, batch=batch, epochs=epochs, steps=steps, **who
                )
            )
        self._recorder.start_meter(self._metering)

    def recovered(
        self,
        comm: Transport,
        generation: int,
        members: Sequence[str],
        seconds: float,
        reason: str,
        owed: int = 0,
    ) -> None:
        """Training goes on with others; `owed`: samples that were given out and are in no model."""
        self._comm = comm
        self._say(
            RankRecovered(
                time=comm.now(),
                rank=comm.rank,
                ranks=comm.size,
                generation=generation,
                members=list(members),
                step=self._replica.step,
                seconds=seconds,
                reason=reason,
                owed=owed,
            )
        )

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Around the time in which this rank serves instead of training; with its end, the rank is done."""
        self._say(RankServing(time=self._comm.now()))
        with self._recorder.spans.span("serve"):
            yield
        self.finished()

    def stepped(self, *, samples: int, progress: float, epoch: float) -> bool:
        """After each step: whether it counts. Too many in a row with NaN or infinity are an error."""
        traffic, replica, comm = self._recorder.traffic, self._replica, self._comm
        self._samples += samples
        seconds = self._take()
        if self._recorder.keeps_events:
            loss, sent, messages = replica.info.loss, traffic.bytes, traffic.messages
            self._recorder.emit(
                (comm.now(), replica.step, progress, epoch, loss, samples, seconds, sent, messages)  # a `Stepped`
            )
        found, skipped = replica.info.non_finite, replica.info.skipped
        if found is not None:
            self._say(
                FoundNonFinite(
                    time=comm.now(),
                    rank=comm.rank,
                    step=replica.step,
                    layer=found.layer,
                    value=str(found.value),
                    in_a_row=self._non_finite.in_a_row + 1,
                )
            )
        return self._non_finite.stepped(
            rank=comm.rank, step=replica.step, found=found, skipped=skipped, rates=replica.learning_rates
        )

    @contextmanager
    def evaluation(self, epoch: float, together: Transport) -> Iterator[Findings]:
        """Around an evaluation, which fills in what it finds; neither its time nor its messages count as training."""
        self._take()
        began = self._comm.now()
        findings = Findings()
        with self._recorder.meter_paused(), self.messages_aside(together):
            yield findings
        self._recorder.spans.take()
        seconds = self._comm.now() - began
        self._began += seconds
        if self._comm.rank == 0 and findings.numbers:
            self._say(
                Evaluated(
                    time=self._comm.now(),
                    step=self._replica.step,
                    epoch=epoch,
                    metrics=findings.numbers,
                    seconds=seconds,
                    lower_is_better=findings.lower_is_better,
                    tables=findings.tables,
                )
            )

    @contextmanager
    def messages_aside(self, together: Transport) -> Iterator[None]:
        """Around messages of some ranks that are not training: they don't count."""
        # A rank that evaluates alone sends nothing for it, and a server beside it may go on with its own work.
        counting = self._metering.alone_on_host and together.size > 1 and not self._finished
        with self._recorder.traffic.paused():
            if counting:
                self._interfaces.pause()
            yield
            if counting:
                self._interfaces.resume()

    def finished(self) -> None:
        self._take()
        now, traffic = self._comm.now(), self._recorder.traffic
        seconds = now - self._began
        self._finished = True
        self._recorder.stop_meter()
        self._interfaces.pause()
        counts = self._interfaces.counts
        self._say(
            Finished(
                time=now,
                steps=self._replica.step,
                samples=self._samples,
                seconds=seconds,
                work_seconds=seconds - self._waited,
                wait_seconds=self._waited,
                bytes_sent=traffic.bytes,
                messages_sent=traffic.messages,
                interface=counts.to_dict() if counts is not None else None,
                notes=self._replica.notes,
                digest=self._replica.digest(),
            )
        )

    def _say(self, event: Event) -> None:
        """Events that come seldom are there at once."""
        self._recorder.emit(event)
        self._recorder.flush()

    def _take(self) -> dict[str, float]:
        taken = self._recorder.spans.take()
        self._waited += taken.get("wait", 0.0)
        return taken
