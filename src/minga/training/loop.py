"""The training loop, the same for every strategy, transport and launcher."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from minga.comm.transport import Transport
from minga.measure.recorder import Recorder
from minga.model.buffers import agree_on_buffers, take_buffers
from minga.model.replica import Replica
from minga.runs.experiment import Experiment
from minga.strategies.base import Strategy
from minga.strategies.capabilities import Serving, active, capability, common_model, trainers
from minga.training.checkpoints.manager import NoCheckpoints
from minga.training.pace import Pace
from minga.training.run_log import RunLog
from minga.training.train_state import TrainState
from minga.training.whole_batch import WholeBatch

__all__ = ["start_together", "train"]


def train(
    experiment: Experiment,
    state: TrainState,
    comm: Transport,
    recorder: Recorder,
    checkpoints: NoCheckpoints | None = None,
    run_log: RunLog | None = None,
    *,
    when_stepped: Callable[[], None] = lambda: None,
) -> None:
    """Train on this rank until the end of the experiment; rank 0's events have the model's quality.

    `checkpoints`: who keeps checkpoints (None: nobody); `run_log`: one that has begun with other ranks.
    """
    strategy, settings = experiment.chosen_strategy, experiment.training
    replica, order = state.replica, state.order
    spans, run_log = recorder.spans, run_log or RunLog(replica, comm, recorder, experiment, state.workload)
    pace = Pace(experiment, comm, spans)
    whole_batch = WholeBatch(experiment, replica, comm, pace)

    def test(together: Transport, *, since: int | None) -> dict[str, float]:
        """Agree on buffers, then look how good the model is. `since`: of the test before; None where all agree now."""
        with run_log.evaluation(order.progress, together) as findings:
            same = contextlib.nullcontext()
            with same if since is None else common_model(strategy, replica, together, since=since):
                agree_on_buffers(replica.model, together)
                findings.take(state.evaluate(together))
        return findings.numbers

    with (checkpoints or NoCheckpoints()).attach(strategy, comm, run_log) as checkpoints:
        with checkpoints.put_back():
            start_together(strategy, replica, comm)
        run_log.started(samples=order.samples, batch=state.batch, epochs=state.epochs, steps=state.steps)
        begun, tested = 0, replica.step

        while True:
            ranks = trainers(strategy, replica, comm)
            if ranks != begun:  # at first, and when some take another role
                begun = ranks
                state.begin(strategy, comm.rank, ranks)
            if comm.rank >= ranks:
                with run_log.serving():
                    capability(strategy, replica, Serving).serve(replica, comm)
                return
            if state.progress >= 1:
                break

            replica.step += 1
            before = order.given_out
            with spans.span("data"):
                share = order.take(comm.rank, ranks, state.batch, state.total_batch)
                batch = state.fetch(share)
                state.schedule_learning_rate()
            replica.info.weight, replica.info.batch_fraction = share.weight, len(share.indices) / state.share_of(ranks)
            replica.statistics.keep()
            with pace.computing(), whole_batch.normalised(share.total, ranks):
                replica.compute_gradients(None if batch is None else partial(state.loss_of, batch))
            with spans.span("exchange"):
                strategy.step(replica, comm)
            good = run_log.stepped(samples=len(share.indices), progress=state.progress, epoch=order.progress)
            when_stepped()

            metrics: dict[str, float] = {}
            if settings.evaluates_between(before, order.given_out) and state.progress < 1:
                # Ranks that are not in lock step must not wait for each other: rank 0 looks at what it has.
                together = active(strategy, replica).traits.lockstep
                if together or comm.rank == 0:
                    metrics = test(comm.group(range(ranks) if together else [0]), since=tested)
                tested = replica.step
            checkpoints.stepped(good=good, metrics=metrics)

        with spans.span("exchange"):
            strategy.finish(replica, comm)
    run_log.finished()
    test(comm.group(range(trainers(strategy, replica, comm))), since=None)


def start_together(strategy: Strategy, replica: Replica, comm: Transport) -> None:
    """From here on these ranks train together, and begin with the same parameters, buffers and frozen weights."""
    replica.when_ready = lambda bucket: strategy.gradient_ready(replica, bucket, comm)
    comm.merges = replica.progress
    replica.replicas = trainers(strategy, replica, comm)
    replica.progress.begin(replica.step, replica.replicas, lockstep=active(strategy, replica).traits.lockstep)
    strategy.start(replica, comm)
    take_buffers(replica.model, comm)
