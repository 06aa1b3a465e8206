"""The training loop, the same for every strategy, transport and launcher."""

from __future__ import annotations

import os
from functools import partial

from minga.buffers import agree_on_buffers, take_buffers_of_first_rank
from minga.comm.transport import Transport
from minga.data.batches import fetch
from minga.evaluate import evaluate
from minga.experiment import Experiment
from minga.measure.events import Evaluated, Finished, Started, Stepped
from minga.measure.recorder import Recorder
from minga.trainee import Trainee

__all__ = ["train"]


def train(experiment: Experiment, trainee: Trainee, comm: Transport, recorder: Recorder) -> None:
    """Train on this rank until the end of the experiment; rank 0's events have the model's quality."""
    strategy, settings = experiment.chosen_strategy, experiment.training
    replica, order, workload = trainee.replica, trainee.order, trainee.workload
    spans, journal = recorder.spans, _Journal(trainee, comm, recorder)
    speed = experiment.cluster.speeds[comm.rank] if comm.rank < len(experiment.cluster.speeds) else 1.0

    replica.when_ready = lambda bucket: strategy.gradient_ready(replica, bucket, comm)
    strategy.start(replica, comm)
    take_buffers_of_first_rank(replica.model, comm)
    journal.started("worker" if comm.rank < strategy.trainers(replica, comm) else "server")

    while trainee.progress < 1:
        trainers = strategy.trainers(replica, comm)
        if comm.rank >= trainers:
            with spans.span("serve"):
                strategy.serve(replica, comm)
            journal.finished()
            return

        with spans.span("data"):
            share = order.take(comm.rank, trainers, trainee.batch)
            batch = fetch(workload.train, share.indices, trainee.device) if len(share.indices) else None
            trainee.schedule_learning_rate()
        replica.weight, replica.fill = share.weight, len(share.indices) / trainee.batch
        began = comm.now()
        replica.compute_gradients(None if batch is None else partial(trainee.loss_of, batch))
        if speed < 1:
            with spans.span("slowdown"):
                comm.sleep((comm.now() - began) * (1 / speed - 1))
        replica.step += 1
        with spans.span("exchange"):
            strategy.step(replica, comm)
        journal.stepped(len(share.indices))

        epoch_ended = order.offset == 0 and settings.evaluate_every and order.epoch % settings.evaluate_every == 0
        if epoch_ended and trainee.progress < 1:
            # Ranks that are not in step must not wait for each other: rank 0 looks at what it has.
            together = strategy.lockstep(replica)
            if together or comm.rank == 0:
                journal.evaluate(comm.group(range(trainers) if together else [0]))

    with spans.span("exchange"):
        strategy.finish(replica, comm)
    journal.finished()
    journal.evaluate(comm.group(range(strategy.trainers(replica, comm))))


class _Journal:
    """Turns what the loop does into events."""

    def __init__(self, trainee: Trainee, comm: Transport, recorder: Recorder) -> None:
        self._trainee = trainee
        self._comm = comm
        self._recorder = recorder
        self._began = 0.0
        self._waited = 0.0
        self._samples = 0

    def started(self, role: str) -> None:
        trainee, comm = self._trainee, self._comm
        self._recorder.spans.take()
        self._recorder.traffic.reset()  # handing out the first parameters is not training
        self._began = comm.now()
        self._recorder.emit(
            Started(
                time=comm.now(),
                rank=comm.rank,
                ranks=comm.size,
                role=role,
                pid=os.getpid(),
                parameters=trainee.replica.layout.length,
                samples=trainee.order.samples,
                batch=trainee.batch,
                epochs=trainee.epochs,
                steps=trainee.steps,
            )
        )
        self._recorder.flush()

    def stepped(self, samples: int) -> None:
        trainee, traffic = self._trainee, self._recorder.traffic
        self._samples += samples
        self._recorder.emit(
            Stepped(
                time=self._comm.now(),
                step=trainee.replica.step,
                progress=trainee.progress,
                epoch=trainee.order.progress,
                loss=trainee.replica.loss,
                samples=samples,
                seconds=self._take(),
                bytes_sent=traffic.bytes,
                messages_sent=traffic.messages,
            )
        )

    def evaluate(self, together: Transport) -> None:
        """Agree on buffers and test the model; not counted as training, nor are its messages."""
        trainee, comm = self._trainee, self._comm
        self._take()
        began = comm.now()
        with self._recorder.traffic.paused():
            agree_on_buffers(trainee.replica.model, together)
            metrics = evaluate(trainee.workload, trainee.replica, together, trainee.device)
        self._recorder.spans.take()
        self._began += comm.now() - began
        if comm.rank == 0 and metrics:
            self._recorder.emit(
                Evaluated(
                    time=comm.now(),
                    step=trainee.replica.step,
                    epoch=trainee.order.progress,
                    metrics=metrics,
                    seconds=comm.now() - began,
                )
            )
            self._recorder.flush()

    def finished(self) -> None:
        self._take()
        seconds = self._comm.now() - self._began
        traffic = self._recorder.traffic
        self._recorder.emit(
            Finished(
                time=self._comm.now(),
                steps=self._trainee.replica.step,
                samples=self._samples,
                seconds=seconds,
                work_seconds=seconds - self._waited,
                wait_seconds=self._waited,
                bytes_sent=traffic.bytes,
                messages_sent=traffic.messages,
                notes=self._trainee.replica.notes,
            )
        )
        self._recorder.flush()

    def _take(self) -> dict[str, float]:
        taken = self._recorder.spans.take()
        self._waited += taken.get("wait", 0.0)
        return taken
