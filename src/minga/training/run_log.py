"""Turns what a training loop does into events.

    run_log = RunLog(replica, comm, recorder, metering_of(experiment, comm.rank))
    run_log.started(...); run_log.stepped(...); run_log.finished()

What counts is training: from `started` to `finished`, without evaluations. That holds for times, messages, samples of
the process and the counters of interfaces alike.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

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
from minga.runs.experiment import Experiment
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
        metering: Metering | None = None,
        facts: RunFacts | None = None,
        *,
        non_finite_steps: int = 10,
    ) -> None:
        """`metering`: None for nothing but the events of training."""
        self._replica = replica
        self._comm = comm
        self._recorder = recorder
        self._metering = metering or Metering()
        self._facts = facts or RunFacts()
        self._interfaces = InterfaceMeter() if self._metering.alone_on_host else None
        self._began = 0.0
        self._waited = 0.0
        self._before: dict[str, float] = {}
        self._samples = 0
        self._started = False
        self._finished = False
        self._non_finite = NonFiniteSteps(non_finite_steps)
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
        self._before = dict(totals)
        self._resumed = (step, checkpoint)

    def started(self, *, samples: int | None, batch: int, epochs: int | None, steps: int | None) -> None:
        """Training begins; nothing where it only goes on with others."""
        if self._started:
            return
        self._started, comm = True, self._comm
        if self._interfaces is not None:
            self._interfaces.resume()
        self._recorder.spans.take()
        self._recorder.traffic.reset()  # handing out the first parameters is not training
        before = self._before
        self._recorder.traffic.count(int(before.get("bytes", 0)), int(before.get("messages", 0)))
        self._samples, self._waited = int(before.get("samples", 0)), before.get("waited", 0.0)
        self._began = comm.now() - before.get("seconds", 0.0)
        if self._resumed is not None and self._recorder.has_history:
            step, checkpoint = self._resumed
            event: Event = Resumed(
                time=comm.now(),
                rank=comm.rank,
                ranks=comm.size,
                pid=os.getpid(),
                step=step,
                checkpoint=checkpoint,
                **vars(self._facts),
            )
        else:
            event = Started(
                time=comm.now(),
                rank=comm.rank,
                ranks=comm.size,
                pid=os.getpid(),
                parameters=self._replica.layout.length,
                samples=samples,
                batch=batch,
                epochs=epochs,
                steps=steps,
                **vars(self._facts),
            )
        self._recorder.emit(event)
        self._recorder.flush()
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
        self._recorder.emit(
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
        self._recorder.flush()

    def serving(self) -> None:
        self._recorder.emit(RankServing(time=self._comm.now()))
        self._recorder.flush()

    def stepped(self, *, samples: int, progress: float, epoch: float) -> None:
        traffic = self._recorder.traffic
        self._samples += samples
        if not self._recorder.keeps_events:
            self._take()
            return
        replica = self._replica
        self._recorder.emit(
            (
                self._comm.now(),
                replica.step,
                progress,
                epoch,
                replica.info.loss,
                samples,
                self._take(),
                traffic.bytes,
                traffic.messages,
            )
        )

    def looked_for_non_finite(self) -> bool:
        """After each step: whether it counts; records NaN and infinities, and ends the run when there are too many."""
        replica = self._replica
        found = replica.info.non_finite
        if found is None and not replica.info.skipped:
            self._non_finite.in_a_row = 0
            return True
        if found is not None:
            self._recorder.emit(
                FoundNonFinite(
                    time=self._comm.now(),
                    rank=self._comm.rank,
                    step=replica.step,
                    layer=found.layer,
                    value=str(found.value),
                    in_a_row=self._non_finite.in_a_row + 1,
                )
            )
            self._recorder.flush()
        self._non_finite.stepped(
            rank=self._comm.rank,
            step=replica.step,
            found=found,
            skipped=replica.info.skipped,
            rates=replica.learning_rates,
        )
        return False

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
            self._recorder.emit(
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
            self._recorder.flush()

    @contextmanager
    def messages_aside(self, together: Transport) -> Iterator[None]:
        """Around messages of some ranks that are not training: they don't count."""
        # A rank that evaluates alone sends nothing for it, and a server beside it may go on with its own work.
        interfaces = self._interfaces if together.size > 1 and not self._finished else None
        with self._recorder.traffic.paused():
            if interfaces is not None:
                interfaces.pause()
            yield
            if interfaces is not None:
                interfaces.resume()

    def finished(self) -> None:
        self._take()
        now = self._comm.now()
        seconds = now - self._began
        self._finished = True
        self._recorder.stop_meter()
        counts = None
        if self._interfaces is not None:
            self._interfaces.pause()
            counts = self._interfaces.counts
        traffic = self._recorder.traffic
        self._recorder.emit(
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
        self._recorder.flush()

    def _take(self) -> dict[str, float]:
        taken = self._recorder.spans.take()
        self._waited += taken.get("wait", 0.0)
        return taken
